# SPDX-License-Identifier: Apache-2.0
"""torch.vmap: functions of one sample applied to batches, gradients inside and outside of it, and its errors."""
import gc, itertools, math, unittest, warnings

import phlox as torch
from phlox import vmap

F = torch.nn.functional


def raises(kind, call, text):
    try:
        call()
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"no {kind.__name__}: {text}")


def loop(function, *args):
    return torch.stack([function(*each) for each in zip(*args)])


def gradient(function):
    """Gradient of a scalar function of one tensor, for use inside and outside of vmap."""
    def of(x, *rest):
        x = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
        return torch.autograd.grad(function(x, *rest), x, create_graph=True)[0]
    return of


# Indices of a matrix by integers of each sample: k a number, j a vector.
INTEGER_INDICES = {
    "k": lambda k, j: k, "k, :": lambda k, j: (k, slice(None)), "..., k": lambda k, j: (..., k), ":, k": lambda k, j: (slice(None), k),
    "k, 1": lambda k, j: (k, 1), "1, k": lambda k, j: (1, k), "k, k": lambda k, j: (k, k), "k, None": lambda k, j: (k, None),
    "None, k": lambda k, j: (None, k), "k, 1:": lambda k, j: (k, slice(1, None)), "1:, k": lambda k, j: (slice(1, None), k),
    "j": lambda k, j: j, ":, j": lambda k, j: (slice(None), j), "j, j": lambda k, j: (j, j), "j, k": lambda k, j: (j, k),
    "k, j": lambda k, j: (k, j), "-k - 1": lambda k, j: -k - 1, "int32 k": lambda k, j: k.int(), "[k, k]": lambda k, j: [k, k],
    "k, shared": lambda k, j: (k, torch.tensor([0, 2])), "shared, k": lambda k, j: (torch.tensor(1), k),
}
# Masks of each sample, which one number fills.
MASKS = {
    "x > 5": lambda x: x > 5, "rows": lambda x: x[:, 0] > 4, ":, columns": lambda x: (slice(None), x[0] > 5), "..., columns": lambda x: (..., x[0] > 5),
    "0, columns": lambda x: (0, x[0] > 5), "bytes": lambda x: (x > 5).byte(), "one for all": lambda x: x.sum() > 100,
}
# Factories of a tensor that is batched. Their results are batched, too, so a sample may be written to them.
FACTORIES = {
    "new_zeros": lambda x: x.new_zeros(x.shape), "new_ones": lambda x: x.new_ones(*x.shape), "new_empty": lambda x: x.new_empty(x.shape),
    "new_full": lambda x: x.new_full(x.shape, 3.0), "new_empty_strided": lambda x: x.new_empty_strided(x.shape, x.stride()),
    "new": lambda x: x.new(x.shape), "zeros_like": torch.zeros_like, "ones_like": torch.ones_like, "empty_like": torch.empty_like,
    "full_like": lambda x: torch.full_like(x, 3.0), "rand_like": torch.rand_like, "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 3), "clone": torch.clone,
}


# Composites that read integers of each sample, as functions of a floating-point tensor and integers.
def of_bags(mode):
    return lambda w, k: F.embedding_bag(k, w, mode=mode).sin().sum()


READERS = {
    "embedding_bag": (of_bags("mean"), (5, 4), [[[0, 1], [2, 2]], [[1, 4], [3, 0]], [[0, 0], [1, 1]]]),
    "embedding_bag of maxima": (of_bags("max"), (5, 4), [[[0, 1], [2, 2]], [[1, 4], [3, 0]], [[0, 0], [1, 1]]]),
    "offsets": (lambda w, k: F.embedding_bag(torch.tensor([0, 3, 1]), w, k, mode="sum").sin().sum(), (5, 4), [[0, 1], [0, 2], [0, 0]]),
    "targets of ctc_loss": (lambda w, k: F.ctc_loss(w, k, (5, 4), (2, 1)), (5, 2, 3), [[[1, 2], [2, 1]], [[1, 1], [2, 2]], [[2, 2], [1, 2]]]),
    "lengths of ctc_loss": (lambda w, k: F.ctc_loss(w, torch.tensor([[1, 2], [2, 1]]), torch.tensor([5, 4]), k), (5, 2, 3), [[2, 1], [1, 2], [2, 2]]),
    "sparse softmax": (lambda w, k: torch._C._sparse_softmax(k, w, (3, 3, 4), 1).sin().sum(), (2, 4), [[[0, 0], [0, 1]], [[1, 2], [0, 0]], [[1, 1], [0, 2]]]),
    "embedding": (lambda w, k: F.embedding(k, w, padding_idx=1).sin().sum(), (5, 4), [[0, 1], [1, 4], [2, 2]]),
    "index": (lambda w, k: w[k].sin().sum(), (5, 4), [[0, 1], [1, 4], [2, 2]]),
    "index_put": (lambda w, k: torch.index_put(w, (k,), w[:1] * 2).sin().sum(), (5, 4), [[0, 1], [1, 4], [2, 2]]),
}


class ReadersOfIntegers(unittest.TestCase):
    def check(self, what, found, wanted):
        with self.subTest(what):
            self.assertTrue(torch.allclose(found(), wanted()))

    def each(self, function, w, k, of_each):
        return [function(w[i] if of_each else w, k[i]) for i in range(len(k))]

    def test_gradients_in_all_nestings(self):
        grad, jvp = torch.func.grad, torch.func.jvp
        for (name, (value, sizes, integers)), of_each in itertools.product(READERS.items(), (False, True)):
            one, k = torch.arange(math.prod(sizes), dtype=torch.float64).reshape(sizes).cos(), torch.tensor(integers)
            w, dims = (torch.stack([one, one * 1.5, one - 0.3]), (0, 0)) if of_each else (one, (None, 0))
            tangent = lambda w, k: jvp(lambda w: value(w, k), (w,), (w.cos(),))[1]
            second = lambda w, k: grad(lambda w: (grad(value)(w, k) * w.cos().detach()).sum())(w)
            for what, f in (("value", value), ("grad", grad(value)), ("jvp", tangent), ("grad of grad", second)):
                self.check((name, of_each, what), lambda: vmap(f, dims)(w, k), lambda: torch.stack(self.each(f, w, k, of_each)))
            for what, f in (("value", value), ("grad", grad(value))):
                self.check((name, of_each, f"grad of vmap of {what}"), lambda: grad(lambda w: vmap(f, dims)(w, k).sin().sum())(w),
                           lambda: grad(lambda w: torch.stack(self.each(f, w, k, of_each)).sin().sum())(w))
            flipped = torch.stack([k, k.flip(0)])
            self.check((name, of_each, "outer map of integers"), lambda: vmap(vmap(grad(value), dims), (None, 0))(w, flipped),
                       lambda: torch.stack([torch.stack(self.each(grad(value), w, k, of_each)) for k in flipped]))
            scaled = lambda scale: grad(lambda w, k: value(w * scale, k))
            scales = torch.tensor([1.0, 2.0], dtype=torch.float64)
            self.check((name, of_each, "outer map of numbers"), lambda: vmap(lambda scale: vmap(scaled(scale), dims)(w, k))(scales),
                       lambda: torch.stack([torch.stack(self.each(scaled(scale), w, k, of_each)) for scale in scales]))

    def test_no_samples(self):
        raises(NotImplementedError, lambda: vmap(READERS["embedding_bag"][0], (None, 0))(torch.ones(5, 4), torch.zeros(0, 2, 2, dtype=torch.int64)),
               "vmap: embedding_bag of indices of no samples is not implemented")


class Detached(unittest.TestCase):
    CASES = {"detach": lambda y: y.detach() * y, "detach_": lambda y: (y * 1).detach_() * y, "data": lambda y: y.data * y,
             "no_grad": lambda y: torch.no_grad()(lambda: y * 1)() * y, "nested": lambda y: vmap(lambda z: z.detach())(y[None])[0] * y}

    def test_no_gradient_at_outer_levels(self):
        x = torch.tensor([2.0, 3.0])
        for name, function in self.CASES.items():
            with self.subTest(name):
                batch = lambda x: vmap(function)(x).sum()
                self.assertEqual(torch.func.grad(batch)(x).tolist(), [2, 3])
                if name != "no_grad":  # does not concern forward mode
                    self.assertEqual(torch.func.jvp(batch, (x,), (torch.ones(2),))[1].tolist(), 5)
                leaf = x.clone().requires_grad_()
                batch(leaf).backward()
                self.assertEqual(leaf.grad.tolist(), [2, 3])


class Indexing(unittest.TestCase):
    x = torch.arange(24.0).reshape(2, 3, 4)
    k, j = torch.tensor([0, 2]), torch.tensor([[0, 1], [2, 0]])

    def test_integers_of_each_sample_are_read(self):
        for name, index in INTEGER_INDICES.items():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a list of tensors is an old form of a tuple
                read = lambda x, k, j: x[index(k, j)]
                self.assertTrue(torch.equal(vmap(read)(self.x, self.k, self.j), loop(read, self.x, self.k, self.j)))
                shared = lambda k, j: self.x[1][index(k, j)]
                self.assertTrue(torch.equal(vmap(shared)(self.k, self.j), loop(shared, self.k, self.j)))

    def test_integers_of_each_sample_are_written(self):
        for name, index in INTEGER_INDICES.items():
            if "None" in name:
                continue
            for value in (9, 9.5, torch.tensor(7.0)):
                with self.subTest(name, value=value), warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)

                    def write(x, k, j):
                        x = x.clone()
                        x[index(k, j)] = value
                        return x
                    self.assertTrue(torch.equal(vmap(write)(self.x, self.k, self.j), loop(write, self.x, self.k, self.j)))

    def test_batches_may_be_empty(self):
        def write(x, k, j, index):
            x = x.clone()
            x[index(k, j)] = 1.0
            x[x > 5] = 0.0
            return x
        full, empty = (self.x, self.k, self.j), (self.x[:0], self.k[:0], self.j[:0])
        for name, index in INTEGER_INDICES.items():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                read = lambda x, k, j: x[index(k, j)]
                self.assertEqual(vmap(read)(*empty).shape, (0, *vmap(read)(*full).shape[1:]))
                if "None" not in name:
                    self.assertEqual(vmap(lambda x, k, j: write(x, k, j, index))(*empty).shape, (0, 3, 4))
        self.assertEqual(vmap(lambda x: x[torch.tensor([True, False, True])])(self.x[:0]).shape, (0, 2, 4))

    def test_values_of_each_sample_are_written(self):
        def write(x, k, row):
            x = x.clone()
            x[k] = row
            x[..., k] += row[0]
            return x.index_put((k,), row.sum())
        rows = torch.arange(8.0).reshape(2, 4)
        self.assertTrue(torch.equal(vmap(write)(self.x, self.k, rows), loop(write, self.x, self.k, rows)))

    def test_results_of_argmax_and_sort_are_indices(self):
        for pick in (lambda r: r[r.argmax()], lambda r: r[r.argsort(descending=True)], lambda r: r[r.max(0).indices]):
            rows = torch.tensor([[1.0, 3.0, 2.0], [6.0, 4.0, 5.0]])
            self.assertTrue(torch.equal(vmap(pick)(rows), loop(pick, rows)))

    def test_nested_maps(self):
        pick = lambda x, k: x[k]
        inner = vmap(lambda k: vmap(pick, in_dims=(0, None))(self.x, k))(self.k)
        self.assertTrue(torch.equal(inner, torch.stack([self.x[:, 0], self.x[:, 2]])))
        self.assertTrue(torch.equal(vmap(vmap(pick))(self.x, torch.ones(2, 3, dtype=torch.int64)), self.x[:, :, 1]))

    def test_gradients_inside_and_outside(self):
        square = lambda x, k: (x[k] ** 2).sum()
        inside = vmap(torch.func.grad(square))(self.x, self.k)
        outside = torch.func.grad(lambda x: vmap(square)(x, self.k).sum())(self.x)
        self.assertTrue(torch.equal(inside, outside) and torch.equal(inside, loop(torch.func.grad(square), self.x, self.k)))

        def clear(x, k):
            x = x * x
            x[k] = 0.0
            x[x > 100] = 1.0
            return x.sum()
        self.assertTrue(torch.equal(vmap(torch.func.grad(clear))(self.x, self.k), loop(torch.func.grad(clear), self.x, self.k)))

    def test_index_out_of_bounds(self):
        with self.assertRaisesRegex(IndexError, "index 3 is out of bounds for dimension 1 with size 3"):
            vmap(lambda x, k: x[k])(self.x, torch.tensor([0, 3]))
        with self.assertRaisesRegex(IndexError, "too many indices for tensor of dimension 2"):
            vmap(lambda x, k: x[k, k, k])(self.x, self.k)
        with self.assertRaisesRegex(IndexError, "tensors used as indices must be long, int, byte or bool tensors"):
            vmap(lambda x, k: x[k])(self.x, self.k.float())
        with self.assertRaisesRegex(RuntimeError, r"^vmap: index_put_\(self, \*extra_args\) is not possible because there exists a Tensor `other`"):
            vmap(lambda k: self.x.clone().__setitem__(k, 9))(self.k)

    def test_masks_of_each_sample_are_filled(self):
        for name, mask in MASKS.items():
            for value in (0, 0.5, True):
                with self.subTest(name, value=value):
                    def fill(x):
                        x = x.clone()
                        x[mask(x)] = value
                        return x
                    if name != "one for all":
                        self.assertTrue(torch.equal(vmap(fill)(self.x), loop(fill, self.x)))
                    else:
                        self.assertEqual(vmap(fill)(self.x)[:, 0, 0].tolist(), [0.0, float(value)])

    def test_masks_of_each_sample_cannot_be_read(self):
        for call in (lambda x: x[x > 5], lambda x: x.clone().__setitem__(x > 5, torch.ones(2)), lambda x, k=torch.tensor(0): x[k, x[0] > 1]):
            with self.assertRaisesRegex(RuntimeError, "batching operators that can support dynamic shape"):
                vmap(call)(self.x)
        with self.assertRaisesRegex(IndexError, r"The shape of the mask \[2\] at index 0 does not match the shape of the indexed tensor \[3, 4\] at index 0"):
            vmap(lambda x, m: x.clone().__setitem__(m, 0.0))(self.x, torch.ones(2, 2, dtype=torch.bool))

    def test_samples_are_written_to_factories(self):
        for name, make in FACTORIES.items():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("error")

                def write(x):
                    made = make(x)
                    made.copy_(x)
                    made[0] = x[1, 2]
                    made.mul_(x)
                    return made
                self.assertTrue(torch.equal(vmap(write, randomness="different")(self.x), loop(write, self.x)))

    def test_factories_without_the_batched_tensor_refuse(self):
        for make in (lambda x: torch.zeros(3, 4), lambda x: x.new_tensor([[0.0] * 4] * 3)):
            with self.assertRaisesRegex(RuntimeError, r"^vmap: copy_\(self, \*extra_args\) is not possible"):
                vmap(lambda x: make(x).copy_(x))(self.x)


calls = []


class Product(torch.autograd.Function):
    """a * b and a + 1, with a rule of its own for batches."""
    @staticmethod
    def forward(a, b):
        return a * b, a + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad, other):
        a, b = ctx.saved_tensors
        return grad * b + other, grad * a

    @staticmethod
    def vmap(info, in_dims, a, b):
        calls.append((info.batch_size, info.randomness, in_dims))
        a, b = (t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0) for t, dim in zip((a, b), in_dims))
        return Product.apply(a, b), (0, 0)


def with_rule(rule, **values):
    """A Function that doubles, with the given vmap."""
    return type("Doubled", (torch.autograd.Function,), {
        "forward": staticmethod(lambda a: a * 2), "setup_context": staticmethod(lambda ctx, inputs, output: None),
        "backward": staticmethod(lambda ctx, grad: grad * 2), "vmap": staticmethod(rule), **values})


class FunctionRules(unittest.TestCase):
    x = torch.arange(6.0).reshape(3, 2)

    def setUp(self):
        calls.clear()

    def test_rule_gets_sizes_and_dimensions(self):
        x = self.x
        for in_dims, args, dims in ((0, (x, x), (0, 0)), ((0, None), (x, x[0]), (0, None)), ((None, 0), (x[0], x), (None, 0)), ((1, 0), (x.t(), x), (0, 0))):
            calls.clear()
            product, sums = vmap(Product.apply, in_dims=in_dims, randomness="same")(*args)
            a, b = (t.t() if d == 1 else t for t, d in zip(args, (in_dims, in_dims) if in_dims == 0 else in_dims))
            self.assertTrue(torch.equal(product, a * b) and torch.equal(sums, (a + 1).expand(3, 2)))
            self.assertEqual(calls, [(3, "same", dims)])

    def test_rule_is_skipped_without_batched_arguments(self):
        result = vmap(lambda a: Product.apply(self.x, self.x)[0] + a)(torch.zeros(2))
        self.assertEqual((result.shape, calls), ((2, 3, 2), []))

    def test_nested_maps_call_the_rule_for_each_level(self):
        x = self.x[None]
        self.assertTrue(torch.equal(vmap(vmap(Product.apply))(x, x)[0], x * x))
        self.assertEqual([call[0] for call in calls], [3, 1])
        table = vmap(lambda a: vmap(lambda b: Product.apply(a, b)[0])(self.x))(self.x)
        self.assertTrue(torch.equal(table, self.x[:, None] * self.x))

    def test_gradients_inside_and_outside(self):
        x, first = self.x, lambda a, b: Product.apply(a, b)[0].sum()
        self.assertTrue(torch.equal(vmap(torch.func.grad(first))(x, x), x))
        self.assertTrue(torch.equal(torch.func.grad(lambda a: vmap(first)(a, x).sum())(x), x))
        leaf = x.clone().requires_grad_()
        vmap(Product.apply)(leaf, x)[1].sum().backward()
        self.assertTrue(torch.equal(leaf.grad, torch.ones_like(x)))

    def test_results_of_a_rule(self):
        for rule, want in ((lambda info, dims, a: (a * 2, 0), self.x * 2), (lambda info, dims, a: ((a * 2).t(), 1), self.x * 2),
                           (lambda info, dims, a: ((a * 2).t(), -1), self.x * 2), (lambda info, dims, a: (a[0] * 2, None), (self.x[0] * 2).expand(3, 2)),
                           (lambda info, dims, a: ((a * 2, a[1]), (0, None)), self.x * 2)):
            got = vmap(with_rule(rule).apply)(self.x)
            self.assertTrue(torch.equal(got[0] if isinstance(got, tuple) else got, want))

    def test_errors_of_rules(self):
        two = "^Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible with the output. Got "
        for rule, values, text in ((lambda info, dims, a: a, {}, two + "a <class 'torch.Tensor'> instead"), (lambda info, dims, a: (a, 0, 0), {}, two + "3 returns"),
                                   (lambda info, dims, a: (a, (0, 0)), {}, r"returned an incompatible \(output, out_dims\) tuple. Expected out_dims=\(0, 0\)"),
                                   (lambda info, dims, a: (a, 0), {"generate_vmap_rule": True}, "has both generate_vmap_rule=True and an overridden vmap"),
                                   (lambda info, dims, a: (a, 0), {"setup_context": None}, "must override the setup_context staticmethod")):
            with self.assertRaisesRegex(RuntimeError, text):
                vmap(with_rule(rule, **values).apply)(self.x)
        with self.assertRaisesRegex(NotImplementedError, "either override the vmap staticmethod or set generate_vmap_rule=True"):
            torch.autograd.Function.vmap(None, None)
        self.assertEqual(torch._C._vmap_depth(), 0)

    def test_maps_continue_after_an_error_of_a_rule(self):
        def fails(info, dims, a):
            raise KeyError("mine")

        def caught(a):
            with self.assertRaises(KeyError):
                with_rule(fails).apply(a)
            return a * 2
        self.assertTrue(torch.equal(vmap(caught)(self.x), self.x * 2))


class BatchedGradients(unittest.TestCase):
    def setUp(self):
        self.x = torch.arange(3.0, requires_grad=True)
        self.grad = lambda y, x, flow, **options: torch.autograd.grad(y, x, flow, is_grads_batched=True, **options)

    def test_first_dimension_is_a_batch(self):
        x = self.x
        self.assertEqual(self.grad(x ** 2, x, torch.eye(3))[0].tolist(), torch.diag(2 * x).tolist())
        self.assertEqual(self.grad((x ** 2).sum(), x, torch.tensor([1.0, 2.0]))[0].tolist(), [[0, 2, 4], [0, 4, 8]])
        both, = self.grad([x ** 2, x * 3], x, [torch.eye(3), torch.ones(3, 3)])
        self.assertEqual(both.tolist(), (torch.diag(2 * x) + 3).tolist())

    def test_results_are_differentiable(self):
        jacobian, = self.grad(self.x ** 3, self.x, torch.eye(3), create_graph=True)
        self.assertEqual(torch.autograd.grad(jacobian.sum(), self.x)[0].tolist(), (6 * self.x).tolist())

    def test_hooks_and_devices(self):
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            x = torch.arange(3.0, device=device, requires_grad=True)
            y = x * x
            y.register_hook(lambda grad: grad * 2)
            self.assertEqual(self.grad(y, x, torch.eye(3, device=device))[0].tolist(), torch.diag(4 * x).tolist())

    def test_unused_inputs(self):
        other = torch.ones(1, requires_grad=True)
        self.assertIsNone(self.grad(self.x * 2, (self.x, other), torch.eye(3), allow_unused=True)[1])
        self.assertEqual(self.grad(self.x * 2, (self.x, other), torch.eye(3), materialize_grads=True)[1].tolist(), [0.0])

    def test_graph_is_freed_unless_retained(self):
        y = self.x.exp()
        self.grad(y, self.x, torch.eye(3), retain_graph=True), self.grad(y, self.x, torch.eye(3))
        with self.assertRaisesRegex(RuntimeError, "second time"):
            self.grad(y, self.x, torch.eye(3))
        self.assertEqual(torch._C._vmap_depth(), 0)

    def test_shape_errors(self):
        y = self.x * 2
        for flow, kind, text in ((None, RuntimeError, "^grad can be implicitly created only for scalar outputs$"), (torch.tensor(1.0), IndexError, "^invalid index of a 0-dim"),
                                 (torch.ones(0, 3), IndexError, "^index 0 is out of bounds for dimension 0 with size 0$"),
                                 (torch.ones(2, 2), RuntimeError, r"grad_output\[0\] has a shape of torch.Size\(\[2, 2\]\) and output\[0\] has a shape of torch.Size\(\[3\]\)")):
            with self.assertRaisesRegex(kind, text):
                self.grad(y, self.x, flow)
        with self.assertRaisesRegex(ValueError, r"^vmap: Expected all tensors to have the same size in the mapped dimension, got sizes \[3, 2\]"):
            self.grad([y, y], self.x, [torch.eye(3), torch.ones(2, 3)])

    def test_gradcheck_compares_batches(self):
        x = torch.rand(2, 2, dtype=torch.float64, requires_grad=True)
        for function in (torch.sin, lambda x: x @ x.t(), lambda x: x.view(-1)[1:], lambda x: (x * 2, x.exp())):
            self.assertTrue(torch.autograd.gradcheck(function, (x,), check_batched_grad=True, check_forward_ad=True, check_batched_forward_grad=True))
        self.assertTrue(torch.autograd.gradgradcheck(torch.sin, (x,), check_batched_grad=True))
        reads = with_rule(lambda info, dims, a: (a * 2, 0), backward=staticmethod(lambda ctx, grad: grad * 2 + 0 * grad.sum().item()))
        with self.assertRaisesRegex(torch.autograd.gradcheck.__globals__["GradcheckError"], "^While computing batched gradients, got: vmap"):
            torch.autograd.gradcheck(reads.apply, (x,), check_batched_grad=True)
        self.assertFalse(torch.autograd.gradcheck(reads.apply, (x,), check_batched_grad=True, raise_exception=False))
        with self.assertRaisesRegex(AssertionError, "check_batched_forward_grad=True requires check_forward_ad to be True"):
            torch.autograd.gradcheck(torch.sin, (x,), check_batched_forward_grad=True)

    def test_gradcheck_finds_wrong_batches(self):
        class Wrong(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * (3 if torch._C._vmap_depth() else 2)
        with self.assertRaisesRegex(RuntimeError, "^For output 0 and input 0:"):
            torch.autograd.gradcheck(Wrong.apply, (torch.rand(2, dtype=torch.float64, requires_grad=True),), check_batched_grad=True)


class Lifetimes(unittest.TestCase):
    def test_transforms_leave_no_cycles(self):
        func, x = torch.func, torch.arange(6.0).reshape(3, 2)
        square = lambda t: (t * t).sum()
        leaf = torch.ones(3, requires_grad=True)
        transforms = {
            "vmap": lambda: vmap(square)(x), "vmap of a mask": lambda: vmap(lambda t: t.clone().__setitem__(t > 2, 0.0) or t)(x),
            "vmap of a rule": lambda: vmap(Product.apply)(x, x), "grad": lambda: func.grad(square)(x), "vmap of grad": lambda: vmap(func.grad(square))(x),
            "grad of vmap": lambda: func.grad(lambda t: vmap(square)(t).sum())(x), "vjp": lambda: func.vjp(torch.sin, x)[1](x),
            "jvp": lambda: func.jvp(torch.sin, (x,), (x,)), "jacrev": lambda: func.jacrev(torch.sin)(x), "jacfwd": lambda: func.jacfwd(torch.sin)(x),
            "hessian": lambda: func.hessian(square)(x), "grads of a batch": lambda: torch.autograd.grad(leaf ** 2, leaf, torch.eye(3), is_grads_batched=True),
        }
        self.addCleanup(gc.enable)
        for name, transform in transforms.items():
            with self.subTest(name):
                transform()
                gc.collect()
                gc.disable()
                transform()
                self.assertEqual(gc.collect(), 0)


class IndexPut(unittest.TestCase):
    def test_zero_dim_indices(self):
        zeros, one, five = torch.zeros(2, 3), torch.tensor(1), torch.tensor(5.0)
        for indices, want in (((one,), [[0] * 3, [5] * 3]), ((one, torch.tensor(-1)), [[0] * 3, [0, 0, 5]]),
                              ((one, torch.tensor([0, 2])), [[0] * 3, [5, 0, 5]]), ([one], [[0] * 3, [5] * 3])):
            self.assertEqual(zeros.index_put(indices, five).tolist(), want)
            self.assertEqual(zeros.clone().index_put_(indices, five, accumulate=True).tolist(), want)

    def test_indices_must_be_tensors(self):
        for indices, name in (((None, torch.tensor([1])), "NoneType"), ((1,), "int"), ((slice(None),), "slice")):
            with self.assertRaisesRegex(TypeError, f"^expected Tensor as element 0 in argument 0, but got {name}$"):
                torch.zeros(2, 3).index_put(indices, torch.tensor(5.0))

    def test_masked_index_without_a_dimension(self):
        x, mask = torch.arange(6.0).reshape(2, 3), torch.tensor([True, False])
        picked = torch._unsafe_masked_index(x, mask, (None, torch.tensor([2, 9])), 0.0)
        self.assertEqual(picked.tolist(), [[2.0, 0.0], [5.0, 0.0]])


class Vmap(unittest.TestCase):
    def test_function_of_row(self):
        x, y = torch.rand(5, 3), torch.rand(5, 3)
        assert torch.equal(vmap(torch.mul)(x, y), x * y)
        assert torch.allclose(vmap(torch.dot)(x, y), (x * y).sum(1))
        assert torch.func.vmap is vmap

    def test_in_dims_and_out_dims(self):
        x = torch.rand(2, 3, 4)
        assert torch.equal(vmap(lambda row: row * 2, in_dims=1, out_dims=2)(x), (x * 2).movedim(1, 2))
        assert torch.equal(vmap(lambda row: row, in_dims=-1, out_dims=-1)(x), x)
        a, b = vmap(lambda d, s: (d["a"] + s, d["b"]), in_dims=({"a": 0, "b": None}, None),
                    out_dims=(0, None))({"a": x, "b": x[0]}, 1)
        assert torch.equal(a, x + 1) and b is x[0] or torch.equal(b, x[0])

    def test_named_tuples_are_kept(self):
        x = torch.rand(5, 3)
        most = vmap(lambda row: row.max(0))(x)
        assert type(most) is torch.return_types.max and torch.equal(most.values, x.amax(1)) and torch.equal(most.indices, x.argmax(1))
        values, order = vmap(torch.sort, out_dims=1)(x)
        assert torch.equal(values, x.sort(1).values.t()) and torch.equal(order, x.argsort(1).t())
        assert torch.utils._pytree.tree_map(lambda t: t + 1, x.max(0)).indices.equal(x.argmax(0) + 1)

    def test_batched_arguments_need_one_call(self):
        x, y = torch.rand(4, 3), torch.rand(4, 3)
        tall, right = torch.rand(2, 4, 3), torch.rand(4, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # no warning of a performance drop
            assert torch.equal(vmap(torch.complex, (0, None))(x, y[0]), torch.complex(x, y[0].expand(4, 3)))
            assert torch.equal(vmap(lambda row: torch.isin(row, y))(x), torch.isin(x, y))
            assert torch.allclose(vmap(lambda a: torch.linalg.lstsq(a, right).solution)(tall), torch.linalg.lstsq(tall, right.expand(2, 4, 2)).solution)

    def test_nested(self):
        x, y = torch.arange(3.), torch.arange(4.)
        table = vmap(vmap(torch.mul, in_dims=(None, 0)), in_dims=(0, None))(x, y)
        assert torch.equal(table, x[:, None] * y)

    def test_chunk_size(self):
        x = torch.rand(7, 3)
        assert torch.equal(vmap(torch.sin, chunk_size=2)(x), x.sin())
        same = vmap(lambda row: row * 0 + torch.rand(3), randomness="same", chunk_size=2)(x)
        assert torch.equal(same, same[:1].expand(7, 3))

    def test_per_sample_gradients(self):
        x, w = torch.rand(5, 3), torch.rand(3)
        loss = lambda w, row: (w * row).sin().sum() ** 2
        got = vmap(gradient(loss), in_dims=(None, 0))(w, x)
        assert torch.allclose(got, torch.stack([gradient(loss)(w, row) for row in x]))
        assert not got.requires_grad

    def test_gradients_outside_and_inside(self):
        x = torch.rand(4, 3, requires_grad=True)
        f = lambda row: (row * row.sin()).sum()
        assert torch.allclose(torch.autograd.grad(vmap(f)(x).sum(), x)[0],
                              torch.autograd.grad(loop(f, x).sum(), x)[0])
        hessian = vmap(gradient(lambda v, u: (gradient(f)(v) * u).sum()), in_dims=(None, 0))
        point = torch.rand(3)
        want = torch.autograd.functional.hessian(f, point)
        assert torch.allclose(hessian(point, torch.eye(3)), want, atol=1e-6)

    def test_per_sample_gradients_of_network(self):
        net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                                  torch.nn.Flatten(), torch.nn.LayerNorm(36), torch.nn.Linear(36, 5))
        params = {name: p.detach() for name, p in net.named_parameters()}
        x, y = torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 2, 3, 4, 0])

        def gradients(params, sample, target):
            own = {name: p.detach().requires_grad_() for name, p in params.items()}
            out = torch.func.functional_call(net, own, (sample.unsqueeze(0),))
            loss = F.cross_entropy(out, target.unsqueeze(0))
            return dict(zip(own, torch.autograd.grad(loss, list(own.values()))))

        with warnings.catch_warnings():
            warnings.simplefilter("error")  # every op has a rule
            got = vmap(gradients, in_dims=(None, 0, 0))(params, x, y)
        for i in range(6):
            for name, want in gradients(params, x[i], y[i]).items():
                assert torch.allclose(got[name][i], want, atol=1e-6), name

    def test_model_ensembling(self):
        models = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
                  for _ in range(5)]
        stacked = {name: torch.stack([m.state_dict()[name] for m in models])
                   for name in models[0].state_dict()}
        x = torch.rand(7, 3)
        call = lambda params, x: torch.func.functional_call(models[0], params, (x,))
        got = vmap(call, in_dims=(0, None))(stacked, x)
        assert torch.allclose(got, torch.stack([m(x) for m in models]), atol=1e-6)

    def test_indexing_and_embedding(self):
        x, i = torch.rand(4, 5, 6), torch.tensor([[0, 2], [1, 1], [4, 0], [3, 3]])
        for f in (lambda t, k: t[k], lambda t, k: t[:, k], lambda t, k: t[k, k],
                  lambda t, k: t[k, :, None], lambda t, k: F.embedding(k, t)):
            assert torch.equal(vmap(f)(x, i), loop(f, x, i))
        put = lambda t, k: t.index_put((k,), torch.ones(6))
        assert torch.equal(vmap(put)(x, i), loop(put, x, i))

    def test_randomness(self):
        x = torch.zeros(4, 3)
        draw = lambda row: row + torch.randn(3)
        raises(RuntimeError, lambda: vmap(draw)(x), "called random operation while in randomness error")
        apart = vmap(draw, randomness="different")(x)
        assert not torch.equal(apart[0], apart[1])
        same = vmap(draw, randomness="same")(x)
        assert torch.equal(same[0], same[1])
        kept = vmap(lambda row: F.dropout(row + 1, 0.5), randomness="same")(torch.zeros(3, 50))
        assert torch.equal(kept[0], kept[2]) and 0 < (kept[0] == 0).sum() < 50
        for device in ["cpu", "cuda:1"] if torch.cuda.device_count() > 1 else ["cpu"]:
            draw_there = lambda row: row + torch.randn(3, device=device)
            same = vmap(draw_there, randomness="same", chunk_size=2)(x.to(device))
            assert torch.equal(same[0], same[3])
        raises(RuntimeError, lambda: vmap(draw, randomness="none"),
               "Only allowed values for randomness are 'error', 'different', or 'same'. Got none")

    def test_in_place(self):
        x = torch.rand(4, 3)
        want = x + 1
        assert torch.equal(vmap(lambda row: row.add_(1))(x), want) and torch.equal(x, want)
        raises(RuntimeError, lambda: vmap(lambda row: torch.zeros(3).add_(row))(x),
               "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a "
               "Tensor `other` in extra_args that has more elements than `self`.")

    def test_unsupported_operations(self):
        x = torch.rand(2, 3)
        for f, text in ((lambda r: r.sum().item(), "vmap over calling .item() on a Tensor"),
                        (lambda r: r if r.sum() > 0 else -r, "data-dependent control flow"),
                        (lambda r: r.numpy(), "Cannot access data pointer of Tensor"),
                        (lambda r: r.tolist(), "Cannot access data pointer of Tensor"),
                        (lambda r: r.nonzero(), "that can output dynamic shape"),
                        (lambda r: r[r > 0], "batch"),
                        (lambda r: r.sum().backward(), "backward() called inside a functorch"),
                        (lambda r: setattr(r, "data", torch.zeros(3)), "mutating directly with `.data`"),
                        (lambda r: torch.add(r, 1, out=torch.zeros(3)), "aten::add.out")):
            raises(RuntimeError, lambda: vmap(f)(x), text)

    def test_dimension_errors(self):
        x = torch.rand(2, 3)
        for call, text in (
                (lambda: vmap(torch.mul, in_dims=(0,))(x, x), "in_dims is not compatible with the "
                 "structure of `inputs`. in_dims has structure TreeSpec(tuple, None, [*]) but"),
                (lambda: vmap(torch.sin, in_dims=5)(x), "Got in_dim=5 for some input, but that input is "
                 "a Tensor of dimensionality 2 so expected in_dim to satisfy -2 <= in_dim < 2."),
                (lambda: vmap(torch.sin, in_dims="a")(x), "expected `in_dims` to be int or a"),
                (lambda: vmap(torch.sin, in_dims=(None,))(x), "Expected at least one Tensor to vmap"),
                (lambda: vmap(lambda x: x)(3), "We cannot vmap over non-Tensor arguments"),
                (lambda: vmap(torch.mul, in_dims=(0, 0.5))(x, x), "Got in_dim=0.5 for an input but"),
                (lambda: vmap(torch.sin)(), "got no inputs."),
                (lambda: vmap(torch.mul)(x, x.t()), "got sizes [2, 3] for the mapped dimension"),
                (lambda: vmap(lambda x: x, out_dims=(0, 1))(x), "out_dims is not compatible"),
                (lambda: vmap(lambda x: x, out_dims="a")(x), "`out_dims` must be an int, None or a"),
                (lambda: vmap(lambda x: x, out_dims=None)(x), "can not return a BatchedTensor when"),
                (lambda: vmap(lambda x: 3)(x), "must only return Tensors, got type <class 'int'>."),
                (lambda: vmap(torch.sin, chunk_size=0)(x), "chunk_size should be None or greater than")):
            raises(ValueError, call, text)
        raises(IndexError, lambda: vmap(lambda x: x, out_dims=7)(x), "Dimension out of range")

    def test_fallback_warns(self):
        x = torch.rand(2, 9)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = vmap(lambda row: torch.histc(row, 4, 0, 1))(x)
        assert torch.equal(got, loop(lambda row: torch.histc(row, 4, 0, 1), x))
        assert "have not yet implemented the batching rule for aten::histc" in str(caught[0].message)

    def test_zero_dim_type_promotion(self):
        numbers, row = torch.rand(4, dtype=torch.float64), torch.rand(3)
        assert vmap(lambda n: n * row)(numbers).dtype == torch.float32

    def test_conjugate_and_negative_views(self):
        x = torch.complex(torch.rand(4, 3), torch.rand(4, 3))
        flags = lambda row: (row.is_conj(), row.conj().is_conj(), row.conj().imag.is_neg(), row.conj().imag.resolve_neg().is_neg())
        seen = []
        for function in (
                lambda row: (seen.append(flags(row)), row.conj())[1],
                lambda row: row.conj() * row[0],
                lambda row: row.conj().conj() + 1,
                lambda row: row.conj().imag,
                lambda row: row.conj().imag.exp(),
                lambda row: row.conj()[1].imag,
                lambda row: row.sum().conj(),
                lambda row: row.conj().resolve_conj(),
                lambda row: row.conj().imag.resolve_neg(),
                lambda row: row.conj().reshape(3, 1).sum(1),
                lambda row: torch.stack([row.conj(), row]),
                lambda row: row.conj().clone(),
                lambda row: row.real + row.imag,
                lambda row: torch.view_as_real(row.resolve_conj()),
                lambda row: torch.view_as_real(row[0].resolve_conj()),
                lambda row: torch.view_as_complex(torch.view_as_real(row.clone()) * 2)):
            expected = loop(function, x)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for dim in (0, 1):
                    got = vmap(function, in_dims=dim)(x.movedim(0, dim).contiguous())
                    assert torch.equal(got, expected), (got, expected)
                    assert torch.equal(got.resolve_conj().resolve_neg(), expected)
                assert torch.equal(vmap(vmap(function))(torch.stack([x, x]))[1], expected)
                assert torch.equal(vmap(function)(x.conj()), loop(function, x.conj().clone()))
        assert set(seen) == {(False, True, True, False), (True, False, False, False)}, set(seen)
        assert vmap(lambda row: row.conj())(x).is_conj()
        raises(RuntimeError, lambda: vmap(lambda row: torch.view_as_real(row.conj()))(x), "unresolved conjugated")
        raises(RuntimeError, lambda: vmap(torch.view_as_complex)(torch.rand(2)), "must have one or more dimensions")

    def test_writes_through_conjugate_views(self):
        def writes(row):
            row = row.clone()
            row.conj()[0] = 1 + 2j
            row.conj()[1:].mul_(2j)
            row.conj().imag[2].add_(3)
            return row

        x = torch.complex(torch.rand(4, 3), torch.rand(4, 3))
        assert torch.equal(vmap(writes)(x), loop(writes, x))

    def test_gradients_of_conjugates(self):
        x = torch.complex(torch.rand(4, 3), torch.rand(4, 3))
        for function in (lambda row: (row.conj() * row * row).sum().real,
                         lambda row: (row.conj().imag * row.real).sum()):
            of = gradient(function)
            expected = loop(of, x)
            assert torch.allclose(vmap(of)(x), expected)
            through = x.clone().requires_grad_()
            vmap(function)(through).sum().backward()
            assert torch.allclose(through.grad, expected)

    def test_repr_of_batched_tensor(self):
        shown = []
        vmap(lambda row: (shown.append(repr(row)), row)[1])(torch.arange(4.).reshape(2, 2))
        assert shown == ["BatchedTensor(lvl=1, bdim=0, value=\n    tensor([[0., 1.],\n            "
                         "[2., 3.]])\n)"]

    def test_index_ops_need_one_call(self):
        rows, index = torch.arange(12.).reshape(3, 4), torch.tensor([2, 0])
        cases = {
            "index_add": lambda x: x.index_add(0, index, x[:2] * 2), "index_copy": lambda x: x.index_copy(0, index, x[1:3]),
            "index_fill": lambda x: x.index_fill(0, index, torch.tensor(7.)), "take": lambda x: torch.arange(20.).take(x.long()),
            "scatter_reduce": lambda x: x.scatter_reduce(0, index, x[:2], "amax"), "bucketize": lambda x: torch.bucketize(x, torch.tensor([2., 7.])),
            "logcumsumexp": lambda x: x.logcumsumexp(0)}
        for name, f in cases.items():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("error")  # no fallback to one call per batch index
                assert torch.equal(torch.vmap(f)(rows), torch.stack([f(row) for row in rows]))

    def test_linalg_and_quantile(self):
        x, q = torch.rand(3, 4, 4, dtype=torch.float64), torch.tensor([[0., 1.], [.25, .5], [.5, .75]], dtype=torch.float64)
        assert torch.allclose(vmap(torch.linalg.eigvals)(x), torch.linalg.eigvals(x))
        values, vectors = vmap(lambda a: tuple(torch.linalg.eig(a)))(x)
        assert torch.allclose(x + 0j, vectors @ values.diag_embed() @ torch.linalg.inv(vectors))
        for f in (torch.quantile, torch.nanquantile):
            assert torch.equal(vmap(f)(x, q), torch.stack([f(a, b) for a, b in zip(x, q)]))
        raises(RuntimeError, lambda: vmap(torch.linalg.eig)(x / 0), "should not contain infs or NaNs")
        raises(RuntimeError, lambda: vmap(torch.quantile)(x, q + 1), "q values must be in the range [0, 1]")

    def test_masked_fill_broadcasts_mask(self):
        row, masks, value = torch.arange(3.), torch.rand(2, 4, 3) > .5, torch.tensor(7.)
        wanted = torch.stack([row.masked_fill(m, value) for m in masks])
        assert torch.equal(vmap(lambda m: row.masked_fill(m, value))(masks), wanted)
        assert torch.equal(vmap(lambda r, m, v: r.masked_fill(m, v))(row.expand(2, 3), masks, value.expand(2)), wanted)

    def test_index_put_on_unbatched_tensor_copies(self):
        x, index, values = torch.zeros(5), torch.tensor([[0, 1], [4, 4]]), torch.tensor([[1., 2.], [3., 4.]])
        put = lambda i, v: torch.index_put(x, (i,), v, accumulate=True)
        wanted = torch.tensor([[1., 2., 0., 0., 0.], [0., 0., 0., 0., 7.]])
        assert torch.equal(vmap(put)(index, values), wanted) and x.sum() == 0
        assert torch.equal(vmap(lambda i: put(i, torch.ones(2)))(index).sum(1), torch.tensor([2., 2.]))
        masks = torch.tensor([[True, True], [False, True]])
        masked = lambda m: torch._unsafe_masked_index_put_accumulate(x, m, (index[0],), values[0])
        assert torch.equal(vmap(masked)(masks), torch.stack([masked(m) for m in masks]))

    def test_batching_rules_do_not_fall_back(self):
        F, x, lines = torch.nn.functional, torch.randn(3, 4, 5, dtype=torch.float64), torch.rand(3, 5).sort().values
        index, image, target = torch.tensor([[2, 0], [1, 1], [3, 2]]), torch.randn(3, 2, 5, 2, 2), torch.randint(0, 5, (3, 2, 2, 2))
        mask, weight, alone = x[0] > 0, torch.rand(3, 5), torch.tensor([[1, 2], [0, 0], [3, 1]])
        cases = {
            "median": (torch.median, x), "searchsorted": (torch.searchsorted, lines, x.float()), "bucketize": (lambda s: torch.bucketize(.3, s), lines),
            "sorter": (lambda s, v, p: torch.searchsorted(s, v, sorter=p, out_int32=True), lines.flip(1), x[:, 0].float(), torch.arange(4, -1, -1).expand(3, 5)),
            "isin": (lambda v: torch.isin(v, 0.5, invert=True), x), "index_select": (lambda a, i: a.index_select(1, i), x, index),
            "index_add": (lambda a, i, s: a.clone().index_add_(0, i, s, alpha=2), x, index, x[:, 1:3]), "index_copy": (lambda a, s, i: a.index_copy(-1, i, s), x, x[..., :2], alone),
            "index_fill": (lambda a, i: a.index_fill(0, i, 7.), x, index), "index_fill of each": (lambda i, v: x[0].index_fill(1, i, v), index, x[:, 0, 0]),
            "mask": (lambda a: a[mask], x), "masks": (lambda a: a[:, mask[0]], x), "mask and index": (lambda a: a[None, mask[:, 0], [1]], x),
            "put by mask": (lambda a: a.index_put((mask,), torch.tensor(1., dtype=a.dtype)), x),
            "masked_select": (lambda a: a.masked_select(mask[0]), x), "fold": (lambda a: F.fold(a, (3, 3), 2), torch.rand(3, 8, 4)), "pinv": (torch.linalg.pinv, x),
            "folds": (lambda a: F.fold(a, (3, 3), 2), torch.rand(3, 2, 8, 4)), "cdist": (torch.cdist, torch.rand(3, 30, 4), torch.rand(3, 30, 4)),
            "scatter": (lambda a, i: a.scatter(0, i[:, None], a[:2], reduce="multiply"), x, index), "batch_norm": (lambda a, m, v: F.batch_norm(a, m, v), x, x[:, 0], weight.double()),
            "trained": (lambda a, w: F.batch_norm(a, None, None, w, training=True), x, x[:, 0]), "instance_norm": (F.instance_norm, image),
            "nll_loss": (lambda a, t, w: F.nll_loss(a, t, w, ignore_index=1), image, target, weight), "places": (lambda a, t: F.nll_loss(a, t, reduction="none"), image, target),
            "one row": (lambda a, t, w: F.nll_loss(a, t, w), weight, target[:, 0, 0, 0], weight.clone()), "cross_entropy": (F.cross_entropy, torch.randn(3, 70, 900), torch.randint(0, 900, (3, 70)))}
        for name, (f, *mapped) in cases.items():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("error")
                torch.testing.assert_close(vmap(f)(*mapped), torch.stack([f(*sample_args) for sample_args in zip(*mapped)]))
                if not mapped[0].is_floating_point() or name in ("searchsorted", "bucketize", "sorter", "isin", "scatter"):
                    continue
                first, *rest = (t.clone().requires_grad_(t.is_floating_point() and t is mapped[0]) for t in mapped)
                wanted, = torch.autograd.grad(torch.stack([f(*sample_args) for sample_args in zip(first, *rest)]).square().sum(), first)
                got, = torch.autograd.grad(vmap(f)(first, *rest).square().sum(), first)
                torch.testing.assert_close(got, wanted)
                torch.testing.assert_close(vmap(torch.func.grad(lambda *a: f(*a).square().sum()))(*mapped), wanted)

    def test_batch_norm_running_statistics(self):
        x, mean, var = torch.randn(3, 4, 5), torch.zeros(3, 5), torch.ones(3, 5)
        norm = lambda a, m, v: torch.nn.functional.batch_norm(a, m, v, training=True)
        wanted = [t.clone() for t in (mean, var)]
        torch.testing.assert_close(vmap(norm)(x, mean, var), torch.stack([norm(*sample_args) for sample_args in zip(x, *wanted)]))
        torch.testing.assert_close((mean, var), tuple(wanted))
        raises(RuntimeError, lambda: vmap(norm, (0, None, None))(x, mean[0], var[0]), "while the running_mean or running_var, which will be updated in place")
        torch.testing.assert_close(mean[0], wanted[0][0])  # unchanged

    def test_data_dependent_sizes_must_agree(self):
        x = torch.tensor([[1, 0, 2], [2, 1, 0]])
        calls = torch.bincount, torch.argwhere, lambda row: torch.nonzero_static(row, size=4)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for f in calls:
                assert torch.equal(vmap(f)(x), torch.stack([f(row) for row in x]))
        assert [str(w.message).split("aten::")[1].split(".")[0] for w in caught] == ["bincount", "argwhere", "nonzero_static"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raises(RuntimeError, lambda: vmap(torch.argwhere)(x * torch.tensor([[1], [0]])), "stack expects each tensor to be equal size, but got [2, 1] at entry 0")
        raises(RuntimeError, lambda: vmap(torch.masked_select)(x, x > 0), "Attempted to vmap over `mask` in torch.masked_select(self, mask)")

    def test_repeat_interleave_with_output_size(self):
        x, repeats = torch.rand(3, 2), torch.tensor([[1, 2], [3, 0], [0, 3]])
        calls = lambda n: torch.repeat_interleave(n, output_size=3), lambda n: x.repeat_interleave(n, 1, output_size=3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for f in calls:
                assert torch.equal(vmap(f)(repeats), torch.stack([f(n) for n in repeats]))
        raises(RuntimeError, lambda: vmap(torch.repeat_interleave)(repeats), "vmapping over the `repeats` tensor requires the `output_size` argument to be specified")
        raises(RuntimeError, lambda: vmap(lambda n: x[0].repeat_interleave(n))(repeats), "vmapping over the `repeats` tensor requires")
        raises(RuntimeError, lambda: vmap(lambda n: torch.repeat_interleave(n, output_size=2))(repeats), "allocated size does not match required size")

    def test_linspace_with_batched_ends(self):
        a, b = torch.tensor([0., 1., 2.]), torch.tensor([1., 5., -3.])
        for line in torch.linspace, lambda *ends, **k: torch.logspace(*ends, **k, base=2):
            calls = [(lambda x, y: line(x, y, 4), a, b), (lambda x: line(x, 3, 4), a), (lambda x: line(3, x, 4), a), (lambda x: line(a[0], x, 4), b),
                     (lambda x, y: line(x, y, 5, dtype=torch.int64), a, b.abs()), (lambda x, y: line(x, y, 1), a.long(), b.long())]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for f, *ends in calls:
                    assert torch.equal(vmap(f)(*ends), torch.stack([f(*sample_args) for sample_args in zip(*ends)]))
        grid = vmap(vmap(lambda x, y: torch.linspace(x, y, 3), (0, None)), (None, 0))(a, b)
        assert torch.equal(grid, torch.stack([torch.stack([torch.linspace(x, y, 3) for x in a]) for y in b]))
        raises(RuntimeError, lambda: vmap(lambda x: torch.linspace(x, 1, -1))(a), "number of steps must be non-negative")

    def test_device(self):
        x = torch.rand(4, 3, device="cuda")
        got = vmap(lambda row: torch.softmax(row, 0) @ torch.ones(3, device="cuda"))(x)
        assert torch.allclose(got.cpu(), torch.ones(4))


if __name__ == "__main__":
    unittest.main()
