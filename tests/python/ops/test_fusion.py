# SPDX-License-Identifier: Apache-2.0
"""torch.compile: random programs with and without fusion give the same bits, log and errors. FUSION_PROGRAMS (default 1500) and FUSION_SEED (1) choose the
programs; a case depends on its number alone."""
import os
import random
import unittest
import warnings

os.environ.setdefault("PHLOX_FUSE_COMPILE", "wait")  # on a GPU a chain runs as one kernel at once
import phlox as torch

COUNT, SEED = int(os.environ.get("FUSION_PROGRAMS", "1500")), int(os.environ.get("FUSION_SEED", "1"))
UNARY = ("neg abs relu sigmoid tanh exp log sqrt rsqrt sin cos floor ceil round trunc sign square reciprocal erf expm1 log1p isnan isfinite logical_not frac exp2 "
         "log2 log10 sinh cosh atan asinh erfc lgamma nan_to_num positive deg2rad celu selu").split()
ACTIVATIONS = "gelu silu elu softplus hardtanh leaky_relu hardswish hardsigmoid relu6 logsigmoid mish softsign".split()
BINARY = ("add sub mul div maximum minimum fmax fmin atan2 pow eq ne lt le gt ge logical_and logical_or logical_xor hypot remainder fmod xlogy floor_divide "
          "heaviside logaddexp").split()
FOLDS = "sum mean amax amin prod all any nansum var std norm max min argmax logsumexp".split()
FAULTING = ("floor_divide", "remainder", "fmod")  # on a device, a division by zero is found later
DTYPES = [torch.float32] * 8 + [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool, torch.uint8, torch.complex64]
SHAPES = [(4, 6), (6,), (4, 1), (1, 6), (1,), (), (4, 6), (2, 4, 6), (0, 6), (4, 9), (9,), (64, 70), (64, 1), (70,)]
ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError)


def make(rng, device):
    """A tensor of random shape, dtype and layout."""
    shape, dtype = rng.choice(SHAPES), rng.choice(DTYPES)
    draw = lambda: torch.randn(shape, generator=torch.Generator().manual_seed(rng.randrange(1 << 30))) * 2
    made = torch.complex(draw(), draw()) if dtype.is_complex else (draw() * 3).to(dtype)
    layout = rng.random()
    if made.dim() == 2 and layout < 0.15:
        made = made.t().contiguous().t()
    elif made.dim() and layout < 0.3:
        made = torch.cat([made, made], -1)[..., ::2]
    return made.to(device)


# Steps of programs, by how often they are drawn. Each takes the generator and `pick`, which returns one of the program's tensors.
def views(rng, pick):
    a = pick()
    return rng.choice([lambda: a.t() if a.dim() <= 2 else a.transpose(0, 2), lambda: a[1:] if a.dim() else a[None], lambda: a.unsqueeze(0), lambda: a.reshape(-1),
                       lambda: a.expand(3, *a.shape) if a.dim() < 3 else a, lambda: a[0] if a.dim() else a.view(1), lambda: a.flip(0) if a.dim() else a,
                       lambda: a.contiguous(), lambda: a.detach()])()


def inplace(rng, pick):
    a, b = pick(), pick()
    act = rng.choice([lambda: a.add_(b), lambda: a.mul_(b), lambda: a.sub_(b, alpha=2), lambda: a.relu_(), lambda: a.neg_(), lambda: a.clamp_(-1, 1), lambda: a.zero_(),
                      lambda: a.copy_(b), lambda: a.fill_(1.5), lambda: a.exp_(), lambda: a.sigmoid_()])
    return None if a.requires_grad and a.is_leaf else act()


def fold(rng, pick):
    a, function, dim, keep = pick(), getattr(torch, rng.choice(FOLDS)), rng.choice([None, -1, 0]), rng.random() < 0.5
    made = function(a) if dim is None or not a.dim() else function(a, dim=dim, keepdim=keep)
    return made[0] if isinstance(made, tuple) else made


def choose(rng, pick):
    condition = pick()
    return torch.where(condition if condition.dtype == torch.bool else condition == 0 if condition.dtype.is_complex else condition > 0, pick(), pick())


def number(rng, pick):
    a, name, value = pick(), rng.choice(BINARY), rng.choice([2, -1, 0.5, 3, 0, True, 1.5])
    return value - a if rng.random() < 0.2 else getattr(torch, name)(a, value)


def product(rng, pick):
    a = pick()
    return a @ a.t() if a.dim() == 2 and a.dtype.is_floating_point else None


STEPS = [(28, lambda rng, pick: getattr(torch, rng.choice(UNARY))(pick())), (8, lambda rng, pick: getattr(torch.nn.functional, rng.choice(ACTIVATIONS))(pick())),
         (22, lambda rng, pick: getattr(torch, rng.choice(BINARY))(pick(), pick())), (8, number), (3, choose),
         (3, lambda rng, pick: pick().clamp(rng.choice([None, -1, 0, -0.5]), rng.choice([1, 2.5]))), (3, lambda rng, pick: pick().to(rng.choice(DTYPES))), (6, views),
         (5, inplace), (6, fold), (3, product)]
READS = [lambda a: repr(a.reshape(-1)[:1].sum().item()), lambda a: repr(a.detach().tolist()), lambda a: bool((a.detach() != 0).any()), lambda a: a.data_ptr() and None]


def run(seed, leaves, log):
    """Runs the program of a seed and returns its tensors."""
    rng, tensors = random.Random(seed), [*leaves]

    def pick():
        at = rng.random()
        return tensors[int(at * len(tensors))] if at < 0.5 else tensors[max(0, len(tensors) - 1 - int((1 - at) * 6))]

    for _ in range(rng.randrange(3, 24)):
        kind = rng.random()
        try:
            if kind < 0.03:
                log.append(rng.choice(READS)(pick()))
            elif kind < 0.07:
                if len(tensors) > len(leaves) + 1:
                    del tensors[rng.randrange(len(leaves), len(tensors))]
            else:
                made = rng.choices([step for _, step in STEPS], [weight for weight, _ in STEPS])[0](rng, pick)
                tensors += [] if made is None else [made]
        except ERRORS as error:
            log.append(f"{type(error).__name__} {error}")
    return tensors


def bits(tensor):
    """All that a program can see of a tensor, with one NaN for all: its sign differs between vectors and single elements."""
    values = tensor.detach()
    if values.dtype.is_floating_point:
        values = torch.where(values != values, torch.full_like(values, float("nan")), values)
    line = torch.empty(values.numel(), dtype=values.dtype).copy_(values.reshape(-1))
    return tuple(tensor.shape), tensor.dtype, tensor.device, tensor.requires_grad, line.view(torch.uint8).tolist()


def outcome(seed, device, call):
    """The results of a program with tensors, gradients and hooks drawn from a seed. `call` calls a function."""
    rng, log, hooked = random.Random(seed), [], []
    leaves = [make(rng, device) for _ in range(4)]
    if trains := rng.random() < 0.5:
        leaves = [leaf.detach().requires_grad_() if leaf.dtype.is_floating_point or leaf.dtype.is_complex else leaf for leaf in leaves]
    for leaf in leaves:
        if leaf.requires_grad and rng.random() < 0.2:
            leaf.register_hook(lambda grad: hooked.append(bits(grad)))
    tensors = call(run, seed, leaves, log)

    def backward():
        parts = [tensor.abs().double().sum() for tensor in tensors[len(leaves):] if tensor.requires_grad]
        try:
            if parts:
                sum(parts).backward(retain_graph=True)
        except RuntimeError as error:
            log.append(str(error))

    for _ in range(trains * rng.choice([1, 1, 2])):
        (call if rng.random() < 0.5 else lambda function: function())(backward)
    seen = [(bits(tensor), tensor.stride(), tensor._version) for tensor in tensors]
    return log, seen, [None if leaf.grad is None else bits(leaf.grad) for leaf in leaves], hooked


class Fusion(unittest.TestCase):
    def compare(self, device, first, count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in range(first, first + count):
                single = outcome(seed, device, lambda function, *args: function(*args))
                fused = outcome(seed, device, lambda function, *args: torch.compile(function)(*args))
                self.assertEqual(fused, single, f"program {seed} on {device}")

    def test_random_programs_give_equal_bits(self):
        self.compare("cpu", SEED, COUNT)

    @unittest.skipUnless(torch.cuda.is_available(), "needs a device")
    def test_random_programs_on_a_device_give_equal_bits(self):
        global BINARY
        BINARY = [name for name in BINARY if name not in FAULTING]
        self.compare("cuda", SEED, COUNT // (25 if torch.cuda._backend_name() == "cuda" else 3))  # kernels are compiled
