# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.forward_ad: tangents of dual tensors and ops; forward mode in autograd.functional and gradcheck."""
import unittest

import phlox
from peer import NOT_NEWEST, newest

torch = phlox


def cases(torch):
    """Maps a name to a function, called inside a dual level, that returns a (primal, tangent) pair or a dual tensor."""
    fw = torch.autograd.forward_ad
    x, v = (torch.tensor(values, dtype=torch.float64) for values in ([1., 2., 3.], [.5, -1., 2.]))
    dual = lambda: fw.make_dual(x.clone(), v.clone())
    leaf = lambda: x.clone().requires_grad_()

    def unrecorded():
        with torch.no_grad():
            y = dual() ** 2
            y[1:].add_(y[:2].clone())
            return y.mul_(2)

    def changed():
        d = dual()
        d[1:].mul_(3)
        view = d[0]
        d.add_(d.clone().detach() * d.clone())
        return torch.cat([d, view[None]])

    def filled():
        y = torch.zeros(3, dtype=torch.float64)
        y[0] = dual()[1]
        y[1:].copy_(dual()[:2] * 2)
        return y

    def over_reverse():
        w = leaf()
        d = fw.make_dual(w, v)
        return torch.autograd.grad((d ** 3).sum(), w)[0]

    def under_reverse(by):
        w, t = leaf(), v.clone().requires_grad_()
        change = fw.unpack_dual((fw.make_dual(w, t) ** 3).sum()).tangent
        return change.detach(), torch.autograd.grad(change, by(w, t))[0]

    def parts():
        w = leaf()
        primal, tangent = fw.unpack_dual(fw.make_dual(w, v) ** 2)
        assert fw.unpack_dual(primal).tangent is None and fw.unpack_dual(tangent).tangent is None
        return torch.autograd.grad(primal.sum(), w)[0], tangent.detach()

    def modified_leaf():
        w = leaf()
        with torch.no_grad():
            w.add_(1)
            return fw.make_dual(w, v) * w

    def required():
        d = dual().requires_grad_()
        y = (d ** 2).sum()
        y.backward()
        return d.grad.detach(), fw.unpack_dual(y).tangent.detach()

    return {
        "a product": lambda: dual() * x * dual(),
        "while nothing is recorded": unrecorded,
        "changes in place, and of views": changed,
        "what was constant": filled,
        "what is overwritten": lambda: dual().zero_(),
        "a constant": lambda: dual() * dual().detach(),
        "forward over reverse": over_reverse,
        "reverse over forward, by the tensor": lambda: under_reverse(lambda w, t: w),
        "reverse over forward, by the tangent": lambda: under_reverse(lambda w, t: t),
        "parts": parts,
        "leaves, while nothing is recorded": modified_leaf,
        "a variable of both modes": required,
        "complex numbers": lambda: torch.view_as_real(fw.make_dual(torch.complex(x, v), torch.complex(v, x)) ** 2),
        "choices": lambda: torch.where(dual() > 1, dual() * 2, 0.),
        "gradients of functions": lambda: torch.func.grad(lambda x: (x ** 3).sum())(dual()),
        "mappings": lambda: torch.vmap(lambda x: x * x)(dual()),
    }


class DualTensors(unittest.TestCase):
    def raises(self, kind, text, call):
        with self.assertRaises(kind) as caught:
            call()
        self.assertIn(text, str(caught.exception))

    def made(self, torch, case):
        with torch.autograd.forward_ad.dual_level():
            got = case()
            pair = torch.autograd.forward_ad.unpack_dual(got) if isinstance(got, torch.Tensor) else got
            return [part.detach().tolist() for part in pair]

    @unittest.skipIf(newest is None, NOT_NEWEST)
    def test_tangents_match_pytorch(self):
        theirs = cases(newest)
        for name, ours in cases(phlox).items():
            with self.subTest(name):
                for a, b in zip(self.made(phlox, ours), self.made(newest, theirs[name])):
                    assert torch.allclose(torch.tensor(a), torch.tensor(b)), (a, b)

    def test_every_case_has_tangent(self):
        for name, ours in cases(phlox).items():
            with self.subTest(name): assert len(self.made(phlox, ours)) == 2

    def test_dual_tensor_shares_memory_and_requires_no_grad(self):
        fw, x = torch.autograd.forward_ad, torch.ones(2)
        with fw.dual_level():
            d = fw.make_dual(x, torch.tensor([1., 2.]))
            y = (d * 3).sum()
            assert not d.requires_grad and d.is_leaf and not y.requires_grad and y.is_leaf
            d.mul_(2)
            assert torch.equal(x, torch.full((2,), 2.)) and fw.unpack_dual(x).tangent is None
            assert fw.unpack_dual(d).tangent.tolist() == [2., 4.] and fw.unpack_dual(y).tangent == 9
            self.raises(RuntimeError, "does not require grad", y.backward)

    def test_tangent_ends_with_level(self):
        fw = torch.autograd.forward_ad
        with fw.dual_level():
            d = fw.make_dual(torch.ones(2), torch.ones(2)) * 2
        assert fw.unpack_dual(d).tangent is None and not (d * 2).requires_grad
        with fw.dual_level():
            assert not fw.unpack_dual(d.add_(1) * torch.ones(2)).tangent.any()

    def test_dual_level_as_decorator(self):
        fw = torch.autograd.forward_ad

        @fw.dual_level()
        def change(): return fw.unpack_dual(fw.make_dual(torch.tensor(3.), torch.tensor(1.)) ** 2).tangent
        assert change() == 6 and change() == 6

    def test_custom_functions_use_backward(self):
        fw, F = torch.autograd.forward_ad, torch.autograd.Function

        class Square(F):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, grad): return 2 * ctx.saved_tensors[0] * grad

        class Once(Square):
            backward = staticmethod(torch.autograd.function.once_differentiable(Square.backward))

        class Apart(Square):
            @staticmethod
            def backward(ctx, grad): return torch.tensor((6 * grad).tolist())
        with fw.dual_level():
            d = fw.make_dual(torch.tensor(3.), torch.tensor(1.))
            assert fw.unpack_dual(Square.apply(d)).tangent == 6
            self.raises(NotImplementedError, "forward mode through a backward that is once_differentiable", lambda: fw.unpack_dual(Once.apply(d)))
            self.raises(NotImplementedError, "its backward is not differentiable", lambda: fw.unpack_dual(Apart.apply(d)))
        assert torch.func.jvp(Square.apply, (torch.tensor(3.),), (torch.tensor(1.),))[1] == 6

    def test_no_grad_region_differs_between_jacfwd_and_jacrev(self):
        def f(x):
            with torch.no_grad(): c = x ** 2
            return x - c
        x = torch.tensor([1., 2.])
        assert torch.equal(torch.func.jacfwd(f)(x), (1 - 2 * x).diag())
        assert torch.equal(torch.func.jacrev(f)(x), torch.eye(2))

    def test_devices(self):
        fw = torch.autograd.forward_ad
        for device in ["cuda"] if torch.cuda.is_available() else []:
            with fw.dual_level():
                d = fw.make_dual(torch.ones(2, device=device), torch.tensor([1., 2.], device=device))
                assert fw.unpack_dual((d ** 3).cpu()).tangent.tolist() == [3., 6.]

    def test_errors_match_pytorch(self):
        fw, x = torch.autograd.forward_ad, torch.ones(2)
        self.raises(RuntimeError, "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first.",
                    lambda: fw.make_dual(x, x))
        self.raises(RuntimeError, "Dual level must be a positive number.", fw.exit_dual_level)
        assert fw.unpack_dual(x) == (x, None) and fw.enter_dual_level() == 0
        try:
            self.raises(RuntimeError, "Nested forward mode AD is not supported at the moment", fw.enter_dual_level)
            self.raises(RuntimeError, "Trying to exit a forward AD level that was not the last one that was created.", lambda: fw.exit_dual_level(level=3))
            self.raises(RuntimeError, "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not supported.",
                        lambda: fw.make_dual(fw.make_dual(x, x), x))
            self.raises(RuntimeError, "Tensor is of size [2] while the given forward gradient is of size [3].", lambda: fw.make_dual(x, torch.ones(3)))
            self.raises(ValueError, "Expected primal to be floating point or complex, but got: torch.int64", lambda: fw.make_dual(x.long(), x))
            self.raises(ValueError, "Expected tangent to be floating point or complex, but got: torch.int64", lambda: fw.make_dual(x, x.long()))
            self.raises(NotImplementedError, "a tangent of dtype float64 for a tensor of dtype float32 is not implemented", lambda: fw.make_dual(x, x.double()))
            self.raises(RuntimeError, "Invalid level given to _make_dual", lambda: fw.make_dual(x, x, level=3))
        finally:
            fw.exit_dual_level()

    def test_forward_mode_jacobian_and_hessian(self):
        jacobian, hessian = torch.autograd.functional.jacobian, torch.autograd.functional.hessian
        x, forward = torch.tensor([1., 2.]), {"vectorize": True, "strategy": "forward-mode"}
        both = lambda x, y: (x * y, x.sum())
        for inputs, f in (x, torch.square), ((x, x + 1), both):
            ours, theirs = (torch.utils._pytree.tree_leaves(jacobian(f, inputs, **how)) for how in (forward, {}))
            assert len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))
        assert torch.equal(hessian(torch.prod, x, vectorize=True, outer_jacobian_strategy="forward-mode"), torch.tensor([[0., 1.], [1., 0.]]))
        self.raises(NotImplementedError, "only implemented for `vectorize=True`.", lambda: jacobian(torch.square, x, strategy="forward-mode"))
        self.raises(RuntimeError, '`strict=True` and `strategy="forward-mode"` are not supported together (yet).', lambda: jacobian(torch.square, x, strict=True, **forward))
        self.raises(NotImplementedError, '`create_graph=True` and `strategy="forward-mode"` are not supported together', lambda: jacobian(torch.square, x, create_graph=True, **forward))

    def test_gradients_of_a_plain_backward_pass_have_tangents(self):
        F, fw, gru = phlox.nn.functional, phlox.autograd.forward_ad, phlox.nn.GRU(4, 4).double()
        functions = {
            "layer_norm": lambda x: F.layer_norm(x, (4,)), "group_norm": lambda x: F.group_norm(x, 2), "gru": lambda x: gru(x)[0],
            "batch_norm": lambda x: F.batch_norm(x, None, None, training=True), "cross_entropy": lambda x: F.cross_entropy(x, phlox.arange(4)),
            "attention": lambda x: F.scaled_dot_product_attention(x, x, x), "prod": lambda x: phlox.prod(x, 0), "det": phlox.linalg.det,
            "solve": lambda x: phlox.linalg.solve(x, x[0]), "cumprod": lambda x: phlox.cumprod(x, 0)}
        v = phlox.arange(16, dtype=phlox.float64).reshape(4, 4).cos()
        for name, function in functions.items():
            with self.subTest(name):
                x = (phlox.arange(16, dtype=phlox.float64) ** 2).sin().reshape(4, 4).requires_grad_()
                with fw.dual_level():
                    dual = fw.make_dual(x, v)
                    gradient, = phlox.autograd.grad((function(dual)**2).sum(), dual)
                    primal, tangent = fw.unpack_dual(gradient)
                first, = phlox.autograd.grad((function(x)**2).sum(), x, create_graph=True)
                second, = phlox.autograd.grad((first * v).sum(), x)
                self.assertTrue(phlox.allclose(primal, first) and phlox.allclose(tangent, second))
                self.assertFalse(gradient.requires_grad or tangent.requires_grad)

    def test_gradcheck_forward_mode(self):
        class Wrong(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * 2

            @staticmethod
            def backward(ctx, grad): return grad * 3
        x = torch.tensor([1., 2.], dtype=torch.float64, requires_grad=True)
        check = torch.autograd.gradcheck
        assert check(lambda x: (x ** 3, x.sum()), x, check_forward_ad=True) and check(torch.sin, x, check_forward_ad=True, check_backward_ad=False)
        assert check(lambda z: z * z.conj() * z, torch.complex(x, x).detach().requires_grad_(), check_forward_ad=True)
        assert torch.autograd.gradgradcheck(lambda x: x ** 3, x, check_fwd_over_rev=True)
        self.raises(RuntimeError, "Jacobian computed with forward mode mismatch for output 0 with respect to input 0,\nnumerical:",
                    lambda: check(Wrong.apply, x, check_forward_ad=True, check_backward_ad=False))
        self.raises(AssertionError, "Expected at least one of check_forward_ad or check_backward_ad to be True", lambda: check(torch.sin, x, check_backward_ad=False))


if __name__ == "__main__":
    unittest.main()
