# SPDX-License-Identifier: Apache-2.0
"""torch.utils.swap_tensors: two tensors exchange all but their identity."""
import unittest, weakref

import phlox as torch
from phlox import nn
from phlox.utils import swap_tensors


class Slotted(torch.Tensor):
    __slots__ = ("unit",)


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


class Swap(unittest.TestCase):
    def test_memory_geometry_and_attributes_change_places(self):
        a, b = torch.ones(2), torch.arange(12).reshape(3, 4).t()
        a.note, storage = "of a", b.data_ptr()
        swap_tensors(a, b)
        self.assertEqual((a.tolist(), a.dtype, a.stride(), a.data_ptr()), (torch.arange(12).reshape(3, 4).t().tolist(), torch.int64, (1, 4), storage))
        self.assertEqual((b.tolist(), b.note, hasattr(a, "note")), ([1., 1.], "of a", False))

    def test_tensors_of_many_dimensions_change_places(self):
        a, b = torch.zeros([1] * 12), torch.ones(2)
        swap_tensors(a, b)
        self.assertEqual((a.tolist(), b.dim(), b.sum().item()), ([1., 1.], 12, 0))

    def test_lazy_views_stay_lazy(self):
        a, b = torch.tensor([1 + 2j]).conj(), torch.zeros(1)
        swap_tensors(a, b)
        self.assertEqual((a.is_conj(), b.is_conj(), b.tolist()), (False, True, [1 - 2j]))

    def test_classes_change_places(self):
        a, b, c = nn.Parameter(torch.ones(2)), torch.zeros(3), torch.zeros(1).as_subclass(Slotted)
        c.unit = "m"
        d = torch.ones(1).as_subclass(Slotted)
        swap_tensors(a, b)
        swap_tensors(c, d)
        self.assertEqual((type(a), type(b), isinstance(a, nn.Parameter), b.requires_grad), (torch.Tensor, nn.Parameter, False, True))
        self.assertEqual((d.unit, hasattr(c, "unit"), c.item()), ("m", False, 1))

    def test_modules_and_optimizers_see_the_new_contents(self):
        layer, norm = nn.Linear(2, 2), nn.BatchNorm1d(2).eval()
        weight, mean, optimizer = layer.weight, norm.running_mean, torch.optim.SGD(layer.parameters(), 1.)
        swap_tensors(weight, nn.Parameter(torch.zeros(2, 2)))
        swap_tensors(mean, torch.full((2,), 7.))
        self.assertIs(layer.weight, weight)
        self.assertTrue(torch.equal(layer(torch.ones(1, 2))[0], layer.bias))
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        self.assertEqual((weight.tolist(), norm.state_dict()["running_mean"].tolist()), ([[-1., -1.], [-1., -1.]], [7., 7.]))
        self.assertTrue(torch.equal(norm(torch.full((1, 2), 7.)), torch.zeros(1, 2)))

    @unittest.skipUnless(torch.cuda.is_available(), "requires a device")
    def test_a_buffer_moves_to_another_device(self):
        norm = nn.BatchNorm1d(2).cuda()
        mean = norm.running_mean
        swap_tensors(mean, mean.cpu())
        self.assertIs(norm.running_mean, mean)
        self.assertEqual(norm.running_mean.device.type, "cpu")

    def test_gradients_histories_and_hooks_change_places(self):
        a, b = leaf(1., 1.), leaf(0., 0.)
        a.grad = torch.ones(2)
        a.register_hook(lambda grad: grad * 5)
        swap_tensors(a, b)
        (a * 1).sum().backward()
        (b * 1).sum().backward()
        self.assertEqual((a.grad.tolist(), b.grad.tolist()), ([1., 1.], [6., 6.]))
        made, plain = leaf(1.) * 2, torch.zeros(1)
        swap_tensors(made, plain)
        self.assertEqual((made.grad_fn, plain.grad_fn.name()), (None, "MulBackward0"))

    def test_a_graph_from_before_refuses_to_run(self):
        a, b = leaf(1.), leaf(2.)
        y = a * 2
        swap_tensors(a, b)
        with self.assertRaisesRegex(RuntimeError, "Trying to execute AccumulateGrad node that was poisoned by swap_tensors"):
            y.backward()
        (a * 3).backward()
        (b * 4).backward()
        self.assertEqual((a.grad.item(), b.grad.item()), (3, 4))

    def test_other_owners_are_refused(self):
        a, b = torch.ones(2), torch.zeros(2)
        view = a[1:]
        with self.assertRaisesRegex(RuntimeError, "Expected use_count of t1 to be 1 or 2 with an AccumulateGrad node but got 2"):
            swap_tensors(a, b)
        with self.assertRaisesRegex(RuntimeError, "Expected use_count of t2"):
            swap_tensors(b, a)
        swap_tensors(view, b)
        self.assertEqual((view.tolist(), b.tolist(), b._base is a), ([0., 0.], [1.], True))
        x, known = leaf(1.), torch.zeros(1)
        y = x.exp() * x
        with self.assertRaisesRegex(RuntimeError, "use_count of t1"):
            swap_tensors(x, known)
        self.assertEqual(y.requires_grad, True)

    def test_weak_references_and_other_slots_are_refused(self):
        a, b = torch.ones(2), torch.zeros(2)
        reference = weakref.ref(b)
        with self.assertRaisesRegex(RuntimeError, "Cannot swap t2 because it has weakref associated with it"):
            swap_tensors(a, b)
        self.assertIs(reference(), b)
        with self.assertRaisesRegex(RuntimeError, "Cannot swap t1 and t2 if they have different slots"):
            swap_tensors(a, torch.zeros(2).as_subclass(Slotted))

    def test_a_tensor_swapped_with_itself_stays(self):
        a = torch.ones(2)
        swap_tensors(a, a)
        self.assertEqual(a.tolist(), [1., 1.])


if __name__ == "__main__":
    unittest.main()
