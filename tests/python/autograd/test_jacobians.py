# SPDX-License-Identifier: Apache-2.0
"""torch.func.jvp, linearize, jacrev, jacfwd, hessian and stack_module_state: results, compared with PyTorch if installed, and its errors."""
import unittest
import warnings

import phlox
from peer import NOT_NEWEST, newest

torch = phlox
X = torch.tensor([1., 2.])


def made(torch, *shape):
    """Distinct float64 values that are neither 0 nor an integer."""
    count = torch.zeros(shape, dtype=torch.float64).numel()
    return (torch.arange(count, dtype=torch.float64).reshape(shape) * .37).sin() * .8 + 1.3


def change_in_place(x):
    y = x * 0
    y[0] = x[1] * 2
    y[1:] += x[:2]
    return y.mul_(x)


def cases(torch):
    """Maps a name to a call in the given library."""
    f, func = torch.nn.functional, torch.func
    jvp, grad, vmap, jacrev, jacfwd, hessian = func.jvp, func.grad, func.vmap, func.jacrev, func.jacfwd, func.hessian
    x, matrix, rows = made(torch, 3), made(torch, 3, 3), made(torch, 4, 3)
    curve = lambda x: (matrix @ x).tanh() * x.sum()
    number = lambda x: (x ** 3).sum() * x.prod()
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2)).double()
    with torch.no_grad():
        for p in net.parameters(): p.copy_(made(torch, *p.shape))
    weights = {name: p.detach() for name, p in net.named_parameters()}
    outer = torch.tensor(2., dtype=torch.float64, requires_grad=True)
    complex_x = torch.complex(x, x.flip(0))
    return {
        "tangents of tangents": lambda: jvp(lambda x: jvp(curve, (x,), (x * 3,))[1], (x,), (x * 2,)),
        "gradients of tangents": lambda: grad(lambda x: jvp(curve, (x,), (rows[0],))[1].sum())(x),
        "tangents of gradients": lambda: jvp(grad(number), (x,), (x * 2,)),
        "tangents within a mapping": lambda: vmap(lambda x: jvp(curve, (x,), (x.cos(),)))(rows),
        "mapped tangents": lambda: vmap(lambda t: jvp(curve, (x,), (t,))[1])(rows),
        "tangents through a mapping": lambda: jvp(vmap(curve), (rows,), (rows * 2,)),
        "of complex numbers": lambda: torch.view_as_real(jvp(lambda z: z * z.exp() + z.conj(), (complex_x,), (complex_x * 2j,))[1]),
        "a linear map of many": lambda: vmap(func.linearize(curve, x)[1])(rows),
        "forward and forward": lambda: jacfwd(jacfwd(number))(x),
        "reverse and reverse": lambda: jacrev(jacrev(number))(x),
        "reverse and forward": lambda: jacrev(jacfwd(number))(x),
        "forward and reverse": lambda: jacfwd(jacrev(lambda x: f.gelu(x).sum() * x.norm() + x.var()))(x),
        "third derivatives": lambda: jacfwd(hessian(number))(x),
        "a Hessian of each": lambda: vmap(hessian(number))(rows),
        "a Jacobian of each": lambda: (vmap(jacfwd(curve))(rows), vmap(jacrev(curve))(rows)),
        "two arguments": lambda: hessian(lambda x, y: (x * y ** 2).sum(), argnums=(0, 1))(x, x + 1),
        "containers": lambda: jacfwd(lambda d: {"a": d["x"] * d["y"], "b": (d["x"].sum(), d["y"])})({"x": x, "y": x + 1}),
        "containers in reverse": lambda: jacrev(lambda d: {"a": d["x"] * d["y"], "b": (d["x"].sum(), d["y"])})({"x": x, "y": x + 1}),
        "a net by its weights": lambda: jacfwd(lambda w: func.functional_call(net, w, (rows,)))(weights),
        "a net by its input": lambda: (jacfwd(net)(x), jacrev(net)(x), hessian(lambda x: net(x).sum())(x)),
        "a loss": lambda: hessian(lambda x: f.cross_entropy(x, torch.tensor([0, 1, 2, 0])))(rows),
        "changes in place": lambda: (jacfwd(change_in_place)(x), jacrev(change_in_place)(x), jvp(change_in_place, (x,), (x * 2,))),
        "changes in place of each": lambda: (vmap(jacrev(change_in_place))(rows), vmap(jacfwd(change_in_place))(rows)),
        "rows of some at a time": lambda: [jacrev(lambda x: (x.exp(), x.sum() * x), chunk_size=n)(x) for n in (1, 2, 4, 9)],
        "an extreme": lambda: jacfwd(lambda x: torch.stack([x.max(), x.min(), x.sort()[0][1]]))(x),
        "sums in turn": lambda: jacfwd(lambda x: x.cumsum(0).cumprod(0))(x),
        "a system": lambda: jacfwd(lambda m: torch.linalg.solve(m, x))(matrix + 4 * torch.eye(3, dtype=torch.float64)),
        "history outside": lambda: [torch.autograd.grad(j(lambda x: ((x * outer) ** 3).sum())(x).sum(), outer) for j in (jacfwd, jacrev, hessian)],
        "nothing": lambda: (jacfwd(lambda x: x)(x[:0]), jacrev(lambda x: x)(x[:0])),
        "models as one": lambda: vmap(lambda w, b, x: func.functional_call(net, (w, b), (x,)), (0, 0, None))(*func.stack_module_state([net, net]), rows),
    }


class Jacobians(unittest.TestCase):
    def raises(self, kind, text, call):
        with self.assertRaises(kind) as caught:
            call()
        self.assertIn(text, str(caught.exception))

    @unittest.skipIf(newest is None, NOT_NEWEST)
    def test_results_match_pytorch(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = cases(newest)
            for name, ours in cases(phlox).items():
                with self.subTest(name):
                    mine, peers = phlox.utils._pytree.tree_leaves(ours()), newest.utils._pytree.tree_leaves(theirs[name]())
                    assert len(mine) == len(peers)
                    for a, b in zip(mine, peers):
                        assert a.shape == tuple(b.shape) and a.requires_grad == b.requires_grad, (a, b)
                        assert torch.allclose(a, torch.tensor(b.tolist(), dtype=torch.float64).reshape(a.shape), rtol=1e-9, atol=1e-12), (a, b)

    def test_every_op_has_batching_rule(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # no fallback to one call per batch index
            for name, ours in cases(phlox).items():
                with self.subTest(name): ours()

    def test_jvp(self):
        value, change = torch.func.jvp(lambda x, y: {"a": x * y, "b": x.sum()}, (X, X), (X, torch.ones(2)))
        assert torch.equal(value["a"], X * X) and torch.equal(change["a"], X * X + X) and change["b"] == 3
        assert not value["a"].requires_grad and not change["a"].requires_grad
        assert torch.func.jvp(lambda x: (x * x, "beside"), (X,), (X,), has_aux=True)[2] == "beside"

    def test_jvp_of_independent_output(self):
        for f in (lambda x: torch.ones(3), lambda x: x.detach(), lambda x: x > 0):
            value, change = torch.func.jvp(f, (X,), (X,))
            assert torch.equal(change, torch.zeros_like(value))
            self.raises(RuntimeError, "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed with "
                        "strict=True.", lambda: torch.func.jvp(f, (X,), (X,), strict=True))

    def test_linearize_does_not_rerun_function(self):
        runs = []
        value, push = torch.func.linearize(lambda x: runs.append(x) or (x * x, 7), X)
        assert torch.equal(value[0], X * X) and value[1] == 7
        for k in 1, 2:
            assert torch.equal(push(X * k)[0], 2 * k * X * X)
        assert len(runs) == 1

    def test_randomness(self):
        noisy = lambda x: x * torch.rand(2)
        self.raises(RuntimeError, "vmap: called random operation while in randomness error mode.", lambda: torch.func.jacfwd(noisy)(X))
        for f in torch.func.jacfwd(noisy, randomness="same"), torch.func.jacrev(noisy):
            assert (f(X).diagonal() > 0).all() and f(X).triu(1).sum() == 0

    def test_devices(self):
        for device in ["cuda"] if torch.cuda.is_available() else []:
            x = X.to(device)
            assert torch.equal(torch.func.jacfwd(torch.square)(x).cpu(), (2 * X).diag())
            assert torch.equal(torch.func.hessian(lambda x: x.pow(3).sum())(x).cpu(), (6 * X).diag())

    def test_stack_module_state(self):
        a, b = torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2)
        weights, buffers = torch.func.stack_module_state([a, b])
        assert list(weights) == ["weight", "bias"] and list(buffers) == ["running_mean", "running_var", "num_batches_tracked"]
        assert weights["weight"].shape == (2, 2) and weights["weight"].is_leaf and weights["weight"].requires_grad
        assert not buffers["running_var"].requires_grad
        stack = torch.func.stack_module_state
        self.raises(RuntimeError, "stack_module_state: Expected at least one model, got 0.", lambda: stack([]))
        self.raises(RuntimeError, "stack_module_state: Expected all models to have the same training/eval mode.", lambda: stack([a, torch.nn.BatchNorm1d(2).eval()]))
        self.raises(RuntimeError, "stack_module_state: Expected all models to be of the same class.", lambda: stack([a, torch.nn.ReLU()]))
        b.weight.requires_grad_(False)
        self.raises(RuntimeError, "Expected weight from each model to have the same .requires_grad", lambda: stack([a, b]))

    def test_vmap_batch_norm_without_running_stats(self):
        net = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
        assert torch.func.replace_all_batch_norm_modules_(net) is net
        assert net[0].running_mean is None and not net[0].track_running_stats
        x = torch.rand(4, 5, 3)
        assert torch.allclose(torch.vmap(net)(x), torch.stack([net(rows) for rows in x]), atol=1e-6)

    def test_errors_match_pytorch(self):
        jvp, of, prefix = torch.func.jvp, lambda *tangents: torch.func.jvp(torch.square, (X,), tangents), "jvp(f, primals, tangents): "
        self.raises(RuntimeError, "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. "
                    "Tensor is of size [2] while the given forward gradient is of size [3].", lambda: of(torch.ones(3)))
        self.raises(NotImplementedError, "a tangent of dtype float64 for a tensor of dtype float32 is not implemented", lambda: of(X.double()))
        self.raises(ValueError, "Expected tangent to be floating point or complex, but got: torch.int64", lambda: of(X.long()))
        self.raises(ValueError, "Expected primal to be floating point or complex, but got: torch.int64", lambda: jvp(torch.square, (X.long(),), (X,)))
        self.raises(RuntimeError, prefix + "Expected primals to be a tuple. E.g. it should be valid to call f(*primals).", lambda: jvp(torch.square, X, X))
        self.raises(RuntimeError, prefix + "Expected primals and tangents to have the same python structure.", lambda: of(X, X))
        self.raises(RuntimeError, prefix + "Expected primals to only contain Tensors, got <class 'float'>", lambda: jvp(torch.square, (3.,), (X,)))
        self.raises(RuntimeError, prefix + "Expected primals to contain at least one Tensor.", lambda: jvp(torch.square, (), ()))
        self.raises(RuntimeError, prefix + "expected f(*primals) to return only tensors, got unsupported type <class 'int'>", lambda: jvp(lambda x: 3, (X,), (X,)))
        self.raises(RuntimeError, prefix + "Expected f to be a function that has non-empty output (got output = [None])", lambda: jvp(lambda x: None, (X,), (X,)))
        self.raises(RuntimeError, prefix + "output of function f should be a tuple: (output, aux) if has_aux is True", lambda: jvp(torch.square, (X,), (X,), has_aux=True))
        push = torch.func.linearize(torch.square, X)[1]
        self.raises(RuntimeError, "tangent:0 with shape torch.Size([3]) in flattened pytree doesn't match the shape torch.Size([2]) of the corresponding "
                    "primal.", lambda: push(torch.ones(3)))
        self.raises(RuntimeError, "tangent:0 with dtype torch.float64 in flattened pytree doesn't match", lambda: push(X.double()))
        self.raises(RuntimeError, "to have the same argspec as the primals", lambda: push(X, X))
        self.raises(ValueError, "jacrev: `chunk_size` should be greater than 0.", lambda: torch.func.jacrev(torch.square, chunk_size=0))
        for name in "jacrev", "jacfwd":
            j = getattr(torch.func, name)
            self.raises(RuntimeError, f"{name}: Expected all inputs to be real but received complex tensor at flattened input idx: 0", lambda: j(torch.square)(X * 1j))
            self.raises(RuntimeError, f"{name}: Expected all outputs to be real but received complex tensor", lambda: j(lambda x: x * 1j)(X))
            self.raises(RuntimeError, "Got argnum=1, but only 1 positional inputs", lambda: j(torch.square, argnums=1)(X))
            self.raises(RuntimeError, "argnums elements must be unique, got (0, 0)", lambda: j(torch.mul, argnums=(0, 0))(X, X))


if __name__ == "__main__":
    unittest.main()
