# SPDX-License-Identifier: Apache-2.0
"""python3 extremes.py FILE: records the results of element-wise ops, reductions and losses for special values, with first and second derivatives, from
the PyTorch of this Python. The test compares Phlox with the file. A record is the dtype and the bytes of a result, or the class of an error."""
import base64
import itertools
import json
import lzma
import sys
import warnings

import form
import recorded

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
COMPLEX = {"complex64": "float32", "complex128": "float64"}  # and the dtype of their parts
FEW = ("float32", "float64", "int64")  # dtypes of functions of three tensors

# Functions by the number of tensors, as expressions of a, b and c; S is torch.special.
ONE = """
abs acos acosh angle asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac isfinite isinf isnan isneginf isposinf
isreal lgamma log log10 log1p log2 logical_not logit nan_to_num neg positive rad2deg reciprocal relu round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt
square tan tanh trunc bitwise_not S.bessel_j0 S.bessel_j1 S.bessel_y0 S.bessel_y1 S.entr S.erfcx S.i0 S.i0e S.i1 S.i1e S.log_ndtr S.ndtr S.ndtri
S.modified_bessel_i0 S.modified_bessel_i1 S.modified_bessel_k0 S.modified_bessel_k1 S.scaled_modified_bessel_k0 S.scaled_modified_bessel_k1
S.spherical_bessel_j0 S.airy_ai F.celu F.elu F.gelu F.hardshrink F.hardsigmoid F.hardswish F.hardtanh F.leaky_relu F.logsigmoid F.mish F.relu6 F.selu F.silu
F.softplus F.softshrink F.softsign F.tanhshrink
""".split() + ["F.gelu(a, approximate='tanh')", "F.threshold(a, 0.5, 2)", "round(a, decimals=2)", "round(a, decimals=-1)", "nan_to_num(a, 1, 2, 3)",
               "clamp(a, 0, 1)", "clamp(a, min=1)", "clamp(a, max=1)", "clamp(a, 2, 1)", "polygamma(0, a)", "polygamma(1, a)", "polygamma(2, a)", "mvlgamma(a, 2)",
               "logit(a, eps=0.1)", "F.softplus(a, 2, 1)", "F.elu(a, 2)", "F.leaky_relu(a, -0.5)", "F.hardtanh(a, 0, 6)"] + [
    f"a {sign} {n}" for sign in ("+", "-", "*", "/", "//", "%", "**") for n in (0, 1, 2, -1, -2)] + [
    f"a {sign} {n}" for sign in ("+", "*", "/", "//", "%", "**") for n in (0.5, -0.5, 3.0, "inf", "nan", True)] + [
    f"{n} {sign} a" for sign in ("-", "/", "//", "%", "**") for n in (0, 1, 2, -1, 0.5, -2.5, True)]
TWO = """
add atan2 copysign div eq float_power floor_divide fmax fmin fmod ge gt heaviside hypot isclose ldexp le logaddexp logaddexp2 logical_and logical_or
logical_xor lt maximum minimum mul ne nextafter pow remainder rsub sub true_divide xlogy S.xlog1py S.zeta bitwise_and bitwise_or bitwise_xor
bitwise_left_shift bitwise_right_shift gcd lcm igamma igammac
""".split() + ["div(a, b, rounding_mode='floor')", "div(a, b, rounding_mode='trunc')", "add(a, b, alpha=2)", "sub(a, b, alpha=2)", "clamp(a, min=b)", "clamp(a, max=b)",
               "isclose(a, b, equal_nan=True)", "lerp(a, b, 0.25)", "lerp(a, b, 0.75)", "F.prelu(a.unsqueeze(0), b)"]
THREE = """
addcdiv addcmul lerp clamp
""".split() + ["where(a > 1, b, c)"]
# Reductions of rows of one or two values.
ROWS = [f"{name}(a, dim=-1)" for name in """
all amax amin aminmax any argmax argmin count_nonzero cummax cummin cumprod cumsum F.log_softmax F.softmax F.softmin logcumsumexp logsumexp max mean median min
nanmean nanmedian nansum prod sort argsort std sum var var_mean std_mean diff
""".split()] + [f"linalg.vector_norm(a, {p}, dim=-1)" for p in (0, 0.5, 1, 2, 3, "inf", "-inf")] + [
    "F.normalize(a, dim=-1)", "F.layer_norm(a, a.shape[-1:])", "F.rms_norm(a, a.shape[-1:])", "var(a, dim=-1, correction=0)", "softmax(a, -1)", "log_softmax(a, -1)",
    "F.glu(torch.cat([a, a], -1))", "renorm(a, 2, 0, 1.0)", "nanquantile(a, 0.5, dim=-1)", "quantile(a, 0.25, dim=-1)", "trapezoid(a, dim=-1)",
    "kthvalue(a, 1)", "topk(a, 1)", "mode(a)", "msort(a)", "isin(a, a)"]
LOSSES = [f"F.{name}(a, b.detach(), reduction='none')" for name in """
binary_cross_entropy_with_logits hinge_embedding_loss huber_loss kl_div l1_loss mse_loss poisson_nll_loss smooth_l1_loss
soft_margin_loss
""".split()] + ["F.poisson_nll_loss(a, b, log_input=False, full=True, reduction='none')", "F.kl_div(a, b, log_target=True, reduction='none')",
                "F.binary_cross_entropy(a.nan_to_num(0.5).clamp(0, 1), b.detach(), reduction='none')",
                "F.mse_loss(a, b, reduction='none')", "F.l1_loss(a, b, reduction='none')", "F.kl_div(a, b, reduction='none')",
                "F.smooth_l1_loss(a, b, beta=0, reduction='none')", "F.gaussian_nll_loss(a, b, 1 + 0 * b, reduction='none')",
                "F.gaussian_nll_loss(a, a, b.abs(), full=True, reduction='none')", "F.margin_ranking_loss(a, b, torch.ones_like(a), reduction='none')",
                "F.cosine_similarity(a.unsqueeze(-1), b.unsqueeze(-1), -1)", "F.pairwise_distance(a.unsqueeze(-1), b.unsqueeze(-1))", "dist(a, b)"]
BOUNDS = (0, 1, -1, 5, 0.5, -0.5, 2.5, -0.9, 0.9, 5.5)
STEPS = (1, -1, 2, 0.5, -0.5, 1.5, 0.7, 2.9, -1.5)


def pairs(torch, dtype, most):
    """Complex numbers with special values as parts."""
    f = torch.finfo(getattr(torch, dtype))
    parts = torch.tensor([0.0, -0.0, 1.5, float("inf"), float("nan")] + [-1.0, -float("inf"), f.max, f.tiny] * (most == 100), dtype=torch.float64)
    parts, n = parts.to(getattr(torch, dtype)), len(parts)
    return torch.complex(parts.reshape(n, 1).expand(n, n).reshape(-1), parts.expand(n, n).reshape(-1))


def values(torch, dtype, most=100):
    """The special values of a dtype."""
    if dtype in COMPLEX:
        return pairs(torch, COMPLEX[dtype], most)
    kind = getattr(torch, dtype)
    if dtype == "bool":
        return torch.tensor([False, True])
    if not kind.is_floating_point:
        i = torch.iinfo(kind)
        return torch.tensor(([0, 1, 2, i.max, i.min, 3, 7, -1 if i.min else 200, i.max - 1, i.min + 1])[:most], dtype=kind)
    f = torch.finfo(kind)
    smallest = {"float32": 2.0**-149, "float64": 5e-324, "float16": 2.0**-24, "bfloat16": 2.0**-133}[dtype]
    chosen = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), f.max, f.min, smallest, f.tiny, 0.5, -0.5, 2.0, -3.0, -smallest, 2.5, 20.0, -100.0]
    return torch.tensor(chosen[:most], dtype=torch.float64).to(kind)


def divides(name):
    return any(word in name for word in ("div", "//", "%", "remainder", "fmod", "gcd", "lcm"))


def grid(torch, dtype, count, name=""):
    """Tensors whose elements are all combinations of special values. Integer divisions leave out 0 and the smallest integer."""
    one = values(torch, dtype, 10 if count == 3 or count == 2 and dtype in COMPLEX else 100)
    if divides(name) and "int" in dtype:
        one = one[(one != 0) & (one != torch.iinfo(one.dtype).min)]
    n = one.numel()
    return [one.reshape([n if k == d else 1 for k in range(count)]).expand([n] * count).reshape(-1).clone() for d in range(count)]


def rows(torch, dtype):
    one = values(torch, dtype)
    return [[one.reshape(-1, 1)], [torch.stack(grid(torch, dtype, 2), 1)]]


def evaluate(torch, text, tensors):
    return eval(text, recorded.names(torch), {"torch": torch, "S": torch.special, **dict(zip("abc", tensors))})


def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def keep(tensor):
    data = tensor.new_zeros(tensor.shape) if getattr(tensor, "_is_zerotensor", bool)() else tensor.detach().contiguous()
    parts = data.resolve_conj().view(-1, 1).view(data.real.dtype) if data.is_complex() else data
    return [str(data.dtype).split(".")[-1], base64.b64encode(form.raw_bytes(parts, parts.numel())).decode()]


def total(result):
    return result.real.sum() + result.imag.sum() if result.is_complex() else result.sum()


def outcome(torch, text, tensors):
    """The results, first derivatives and second derivatives: three lists, or an error's class in place of one."""
    leaves = [t.clone().requires_grad_(t.is_floating_point() or t.is_complex()) for t in tensors]
    try:
        results = flat(evaluate(torch, text, leaves))
    except Exception as error:
        return [type(error).__name__]
    found = [[keep(r) for r in results]]
    wanted = [x for x in leaves if x.requires_grad]
    for _ in range(2 if wanted else 0):
        made = [r for r in results if r.requires_grad]
        if not made:
            break
        try:
            results = torch.autograd.grad([total(r) for r in made], wanted, create_graph=True, allow_unused=True)
        except Exception as error:
            found.append(type(error).__name__)
            break
        results = [torch.zeros_like(x) if r is None else r for r, x in zip(results, wanted)]
        found.append([keep(r) for r in results])
    return found


def expression(name, count):
    """A name becomes a call with the first tensors."""
    return name if "(" in name or " " in name else f"{name}({', '.join('abc'[:count])})"


def cases(torch):
    """Yields keys and functions that compute their outcomes."""
    for names, count in ((ONE, 1), (TWO, 2), (THREE, 3)):
        for name in names:
            for dtype in FLOATS + INTEGERS + (*COMPLEX,) if count < 3 else FEW:
                yield f"{name}|{dtype}", lambda name=name, dtype=dtype, count=count: outcome(torch, expression(name, count), grid(torch, dtype, count, name))
    for name in LOSSES:
        for dtype in FLOATS:
            yield f"{name}|{dtype}", lambda name=name, dtype=dtype: outcome(torch, expression(name, 2), grid(torch, dtype, 2))
    for name in ROWS:
        for dtype in FLOATS + INTEGERS + (*COMPLEX,):
            for k in range(2):
                yield f"{name}|{dtype}|{k + 1}", lambda name=name, dtype=dtype, k=k: outcome(torch, expression(name, 1), rows(torch, dtype)[k])
    for dtype in ("int64", "int32", "uint8", "float32", "float64"):
        for step in STEPS:
            for start, end in itertools.product(BOUNDS, BOUNDS):
                yield f"arange({start}, {end}, {step})|{dtype}", lambda dtype=dtype, a=(start, end, step): outcome(
                    torch, f"arange{a}".replace(")", f", dtype=torch.{dtype})"), [])
        for steps in (0, 1, 2, 5):
            for start, end in itertools.product(BOUNDS, BOUNDS):
                yield f"linspace({start}, {end}, {steps})|{dtype}", lambda dtype=dtype, a=(start, end, steps): outcome(
                    torch, f"linspace{a}".replace(")", f", dtype=torch.{dtype})"), [])


def main():
    import torch
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    table = {key: run() for key, run in cases(torch)}
    text = json.dumps({"version": torch.__version__, "table": table}, separators=(",", ":"))
    with lzma.open(sys.argv[1], "wt", preset=9) as file:
        file.write(text)
    print(len(table), "cases")


if __name__ == "__main__":
    main()
