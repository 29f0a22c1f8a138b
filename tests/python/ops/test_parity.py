# SPDX-License-Identifier: Apache-2.0
"""The expressions of parity_cases.txt have the same text or error in PyTorch and Phlox. Samples recorded from PyTorch are replayed (tests/parity)."""
import gzip
import json
import os
import re
import sys
import tempfile
import unittest
import warnings

import phlox

try:
    import torch
    torch = None if "phlox" in (torch.__file__ or "") else torch
except ImportError:
    torch = None

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = os.path.join(HERE, "..", "..", "parity")
sys.path.insert(0, SAMPLES)
import form
import replay

# Texts of PyTorch 2.14 that differ from those of 1.13; the newest version is the reference.
NEWER = {
    "x[torch.tensor([0.5])]":
        "IndexError: tensors used as indices must be long, int, byte or bool tensors",
    "torch.zeros()": 'TypeError: zeros() missing 1 required positional arguments: "size"',
    "torch.nn.functional.pad(x, (-4, 2))": "RuntimeError: narrow(): length must be non-negative.",
    "torch.multinomial(torch.tensor([float('inf'), 1.]), 1, True)":
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
    "torch.nn.functional.binary_cross_entropy(torch.tensor([.5]), torch.tensor([-1.]))":
        "RuntimeError: all elements of target should be between 0 and 1",
    "i.mean()":
        "NotImplementedError: mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: Long",
    "x.mm(x)": "RuntimeError: mm: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)",
    "x.item()": "RuntimeError: a Tensor with 6 elements cannot be converted to Scalar",
}


def outcome(library, expression):
    space = {"torch": library, "x": library.tensor([[1., 2., 3.], [4., 5., 6.]]),
             "i": library.tensor([1, 2, 3])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            text = repr(eval(expression, space))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def cases():
    with open(os.path.join(HERE, "parity_cases.txt")) as file:
        return [line.rstrip("\n") for line in file if line.strip()]


# Calls with unsupported dtypes. PyTorch 1.13 raises RuntimeError, version 2 its subclass NotImplementedError.
REFUSED = """i.softmax(0)|i.log_softmax(0)|i.bernoulli()|i.normal_()|torch.rand(2, dtype=torch.int64)|F.gelu(i)|F.layer_norm(i, (3,))
F.mse_loss(i, i)|F.smooth_l1_loss(i, i)|F.huber_loss(i, i)|F.nll_loss(i[None], i[:1])|F.binary_cross_entropy(i, i)|b.ceil()|b.round()
torch.dot(b, b)|torch.mm(b[None], b[:, None])|b // b|torch.addcmul(b, b, b)""".replace("\n", "|").split("|")


class Parity(unittest.TestCase):
    @unittest.skipIf(torch is None, "PyTorch is not installed for this Python")
    def test_unsupported_dtype_errors(self):
        for expression in REFUSED:
            texts = []
            for library in (torch, phlox):
                i = library.tensor([1, 2, 3])
                with self.assertRaises(RuntimeError) as caught:
                    eval(expression, {"torch": library, "F": library.nn.functional, "i": i, "b": i > 1})
                texts.append(str(caught.exception))
            self.assertEqual(texts[1], texts[0], expression)

    @unittest.skipIf(phlox.cuda.device_count() == 0, "requires a device")
    def test_unsupported_dtype_errors_on_devices(self):
        F, i = phlox.nn.functional, phlox.tensor([1, 2, 3], device="cuda")
        for call, kernel in ((lambda: i.softmax(0), "host_softmax"), (lambda: F.gelu(i), "GeluCUDAKernelImpl"),
                             (lambda: F.mse_loss(i, i), "mse_cuda"), (lambda: (i > 1).ceil(), "ceil_cuda")):
            with self.assertRaisesRegex(NotImplementedError, f'^"{kernel}" not implemented for \'(Long|Bool)\''):
                call()
        with self.assertRaisesRegex(RuntimeError, "^std and var only support floating point and complex dtypes"):
            i.var()

    @unittest.skipIf(torch is None, "PyTorch is not installed for this Python")
    def test_expressions(self):
        for expression in cases():
            with self.subTest(expression):
                wanted = outcome(torch, expression)
                if torch.__version__.startswith("1."):
                    wanted = NEWER.get(expression, wanted)
                self.assertEqual(outcome(phlox, expression), wanted)


def one_sample(forms, **more):
    return {"op": "add", "variant": "", "kind": "sample", "path": "add", "dtype": "float32", "args": [{"tensor": ["float32", [], [], "AADAPw=="]}, 2], "kwargs": {}, "leaves": [], "forms": forms, **more}


class Samples(unittest.TestCase):
    """Replays tests/parity/samples.xz; gaps.txt lists the ops with known differences."""

    @classmethod
    def setUpClass(cls):
        path = os.path.join(SAMPLES, "samples.xz")
        cls.ops = replay.summarize(form.read(path), {device: replay.replay(path, device) for device in ("cpu", "sim")})
        with open(os.path.join(SAMPLES, "gaps.txt")) as file:
            cls.gaps = file.read().split()

    def test_ops_match_except_listed_gaps(self):
        for op, row in self.ops.items():
            with self.subTest(op):
                if op not in self.gaps:
                    self.assertEqual(row["first"], {})

    def test_listed_gaps_exist(self):
        self.assertEqual([op for op in self.gaps if op not in self.ops or replay.state(self.ops[op]) == "right"], [])

    def test_all_samples_were_replayed(self):
        self.assertGreater(len(self.ops), 400)
        self.assertEqual([op for op, row in self.ops.items() if row["missing"]], [])


class ReflectedOperators(unittest.TestCase):
    def test_reflected_operators(self):
        a, b = phlox.ones(10, 1), phlox.ones(3, 2)
        with self.assertRaisesRegex(RuntimeError, r"tensor a \(10\) must match the size of tensor b \(3\)"):
            phlox.Tensor.__radd__(a, b)
        self.assertEqual((phlox.tensor([4.]).__rdiv__(2)).tolist(), [0.5])
        kind = type("Kind", (phlox.Tensor,), {})
        for made in (2 + a.as_subclass(kind), 2 * a.as_subclass(kind), a + a.as_subclass(kind)):
            self.assertIs(type(made), kind)
            self.assertEqual(made.shape, (10, 1))


class Layouts(unittest.TestCase):
    def test_index_strides(self):
        for device in ["cpu"] + ["cuda"] * phlox.cuda.is_available():
            x = phlox.ones(2, 3, device=device)
            self.assertEqual(x.nonzero().stride(), (1, 6))
            self.assertEqual([t.stride() for t in x.nonzero(as_tuple=True)], [(1,), (1,)])
            self.assertEqual([t.stride() for t in phlox.unravel_index(phlox.arange(4, device=device), (2, 2))], [(2,), (2,)])

    def test_unique_of_unsigned(self):
        x = phlox.tensor([2**64 - 1, 0, 2**63, 7, 2**63], dtype=phlox.uint64)
        values, inverse, counts = phlox.unique(x, return_inverse=True, return_counts=True)
        self.assertEqual((values.tolist(), inverse.tolist(), counts.tolist()), ([0, 7, 2**63, 2**64 - 1], [3, 0, 2, 1, 2], [1, 1, 2, 1]))
        pairs = phlox.tensor([[65535, 1], [0, 2], [65535, 1]], dtype=phlox.uint16)
        self.assertEqual(phlox.unique(pairs, dim=0).tolist(), [[0, 2], [65535, 1]])

    def test_out_lists_are_written(self):
        x = phlox.arange(6).reshape(3, 2)
        out = [phlox.zeros(2, dtype=phlox.int64) for _ in range(3)]
        self.assertIsNone(phlox.unbind_copy(x, out=out))
        self.assertEqual([t.tolist() for t in out], x.tolist())
        with self.assertRaisesRegex(RuntimeError, "^unbind_copy_int_out expected an out= argument of size 3, got size 2$"):
            phlox.unbind_copy(x, out=out[:2])
        self.assertIsNone(phlox.split_with_sizes_copy(x, [1, 2], out=(a := phlox.zeros(0, dtype=phlox.int64), b := phlox.zeros(0, dtype=phlox.int64))))
        self.assertEqual((a.tolist(), b.tolist()), (x[:1].tolist(), x[1:].tolist()))

    def test_out_lists_are_checked_before_writing(self):
        line = phlox.zeros(3)
        wrong = {"some elements of the input tensor and the written-to tensor refer to a single memory location": lambda x: x.view(-1)[2:5],
                 "more than one element of the written-to tensor refers to a single memory location": lambda x: phlox.zeros(1).expand(3),
                 "Expected out tensor to have dtype float, but got long int instead": lambda x: phlox.zeros(3, dtype=phlox.int64),
                 "don't support automatic differentiation": lambda x: phlox.zeros(3, requires_grad=True)}
        for text, second in wrong.items():
            x = phlox.arange(6.).view(2, 3)
            for write in (lambda: phlox.unbind_copy(x, out=[line, second(x)]), lambda: phlox.split_with_sizes_copy(x, [1, 1], out=[line[None], second(x)[None]])):
                with self.assertRaisesRegex(RuntimeError, text):
                    write()
            self.assertEqual((x.tolist(), line.tolist()), ([[0, 1, 2], [3, 4, 5]], [0, 0, 0]))
        x = phlox.arange(6.).view(2, 3)
        phlox.unbind_copy(x, out=[x[1], x[0]])
        self.assertEqual(x.tolist(), [[3, 4, 5], [0, 1, 2]])

    def test_as_strided_in_place(self):
        x = phlox.arange(6.)
        self.assertIs(x.as_strided_((2, 2), (1, 2), 1), x)
        self.assertEqual((x.tolist(), x.stride()), ([[1, 3], [2, 4]], (1, 2)))
        with self.assertRaisesRegex(RuntimeError, "mismatch in length of strides and shape"):
            x.as_strided_((2, 2), (1,))

    def test_second_derivative_of_prod_with_zeros(self):
        for x, call in ((phlox.tensor([2., 0., 0., 3.]), lambda x: x.prod()), (phlox.tensor([[2., 0.], [0., 0.], [1., 4.]]), lambda x: x.prod(1)),
                        (phlox.tensor([[2., 0.], [0., 0.], [1., 4.]]), lambda x: x.prod(0, keepdim=True))):
            self.assertTrue(phlox.autograd.gradgradcheck(call, x.double().requires_grad_()))


class Linear(unittest.TestCase):
    def test_vector_input(self):
        F = phlox.nn.functional
        for device in ["cpu"] + ["cuda"] * phlox.cuda.is_available():
            x, w, b = (t.to(device).requires_grad_() for t in (phlox.tensor([1., 2., 3.]), phlox.arange(12.).reshape(4, 3), phlox.arange(4.)))
            y = F.linear(x, w, b)
            self.assertEqual((y.tolist(), y.stride()), ([8, 27, 46, 65], (1,)))
            self.assertEqual([g.tolist() for g in phlox.autograd.grad(y.sum(), (x, w, b))], [[18, 22, 26], [[1, 2, 3]] * 4, [1] * 4])
            with self.assertRaisesRegex(RuntimeError, r"^addmm: mat1 and mat2 shapes cannot be multiplied \(1x2 and 3x4\)"):
                F.linear(x[:2], w, b)
            for first, second in (x[0], w), (x, w[0, 0]):
                with self.assertRaisesRegex(RuntimeError, rf"^both arguments to linear need to be at least 1D, but they are {first.dim()}D and {second.dim()}D"):
                    F.linear(first, second, b)


class Comparison(unittest.TestCase):
    """The replay detects every kind of difference."""

    def tensor(self, values, **more):
        t = phlox.tensor(values, **more)
        return {"value": form.encode(phlox, t, result=True)}

    def judge(self, have, want, **more):
        return replay.judge(one_sample({}, **more), "forward", have, want)

    def test_values_dtypes_shapes_and_strides(self):
        want = self.tensor([[1.0, 2.0], [3.0, float("nan")]])
        self.assertIsNone(self.judge(self.tensor([[1.0, 2.000001], [3.0, float("nan")]]), want))
        self.assertIn("values: 1 of 4", self.judge(self.tensor([[1.0, 2.001], [3.0, float("nan")]]), want))
        self.assertIn("values: 1 of 4", self.judge(self.tensor([[1.0, 2.0], [3.0, 4.0]]), want))
        self.assertIn("values: 1 of 4", self.judge(self.tensor([[1.0, 2.0], [float("nan"), float("nan")]]), want))
        self.assertIn("values: 1 of 4", self.judge(self.tensor([[1.0, float("inf")], [3.0, float("nan")]]), want))
        self.assertIn("dtype", self.judge(self.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=phlox.float64), want))
        self.assertIn("shape", self.judge(self.tensor([1.0, 2.0, 3.0, float("nan")]), want))
        transposed = phlox.tensor([[1.0, 3.0], [2.0, float("nan")]]).t()
        self.assertIn("strides", self.judge({"value": form.encode(phlox, transposed, result=True)}, want))

    def test_error_class_and_text(self):
        want = {"error": ["RuntimeError", "so"]}
        self.assertIsNone(self.judge({"error": ["RuntimeError", "so"]}, want))
        for have in {"error": ["ValueError", "so"]}, {"error": ["RuntimeError", "thus"]}, self.tensor(1.0):
            self.assertIsNotNone(self.judge(have, want))
        self.assertIsNotNone(self.judge(want, self.tensor(1.0)))

    def test_random_results_by_mean(self):
        want = self.tensor([i / 50 for i in range(50)])
        self.assertIsNone(self.judge(self.tensor([i / 50 for i in reversed(range(50))]), want, random="drawn"))
        for other in [5.0] * 50, [i / 50 + 2 for i in range(50)], [float("nan")] * 50:
            self.assertIsNotNone(self.judge(self.tensor(other), want, random="drawn"))

    def test_crash_fails_sample_and_next_ones_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "end.gz")
            with gzip.open(path, "wt") as file:
                for code in 0, 7, 8:
                    ends = {"path": "serialization.os._exit", "args": [code]} if code < 8 else {}
                    file.write(json.dumps(one_sample({"forward": {"value": {"tensor": ["float32", [], [], "AABgQA=="]}}}, **ends)) + "\n")
            wrong = replay.replay(path, "cpu")
        self.assertEqual(wrong, {0: {"forward": "the process ended with 0"}, 1: {"forward": "the process ended with 7"}, 2: {}})

    def test_difference_matching_pytorch_on_device_passes(self):
        """A stub stands in for that PyTorch: it answers once, and exits at the second request."""
        given = [{"tensor": ["float32", [1], [1], "AACAPw=="]}]  # 1
        with tempfile.TemporaryDirectory() as folder:
            path, other = os.path.join(folder, "two.gz"), os.path.join(folder, "python")
            with gzip.open(path, "wt") as file:
                for _ in range(3):
                    file.write(json.dumps(one_sample({"forward": {"error": ["RuntimeError", "not here"]}}, path="exp", args=given)) + "\n")
            with open(other, "w") as file:
                file.write("#!/bin/sh\nread line; echo '{\"value\": {\"tensor\": [\"float32\", [1], [1], \"VPgtQA==\"]}}'; read line\n")
            os.chmod(other, 0o755)
            wrong = replay.replay(path, "sim", reference=other)
        differs = {"forward": "no error, but RuntimeError: not here"}
        self.assertEqual(wrong, {0: {}, 1: differs, 2: {}})


if __name__ == "__main__":
    unittest.main()
