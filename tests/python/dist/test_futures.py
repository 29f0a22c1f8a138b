# SPDX-License-Identifier: Apache-2.0
"""torch.futures."""
import gc, threading, unittest, weakref
from unittest import mock

import phlox as torch
from phlox.futures import Future, collect_all, wait_all


def completed(value):
    future = Future()
    future.set_result(value)
    return future


def failed(error):
    future = Future()
    future.set_exception(error)
    return future


class Futures(unittest.TestCase):
    def test_result_is_set_once(self):
        future = Future()
        self.assertFalse(future.done())
        with self.assertRaisesRegex(RuntimeError, "not completed"):
            future.value()
        future.set_result(None)
        self.assertEqual((future.done(), future.wait(), future.value()), (True, None, None))
        for again in (lambda: future.set_result(1), lambda: future.set_exception(ValueError())):
            with self.assertRaisesRegex(RuntimeError, "^Attempting to mark a completed Future as complete again."):
                again()
        self.assertIsNone(future.value())

    def test_exception(self):
        error = ValueError("mine")
        future = failed(error)
        for ask in (future.wait, future.value):
            with self.assertRaises(ValueError) as raised:
                ask()
            self.assertIs(raised.exception, error)
        with self.assertRaisesRegex(AssertionError, "^no is of type <class 'str'>, not an Exception.$"):
            Future().set_exception("no")

    def test_waiting_threads(self):
        future, got = Future(), []
        threads = [threading.Thread(target=lambda: got.append(future.wait())) for _ in range(4)]
        [thread.start() for thread in threads]
        future.set_result(7)
        [thread.join(30) for thread in threads]
        self.assertEqual(got, [7] * 4)

    def test_callbacks(self):
        future, received = Future(), []
        double, nothing = future.then(lambda f: 2 * f.value()), future.then(lambda f: 1 / 0)
        future.add_done_callback(lambda f: received.append(f.value()))
        self.assertEqual((received, double.done()), ([], False))
        future.set_result(21)
        future.add_done_callback(lambda f: received.append("at once"))
        self.assertEqual((received, double.wait()), ([21, "at once"], 42))
        with self.assertRaisesRegex(RuntimeError, "^Got the following error when running the callback: ZeroDivisionError: division by zero$"):
            nothing.wait()
        with mock.patch("sys.unraisablehook") as unraisable:
            future.add_done_callback(lambda f: 1 / 0)
        self.assertEqual(unraisable.call_count, 1)
        for method in (future.then, future.add_done_callback):
            with self.assertRaisesRegex(TypeError, "expected a function, not int"):
                method(3)

    def test_collect_all_and_wait_all(self):
        a, b = Future(), Future()
        both = collect_all([a, b])
        b.set_result(2)
        self.assertFalse(both.done())
        a.set_result(1)
        self.assertEqual(([x.value() for x in both.wait()], wait_all([b, a]), wait_all([]), collect_all([]).wait()), ([1, 2], [2, 1], [], []))
        with self.assertRaisesRegex(KeyError, "first"):
            wait_all([a, failed(KeyError("first")), failed(KeyError("second"))])
        with self.assertRaisesRegex(TypeError, "expected a Future as element 1, but got int"):
            collect_all([a, 3])

    def test_callbacks_added_while_it_is_set_are_called_once(self):
        for _ in range(50):
            future, got, start = Future(), [], threading.Barrier(3)
            adds = lambda: (start.wait(30), [future.add_done_callback(lambda f: got.append(f.value())) for _ in range(5)])
            threads = [threading.Thread(target=work) for work in (adds, adds, lambda: (start.wait(30), future.set_result(1)))]
            [thread.start() for thread in threads]
            [thread.join(30) for thread in threads]
            self.assertEqual(got, [1] * 10)

    @unittest.skipUnless(torch.cuda.device_count(), "no device")
    def test_the_current_stream_waits_for_work_of_devices(self):
        for wait in (lambda future: future.wait(), lambda future: wait_all([future])):
            future, stream = Future(), torch.cuda.Stream()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(20_000_000)
                future._event = stream.record_event()
            future.set_result(None)
            wait(future)
            torch.cuda.current_stream().synchronize()
            self.assertTrue(stream.query())
        inner = future.then(lambda f: torch.cuda.current_stream())
        self.assertNotEqual(inner.wait(), torch.cuda.current_stream())

    def test_cycles_are_collected(self):
        class Mine(Future):
            pass
        future = Mine()
        future.add_done_callback(lambda f, kept=future: None)
        seen = weakref.ref(future)
        del future
        gc.collect()
        self.assertIsNone(seen())

    def test_aliases_and_devices_argument(self):
        self.assertIs(torch.jit.Future, Future)
        self.assertIs(Future[int], Future)
        with self.assertRaisesRegex(NotImplementedError, r"^torch.futures.Future\(devices=\) is not implemented in Phlox$"):
            Future(devices=["cuda:0"])


if __name__ == "__main__":
    unittest.main()
