# SPDX-License-Identifier: Apache-2.0
"""Arguments for random calls, as source texts: valid and invalid ones for a parameter's name. The texts refer to names in this file."""
import array
import collections
import ctypes
import gc
import re
from datetime import timedelta

import lent
import phlox as torch
from lent import Exporter, Interface, capsule, emptied, numpy

DTYPES = ("bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 uint16 uint32 uint64 complex32 complex64 complex128 float8_e4m3fn "
          "float8_e5m2").split()
MOST = 64  # dimensions of a tensor
DEVICES = "cpu", "cpu", "cpu", "cuda:0", "cuda:0", "cuda:1"


# ---- names used by the texts
def T(sizes, dtype="float32", device="cpu", layout="rows", grad=False, first=0):
    """A tensor of small numbers: contiguous, with gaps, transposed, overlapping, or expanded from one element."""
    count = 1
    for size in sizes:
        count *= size
    kind = getattr(torch, dtype)
    x = (torch.arange(first, first + max(count, 1) * 2) % 5).to(kind).to(device)
    if layout == "gaps":
        x = x[::2][:count].reshape(sizes) if count < 2 else x[: count * 2].reshape([*sizes, 2])[..., 0]
    elif layout == "columns":
        x = x[:count].reshape(tuple(reversed(sizes))).permute(*reversed(range(len(sizes))))
    elif layout == "repeated":
        x = x[:1].expand(sizes) if sizes else x[0]
    elif layout == "overlapping":
        x = x.as_strided(sizes, [1] * len(sizes)) if sum(sizes) <= len(x) else x[:count].reshape(sizes)
    else:
        x = x[:count].reshape(sizes)
    return x.detach().requires_grad_() if grad and (kind.is_floating_point or kind.is_complex) else x


def E(x, kind):
    """An edge case of a tensor, a number or a list. Other values are returned as they are."""
    if isinstance(x, torch.Tensor):
        ones = [1] * (MOST - x.dim())
        return (lambda: x.reshape(ones + list(x.shape)), lambda: x.reshape(list(x.shape) + ones), lambda: x.reshape(ones[1:] + list(x.shape)),
                lambda: x.flatten()[0], lambda: x[:0], lambda: x[..., :0], lambda: x[None], lambda: x[0], lambda: x.real.conj())[kind]()
    if type(x) is int:
        return (-1, -x - 1, MOST, MOST + 1, -MOST - 1, 2 ** 63 - 1, -2 ** 63, x + 1, 2 ** 32)[kind]
    if isinstance(x, (list, tuple)):
        return (x[:0], x[:1], x[:-1], x + x[:1], (x + type(x)([0])) * MOST, x[:1] * MOST, x[:1] * (MOST + 1), x[::-1], type(x)(E(y, 3) for y in x))[kind]
    return x


class Hostile(Exception):
    """Raised by objects of this file."""


def raising(*args):
    raise Hostile


def clear_container(self):
    self.container.clear()
    gc.collect(0)
    return 1


def bounded_item(self, i):
    """Returns itself for indices up to 10**5: unbounded iteration, as in `x in it`, hangs in Python as well."""
    return raising() if isinstance(i, int) and i > 10 ** 5 else self


# Objects with conversions that raise, return invalid values, or clear the container.
Raises = type("Raises", (), dict.fromkeys(("__index__", "__len__", "__float__", "__int__", "__bool__", "__iter__", "__getitem__", "__hash__",
                                           "__eq__", "__call__", "__fspath__", "__repr__"), raising))
Lies = type("Lies", (), {"__len__": lambda self: 2 ** 62, "__getitem__": bounded_item, "__index__": lambda self: 2 ** 70,
                         "__float__": lambda self: float("nan")})
Clears = type("Clears", (), {"__index__": clear_container, "__float__": clear_container, "__len__": clear_container, "__bool__": clear_container})
Text = type("Text", (str,), {})
Whole = type("Whole", (int,), {"__index__": raising})
Sub = type("Sub", (torch.Tensor,), {})
Pair = collections.namedtuple("Pair", "x y")


def cleared():
    """A list, cleared when its second element is converted."""
    container = [1, Clears(), 2, T([2])]
    container[1].container = container
    return container


def selfish(kind=list):
    container = [] if kind is list else {}
    container.append(container) if kind is list else container.update(x=container)
    return container


def nested(depth):
    container = 1
    for _ in range(depth):
        container = [container]
    return container


def ends(n):
    """A generator; raises after its first element."""
    yield n
    raise Hostile


NAMES = dict(globals())

# ---- texts
NUMBERS = ["0", "1", "2", "3", "-1", "-2", "5", "7", "63", "64", "65", "-64", "-65", "-66", "2**31", "-2**31", "2**31-1", "2**32", "2**62", "2**63-1", "-2**63", "2**63", "2**64", "10**30"]
FLOATS = ["0.0", "0.5", "-0.5", "1.5", "1e-8", "float('nan')", "float('inf')", "-float('inf')", "1e308", "1e-320", "3.0", "-0.0"]
WORDS = ("mean sum none batchmean constant reflect replicate circular nearest bilinear bicubic linear area trunc floor tanh ij xy fro nuc same valid "
         "left right highest fan_in fan_out relu leaky_relu amax prod cpu cuda cuda:0 cuda:1 cuda:7 float32 i,j->ij ii ... O N sci weight bias x").split()
STRINGS = [repr(word) for word in WORDS] + ["''", "'\\0'", "'\\ud800'", "'x' * 5000", "'%s%n'", "Text('mean')"]
ODD = ["None", "True", "object()", "Raises()", "Lies()", "Clears", "Text('a')", "Whole(1)", "[]", "()", "{}", "set()", "cleared()", "selfish()", "selfish(dict)",
       "nested(3)", "nested(5000)", "ends(1)", "ends(T([2]))", "(i for i in range(3))", "iter([])", "range(3)", "range(2**62)", "slice(None)", "slice(0, 2, -1)",
       "...", "NotImplemented", "type", "int", "torch", "torch.Tensor", "torch.nn.Linear", "lambda *a, **k: None", "lambda *a, **k: a[0]", "raising", "b'bytes'",
       "bytearray(8)", "memoryview(b'abcd')", "1j", "Pair(1, 2)", "Pair(T([2]), T([3]))", "{'x': 1}", "{1: T([2])}", "[T([2]), T([2])]", "[T([2]), None]",
       "(T([2, 3]), T([3, 2]))", "[T([2], 'int64'), T([2, 2])]", "[1, 'a']", "[[1, 2], [3]]", "[[1, 2], [3, 4]]", "[float('nan')]", "[2**63]", "[None]", "[True, False]",
       "Sub([1., 2.])", "torch.nn.Parameter(T([2, 3]))", "torch.nn.Linear(3, 2)", "torch.nn.ReLU()", "torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())",
       "torch.optim.SGD([torch.nn.Parameter(T([2]))], lr=0.1)", "torch.utils.data.TensorDataset(T([4, 2]), T([4]))", "torch.Size([2, 3])", "torch.float32",
       "torch.strided", "torch.contiguous_format", "torch.channels_last", "torch.Generator()", "torch.Generator('cuda')", "torch.cuda.Stream()",
       "torch.cuda.Event()", "torch.device('cuda', 1)", "torch.finfo(torch.float32)", "T([2, 3]).untyped_storage()", "T([2]).numpy", "torch.enable_grad()"]

# Kinds of values by parameter name; the type of the default adds to them.
MEANINGS = [
    ("tensor", "input self other weight target index mask source src tensor x x1 x2 x3 grad grad_output mat1 mat2 vec vec1 vec2 end value values batch1 batch2 "
               "condition tensor1 tensor2 var anchor positive negative boundaries sorted_sequence exponent min max running_mean running_var mat a b data out bias"),
    ("tensors", "tensors parameters params inputs outputs indices arrays operands args grad_tensors grad_outputs equation_operands"),
    ("ints", "size sizes dims shape repeats shifts kernel_size stride padding dilation output_size normalized_shape split_size_or_sections sections pad dim axis "
             "output_padding scale_factor"),
    ("int", "dim dim0 dim1 dim2 n k num start step steps offset groups diagonal num_classes index chunks in_features out_features in_channels out_channels "
            "num_features num_embeddings embedding_dim num_groups length seed decimals bins minlength batch_size upscale_factor"),
    ("float", "alpha beta p eps lr momentum lambd negative_slope threshold slope margin delta std mean low high lower upper rtol atol weight_decay rho factor gamma"),
    ("dtype", "dtype"), ("device", "device device_index"), ("word", "mode reduction rounding_mode approximate indexing equation padding_mode nonlinearity ord"),
    ("generator", "generator"), ("stream", "stream"), ("event", "event"), ("module", "module model modules"), ("optimizer", "optimizer"),
    ("lent", "ndarray ext_tensor buffer obj data array"),
    ("call", "fn func function hook closure callback lr_lambda collate_fn worker_init_fn"), ("dataset", "dataset data_source"), ("none", "memory_format layout names")]
BY_NAME = {name: [kind for kind, names in MEANINGS if name in names.split()] for _, names in MEANINGS for name in names.split()}


class Pool:
    """Source texts for one case, chosen by `random`."""

    def __init__(self, random):
        self.random = random

    def pick(self, *options):
        return self.random.choice(options)

    def sizes(self):
        r = self.random
        if r.random() < 0.06:
            return [1] * (MOST - self.pick(0, 0, 1, 2))
        return [0 if r.random() < 0.06 else r.randint(1, 4) for _ in range(self.pick(0, 1, 1, 2, 2, 2, 3, 4, 5))]

    def tensor(self, sizes=None, dtype=None):
        r = self.random
        dtype = dtype or self.pick("float32", "float32", "float32", "int64", *DTYPES)
        text = f"T({self.sizes() if sizes is None else list(sizes)}, {dtype!r}"
        if r.random() < 0.4:
            text += f", {self.pick(*DEVICES)!r}, {self.pick('rows', 'gaps', 'columns', 'repeated', 'overlapping')!r}, {self.pick(True, False)}, {r.randint(-2, 3)}"
        return text + ")"

    def int(self):
        return str(self.random.randint(-2, 4)) if self.random.random() < 0.7 else self.pick(*NUMBERS)

    def ints(self):
        if self.random.random() < 0.5:
            return self.int()
        if self.random.random() < 0.06:
            return self.pick(*(text.replace("N", str(n)) for text in ("[1] * N", "[0] * N", "list(range(N))") for n in range(MOST - 1, MOST + 3)))
        return f"{self.pick('', 'tuple', 'torch.Size')}([{', '.join(self.int() for _ in range(self.random.randint(0, 4)))}])"

    def any(self):
        kinds = self.odd, self.odd, self.lent, self.int, self.float, self.word, self.tensor, self.tensors, self.ints, self.dtype, self.device
        return self.pick(*kinds)()

    def tensors(self):
        sizes = self.sizes()
        if self.random.random() < 0.06:
            return f"[{self.tensor(sizes)}] * {self.pick(MOST, MOST + 1, 3)}"
        return "[" + ", ".join(self.tensor(sizes if self.random.random() < 0.8 else None) for _ in range(self.random.randint(0, 3))) + "]"

    def float(self):
        return self.pick(*FLOATS)

    def bool(self):
        return self.pick("True", "False", "1")

    def odd(self):
        return self.pick(*ODD)

    def word(self):
        return self.pick(*STRINGS)

    def dtype(self):
        return "torch." + self.pick(*DTYPES)

    def device(self):
        return self.pick("'cpu'", "'cuda'", "'cuda:1'", "torch.device('cuda:0')", "0", "1", "'cuda:9'", "None")

    def generator(self):
        return self.pick("torch.Generator()", "torch.Generator('cuda')", "None")

    def stream(self):
        return self.pick("torch.cuda.Stream()", "torch.cuda.current_stream()", "torch.cuda.Stream(1)")

    def event(self):
        return "torch.cuda.Event(enable_timing=True)"

    def module(self):
        return self.pick(*(text for text in ODD if text.startswith("torch.nn.")))

    def optimizer(self):
        return "torch.optim.SGD([torch.nn.Parameter(T([2]))], lr=0.1, momentum=0.9)"

    def call(self):
        return self.pick("lambda *a, **k: None", "lambda *a, **k: a[0]", "raising")

    def dataset(self):
        return self.pick("torch.utils.data.TensorDataset(T([4, 2]), T([4]))", "[1, 2, 3]", "range(5)")

    def lent(self):
        return lent.random_object(self)

    def none(self):
        return "None"

    def fitting(self, param):
        """A value for a parameter, by its name, default and annotation."""
        kinds = list(BY_NAME.get(param.name, ()))
        default, annotation = param.default, str(param.annotation)
        for kind, type_ in (("bool", bool), ("int", int), ("float", float), ("word", str)):
            if type(default) is type_ or re.search(rf"\b{type_.__name__}\b", annotation):
                kinds.append(kind)
        for kind, word in (("tensor", "Tensor"), ("ints", "Sequence[int]"), ("tensors", "Sequence[_C.Tensor]"), ("tensors", "Params"), ("device", "Device"),
                           ("optimizer", "Optimizer"), ("call", "Callable"), ("module", "Module"), ("dataset", "Dataset")):
            if word in annotation:
                kinds.append(kind)
        return getattr(self, self.pick(*(kinds or ["any", "tensor"])))()
