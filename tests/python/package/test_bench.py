# SPDX-License-Identifier: Apache-2.0
"""bench/vs_torch.py, bench/models.py and the tools that read their rows: every row runs with small inputs on a simulated device, with correct results."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import convolutions
import measured
import models
import reserved
import vs_torch

# The relative error allowed for a row, by the dtype in its name; float32 otherwise.
EPSILON = {"bfloat16": 2**-8, "bf16": 2**-8, "float16": 2**-11}


def run(*flags, program=vs_torch, **env):
    command = [sys.executable, program.__file__, "--tiny", *flags]
    return subprocess.run(command, env={**os.environ, **env}, check=True, capture_output=True, text=True, timeout=300)


class Rows(unittest.TestCase):
    def test_all_rows_on_simulated_device(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "rows.json")
            names = [row[0] for row in vs_torch.ROWS]
            done = run("--out", out, *names, PHLOX_BACKENDS="sim", PHLOX_SIM_DEVICES="1")
            with open(out) as file:
                rows = json.load(file)["rows"]
        self.assertEqual([row["name"] for row in rows], names, done.stderr)
        for row, (name, _, _, more) in zip(rows, vs_torch.ROWS):
            self.assertGreater(row["phlox"], 0, name)
            self.assertIn(name, done.stdout)
            if "check" in more:
                self.assertLess(row["errors"]["phlox"], next((most for dtype, most in EPSILON.items() if dtype in name), 1e-6), name)

    def test_no_device(self):
        self.assertIn("no GPU", run(PHLOX_BACKENDS="sim", PHLOX_SIM_DEVICES="0").stdout)


class Convolutions(unittest.TestCase):
    def test_row_names_are_unique_and_rows_are_timed(self):
        names = [name for name, _ in convolutions.rows(convolutions.NETWORKS)]
        self.assertEqual(len(names), len(set(names)))
        small = [(1, (16, 8, 8, 3, 2, 1), backward) for backward in (False, True)]
        done = subprocess.run([sys.executable, convolutions.__file__, "--measure", "phlox"], input="".join(json.dumps(row) + "\n" for row in small), check=True, capture_output=True, text=True)
        self.assertEqual([float(line) > 0 for line in done.stdout.splitlines()], [True, True])


class Models(unittest.TestCase):
    def figures(self, device, devices, names):
        done = run("--worker", "phlox", "--device", device, *names, program=models, PHLOX_BACKENDS="sim", PHLOX_SIM_DEVICES=devices)
        return {name: found for line in done.stdout.splitlines() for name, found in json.loads(line).items() if name != "rates"}

    def test_all_rows_have_cpu_losses(self):
        own = {name for name, (_, more) in models.ROWS.items() if more.get("cpu")}
        sim, cpu = self.figures("cuda", "2", []), self.figures("cpu", "0", models.ROWS)
        self.assertEqual(list(sim), [name for name, (_, more) in models.ROWS.items() if name not in own and not more.get("aside")])
        self.assertEqual([name for name in cpu if name in own], [name for name in models.ROWS if name in own])
        for name in own: self.assertEqual(len(cpu[name].get("losses", [])), models.SHOWN, (name, cpu[name]))
        for name, found in sim.items():
            self.assertGreater(found.get("seconds", 0), 0, (name, found))
            self.assertEqual(found["losses"] == [], "graph" in name, name)
            if name in cpu: self.assertEqual(found["losses"], cpu[name]["losses"], name)
            if "step" in name or "GPT-2 124M, tf32" in name: self.assertLess(found["losses"][-1:], found["losses"][:1] or [1], name)

    def test_measured_report_on_simulated_devices(self):
        with tempfile.TemporaryDirectory() as folder:
            out, names = os.path.join(folder, "measured.json"), ["GPT-2 124M, bfloat16, 16x1024", "DDP, MLP-4096, tf32, b256"]
            run("--out", out, "--seconds", "0", names[0], program=measured, PHLOX_BACKENDS="sim")
            with open(out) as file: self.assertEqual(list(json.load(file)["rows"]), [measured.HOST, names[0]])
            lines = run("--read", out, *names, program=measured).stdout.splitlines()
        gpt2, ddp = (line.split() for line in lines[-2:])
        self.assertAlmostEqual(float(gpt2[-5]) / float(gpt2[-4]), 1, delta=0.01)
        self.assertEqual(ddp[-5:-3] + ddp[-1:], ["-", ddp[-2], "-"])
        self.assertGreater(float(ddp[-2]), 0)

    def test_reserved_memory_report(self):
        lines = run(reserved.WANTED[4], program=reserved, PHLOX_BACKENDS="sim").stdout.splitlines()
        for line, setting in zip(lines[-2:], ("default", "expandable_segments:True")):
            self.assertEqual(line[len(reserved.WANTED[4]):].split(), [setting, "0", "2", *line.split()[-3:-1], "-"])


class AllocatorComparison(unittest.TestCase):
    def test_fewer_failed_requests_than_pytorchs_rules(self):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "near.py"), "1", "400"], env={**os.environ, "PHLOX_BACKENDS": "sim"},
                              check=True, capture_output=True, text=True, timeout=300)
        for line in done.stdout.splitlines()[1:5]:
            own, model = line.split()[-2:]
            self.assertLess(int(own), int(model), done.stdout)


if __name__ == "__main__":
    unittest.main()
