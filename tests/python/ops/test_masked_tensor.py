# SPDX-License-Identifier: Apache-2.0
"""torch.masked.MaskedTensor."""
import copy
import io
import operator
import unittest

import phlox as torch
from phlox.masked import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor
from phlox.masked import maskedtensor as source

DATA = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
MASK = torch.tensor([[True, False, True], [False, False, True]])
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def both(masked):
    """The unmasked elements and the mask, as lists."""
    return masked.get_data()[masked.get_mask()].tolist(), masked.get_mask().tolist()


class Masked(unittest.TestCase):
    def test_pointwise_functions_keep_the_mask(self):
        tried = 0
        for name in source._POINTWISE:
            for args in ((), (0.5,), (masked_tensor(DATA, MASK),), (2,)):
                call = getattr(torch, name, None)
                try:
                    wanted = call(DATA, *(arg.get_data() if isinstance(arg, MaskedTensor) else arg for arg in args))
                except (TypeError, RuntimeError, ValueError):
                    continue
                got = call(masked_tensor(DATA, MASK), *args)
                self.assertTrue(is_masked_tensor(got), name)
                self.assertEqual(got.get_mask().tolist(), MASK.tolist(), name)
                if not any(word in name for word in ("rand", "empty", "dropout")):
                    self.assertTrue(torch.equal(got.get_data().nan_to_num(7), wanted.nan_to_num(7)), name)
                tried += 1
        self.assertGreater(tried, 150)

    def test_operands(self):
        a, b = masked_tensor(DATA, MASK), masked_tensor(DATA * 10, MASK)
        self.assertEqual(both(a + b)[0], [11, 33, 66])
        self.assertEqual(both(2 * a - DATA)[0], [1, 3, 6])
        self.assertEqual(both(a + torch.ones(2, 2, 3))[1], [MASK.tolist()] * 2)
        a += 1
        self.assertEqual(both(a)[0], [2, 4, 7])
        with self.assertRaisesRegex(ValueError, "Input masks must match"):
            a + masked_tensor(DATA, ~MASK)
        chosen = torch.where(DATA > 2, a, masked_tensor(DATA, ~MASK))
        self.assertEqual(chosen.get_mask().tolist(), [[False, True, True], [False, False, True]])

    def test_reductions_skip_masked_elements(self):
        for device in DEVICES:
            a = masked_tensor(DATA.to(device), MASK.to(device))
            for name, all_of, rows, columns in (
                    ("sum", 10, [4, 6], [1, 9]), ("mean", 10 / 3, [2, 6], [1, 4.5]), ("prod", 18, [3, 6], [1, 18]), ("amax", 6, [3, 6], [1, 6]),
                    ("amin", 1, [1, 6], [1, 3]), ("argmax", 5, [2, 2], [0, 1]), ("argmin", 0, [0, 2], [0, 0]), ("norm", 46**0.5, [10**0.5, 6], [1, 45**0.5])):
                with self.subTest(name):
                    call = getattr(torch, name)
                    self.assertAlmostEqual(call(a).item(), all_of, 5)
                    for got, wanted in ((call(a, dim=1), rows), (call(a, dim=0, keepdim=True), columns)):
                        torch.testing.assert_close(got.get_data()[got.get_mask()].double().cpu(), torch.tensor(wanted, dtype=torch.float64), rtol=1e-6, atol=0)
                    self.assertEqual(call(a, dim=0, keepdim=True).get_mask().tolist(), [[True, False, True]])
            self.assertEqual(both(a.sum((0, 1))), ([10], True))
            self.assertAlmostEqual(a.std().item(), (57 / 9) ** 0.5, 5)
            self.assertEqual(a.var(1, False).get_data().tolist(), [1, 0])
            self.assertEqual((both((a > 1).all(1)), both((a > 1).any(1))), (([False, True], [True] * 2), ([True, True], [True] * 2)))
            torch.testing.assert_close(torch.softmax(a, 1).to_tensor(0).cpu(), torch.tensor([[0.119203, 0, 0.880797], [0, 0, 1]]))
            self.assertEqual(both(torch.cumsum(a, 1))[0], [1, 4, 6])
            nothing = masked_tensor(DATA, torch.zeros_like(MASK)).sum(1)
            self.assertEqual(repr(nothing), "MaskedTensor(\n  [      --,       --]\n)")

    def test_moves_take_the_mask_with_them(self):
        a = masked_tensor(DATA, MASK)
        for call in (lambda t: t[0], lambda t: t[:, 1:], lambda t: t.t(), lambda t: t.mT, lambda t: t.permute(1, 0), lambda t: t.view(3, 2), lambda t: t[None],
                     lambda t: t.expand(4, 2, 3), lambda t: torch.cat([t, t]), lambda t: torch.stack((t, t)), lambda t: t.flip(0), lambda t: t.roll(1),
                     lambda t: t.repeat(2, 1), lambda t: t.flatten(), lambda t: t.diagonal(), lambda t: t[torch.tensor([1, 0])],
                     lambda t: t.gather(1, torch.tensor([[0], [1]])), lambda t: t.split(1)[1], lambda t: t.unbind()[0], lambda t: list(t)[1]):
            got = call(a)
            self.assertEqual((got.get_data().tolist(), got.get_mask().tolist()), (call(DATA).tolist(), call(MASK).tolist()))

    def test_gradients_are_zero_at_masked_elements(self):
        x = torch.tensor([0.0, 4.0], requires_grad=True)
        mask = x > 0
        torch.sqrt(as_masked_tensor(x, mask)).sum().backward()
        self.assertEqual(x.grad.tolist(), [0, 0.25])
        w = torch.tensor([3.0], requires_grad=True)
        (as_masked_tensor(torch.tensor([float("inf"), 2.0]), mask) * w).sum().backward()
        self.assertEqual(w.grad.tolist(), [2])
        y = masked_tensor(DATA, MASK, requires_grad=True)
        (y * y).sum().backward()
        self.assertTrue(is_masked_tensor(y.grad))
        self.assertEqual(both(y.grad), ([2, 6, 12], MASK.tolist()))

    def test_texts(self):
        self.assertEqual(repr(masked_tensor(DATA, MASK)), "MaskedTensor(\n  [\n    [  1.0000,       --,   3.0000],\n    [      --,       --,   6.0000]\n  ]\n)")
        self.assertEqual(repr(masked_tensor(DATA[0].int(), MASK[0])), "MaskedTensor(\n  [1,       --, 3]\n)")
        self.assertEqual([repr(masked_tensor(DATA[0, i], MASK[0, i])) for i in (0, 1)], ["MaskedTensor(  1.0000, True)", "MaskedTensor(--, False)"])
        self.assertEqual(repr(masked_tensor(torch.zeros(0), torch.zeros(0, dtype=torch.bool))), "MaskedTensor(\n  []\n)")
        self.assertEqual(repr(masked_tensor(torch.tensor([325509.59375, 1.0]), torch.tensor([True, False]))), "MaskedTensor(\n  [325509.5938,          --]\n)")

    def test_copies_and_files(self):
        a, file = masked_tensor(DATA, MASK, requires_grad=True), io.BytesIO()
        torch.save(a, file)
        file.seek(0)
        for found in (copy.deepcopy(a), torch.load(file, weights_only=False)):
            self.assertEqual((both(found), found.requires_grad), (both(a), True))
        shared = as_masked_tensor(DATA, MASK)
        self.assertEqual((shared.data_ptr(), shared.get_mask() is MASK), (DATA.data_ptr(), True))
        self.assertNotEqual(a.data_ptr(), DATA.data_ptr())
        for device in DEVICES:
            moved = a.to(device)
            self.assertEqual({moved.device.type, moved.get_mask().device.type}, {device})

    def test_errors(self):
        for data, mask, kind, text in (
                (DATA, MASK.int(), TypeError, "mask must have dtype bool."), (DATA, MASK[0], ValueError, r"data.dim\(\) must equal mask.dim\(\)"),
                (DATA, MASK[:, :2], ValueError, r"data.size\(\) must equal"), ([1.0], MASK, TypeError, "data must be a Tensor"), (DATA, None, TypeError, "mask must be"),
                (masked_tensor(DATA, MASK), MASK, TypeError, "data must be a Tensor"), (DATA.byte(), MASK, TypeError, "torch.uint8 is not supported in MaskedTensor."),
                (DATA.bfloat16(), MASK, TypeError, "torch.bfloat16 is not supported")):
            for call in (masked_tensor, as_masked_tensor, MaskedTensor):
                with self.assertRaisesRegex(kind, text):
                    call(data, mask)
        a = masked_tensor(DATA, MASK)
        with self.assertRaisesRegex(ValueError, "a masked element has no value"):
            a[0, 1].item()
        for call in (lambda: a @ a.t(), lambda: a.tolist(), lambda: a.numpy(), lambda: torch.sort(a), lambda: a.__setitem__(0, 1), lambda: torch.mm(DATA, a.t())):
            with self.assertRaisesRegex(TypeError, "MaskedTensor"):
                call()
        with self.assertRaisesRegex(TypeError, "all tensors must be masked tensors"):
            torch.cat([a, DATA])

    def test_reflected_operators(self):
        a, i = masked_tensor(DATA, MASK), masked_tensor(DATA.long(), MASK)
        for name, x in (*((name, a) for name in "add sub mul truediv floordiv mod pow".split()), *((name, i) for name in "and or xor lshift rshift".split())):
            call = getattr(operator, name + "_" * (name in ("and", "or")))
            got, wanted = call(6, x), call(6, x.get_data())
            self.assertEqual((type(got), both(got)), (MaskedTensor, both(masked_tensor(wanted, MASK))), name)
            self.assertEqual(both(getattr(x, f"__r{name}__")(6)), both(got), name)
        self.assertEqual(both(a.__rdiv__(6))[0], [6, 2, 1])

    def test_gradients_of_masked_leaves(self):
        a, b = masked_tensor(DATA, MASK, requires_grad=True), torch.ones(2, 3, requires_grad=True)
        for inputs in a, [a], {"a": a}:
            found = torch.autograd.grad((a * a).sum(), inputs, create_graph=True)
            grad = found["a"] if isinstance(inputs, dict) else found[0]
            self.assertEqual((type(grad), both(grad)), (MaskedTensor, ([2, 6, 12], MASK.tolist())))
        self.assertEqual(both(torch.autograd.grad(grad.sum(), a)[0])[0], [2, 2, 2])
        mixed = torch.autograd.grad((a * b).sum(), (a, b))
        self.assertEqual([type(grad) for grad in mixed], [MaskedTensor, torch.Tensor])
        self.assertEqual(both(torch.autograd.grad(a.exp(), a, masked_tensor(DATA * 0, MASK))[0])[0], [0, 0, 0])

    def test_vmap_keeps_the_mask(self):
        a = masked_tensor(DATA, MASK)
        for call, wanted in ((torch.sum, torch.sum(a, 1)), (lambda x: x * 2, a * 2), (lambda x: x, a), (lambda x: x.var(unbiased=False), a.var(1, unbiased=False))):
            got = torch.vmap(call)(a)
            self.assertEqual((type(got), both(got)), (MaskedTensor, both(wanted)))
        self.assertEqual(both(torch.vmap(torch.sum, in_dims=1)(a)), both(a.sum(0)))
        self.assertEqual(both(torch.vmap(lambda x: x * 2, in_dims=1, out_dims=1, chunk_size=2)(a)), both(a * 2))
        self.assertEqual(both(torch.vmap(lambda x, m: masked_tensor(x, m).sum())(DATA, MASK)), both(a.sum(1)))
        self.assertEqual(both(torch.vmap(lambda x: a[0] * x)(torch.tensor([1.0, 2.0]))), ([1, 3, 2, 6], [MASK[0].tolist()] * 2))
        self.assertEqual(both(torch.vmap(lambda tree: tree["a"].sum())({"a": a})), both(a.sum(1)))
        for call in (torch.func.grad(torch.sum), lambda a: torch.func.jvp(torch.sum, (a,), (a,)), torch.func.jacrev(torch.sum)):
            with self.assertRaisesRegex(NotImplementedError, "gradients with respect to a MaskedTensor are not supported"):
                call(a)

    def test_gradients_are_zero_at_masked_elements_of_any_value(self):
        nan, inf = float("nan"), float("inf")
        mask = torch.tensor([[True, False, True], [False] * 3])
        for name, args in (*((name, (1,)) for name in "var std mean prod logsumexp softmax log_softmax softmin cumsum cumprod".split()), ("norm", (2.0, 1)), ("normalize", (2.0, 1))):
            for value in nan, inf, -inf, 5.0:
                x = torch.tensor([[1.0, value, 3.0], [value] * 3], requires_grad=True)
                made = getattr(torch.masked, name)(x, *args, mask=mask)
                made.backward(torch.ones_like(made))
                self.assertEqual(x.grad[~mask].abs().tolist(), [0] * 4, (name, value))
                self.assertTrue(x.grad[mask].isfinite().all(), (name, value))

if __name__ == "__main__":
    unittest.main()
