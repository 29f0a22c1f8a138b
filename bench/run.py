# SPDX-License-Identifier: Apache-2.0
"""The benchmarks: `make bench`, or `python3 bench/run.py build/bench.json`.

Prints and writes as JSON the cost of Phlox from C and Python compared to PyTorch on the CPU in the same run (if a Python with both is
found), the goal of each row, and its lower bound if it is bound by memory bandwidth. A row is an entry of a table. Each figure is the
minimum of many repeats. The libraries alternate, so that other load affects both.
"""
import gc, json, os, subprocess, sys, textwrap, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
THREADS = min(2, len(os.sched_getaffinity(0)))
ROUNDS = 3
LIBRARIES = ("phlox", "torch")

# Rows of bench/call.c: name -> goal in ns.
C_GOALS = {"add of 4 floats": 100, "view: select": 60, "view: narrow": 60, "what a profile adds to an op": 200}

NET = """
def train(net, optimizer, x, y):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss
"""
DIGITS = NET + """
from torch import nn
net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                    nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
x, y = torch.rand(1438, 1, 8, 8), torch.randint(0, 10, (1438,))
"""
LSTM = """
def lstm(size, layers):
    return torch.nn.LSTM(size, size, layers)
def step(net, x):
    net.zero_grad()
    net(x)[0].sum().backward()
"""
ENCODER = """
from torch import nn
net = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 8, 1024, 0.0, batch_first=True), 2, enable_nested_tensor=False)
optimizer = torch.optim.AdamW(net.parameters())
x = torch.rand(16, 64, 256)
def step():
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
"""
# Lower bound: two products of 2 * heads * length^2 * 64 operations each (forward; times 3.5 with backward), and heads * length^2
# exponentials; half of that if causal.
ATTENTION = """
F = torch.nn.functional
def tensors(sizes, dtype=torch.float32):
    return [torch.randn(sizes).to(dtype).requires_grad_() for _ in range(3)]
def step(x, **options):
    for t in x:
        t.grad = None
    F.scaled_dot_product_attention(*x, **options).sum().backward()
def forward(x, **options):
    with torch.no_grad():
        F.scaled_dot_product_attention(*x, **options)
"""
LINEAR = "net = torch.nn.Linear(16, 16); x = torch.ones(16, 16)"
SMALL = """
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
optimizer = torch.optim.Adam(net.parameters())
net(torch.ones(2, 4)).sum().backward()
optimizer.step()
"""
# A file of 10,000 small tensors. PyTorch reads safetensors only if their package is installed.
FILE = """
import atexit, os, shutil, tempfile
folder = tempfile.mkdtemp()
atexit.register(shutil.rmtree, folder)
x = {f"model.layers.{i}.weight": torch.full((4,), 1.0 * i) for i in range(10000)}
path = os.path.join(folder, "x.%s")
torch.save(x, path)
"""
BIG = "x = torch.rand(16 * 2**20)"
MB16 = 64 * 2**20 / 1e9  # GB of 16 M floats
LARGE = """
p = torch.rand(4 * 2**20, requires_grad=True)
p.grad = torch.rand_like(p.detach())
"""
# Rows from Python: name, statement, setup, then any of: goal (seconds), times (goal as a multiple of torch's speed),
# moved (minimum GB moved: the lower bound is a plain C loop `like` that moves as many).
ROWS = [
    ("add of 4 floats", "a + b", "a, b = torch.ones(4), torch.ones(4)", {"goal": 200e-9}),
    ("view x[0]", "x[0]", "x = torch.ones(4, 4)", {"goal": 120e-9}),
    ("Linear 16x16 forward", "net(x)", LINEAR, {"goal": 900e-9}),
    ("Linear 16x16 forward+backward", "net(x).sum().backward()", LINEAR, {"goal": 7e-6}),
    ("Linear 16x16 forward under autocast", "with torch.autocast('cpu'): net(x)", LINEAR, {}),
    ("Adam step of small parameters", "optimizer.step()", SMALL, {}),
    ("optimizer.zero_grad, no gradients", "optimizer.zero_grad()", SMALL + "optimizer.zero_grad()", {}),
    ("StepLR.step", "schedule.step()", SMALL + "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)", {}),
    ("clip_grad_norm_ of small parameters", "torch.nn.utils.clip_grad_norm_(ps, 1.0)", SMALL + "ps = list(net.parameters())", {}),
    ("_foreach_add_ of 20 small tensors", "torch._foreach_add_(ts, 1.0)", "ts = [torch.ones(64) for _ in range(20)]", {}),
    ("LBFGS step of 10 turns", "optimizer.step(loss)", """
p = torch.ones(100, requires_grad=True)
optimizer = torch.optim.LBFGS([p], lr=1e-3, max_iter=10, tolerance_grad=0, tolerance_change=0)
def loss():
    optimizer.zero_grad()
    value = (p * p).square().sum()
    value.backward()
    return value
""", {}),
    ("cuda.device_count", "torch.cuda.device_count()", "", {}),
    ("MLP 784-1024-1024-10 step, batch 128", "train(net, optimizer, x, y)", NET + """
from torch import nn
net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = torch.rand(128, 784), torch.randint(0, 10, (128,))
""", {"times": 1.5}),
    ("digits network step, batch 64", "train(net, optimizer, x, y)", DIGITS + "x, y = x[:64], y[:64]", {"times": 1.5}),
    ("digits network epoch, with its DataLoader", "for a, b in loader: train(net, optimizer, a, b)", DIGITS + """
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
""", {"times": 1.5}),
    ("LSTM 2x650 forward, 20x35", "net(x)", LSTM + "net, x = lstm(650, 2), torch.rand(35, 20, 650)", {"times": 1}),
    ("LSTM 2x650 forward+backward, 20x35", "step(net, x)", LSTM + "net, x = lstm(650, 2), torch.rand(35, 20, 650)", {"times": 1}),
    ("LSTM 128 forward+backward, 32x50", "step(net, x)", LSTM + "net, x = lstm(128, 1), torch.rand(50, 32, 128)", {"times": 1}),
    ("TransformerEncoder 2x256 step, 16x64", "step()", ENCODER, {"times": 1}),
    ("attention 2x8x512x64 forward", "forward(x)", ATTENTION + "x = tensors((2, 8, 512, 64))", {"times": 1}),
    ("attention 2x8x512x64 forward+backward", "step(x)", ATTENTION + "x = tensors((2, 8, 512, 64))", {"times": 1}),
    ("attention 2x8x512x64 forward+backward, bf16", "step(x)", ATTENTION + "x = tensors((2, 8, 512, 64), torch.bfloat16)", {"times": 1}),
    ("causal attention 1x12x1024x64 forward", "forward(x, is_causal=True)", ATTENTION + "x = tensors((1, 12, 1024, 64))", {"times": 1}),
    ("causal attention 1x12x1024x64 forward+backward", "step(x, is_causal=True)", ATTENTION + "x = tensors((1, 12, 1024, 64))", {"times": 1}),
    ("save 10,000 tensors, .pt", "torch.save(x, path)", FILE % "pt", {"times": 1}),
    ("load 10,000 tensors, .pt", "torch.load(path)", FILE % "pt", {"times": 1}),
    ("load 10,000 tensors, .safetensors", "torch.load(path)", FILE % "safetensors", {"goal": 0.03}),
    ("matmul 1024", "a @ b", "a, b = torch.rand(1024, 1024), torch.rand(1024, 1024)", {"times": 1}),
    ("softmax, 16 M floats", "torch.softmax(x, 1)", BIG + ".view(16384, 1024)", {"moved": 2 * MB16, "like": "copy"}),
    ("layer_norm, 16 M floats", "torch.nn.functional.layer_norm(x, (1024,))", BIG + ".view(16384, 1024)", {"moved": 2 * MB16, "like": "copy"}),
    ("sum, 16 M floats", "x.sum()", BIG, {"moved": MB16, "like": "read"}),
    ("x * 0.5 + 0.5, in place, 16 M floats", "x.mul_(0.5).add_(0.5)", BIG, {"moved": 4 * MB16, "like": "update"}),
    ("SGD step with momentum, 4 M floats", "optimizer.step()", LARGE + "optimizer = torch.optim.SGD([p], lr=0.01, momentum=0.9)", {"times": 1}),
    ("Adam step, 4 M floats", "optimizer.step()", LARGE + "optimizer = torch.optim.Adam([p])", {"times": 1}),
    ("copy of a transposed matrix, 4 M floats", "x.t().contiguous()", "x = torch.rand(2048, 2048)", {"times": 1}),
    ("float32 to int64, 4 M floats", "x.to(torch.int64)", "x = torch.rand(4 * 2**20)", {"times": 1}),
    ("relu(x) * 2 + 1, 16 M floats", "torch.relu(x) * 2 + 1", BIG, {"moved": 6 * MB16, "like": "copy"}),
]


def prepare(statement, setup, scope, check="None"):
    """Runs the setup once. Returns repeat(n), the seconds of n runs including the final wait, and a function evaluating `check`."""
    code = f"""
def start():
{textwrap.indent(setup, " ")}
 def repeat(n):
  begin = clock()
  for _ in range(n):
   {statement}
  wait()
  return clock() - begin
 return repeat, lambda: {check}
"""
    space = {"clock": time.perf_counter, "wait": lambda: None, **scope}
    exec(code, space)
    return space["start"]()


def min_seconds(repeat, seconds):
    """Returns the seconds of one run: the minimum over repeats of at least a millisecond, within a total time of `seconds`."""
    repeat(1)
    calls = max(1, int(1e-3 / max(repeat(1), 1e-9)))
    end, best = time.perf_counter() + seconds, 1e9
    while best == 1e9 or time.perf_counter() < end:
        best = min(best, repeat(calls) / calls)
        calls = max(1, min(calls, int(2e-3 / best)))
    return best


def bind(library):
    """Imports a library as torch."""
    if library == "phlox":
        import phlox as torch
        for name in [n for n in sys.modules if n.split(".")[0] == "phlox"]:
            sys.modules["torch" + name[5:]] = sys.modules[name]
    else:
        import torch
    torch.set_num_threads(THREADS)
    gc.disable()
    return torch


def chosen(rows, names):
    return [row for row in rows if any(name in row[0] for name in names)]


def report(library, rows, measure):
    """Prints a line {name: measure(row)} for each row. Failures are printed to stderr."""
    for row in rows:
        try:
            print(json.dumps({row[0]: measure(*row)}), flush=True)
        except Exception as error:
            print(f"{library}: {row[0]}: {type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
        gc.collect()


def results_of(python, file, *arguments, **more):
    """Yields the (name, figures) printed by a worker, as they arrive."""
    for line in lines(python, os.path.abspath(file), *arguments, **more): yield from json.loads(line).items()


def worker(library, names):
    """Runs the rows with one library and prints the seconds of each."""
    torch = bind(library)
    report(library, chosen(ROWS, names), lambda name, statement, setup, more: min_seconds(*prepare(statement, setup, {"torch": torch})[:1], 0.7))


def environment(tree=ROOT):
    path = os.pathsep.join(filter(None, [os.path.join(tree, "python"), os.environ.get("PYTHONPATH")]))
    threads = {k: str(THREADS) for k in ("PHLOX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return dict(os.environ, PYTHONPATH=path, **threads)


def output(*command, **more):
    return subprocess.run(command, env=dict(environment(), **more), check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def lines(*command, **more):
    """Yields the lines printed by a process, as they arrive."""
    with subprocess.Popen(command, env=dict(environment(), **more), stdout=subprocess.PIPE, text=True, cwd=ROOT) as process: yield from process.stdout
    if process.returncode: raise subprocess.CalledProcessError(process.returncode, command)


def last_json(what, *command, **more):
    """Returns the last line printed by a process, as JSON. On failure prints the error, prefixed with `what`, and returns None."""
    done = subprocess.run(command, env=dict(environment(), **more), capture_output=True, text=True)
    if done.returncode: print(f"{what}: {(done.stderr.splitlines() or ['?'])[-1]}", file=sys.stderr)
    return None if done.returncode else json.loads(done.stdout.splitlines()[-1])


def succeeds(python, code, **more):
    return subprocess.run([python, "-c", code], env=dict(environment(), **more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def can_import(python, *modules): return succeeds(python, "import " + ", ".join(modules))
def has_gpu(python, library): return succeeds(python, f"import {library} as t, sys; sys.exit(not t.cuda.device_count())", PHLOX_BACKENDS="cuda")


# A simulated device in place of a GPU: kernels are skipped, time is virtual.
SIMULATED = {"PHLOX_BACKENDS": "sim", "PHLOX_SIM_DEVICES": "1", "PHLOX_SIM_MODE": "schedule", "PHLOX_SIM_MEMORY": "140G", "PHLOX_SIM_KERNELS": "skip"}


def choose():
    """Returns a Python with PyTorch, if there is one, and the libraries it can import."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and can_import(python, "phlox", "torch"):
            return python, list(LIBRARIES)
    return sys.executable, ["phlox"]


def start_seconds(python, library, code="print(torch.ones(2) + 1)", times=20):
    command, best = [python, "-c", f"import {library} as torch; {code}"], 1e9
    for _ in range(times if library == "phlox" else 3):
        begin = time.perf_counter()
        subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - begin)
    return best


def resident(python, library):
    code = "print([l.split()[1] for l in open('/proc/self/status') if l.startswith('VmRSS')][0])"
    return int(output(python, "-c", f"import {library} as torch\n{code}")) * 1024


def installed(python, library):
    """Returns the bytes of the installed package and its libraries, without symbols and .pyc files."""
    folder = os.path.dirname(output(python, "-c", f"import {library}; print({library}.__file__)").strip())
    stripped, total = os.path.join(ROOT, "build", "stripped.so"), 0
    for path in (os.path.join(at, f) for at, _, files in os.walk(folder) for f in files if not f.endswith(".pyc")):
        if os.path.islink(path): continue
        if library == "phlox" and ".so" in path:
            output("strip", "--strip-unneeded", "-o", stripped, path)
            path = stripped
        total += os.path.getsize(path)
    return total + (libraries(python) if library == "torch" else 0)


def libraries(python):
    """Returns the bytes of PyTorch's libraries outside the package, as installed by distributions."""
    code = "import torch; print(*{l.split()[-1] for l in open('/proc/self/maps') if '/libtorch' in l or '/libc10' in l})"
    paths = output(python, "-c", code).split()
    return sum(os.path.getsize(p) for p in paths if "/torch/" not in p)


def text(value, unit):
    if value is None: return "-"
    if unit == "MB": return f"{value / 1e6:.1f} MB"
    for scale, name in ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms")):
        if value < 1000 * scale: return f"{value / scale:.3g} {name}"
    return f"{value:.3g} s"


def head(errors=False):
    print(f"{'':44}{'Phlox':>10}{'torch':>10}{'ratio':>8}{'goal':>15}{'floor':>13}" + (f"{'error':>10}{'torch':>10}" if errors else ""), flush=True)


def show(r):
    """Prints a judged row. `errors`, if present, are the last columns."""
    ratio = f"{r['torch'] / r['phlox']:.2f}" if r.get("torch") and r.get("phlox") else ""
    floor = f"{100 * r['floor'] / r['phlox']:.0f} % of it" if r.get("floor") and r.get("phlox") else ""
    goal = f"{r['times']}x torch" if "times" in r else text(r["goal"], r["unit"]) if "goal" in r else ""
    if goal: goal += " met" if r["met"] else " NOT" if r["met"] is not None else " ?"
    wrong = [f"{e:.1e}" if e is not None else "-" for e in map(r.get("errors", {}).get, LIBRARIES)] if "errors" in r else []
    print(f"{r['name']:44}{text(r.get('phlox'), r['unit']):>10}{text(r.get('torch'), r['unit']):>10}{ratio:>8}{goal:>15}{floor:>13}" + "".join(f"{w:>10}" for w in wrong), flush=True)


def judge(row):
    """Sets row["met"]: whether the goal is met; None if undecidable."""
    mine, other = row.get("phlox"), row.get("torch")
    if "times" in row: row["met"] = mine * row["times"] <= other if mine and other else None
    elif "goal" in row: row["met"] = mine <= row["goal"] if mine else False
    return row


def c_lines(*arguments, tree=ROOT):
    for line in output(os.path.join(tree, "build", "bench", "call"), *arguments).splitlines():
        name, value, _ = line.rsplit(" ", 2)
        yield name, float(value) * 1e-9


def c_rows():
    for name, seconds in c_lines():
        yield {"name": f"C: {name}", "unit": "s", "phlox": seconds, **({"goal": C_GOALS[name] * 1e-9} if name in C_GOALS else {})}


def measure_bandwidth(best):
    """Raises the lower bounds to the bandwidth a plain C loop reaches now."""
    for name, value, _ in (l.split() for l in output(os.path.join(ROOT, "build", "bench", "bandwidth"), str(THREADS)).splitlines()):
        best[name] = max(best.get(name, 0), float(value))


def worker_seconds(python, library, names, tree=ROOT):
    """Returns {name: seconds} of the rows, measured in a separate process with the package of a tree."""
    return dict(results_of(python, __file__, "--worker", library, *names, PYTHONPATH=environment(tree)["PYTHONPATH"]))


def python_rows(python, have, names, bandwidth):
    results = {library: {} for library in have}
    for _ in range(ROUNDS):
        measure_bandwidth(bandwidth)
        for library in have:
            for name, seconds in worker_seconds(python, library, names).items():
                results[library][name] = min(seconds, results[library].get(name, 1e9))
    for name, _, _, more in ROWS:
        if not any(name in results[library] for library in have): continue
        row = {"name": name, "unit": "s", **more, **{library: results[library].get(name) for library in have}}
        if "moved" in more: row["floor"] = more["moved"] / bandwidth[more["like"]]
        yield row


def process_rows(python, have):
    for name, unit, goal, measure in (("start to first result", "s", 0.04, start_seconds), ("resident after import", "MB", 25e6, resident),
                                      ("installed size", "MB", 8e6, installed)):
        yield {"name": name, "unit": unit, "goal": goal, **{library: measure(python, library) for library in have}}


def main(path, *names):
    python, have = choose()
    bandwidth = {}
    if "torch" not in have: print("PyTorch is not importable here: its column is empty")
    rows = list(c_rows()) + list(python_rows(python, have, names or [""], bandwidth))
    if not names: rows += process_rows(python, have)
    floors = ", ".join(f"{name} {speed:.1f} GB/s" for name, speed in bandwidth.items())
    print(f"{THREADS} threads on {os.cpu_count()} cores; memory: {floors}; load {os.getloadavg()[0]:.1f}")
    head()
    for r in rows: show(judge(r))
    with open(path, "w") as file:
        json.dump({"threads": THREADS, "bandwidth": bandwidth, "load": os.getloadavg()[0], "rows": rows}, file, indent=1)


if __name__ == "__main__":
    if sys.argv[1] == "--worker": worker(sys.argv[2], sys.argv[3:])
    else: main(*sys.argv[1:])
