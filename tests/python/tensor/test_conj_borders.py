# SPDX-License-Identifier: Apache-2.0
"""Conjugate and negative views cross every border of the library as values: calls that write, files, other libraries, collectives, optimizers.
A border resolves them, writes back, or refuses, as PyTorch 2.15 does where it is right."""
import unittest

import phlox as torch
import samples

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
VALUES = [[1 + 2j, 3 - 1j], [0.5 + 0.25j, -2 - 4j]]


def conjugate(like, device="cpu"):
    """A conjugate view with the values of a complex tensor."""
    return like.detach().to(device).resolve_conj().conj_physical().clone().conj()


def negative(like, device="cpu"):
    """A negative view with the values of a real tensor."""
    real = like.detach().to(device).resolve_neg()
    return torch.complex(real, -real).conj().imag


def view(like):
    """A view with the values of a tensor: conjugate, negative, or the tensor itself if its dtype has neither."""
    if like.is_complex(): return conjugate(like)
    return negative(like) if like.dtype in (torch.float32, torch.float64) else like.clone()


def is_view(t):
    return t.is_conj() or t.is_neg()


def outputs(made):
    return list(made) if isinstance(made, (tuple, list)) else [made]


def arguments(sample, dtype):
    args, keywords = samples.arguments(torch, *sample, dtype)
    if dtype == "complex128": args = [a * (1 + 0.25j) if isinstance(a, torch.Tensor) and a.is_complex() else a for a in args]
    return args, keywords


def call(function, args, keywords, **more):
    """The result of a call at a seed, or None if the call is refused."""
    torch.manual_seed(7)
    try: return function(*args, **keywords, **more)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError): return None


@unittest.skipUnless(samples.os.path.exists(samples.PATH), "there are no samples")
class Ops(unittest.TestCase):
    """Walks over the samples of all ops. `empty` has no values, and as_strided_ reads the gaps of the memory."""
    def assertSame(self, made, expected, about):
        made = made.resolve_conj().resolve_neg()
        same = made.dtype == expected.dtype and made.shape == expected.shape and torch.allclose(made, expected, equal_nan=True)
        self.assertTrue(same, (*about, made, expected))

    def walk(self):
        for op, name, sample in samples.samples():
            if op in ("empty", "as_strided"): continue
            for dtype in ("float64", "complex128"): yield op, name, sample, dtype

    def test_out_forms_write_values_through_views(self):
        seen = set()
        for op, name, sample, dtype in self.walk():
            function = getattr(torch, name, None)
            if function is None: continue
            expected = call(function, *arguments(sample, dtype))
            if expected is None or not all(isinstance(t, torch.Tensor) for t in outputs(expected)): continue
            plain = [torch.empty_like(t) for t in outputs(expected)]
            if call(function, *arguments(sample, dtype), out=plain[0] if len(plain) == 1 else tuple(plain)) is None: continue
            outs = [view(torch.zeros_like(t)) for t in outputs(expected)]
            if not any(map(is_view, outs)): continue
            call(function, *arguments(sample, dtype), out=outs[0] if len(outs) == 1 else tuple(outs))
            for out, t in zip(outs, plain): self.assertSame(out, t, (op, dtype, sample))
            seen.add((op, dtype))
        self.assertGreater(len(seen), 350)

    def test_in_place_forms_write_values_through_views(self):
        seen = set()
        for op, name, sample, dtype in self.walk():
            args, keywords = arguments(sample, dtype)
            method = getattr(torch.Tensor, name + "_", None)
            if method is None or not args or not isinstance(args[0], torch.Tensor): continue
            self_view = view(args[0])
            if not is_view(self_view) or call(method, args, keywords) is None: continue
            call(method, [self_view, *args[1:]], keywords)
            self.assertSame(self_view, args[0], (op, dtype, sample))
            seen.add((op, dtype))
        self.assertGreater(len(seen), 200)

    def test_arguments_changed_by_an_op_are_written_through_views(self):
        for device in DEVICES:
            grad, found, scale = negative(torch.ones(2), device), torch.zeros(1, device=device), torch.full((1,), 0.5, device=device)
            torch._amp_foreach_non_finite_check_and_unscale_([grad], found, scale)
            self.assertEqual((grad.tolist(), grad.is_neg()), ([0.5, 0.5], True))
            mean, var = negative(torch.zeros(2), device), negative(torch.ones(2), device)
            torch.nn.functional.batch_norm(torch.tensor([[1., 2.], [3., 6.]], device=device), mean, var, training=True, momentum=0.5)
            self.assertEqual((mean.tolist(), var.tolist()), ([1, 2], [1.5, 4.5]))

    def test_results_keep_the_identity_of_views(self):
        for x in (conjugate(torch.tensor(VALUES)), negative(torch.ones(2))):
            self.assertIs(x.mul_(2), x)
            self.assertIs(torch.add(x, x, out=x), x)
