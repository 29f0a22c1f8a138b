# SPDX-License-Identifier: Apache-2.0
"""bench/vs_torch.py: all rows run, with small inputs, on a simulated device, and their results are right."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import vs_torch

# The relative error that a result may have, by the dtype that a row's name tells; of others it is that of float32.
EPSILON = {"bfloat16": 2**-8, "float16": 2**-11}


def run(*flags, **env):
    command = [sys.executable, vs_torch.__file__, "--tiny", *flags]
    return subprocess.run(command, env={**os.environ, **env}, check=True, capture_output=True, text=True, timeout=300)


class Rows(unittest.TestCase):
    def test_all_rows_on_a_simulated_device(self):
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

    def test_without_a_device_it_says_so(self):
        self.assertIn("no GPU", run(PHLOX_BACKENDS="sim", PHLOX_SIM_DEVICES="0").stdout)


if __name__ == "__main__":
    unittest.main()
