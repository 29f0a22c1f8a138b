# SPDX-License-Identifier: Apache-2.0
"""The format of a sample in a file, and its calls. One process makes samples and runs their forms with PyTorch. The other reads and
replays them with Phlox. A sample is a dict: op, variant, kind, path, dtype, args, kwargs, leaves (indices of tensors with requires_grad) and
forms (the outcome of each). A tensor is stored as dtype, sizes, strides and the bytes spanned by these, independent of the library."""
import base64
import ctypes
import gzip
import json
import lzma
import warnings


NUMBERS_ON_CPU = {"tensor_split"}  # ops with all tensors but the first on the CPU


def lookup(torch, path):
    """The function at a path such as nn.functional.relu or Tensor.add_; None if missing."""
    found = torch
    for name in path.removeprefix("torch.").split("."):
        found = getattr(found, name, None)
    return found


def raw_bytes(tensor, numbers):
    return ctypes.string_at(tensor.data_ptr(), numbers * tensor.element_size()) if numbers else b""


def storage_elements(size, stride):
    return 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))


def encode(torch, value, result=False):
    """Encodes a result as its elements in order with the strides, an argument as the memory spanned by its strides."""
    recurse = lambda v: encode(torch, v, result)
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized or type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError("a tensor of another layout or type")
        if getattr(value, "_is_zerotensor", bool)():  # has no memory
            value = torch.zeros(value.shape, dtype=value.dtype)
        kept = value.detach().cpu().resolve_conj().resolve_neg() if hasattr(value, "resolve_neg") else value.detach().cpu()
        size, stride = list(value.shape), list(value.stride())
        data = raw_bytes(kept.contiguous(), kept.numel()) if result else raw_bytes(kept, storage_elements(size, stride))
        return {"tensor": [str(value.dtype).split(".")[-1], size, stride, base64.b64encode(data).decode()]}
    for name, kind in ("torch", (torch.dtype, torch.layout, torch.memory_format)), ("device", torch.device):
        if isinstance(value, kind):
            return {name: str(value).split(".")[-1]}
    if isinstance(value, (tuple, list)):
        return [*map(recurse, value)] if type(value) is list else {"tuple": [*map(recurse, value)]}
    if isinstance(value, slice):
        return {"slice": [recurse(value.start), recurse(value.stop), recurse(value.step)]}
    if isinstance(value, dict):
        return {"dict": [[recurse(k), recurse(v)] for k, v in value.items()]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if value is Ellipsis:
        return {"ellipsis": None}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be kept")


def decode(torch, value, device):
    """The inverse of encode."""
    recurse = lambda v: decode(torch, v, device)
    if isinstance(value, list):
        return [*map(recurse, value)]
    if not isinstance(value, dict):
        return value
    (tag, kept), = value.items()
    if tag == "tensor":
        dtype, size, stride, data = kept
        dtype, data = getattr(torch, dtype), base64.b64decode(data)
        flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
        return flat.to(device).as_strided(size, stride)
    if tag == "torch":
        return getattr(torch, kept)
    return {"device": lambda: torch.device(device), "tuple": lambda: tuple(map(recurse, kept)), "slice": lambda: slice(*map(recurse, kept)),
            "dict": lambda: {recurse(k): recurse(v) for k, v in kept}, "complex": lambda: complex(*kept), "ellipsis": lambda: ...}[tag]()


def tensors(torch, value):
    """The tensors in a structure, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors(torch, v)] if isinstance(value, (list, tuple)) else []


class Call:
    """A sample's call, with new arguments for each form."""

    def __init__(self, torch, sample, device):
        self.torch, self.sample, self.device = torch, sample, device
        first, *others = sample["args"] or [None]
        argument_device = "cpu" if sample["op"] in NUMBERS_ON_CPU else device
        self.args = [decode(torch, first, device), *decode(torch, others, argument_device)][:len(sample["args"])]
        self.kwargs = {k: decode(torch, v, argument_device) for k, v in sample["kwargs"].items()}
        if self.kwargs.get("device") == "cpu":
            self.kwargs["device"] = device
        self.inputs = tensors(torch, [self.args, self.kwargs])

    def run(self, path=None, **more):
        self.torch.manual_seed(0)
        function = lookup(self.torch, path or self.sample["path"])
        if function is None:
            raise AttributeError(f"{path} is missing")
        if "state" not in self.sample:
            return function(*self.args, **self.kwargs, **more)
        module = function(*self.args, **self.kwargs).to(self.device, getattr(self.torch, self.sample["dtype"])).train(self.sample["train"])
        state = [decode(self.torch, v, self.device) for v in self.sample["state"]]
        module.load_state_dict(dict(zip(module.state_dict(), state)))
        inputs = decode(self.torch, self.sample["inputs"], self.device)
        self.inputs = [*tensors(self.torch, inputs), *module.parameters()]
        for i in self.sample["leaves"] if self.needs_grad else ():
            self.inputs[i].requires_grad_()
        return module(*inputs, **{k: decode(self.torch, v, self.device) for k, v in self.sample["named"].items()})

    needs_grad = False

    def forward(self):
        return self.run()

    def method(self):
        return self.run("Tensor." + self.sample["op"])

    def inplace(self):
        return self.run("Tensor." + self.sample["op"] + "_")

    def out(self, change=lambda t: t):
        """Returns the given out tensors with the result, whether they were returned, and the warnings."""
        like = self.run()
        given = tuple(change(self.torch.zeros_like(t)) for t in tensors(self.torch, like))
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            result = self.run(out=given[0] if isinstance(like, self.torch.Tensor) else given)
        same = all(a is b for a, b in zip(tensors(self.torch, result), given))
        return [list(given), same, [str(w.message).split(" (Triggered")[0] for w in raised]]

    def out_resized(self):
        return self.out(lambda t: self.torch.zeros(t.numel() + 1, dtype=t.dtype, device=t.device))

    def out_strided(self):
        return self.out(lambda t: self.torch.zeros((*t.shape, 2), dtype=t.dtype, device=t.device)[..., 0])

    def out_int(self):
        return self.out(lambda t: self.torch.zeros_like(t, dtype=self.torch.int32))

    def grad(self, order=1):
        torch, self.needs_grad = self.torch, True
        if "state" not in self.sample:
            for i in self.sample["leaves"]:
                self.inputs[i].requires_grad_()
        results = tensors(torch, self.run())
        leaves = [self.inputs[i] for i in self.sample["leaves"]]
        for deeper in range(order):
            differentiable = [t for t in results if t is not None and t.requires_grad]
            along = [cotangent(torch, t) for t in differentiable]
            results = torch.autograd.grad(differentiable, leaves, along, allow_unused=True, create_graph=deeper + 1 < order)
        return list(results)

    def gradgrad(self):
        return self.grad(2)


def cotangent(torch, t):
    """Values exact in every dtype, the same in each library."""
    numbers = [(i * 7 % 13 - 6) / 4 for i in range(13)]
    flat = (numbers * (t.numel() // 13 + 1))[:t.numel()]
    return torch.tensor(flat, dtype=t.dtype, device=t.device).reshape(t.shape)


def outcome(torch, sample, form, device="cpu"):
    """Runs a form. Returns the encoded result {"value": ...} or {"error": [class, text]}."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = getattr(Call(torch, sample, device), form)()
            if device != "cpu":
                torch.cuda.synchronize()  # completes non-blocking copies and raises errors of kernels
            return {"value": encode(torch, made, result=True)}
    except Exception as error:
        return {"error": [type(error).__name__, str(error)]}


def read(path):
    with (lzma if path.endswith(".xz") else gzip).open(path, "rt") as file:
        for line in file:
            yield json.loads(line)
