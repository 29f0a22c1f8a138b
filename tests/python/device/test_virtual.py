# SPDX-License-Identifier: Apache-2.0
"""Virtual time of simulated devices, profiles in virtual time, and python3 -m phlox.profile."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

os.environ.update(PHLOX_BACKENDS="sim", PHLOX_SIM_DEVICES="2", PHLOX_SIM_MODE="schedule")

import phlox as torch

TRAIN = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)).to({device!r})
opt = torch.optim.SGD(net.parameters(), 0.1)
x, y = torch.rand(8, 1, 8, 8), torch.randint(0, 10, (8,))
for i in range(3):
    with torch.profiler.record_function(f"ProfilerStep#{{i}}"):
        opt.zero_grad()
        nn.functional.cross_entropy(net(x.to({device!r})), y.to({device!r})).backward()
        opt.step()
if {device!r} == "cuda":
    torch.cuda.synchronize()
    print("time", torch.cuda.virtual_time(), torch.cuda.virtual_time(0))
"""


def run(*arguments, **env):
    done = subprocess.run([sys.executable, *arguments], env={**os.environ, **env}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


class VirtualTime(unittest.TestCase):
    def test_follows_work(self):
        x = torch.zeros(2048, 2048, device="cuda", dtype=torch.bfloat16)
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before = torch.cuda.virtual_time()
        start.record()
        y = x @ x
        end.record()
        took = torch.cuda.virtual_time(torch.cuda.current_stream()) - before
        self.assertEqual(took, 2000 + 2 * 2048**3 // 550_000)  # rates of the H200 model: minimum kernel time, and bfloat16
        self.assertEqual(torch.cuda.virtual_time(), torch.cuda.virtual_time("cuda:0"))
        self.assertAlmostEqual(start.elapsed_time(end), took / 1e6, places=5)
        for wrong, error in (("cpu", ValueError), (3.5, TypeError)):
            with self.assertRaises(error):
                torch.cuda.virtual_time(wrong)

    def test_float32_uses_tf32_rate_if_allowed(self):
        x, times = torch.zeros(1024, 1024, device="cuda"), []
        for torch.backends.cuda.matmul.allow_tf32 in (True, False):
            torch.cuda.synchronize()
            before = torch.cuda.virtual_time()
            y = x @ x
            times.append(torch.cuda.virtual_time(0) - before)
        self.assertEqual(times, [2000 + 2 * 1024**3 // 366_000, 2000 + 2 * 1024**3 // 50_000])

    def test_independent_of_seed(self):
        times = {run("-m", "phlox", "-c", TRAIN.format(device="cuda"), PHLOX_SIM_SEED=seed) for seed in "017"}
        self.assertEqual(len(times), 1)
        self.assertRegex(times.pop(), r"^time \d+ \d+\n$")

    def test_threads_mode_has_no_virtual_time(self):
        self.assertIn("the time of these devices is real", run("-c", """
import phlox
try: phlox.cuda.virtual_time()
except RuntimeError as error: print(error)""", PHLOX_SIM_MODE="threads"))

    def test_profiles_use_virtual_time(self):
        x = torch.zeros(1024, 1024, device="cuda", dtype=torch.float16)
        with torch.profiler.profile(with_flops=True) as prof:
            y = x @ x
            torch.cuda.synchronize()
        work = next(e for e in prof.events() if e.name == "mm")
        self.assertAlmostEqual(work.time_range.elapsed_us(), 2 + 2 * 1024**3 // 550_000 / 1000, places=6)
        self.assertEqual(max(e.flops for e in prof.events()), 2 * 1024**3)
        self.assertIn("Total GFLOPs", prof.key_averages().table())


class Flops(unittest.TestCase):
    """FLOPs by PyTorch's formulas, computed from the shapes of the call."""

    def flops(self, call):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_flops=True) as prof:
            call()
        return sum(e.flops for e in prof.events())

    def test_matmul_and_convolution(self):
        a, b, c = torch.ones(4, 5), torch.ones(5, 6), torch.ones(3, 4, 5)
        image, kernel = torch.ones(2, 4, 8, 8), torch.ones(6, 2, 3, 3)
        conv = torch.nn.functional.conv2d
        for call, count in ((lambda: a @ b, 2 * 4 * 5 * 6), (lambda: torch.addmm(torch.ones(6), a, b), 240),
                            (lambda: torch.bmm(c, c.mT), 2 * 3 * 4 * 5 * 4), (lambda: a * a, 20), (lambda: a + 1, 20), (lambda: a.exp(), 0),
                            (lambda: torch.nn.functional.linear(a, b.t()), 240), (lambda: a @ torch.ones(5), 40),
                            (lambda: conv(image, kernel, padding=1, groups=2), 2 * 2 * 6 * 8 * 8 * 2 * 9)):
            self.assertEqual(self.flops(call), count)

    def test_backward_is_counted(self):
        image, kernel = torch.ones(2, 4, 8, 8, requires_grad=True), torch.ones(6, 4, 3, 3, requires_grad=True)
        out = torch.nn.functional.conv2d(image, kernel)
        forward = 2 * 2 * 6 * 6 * 6 * 4 * 9
        self.assertEqual(self.flops(lambda: out.backward(torch.ones_like(out))), 2 * forward)

    def test_with_flops_is_required(self):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
            torch.ones(4, 4) @ torch.ones(4, 4)
        self.assertEqual({e.flops for e in prof.events()}, {0})
        self.assertNotIn("FLOPs", prof.key_averages().table())


class Command(unittest.TestCase):
    """python3 -m phlox.profile."""

    def profile(self, device):
        with tempfile.TemporaryDirectory() as folder:
            picture, trace, program = (os.path.join(folder, name) for name in ("out.svg", "trace.json", "train.py"))
            with open(program, "w") as file:
                file.write(TRAIN.format(device=device))
            out = run("-m", "phlox.profile", "-o", picture, "--trace", trace, "--rows", "5", program)
            with open(trace) as file:
                events = json.load(file)["traceEvents"]
            return out, tree.parse(picture).getroot(), events, os.path.getsize(picture)

    def test_program_on_devices(self):
        out, picture, events, size = self.profile("cuda")
        self.assertIn("Self CUDA time total", out)
        self.assertRegex(out, r"ProfilerStep#2 +\d+\.\d+\n")
        self.assertRegex(out, r"cuda:0 +(\d+\.\d+ +){6}(\d+\.\d+ ?){4}\n")
        texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("cuda:0 stream 0", texts)
        self.assertTrue(any(re.fullmatch(r"thread \d+", text or "") for text in texts))
        self.assertLessEqual({"kernel", "gpu_memcpy"}, {e.get("cat") for e in events})
        self.assertLess(size, 1 << 20)
        steps = re.findall(r"ProfilerStep#\d +(\d+\.\d+)", out)
        self.assertEqual(steps[1], steps[2])  # virtual time is the same for every step

    def test_program_on_cpu(self):
        out, picture, events, _ = self.profile("cpu")
        self.assertIn("Self CPU time total", out)
        self.assertNotIn("cuda:0 ", out)
        self.assertTrue(any(e["name"] == "aten::linear" for e in events))

    def test_missing_program(self):
        done = subprocess.run([sys.executable, "-m", "phlox.profile"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a program is needed", done.stderr)


if __name__ == "__main__":
    unittest.main()
