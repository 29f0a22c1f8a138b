# SPDX-License-Identifier: Apache-2.0
"""Single ops on the CPU, Phlox compared to PyTorch and NumPy: python3 bench/ops.py [NAME...]; the large kernels: bench/ops.py kernels

Each library runs in a separate process with the same inputs (a million floats, unless the row says otherwise). They alternate row by row for
TURNS turns (1), each the best of five timings, with THREADS threads (all cores; NumPy's functions are single-threaded). With one thread the
clock is CPU time, which is less affected by other programs. Decompositions of Phlox call NumPy's OpenBLAS, as with both installed, unless
PHLOX_LAPACK names another library. Prints median milliseconds and the ratio: the median of the faster peer's time over Phlox's time in the
same turn. Above 1, Phlox is faster. Errors are the maximum differences from the same expression on float64 inputs, relative to its maximum
result, if both are floating point.

`kernels` has the rows of the table in docs/measurements/cpu.md, with one thread and seven turns unless THREADS and TURNS are set. Errors of float64 rows
are relative to NumPy's long doubles. Rows with a ratio below GOAL are marked.
"""
import glob
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time

SETUP = """
torch.manual_seed(0)
F = torch.nn.functional
x, y = torch.randn(1000, 1000), torch.randn(1000, 1000)
flat, wide, ints, mask = x.view(-1), x.double(), torch.randint(0, 1000, (1000000,)), x > 0
places, rows = ints.view(1000, 1000), torch.randint(0, 1000, (2000,))
image, weight = torch.randn(16, 32, 32, 32), torch.randn(64, 32, 3, 3)
last = image.to(memory_format=torch.channels_last)
depth, depth7, scene, depths = torch.randn(32, 1, 3, 3), torch.randn(32, 1, 7, 7), torch.randn(4, 32, 112, 112), torch.randn(512, 1, 3, 3)
cube, bits = torch.randn(2, 16, 16, 32, 32), torch.randn(32, 16, 3, 3, 3)
pixels, mix = torch.randn(8, 256, 28, 28).to(memory_format=torch.channels_last), torch.randn(96, 256, 1, 1)
scene56, pick64 = torch.randn(8, 256, 56, 56), torch.randn(64, 256, 1, 1)
places7, pick, deep = torch.randn(8, 512, 7, 7), torch.randn(128, 512, 1, 1), torch.randn(256, 512, 3, 3)
halves, brief, octets, turning = x.half(), x.bfloat16(), ints.to(torch.uint8), torch.complex(x, y)
revolving = turning.to(torch.complex128)
short, thin = places.int(), torch.randn(100000, 8)
L, many, slim = torch.linalg, torch.randn(1000, 16, 16), torch.randn(1000, 10, 100)
square, tall = x[:512, :512], torch.randn(2000, 200)
whole, several = square @ square.T + 512 * torch.eye(512), many @ many.mT + torch.eye(16)
func, N = torch.func, torch.nn
net, small = N.Sequential(N.Linear(1000, 256), N.Tanh(), N.Linear(256, 10)), N.Sequential(N.Linear(16, 32), N.Tanh(), N.Linear(32, 4))
words, tokens = torch.randn(10000, 128), torch.randint(0, 10000, (64, 128))
bags = torch.arange(0, 8192, 16)
def back(f, *given):
    given = [t.clone().requires_grad_() for t in given]
    def step():
        for t in given: t.grad = None
        f(*given).sum().backward()
    return step
"""
EXPRESSIONS = """x + y; x + y.t(); x * 2; x > y; ints // 7; ints % 7; short // 7; short % 7; x.exp(); x.abs().log1p(); x.tanh(); x.sin(); wide.sin(); torch.atan2(x, y);
    torch.fmod(x, y); torch.remainder(x, y); x ** 2; x.abs() ** 2.5; F.gelu(x); torch.where(mask, x, y); x.half(); x.sum(); x.sum(0); x.sum(1); x.max();
    x.max(1); x.argmax(1); x.var(1); x.norm(); x.norm(p=3); x.cumsum(1); wide.cumsum(1); x.cumsum(0); x.logsumexp(1); x.sort(1); flat.sort(); ints.sort(); flat.view(-1, 16).sort(1); flat.view(-1, 4).sort(1); flat.msort(); ints.msort(); x.msort(); wide.msort(); flat.unique();
    x.topk(10, 1); flat.topk(100); flat.median(); ints.unique(); mask.nonzero(); x[mask]; x.masked_fill(mask, 0.0); flat[ints];
    x.abs().log(); x.sigmoid(); x.erf(); x.lgamma(); wide.lgamma(); x.log1p(); wide.abs().log1p(); torch.erfinv(x.tanh()); wide.tanh().erfinv(); x.abs() ** y; x ** 3; x ** -1; x ** -2; wide.abs() ** wide; x.abs() ** -0.5;
    F.gelu(x, approximate='tanh'); F.silu(x); x.logsumexp(0); wide.exp(); wide.abs().log(); wide.tanh(); wide.sigmoid(); wide.abs().sqrt(); x.clamp(0, 1); halves @ halves; halves[:16] @ halves; x.sqrt();
    x.gather(1, places); x.index_select(0, rows); flat.clone().index_put_((ints,), flat); torch.zeros(1000, 1000).scatter_add_(1, places, x);
    brief * 2; brief + brief; brief.neg(); brief.abs(); halves.abs(); F.relu(brief); octets + octets; torch.fmax(x, y); torch.heaviside(x, y); x.nan_to_num(); x.isneginf(); F.hardshrink(x); x.atan(); x.tanh().asin(); x.tanh().acos(); torch.special.i1e(x); places ** 2; places << 3; mask | mask; torch.maximum(mask, mask.t()); torch.frexp(x)[0]; torch.special.ndtr(x); turning ** 2; turning.abs(); turning.sgn(); turning.angle(); turning.reciprocal(); turning * turning; turning / turning.t(); revolving.abs(); revolving.reciprocal(); wide.nextafter(wide * 2); mask.half(); (x.abs() * 30) ** 20.3;
    x.t().contiguous(); torch.cat([x, y], 1); x.flip(1); x.roll(5, 1); x.tril(); torch.arange(1000000); torch.rand(1000, 1000);
    torch.randn(1000, 1000); torch.randperm(100000); x @ y; x @ y[:, :16]; x[:8] @ y; x[:16] @ y; x[:32] @ y; F.linear(x[:16], y); F.linear(brief[:16], brief); F.linear(flat[:16384].view(16, 1024), flat[:524288].view(512, 1024)); x.prod(0); wide[:8] @ wide; wide @ wide; places @ places; places.int() @ places.int();
    places.to(torch.int8) @ places.to(torch.int8); F.conv2d(image, weight, padding=1); F.conv2d(image, depth, padding=1, groups=32);
    F.conv2d(scene, depth, padding=1, groups=32); F.conv2d(scene, depth7, padding=3, groups=32); F.conv2d(scene, depth, stride=2, padding=1, groups=32); F.conv2d(places7, depths, padding=1, groups=512); F.max_pool2d(image, 2);
    F.relu(image); F.relu(last); image + image; last + last; F.batch_norm(image, None, None, training=True); F.batch_norm(last, None, None, training=True);
    F.max_pool2d(last, 2); F.conv2d(last, weight, padding=1); F.conv2d(pixels, mix); F.conv2d(scene56, pick64); F.conv2d(places7, pick); F.conv2d(places7[:1], pick); F.conv2d(places7, deep, padding=1);
    F.conv3d(cube, bits, padding=1); F.max_pool3d(cube, 2); F.avg_pool3d(cube, 2); F.avg_pool2d(image, 2); F.adaptive_avg_pool2d(image, 1); torch.multinomial(mask + 0.1, 10, True); F.layer_norm(x, (1000,)); x.softmax(1); brief.softmax(1); F.layer_norm(brief, (1000,));
    F.mse_loss(x, y); F.mse_loss(brief, brief); F.embedding(tokens, words); F.embedding_bag(tokens, words); F.embedding_bag(tokens.view(-1), words, bags, mode='sum'); F.embedding_bag(tokens, words, mode='max');
    short.amax(1); short.amax(0); mask.amax(); thin.sum(0); thin.sum(1); halves.sum(0); brief.sum(0); x.norm(dim=1); x.cummax(1); halves.char(); wide.half();
    torch.full((1000, 1000), 3, dtype=torch.uint8); torch.cat([image, image], 3); torch.cat([image] * 8, 3); image.transpose(1, 2).contiguous();
    F.pad(image, (2, 2, 2, 2), mode='reflect'); F.pad(last, (2, 2, 2, 2), mode='replicate'); flat[:1000].unique(); torch.zeros(1000, 1000).scatter_reduce_(1, places, x, 'amax'); halves.clone().index_add_(0, rows[:1000], halves);
    halves.sum(1); brief.sum(1); ints.bincount(); octets.bincount(); torch.histc(x, 100, -3, 3); flat.unique_consecutive(); ints.unique_consecutive(); ints.unique_consecutive(return_counts=True); octets.unique_consecutive();
    L.cholesky(whole); L.cholesky(several); L.inv(square); L.inv(many); L.solve(square, y[:512]); L.solve(many, many); L.det(many);
    L.solve_triangular(whole, y[:512], upper=True); L.qr(square); L.qr(tall); L.eigh(whole); L.eigh(several); L.svd(square); L.svd(many); L.svdvals(tall);
    L.lstsq(tall, y[:1, :1].expand(2000, 1)); L.pinv(tall); L.matrix_exp(square / 64); L.matrix_power(many, 5); torch.bmm(many, many); torch.bmm(slim, slim.mT); torch.bmm(slim, slim.view(1000, 100, 10));
    F.cross_entropy(x, ints[:1000]); F.binary_cross_entropy_with_logits(x, mask.float())"""
BACKWARD = """a @ y; F.conv2d(image, a.view(64, 32, 3, 3), padding=1); F.conv2d(scene, a, padding=1, groups=32); F.conv2d(scene, a, stride=2, padding=1, groups=32); F.conv2d(a, depth, stride=2, padding=1, groups=32); F.conv2d(places7, a, padding=1, groups=512); F.conv2d(a, weight, padding=1); F.conv2d(last, a, padding=1); F.conv2d(pixels, a); F.conv3d(a, bits, padding=1); F.batch_norm(a, None, None, training=True);
    a.gather(1, places); a[rows]; a.max(1)[0]; a.softmax(1) ** 2;
    L.solve(a[:512, :512], y[:512]); L.cholesky(a[:512, :512] @ a[:512, :512].T + 512 * torch.eye(512)); L.svdvals(a[:256, :256]);
    torch.cat([a, y]); F.pad(a, (2, 2, 2, 2), mode='reflect'); F.gelu(a); torch.lerp(a, y, 0.3); F.logsigmoid(a); F.hardsigmoid(a); a ** 1; F.embedding(tokens, a.view(10000, 128)); F.embedding_bag(tokens, a.view(10000, 128), mode='max')"""
# torch.func: jvp, and Jacobians and Hessians of some inputs.
TRANSFORMS = """func.jvp(lambda a: (a @ y).tanh(), (x,), (y,)); func.jvp(net, (x,), (y,)); func.hessian(lambda a: net(a).square().sum())(flat[:1000]);
    func.jacfwd(net)(flat[:1000]); func.jacrev(net)(flat[:1000]); func.vmap(func.jacrev(small))(x[:, :16]); func.linearize(net, x)[1](y)"""
# NumPy's equivalents. Its matmul is OpenBLAS's. A stable sort that returns indices has no equivalent; msort returns values only.
NUMPY = {"ints // 7": "ints // 7", "ints % 7": "ints % 7", "short // 7": "short // 7", "short % 7": "short % 7", "turning.abs()": "np.abs(turning)", "revolving.abs()": "np.abs(revolving)", "turning * turning": "turning * turning",
         "x + y": "x + y", "x * 2": "x * 2", "x > y": "x > y", "x.exp()": "np.exp(x)", "x.tanh()": "np.tanh(x)", "x.sin()": "np.sin(x)",
         "wide.sin()": "np.sin(wide)", "x ** 2": "x ** 2", "x ** 3": "x ** 3", "x ** -1": "x ** -1.0", "x.abs() ** 2.5": "np.abs(x) ** 2.5", "x.abs() ** y": "np.abs(x) ** y",
         "x.abs().log()": "np.log(np.abs(x))", "x.abs().log1p()": "np.log1p(np.abs(x))", "wide.abs().log1p()": "np.log1p(np.abs(wide))", "wide.exp()": "np.exp(wide)", "wide.tanh()": "np.tanh(wide)",
         "wide.abs().log()": "np.log(np.abs(wide))", "wide.abs().sqrt()": "np.sqrt(np.abs(wide))", "x.sqrt()": "np.sqrt(x)", "torch.atan2(x, y)": "np.arctan2(x, y)",
         "octets + octets": "octets + octets", "x.atan()": "np.arctan(x)", "torch.fmax(x, y)": "np.fmax(x, y)", "torch.heaviside(x, y)": "np.heaviside(x, y)", "wide.abs() ** wide": "np.abs(wide) ** wide",
         "torch.fmod(x, y)": "np.fmod(x, y)", "torch.remainder(x, y)": "np.mod(x, y)", "x.sum()": "x.sum()", "x.sum(0)": "x.sum(0)", "x.sum(1)": "x.sum(1)",
         "x.max()": "x.max()", "x.max(1)": "x.max(1)", "x.argmax(1)": "x.argmax(1)", "x.var(1)": "x.var(1, ddof=1)", "x.cumsum(1)": "x.cumsum(1)",
         "x.cumsum(0)": "x.cumsum(0)", "x.sort(1)": "np.argsort(x, 1, kind='stable')", "flat.sort()": "np.argsort(flat, kind='stable')",
         "ints.sort()": "np.argsort(ints, kind='stable')", "flat.view(-1, 16).sort(1)": "np.argsort(flat.reshape(-1, 16), 1, kind='stable')",
         "flat.view(-1, 4).sort(1)": "np.argsort(flat.reshape(-1, 4), 1, kind='stable')", "flat.msort()": "np.sort(flat)", "ints.msort()": "np.sort(ints)", "x.msort()": "np.sort(x, 0)", "wide.msort()": "np.sort(wide, 0)", "flat.unique()": "np.unique(flat)", "ints.bincount()": "np.bincount(ints)", "torch.histc(x, 100, -3, 3)": "np.histogram(x, 100, (-3, 3))", "x @ y": "x @ y", "x @ y[:, :16]": "x @ y[:, :16]", "x[:8] @ y": "x[:8] @ y", "x[:16] @ y": "x[:16] @ y", "x[:32] @ y": "x[:32] @ y",
         "wide @ wide": "wide @ wide", "wide[:8] @ wide": "wide[:8] @ wide", "x.half()": "x.astype(np.float16)", "x[mask]": "x[mask]", "flat[ints]": "flat[ints]",
         "x.t().contiguous()": "np.ascontiguousarray(x.T)", "torch.where(mask, x, y)": "np.where(mask, x, y)", "torch.cat([x, y], 1)": "np.concatenate([x, y], 1)",
         "L.inv(square)": "np.linalg.inv(square)", "L.cholesky(whole)": "np.linalg.cholesky(whole)", "L.svd(square)": "np.linalg.svd(square)",
         "L.eigh(whole)": "np.linalg.eigh(whole)", "L.qr(tall)": "np.linalg.qr(tall)"}
# The rows of `kernels`: name -> (expression, NumPy's expression).
KERNEL_SETUP = """
torch.manual_seed(0)
F, R = torch.nn.functional, torch.randn
a, b, d, m, v = R(2048, 2048), R(2048, 2048), R(1024, 1024).double(), R(4096, 4096), R(4096)
brief, half, long = R(512, 512).bfloat16(), R(512, 512).half(), torch.randint(0, 9, (512, 512))
whole, octet = long.int(), long.to(torch.int8)
x, y = R(1000000), R(1000000)
size, wide, lines, q = x.abs(), x.double(), R(1000, 1000), R(4, 8, 256, 64)
c, c2, c3, c4 = R(8, 64, 56, 56), R(8, 128, 28, 28), R(8, 256, 14, 14), R(8, 256, 56, 56)
last, w, w2, w3 = c.to(memory_format=torch.channels_last), R(64, 64, 3, 3), R(128, 128, 3, 3), R(256, 256, 3, 3)
few, many, deep7, deep3 = R(64, 256, 1, 1), R(1024, 256, 1, 1), R(64, 1, 7, 7), R(64, 1, 3, 3)
"""
KERNELS = {"float32 product, 2048": ("a @ b", "a @ b"), "float64 product, 1024": ("d @ d", "d @ d"), "matrix and vector, 4096": ("m @ v", "m @ v"),
           "bfloat16 product, 512": ("brief @ brief", None), "float16 product, 512": ("half @ half", None), "int64 product, 512": ("long @ long", "long @ long"),
           "int32 product, 512": ("whole @ whole", "whole @ whole"), "int8 product, 512": ("octet @ octet", None),
           "sort of a million floats, values": ("torch.msort(x)", "np.sort(x)"), "the same, with indices": ("x.sort()", None),
           "x.abs() ** y, a million": ("size ** y", "size ** y"), "exp, a million": ("x.exp()", "np.exp(x)"), "exp of float64": ("wide.exp()", "np.exp(wide)"),
           "3x3, 8 x 64 x 56 x 56": ("F.conv2d(c, w, padding=1)", None), "the same, channels_last": ("F.conv2d(last, w, padding=1)", None),
           "3x3, 8 x 128 x 28 x 28": ("F.conv2d(c2, w2, padding=1)", None), "3x3, 8 x 256 x 14 x 14": ("F.conv2d(c3, w3, padding=1)", None),
           "1x1, 8 x 256 x 56 x 56 to 64": ("F.conv2d(c4, few)", "few @ c4"),
           "1x1, 8 x 256 x 14 x 14 to 1024": ("F.conv2d(c3, many)", "many @ c3"),
           "7x7 depthwise, 8 x 64 x 56 x 56": ("F.conv2d(c, deep7, padding=3, groups=64)", None),
           "3x3 depthwise": ("F.conv2d(c, deep3, padding=1, groups=64)", None), "softmax, 1000 x 1000": ("lines.softmax(1)", None),
           "attention, 4 x 8 x 256 x 64": ("F.scaled_dot_product_attention(q, q, q)", None)}
GOAL = 0.95
RANDOM = "rand", "multinomial"  # rows without an error
GIVEN = {"F.conv2d(image, a.view(64, 32, 3, 3), padding=1)": "weight", "F.conv2d(scene, a, padding=1, groups=32)": "depth", "F.conv2d(scene, a, stride=2, padding=1, groups=32)": "depth",
         "F.conv2d(a, depth, stride=2, padding=1, groups=32)": "scene", "F.conv2d(places7, a, padding=1, groups=512)": "depths",
         "F.conv2d(a, weight, padding=1)": "image", "F.conv2d(last, a, padding=1)": "weight", "F.conv2d(pixels, a)": "mix", "F.batch_norm(a, None, None, training=True)": "last", "F.conv3d(a, bits, padding=1)": "cube",
         "F.embedding(tokens, a.view(10000, 128))": "words", "F.embedding_bag(tokens, a.view(10000, 128), mode='max')": "words", "F.pad(a, (2, 2, 2, 2), mode='reflect')": "image"}

LARGE = "kernels" in sys.argv[1:]  # only the rows of KERNELS
THREADS = int(os.environ.get("THREADS", 1 if LARGE else os.cpu_count()))
CLOCK = time.process_time if THREADS == 1 else time.perf_counter


def rows():
    """Returns {row name: expression that evaluates to its step}."""
    if LARGE: return {name: "lambda: " + code for name, (code, _) in KERNELS.items()}
    split = lambda text: [" ".join(part.split()) for part in text.split(";")]
    table = {name: "lambda: " + name for name in split(EXPRESSIONS + ";" + TRANSFORMS)}
    table.update({"backward of " + name: "back(lambda a: %s, %s)" % (name, GIVEN.get(name, "x")) for name in split(BACKWARD)})
    return table


def timed(step, turns=5, seconds=0.03):
    step()
    start = CLOCK()
    step()
    count = max(2, min(100, int(seconds / max(CLOCK() - start, 1e-6))))
    best = float("inf")
    for _ in range(turns):
        start = CLOCK()
        for _ in range(count):
            step()
        best = min(best, (CLOCK() - start) / count)
    return 1e3 * best


def error_beside_long(torch, got, code, scope):
    """Returns the error of a float64 step relative to NumPy's long doubles."""
    import numpy as np
    wanted = eval(code, {"np": np, **{name: v.numpy().astype(np.longdouble) for name, v in scope.items() if isinstance(v, torch.Tensor) and v.dtype == torch.float64}})
    return float(np.abs(got.numpy() - wanted).max() / np.abs(wanted).max())


def error(torch, name, code, scope):
    """Returns the error of a step relative to float64; None if the row is not computed in it because it names another dtype."""
    floats = torch.float32, torch.float16, torch.bfloat16
    widened = lambda v: v.double() if hasattr(v, "double") and getattr(v, "dtype", torch.float32) in floats else v
    step = lambda given: eval(code, {**scope, **given})()
    got = step({})
    if LARGE and isinstance(got, torch.Tensor) and got.dtype == torch.float64: return error_beside_long(torch, got, KERNELS[name][1], scope)
    if LARGE and not isinstance(got, torch.Tensor): return None
    torch.set_default_dtype(torch.float64)
    try:
        wanted = step({name: widened(v) for name, v in scope.items() if isinstance(v, torch.Tensor)})
    except RuntimeError:
        return None
    finally:
        torch.set_default_dtype(torch.float32)
    if not isinstance(got, torch.Tensor) or got.dtype not in (*floats, torch.float64) or wanted.dtype != torch.float64 or not got.numel():
        return None
    difference, magnitude = (got.double() - wanted).abs(), wanted.abs()
    finite = wanted.isfinite()
    return float(difference[finite].max() / magnitude[finite].max()) if finite.any() and magnitude[finite].max() > 0 else None


def steps(library, names):
    """Returns {row name: (step, error of its result)}."""
    if library == "numpy":
        return {name: (eval("lambda: " + code, scope), None) for scope, codes in [numpy_rows(names)] for name, code in codes.items()}
    torch = __import__(library)
    torch.set_num_threads(THREADS)
    scope = {"torch": torch}
    exec(KERNEL_SETUP if LARGE else SETUP, scope)
    found = {}
    for name, code in rows().items():
        if names and not LARGE and name not in names: continue
        exact = name.startswith("backward") or "func." in name or any(word in name for word in RANDOM)
        found[name] = eval(code, scope), None if exact else error(torch, name, code, scope)
    return found


def numpy_rows(names):
    """Returns the variables of NumPy's expressions, and the expressions by row name."""
    import numpy as np
    draw = np.random.default_rng(0).standard_normal
    if LARGE: return kernel_scope(np, lambda *sizes: draw(sizes, np.float32)), {name: code for name, (_, code) in KERNELS.items() if code}
    x, y = draw((1000, 1000), np.float32), draw((1000, 1000), np.float32)
    scope = {"np": np, "x": x, "y": y, "flat": x.reshape(-1), "wide": x.astype(np.float64), "mask": x > 0, "square": x[:512, :512],
             "ints": np.random.default_rng(1).integers(0, 1000, 1000000), "tall": draw((2000, 200), np.float32)}
    scope["short"] = scope["ints"].astype(np.int32)
    scope["octets"], scope["turning"], scope["revolving"] = scope["ints"].astype(np.uint8), x + 1j * y, scope["wide"] + 1j * y
    scope["whole"] = scope["square"] @ scope["square"].T + 512 * np.eye(512, dtype=np.float32)
    return scope, {name: code for name, code in NUMPY.items() if not names or name in names}


def kernel_scope(np, draw):
    scope = {"np": np, "a": draw(2048, 2048), "b": draw(2048, 2048), "d": draw(1024, 1024).astype(np.float64), "m": draw(4096, 4096), "v": draw(4096),
             "long": np.random.default_rng(1).integers(0, 9, (512, 512)), "x": draw(1000000), "y": draw(1000000)}
    scope["whole"], scope["size"], scope["wide"] = scope["long"].astype(np.int32), np.abs(scope["x"]), scope["x"].astype(np.float64)
    scope.update(c3=draw(8, 256, 196), c4=draw(8, 256, 3136), few=draw(64, 256), many=draw(1024, 256))  # 1x1 convolutions are matrix products
    return scope


def lapack():
    """Returns the LAPACK library Phlox finds if installed next to NumPy: NumPy's OpenBLAS."""
    numpy = importlib.util.find_spec("numpy")
    found = numpy and glob.glob(os.path.join(os.path.dirname(numpy.origin), "..", "numpy.libs", "libscipy_openblas*.so*"))
    return {"PHLOX_LAPACK": found[0]} if found else {}


def start(library, names):
    given = {**lapack(), **os.environ, "OPENBLAS_NUM_THREADS": str(THREADS)}
    return subprocess.Popen([sys.executable, "-W", "ignore", __file__, "--measure", library, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=given)


def serve(library, names):
    """Prints the rows and their errors, then times each row named on stdin."""
    found = steps(library, names)
    print(json.dumps({name: off for name, (_, off) in found.items()}), flush=True)
    for line in sys.stdin:
        print(timed(found[line.strip()][0]), flush=True)


def ask(worker, name):
    # Idle threads of the previous library may spin for a while: OpenBLAS's for 0.12 s.
    if THREADS > 1: time.sleep(0.15)
    print(name, file=worker.stdin, flush=True)
    return float(worker.stdout.readline())


def main():
    workers = {library: start(library, sys.argv[1:]) for library in ("phlox", "torch", "numpy")}
    errors = {library: json.loads(worker.stdout.readline() or "{}") for library, worker in workers.items()}
    if not errors["phlox"]:
        sys.exit(1)
    show = lambda value, form: form % value if value is not None else "-"
    table = []
    for name, off in errors["phlox"].items():
        turns = {library: [] for library in workers if name in errors[library]}
        for _ in range(int(os.environ.get("TURNS", 7 if LARGE else 1))):
            for library, times in turns.items():
                times.append(ask(workers[library], name))
        mine, theirs, peer = (statistics.median(turns[library]) if library in turns else None for library in workers)
        # Ratios are taken per turn: the clock frequency varies between turns.
        ratios = [statistics.median(t / m for t, m in zip(times, turns["phlox"])) for library, times in turns.items() if library != "phlox"]
        table.append((min(ratios, default=0), name, mine, theirs, peer, off, errors["torch"].get(name)))
    print("%d threads\n%-58s %9s %9s %9s %6s %9s %9s" % (THREADS, "op, ms", "Phlox", "PyTorch", "NumPy", "ratio", "error", "PyTorch's"))
    for ratio, name, mine, theirs, peer, off, peer_off in table if LARGE else sorted(table):
        print("%-58s %9.3f %9s %9s %6s %9s %9s%s" % (name[:58], mine, show(theirs, "%.3f"), show(peer, "%.3f"), show(ratio or None, "%.2f"),
                                                   show(off, "%.1e"), show(peer_off, "%.1e"), "  below %.2f" % GOAL if LARGE and ratio < GOAL else ""))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        serve(sys.argv[2], sys.argv[3:])
    else:
        main()
