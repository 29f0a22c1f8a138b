# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.jiterator: elementwise source code on the CPU and on devices. tests/call/jit_test.c tests the language."""
import unittest

import phlox as torch
from phlox.cuda.jiterator import _create_jit_fn, _create_multi_output_jit_fn

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
SOFT = "template <typename T> T soft(T x, T y, T alpha) { return x > 0 ? x : alpha * y; }"


class Jiterator(unittest.TestCase):
    def raises(self, kind, text, call):
        with self.assertRaises(kind) as caught:
            call()
        self.assertIn(text, str(caught.exception))

    def test_default_arguments(self):
        soft = _create_jit_fn(SOFT, alpha=1.)
        for device in DEVICES:
            x, y = torch.tensor([-1., 2.], device=device), torch.tensor([4., 5.], device=device)
            assert soft(x, y).tolist() == [4., 2.] and soft(x, y, alpha=.5).tolist() == [2., 2.]
            assert soft(x, y).device == x.device

    def test_dtypes(self):
        f = _create_jit_fn("template <typename T> T f(T x, T c) { return x * c; }", c=2)
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.uint8, torch.complex64):
            assert f(torch.tensor([3], dtype=dtype)).dtype is dtype and f(torch.tensor([3], dtype=dtype)).tolist() == [6]
        assert f(torch.tensor([1j]), c=1j).tolist() == [-1]

    def test_strides_and_broadcasting(self):
        f = _create_jit_fn("template <typename T> T f(T x, T y) { return x - y; }")
        x, y = torch.arange(6.).reshape(2, 3).T, torch.tensor([1., 2.])
        assert torch.equal(f(x, y), x - y)

    def test_multiple_outputs(self):
        both = _create_multi_output_jit_fn("template <typename T> void both(T x, T& a, T& b) { a = x + 1; b = a * 2; }", num_outputs=2)
        for device in DEVICES:
            a, b = both(torch.tensor([1, 2], device=device))
            assert a.tolist() == [2, 3] and b.tolist() == [4, 6]
        one = _create_multi_output_jit_fn("template <typename T> void one(T x, T& a) { a = x; }", 1)
        assert one(torch.tensor([1])).tolist() == [1]

    def test_errors_match_pytorch(self):
        soft = _create_jit_fn(SOFT, alpha=1.)
        x = torch.ones(2)
        self.raises(RuntimeError, "Couldn't parse code, please check correctness:\n x + 1", lambda: _create_jit_fn("x + 1"))
        self.raises(KeyError, "beta is not declared in function definition", lambda: soft(x, x, beta=1))
        self.raises(AssertionError, "jiterator only supports up to 8 tensor inputs, got 9", lambda: soft(*[x] * 9))
        self.raises(RuntimeError, "soft takes 3 arguments, but 2 were given", lambda: soft(x))
        self.raises(TypeError, "must be Tensor, not int", lambda: soft(x, 1))
        self.raises(TypeError, "must be Number, not str", lambda: soft(x, x, alpha="1"))
        self.raises(ValueError, "1 to 32 results", lambda: _create_multi_output_jit_fn("template <typename T> void f(T x, T& a) { a = x; }", 0)(x))

    def test_vmap_and_no_gradient(self):
        f = _create_jit_fn("template <typename T> T f(T x) { if (x > 1) return x * x; return 0; }")
        x = torch.arange(6.).reshape(2, 3)
        assert torch.equal(torch.vmap(f)(x), f(x))
        assert not f(x.requires_grad_()).requires_grad
