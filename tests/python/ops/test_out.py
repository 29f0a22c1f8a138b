# SPDX-License-Identifier: Apache-2.0
"""out= of every op that supports it: other dtypes, sizes, layouts and devices, and tensors with requires_grad. Compared with PyTorch if it is
installed."""
import os
import re
import unittest
import warnings

import peer
import phlox
import samples

torch = peer.newest or (peer.installed if peer.VERSION < (2,) else None)  # error texts of versions in between differ

HAS_SAMPLES = os.path.exists(samples.PATH)
DRAWS = re.compile(r"^(normal|bernoulli|empty|rand|multinomial)")  # random results
# Differences from PyTorch: its text, with the reason.
OTHERS = {
    **dict.fromkeys(("addbmm", "addr", "diff", "histc", "inner", "kron", "linear", "logsigmoid", "mvlgamma", "norm"),
                    "PyTorch has the texts, the dtypes and the warnings of the ops that it calls"),
    "lerp": "PyTorch takes no integers, and checks out= by the form of weight",
    "matmul": "PyTorch has the texts, and the warnings, of the products that it calls, and misreads what is laid out by columns",
    "nonzero": "PyTorch lays a new result out by columns",
}
TEXTS = {"floor_divide": "PyTorch's text has another name", "square": "PyTorch's text is that of pow",
         "mv": "PyTorch's text depends on whether out has the right size"}
ROUNDING_DIFFERS = {"logsumexp", "prod"}  # PyTorch rounds intermediate results, or computes in float32
OLD = torch is not None and peer.VERSION < (2,)
FORMS = ("rows", "empty", "columns", "gaps", "larger", "leaf", "history")


def find_function(library, name):
    return getattr(library, name, None) or getattr(library.nn.functional, name, None)


def call(library, name, sample, dtype, out, device="cpu"):
    args, keywords = samples.arguments(library, *sample, dtype, device)
    return find_function(library, name)(*args, **keywords, out=out)


def unsupported_on_gpu(name, sample, dtype, device):
    """True if a GPU does not support the op, with or without out=; as in PyTorch, GPUs have no integer matmul."""
    if device == "cpu" or phlox.cuda._backend_name() != "cuda":
        return False
    args, keywords = samples.arguments(phlox, *sample, dtype, device)
    try:
        find_function(phlox, name)(*args, **keywords)
    except NotImplementedError:
        return True
    return False


def single_result(name, sample, dtype):
    """The result without out= if it is a single tensor and the op supports out=."""
    try:
        args, keywords = samples.arguments(phlox, *sample, dtype)
        made = find_function(phlox, name)(*args, **keywords)
        if not isinstance(made, phlox.Tensor): return None
        call(phlox, name, sample, dtype, phlox.empty(0, dtype=made.dtype))
    except (TypeError, AttributeError, NotImplementedError, RuntimeError, ValueError):
        return None
    return made


def make(library, form, sizes, dtype):
    sizes, kind = tuple(sizes), getattr(library, dtype)
    if form == "empty": return library.zeros(0, dtype=kind)
    if form == "columns": return library.zeros(sizes[::-1], dtype=kind).permute(tuple(range(len(sizes)))[::-1])
    if form == "gaps": return library.zeros(sizes + (2,), dtype=kind)[..., 0]
    if form == "larger": return library.zeros((2,) + sizes, dtype=kind)
    made = library.zeros(sizes, dtype=kind)
    if form in ("leaf", "history"): made.requires_grad_()
    return made * 1 if form == "history" else made


def state(t):
    return str(t.dtype), tuple(t.shape), t.stride(), [round(x, 2) if x == x else None for x in t.detach().double().cpu().flatten().tolist()]


def outcome(library, name, sample, dtype, out):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try: same = call(library, name, sample, dtype, out) is out
        except (RuntimeError, TypeError, IndexError) as error: return type(error).__name__, str(error).splitlines()[0]
    resized = {str(w.message).partition(" (")[0] for w in caught if "was resized" in str(w.message)}
    return (same, *state(out), resized)


def near(name, a, b):
    return len(a) == 6 and len(b) == 6 and name in ROUNDING_DIFFERS and a[:4] == b[:4] and a[5] == b[5] and all(
        abs(x - y) <= 2e-2 * max(1, abs(y)) for x, y in zip(a[4], b[4]))


def cases(draws=False):
    for op, name, sample in samples.samples():
        if bool(DRAWS.match(name)) != draws: continue
        for dtype in ("float32", "int64"):
            made = single_result(name, sample, dtype)
            if made is not None: yield name, sample, dtype, made


@unittest.skipIf(not HAS_SAMPLES, "the samples of the op tables were not generated")
class Out(unittest.TestCase):
    @unittest.skipIf(torch is None, "PyTorch is not installed for this Python")
    def test_every_dtype_and_layout_matches_pytorch(self):
        wrong, compared, seen = [], 0, set()
        for name, sample, dtype, made in cases():
            if name in OTHERS or find_function(torch, name) is None: continue
            if OLD and (name in ("gelu", "avg_pool3d") or name.endswith("_copy")): continue  # PyTorch 1 skips non-contiguous outputs, or broadcasts into out
            own = str(made.dtype).partition(".")[2]
            kinds = ("float64",) if OLD else samples.DTYPES  # exceptions are slow in PyTorch 1
            wanted = [(form, own) for form in FORMS] + [(form, kind) for form in ("rows", "empty", "larger") for kind in kinds if kind != own]
            for form, kind in wanted:
                if form in ("leaf", "history") and "float" not in kind: continue
                theirs, ours = (make(library, form, made.shape, kind) for library in (torch, phlox))
                a, b = (outcome(library, name, sample, dtype, out) for library, out in ((torch, theirs), (phlox, ours)))
                compared += 1
                seen.add(name)
                if a == b or near(name, a, b): continue
                if len(a) == 2 and (OLD or name in TEXTS and len(b) == 2): continue  # PyTorch 1 rejects more
                if form == "history" and len(b) == 2 and "automatic differentiation" in b[1]: continue  # PyTorch writes some of them and loses the graph
                wrong.append(f"{name}({sample[0]}) of {dtype}, out {form} of {kind}:\n  {a}\n  {b}")
        self.assertEqual(wrong, [], "\n".join(wrong))
        self.assertGreater(len(seen), 80)
        self.assertGreater(compared, 1500)

    def test_rejected_out_is_unchanged(self):
        refused = 0
        for name, sample, dtype, made in cases():
            for kind in samples.DTYPES:
                for form in ("rows", "larger"):
                    out = make(phlox, form, made.shape, kind)
                    before = state(out)
                    if len(outcome(phlox, name, sample, dtype, out)) > 2: continue
                    refused += 1
                    self.assertEqual(state(out), before, (name, sample, kind))
        self.assertGreater(refused, 1000)

    def test_every_layout_is_written(self):
        for name, sample, dtype, made in cases():
            for form in ("rows", "empty", "columns", "gaps", "larger"):
                out = make(phlox, form, made.shape, str(made.dtype).partition(".")[2])
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call(phlox, name, sample, dtype, out)
                with self.subTest(name, sample=sample, form=form):
                    self.assertEqual((out.shape, state(out)[3]), (made.shape, state(made)[3]))

    @unittest.skipIf(phlox.cuda.device_count() == 0, "requires a device")
    def test_other_device_is_rejected(self):
        names = set()
        for name, sample, dtype, made in cases():
            if "(" not in sample[0] or name == "full": continue  # a factory uses the device of out
            for device, other in (("cuda", "cpu"), ("cpu", "cuda")):
                if unsupported_on_gpu(name, sample, dtype, device):
                    continue
                out = phlox.zeros(made.shape, dtype=made.dtype, device=other)
                before = state(out)
                with self.subTest(name, sample=sample, device=device):
                    with self.assertRaisesRegex(RuntimeError, "Expected all tensors to be on the same device"):
                        call(phlox, name, sample, dtype, out, device)
                    self.assertEqual(state(out), before)
                names.add(name)
        self.assertGreater(len(names), 80)

    def test_factories_use_dtype_and_device_of_out(self):
        for make in (lambda **k: phlox.zeros(2, 3, **k), lambda **k: phlox.full((2, 3), 7, **k), lambda **k: phlox.eye(2, 3, **k),
                     lambda **k: phlox.arange(6, **k), lambda **k: phlox.linspace(0, 5, 6, **k), lambda **k: phlox.ones(2, 3, **k)):
            for device in ("cpu", "cuda")[:1 + (phlox.cuda.device_count() > 0)]:
                out = phlox.tensor([9, 9], dtype=phlox.int16, device=device)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    warnings.filterwarnings("ignore", "The number of elements in the out tensor of shape \\[2\\] is 2 ")  # from arange
                    self.assertIs(make(out=out), out)
                self.assertEqual((out.tolist(), out.dtype, out.device.type), (make().short().tolist(), phlox.int16, device))
                with self.assertRaisesRegex(RuntimeError, r"^dtype Double does not match dtype of out parameter \(Short\)$"):
                    make(out=out, dtype=phlox.float64)
                if device == "cuda":
                    with self.assertRaisesRegex(RuntimeError, r"^device cpu does not match device of out parameter \(cuda:0\)$"):
                        make(out=out, device="cpu")

    def test_arange_resize_warns(self):
        with self.assertWarnsRegex(UserWarning, r"which does not match the computed number of elements 2\..* shape \(2,\)\.$"):
            phlox.arange(2, out=phlox.ones(3))

    def test_multiple_outputs(self):
        x = phlox.tensor([[3.0, 1.0, 2.0]])
        for op in (lambda **k: phlox.sort(x, **k), lambda **k: phlox.topk(x, 2, **k), lambda **k: phlox.kthvalue(x, 2, **k),
                   lambda **k: phlox.max(x, 1, **k), lambda **k: phlox.min(x, 1, **k), lambda **k: phlox.cummax(x, 1, **k),
                   lambda **k: phlox.median(x, 1, **k), lambda **k: phlox.nanmedian(x, 1, **k), lambda **k: phlox.mode(x, 1, **k)):
            values, indices = phlox.zeros(0), phlox.zeros(0, dtype=phlox.int64)
            got = op(out=(values, indices))
            self.assertTrue(got[0] is values and got[1] is indices)
            self.assertEqual((values.tolist(), indices.tolist()), tuple(t.tolist() for t in op()))
            with self.assertRaisesRegex(RuntimeError, "dtype|type"):
                op(out=(values, phlox.zeros(0, dtype=phlox.int32)))
            for wrong, text in ((values, "must be tuple of Tensors, not Tensor"), ((values,), "expected tuple of 2 elements but got 1"),
                                ([values] * 3, "expected tuple of 2 elements but got 3")):
                with self.assertRaisesRegex(TypeError, text):
                    op(out=wrong)

    def test_dtypes_of_both_outputs_are_checked_first(self):
        texts = {"kthvalue": ("output values must be of same type as input", "output indices must be of scalar type Long"),
                 "mode": ("expected scalar type 'Float' but got 'Double' for values output", "expected scalar type 'Long' but got 'Int' for indices output"),
                 "median": ("Expected tensor for 'values' to have the same type as tensor for argument #2 'self'",
                            "Expected tensor for argument #1 'indices' to have scalar type Long; but got torch.IntTensor")}
        x = phlox.arange(12.).reshape(3, 4)
        for name, (of_values, of_indices) in texts.items():
            call = getattr(phlox, name)
            for dtypes, text in ((phlox.float64, phlox.int64), of_values), ((phlox.float32, phlox.int32), of_indices):
                out = tuple(phlox.full((2,), 7, dtype=dtype) for dtype in dtypes)  # another size than the result
                with self.subTest(name, dtypes=dtypes), self.assertRaisesRegex(RuntimeError, re.escape(text)):
                    call(x, *(2,) * (name == "kthvalue"), dim=1, out=out)
                self.assertEqual([o.tolist() for o in out], [[7, 7]] * 2)
            shared = phlox.zeros(3, dtype=phlox.int64)
            with self.subTest(name, shared=True), self.assertRaisesRegex(RuntimeError, re.escape(of_values).replace("Double", "Long")):
                call(x, *(2,) * (name == "kthvalue"), dim=1, out=(shared, shared))

    def test_output_overlapping_input_of_multi_output_op(self):
        for op in (lambda x, **k: phlox.kthvalue(x, 1, 0, **k), lambda x, **k: phlox.median(x, 0, **k), lambda x, **k: phlox.nanmedian(x, 0, **k)):
            x = phlox.tensor([[3.0, 1.0], [1.0, 2.0]])
            with self.assertRaisesRegex(RuntimeError, "some elements of the input tensor and the written-to tensor refer to a single memory location"):
                op(x, out=(x, phlox.zeros(0, dtype=phlox.int64)))
            self.assertEqual(x.tolist(), [[3, 1], [1, 2]])
        values, _ = phlox.mode(x, 0, out=(x, phlox.zeros(2, dtype=phlox.int64)))
        self.assertTrue(values is x)
        self.assertEqual(x.tolist(), [1, 1])

    def test_output_overlapping_other_inputs(self):
        x, other, where, rows = phlox.arange(9.).reshape(3, 3), phlox.ones(3, 3), phlox.tensor([[0, 1, 2]] * 3), phlox.tensor([2, 0, 1])
        positions, line = phlox.zeros(3, dtype=phlox.int64), where.clone()
        calls = {
            "scatter": lambda: phlox.scatter(other, 0, where, x, out=x), "scatter_add": lambda: phlox.scatter_add(other, 0, where, x, out=x),
            "scatter_reduce": lambda: phlox.scatter_reduce(other, 0, where, x, "sum", out=x), "index_add": lambda: phlox.index_add(other, 0, rows, x, out=x),
            "index_copy": lambda: phlox.index_copy(other, 0, rows, x, out=x), "index_reduce": lambda: phlox.index_reduce(other, 0, rows, x, "prod", out=x),
            "index_reduce_": lambda: x.index_reduce_(0, rows, x, "prod"), "put_": lambda: x.put_(where, x), "addr_": lambda: x.addr_(x[0], x[1]),
            "take": lambda: phlox.take(x, where, out=x), "take by itself": lambda: phlox.take(line, line, out=line),
            "take_along_dim": lambda: phlox.take_along_dim(x, where, 0, out=x), "cross": lambda: phlox.cross(x, other, dim=1, out=x),
            "linalg.cross": lambda: phlox.linalg.cross(other, x, out=x), "nonzero": lambda: phlox.nonzero(line, out=line),
            "max": lambda: phlox.max(x, 0, out=(x[0], positions)), "min": lambda: phlox.min(line, 1, out=(positions, line[0]))}
        for name, call in calls.items():
            with self.subTest(name), self.assertRaisesRegex(RuntimeError, "some elements of the input tensor and the written-to tensor refer to a single memory location"):
                call()
        self.assertEqual((x.flatten().tolist(), line.tolist()), ([*range(9)], where.tolist()))
        self.assertTrue(phlox.scatter(x, 0, where[:1], other, out=x) is x)  # out may be self
        self.assertEqual(x.tolist(), [[1, 1, 2], [3, 1, 5], [6, 7, 1]])
        self.assertEqual(x.addbmm_(x[None], other[None]).shape, (3, 3))  # the result is computed separately, then replaces self
        with self.assertRaisesRegex(ValueError, "aminmax\\(\\): the `min` and `max` out= tensors must not overlap."):
            phlox.aminmax(x, dim=0, out=(other[0], other[0]))

    def test_median_names_mismatched_output(self):
        x, values, indices = phlox.ones(2, 3), phlox.zeros(0), phlox.zeros(0, dtype=phlox.int64)
        for op in phlox.median, phlox.nanmedian:
            with self.assertRaisesRegex(RuntimeError, "^Expected tensor for argument #1 'indices' to have scalar type Long; but got torch.FloatTensor instead"):
                op(x, 0, out=(values, values))
            with self.assertRaisesRegex(RuntimeError, "^Expected tensor for 'values' to have the same type as tensor for argument #2 'self'; but type torch.DoubleTensor"):
                op(x, 0, out=(values.double(), indices))

    def test_random_numbers_use_dtype_of_out(self):
        x = phlox.full((1000,), 0.5)
        for draw in (lambda out: phlox.normal(x, x, out=out), lambda out: phlox.normal(x, 1.0, out=out),
                     lambda out: phlox.normal(0.0, x, out=out), lambda out: phlox.normal(0.0, 1.0, (1000,), out=out)):
            out = draw(phlox.zeros(1000, dtype=phlox.float64))
            self.assertTrue((out != out.float().double()).any())  # more precision than float32
            with self.assertRaisesRegex(NotImplementedError, "not implemented for 'Long'"):
                draw(phlox.zeros(1000, dtype=phlox.int64))
        for dtype in samples.DTYPES:
            out = phlox.bernoulli(x, out=phlox.zeros(0, dtype=getattr(phlox, dtype)))
            self.assertEqual(sorted(set(out.double().tolist())), [0, 1])

    @unittest.skipIf(not phlox.cuda.is_available(), "requires a device")
    def test_out_on_other_device_keeps_size(self):
        x = phlox.full((4,), 0.5, device="cuda")
        for op, *dtypes in ((lambda out: phlox.normal(x, x, out=out), phlox.float32), (lambda out: phlox.normal(x, 1.0, out=out), phlox.float32),
                            (lambda out: phlox.normal(0.0, x, out=out), phlox.float32), (lambda out: phlox.fft.ihfft(x, out=out), phlox.complex64),
                            (lambda *out: phlox.mode(x, out=out), phlox.float32, phlox.int64),
                            (lambda *out: phlox.histogram(x, 3, out=out), phlox.float32, phlox.float32)):
            outs = [phlox.zeros(2, dtype=dtype) for dtype in dtypes]
            with self.assertRaisesRegex(RuntimeError, "^Expected all tensors to be on the same device"):
                op(*outs)
            self.assertEqual([out.tolist() for out in outs], [[0, 0] for _ in outs])

    def test_elementwise_dtype_mismatch(self):
        for op, *more in (phlox.neg,), (phlox.floor,), (phlox.clamp_min, 0):
            with self.assertRaisesRegex(RuntimeError, "^Found dtype Double but expected Float$"):
                op(phlox.ones(2), *more, out=phlox.zeros(2, dtype=phlox.float64))

    def test_reductions_accumulate_in_dtype_of_out(self):
        x = phlox.tensor([2.0**24, 1.0, 1.0])
        for add in (lambda **k: phlox.sum(x, 0, **k), lambda **k: phlox.cumsum(x, 0, **k)[-1]):
            self.assertEqual(add(out=phlox.zeros(0, dtype=phlox.float64)).item(), 2**24 + 2)
            with self.assertRaisesRegex(RuntimeError, "Expected out tensor to have dtype double, but got float instead"):
                add(dtype=phlox.float64, out=phlox.zeros(0))
        self.assertEqual(phlox.sum(phlox.tensor([[2, -2], [0, 0]]), 1, dtype=phlox.bool).tolist(), [True, False])
        self.assertEqual(phlox.sum(phlox.tensor([0.5, 0.3]), 0, out=phlox.zeros(0, dtype=phlox.bool)).item(), True)
        for op in (phlox.cumsum, phlox.cumprod):
            self.assertRaisesRegex(NotImplementedError, f'"{op.__name__}_out_cpu" not implemented for \'Bool\'', op, x, 0, dtype=phlox.bool)


if __name__ == "__main__":
    unittest.main()
