# SPDX-License-Identifier: Apache-2.0
"""Phlox and PyTorch on the same GPU in the same run: `python3 bench/vs_torch.py` (build with `make bench` for the lower bounds).

Prints for each row both figures, their ratio, the goal, the fraction of the lower bound reached (the driver's time for a launch, copy
or context, measured here), and each library's error relative to float64. Also writes them as JSON. Arguments select rows by parts of
their names. A row is an entry of ROWS: name, statement, setup, and any of

    goal      seconds
    moved     minimum bytes moved in device memory; the lower bound is a copy of the same size
    like      the lower bound, if not "copy": "launch", "to_device", "to_host"
    check     an expression for the result; "": the statement's result
    gpu       True: devices only
    more      environment variables of the process

A setup can use `device`, `N` (elements of a gigabyte of float32), `some(*sizes, dtype)`: random numbers equal in both libraries,
`kind`: float32, or float64 for the reference, and `exact(x)`: converts to float64 for the reference.
"""
import argparse, json, os, sys

import run

BUILD = os.path.join(run.ROOT, "build")
GOALS = {"add of 4 floats": 2.95e-6, "tensor: empty and release": 60e-9}  # of bench/call.c

HEAD = """
torch.manual_seed(1)
F = torch.nn.functional
kind = torch.float64 if reference else torch.float32
exact = (lambda x: x.to(torch.float64)) if reference else (lambda x: x)
def some(*sizes, dtype=torch.float32):
    return exact((torch.rand(*sizes, device=device) - 0.5).to(dtype))
"""
STEPS = run.NET + """
def after(steps):
    net.eval()
    for _ in range(steps): loss = train(net, optimizer, x, y)
    return loss.detach()
"""
MLP = STEPS + """
import nets
net = nets.mlp().to(device=device, dtype=kind)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = some(128, 784), torch.randint(0, 10, (128,), device=device)
"""
CNN = STEPS + """
import nets
net = nets.cnn().to(device=device, dtype=kind)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = some(64, 1, 28, 28), torch.randint(0, 10, (64,), device=device)
"""
ENCODER = """
from torch import nn
big = N > 2**20
size, batch, length = (512, 32, 256) if big else (16, 2, 4)
layer = nn.TransformerEncoderLayer(size, 8, 4 * size, 0.0, batch_first=True, norm_first=True)
net = nn.TransformerEncoder(layer, 6 if big else 1, enable_nested_tensor=False).to(device=device, dtype=kind)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
x = some(batch, length, size)
mask = exact(nn.Transformer.generate_square_subsequent_mask(length, device=device))
def step():
    optimizer.zero_grad()
    loss = net(x, mask, is_causal=True).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
"""
BIG, ROWS_OF = "x = some(N)", "x = some(N // 1024, 1024)"
SHORT = "a, b = some(N, dtype=torch.bfloat16), some(N, dtype=torch.bfloat16)"
COMPLEX = "a, b = (torch.complex(some(N // 2), some(N // 2)) for _ in range(2))"
PARTS = "torch.view_as_real({})"
CHANNELS = "x = some(N // 2**20 or 1, 64, int(min(N, 2**20)**0.5) // 8, int(min(N, 2**20)**0.5) // 8)"
GRADS = "; x.requires_grad_(); g = torch.ones_like(x); y = "
GB = 2**30  # bytes of N floats
COPIES = "a = torch.rand(N // 4){}; b = torch.empty(N // 4, device=device)"


def product(name, dtype, **more):
    setup = f"n = 8192 if N > 2**20 else 64; a, b = some(n, n, dtype=torch.{dtype}), some(n, n, dtype=torch.{dtype})"
    return (f"matmul 8192, {name}", "a @ b", setup, {"check": "", **more})


def decomposition(name, statement, n, check=""):
    """Rows for one large matrix and for many small ones."""
    setup = "n, m = ({}, {}) if N > 2**20 else (16, 2); x = some(m, n, n).squeeze(0); b = some(m, n, 8).squeeze(0); a = x @ x.mT + torch.eye(n, device=device, dtype=kind)"
    return [(f"linalg.{name} of {size}", statement, setup.format(side, count), {"check": check})
            for size, side, count in ((f"{n}x{n}", n, 1), ("1024 of 32x32", 32, 1024))]


def recurrent(name, dtype):
    setup = f"""size, times, batch = (650, 35, 20) if N > 2**20 else (8, 3, 2)
net = torch.nn.{name}(size, size, 2).to(device=device, dtype=exact(torch.empty(0, dtype=torch.{dtype})).dtype)
x = some(times, batch, size, dtype=torch.{dtype}).requires_grad_()
def step():
    net.zero_grad()
    net(x)[0].sum().backward()
    return net.weight_hh_l0.grad
"""
    return (f"{name} 2x650, 20 times 35, {dtype}, forward and backward", "step()", setup, {"check": ""})


def attention(b, h, s, e, causal):
    setup = f"""sizes = ({b}, {h}, {s}, {e}) if N > 2**20 else (2, 2, 16, 8)
q, k, v, g = (some(*sizes, dtype=torch.bfloat16) for _ in range(4))
attend = lambda: F.scaled_dot_product_attention(q, k, v, is_causal={causal})
"""
    grads = setup + "q.requires_grad_(); k.requires_grad_(); v.requires_grad_()"
    name = f"sdpa{' causal' * causal} bf16 {b}x{h}x{s}x{e}, "
    return [(name + "forward", "attend()", setup, {"check": ""}),
            (name + "forward and backward", "torch.autograd.grad(attend(), [q, k, v], g)", grads, {"check": "torch.autograd.grad(attend(), k, g)[0]"})]


ROWS = [
    ("add of 4 floats", "a + b", "a, b = some(4), some(4)", {"goal": 3.3e-6, "like": "launch", "check": ""}),
    ("Linear 16x16 forward+sum+backward", "net(x).sum().backward()",
     "net = torch.nn.Linear(16, 16).to(device=device, dtype=kind); x = some(16, 16)",
     {"goal": 30e-6, "check": "[net.zero_grad(), net(x).sum().backward(), net.weight.grad][2]"}),
    ("empty of 4 floats, and its release", "torch.empty(4, device=device)", "", {}),
    ("fill", "x.fill_(1.5)", BIG, {"moved": GB, "check": ""}),
    ("copy", "b.copy_(a)", "a = some(N); b = torch.empty_like(a)", {"moved": 2 * GB, "check": ""}),
    ("add", "a + b", "a, b = some(N), some(N)", {"moved": 3 * GB, "check": ""}),
    ("add of a transposed operand", "a + b.t()", "n = int(N**0.5); a, b = some(n, n), some(n, n)", {"moved": 3 * GB, "check": ""}),
    ("add of bfloat16", "a + b", SHORT, {"moved": 3 * GB // 2, "check": ""}),
    ("gelu of bfloat16", "F.gelu(a)", SHORT, {"moved": GB, "check": ""}),
    ("gelu", "F.gelu(x)", BIG, {"moved": 2 * GB, "check": ""}),
    ("exp", "torch.exp(x)", BIG, {"moved": 2 * GB, "check": ""}),
    ("log", "torch.log(x)", "x = some(N).abs() + 0.1", {"moved": 2 * GB, "check": ""}),
    ("tanh", "torch.tanh(x)", BIG, {"moved": 2 * GB, "check": ""}),
    ("erf", "torch.erf(x)", BIG, {"moved": 2 * GB, "check": ""}),
    ("pow of two tensors", "torch.pow(a, b)", "a, b = some(N // 2).abs() + 0.1, some(N // 2)", {"moved": 3 * GB // 2, "check": ""}),
    ("searchsorted in 1,024", "torch.searchsorted(lines, x)", "x, lines = some(N), some(1024).sort()[0]", {"moved": 3 * GB, "check": ""}),
    ("max_pool2d of 2x2", "F.max_pool2d(x, 2)", "x = some(N // 2**12, 4, 32, 32)", {"moved": 5 * GB // 4, "check": ""}),
    ("max_pool2d of 2x2, channels_last", "F.max_pool2d(x, 2)",
     "n = min(64, N // 2**10); x = some(N // 2**10 // n, n, 32, 32).to(memory_format=torch.channels_last)", {"moved": 5 * GB // 4, "check": ""}),
    ("sum", "x.sum()", "x = some(N) + 0.5", {"moved": GB, "check": ""}),
    ("sum of the channels of images", "x.sum((0, 2, 3))", "x = some(max(N // 2**20, 1), 64, 128, 128) + 0.5", {"moved": GB, "check": ""}),
    ("softmax of rows of 1024", "torch.softmax(x, 1)", ROWS_OF, {"moved": 2 * GB, "check": ""}),
    ("layer_norm of rows of 1024", "F.layer_norm(x, (1024,))", ROWS_OF, {"moved": 2 * GB, "check": ""}),
    ("layer_norm backward, rows of 1024", "torch.autograd.grad(y, [x, w, b], g, retain_graph=True)",
     ROWS_OF + "; w, b = some(1024).requires_grad_(), some(1024).requires_grad_()" + GRADS + "F.layer_norm(x, (1024,), w, b)",
     {"moved": 3 * GB, "check": "torch.autograd.grad(y, w, x, retain_graph=True)[0]"}),
    ("batch_norm of 64 channels", "F.batch_norm(x, None, None, training=True)", CHANNELS, {"moved": 3 * GB, "check": ""}),
    ("batch_norm backward, 64 channels", "torch.autograd.grad(y, x, g, retain_graph=True)",
     CHANNELS + GRADS + "F.batch_norm(x, None, None, training=True)", {"moved": 5 * GB}),
    ("transposing copy", "x.t().contiguous()", "x = some(int(N**0.5), int(N**0.5))", {"moved": 2 * GB, "check": ""}),
    ("randn", "torch.randn(N, device=device)", "", {"moved": GB}),
    ("embedding, rows of 1024", "F.embedding(i, x)", ROWS_OF + "; i = torch.randint(0, N // 1024, (N // 1024,), device=device)",
     {"moved": 2 * GB, "check": ""}),
    ("embedding backward, rows of 1024", "torch.autograd.grad(y, x, g, retain_graph=True)[0]",
     ROWS_OF + "; i = torch.randint(0, N // 1024, (N // 1024,), device=device)" + GRADS + "F.embedding(i, x)",
     {"moved": 2 * GB, "check": ""}),
    ("cross-entropy of 32768 classes", "F.cross_entropy(x, y)",
     "c = min(32768, N // 4); x = some(N // c, c); y = torch.randint(0, c, (N // c,), device=device)", {"moved": GB, "check": ""}),
    ("sort of a line", "x.sort()", BIG, {"moved": 4 * GB, "check": "x.sort()[0]"}),
    ("sort of rows of 64", "x.sort(1)", "x = some(N // 64, 64)", {"moved": 4 * GB, "check": "x.sort(1)[0]"}),
    ("sort of rows of 1024", "x.sort(1)", ROWS_OF, {"moved": 4 * GB, "check": "x.sort(1)[0]"}),
    ("sort of rows of 2^20", "x.sort(1)", "n = min(2**20, N); x = some(N // n, n)", {"moved": 4 * GB, "check": "x.sort(1)[0]"}),
    ("sort of a line of int64", "x.sort()", "x = torch.randint(-2**62, 2**62, (N // 2,), device=device)", {"moved": 4 * GB}),
    ("topk, 100 of a line", "x.topk(100)", BIG, {"moved": GB, "check": "x.topk(100)[0]"}),
    ("topk, 10 of rows of 1024", "x.topk(10, 1)", ROWS_OF, {"moved": GB, "check": "x.topk(10, 1)[0]"}),
    ("topk, 50 of rows of 32768", "x.topk(50, 1)", "n = min(32768, N); x = some(N // n, n)", {"moved": GB, "check": "x.topk(50, 1)[0]"}),
    ("unique of int32", "torch.unique(x)", "x = torch.randint(0, 2**20, (N,), device=device, dtype=torch.int32)", {"moved": GB, "check": ""}),
    ("masked_select of half", "torch.masked_select(x, m)", BIG + "; m = x > 0", {"moved": 7 * GB // 4, "check": ""}),
    ("nonzero of half", "x.nonzero()", "x = some(N).clamp(min=0)", {"moved": 2 * GB}),
    ("cumsum of a line", "x.cumsum(0)", "x = some(N) + 0.5", {"moved": 2 * GB, "check": ""}),
    ("cumsum of rows of 16", "x.cumsum(1)", "x = some(N // 16, 16) + 0.5", {"moved": 2 * GB, "check": ""}),
    ("cumsum of rows of 1024", "x.cumsum(1)", ROWS_OF, {"moved": 2 * GB, "check": ""}),
    ("AdamW step", "optimizer.step()",
     "w = some(N).requires_grad_(); w.grad = some(N); optimizer = torch.optim.AdamW([w], lr=0.01)",
     {"moved": 7 * GB, "check": "[optimizer.step(), w.detach()][1]"}),
    ("lgamma", "torch.lgamma(x)", "x = some(N).abs() + 0.1", {"moved": 2 * GB, "check": ""}),
    ("digamma", "torch.digamma(x)", "x = some(N).abs() + 0.1", {"moved": 2 * GB, "check": ""}),
    ("erfinv", "torch.erfinv(x)", BIG, {"moved": 2 * GB, "check": ""}),
    ("special.i0e", "torch.special.i0e(x)", BIG, {"moved": 2 * GB, "check": ""}),
    ("mul of complex64", "a * b", COMPLEX, {"moved": 3 * GB, "check": PARTS.format("a * b")}),
    ("exp of complex64", "torch.exp(a)", COMPLEX, {"moved": 2 * GB, "check": PARTS.format("torch.exp(a)")}),
    ("abs of complex64", "a.abs()", COMPLEX, {"moved": 3 * GB // 2, "check": ""}),
    ("sum of complex64", "a.sum()", COMPLEX, {"moved": GB, "check": PARTS.format("a.sum()")}),
    ("matmul 4096, complex64", "a @ b", COMPLEX + "; n = 4096 if N > 2**20 else 32; a, b = a[:n * n].view(n, n), b[:n * n].view(n, n)",
     {"check": PARTS.format("a @ b")}),
    ("fft.rfft of rows of 1024", "torch.fft.rfft(x)", ROWS_OF, {"moved": 2 * GB, "check": "torch.view_as_real(torch.fft.rfft(x))"}),
    ("fft.rfft2 of 1024x1024", "torch.fft.rfft2(x)", "n = min(1024, int(N**0.5)); x = some(N // n**2, n, n)",
     {"moved": 4 * GB, "check": "torch.view_as_real(torch.fft.rfft2(x))"}),
    ("fft.irfft of what gives rows of 1024", "torch.fft.irfft(y)", ROWS_OF + "; y = torch.fft.rfft(x)", {"moved": 2 * GB, "check": ""}),
    *decomposition("cholesky", "torch.linalg.cholesky(a)", 4096), *decomposition("solve", "torch.linalg.solve(a, b)", 4096),
    *decomposition("inv", "torch.linalg.inv(a)", 2048), *decomposition("eigh", "torch.linalg.eigh(a)", 1024, "torch.linalg.eigvalsh(a)"),
    *decomposition("svd", "torch.linalg.svd(a)", 512, "torch.linalg.svdvals(a)"), *decomposition("qr", "torch.linalg.qr(a)", 2048, "torch.linalg.qr(a)[1].abs()"),
    recurrent("LSTM", "float32"), recurrent("GRU", "float32"), recurrent("LSTM", "bfloat16"),
    ("Linear under autocast to bfloat16, forward and backward", "step()",
     "n = 4096 if N > 2**20 else 64; net = torch.nn.Linear(n, n).to(device=device, dtype=kind); x = some(n, n)\n"
     "def step():\n    net.zero_grad()\n"
     "    with torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=not reference): y = net(x)\n"
     "    y.sum().backward()\n    return net.weight.grad", {"check": ""}),
    *attention(4, 16, 4096, 128, True), *attention(16, 12, 1024, 64, True), *attention(128, 12, 197, 64, False),
    product("bfloat16", "bfloat16"), product("float16", "float16"), product("float32", "float32"),
    product("tf32", "float32", more={"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}),
    ("256 MB to the device, pinned", "b.copy_(a, non_blocking=True)", COPIES.format(".pin_memory()"), {"moved": GB // 4, "like": "to_device", "gpu": True}),
    ("256 MB to the device, pageable", "b.copy_(a)", COPIES.format(""), {"moved": GB // 4, "like": "to_device", "gpu": True}),
    ("256 MB to the host, pinned", "a.copy_(b, non_blocking=True)", COPIES.format(".pin_memory()"), {"moved": GB // 4, "like": "to_host", "gpu": True}),
    ("256 MB to the host, pageable", "a.copy_(b)", COPIES.format(""), {"moved": GB // 4, "like": "to_host", "gpu": True}),
    ("MLP 784-1024-1024-10 step, batch 128", "train(net, optimizer, x, y)", MLP, {"goal": 250e-6, "check": "after(5)"}),
    ("MNIST CNN step, batch 64", "train(net, optimizer, x, y)", CNN, {"goal": 600e-6, "check": "after(5)"}),
    ("TransformerEncoder 6x512 step, 32x256", "step()", ENCODER, {"check": "[step() for _ in range(3)][-1]"}),
    ("TransformerEncoder 6x512 under autocast to bfloat16, step, 32x256", "low()", ENCODER +
     "def low():\n    with torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=not reference): return step()", {"check": ""}),
    ("TransformerEncoder 6x512 inference, 32x256", "infer()", ENCODER + "net.eval()\n@torch.no_grad()\ndef infer(): return net(x, mask, is_causal=True)",
     {"check": ""}),
]


def scope(torch, options, reference):
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    return {"torch": torch, "device": options.device, "N": 2**12 if options.tiny else 2**28, "reference": reference, "wait": wait}


def error(torch, options, statement, setup, check):
    """Returns the distance to the float64 result relative to its norm, and the norm, used to compare the libraries' references."""
    got, exact = (run.prepare(statement, HEAD + setup, scope(torch, options, reference), check or statement)[1]().to(torch.float64)
                  for reference in (False, True))
    norm = exact.norm().item()
    return (got - exact).norm().item() / max(norm, 1e-300), norm


def measure(torch, options, statement, setup, more):
    seconds = run.min_seconds(run.prepare(statement, HEAD + setup, scope(torch, options, False))[0], 0 if options.tiny else 0.4)
    if "check" not in more: return [seconds, None, None]
    return [seconds, *error(torch, options, statement, setup, more["check"])]


def wanted(options):
    return [row for row in run.chosen(ROWS, options.names) if options.device == "cuda" or not row[3].get("gpu")]


def worker(library, options):
    """Runs the rows for the current environment and prints [seconds, error, norm] of each."""
    torch = run.bind(library)
    rows = [row for row in wanted(options) if row[3].get("more", {}).items() <= os.environ.items() and bool(row[3].get("more")) == options.more]
    run.report(library, rows, lambda name, *row: measure(torch, options, *row))


def ask(python, library, options, more):
    flags = ["--worker", library, "--device", options.device] + ["--tiny"] * options.tiny + ["--more"] * bool(more)
    return run.results_of(python, __file__, *flags, *options.names, **more)


def rounds(python, have, options):
    """Yields (name, {library: [seconds, error, norm]}), the minimum of the rounds. Each row is yielded once the last library has it; rows it lacks come at the end."""
    found = {}
    environments = [dict(e) for e in dict.fromkeys(tuple(row[3].get("more", {}).items()) for row in wanted(options))]
    turns = [(library, more) for _ in range(1 if options.tiny else options.rounds) for library in have for more in environments]
    lacking = {row[0] for row in wanted(options)}
    for left, (library, more) in zip(range(len(turns), 0, -1), turns):
        for name, figures in ask(python, library, options, more):
            mine = found.setdefault(name, {})
            mine[library] = min(figures, mine.get(library, figures), key=lambda f: f[0])
            if left <= len(environments):
                lacking.discard(name)
                yield name, mine
    yield from ((name, found[name]) for name in found if name in lacking)


def floor_of(more, floors):
    like = more.get("like", "copy")
    if like not in floors or ("moved" not in more and "like" not in more): return None
    return more["moved"] / floors[like] if "moved" in more else floors[like]


def python_rows(python, have, options, floors):
    entries = {row[0]: row[3] for row in ROWS}
    for name, figures in rounds(python, have, options):
        more = entries[name]
        row = {"name": name, "unit": "s", **{library: f[0] for library, f in figures.items()}}
        if "goal" in more and options.device == "cuda": row["goal"] = more["goal"]
        if "check" in more: row["errors"] = {library: f[1] for library, f in figures.items()}
        norms = [f[2] for f in figures.values() if f[2] is not None]
        if norms and max(norms) - min(norms) > 1e-5 * max(norms): print(f"{name}: the references differ: {norms}")
        if not options.tiny: row["floor"] = floor_of(more, floors)
        yield row


def process_row(python, have, options, floors):
    code = f"print((torch.ones(2, device='{options.device}') + 1).tolist())"
    return {"name": "start to first result of a process", "unit": "s", "floor": floors.get("context"), **({"goal": 0.8} if options.device == "cuda" else {}),
            **{library: run.start_seconds(python, library, code, 1 if options.tiny else 5) for library in have}}


def c_rows(options, floors):
    for name, seconds in run.c_lines(options.device):
        goal = {"goal": GOALS[name]} if name in GOALS and options.device == "cuda" else {}
        yield {"name": f"C: {name}", "unit": "s", "phlox": seconds, **goal, **({"floor": floors.get("launch")} if name.startswith("add") else {})}


def all_rows(python, have, options, floors):
    if options.names == [""]: yield from c_rows(options, floors)
    yield from python_rows(python, have, options, floors)
    if options.names == [""]: yield process_row(python, have, options, floors)


def driver_floors():
    """Returns the driver's times; {} without a driver."""
    try:
        return {name: float(value) for name, value in (line.split() for line in run.output(os.path.join(BUILD, "bench", "driver")).splitlines())}
    except Exception:
        return {}


def has_device(python, library, options):
    code = f"import {library} as torch; print(torch.cuda.is_available() and torch.cuda.get_device_name(0) or '')"
    return options.device == "cpu" or run.output(python, "-c", code).strip()


def main(options):
    python, have = run.choose()
    name = has_device(python, "phlox", options)
    if not name: return print("There is no GPU: nothing to compare. --device cpu runs the rows on the CPU.")
    if "torch" not in have or not has_device(python, "torch", options):
        print("PyTorch is not available or has no such device: its column is empty")
        have = ["phlox"]
    floors = driver_floors() if options.device == "cuda" else {}
    print(f"{name}; the driver alone: " + ", ".join(f"{k} {v / 1e9:.1f} GB/s" if v > 1e6 else f"{k} {run.text(v, 's')}" for k, v in floors.items()))
    run.head(errors=True)
    rows = []
    for row in all_rows(python, have, options, floors):
        rows.append(run.judge(row))
        run.show(row)
    order = {row[0]: at for at, row in enumerate(ROWS)}
    rows.sort(key=lambda row: order.get(row["name"], -1))
    with open(options.out, "w") as file:
        json.dump({"device": name, "floors": floors, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of rows")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small inputs, one run: checks that all rows run")
    parser.add_argument("--rounds", type=int, default=2, help="number of alternations between the libraries")
    parser.add_argument("--out", default=os.path.join(BUILD, "vs_torch.json"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--more", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.names = options.names or [""]
    worker(options.worker, options) if options.worker else main(options)
