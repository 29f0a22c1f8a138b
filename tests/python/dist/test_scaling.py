# SPDX-License-Identifier: Apache-2.0
"""docs/learn/several-devices.md: its programs run with its commands and all print the loss of one device; its formulas match the simulator."""
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import unittest

os.environ.update(PHLOX_BACKENDS="sim", PHLOX_SIM_DEVICES="8", PHLOX_SIM_MEMORY="64M", PHLOX_SIM_MODE="schedule", PHLOX_THREADS="1",
                  PHLOX_SIM_LINK_BANDWIDTH="1G", PHLOX_SIM_LINK_LATENCY="1000")
import phlox as torch
import phlox.distributed as dist

HOME = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))
with open(os.path.join(os.path.dirname(HOME), "docs", "learn", "several-devices.md")) as file:
    BLOCKS = re.findall(r"```(\w+)\n(.*?)```", file.read(), re.S)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def time_all_reduce(rank, mib):
    dist.init_process_group("nccl")
    x = torch.zeros(mib << 18, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.all_reduce(x)  # synchronizes the virtual clocks of the devices
    begin.record()
    for _ in range(3):
        dist.all_reduce(x)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 3


class Scaling(unittest.TestCase):
    def environment(self):
        own = {k: v for k, v in os.environ.items() if not k.startswith("PHLOX_SIM")}
        return {**own, "PYTHONPATH": HOME}

    @unittest.skipUnless(dist.is_available(), "the gloo backend is not built")
    def test_programs_of_page_match_one_device(self):
        with tempfile.TemporaryDirectory() as folder:
            for kind, text in BLOCKS:
                if kind == "python":
                    with open(os.path.join(folder, text.split()[1]), "w") as file:
                        file.write(text)
            commands = [text for kind, text in BLOCKS if kind == "sh"]
            self.assertEqual(len(commands), 5)
            output = []
            for command in commands[:4]:
                done = subprocess.run(command.replace("python3", shlex.quote(sys.executable)), shell=True, cwd=folder, env=self.environment(),
                                      capture_output=True, text=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stderr)
                output.append(done.stdout)
            port = str(free_port())
            hosts = [line.partition("#")[0].replace("29400", port) for line in commands[4].splitlines() if "run" in line]
            running = [subprocess.Popen(line.replace("python3", shlex.quote(sys.executable)), shell=True, cwd=folder, stdout=subprocess.PIPE, text=True,
                                        env={**self.environment(), "PHLOX_SIM_DEVICES": "2", "PHLOX_STORE_SECRET": "the job's"}) for line in hosts]
            output.append("".join(one.communicate(timeout=300)[0] for one in running))
            self.assertRegex(output[0], r"^\d\.\d{3}\n$")
            self.assertEqual(output, [output[0]] * 5)

    def test_all_reduce_time_matches_formula(self):
        mib = 4
        for ranks in (2, 4, 8):
            times = dist.simulate(time_all_reduce, (mib,), ranks)
            wanted = (2 * (ranks - 1) / ranks * (mib << 20) / (1 << 30) + 2 * (ranks - 1) * 1e-6) * 1e3
            for ms in times:
                self.assertAlmostEqual(ms / wanted, 1, delta=0.01)


if __name__ == "__main__":
    unittest.main()
