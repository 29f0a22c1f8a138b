# SPDX-License-Identifier: Apache-2.0
"""torch.utils.benchmark: what is run, how often, and what the times say. A clock of the test's own tells the time."""
import unittest

import phlox as torch
from phlox.utils.benchmark import Measurement, Timer


class Clock:
    """Each run of `tick` takes the next of some times, over and over."""

    def __init__(self, *spans):
        self.now, self.runs, self.spans = 0.0, 0, spans

    def tick(self):
        self.now += self.spans[self.runs % len(self.spans)]
        self.runs += 1

    def timer(self, stmt="tick()", **options):
        return Timer(stmt, globals={"tick": self.tick}, timer=lambda: self.now, **options)


class Timers(unittest.TestCase):
    def test_so_many_runs(self):
        clock = Clock(0.5)
        made = clock.timer(label="L", sub_label="S", description="D", setup="x = 1", num_threads=2).timeit(10)
        self.assertEqual((clock.runs, made.number_per_run, made.raw_times, made.times, made.median, made.mean, made.iqr, made.has_warnings),
                         (12, 10, [5.0], [0.5], 0.5, 0.5, 0, False))
        self.assertEqual(repr(made).split("\n")[1:], ["L: S", "D", "setup: x = 1", "  500.00 ms", "  1 measurement, 10 runs , 2 threads"])
        self.assertIsInstance(made, Measurement)

    def test_blocks_for_some_time(self):
        clock = Clock(0.001)
        made = clock.timer().blocked_autorange(min_run_time=1.0)
        self.assertEqual((made.number_per_run, 1000 <= len(made.times) <= 1001), (1, True))
        self.assertAlmostEqual(made.median, 0.001)
        fast = Clock(1e-6).timer().blocked_autorange(min_run_time=0.05)
        self.assertEqual(fast.number_per_run, 100)
        self.assertRegex(repr(fast), r"\ntick\(\)\n  Median: 1.00 us\n  IQR:    0.00 us \(1.00 to 1.00\)\n  \d+ measurements, 100 runs per measurement, 1 thread$")

    def test_until_the_times_agree(self):
        self.assertEqual(len(Clock(0.5).timer().adaptive_autorange(min_run_time=0.01, max_run_time=100).times), 4)
        uneven = Clock(1, 3).timer().adaptive_autorange(max_run_time=20)
        self.assertTrue(uneven.has_warnings and sum(uneven.raw_times) >= 20)
        self.assertRegex(repr(uneven), "WARNING: the measurements differ by more than a tenth.$")

    def test_a_real_statement(self):
        x = torch.ones(8, 8, requires_grad=True)
        threads = torch.get_num_threads()
        made = Timer("""
            y = x @ x
            seen.append(torch.get_num_threads())
        """, globals={"x": x, "seen": (seen := [])}, num_threads=1).timeit(3)
        self.assertEqual((set(seen), torch.get_num_threads(), len(made.times)), ({1}, threads, 1))
        self.assertGreater(made.median, 0)
        if torch.cuda.device_count():
            slow = Timer("torch.cuda._sleep(2_000_000)").timeit(2)
            self.assertGreater(slow.median, 0.0019)  # the clock waits for the device

    def test_what_is_wrong(self):
        threads = torch.get_num_threads()
        with self.assertRaises(ZeroDivisionError):
            Timer("1 / 0", num_threads=1).blocked_autorange()
        self.assertEqual(torch.get_num_threads(), threads)
        for call, kind in ((lambda: Timer("1 +"), SyntaxError), (lambda: Timer().timeit(0), ValueError), (lambda: Timer(num_threads=0), ValueError),
                           (lambda: Timer().blocked_autorange(len), NotImplementedError), (lambda: torch.utils.benchmark.Compare([]), NotImplementedError)):
            with self.assertRaises(kind):
                call()


if __name__ == "__main__":
    unittest.main()
