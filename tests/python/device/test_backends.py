# SPDX-License-Identifier: Apache-2.0
"""torch.backends: settings can be read and written; on a GPU, matrix products obey them."""
import unittest
import warnings

import phlox as torch

matmul = torch.backends.cuda.matmul
ON_GPU = torch.cuda._backend_name() == "cuda"


class Settings(unittest.TestCase):
    def tearDown(self):
        torch.set_float32_matmul_precision("highest")

    def test_defaults(self):
        b = torch.backends
        self.assertEqual((matmul.allow_tf32, matmul.allow_fp16_reduced_precision_reduction,
                          matmul.allow_bf16_reduced_precision_reduction), (False, True, True))
        self.assertEqual((b.cudnn.enabled, b.cudnn.benchmark, b.cudnn.deterministic, b.cudnn.allow_tf32),
                         (True, False, False, True))

    def test_cpu_capability(self):
        self.assertIn(torch.backends.cpu.get_cpu_capability(), ("DEFAULT", "AVX2", "AVX512"))

    def test_matmul_precision_and_allow_tf32_agree(self):
        self.assertEqual(torch.get_float32_matmul_precision(), "highest")
        for name, allowed in (("high", True), ("medium", True), ("highest", False)):
            torch.set_float32_matmul_precision(name)
            self.assertEqual((torch.get_float32_matmul_precision(), matmul.allow_tf32), (name, allowed))
        matmul.allow_tf32 = True
        self.assertEqual(torch.get_float32_matmul_precision(), "high")
        matmul.allow_tf32 = False
        self.assertEqual(torch.get_float32_matmul_precision(), "highest")

    def test_flags_context_managers(self):
        cudnn, nnpack = torch.backends.cudnn, torch.backends.nnpack
        with cudnn.flags(enabled=False, deterministic=True):
            self.assertEqual((cudnn.enabled, cudnn.deterministic, cudnn.allow_tf32), (False, True, True))
        self.assertEqual((cudnn.enabled, cudnn.deterministic), (True, False))
        self.assertEqual(cudnn.set_flags(_benchmark=True), (True, False, None, False, True))
        self.assertEqual(cudnn.set_flags(_benchmark=False), (True, True, None, False, True))
        with self.assertRaisesRegex(NotImplementedError, "benchmark_limit is always 10"):
            cudnn.set_flags(_enabled=False, _benchmark_limit=3)
        with self.assertRaises(ZeroDivisionError), nnpack.flags():
            self.assertEqual(nnpack.set_flags(False), (False,))
            1 / 0
        self.assertTrue(nnpack.enabled and cudnn.enabled)
        self.assertRaises(RuntimeError, nnpack.set_flags, 1)

    def test_winograd_convolutions(self):
        nnpack, conv = torch.backends.nnpack, torch.nn.functional.conv2d
        self.assertEqual(nnpack.is_available(), torch.backends.cpu.get_cpu_capability() == "AVX512")
        x, weight = torch.randn(2, 64, 20, 20), torch.randn(64, 64, 3, 3)
        exact, fast = conv(x.double(), weight.double(), padding=1), conv(x, weight, padding=1)
        with nnpack.flags(enabled=False):
            plain = conv(x, weight, padding=1)
        self.assertEqual(torch.equal(fast, plain), not nnpack.is_available())
        for y in fast, plain:
            self.assertLess(((y - exact).abs().max() / exact.abs().max()).item(), 2e-6)
        self.assertTrue(torch.equal(conv(x, weight, padding=1), fast))

    def test_invalid_values(self):
        with self.assertRaisesRegex(RuntimeError, "allow_tf32 expects a bool, but got int"):
            matmul.allow_tf32 = 1
        with self.assertRaisesRegex(RuntimeError, "expects a bool"):
            del torch.backends.cudnn.benchmark
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.set_float32_matmul_precision("low")
        self.assertIn("low is not one of 'highest', 'high', or 'medium'", str(caught[0].message))
        self.assertRaises(RuntimeError, torch.set_float32_matmul_precision, 3)
        self.assertEqual(torch.get_float32_matmul_precision(), "highest")

    def test_settings_are_module_attributes(self):
        self.assertIn("allow_tf32", dir(matmul))
        self.assertIn("benchmark", dir(torch.backends.cudnn))
        self.assertNotIn("allow_fp16_reduced_precision_reduction", dir(torch.backends.cudnn))
        torch.backends.cudnn.own = 1
        self.assertEqual(torch.backends.cudnn.own, 1)


@unittest.skipUnless(ON_GPU, "requires an NVIDIA GPU")
class Precision(unittest.TestCase):
    def tearDown(self):
        matmul.allow_tf32 = False
        matmul.allow_fp16_reduced_precision_reduction = matmul.allow_bf16_reduced_precision_reduction = True

    def error(self, dtype, n=512, k=4096, bias=False):
        """Error of a product relative to float64, divided by its largest absolute value."""
        torch.manual_seed(1)
        a, b = torch.rand(n, k, device="cuda").to(dtype), torch.rand(k, n, device="cuda").to(dtype)
        c = torch.rand(n, device="cuda").to(dtype)
        exact = a.double() @ b.double() + (c.double() if bias else 0)
        got = torch.addmm(c, a, b) if bias else a @ b
        return ((got.double() - exact).abs().max() / exact.abs().max()).item()

    def test_tf32(self):
        for bias in (False, True):
            for allowed, low, high in ((False, 0, 2e-6), (True, 2e-6, 1e-3), (False, 0, 2e-6)):
                matmul.allow_tf32 = allowed
                error = self.error(torch.float32, bias=bias)
                self.assertTrue(low <= error < high, f"allow_tf32={allowed}, bias={bias}: {error}")
        torch.set_float32_matmul_precision("high")
        self.assertGreater(self.error(torch.float32), 2e-6)

    def test_float64_ignores_tf32(self):
        matmul.allow_tf32 = True
        self.assertLess(self.error(torch.float64), 1e-14)

    def test_reduced_precision_reductions(self):
        for dtype, step in ((torch.float16, 2.0**-11), (torch.bfloat16, 2.0**-8)):
            for bias in (False, True):
                for allowed in (True, False):
                    matmul.allow_fp16_reduced_precision_reduction = allowed
                    matmul.allow_bf16_reduced_precision_reduction = allowed
                    # Few rows and a long sum, so that a split reduction (split-k) would be chosen.
                    error = self.error(dtype, n=64, k=16384, bias=bias)
                    # Accumulating in float32 leaves only the final rounding error.
                    self.assertLess(error, (8 if allowed else 1.01) * step, f"{dtype}, {allowed}, bias={bias}")


if __name__ == "__main__":
    unittest.main()
