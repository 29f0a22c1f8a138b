# SPDX-License-Identifier: Apache-2.0
"""examples/mnist_cnn.py: the first losses equal those of PyTorch 1.13.1 on the CPU, both on the CPU and on a device."""
import os
import subprocess
import sys
import tempfile
import unittest

import phlox

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
DATA = os.environ.get("MNIST") or os.path.join(ROOT, "data", "mnist")
PLAIN = (2.31499791, 2.27061296, 2.24634933, 2.28739262)
WITH_DROPOUT = (2.35861659, 2.28127074, 2.31922770, 2.24932671)
ADADELTA = (2.31499791, 4.26864529, 2.35013652, 2.25360131)


@unittest.skipUnless(os.path.isdir(DATA), f"there is no {DATA}; MNIST=FOLDER names MNIST's four files")
class Losses(unittest.TestCase):
    def check(self, wanted, *options, **env):
        env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(phlox.__file__)), **env}
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "losses")
            command = [sys.executable, "-m", "phlox", os.path.join(ROOT, "examples", "mnist_cnn.py"), DATA, "--losses", file,
                       "--steps", str(len(wanted)), "--batch", "16", "--no-tf32", *options]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(file) as lines:
                losses = [float(line) for line in lines]
        self.assertEqual(len(losses), len(wanted))
        for loss, want in zip(losses, wanted):
            self.assertAlmostEqual(loss, want, 5)

    def test_cpu(self):
        self.check(WITH_DROPOUT, "--device", "cpu")

    def test_adadelta(self):
        self.check(ADADELTA, "--device", "cpu", "--no-dropout", "--optimizer", "adadelta")

    def test_device(self):
        env = {} if devices() else {"PHLOX_SIM_DEVICES": "1"}
        self.check(PLAIN, "--device", "cuda", "--no-dropout", **env)


def devices():
    return phlox.cuda.device_count()


if __name__ == "__main__":
    unittest.main()
