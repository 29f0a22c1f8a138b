# SPDX-License-Identifier: Apache-2.0
"""What Python's profilers hear of ops."""
import cProfile
import inspect
import io
import pstats
import sys
import unittest

import phlox as torch


class Profilers(unittest.TestCase):
    def events(self, call):
        """What sys.setprofile hears of builtin functions during a call."""
        heard = []

        def hear(frame, event, argument):
            if event.startswith("c_") and argument is not sys.setprofile:
                heard.append((event, argument.__name__))
                torch.ones(1).add(1)  # what a profiler does itself is not profiled
        sys.setprofile(hear)
        try:
            call()
        except RuntimeError:
            pass
        finally:
            sys.setprofile(None)
        return heard

    def test_ops_are_heard(self):
        x, y = torch.ones(2), torch.ones(3)
        for name, call in (("add", lambda: torch.add(x, x)), ("relu", lambda: torch.nn.functional.relu(x)), ("mul", lambda: x.mul(2)),
                           ("sum", lambda: torch.sum(*(x,))), ("add_", lambda: torch.Tensor.add_(x, 1)),
                           ("zeros", lambda: torch.zeros(2, dtype=torch.int64))):
            self.assertEqual(self.events(call), [("c_call", name), ("c_return", name)])
        self.assertEqual(self.events(lambda: torch.add(x, y)), [("c_call", "add"), ("c_exception", "add")])

    def test_cprofile_lists_ops_by_name(self):
        profile = cProfile.Profile()
        x = torch.ones(2, 2)
        profile.runcall(lambda: [torch.nn.functional.softmax(torch.matmul(x, x).exp(), 0) for _ in range(3)])
        text = io.StringIO()
        pstats.Stats(profile, stream=text).print_stats()
        for name in ("torch.matmul", "torch.Tensor.exp", "torch.nn.functional.softmax"):
            self.assertRegex(text.getvalue(), r"\n +3 .*{" + name + "}")

    def test_a_profiler_may_fail_and_may_end_itself(self):
        def fail(frame, event, argument):
            if event == "c_call":
                raise KeyError("profiler")
        x = torch.ones(2)
        raised = None
        sys.setprofile(fail)
        try:
            torch.add(x, x)
        except KeyError as error:
            raised = error
        sys.setprofile(None)
        self.assertEqual(str(raised), "'profiler'")
        sys.setprofile(lambda frame, event, argument: sys.setprofile(None) if event == "c_call" else None)
        self.assertEqual(torch.add(x, x).tolist(), [2, 2])
        self.assertIsNone(sys.getprofile())

    def test_ops_are_builtin_functions_each_its_own(self):
        self.assertTrue(inspect.isbuiltin(torch.add) and isinstance(torch.Tensor.add, type(len).__mro__[0]))
        self.assertEqual(len({torch.add, torch.sub, torch.add}), 2)
        self.assertNotEqual(torch.add, torch.sub)


class Marks(unittest.TestCase):
    """record_function and torch.cuda.nvtx: nothing listens."""

    def test_a_part_with_a_name(self):
        record = torch.profiler.record_function
        self.assertIs(record, torch.autograd.profiler.record_function)
        with record("forward", "batch 3") as part:
            self.assertEqual((part.name, part.args), ("forward", "batch 3"))

        @record("add")
        def add(a, b=1):
            return a + b

        class Holder:
            @record("method")
            def method(self):
                return self
        holder = Holder()
        self.assertEqual((add(1, b=2), add.__name__, holder.method() is holder), (3, "add", True))
        with self.assertRaises(KeyError), record("fails"):
            raise KeyError
        for wrong, kind in ((lambda: record(), TypeError), (lambda: record("x")(3), TypeError)):
            with self.assertRaises(kind):
                wrong()

    def test_what_would_measure_is_refused_unless_it_is_off(self):
        profiler = torch.autograd.profiler
        for make in (profiler.profile, profiler.emit_nvtx):
            with make(enabled=False) as nothing:
                self.assertIsNone(nothing)
            with self.assertRaisesRegex(NotImplementedError, f"^torch.autograd.profiler.{make.__name__} is not implemented in Phlox$"):
                make()
        with self.assertRaisesRegex(NotImplementedError, "^torch.profiler.profile is not implemented in Phlox$"):
            torch.profiler.profile()

    def test_nvtx_answers_as_where_no_tool_listens(self):
        nvtx = torch.cuda.nvtx
        self.assertEqual((nvtx.range_push("a"), nvtx.range_pop(), nvtx.range_end(nvtx.range_start("b")), nvtx.mark("c")), (-2, -2, None, None))
        with nvtx.range("step {}", 3) as part:
            self.assertIsInstance(part, nvtx.range)
        self.assertEqual(nvtx.range("f")(len)([1]), 1)
        with self.assertRaises(IndexError):
            nvtx.range("step {}")


if __name__ == "__main__":
    unittest.main()
