# SPDX-License-Identifier: Apache-2.0
"""Schedules resumed at an epoch, in sequence and chained, with the rates of PyTorch 2.15 (schedule_rates.txt), and nested ones."""
import unittest, warnings

import phlox as torch
import schedule_rates

from phlox.optim.lr_scheduler import ChainedScheduler, ConstantLR, ExponentialLR, LinearLR, LRScheduler, ReduceLROnPlateau, SequentialLR


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


class Combinations(unittest.TestCase):
    def setUp(self):
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def check(self, make, wanted):
        made = optimizer()
        self.assertEqual(schedule_rates.rates(made, make(made)), wanted)

    def test_rates_are_those_of_pytorch(self):
        with open(schedule_rates.TABLE) as table:
            self.assertEqual(list(schedule_rates.cases(torch)), table.read().splitlines())

    def test_a_nested_sequence_keeps_its_milestones(self):
        def nested(o):
            return SequentialLR(o, [ConstantLR(o, 0.5, 9), ExponentialLR(o, 0.9)], [2])

        self.check(lambda o: SequentialLR(o, [nested(o)], []), "0.5 0.5 1 0.9 0.81 0.729 0.6561 0.59049")
        self.check(lambda o: SequentialLR(o, [nested(o), ExponentialLR(o, 0.5)], [4]), "0.5 0.5 1 0.9 1 0.5 0.25 0.125")
        self.check(lambda o: SequentialLR(o, [ExponentialLR(o, 0.5), nested(o)], [3]), "1 0.5 0.25 0.5 0.5 1 0.9 0.81")

    def test_a_chain_starts_at_a_milestone(self):
        self.check(lambda o: SequentialLR(o, [ConstantLR(o, 0.5, 9), ChainedScheduler([LinearLR(o, 0.5, 1, 2), ExponentialLR(o, 0.9)])], [2]),
                   "0.5 0.5 0.45 0.6075 0.729 0.6561 0.59049 0.531441")

    def test_a_schedule_of_a_program_runs_in_a_sequence(self):
        class Harmonic(LRScheduler):
            def get_lr(self):
                return [base / (1 + self.last_epoch) for base in self.base_lrs]

        class Closed(Harmonic):
            def _get_closed_form_lr(self):
                return [base * 8 for base in self.base_lrs]

        self.check(lambda o: SequentialLR(o, [Harmonic(o), ExponentialLR(o, 0.5)], [2]), "1 0.5 1 0.5 0.25 0.125 0.0625 0.03125")
        self.check(lambda o: SequentialLR(o, [ExponentialLR(o, 0.5), Closed(o)], [2]), "1 0.5 8 0.5 0.333333 0.25 0.2 0.166667")

    def test_schedules_that_need_more_than_an_optimizer_are_refused(self):
        for make in (lambda o, s: SequentialLR(o, [ConstantLR(o), s], [2]), lambda o, s: ChainedScheduler([ConstantLR(o), s])):
            o = optimizer()
            with self.assertRaisesRegex(ValueError, "does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                                                    "specified when calling `step`, but got one at index 1"):
                make(o, ReduceLROnPlateau(o))
            with self.assertRaisesRegex(TypeError, "at index 1 should have `optimizer` as its attribute"):
                make(o, 3)

    def test_states_of_nested_schedules_are_restored(self):
        def made(o):
            return SequentialLR(o, [ChainedScheduler([ConstantLR(o, 0.5, 3), ExponentialLR(o, 0.9)]), ExponentialLR(o, 0.5)], [4])

        o, other = optimizer(), optimizer()
        first, second = made(o), made(other)
        for _ in range(3):
            o.step()
            first.step()
        second.load_state_dict(first.state_dict())
        other.load_state_dict(o.state_dict())
        self.assertEqual(schedule_rates.rates(other, second), schedule_rates.rates(o, first))
        self.assertNotIn("_step_count", first.state_dict())

    def test_one_cycle_resumes_from_the_rates_of_its_groups(self):
        group = lambda **rates: torch.optim.SGD([{"params": [torch.ones(1, requires_grad=True)], **rates}], lr=0.05, momentum=0.9)
        one_cycle = lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10, last_epoch=3)
        with self.assertRaisesRegex(KeyError, "max_lr"):
            one_cycle(group(initial_lr=0.2))
        with self.assertRaisesRegex(KeyError, "param 'initial_lr' is not specified"):
            one_cycle(group())

    def test_a_failing_schedule_keeps_its_epoch(self):
        class Fails(LRScheduler):
            def get_lr(self):
                return [1 / (2 - self.last_epoch)]

        o = optimizer()
        schedule = Fails(o)
        o.step()
        schedule.step()
        with self.assertRaises(ZeroDivisionError):
            schedule.step()
        self.assertEqual((schedule.last_epoch, schedule._step_count), (1, 2))


if __name__ == "__main__":
    unittest.main()
