# SPDX-License-Identifier: Apache-2.0
"""Element-wise ops, reductions and losses at special values: zeros of both signs, the smallest and largest numbers, infinities, NaN, limits of integers
and steps with fractions. Results, first and second derivatives are compared with PyTorch's (tests/parity/extremes.py). Each difference has a reason in
tests/parity/extremes.txt, which states the number of differing elements for each function and order."""
import base64
import collections
import json
import lzma
import math
import os
import re
import sys
import unittest
import warnings

import phlox as torch

PARITY = os.path.join(os.path.dirname(__file__), "..", "..", "parity")
sys.path.insert(0, PARITY)
import extremes
import replay

ORDERS = "result", "first derivative", "second derivative"
# Smallest normal numbers. Errors of results are relative down to these, errors of derivatives down to 1.
NORMAL = {"float32": 2.0**-126, "float64": 2.0**-1022, "float16": 2.0**-14, "bfloat16": 2.0**-126}


def near(a, b, order, dtype):
    if a != a or b != b:
        return a != a and b != b
    if a == b:
        return order > 0 or a != 0 or math.copysign(1, a) == math.copysign(1, b)
    if math.isinf(a) or math.isinf(b):
        return False
    return abs(a - b) <= 4**order * replay.TOLERANCE[dtype] * max(abs(a), abs(b), 1 if order else NORMAL[dtype])


def same_parts(a, b, order, dtype):
    """Whether two complex numbers are equal. The signs of zeros count for nothing, nor which part of an infinite number is infinite."""
    kinds = ["infinite" if any(map(math.isinf, z)) else "NaN" if any(x != x for x in z) else "" for z in (a, b)]
    size = max(map(abs, a))
    return kinds[0] == kinds[1] and (kinds[0] or all(x == y or abs(x - y) <= 4**order * replay.TOLERANCE[dtype] * max(size, 1 if order else NORMAL[dtype])
                                                     for x, y in zip(a, b)))


def unequal(dtype, mine, other, order):
    """The number of different elements of two tensors, or 1 if their numbers of elements differ."""
    part = extremes.COMPLEX.get(dtype, dtype)
    a, b = (replay.numbers(dtype, base64.b64decode(x)) for x in (mine, other))
    if len(a) != len(b):
        return 1
    if dtype in extremes.COMPLEX:
        return sum(not same_parts(x, y, order, part) for x, y in zip(zip(a[::2], a[1::2]), zip(b[::2], b[1::2])))
    return sum(not (near(x, y, order, dtype) if dtype in NORMAL else x == y) for x, y in zip(a, b))


def differences(have, want, order):
    """The number of different elements of two outcomes; None if they are equal."""
    if isinstance(have, str) or isinstance(want, str) or len(have) != len(want):
        return int(have != want)
    return sum(unequal(dtype, mine, other, order) if dtype == other_dtype else 1 for (dtype, mine), (other_dtype, other) in zip(have, want))


def reasons():
    """Maps (function, order) to the number of differences."""
    found = {}
    with open(os.path.join(PARITY, "extremes.txt")) as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                count, order, name = re.match(r"(\d+) (\d) (.*)", line).groups()
                found[name, int(order)] = int(count)
    return found


def compare():
    """Returns the number of compared elements, and the differences for each function and order."""
    with lzma.open(os.path.join(PARITY, "extremes.xz"), "rt") as file:
        table = json.load(file)["table"]
    total, found = 0, collections.Counter()
    for key, run in extremes.cases(torch):
        have, want = run(), table.pop(key)
        name = key.split("|")[0]
        name = name.split("(")[0] if name.startswith(("arange", "linspace")) else name
        name += " of complex numbers" if "|complex" in key else ""
        for order in range(max(len(have), len(want))):
            # A derivative that is zero everywhere may end the graph.
            a, b = (x[order] if order < len(x) else [] for x in (have, want))
            total += sum(len(replay.numbers(d, base64.b64decode(x))) // (1 + (d in extremes.COMPLEX)) for d, x in b) if isinstance(b, list) else 1
            found[name, order] += differences(a, b, order)
    assert not table, f"not compared: {list(table)[:5]}"
    return total, found


class SpecialValues(unittest.TestCase):
    def test_results_and_derivatives_match_pytorch(self):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.addCleanup(torch.set_num_threads, threads)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            total, found = compare()
        self.assertGreater(total, 800_000)
        known = reasons()
        for (name, order), count in found.items():
            with self.subTest(function=name, order=ORDERS[order]):
                self.assertLessEqual(count, known.get((name, order), 0))
        self.assertEqual([key for key in known if not found[key]], [], "these no longer differ")
        if os.environ.get("PHLOX_EXTREMES"):
            print("\n" + "\n".join(f"{count} {order} {name}" for (name, order), count in sorted(found.items()) if count))
            print(total, "elements,", sum(found.values()), "differ")


if __name__ == "__main__":
    unittest.main()
