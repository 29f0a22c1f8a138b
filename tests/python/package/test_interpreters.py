# SPDX-License-Identifier: Apache-2.0
"""Programs end while daemon threads train, and interpreters other than the first cannot import the module. Each test runs programs. EXITS is the
number of runs of each program with daemon threads (2)."""
import os, shutil, subprocess, sys, sysconfig, tempfile, unittest

import phlox

PATH = os.path.dirname(os.path.dirname(phlox.__file__))
HERE = os.path.dirname(os.path.abspath(__file__))
INCLUDE = os.path.join(HERE, "..", "..", "..", "include")
LIBRARY = os.path.join(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDLIBRARY"))
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

DAEMONS = """
import random, sys, threading, time
import phlox as torch
from phlox import nn
from phlox.utils.data import DataLoader, TensorDataset

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 2

def model(device="cpu"):
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to(device)
    for parameter in net.parameters(): parameter.register_hook(lambda grad: grad * 1)
    return net

def inputs(device="cpu"): return torch.randn(16, 64, device=device)

def train(device):
    net = model(device)
    optimizer = torch.optim.Adam(net.parameters())
    while True:
        optimizer.zero_grad()
        net(Double.apply(inputs(device))).square().mean().backward()
        optimizer.step()

def cpu(): train("cpu")
def device(): train("cuda")
def two_devices():
    nets = model("cuda:0"), model("cuda:1")
    while True: sum(net(Double.apply(inputs(f"cuda:{i}"))).sum().to("cuda:0") for i, net in enumerate(nets)).backward()
def data_parallel():
    net = nn.DataParallel(model("cuda"), device_ids=[0, 1])
    while True: net(inputs("cuda")).sum().backward()
def loader():
    net = model()
    while True:
        for x, in DataLoader(TensorDataset(torch.randn(64, 64)), batch_size=16, shuffle=True): net(x).sum().backward()
def saved_hooks():
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x): train("cuda")
def slow_hooks():
    def slow(grad): time.sleep(0.001)
    while True:
        a, b = inputs("cuda:0").requires_grad_(), inputs("cuda:1").requires_grad_()
        x, y = a, b
        for _ in range(5):
            x, y = x.tanh(), y.tanh()
            x.register_hook(slow), y.register_hook(slow)
        (x.sum() + y.sum().to("cuda:0")).backward()
def lbfgs():
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=5)
    def closure():
        optimizer.zero_grad()
        loss = net(inputs()).square().mean()
        loss.backward()
        return loss
    while True: optimizer.step(closure)
def buffers():
    while True: torch.frombuffer(bytearray(4096), dtype=torch.float32).cuda(non_blocking=True).sum().item()

class Late:
    def __del__(self, sleep=time.sleep): sleep(0.02)  # the threads request the GIL of an interpreter that ends

late = Late()
torch.set_num_threads(1)
for _ in range(4): threading.Thread(target=globals()[sys.argv[1]], daemon=True).start()
time.sleep(0.03 + random.random() * 0.1)
"""


def run(*command, **environment):
    """Runs a program on two simulated devices. Returns its exit status and output."""
    env = {**os.environ, "PHLOX_SIM_DEVICES": "2", "PHLOX_BACKENDS": "sim", "PYTHONPATH": PATH, **environment}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout


@unittest.skipIf(FREE_THREADED, "free-threaded CPython 3.13 loses locks of threads that it ends, and hangs")
class Daemons(unittest.TestCase):
    def check(self, work):
        runs = int(os.environ.get("EXITS", "2"))
        for _ in range(runs):
            self.assertEqual(run(sys.executable, "-W", "ignore", "-c", DAEMONS, work), (0, ""))
        if "TALLY" in os.environ:  # counted by tools/tally.sh
            with open(os.environ["TALLY"], "a") as file: file.write(f"exits {runs}\n")


for work in "cpu", "device", "two_devices", "data_parallel", "loader", "saved_hooks", "slow_hooks", "lbfgs", "buffers":
    setattr(Daemons, f"test_program_ends_during_{work}", lambda self, work=work: self.check(work))

MAKE = """
import phlox as torch
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
inner = interpreters.create({})
print(interpreters.run_string(inner, '''
try: import phlox
except ImportError as error: print(error, flush=True)
'''))
x = torch.ones(3, device="cuda", requires_grad=True)
x.register_hook(lambda grad: grad * 2)
(x * 2).sum().backward()
print(x.grad.tolist())
"""
REFUSED = "module phlox._C does not support loading in subinterpreters\n"


class Interpreters(unittest.TestCase):
    def test_subinterpreters_cannot_import(self):
        kinds = ["'legacy'", "'isolated'"] if sys.version_info >= (3, 13) else ["isolated=False", "isolated=True"]
        for kind in kinds:
            with self.subTest(kind):
                self.assertEqual(run(sys.executable, "-W", "ignore", "-c", MAKE.format(kind)), (0, REFUSED + "None\n[4.0, 4.0, 4.0]\n"))

    def test_second_load_is_refused(self):
        code = "import phlox, sys; sys.modules.clear(); import phlox"
        status, text = run(sys.executable, "-c", code)
        self.assertEqual((status, text.splitlines()[-1]), (1, "ImportError: cannot load module phlox._C more than once per process"))

    @unittest.skipUnless(shutil.which("cc") and os.path.exists(LIBRARY), "requires a C compiler and libpython")
    def test_embedded_interpreter(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "embed")
            flags = [f"-I{sysconfig.get_path('include')}", f"-I{INCLUDE}", LIBRARY, f"-Wl,-rpath,{os.path.dirname(LIBRARY)}"]
            flags += " ".join(sysconfig.get_config_vars("LINKFORSHARED", "LIBS", "SYSLIBS")).split()
            subprocess.run(["cc", os.path.join(HERE, "embed.c"), "-o", program, *flags], check=True, timeout=60)
            refusals = 2 if sys.version_info >= (3, 12) else 1
            trained = "[72.0, 72.0]\n"
            text = trained + REFUSED * refusals + trained + "cannot load module phlox._C more than once per process\nended\n"
            self.assertEqual(run(program, PYTHONHOME=sys.base_prefix, PYTHONWARNINGS="ignore"), (0, text))

    @unittest.skipUnless(FREE_THREADED, "requires a free-threaded Python")
    def test_free_threaded_interpreter_enables_the_gil(self):
        code = "import sys, phlox; print(sys._is_gil_enabled())"
        self.assertEqual(run(sys.executable, "-W", "ignore", "-c", code), (0, "True\n"))
        status, text = run(sys.executable, "-X", "gil=0", "-c", code)
        self.assertEqual((status, text.splitlines()[-1]), (1, "ImportError: module phlox._C requires the GIL, which PYTHON_GIL=0 or -X gil=0 disables"))


if __name__ == "__main__":
    unittest.main()
