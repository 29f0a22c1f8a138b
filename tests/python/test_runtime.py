# SPDX-License-Identifier: Apache-2.0
"""What holds for a whole process: order between devices. Each test is a process of its own."""
import os
import subprocess
import sys
import unittest


def run(code, **environment):
    """Runs a program on simulated devices; returns what it has written."""
    env = {"PHLOX_SIM_DEVICES": "2", **os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", "import phlox as torch\n" + code], env=env, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise AssertionError(done.stderr[-3000:])
    return done.stdout


class Peers(unittest.TestCase):
    """Operands on two devices: as if every op were executed when it is called."""
    start = """
torch.cuda.enable_peer_access(0, 1)
torch.cuda.enable_peer_access(1, 0)
a, b = torch.ones(5000, device="cuda:0"), torch.ones(5000, device="cuda:1")
"""

    def test_a_change_after_the_call_does_not_reach_it(self):
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

    def test_gradients_arrive_where_the_leaves_are(self):
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


if __name__ == "__main__":
    unittest.main()
