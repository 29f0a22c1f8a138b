# SPDX-License-Identifier: Apache-2.0
"""Optimisers and modules that one thread changes while another uses them."""
import os, signal
import sys
import threading
import time
import unittest

import phlox as torch
from phlox import nn


def run_beside(first, second, seconds=0.05):
    """Repeats two functions on two threads. Raises the first exception of either."""
    end, failed = time.monotonic() + seconds, []

    def repeat(action):
        try:
            while time.monotonic() < end:
                action()
        except Exception as error:  # raised again below
            failed.append(error)

    threads = [threading.Thread(target=repeat, args=(action,)) for action in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


class Shared(unittest.TestCase):
    def setUp(self):
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1e-5)

    def assert_finite(self, tensors):
        for tensor in tensors:
            self.assertTrue(bool(torch.isfinite(tensor).all()))


class OptimizersOfThreads(Shared):
    def setUp(self):
        super().setUp()
        self.parameters = [nn.Parameter(torch.ones(64)) for _ in range(8)]
        self.optimizer = torch.optim.Adam(self.parameters, lr=0.01)
        self.give_gradients()

    def give_gradients(self):
        for p in self.parameters:
            p.grad = torch.ones(64)

    def check_step_beside(self, change):
        run_beside(self.optimizer.step, change)
        self.assert_finite(self.parameters)

    def test_step_beside_zero_grad(self):
        def clear():
            self.optimizer.zero_grad()
            self.give_gradients()

        self.check_step_beside(clear)

    def test_step_beside_removed_gradients(self):
        def remove():
            for p in self.parameters:
                p.grad = None
            self.give_gradients()

        self.check_step_beside(remove)

    def test_step_beside_clipping(self):
        self.check_step_beside(lambda: nn.utils.clip_grad_norm_(self.parameters, 1.0))

    def test_step_beside_added_groups(self):
        def add():
            if len(self.optimizer.param_groups) < 50:
                p = nn.Parameter(torch.ones(4))
                p.grad = torch.ones(4)
                self.optimizer.add_param_group({"params": [p]})

        self.check_step_beside(add)

    def test_step_beside_replaced_rates_and_shorter_groups(self):
        group = self.optimizer.param_groups[0]

        def change():
            group["lr"] = torch.tensor(0.01)
            group["params"] = list(self.parameters)
            del group["params"][4:]

        self.check_step_beside(change)

    def test_step_beside_cleared_states(self):
        self.check_step_beside(self.optimizer.state.clear)


class ModulesOfThreads(Shared):
    def setUp(self):
        super().setUp()
        self.model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.x = torch.ones(4096, 8)  # large enough to release the GIL

    def use(self):
        with torch.no_grad():
            self.model(self.x)
        len(self.model.state_dict()), len(list(self.model.parameters())), repr(self.model)

    def test_calls_beside_replaced_parameters(self):
        def replace():
            self.model[0].bias = nn.Parameter(torch.ones(8))
            self.model[2].register_buffer("extra", torch.ones(8))
            del self.model[2].extra

        run_beside(self.use, replace)
        self.assert_finite(self.model.parameters())

    def test_calls_beside_replaced_children(self):
        def replace():
            self.model[0] = nn.Linear(8, 8)
            self.model.train(not self.model.training)

        run_beside(self.use, replace)
        self.assertEqual(self.model(self.x).shape, (4096, 8))

    def test_calls_beside_changed_hooks(self):
        calls = []

        def change():
            handle = self.model[0].register_forward_hook(lambda *_: calls.append(1))
            time.sleep(1e-4)
            handle.remove()

        run_beside(self.use, change)
        before = len(calls)
        self.use()
        self.assertEqual(len(calls), before)


class Forks(unittest.TestCase):
    def test_children_of_a_fork_beside_changes_and_calls_use_tensors(self):
        changed, other, used, leaf = torch.zeros(4), torch.zeros(8), torch.ones(64, 64), torch.ones(3, requires_grad=True)
        stop = threading.Event()
        def change():
            while not stop.is_set():
                changed.data, _ = other, used @ used
                leaf.sum().backward()
        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(30):
                child = os.fork()
                if not child:
                    signal.alarm(20)  # ends a child that waits for a lost thread
                    (leaf + 1).sum().backward()
                    used.resize_(3), changed.resize_(2)
                    os._exit(0)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
        finally:
            stop.set()
            thread.join()


if __name__ == "__main__":
    unittest.main()
