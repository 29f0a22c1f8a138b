# SPDX-License-Identifier: Apache-2.0
"""torch.fft, compared with NumPy: values, dtypes and error texts. Gradients, and the error for a missing FFTW."""
import itertools
import os
import subprocess
import sys
import unittest
import warnings

import numpy as np

import phlox as torch

F = torch.fft
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
ON_GPU = torch.cuda.is_available() and torch.cuda._backend_name() == "cuda"
WITH_COMPLEX = DEVICES[:1] if ON_GPU else DEVICES  # devices with complex arithmetic
TRANSFORMS_1D = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")


def numbers(*shape, complex=False, seed=0):
    made = np.random.default_rng(seed)
    x = made.standard_normal(shape)
    return x + 1j * made.standard_normal(shape) if complex else x


def tensor(array, device="cpu", grad=False):
    return torch.from_numpy(np.ascontiguousarray(array)).to(device).requires_grad_(grad)


class Case(unittest.TestCase):
    def assertClose(self, made, wanted, within=1e-10):
        made = made.detach().cpu().resolve_conj().numpy()
        self.assertEqual(made.shape, wanted.shape)
        self.assertTrue(np.allclose(made, wanted, rtol=within, atol=within * max(1, np.abs(wanted).max(initial=0))))

    def refuses(self, error, text, call, *args, **options):
        with self.assertRaises(error) as caught:
            call(*args, **options)
        self.assertEqual(str(caught.exception).split("\n")[0], text)


class Strides(Case):
    def test_transformed_dimensions_are_innermost(self):
        for device in DEVICES:
            x = torch.zeros(3, 10, 7, device=device)
            with self.subTest(device):
                self.assertEqual(F.fft(x, dim=1).stride(), (70, 1, 10))
                self.assertEqual(F.fft2(x, dim=(0, 2)).stride(), (7, 21, 1))
                self.assertEqual(F.rfftn(x, dim=(2, 1)).stride(), (42, 1, 6))
                self.assertEqual(F.irfft(x, dim=0).stride(), (1, 28, 4))
                self.assertEqual(F.fft(x.transpose(0, 2), dim=0).stride(), (1, 7, 70))

    def test_conjugate_copies_keep_strides(self):
        for device in DEVICES:
            self.assertEqual(F.ifft(torch.zeros(3, 10, 7, device=device), dim=1).resolve_conj().stride(), (70, 1, 10))


class Values(Case):
    def test_one_dimensional_transforms_of_any_length(self):
        for device in DEVICES:
            for n in (1, 2, 3, 4, 5, 8, 12, 13, 31, 64, 97, 100, 1009, 2310):
                for complex, norm, name in itertools.product((False, True), (None, "forward", "ortho"), TRANSFORMS_1D):
                    if complex and name in ("rfft", "ihfft") or n == 1 and name in ("irfft", "hfft"):
                        continue
                    x = numbers(3, n, complex=complex)
                    with self.subTest(name, n=n, norm=norm, complex=complex):
                        self.assertClose(getattr(F, name)(tensor(x, device), norm=norm), getattr(np.fft, name)(x, norm=norm))

    def test_n_truncates_and_pads(self):
        x, z = numbers(2, 7), numbers(2, 7, complex=True)
        for device, name, n in itertools.product(DEVICES, TRANSFORMS_1D, (1, 4, 7, 10)):
            for a in (x,) if name in ("rfft", "ihfft") else (x, z):
                self.assertClose(getattr(F, name)(tensor(a, device), n), getattr(np.fft, name)(a, n))

    def test_large_batches_are_split(self):
        shapes = (((300, 400), 0), ((300, 401), 1), ((3, 150, 7, 61), 1), ((2, 3, 40000), -1), ((70000, 2), 1), ((5, 6, 7, 8, 9, 10), 2))
        for device, (shape, dim) in itertools.product(DEVICES, shapes):
            z = numbers(*shape, complex=True)
            self.assertClose(F.fft(tensor(z, device), dim=dim), np.fft.fft(z, axis=dim))
            self.assertClose(F.rfft(tensor(z.real, device), dim=dim, norm="ortho"), np.fft.rfft(z.real, axis=dim, norm="ortho"))
            self.assertClose(F.fft(tensor(z.real, device), dim=dim), np.fft.fft(z.real, axis=dim))
            self.assertClose(F.irfft(tensor(z, device), dim=dim), np.fft.irfft(z, axis=dim))

    def test_independent_of_thread_count(self):
        x = tensor(numbers(64, 3000))
        threads = torch.get_num_threads()
        one = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            one.append(F.fft(x, dim=0))
        torch.set_num_threads(threads)
        self.assertTrue(torch.equal(one[0], one[1]) and torch.equal(one[0], one[2]))

    def test_multi_dimensional(self):
        for device in DEVICES:
            for shape, dims in (((3, 4), None), ((4, 3, 5), None), ((4, 3, 5), (0, 2)), ((4, 3, 5), (-1, 0)), ((2, 3, 4, 5), (1,)), ((150, 2, 130), None)):
                for name in ("fftn", "ifftn", "rfftn", "irfftn"):
                    for complex in (False, True) if name != "rfftn" else (False,):
                        x = numbers(*shape, complex=complex)
                        for norm in (None, "ortho"):
                            self.assertClose(getattr(F, name)(tensor(x, device), dim=dims, norm=norm), getattr(np.fft, name)(x, axes=dims, norm=norm))
        x = numbers(4, 3, 5)
        for name in ("fft2", "ifft2", "rfft2", "irfft2"):
            self.assertClose(getattr(F, name)(tensor(x), (2, 6)), getattr(np.fft, name)(x, (2, 6)))
        self.assertClose(F.fftn(tensor(x), (3, 6)), np.fft.fftn(x, (3, 6), axes=(1, 2)))
        self.assertClose(F.fftn(tensor(x), (-1, 6)), np.fft.fftn(x, (3, 6), axes=(1, 2)))
        self.assertClose(F.irfftn(tensor(x), (2, -1)), np.fft.irfftn(x, (2, 8), axes=(1, 2)))
        self.assertClose(F.fftn(tensor(x), dim=()), x + 0j)
        self.assertClose(F.fftn(torch.tensor(3., dtype=torch.float64)), np.array(3. + 0j))

    def test_hermitian_multi_dimensional(self):
        z, x = numbers(4, 3, 5, complex=True), numbers(4, 3, 5)
        wanted = np.fft.hfft(np.fft.fftn(z, axes=(0, 1)), 8, axis=2)
        self.assertClose(F.hfftn(tensor(z)), wanted)
        self.assertClose(F.hfft2(tensor(z), norm="ortho"), np.fft.hfft(np.fft.fft(z, axis=1, norm="ortho"), axis=2, norm="ortho"))
        self.assertClose(F.ihfftn(tensor(x)), np.fft.ifftn(np.fft.ihfft(x, axis=2), axes=(0, 1)))
        self.assertClose(F.ihfft2(tensor(x)), np.fft.ifft(np.fft.ihfft(x, axis=2), axis=1))
        self.assertClose(F.hfftn(F.ihfftn(tensor(x)), x.shape), x)

    def test_strided_inputs(self):
        z = numbers(4, 6, 10, complex=True)
        for device in DEVICES:
            t = tensor(z, device)
            for view, array in ((t.permute(2, 0, 1), z.transpose(2, 0, 1)), (t[:, ::2, 1::3], z[:, ::2, 1::3]), (t[1:].mT, z[1:].swapaxes(1, 2)),
                                (t.conj(), z.conj()), (t.real[..., ::3], z.real[..., ::3]), (t.imag.mT, z.imag.swapaxes(1, 2)),
                                (t[:1].expand(3, 6, 10), np.broadcast_to(z[:1], (3, 6, 10))), (t[..., :1].expand(4, 6, 5), np.broadcast_to(z[..., :1], (4, 6, 5)))):
                for dim in range(3):
                    self.assertClose(F.fft(view, dim=dim), np.fft.fft(array, axis=dim))
                    self.assertClose(F.irfft(view, 5, dim=dim), np.fft.irfft(array, 5, axis=dim))
                    self.assertClose(F.fftn(view, dim=(2, dim) if dim < 2 else (1, 2)), np.fft.fftn(array, axes=(2, dim) if dim < 2 else (1, 2)))
                self.assertClose(F.ifftn(view), np.fft.ifftn(array))
            self.assertClose(t, z)

    def test_more_dimensions_than_one_plan(self):
        z = numbers(2, 3, 4, 3, 2, complex=True)
        for device in DEVICES:
            self.assertClose(F.fftn(tensor(z, device), norm="ortho"), np.fft.fftn(z, norm="ortho"))
            self.assertClose(F.ifftn(tensor(z, device), dim=(0, 1, 3, 4)), np.fft.ifftn(z, axes=(0, 1, 3, 4)))
            self.assertClose(F.irfftn(tensor(z, device), dim=(0, 4, 2, 1)), np.fft.irfftn(z, axes=(0, 4, 2, 1)))
            for dims, norm in ((0, 1, 2, 3, 4), "backward"), ((4, 0, 2, 1), "ortho"), ((3, 1), "forward"), ((2, 3, 0), "ortho"):
                self.assertClose(F.rfftn(tensor(z.real, device), dim=dims, norm=norm), np.fft.rfftn(z.real, axes=dims, norm=norm))

    def test_dimensions_of_size_one(self):
        x = numbers(4, 1, 5)
        for device in DEVICES:
            for dims in (0, 1), (1, 0), (2, 1), (1, 2):
                self.assertClose(F.rfftn(tensor(x, device), dim=dims, norm="ortho"), np.fft.rfftn(x, axes=dims, norm="ortho"))

    def test_unaligned_inputs(self):
        x = np.concatenate([[0.], numbers(30)])
        for device, kind in itertools.product(DEVICES, (torch.float32, torch.float64)):
            rows = tensor(x, device).to(kind)[1:].view(5, 6)
            self.assertClose(F.rfft(rows), np.fft.rfft(x[1:].reshape(5, 6)), 1e-5)

    def test_dtypes(self):
        x = torch.tensor([1, 2, 3])
        self.assertEqual([F.fft(t).dtype for t in (x, x.bool(), x.float(), x.double(), x.to(torch.complex64))],
                         [torch.complex64, torch.complex64, torch.complex64, torch.complex128, torch.complex64])
        self.assertEqual([F.irfft(t).dtype for t in (x, x.double(), x.to(torch.complex128))], [torch.float32, torch.float64, torch.float64])
        a = numbers(5, 700).astype(np.float32)
        self.assertClose(F.fft(torch.from_numpy(a)), np.fft.fft(a), 1e-4)
        self.assertClose(F.irfft(F.rfft(torch.from_numpy(a))), a, 1e-5)
        self.assertTrue(F.ihfft(x.double()).is_conj())

    def test_fftfreq_and_shift(self):
        for n in (1, 4, 5):
            self.assertClose(F.fftfreq(n, 0.5, dtype=torch.float64), np.fft.fftfreq(n, 0.5))
            self.assertClose(F.rfftfreq(n, 2, dtype=torch.float64), np.fft.rfftfreq(n, 2))
        x = numbers(4, 5, 3)
        for dim in (None, 0, (1, -1)):
            self.assertClose(F.fftshift(tensor(x), dim), np.fft.fftshift(x, dim))
            self.assertClose(F.ifftshift(tensor(x), dim), np.fft.ifftshift(x, dim))
        self.assertEqual(F.fftfreq(0).shape, (0,))
        out = torch.empty(4, dtype=torch.float64)
        F.fftfreq(4, out=out)
        self.assertEqual(out.tolist(), [0, 0.25, -0.5, -0.25])
        self.assertTrue(F.fftfreq(3, requires_grad=True).requires_grad)

    def test_out(self):
        x = numbers(3, 4)
        for name, kind in (("fft", torch.complex128), ("rfft", torch.complex128), ("irfftn", torch.float64), ("hfft", torch.float64), ("ihfft2", torch.complex128)):
            out = torch.empty(0, dtype=kind)
            self.assertIs(getattr(F, name)(tensor(x), out=out), out)
            self.assertTrue(torch.equal(out, getattr(F, name)(tensor(x))))

    def test_empty_batches(self):
        for name, shape in (("fft", (0, 5)), ("rfft", (0, 3)), ("irfft", (0, 8)), ("ifft2", (0, 5))):
            self.assertEqual(getattr(F, name)(torch.ones(0, 5) if name != "ifft2" else torch.ones(0, 2, 5)).shape[-1:], shape[1:])
        self.assertClose(F.fft(torch.ones(2, 0, dtype=torch.float64), n=3), np.zeros((2, 3), complex))

    def test_meta_tensors(self):
        x = torch.ones(3, 6, device="meta")
        self.assertEqual((F.rfft2(x).shape, F.rfft2(x).dtype, F.irfft(x).shape), ((3, 4), torch.complex64, (3, 10)))

    def test_vmap(self):
        x, z = tensor(numbers(3, 4, 6)), tensor(numbers(3, 4, 6, complex=True))
        for name in ("fft", "rfft", "irfft", "fft2", "rfft2", "hfft2"):
            a = x if name.startswith("rf") else z
            self.assertTrue(torch.allclose(torch.vmap(getattr(F, name))(a), torch.stack([getattr(F, name)(one) for one in a])))


class Errors(Case):
    def test_errors(self):
        x, z = torch.ones(4, 6), torch.ones(4, 6, dtype=torch.complex64)
        for text, *call in (
                ("Invalid number of data points (0) specified", F.fft, x, 0),
                ("Invalid number of data points (-1) specified", F.irfft, z, -1),
                ("Invalid number of data points (0) specified", F.irfft, torch.ones(4, 1)),
                ("Invalid number of data points (0) specified", F.fft, torch.ones(6, 0)),
                ("Invalid number of data points (-2) specified", F.fftn, x, (-2, 2)),
                ('Invalid normalization mode: "abc"', F.fft, x, None, -1, "abc"),
                ("When given, dim and shape arguments must have the same length", F.fftn, x, (2,), (0, 1)),
                ("Got shape with 3 values but input tensor only has 2 dimensions.", F.fftn, x, (2, 2, 2)),
                ("FFT dims must be unique", F.fftn, x, None, (0, 0)),
                ("rfftn must transform at least one axis", F.rfftn, x, None, ()),
                ("hfftn must transform at least one axis", F.hfftn, x, None, ()),
                ("irfftn must transform at least one axis", F.irfft2, x, None, ()),
                ("ihfftn must transform at least one axis", F.ihfftn, x, None, ()),
                ("fftfreq requires a floating point or complex dtype", lambda: F.fftfreq(3, dtype=torch.int64)),
                ("rfftfreq requires a floating point or complex dtype", lambda: F.rfftfreq(3, dtype=torch.int32)),
                ("Trying to create tensor with negative dimension -1: [-1]", F.fftfreq, -1),
                ("`shifts` required", F.fftshift, torch.tensor(1.)),
                ("fft expects a complex output tensor, but got Float", lambda: F.fft(x, out=torch.empty(0))),
                ("fftn expects a complex output tensor, but got Float", lambda: F.fftn(x, out=torch.empty(0))),
                ("irfft expects a floating point output tensor, but got ComplexFloat", lambda: F.irfft(z, out=torch.empty(0, dtype=torch.complex64)))):
            self.refuses(RuntimeError, text, *call)
        self.refuses(IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 3)", F.fft, x, None, 3)
        self.refuses(IndexError, "Dimension specified as -1 but tensor has no dimensions", F.fft, torch.tensor(1.))
        self.refuses(NotImplementedError, "Unsupported dtype Half", F.fft, x.half())
        self.refuses(NotImplementedError, "Unsupported dtype BFloat16", F.rfft2, x.bfloat16())
        self.refuses(TypeError, "rfft expects a real input tensor, but got ComplexFloat", F.rfft, z)
        self.refuses(TypeError, "rfftn expects a real-valued input tensor, but got ComplexFloat", F.rfftn, z)

    def test_missing_fftw(self):
        def run(library):
            code = "import phlox as torch\ntry: torch.fft.fft(torch.ones(2))\nexcept RuntimeError as e: print(e)"
            return subprocess.run([sys.executable, "-c", code], env={**os.environ, "PHLOX_FFTW": library}, capture_output=True, text=True).stdout
        self.assertRegex(run("nowhere.so"), "^Fourier transforms on the CPU need FFTW, and PHLOX_FFTW names 'nowhere.so', which cannot be opened: .")
        self.assertRegex(run("libm.so.6"), "^Fourier transforms on the CPU need FFTW, and the library libm.so.6 lacks its function fftwf_plan_guru64_dft\n")
        self.assertEqual(run("libfftw3.so.3"), "")


@unittest.skipUnless(torch.cuda.is_available(), "requires a device")
class PlanCache(Case):
    def setUp(self):
        self.cache = torch.backends.cuda.cufft_plan_cache
        self.addCleanup(setattr, self.cache, "max_size", 4096)
        self.cache.clear()

    def test_plans_are_reused(self):
        self.assertEqual((self.cache.size, self.cache.max_size), (0, 4096))
        x = tensor(numbers(3, 8), "cuda")
        for _ in range(3):
            for made in (x, x[:2], x[:, :6]):
                F.rfft(made)
        self.assertEqual(self.cache.size, 3 * ON_GPU)
        self.cache.clear()
        self.assertEqual((self.cache.size, self.cache.max_size), (0, 4096))

    def test_max_size(self):
        x = numbers(2, 40)
        for most in (2, 1, 0):
            self.cache.max_size = most
            self.assertEqual(self.cache.max_size, most)
            for n in (8, 9, 30, 8, 40, 9):
                self.assertClose(F.rfft(tensor(x, "cuda"), n), np.fft.rfft(x, n))
            self.assertEqual(self.cache.size, most * ON_GPU)

    def test_cache_per_device(self):
        count = torch.cuda.device_count()
        last = self.cache[count - 1]
        self.addCleanup(setattr, last, "max_size", 4096)
        last.max_size = 5
        self.assertEqual(self.cache[f"cuda:{count - 1}"].max_size, 5)
        if count > 1:
            self.assertEqual(self.cache[0].max_size, 4096)
            with torch.cuda.device(count - 1):
                self.assertEqual(self.cache.max_size, 5)

    def test_errors(self):
        count = torch.cuda.device_count()
        self.refuses(RuntimeError, "cuFFT plan cache size must be non-negative, but got -1", setattr, self.cache, "max_size", -1)
        self.refuses(RuntimeError, ".size is a read-only property showing the number of plans currently in the cache. To change the cache capacity, set "
                     "cufft_plan_cache.max_size.", setattr, self.cache, "size", 1)
        for index in (-1, count):
            self.refuses(RuntimeError, f"cufft_plan_cache: expected 0 <= device index < {count}, but got device with index {index}", self.cache.__getitem__, index)
        self.assertEqual(self.cache.max_size, 4096)


class Gradients(Case):
    def test_gradcheck_and_gradgradcheck(self):
        for device in WITH_COMPLEX:
            for name in TRANSFORMS_1D + ("fft2", "rfft2", "irfft2", "hfft2", "ihfft2", "ifftn", "irfftn"):
                for complex in (False,) if name in ("rfft", "ihfft", "rfft2", "ihfft2") else (False, True):
                    for shape in ((3, 4), (2, 5)):
                        with self.subTest(name, complex=complex, shape=shape):
                            x = tensor(numbers(*shape, complex=complex), device, grad=True)
                            self.assertTrue(torch.autograd.gradcheck(lambda a: getattr(F, name)(a, norm="ortho"), x))
                            self.assertTrue(torch.autograd.gradgradcheck(getattr(F, name), x))

    def test_match_gradients_of_real_parts(self):
        def parts(name):
            def transform(*x):
                made = getattr(F, name)(torch.view_as_complex(x[0]) if x[0].ndim > 2 else x[0])
                return torch.view_as_real(made.resolve_conj()) if made.is_complex() else made
            return transform

        for device, name in itertools.product(DEVICES, TRANSFORMS_1D + ("fft2", "rfft2", "irfft2", "ifftn")):
            for shape in ((3, 4),) if name.startswith(("rf", "ih")) else ((2, 5), (3, 4, 2)):
                with self.subTest(name, device=device, shape=shape):
                    x = tensor(numbers(*shape), device, grad=True)
                    self.assertTrue(torch.autograd.gradcheck(parts(name), x))
                    self.assertTrue(torch.autograd.gradgradcheck(parts(name), x))

    def test_truncated_and_padded(self):
        x = tensor(numbers(2, 5), grad=True)
        for name, n in itertools.product(TRANSFORMS_1D, (4, 7)):
            self.assertTrue(torch.autograd.gradcheck(lambda a: getattr(F, name)(a, n), x))

    def test_node_names(self):
        x = torch.ones(3, 4, requires_grad=True)
        for name, node in (("fft", "FftR2CBackward0"), ("fftn", "FftC2CBackward0"), ("irfft", "FftC2RBackward0"), ("ihfft", "ConjBackward0")):
            self.assertEqual(getattr(F, name)(x).grad_fn.name(), node)


class StftAndIstft(Case):
    def setUp(self):
        ignored = warnings.catch_warnings()
        ignored.__enter__()
        self.addCleanup(ignored.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def test_stft_windows(self):
        for device in DEVICES:
            for n, hop, win, centered, half in ((8, 2, 8, True, True), (8, 3, 5, False, False), (7, 4, 7, True, True)):
                x, window = numbers(2, 40), np.hanning(win)
                left = (n - win) // 2
                whole = np.pad(window, (left, n - win - left))
                signal = np.pad(x, ((0, 0), (n // 2, n // 2)), "reflect") if centered else x
                cuts = np.stack([signal[:, i:i + n] * whole for i in range(0, signal.shape[1] - n + 1, hop)], 2)
                wanted = (np.fft.rfft if half else np.fft.fft)(cuts, axis=1)
                made = torch.stft(tensor(x, device), n, hop, win, tensor(window, device), centered, onesided=half, return_complex=True)
                self.assertClose(made, wanted)
                pairs = torch.stft(tensor(x[0], device), n, hop, win, tensor(window, device), centered, onesided=half, normalized=True, return_complex=False)
                self.assertClose(torch.view_as_complex(pairs), wanted[0] / np.sqrt(n))

    def test_istft_inverts_stft(self):
        for device in DEVICES:
            x, window = tensor(numbers(3, 64), device), torch.hann_window(16, dtype=torch.float64, device=device)
            short = torch.hann_window(12, dtype=torch.float64, device=device)
            for options in ({}, {"normalized": True}, {"onesided": False}, {"hop_length": 5}, {"center": False, "window": torch.ones_like(window)},
                            {"win_length": 12, "window": short, "hop_length": 3}):
                made = torch.stft(x, 16, return_complex=True, **{"window": window, **options})
                back = torch.istft(made, 16, **{"window": window, **options})
                self.assertClose(back, x.cpu().numpy()[:, :back.shape[1]])
        x, window = x.cpu(), window.cpu()
        made = x.stft(16, window=window, return_complex=True)
        self.assertClose(made.istft(16, window=window, length=50), x.numpy()[:, :50])
        self.assertClose(made[0].istft(16, window=window, length=80)[72:], np.zeros(8))
        z = tensor(numbers(2, 40, complex=True))
        self.assertClose(torch.istft(torch.stft(z, 8), 8, return_complex=True), z.numpy())

    def test_align_to_window(self):
        x, window = tensor(numbers(30)), torch.hann_window(4, dtype=torch.float64)
        aligned = torch.stft(x, 8, 2, 4, window, center=False, align_to_window=True, return_complex=True)
        self.assertEqual(aligned.shape, (5, 14))
        self.assertTrue(torch.allclose(aligned[:, 1:-1], torch.stft(x, 8, 2, 4, window, center=False, return_complex=True)))

    def test_gradients(self):
        x, window = tensor(numbers(14), grad=True), tensor(numbers(6) + 3, grad=True)
        self.assertTrue(torch.autograd.gradcheck(lambda a, w: torch.stft(a, 6, 2, window=w, return_complex=True), (x, window)))
        y = tensor(numbers(4, 5, complex=True), grad=True)
        self.assertTrue(torch.autograd.gradcheck(lambda a, w: torch.istft(a, 6, 2, window=w), (y, window)))

    def test_errors(self):
        x, w = torch.ones(2, 40), torch.hann_window(8)
        call = "stft(torch.FloatTensor[2, %d], n_fft=%d, hop_length=%d, win_length=%d, window=%s, normalized=0, onesided=None, return_complex=1, align_to_window=None) : "
        for text, options in ((call % (40, 80, 20, 80, "None") + "expected 0 < n_fft < 40, but got n_fft=80", {"n_fft": 80, "center": False}),
                              (call % (48, 8, -1, 8, "None") + "expected hop_length > 0, but got hop_length=-1", {"hop_length": -1}),
                              (call % (48, 8, 2, 9, "None") + "expected 0 < win_length <= n_fft, but got win_length=9", {"win_length": 9}),
                              (call % (48, 8, 2, 4, "torch.FloatTensor{[8]}") + "expected a 1D window tensor of size equal to win_length=4, but got window with size [8]",
                               {"win_length": 4, "window": w}),
                              ("stft align_to_window should only be set when center = false", {"align_to_window": True}),
                              ("stft requires the return_complex parameter be given for real inputs, and will further require that return_complex=True in a future "
                               "PyTorch release.", {"return_complex": None})):
            self.refuses(RuntimeError, text, torch.stft, x, **{"n_fft": 8, "return_complex": True, **options})
        y = torch.stft(x, 8, window=w, return_complex=True)
        call = "istft(CPUComplexFloatType[2, 5, 21], n_fft=8, hop_length=%d, win_length=8, window=%s, center=%d, normalized=0, onesided=None, length=None, return_complex=0) "
        self.refuses(RuntimeError, call % (9, "None", 1) + ": expected 0 < hop_length <= win_length", torch.istft, y, 8, 9)
        self.refuses(RuntimeError, call % (2, "torch.FloatTensor{[8]}", 0) + "window overlap add min: 1", torch.istft, y, 8, window=w, center=False)
        self.refuses(TypeError, "istft requires a complex-valued input tensor matching the output from stft with return_complex=True.", torch.istft, x, 8)

    def test_warnings(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.stft(torch.ones(40), 8, return_complex=False)
        self.assertRegex(" ".join(str(w.message) for w in caught), "A window was not provided.*return_complex=False is deprecated")


if __name__ == "__main__":
    unittest.main()
