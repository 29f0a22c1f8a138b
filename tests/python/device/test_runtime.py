# SPDX-License-Identifier: Apache-2.0
"""Process-wide behaviour: ordering between devices, and settings. Each test runs a subprocess."""
import os
import pathlib
import subprocess
import sys
import unittest


def run(code, timeout=300, **environment):
    """Runs a program on simulated devices. Returns its output."""
    env = {"PHLOX_SIM_DEVICES": "2", **os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", "import phlox as torch\n" + code], env=env, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise AssertionError(done.stderr[-3000:])
    return done.stdout


simulated = unittest.skipIf(run("print(torch.cuda._backend_name())") != "sim\n", "requires simulated devices")
two_devices = unittest.skipIf(int(run("print(torch.cuda.device_count())")) < 2, "requires two devices")


class Exit(unittest.TestCase):
    def test_unobserved_error_is_printed_with_line(self):
        for end, said in ("", True), ("try: torch.cuda.synchronize()\nexcept IndexError: pass", False):
            with self.subTest(end):
                code = 'import phlox as torch\nx = torch.ones(3, device="cuda")\ny = x[torch.tensor([7], device="cuda")]\n' + end
                done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PHLOX_SIM_DEVICES": "1"}, capture_output=True, text=True,
                                      timeout=100)
                self.assertEqual((done.returncode, done.stdout), (0, ""))
                self.assertEqual("IndexError: index 7 is out of bounds" in done.stderr and "launched at <string>:3" in done.stderr, said, done.stderr)


@two_devices
class Peers(unittest.TestCase):
    """Operands on two devices: results are as if every op were executed at its call."""
    start = """
torch.cuda.enable_peer_access(0, 1)
torch.cuda.enable_peer_access(1, 0)
a, b = torch.ones(5000, device="cuda:0"), torch.ones(5000, device="cuda:1")
"""

    def test_later_writes_do_not_reach_earlier_ops(self):
        for check in "0", "1":
            run(self.start + """
for i in range(30):
    c = a + b.fill_(i)
    b.zero_()
    assert c.device.index == 0 and c.unique().tolist() == [1 + i]
    b += c
    c.zero_()
    assert b.device.index == 1 and b.unique().tolist() == [1 + i]
""", PHLOX_SIM_DELAY="300", PHLOX_SANITIZE=check)

    def test_gradients_are_on_leaf_devices(self):
        for check in "0", "1":
            run(self.start + """
a.requires_grad_(), b.requires_grad_()
for i in range(10):
    (a * b + a[:1] @ b[:1]).sum().backward()
    with torch.no_grad():
        a.add_(1), b.add_(1)
assert (a.grad.device, b.grad.device) == (a.device, b.device)
assert a.grad[1].item() == b.grad[1].item() == 55
""", PHLOX_SIM_DELAY="300", PHLOX_SANITIZE=check)


@two_devices
class Settings(unittest.TestCase):
    """The table of docs/reference/threads.md: the scope of each setting (process or thread), and the threads that inherit it."""
    page = pathlib.Path(__file__).resolve().parents[3] / "docs/reference/threads.md"
    # name: (a statement that changes the setting, an expression that is true after it)
    settings = {
        "set_default_dtype": ("torch.set_default_dtype(torch.float64)", "torch.ones(1).dtype == torch.float64"),
        "set_default_tensor_type": ("torch.set_default_tensor_type('torch.cuda.DoubleTensor')",
                                    "torch.ones(1).is_cuda and torch.Tensor(2).is_cuda and torch.ones(1).dtype == torch.float64"),
        "autograd.set_detect_anomaly": ("torch.autograd.set_detect_anomaly(True)", "torch.is_anomaly_enabled()"),
        "set_printoptions": ("torch.set_printoptions(precision=1)", "repr(torch.tensor(.25)) in ('tensor(0.2)', 'tensor(0.3)')"),
        "set_num_threads": ("torch.set_num_threads(3)", "torch.get_num_threads() == 3"),
        "manual_seed": ("torch.manual_seed(77)", "torch.initial_seed() == 77"),
        "set_float32_matmul_precision": ("torch.set_float32_matmul_precision('high')", "torch.get_float32_matmul_precision() == 'high'"),
        "use_deterministic_algorithms": ("torch.use_deterministic_algorithms(True)", "torch.are_deterministic_algorithms_enabled()"),
        "backends.cudnn.deterministic": ("torch.backends.cudnn.deterministic = True", "torch.backends.cudnn.deterministic"),
        "cuda.set_sync_debug_mode": ("torch.cuda.set_sync_debug_mode('warn')", "torch.cuda.get_sync_debug_mode() == 1"),
        "cuda.set_per_process_memory_fraction": ("torch.cuda.set_per_process_memory_fraction(1e-9)", "out_of_memory()"),
        "cuda._sanitizer.enable_cuda_sanitizer": ("import phlox.cuda._sanitizer as s; s.enable_cuda_sanitizer()", "raced()"),
        "overrides.TorchFunctionMode": ("torch.overrides.BaseTorchFunctionMode().__enter__()", "torch._C._modes()"),
        "set_grad_enabled": ("torch.set_grad_enabled(False)", "not torch.is_grad_enabled()"),
        "forward_ad.enter_dual_level": ("f = torch.autograd.forward_ad; f.enter_dual_level(); dual = f.make_dual(torch.ones(1), torch.ones(1))",
                                        "'dual' in globals() and f.unpack_dual(dual * 2).tangent is not None"),
        "autograd.set_multithreading_enabled": ("torch.autograd.set_multithreading_enabled(False)", "not torch._C._is_multithreading_enabled()"),
        "inference_mode": ("mode = torch.inference_mode(); mode.__enter__()", "torch.is_inference_mode_enabled()"),
        "set_autocast_enabled": ("torch.set_autocast_enabled('cuda', True)", "torch.is_autocast_enabled('cuda')"),
        "set_default_device": ("torch.set_default_device('cuda:1')", "torch.ones(1).get_device() == 1"),
        "cuda.set_device": ("torch.cuda.set_device(1)", "torch.cuda.current_device() == 1"),
        "cuda.set_stream": ("torch.cuda.set_stream(torch.cuda.Stream())", "torch.cuda.current_stream() != torch.cuda.default_stream()"),
    }
    start = """
import threading
from phlox.utils.data import DataLoader, Dataset
def out_of_memory():
    torch.cuda.empty_cache()
    try: torch.empty(1 << 30, device="cuda")
    except torch.OutOfMemoryError: return True
    return False
def raced():
    x = torch.ones(9, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        try: x.zero_()
        except RuntimeError: return True
    return False
def there(): return bool(%s)
def in_thread():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(there()))
    thread.start(), thread.join()
    return seen[0]
class Replica(torch.nn.Module):
    def forward(self, x): return torch.full_like(x, there())
def in_replicas():
    with torch.device("cpu"): x = torch.zeros(2, 1)
    replicas = torch.nn.parallel.data_parallel(Replica(), x.cuda(0), device_ids=[0, 1])
    return bool(replicas[1])
class Items(Dataset):
    def __len__(self): return 1
    def __getitem__(self, i): return there()
def in_workers():
    return bool(list(DataLoader(Items(), num_workers=1, collate_fn=lambda batch: batch[0]))[0])
def in_engine():
    seen = []
    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x * 2
        @staticmethod
        def backward(ctx, g):
            seen.append((g.get_device(), there()))
            return g
    parts = [torch.ones(1, device=f"cuda:{i}", requires_grad=True) for i in range(2)]
    torch.autograd.backward([Look.apply(part).sum() for part in parts])
    return dict(seen)[1]
was = there()
"""

    def rows(self):
        lines = [line.split("|")[1:-1] for line in self.page.read_text().splitlines() if line.startswith("| ")]
        lines = [row for row in lines[1:] if len(row) == 5]  # the table of settings
        return {row[1].strip().strip("`"): [cell.strip() for cell in row] for row in lines if row[1].strip()}

    def check_in(self, name, code):
        change, there = self.settings[name]
        return run(self.start % there + f"{change}\nassert there() and not was\n{code}", PHLOX_SIM_DEVICES="2", PHLOX_SANITIZE="0").split()

    def test_table_is_complete(self):
        self.assertEqual(set(self.rows()), set(self.settings))

    def test_scope_of_each_setting(self):
        for name, row in self.rows().items():
            with self.subTest(name):
                self.assertEqual(self.check_in(name, "print(in_thread())"), [str(row[3] == "process")])

    def test_replicas_inherit_settings(self):
        for name, taken in (("set_default_dtype", True), ("set_grad_enabled", True), ("set_autocast_enabled", True), ("set_default_device", False), ("cuda.set_device", True)):
            with self.subTest(name):
                self.assertEqual(self.check_in(name, "print(in_replicas())"), [str(taken)])

    def test_engine_threads_inherit_settings(self):
        for name, taken in (("set_default_dtype", True), ("set_autocast_enabled", True), ("set_default_device", True), ("cuda.set_stream", False)):
            with self.subTest(name):
                self.assertEqual(self.check_in(name, "print(in_engine())"), [str(taken)])

    def test_workers_inherit_settings(self):
        for name, taken in (("set_default_dtype", True), ("set_grad_enabled", True), ("inference_mode", True), ("set_num_threads", False),
                            ("manual_seed", False)):
            with self.subTest(name):
                self.assertEqual(self.check_in(name, "print(in_workers())"), [str(taken)])

    def test_device_context_restores_unset_default(self):
        run("""
with torch.device("cuda:1"):
    with torch.device("cpu"): assert torch.ones(1).device.type == "cpu"
    assert torch.ones(1).get_device() == 1
torch.set_default_tensor_type("torch.cuda.FloatTensor")
assert torch.ones(1).is_cuda
torch.set_default_device("cpu")
assert torch.ones(1).device.type == "cpu"
torch.set_default_device(None)
assert torch.ones(1).is_cuda
""", PYTHONWARNINGS="ignore")


class GilRelease(unittest.TestCase):
    @simulated
    def test_other_threads_run_during_waits(self):
        self.assertEqual(run("""
import pickle, threading
x, host, pinned = torch.ones(8, device="cuda"), torch.ones(8), torch.ones(8).pin_memory()
def runs(wait):
    'Whether another thread runs meanwhile.'
    begun, done, turns = threading.Event(), threading.Event(), []
    y = x
    for _ in range(10): y = y * 1
    def turn():
        begun.set()
        while not done.wait(0.001): turns.append(1)
    thread = threading.Thread(target=turn)
    thread.start()
    begun.wait()
    before = len(turns)
    wait(y)
    after = len(turns)
    done.set()
    thread.join()
    return after - before > 5
waits = dict(cpu=lambda y: y.cpu(), to=lambda y: y.to("cpu", torch.float64), type=lambda y: y.type(torch.FloatTensor), copy=lambda y: host.copy_(y),
             pinned=lambda y: pinned.copy_(y), item=lambda y: y[0].item(), list=lambda y: y.tolist(), bool=lambda y: bool(y[0]),
             mask=lambda y: y[y > 0], assign=lambda y: host.__setitem__(slice(0, 3), y[:3]), nonzero=lambda y: y.nonzero(), equal=lambda y: torch.equal(y, y),
             sync=lambda y: torch.cuda.synchronize(), pickle=lambda y: pickle.dumps(y), text=lambda y: repr(y))
print([name for name, wait in waits.items() if not runs(wait)])
""", PHLOX_SIM_DELAY="30000"), "[]\n")


class SharedModule(unittest.TestCase):
    def test_module_is_used_by_several_threads(self):
        for device, check in ("cpu", "0"), ("cuda", "0"), ("cuda", "1"):
            with self.subTest(device):
                self.assertEqual(run("""
import sys, threading
from phlox import nn
sys.setswitchinterval(1e-5)
device, calls = "%s", []
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3))
        self.net[1].eval()
    def forward(self, x): return self.net(x)
net = Net().to(device)
net.register_forward_hook(lambda *call: calls.append(1))
x = torch.randn(5, 1, 6, 6, device=device)
net.net[4].p = 0.0
want = net(x)
torch.cuda.synchronize()
wrong = []
def work():
    for i in range(20):
        with torch.set_grad_enabled(i %% 2 == 0):
            y = net(x)
        if not torch.equal(y, want) or y.requires_grad != (i %% 2 == 0): wrong.append(i)
        if y.requires_grad: y.sum().backward()
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
once = torch.autograd.grad(net(x).sum(), list(net.parameters()))
close = [torch.allclose(p.grad, 40 * g, rtol=1e-3, atol=1e-3) for p, g in zip(net.parameters(), once)]
print(wrong, len(calls), all(close))
""" % device, PHLOX_SANITIZE=check), "[] 82 True\n")


if __name__ == "__main__":
    unittest.main()
