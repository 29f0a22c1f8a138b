# SPDX-License-Identifier: Apache-2.0
"""torch.func.grad, grad_and_value and vjp: results, autograd history, and PyTorch's errors."""
import unittest

import phlox as torch
from phlox.func import functional_call, grad, grad_and_value, vjp, vmap

X = torch.tensor([1., 2.])


class Gradients(unittest.TestCase):
    def raises(self, kind, text, call):
        with self.assertRaises(kind) as caught:
            call()
        self.assertIn(text, str(caught.exception))

    def test_argnums(self):
        f = lambda x, y, by=1: (x * x * y * by).sum()
        assert torch.equal(grad(f)(X, X), torch.tensor([2., 8.]))
        assert torch.equal(grad(f, argnums=-1)(X, X, by=2), torch.tensor([2., 8.]))
        both, value = grad_and_value(f, argnums=(0, 1))(X, X)
        assert torch.equal(both[0], 2 * X * X) and torch.equal(both[1], X * X) and value == 9

    def test_container_arguments_and_aux(self):
        grads, aux = grad(lambda d: (d["a"].sum(), "beside"), has_aux=True)({"a": X, "b": X})
        assert torch.equal(grads["a"], torch.ones(2)) and torch.equal(grads["b"], torch.zeros(2)) and aux == "beside"

    def test_independent_inputs_have_zero_gradient(self):
        assert torch.equal(grad(lambda x: x.detach().sum())(X), torch.zeros(2))
        assert torch.equal(grad(lambda x: (x > 0).sum())(X), torch.zeros(2))

    def test_nested_grad(self):
        assert torch.allclose(grad(grad(grad(torch.sin)))(torch.tensor(.5)), -torch.cos(torch.tensor(.5)))
        # The inner variable is distinct from the outer one, which enters as x * 1.
        assert grad(lambda x: x * grad(lambda y: x + y)(torch.tensor(1.)))(torch.tensor(2.)) == 1

    def test_graph_outside_of_grad_is_kept(self):
        w = torch.tensor(2., requires_grad=True)
        got, value = grad_and_value(lambda x: (x * w) ** 2)(torch.tensor(3.))
        assert torch.autograd.grad(got, w, retain_graph=True)[0] == 24 and torch.autograd.grad(value, w)[0] == 36
        assert torch.allclose(torch.autograd.grad(grad(torch.sin)(w), w)[0], -w.sin())
        assert not grad(torch.sin)(w.detach()).requires_grad and w.grad is None
        with torch.no_grad():
            assert grad(torch.square)(w) == 4

    def test_vjp_any_cotangent(self):
        value, of = vjp(lambda x, y: (x * 2, (x * y).sum()), X, X)
        assert torch.equal(value[0], 2 * X) and value[1] == 5 and not value[1].requires_grad
        for _ in range(2):
            x, y = of((X, torch.tensor(1.)))
            assert torch.equal(x, 3 * X) and torch.equal(y, X)
        assert vjp(lambda x: (x, 7), X, has_aux=True)[2] == 7

    def test_devices(self):
        for device in ["cuda"] if torch.cuda.is_available() else []:
            assert torch.equal(grad(lambda x: x.square().sum())(X.to(device)).cpu(), 2 * X)

    def test_per_sample_gradients(self):
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        weights = {name: p.detach() for name, p in net.named_parameters()}
        x, y = torch.randn(5, 3), torch.randint(0, 2, (5,))
        loss = lambda p, x, y: torch.nn.functional.cross_entropy(functional_call(net, p, (x[None],)), y[None])
        got = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
        for name, p in net.named_parameters():
            each = [torch.autograd.grad(torch.nn.functional.cross_entropy(net(x[i:i + 1]), y[i:i + 1]), p)[0] for i in range(5)]
            assert torch.allclose(got[name], torch.stack(each), atol=1e-6)

    def test_errors_match_pytorch(self):
        total = lambda x: x.sum()
        self.raises(RuntimeError, "grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with 1 dims. Maybe you wanted "
                    "to use the vjp or jacrev APIs instead?", lambda: grad(lambda x: x)(X))
        self.raises(RuntimeError, "Expected f(*args) to return a Tensor, got <class 'float'>", lambda: grad(lambda x: 1.)(X))
        self.raises(RuntimeError, "Got argnum=2, but only 1 positional inputs", lambda: grad(total, argnums=2)(X))
        self.raises(RuntimeError, "argnums elements must be unique, got (0, 0)", lambda: grad(total, argnums=(0, 0))(X))
        self.raises(RuntimeError, "argnums must be non-empty", lambda: grad(total, argnums=())(X))
        self.raises(RuntimeError, "argnums must be int or Tuple[int, ...], got: <class 'float'>", lambda: grad(total, argnums=1.)(X))
        self.raises(RuntimeError, "output of function f should be a tuple: (output, aux) if has_aux is True", lambda: grad(total, has_aux=True)(X))
        self.raises(ValueError, "Thing passed to transform API must be Tensor, got <class 'float'>", lambda: grad(total)(3.))
        self.raises(RuntimeError, "expected f(*primals) to return only tensors, got unsupported type <class 'int'>", lambda: vjp(lambda x: 3, X))
        self.raises(RuntimeError, "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function.",
                    lambda: vjp(lambda x: (x, x), X)[1](X))


if __name__ == "__main__":
    unittest.main()
