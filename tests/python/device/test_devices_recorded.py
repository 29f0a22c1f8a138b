# SPDX-License-Identifier: Apache-2.0
"""Behaviour of devices measured with PyTorch on an H200 (tests/parity/devices.txt): random streams, conversions, and what a capture forbids."""
import json
import os
import sys
import unittest
import warnings

import phlox as torch

PARITY = os.path.join(os.path.dirname(__file__), "..", "..", "parity")
sys.path.insert(0, PARITY)
import devices

# PyTorch sums the weights in 16 bits.
NARROW = ("multinomial(z + 1, 50, True) of 700 bfloat16",)


@unittest.skipUnless(torch.cuda.is_available(), "needs a device")
class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(os.path.join(PARITY, "devices.txt")) as file:
            cls.want = {key: json.loads(value) for key, value in (line.rstrip("\n").split(" -> ") for line in file)}
        with warnings.catch_warnings():
            cls.have = dict(devices.cases(torch))

    def differing(self, kind, equal):
        return [f"{key}: {self.have[key]}, not {self.want[key]}" for key in self.want if kind(key) and not equal(key, self.have[key], self.want[key])]

    def test_the_cases_are_the_recorded_ones(self):
        self.assertEqual(list(self.have), list(self.want))

    def test_random_streams(self):
        def equal(key, have, want):
            near = 2e-2 if "float16" in key else 1e-4
            return have[0] == want[0] and (key in NARROW or all(abs(a - b) <= near * max(1, abs(b)) for a, b in zip(have, want)))
        self.assertEqual(self.differing(lambda key: type(self.want[key]) is list and (" of " in key or key.startswith("attention")), equal), [])

    def test_numbers_out_of_range_convert_as_on_gpus(self):
        self.assertEqual(self.differing(lambda key: " to " in key, lambda key, have, want: have == want), [])

    def test_captures_forbid_the_same_calls_with_the_same_texts(self):
        self.assertEqual(self.differing(lambda key: key.startswith("captured"), lambda key, have, want: have == want), [])

    def test_shared_pools_are_numbered_on_their_own(self):
        (zero, first), (_, second) = self.have["pool handles"]
        self.assertEqual((zero, second), (0, first + 1))
