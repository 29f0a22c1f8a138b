# SPDX-License-Identifier: Apache-2.0
"""torch.use_deterministic_algorithms: settings and errors, filled memory, and indexed sums in a fixed order."""
import unittest

import phlox as torch
from phlox.utils import deterministic

F = torch.nn.functional


def settings():
    return (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.get_deterministic_debug_mode())


class Switch(unittest.TestCase):
    def setUp(self):
        self.addCleanup(torch.use_deterministic_algorithms, False)

    def test_states(self):
        self.assertEqual(settings(), (False, False, 0))
        torch.use_deterministic_algorithms(True)
        self.assertEqual(settings(), (True, False, 2))
        torch.use_deterministic_algorithms(True, warn_only=True)
        self.assertEqual(settings(), (True, True, 1))
        torch.use_deterministic_algorithms(False, warn_only=True)
        self.assertEqual(settings(), (False, True, 0))

    def test_debug_modes(self):
        for given, wanted in ((1, 1), ("error", 2), (0, 0), ("warn", 1), (2, 2), ("default", 0)):
            torch.set_deterministic_debug_mode(given)
            self.assertEqual(torch.get_deterministic_debug_mode(), wanted)
        for given, kind, text in ((3, RuntimeError, "^invalid value of debug_mode, expected 0, 1, or 2, but got 3$"),
                                  (10**30, RuntimeError, "but got 1000000000000000000000000000000$"),
                                  ("x", RuntimeError, "expected one of `default`, `warn`, `error`, but got x$"),
                                  (1.5, TypeError, "^debug_mode must be str or int, but got <class 'float'>$")):
            with self.assertRaisesRegex(kind, text):
                torch.set_deterministic_debug_mode(given)

    def test_uninitialized_memory_is_filled(self):
        torch.use_deterministic_algorithms(True)
        for device in ("cpu", "cuda")[:1 + torch.cuda.is_available()]:
            for dtype in (torch.float16, torch.float64):
                self.assertTrue(torch.empty(3, 2, dtype=dtype, device=device).isnan().all())
            for dtype, value in ((torch.uint8, 255), (torch.int8, 127), (torch.int64, 2**63 - 1), (torch.bool, True)):
                self.assertEqual(torch.empty(2, dtype=dtype, device=device).tolist(), [value] * 2)
            x = torch.ones(2, 2, device=device)
            for made in (torch.empty_like(x), x.new_empty(3), x.new(3), x.new_empty_strided((2, 2), (1, 2)), torch.empty_permuted((2, 2), (1, 0), device=device),
                         torch.empty_strided((2, 2), (1, 2), device=device)):
                self.assertTrue(made.isnan().all())
        self.assertTrue(torch.empty(2, requires_grad=True).requires_grad)
        self.assertEqual(torch.empty(0).tolist(), [])

    def test_filling_can_be_disabled(self):
        self.addCleanup(setattr, deterministic, "fill_uninitialized_memory", True)
        self.assertIs(deterministic.fill_uninitialized_memory, True)
        torch.use_deterministic_algorithms(True)
        deterministic.fill_uninitialized_memory = False
        self.assertIs(deterministic.fill_uninitialized_memory, False)
        torch.ones(64)  # its memory is reused by the next tensor
        self.assertFalse(torch.empty(64).isnan().any())
        with self.assertRaisesRegex(RuntimeError, "expects a bool"):
            deterministic.fill_uninitialized_memory = 1


def scattered(n, size, device):
    torch.manual_seed(5)
    return torch.randint(size, (n,)).to(device), torch.randn(n, 33).to(device) * 1000


def gradient(device, forward, *shape):
    torch.manual_seed(7)
    x = torch.randn(*shape).to(device).requires_grad_()
    y = forward(x)
    y.backward(torch.linspace(-100, 100, y.numel()).reshape(y.shape).to(device))
    return x.grad


# Ops that accumulate by index: maps a device to the result.
SUMS = {
    "index_add": lambda d: torch.zeros(7, 33, device=d).index_add(0, *scattered(900, 7, d)),
    "index_add of the last dimension": lambda d: torch.zeros(33, 7, device=d).index_add(1, scattered(900, 7, d)[0], scattered(900, 7, d)[1].t()),
    "scatter_add": lambda d: torch.zeros(7, device=d).scatter_add(0, scattered(900, 7, d)[0], scattered(900, 7, d)[1][:, 0].contiguous()),
    "scatter_add of bfloat16": lambda d: torch.zeros(7, device=d, dtype=torch.bfloat16).scatter_add(
        0, scattered(90, 7, d)[0], scattered(90, 7, d)[1][:, 0].bfloat16()),
    "index_put": lambda d: torch.zeros(7, 5, 33, device=d).index_put_(
        (scattered(900, 7, d)[0] - 7, scattered(900, 5, d)[0]), scattered(900, 7, d)[1], accumulate=True),
    "index_put of doubles": lambda d: torch.zeros(7, device=d, dtype=torch.double).index_put_(
        (scattered(900, 7, d)[0],), scattered(900, 7, d)[1][:, 0].double(), accumulate=True),
    "embedding": lambda d: gradient(d, lambda w: F.embedding(scattered(900, 7, d)[0], w), 7, 64),
    "gather": lambda d: gradient(d, lambda x: x.gather(1, torch.arange(600, device=d).view(3, 200) % 5), 3, 5),
    "indexing": lambda d: gradient(d, lambda x: x[scattered(900, 7, d)[0]], 7, 3),
    "running maximum": lambda d: gradient(d, lambda x: x.cummax(1)[0], 4, 900),
}


class IndexedSums(unittest.TestCase):
    def setUp(self):
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)

    @unittest.skipUnless(torch.cuda.is_available(), "requires a device")
    def test_device_sums_follow_cpu_order(self):
        for name, run in SUMS.items():
            with self.subTest(name):
                wanted = run("cpu")
                for _ in range(3):
                    self.assertTrue(torch.equal(run("cuda").cpu(), wanted))

    @unittest.skipUnless(torch.cuda.is_available(), "requires a device")
    def test_invalid_indices_are_reported(self):
        with self.assertRaisesRegex(IndexError, "out of bounds"):
            torch.zeros(3, device="cuda").index_put_((torch.tensor([0, 3], device="cuda"),), torch.ones(2, device="cuda"), accumulate=True)
            torch.cuda.synchronize()
        self.assertEqual(torch.zeros(0, 2, device="cuda").index_add(0, torch.zeros(0, dtype=torch.long, device="cuda"),
                                                                    torch.zeros(0, 2, device="cuda")).shape, (0, 2))


if __name__ == "__main__":
    unittest.main()
