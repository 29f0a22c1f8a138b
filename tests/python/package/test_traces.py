# SPDX-License-Identifier: Apache-2.0
"""bench/record.py, bench/replay.py and bench/rules.py: recorded traces, and the model of PyTorch's allocator that replays them."""
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import record
import rules

MiB = 1 << 20
PROGRAM = """
import torch
give = lambda n: torch.empty(n << 20, dtype=torch.uint8, device="cuda")
kept = [give(n) for n in (3, 7, 30, 5)]
with torch.cuda.stream(torch.cuda.Stream()):
    kept.append(give(40))
del kept[1]
kept.append(give(2))
print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
"""


def trace(*sizes):
    """A trace of sizes in MiB; a negative number -n frees the n-th allocation."""
    return [(i, int(size * MiB), 0) if size > 0 else (int(-size) - 1, None, None) for i, size in enumerate(sizes)]


class Rules(unittest.TestCase):
    def reserved(self, *sizes, limit=float("inf")):
        allocator = rules.run(trace(*sizes), limit)
        return allocator and allocator.reserved / MiB

    def test_segment_sizes(self):
        for size, segment in (0.0001, 2), (1, 2), (1.5, 20), (9, 20), (10, 10), (11, 12):
            self.assertEqual(self.reserved(size), segment, size)

    def test_small_and_large_pools(self):
        self.assertEqual(self.reserved(0.5, 0.5, 1, 5, 5, 9), 22)
        self.assertEqual(rules.run(trace(9.75, 9.5)).live, 20 * MiB)  # a remainder below 1 MiB is not split off

    def test_free_neighbours_merge(self):
        self.assertEqual(self.reserved(5, 5, 5, -1, -3, -2, 15), 20)
        self.assertEqual(self.reserved(5, 5, 5, -1, -3, 9), 20)  # merges the last block with the remainder
        self.assertEqual(self.reserved(5, 5, 5, 5, -1, -3, 9), 40)

    def test_blocks_belong_to_streams(self):
        events = [(0, 5 * MiB, 0), (0, None, None), (1, 5 * MiB, 1)]
        self.assertEqual(rules.run(events).reserved, 40 * MiB)

    def test_free_segments_are_released_before_oom(self):
        self.assertEqual(self.reserved(30, -1, 40, limit=50 * MiB), 40)
        self.assertIsNone(self.reserved(30, 5, -1, 40, limit=50 * MiB))


class Traces(unittest.TestCase):
    def test_preexisting_blocks_are_allocated_first(self):
        event = lambda action, address, size: {"action": action, "addr": address, "size": size, "stream": 7, "frames": []}
        block = lambda address, size: {"address": address, "size": size, "requested_size": size - 1, "state": "active_allocated"}
        segments = [{"device": 0, "blocks": [block(0, 10), block(64, 20)]}, {"device": 1, "blocks": [block(0, 9)]}]
        trace = [event("alloc", 64, 20), event("free_requested", 32, 5), event("segment_alloc", 0, 99), event("alloc", 32, 6)]
        events = record.events_of({"segments": segments, "device_traces": [trace]}, 0)
        self.assertEqual(events, [(0, 9, 0), (1, 5, 0), (2, 20, 7), (1, None, None), (3, 6, 7)])

    def test_replay_reserves_same_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program")
            run = lambda *command: subprocess.run([sys.executable, *command], env={**os.environ, "PHLOX_SIM_DEVICES": "1", "PHLOX_BACKENDS": "sim"}, cwd=ROOT,
                                                  capture_output=True, text=True, check=True).stdout
            live, reserved = (int(n) / MiB for n in run("bench/record.py", path, "-c", PROGRAM).split())
            with open(path, "rb") as file:
                self.assertEqual(len(pickle.load(file)["device_traces"]), 1)
            output = run("bench/replay.py", "--smallest", path)
        self.assertRegex(output, rf"^program +live +{live:.2f} MiB, reserved +{reserved:.2f} MiB, waste ")
        self.assertRegex(output, r"; by PyTorch's rules waste +5[.]6%, smallest device 1[.]06")


if __name__ == "__main__":
    unittest.main()
