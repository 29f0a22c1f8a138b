# SPDX-License-Identifier: Apache-2.0
"""Results of the expressions in arrange_cases.txt on the CPU and on a device: rearrangement, sets, products, statistics, windows, bits, and errors.
Each line has an expression and its result, which is also checked against PyTorch if it is installed."""
import json
import math
import os
import unittest
import warnings

import phlox
import peer
from peer import newest as torch

HERE = os.path.dirname(os.path.abspath(__file__))
DEVICES = ["cpu"] + ["cuda"] * (phlox.cuda.device_count() > 0)


def plain(value):
    """A result as JSON: lists, strings, and numbers rounded to six digits."""
    if isinstance(value, (phlox.Tensor, torch.Tensor if torch else phlox.Tensor)):
        return [str(value.dtype).split(".")[1], list(value.shape), plain(value.tolist())]
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) and abs(value) > 1e-6 else str(value) if not math.isfinite(value) else 0.0
    return value if isinstance(value, (bool, int, str)) else str(value)


def outcome(library, expression, device):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = library.arange(6.0, device=device)
        space = {"torch": library, "F": library.nn.functional, "x": x, "m": x.reshape(2, 3), "i": x.long(), "s": library.tensor(3.0, device=device),
                 "t": lambda data, **more: library.tensor(data, device=device, **more), "nan": math.nan, "inf": math.inf, "device": device}
        try:
            return plain(eval(expression, space))
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def cases():
    with open(os.path.join(HERE, "arrange_cases.txt")) as file:
        lines = [line.split(" => ") for line in file if " => " in line]
    return [(expression, json.loads(wanted)) for expression, wanted in lines]


class Cases(unittest.TestCase):
    def test_results(self):
        for device in DEVICES:
            for expression, wanted in cases():
                with self.subTest(expression=expression, device=device):
                    self.assertEqual(outcome(phlox, expression, device), wanted)

    @unittest.skipIf(torch is None, peer.NOT_NEWEST)
    def test_results_match_pytorch(self):
        for expression, wanted in cases():
            with self.subTest(expression=expression):
                self.assertEqual(outcome(torch, expression, "cpu"), wanted)


class Behaviour(unittest.TestCase):
    def test_composite_in_place_ops_are_recorded(self):
        for device in DEVICES:
            x = phlox.ones(3, device=device, requires_grad=True)
            y = x * 1
            z = y.ldexp_(phlox.tensor([1, 2, 3], device=device))
            self.assertIs(z, y)
            self.assertEqual(y.tolist(), [2, 4, 8])
            y.sum().backward()
            self.assertEqual(x.grad.tolist(), [2, 4, 8])

    def test_atleast_returns_same_tensor(self):
        x = phlox.ones(2, 2, 2)
        for widen in phlox.atleast_1d, phlox.atleast_2d, phlox.atleast_3d:
            self.assertIs(widen(x), x)

    def test_split_results_are_views(self):
        for device in DEVICES:
            x = phlox.zeros(2, 4, device=device)
            x.hsplit(2)[1].fill_(1)
            phlox.tensor_split(x, [1], dim=1)[0].fill_(2)
            self.assertEqual(x.tolist(), [[2, 0, 1, 1]] * 2)

    def test_cdist_gradients_agree_between_modes(self):
        for device in DEVICES:
            grads = []
            for mode in "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist":
                a = phlox.linspace(-1, 1, 90, dtype=phlox.float64, device=device).reshape(30, 3).sin().requires_grad_()
                b = phlox.linspace(2, 3, 60, dtype=phlox.float64, device=device).reshape(20, 3).requires_grad_()
                phlox.cdist(a, b, compute_mode=mode).square().sum().backward()
                grads.append((a.grad, b.grad))
            for one, other in zip(*grads):
                self.assertTrue(phlox.allclose(one, other))

    def test_histc_matches_linspace_edges(self):
        for device in DEVICES:
            x = phlox.linspace(0, 1, 1001, device=device)
            counts = phlox.histc(x, 7, 0, 1)
            edges = phlox.linspace(0, 1, 8).tolist()
            wanted = [sum(low <= v < high or (k == 6 and v == high) for v in x.tolist()) for k, (low, high) in enumerate(zip(edges, edges[1:]))]
            self.assertEqual(counts.tolist(), wanted)

    def test_mode_of_long_rows(self):
        generator = phlox.Generator().manual_seed(3)
        x = phlox.randint(0, 9, (4, 300), generator=generator)
        for device in DEVICES:
            values, positions = x.to(device).mode(1)
            for row, value, position in zip(x.tolist(), values.tolist(), positions.tolist()):
                counts = [row.count(v) for v in range(9)]
                self.assertEqual(value, counts.index(max(counts)))
                self.assertEqual(position, max(k for k, v in enumerate(row) if v == value))


if __name__ == "__main__":
    unittest.main()
