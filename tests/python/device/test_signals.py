# SPDX-License-Identifier: Apache-2.0
"""Signal handlers run while a call waits or computes; an exception from a handler ends the call. Each test runs a subprocess."""
import os
import unittest

from test_runtime import run, simulated

START = """
import ctypes, gc, os, random, signal, time
from multiprocessing import active_children
from phlox import nn
from phlox.utils.data import DataLoader, Dataset, TensorDataset
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
def late(call, after=0.2):
    'Seconds from the signal to its exception.'
    begin = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, after)
    try: call()
    except KeyboardInterrupt: return time.monotonic() - begin - after
    finally: signal.setitimer(signal.ITIMER_REAL, 0)
    raise SystemExit("it was not interrupted")
"""

# Interrupts training at random moments. Nothing may leak, and after its state is reloaded the next step must have the same result.
SWEEP = START + """
lib = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "libphlox.so.0"))
lib.px_live_objects.restype = ctypes.c_int64
random.seed(3)
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 26 * 26, 10)).to(device)
data = TensorDataset(torch.randn(96, 1, 28, 28), torch.randint(10, (96,)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
first = {k: v.clone() for k, v in net.state_dict().items()}
def step(x, target):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x.to(device)), target.to(device))
    loss.backward()
    optimizer.step()
    return loss.item()
def epoch():
    for batch in DataLoader(data, 32, num_workers=workers): step(*batch)
def reset():
    net.load_state_dict(first)
    optimizer.state.clear()
    optimizer.zero_grad()
def numbers():
    reset()
    losses = [step(*data[:32]) for _ in range(2)]
    return losses, [p.sum().item() for p in net.parameters()]
def held():
    gc.collect()
    torch.cuda.synchronize()
    own = [len(os.listdir(f"/proc/self/{what}")) for what in ("task", "fd")]
    return lib.px_live_objects(None), torch.cuda.memory_allocated(), own, active_children()
for _ in range(3):
    begin = time.monotonic()
    epoch()
    took = time.monotonic() - begin
def near(a, b):  # a GPU adds in any order
    exact = device == 'cpu' or torch.cuda._backend_name() == 'sim'
    return a == b if exact else all(abs(x - y) < 1e-3 for p, q in zip(a, b) for x, y in zip(p, q))
want = numbers()
before, hits = held(), 0
for i in range(moments):
    reset()
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, took))
        begin = time.monotonic()
        epoch()
        took = time.monotonic() - begin
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt: hits += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    got = numbers()
    assert near(got, want), (i, got, want)
    assert held() == before, (i, held(), before)
assert hits
print(f"{hits} of {moments} steps were interrupted on {device} with {workers} workers")
"""


class Signals(unittest.TestCase):
    @simulated
    def test_waits_are_interrupted_and_device_remains_usable(self):
        run(START + """
x = torch.ones(700, 700, device="cuda")
class busy: last = x
event = torch.cuda.Event()
waits = [torch.cuda.synchronize, lambda: torch.cuda.current_stream().synchronize(), lambda: busy.last.sum().item(), lambda: busy.last.cpu(),
         lambda: (event.record(), event.synchronize()), lambda: bool((busy.last > 0).all())]
for wait in waits:
    busy.last = x
    for _ in range(40): busy.last = busy.last @ x * 1e-3
    late(wait, 0.05)
    assert not torch.cuda.current_stream().query()  # it did not wait for the end
    torch.cuda.synchronize()
    assert (x[0] + 1).sum().item() == 1400
""", PHLOX_SIM_DELAY="100000")

    @simulated
    def test_first_launch_is_interrupted_during_module_load(self):
        run(START + """
x = torch.ones(700, 700, device="cuda")
(x @ x) * 1e-3
torch.cuda.synchronize()
def behind(call):
    y = x
    for _ in range(40): y = y @ x * 1e-3
    call(y)
for call in lambda y: y > 0, lambda y: y.nonzero(), lambda y: y.softmax(1), lambda y: y.double() > 0:
    late(lambda: behind(call), 0.05)
    assert not torch.cuda.current_stream().query()  # it did not wait for the end
    torch.cuda.synchronize()
    assert (x[0] + 1).sum().item() == 1400
    call(x)
""", PHLOX_SIM_DELAY="100000", PHLOX_SIM_LOADING="late")

    def test_long_cpu_ops_are_interrupted(self):
        run(START + """
a = torch.ones(1500, 1500)
def products():
    for _ in range(1000): a @ a
def sorts():
    for _ in range(1000): b.sort()
b = torch.randn(4_000_000)
for call in products, sorts, lambda: [b.sin().exp_() for _ in range(10000)]:
    late(call)
    assert (a[:2, :2] @ a[:2, :2]).tolist() == [[2, 2], [2, 2]]
""")

    def test_handler_may_call_ops_and_resume(self):
        self.assertEqual(run(START + """
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(torch.randn(3).numel() + torch.ones(2, device="cuda").sum().item()))
x = torch.ones(700, 700, device="cuda")
signal.setitimer(signal.ITIMER_REAL, 0.05)
while len(seen) < 1:
    for _ in range(10): y = x @ x
    torch.cuda.synchronize()
signal.setitimer(signal.ITIMER_REAL, 0.05)
while len(seen) < 2: z = torch.randn(3_000_000).sort().values
print(seen, y[0, 0].item(), bool((z[1:] >= z[:-1]).all()))
""", PHLOX_SIM_DELAY="20000"), "[5.0, 5.0] 700.0 True\n")

    def test_training_survives_random_interrupts(self):
        moments = int(os.environ.get("INTERRUPTS", "20"))
        for device, workers in ("cpu", 2), ("cuda", 0), ("cuda", 2):
            with self.subTest(device=device, workers=workers):
                print(run(f"device, workers, moments = '{device}', {workers}, {moments}\n" + SWEEP, timeout=60 + 3 * moments), end="")

    def test_loader_abandons_hanging_worker(self):
        run(START + """
class Hangs(Dataset):
    def __len__(self): return 4
    def __getitem__(self, i):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(100)
begin = time.monotonic()
try: next(iter(DataLoader(Hangs(), num_workers=2, timeout=1)))
except RuntimeError as error: assert "timed out after 1 seconds" in str(error)
assert time.monotonic() - begin < 5
assert late(lambda: next(iter(DataLoader(Hangs(), num_workers=2)))) < 3
assert not active_children()
""")

    def test_loader_ends_with_full_task_queue(self):
        self.assertEqual(run(START + """
class Slow(Dataset):
    def __len__(self): return 400000
    def __getitem__(self, i):
        if os.path.exists(name): time.sleep(100)
        return i
name = "/proc/self"  # the second task does not fit the pipe while the worker is at the first
for persist in False, True:
    loader = DataLoader(Slow(), batch_size=100000, num_workers=1, persistent_workers=persist)
    late(lambda: next(iter(loader)), 0.5)
    gc.collect()
    assert not active_children()
name = ""
print([len(b) for b in loader])
"""), "[100000, 100000, 100000, 100000]\n")

    def test_interrupt_while_sending_tasks_leaves_no_lock(self):
        self.assertEqual(run(START + """
from multiprocessing import synchronize
def enter(lock):  # the signal comes right after the lock was taken
    lock.acquire()
    signal.raise_signal(signal.SIGINT)
synchronize.Lock.__enter__ = enter
print([b.item() for b in DataLoader(TensorDataset(torch.arange(3)), num_workers=2, collate_fn=lambda b: b[0][0])])
"""), "[0, 1, 2]\n")

    def test_persistent_workers_survive_interrupt(self):
        self.assertEqual(run(START + """
class Slow(Dataset):
    def __len__(self): return 4
    def __getitem__(self, i):
        if os.path.exists(name): time.sleep(100)
        return i
name = "/proc/self"
loader = DataLoader(Slow(), num_workers=2, persistent_workers=True)
late(lambda: list(loader))
assert not active_children()
name = ""
print([b.item() for b in loader])
"""), "[0, 1, 2, 3]\n")

    def test_workers_ignore_sigint(self):
        self.assertEqual(run(START + """
class Number(Dataset):
    def __len__(self): return 4
    def __getitem__(self, i):
        os.kill(os.getpid(), signal.SIGINT)
        return i
print([b.item() for b in DataLoader(Number(), num_workers=2)])
"""), "[0, 1, 2, 3]\n")


