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


if __name__ == "__main__":
    unittest.main()
