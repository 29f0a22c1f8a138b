# SPDX-License-Identifier: Apache-2.0
"""torch.utils.benchmark: number of runs and statistics, with a fake clock."""
import unittest

import phlox as torch
from phlox.utils.benchmark import Compare, Measurement, Timer


class Clock:
    """Each call of `tick` advances the clock by the next of the given spans, cyclically."""

    def __init__(self, *spans):
        self.now, self.runs, self.spans = 0.0, 0, spans

    def tick(self):
        self.now += self.spans[self.runs % len(self.spans)]
        self.runs += 1

    def timer(self, stmt="tick()", **options):
        return Timer(stmt, globals={"tick": self.tick}, timer=lambda: self.now, **options)


class Timers(unittest.TestCase):
    def test_timeit(self):
        clock = Clock(0.5)
        made = clock.timer(label="L", sub_label="S", description="D", setup="x = 1", num_threads=2).timeit(10)
        self.assertEqual((clock.runs, made.number_per_run, made.raw_times, made.times, made.median, made.mean, made.iqr, made.has_warnings),
                         (12, 10, [5.0], [0.5], 0.5, 0.5, 0, False))
        self.assertEqual(repr(made).split("\n")[1:], ["L: S", "D", "setup: x = 1", "  500.00 ms", "  1 measurement, 10 runs , 2 threads"])
        self.assertIsInstance(made, Measurement)

    def test_blocked_autorange(self):
        clock = Clock(0.001)
        made = clock.timer().blocked_autorange(min_run_time=1.0)
        self.assertEqual((made.number_per_run, 1000 <= len(made.times) <= 1001), (1, True))
        self.assertAlmostEqual(made.median, 0.001)
        fast = Clock(1e-6).timer().blocked_autorange(min_run_time=0.05)
        self.assertEqual(fast.number_per_run, 100)
        self.assertRegex(repr(fast), r"\ntick\(\)\n  Median: 1.00 us\n  IQR:    0.00 us \(1.00 to 1.00\)\n  \d+ measurements, 100 runs per measurement, 1 thread$")

    def test_adaptive_autorange(self):
        self.assertEqual(len(Clock(0.5).timer().adaptive_autorange(min_run_time=0.01, max_run_time=100).times), 4)
        uneven = Clock(1, 3).timer().adaptive_autorange(max_run_time=20)
        self.assertTrue(uneven.has_warnings and sum(uneven.raw_times) >= 20)
        self.assertRegex(repr(uneven), "WARNING: the measurements differ by more than a tenth.$")

    def test_callback_receives_each_block(self):
        for call in "blocked_autorange", "adaptive_autorange":
            blocks = []
            made = getattr(Clock(0.001).timer(), call)(callback=lambda *block: blocks.append(block))
            self.assertEqual(blocks, [(made.number_per_run, time) for time in made.raw_times])

        def stop(number, seconds):
            raise KeyError("enough")
        with self.assertRaises(KeyError):
            Clock(0.001).timer().blocked_autorange(callback=stop)

    def test_significant_figures(self):
        for spans, figures in ((0.5,), 4), ((1, 1.001), 3), ((1, 3), 1):
            made = Clock(*spans).timer().blocked_autorange(min_run_time=20 * sum(spans) / len(spans))
            self.assertEqual((spans, made.significant_figures), (spans, figures))
        self.assertEqual([made.meets_confidence(threshold) for threshold in (0.5, 1.0, 1.5)], [False, False, True])
        self.assertFalse(made.meets_confidence())

    def test_merge_measurements(self):
        clock = Clock(0.5)
        a, b, other = clock.timer(label="L").timeit(10), clock.timer(label="L").timeit(4), clock.timer(label="M").timeit(2)
        first, second = Measurement.merge(iter([a, other, b]))
        self.assertEqual((first.label, first.number_per_run, first.times), ("L", 1, [0.5, 0.5]))
        self.assertEqual((second.label, second.times, second.setup), ("M", [0.5], "pass"))
        self.assertEqual((Measurement.merge([]), a.number_per_run), ([], 10))
        with self.assertRaisesRegex(TypeError, "merge expected Measurements, got int"):
            Measurement.merge([a, 3])

    def test_argument_errors(self):
        for arguments, error, text in ((("1", "pass", "int x;"), ValueError, "global_setup is C.. only, got `int x;`"),
                                       (dict(language="rust"), ValueError, "Invalid language `rust`."),
                                       (dict(language="c++"), NotImplementedError, r"language='c\+\+'")):
            with self.assertRaisesRegex(error, text):
                Timer(*arguments) if isinstance(arguments, tuple) else Timer(**arguments)
        timer = Timer("1", language="py")
        for refused in timer.repeat, timer.autorange:
            with self.assertRaisesRegex(NotImplementedError, "See `Timer.blocked_autorange.`"):
                refused()
        with self.assertRaisesRegex(AttributeError, "Timer.collect_callgrind is not implemented in Phlox"):
            timer.collect_callgrind

    def test_real_statement(self):
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
            self.assertGreater(slow.median, 0.0019)  # the timer synchronizes the device

    def test_failing_statements(self):
        threads = torch.get_num_threads()
        with self.assertRaises(ZeroDivisionError):
            Timer("1 / 0", num_threads=1).blocked_autorange()
        self.assertEqual(torch.get_num_threads(), threads)
        for call, kind in ((lambda: Timer("1 +"), SyntaxError), (lambda: Timer(3), TypeError), (lambda: Timer().timeit(0), ValueError), (lambda: Timer(num_threads=0), ValueError),
                           (lambda: Timer().blocked_autorange(len), TypeError)):
            with self.assertRaises(kind):
                call()


# A tilde stands for a space.
TABLE = """\
[------------ L ------------]
           |   x    |    y  ~
1 threads: ------------------
      a    |   1.0  |     3.3
      b    |   2.5  |       ~
2 threads: ------------------
      a    |  30.0  |       ~
      f()  |        |  2000.0

Times are in milliseconds (ms).

[------- M --------]
         |     wide~
1 threads: ---------
      a  |    2.0  ~

Times are in nanoseconds (ns).
"""


class Comparisons(unittest.TestCase):
    def measured(self, *spans, stmt="f()", **options):
        clocks = [Clock(span) for span in spans]
        return [Timer(stmt, globals={"f": clock.tick}, timer=lambda clock=clock: clock.now, **options).timeit(1) for clock in clocks]

    def test_table_per_label(self):
        rows = self.measured(1e-3, label="L", sub_label="a", description="x") + self.measured(2.5e-3, label="L", sub_label="b", description="x")
        rows += self.measured(3.3333e-3, label="L", sub_label="a", description="y")
        rows += self.measured(20e-3, 40e-3, label="L", sub_label="a", description="x", num_threads=2)  # one cell
        rows += self.measured(2.0, label="L", description="y", num_threads=2)
        rows += self.measured(2e-9, label="M", sub_label="a", description="   wide ")
        self.assertEqual(str(Compare(rows)), TABLE.replace("~", " "))

    def test_environments_are_shown_if_several(self):
        rows = [row for env in "mn" for row in self.measured(1.0, label="L", sub_label="a", description="x", env=env)]
        self.assertEqual(str(Compare(rows)).splitlines()[3:5], ["  (m)  a  |  1.0", "  (n)  a  |  1.0"])
        self.assertEqual(str(Compare(rows[:1])).splitlines()[3], "      a  |  1.0")

    def test_trim_significant_figures(self):
        rough = self.measured(1.0, 1.3, 1.6, 2.0, 1.1, label="L", sub_label="a", description="x")
        table = Compare(rough + self.measured(2.0, label="L", sub_label="a", description="y"))
        table.trim_significant_figures()
        self.assertEqual(str(table).splitlines()[3], "      a  |  1  |  2.000")

    def test_colorize_and_warnings(self):
        spans = {"a": (1.0,), "b": (1.05,), "c": (1.5,), "d": (3.0,), "e": (9.0, 9.0, 18.0, 18.0, 36.0)}
        table = Compare([row for name in spans for row in self.measured(*spans[name], label="L", sub_label=name, description="x")])
        table.colorize()
        shown = [line.partition("|  ")[2] for line in str(table).splitlines()[3:8]]
        self.assertEqual(shown, ["\033[92m\033[1m 1.0\033[0m\033[0m", "\033[34m\033[1m 1.1\033[0m\033[0m", " 1.5",
                                 "\033[2m\033[91m 3.0\033[0m\033[0m", "\033[31m\033[1m18.0\033[0m\033[0m"])
        table.colorize(rowwise=True)
        self.assertTrue(all("\033[92m" in line for line in str(table).splitlines()[3:8]))
        plain = Compare(table._results)
        plain.highlight_warnings()
        self.assertEqual(str(plain).splitlines()[6:], ["      d  |   3.0        ", "      e  |  18.0 (! 50%)", "", "Times are in seconds (s).",
                                                       "(! XX%) Measurement has high variance, where XX is the IQR / median * 100."])

    def test_invalid_measurements(self):
        table = Compare([])
        with self.assertRaisesRegex(ValueError, "Expected an instance of `Measurement`, got <class 'int'> instead."):
            table.extend_results(self.measured(1.0) + [1])
        self.assertEqual(str(table), "")


if __name__ == "__main__":
    unittest.main()
