# SPDX-License-Identifier: Apache-2.0
"""Tiled scaled_dot_product_attention: results compared with a composition of ops for sizes that are no multiple of a tile, on the CPU and on a
simulated device; its memory, random numbers and backend selection."""
import itertools
import math
import subprocess
import sys
import unittest
import warnings

import phlox as torch
from phlox.nn.attention import SDPBackend, sdpa_kernel

F, gradcheck, gradgradcheck = torch.nn.functional, torch.autograd.gradcheck, torch.autograd.gradgradcheck
attend, cuda = F.scaled_dot_product_attention, torch.backends.cuda


def supports_flash(q, k, v, mask=None, dropout=0.0, causal=False):
    """True if the tiled kernel supports the call; GPUs have kernels for fewer dtypes and head sizes."""
    return cuda.can_use_flash_attention(cuda.SDPAParams(q, k, v, mask, dropout, causal, q.shape[-3] != k.shape[-3]))


DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
TOLERANCE = {torch.float64: 1e-11, torch.float32: 3e-5, torch.bfloat16: 4e-2, torch.float16: 8e-3}
# batch, query heads, key and value heads, queries, keys, head size, value head size
SHAPES = [(2, 4, 2, 7, 5, 4, 6), (1, 2, 2, 101, 270, 16, 16), (1, 1, 1, 97, 257, 65, 3), (2, 3, 1, 1, 300, 8, 8), (1, 2, 1, 100, 1, 8, 8),
          (1, 1, 1, 60, 130, 130, 40), (1, 2, 2, 0, 3, 4, 4), (1, 2, 2, 3, 0, 4, 4), (0, 2, 2, 3, 3, 4, 4), (1, 2, 2, 3, 3, 0, 4), (1, 2, 2, 3, 3, 4, 0)]


def inputs(shape, dtype=torch.float64, device="cpu", grad=True):
    torch.manual_seed(1)
    B, H, G, L, S, E, V = shape
    made = (torch.randn(B, heads, rows, width).to(dtype).to(device) for heads, rows, width in ((H, L, E), (G, S, E), (G, S, V)))
    return [x.requires_grad_(grad) for x in made]


def masks(shape, dtype, device):
    B, H, G, L, S, E, V = shape
    hidden = torch.randn(L, S).masked_fill(torch.rand(L, S) > .5, -math.inf)
    hidden[:1] = -math.inf
    made = None, torch.rand(L, S) > .4, torch.rand(B, 1, 1, S) > .4, torch.randn(H, L, S).to(dtype), hidden.to(dtype), torch.randn(1, S)
    return [mask if mask is None else mask.to(device) for mask in made]


def outcome(way, qkv, *args, **options):
    """The result, and the gradients of query, key and value."""
    qkv = [x.detach().requires_grad_() for x in qkv]
    with sdpa_kernel(way):
        out = attend(*qkv, *args, **options)
    torch.manual_seed(2)
    out.backward(torch.randn(out.shape).to(out.dtype).to(out.device))
    return [out.detach(), *(x.grad for x in qkv)]


class Results(unittest.TestCase):
    def assert_close(self, got, wanted, dtype, what):
        for a, b in zip(got, wanted):
            self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype), what)
            size = max(1, b.double().abs().max().item()) if b.numel() else 1
            self.assertTrue(torch.allclose(a.double().cpu(), b.double().cpu(), rtol=0, atol=TOLERANCE[dtype] * size), what)

    @unittest.skipUnless(torch.cuda.device_count(), "requires a device")
    def test_strides_of_results_on_devices(self):
        for dtype, strides in ((torch.float32, (384, 8, 24, 1)), (torch.float16, (384, 128, 8, 1))):
            q = torch.ones(2, 3, 16, 8, device="cuda", dtype=dtype)
            self.assertEqual(torch.nn.functional.scaled_dot_product_attention(q, q, q).stride(), strides)

    def test_tiled_matches_composed(self):
        for device, dtype, shape in itertools.product(DEVICES, TOLERANCE, SHAPES):
            qkv = inputs(shape, dtype, device)
            cases = [(mask, 0.0, False) for mask in masks(shape, dtype, device)] + [(None, 0.0, True)]
            if device == "cpu":
                self.assertTrue(supports_flash(*qkv))
            for i, case in enumerate(case for case in cases if supports_flash(*qkv, *case)):
                options = {"enable_gqa": shape[1] != shape[2], "scale": None if i % 2 else 0.3}
                tiled, composed = (outcome(way, qkv, *case, **options) for way in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH))
                self.assert_close(tiled, composed, dtype, (device, dtype, shape, i))

    def test_every_key_length(self):
        for keys in range(1, 70):
            qkv = inputs((1, 1, 1, 3, keys, 8, 8), torch.float32, grad=False)
            wanted = (qkv[0].double() @ qkv[1].double().mT / math.sqrt(8)).softmax(-1) @ qkv[2].double()
            self.assertTrue(torch.allclose(attend(*qkv).double(), wanted, rtol=0, atol=1e-6), keys)

    def test_leading_dimensions_broadcast(self):
        for q, k, v, mask in (((3, 4), (5, 4), (5, 4), (5,)), ((2, 3, 4), (5, 4), (1, 5, 6), ()), ((2, 1, 3, 4), (2, 5, 4), (7, 1, 1, 5, 4), (7, 1, 2, 3, 5)),
                              ((2, 3, 2, 3, 4), (2, 3, 2, 5, 4), (2, 3, 2, 5, 4), (3, 1, 1, 5)), ((2, 3, 4), (2, 5, 4), (2, 5, 6), None)):
            torch.manual_seed(1)
            qkv = [torch.randn(sizes).double() for sizes in (q, k, v)]
            mask = mask if mask is None else torch.randn(mask).double()
            self.assert_close(outcome(SDPBackend.FLASH_ATTENTION, qkv, mask), outcome(SDPBackend.MATH, qkv, mask), torch.float64, (q, k, v))

    def test_any_strides_and_output_layout_of_query(self):
        for device in DEVICES:
            q, k, v = inputs((2, 3, 3, 20, 24, 4, 4), torch.float32, device, False)
            wanted = attend(q, k, v)
            transposed = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
            strided = [torch.stack([x, x], -1)[..., 0] for x in (q, k, v)]
            self.assertEqual(attend(*transposed).stride(), transposed[0].stride())
            for given in (transposed, strided, (q, k[:, :1].expand_as(k), v)):
                with sdpa_kernel(SDPBackend.MATH):
                    self.assertTrue(torch.allclose(attend(*given), attend(*(x.contiguous() for x in given)), atol=1e-6))
            self.assertTrue(torch.equal(attend(*transposed), wanted) and torch.equal(attend(*strided), wanted))

    def test_independent_of_thread_count(self):
        before, found = torch.get_num_threads(), []
        for threads in (1, 2, 7, 16):
            torch.set_num_threads(threads)
            torch.manual_seed(3)
            found.append([outcome(SDPBackend.FLASH_ATTENTION, inputs(shape, dtype), None, 0.0, True, enable_gqa=True)
                          for shape in SHAPES[:3] for dtype in TOLERANCE])
        torch.set_num_threads(before)
        for others in found[1:]:
            self.assertTrue(all(torch.equal(a, b) for x, y in zip(found[0], others) for a, b in zip(x, y)))

    def test_fully_masked_query_is_zero_without_gradient(self):
        for device in DEVICES:
            q, k, v = inputs((1, 1, 1, 2, 3, 4, 4), torch.float32, device)
            out = attend(q, k, v, torch.tensor([[False] * 3, [True] * 3], device=device))
            out.sum().backward()
            self.assertTrue(torch.equal(out[..., 0, :].cpu(), torch.zeros(1, 1, 4)) and torch.equal(q.grad[..., 0, :].cpu(), torch.zeros(1, 1, 4)))
            self.assertTrue(out[..., 1, :].abs().sum() > 0)

    def test_nan_stays_in_its_query(self):
        q, k, v = inputs((1, 1, 1, 3, 300, 4, 4), torch.float32, grad=False)
        q[..., 1, 2] = math.nan
        self.assertEqual(attend(q, k, v).isnan().any(-1).flatten().tolist(), [False, True, False])
        k[..., 290, 0] = math.nan
        self.assertTrue(attend(q, k, v).isnan().all())
        self.assertEqual(attend(q, k, v, is_causal=True).isnan().any(-1).flatten().tolist(), [False, True, False])


class Derivatives(unittest.TestCase):
    def test_first_and_second_derivatives(self):
        for device, shape in itertools.product(DEVICES, ((1, 2, 2, 3, 4, 2, 3), (1, 2, 1, 2, 3, 2, 2))):
            qkv = inputs(shape, device=device)
            if not supports_flash(*qkv):
                self.assertEqual(device, "cuda")
                continue
            for mask in (None, torch.tensor([[True, False, True, True][:shape[4]]], device=device)):
                def call(*x):
                    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                        return attend(*x, mask, 0.0, mask is None, enable_gqa=True)
                self.assertTrue(gradcheck(call, qkv) and gradgradcheck(call, qkv))

    def test_shared_query_key_and_value(self):
        x, _, _ = inputs((1, 2, 2, 3, 3, 2, 2))
        self.assertTrue(gradcheck(lambda x: attend(x, x, x), [x]) and gradgradcheck(lambda x: attend(x, x, x), [x]))

    def test_dropout_is_reproduced_in_backward(self):
        for device in DEVICES:
            qkv = inputs((1, 2, 2, 3, 5, 2, 2), device=device)

            def call(*x):
                torch.manual_seed(5)
                return attend(*x, dropout_p=0.4)
            self.assertTrue(gradcheck(call, qkv) and gradgradcheck(call, qkv))

    def test_mask_gradient(self):
        q, k, v = inputs((1, 2, 2, 3, 4, 2, 2))
        mask = torch.randn(3, 4).double().requires_grad_()
        self.assertTrue(gradcheck(attend, [q, k, v, mask]))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), warnings.catch_warnings(record=True):
            with self.assertRaisesRegex(RuntimeError, "No available kernel.  Aborting execution."):
                attend(q, k, v, mask)
            with torch.no_grad():
                attend(q, k, v, mask)


class Dropout(unittest.TestCase):
    def test_dropout_rate_and_scaling(self):
        for device, p in itertools.product(DEVICES, (0.25, 0.8)):
            S = 2000
            q, k, v = torch.zeros(4, 4, device=device), torch.zeros(S, 4, device=device), torch.eye(S, device=device)
            torch.manual_seed(7)
            weights = attend(q, k, v, dropout_p=p) * S
            kept = weights > 0
            self.assertTrue(torch.allclose(weights[kept], torch.full_like(weights[kept], 1 / (1 - p)), rtol=1e-5))
            self.assertLess(abs(kept.float().mean().item() - (1 - p)), 0.02)
            self.assertFalse(torch.equal(kept[0], kept[1]))
            torch.manual_seed(7)
            self.assertTrue(torch.equal(attend(q, k, v, dropout_p=p) * S, weights))
            self.assertFalse(torch.equal(attend(q, k, v, dropout_p=p) * S, weights))
            self.assertEqual(attend(q, k, v, dropout_p=1.0).abs().sum().item(), 0)

    def test_invalid_dropout_p(self):
        for p in (-0.5, 1.5):
            with self.assertRaisesRegex(RuntimeError, "dropout probability has to be between 0 and 1, but got"):
                attend(*(torch.ones(2, 2) for _ in range(3)), dropout_p=p)


class Memory(unittest.TestCase):
    @unittest.skipUnless("cuda" in DEVICES, "no device that has the kernel")
    def test_no_score_matrix_on_device(self):
        q, k, v = inputs((4, 8, 8, 512, 512, 16, 16), torch.float32, "cuda")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        attend(q, k, v, None, 0.1, True).sum().backward()
        self.assertLess(torch.cuda.max_memory_allocated() - before, 4 * 8 * 512 * 512 * 4 // 2)

    def test_no_score_matrix_on_cpu(self):
        program = """
import resource, phlox as torch
q, k, v = (torch.randn(4, 8, 2048, 64, requires_grad=True) for _ in range(3))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.0, is_causal=True).sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
        grown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        self.assertLess(int(grown) * 1024, 4 * 8 * 2048 * 2048 * 4)  # one score matrix; actual use is a fifth of it


class BackendSelection(unittest.TestCase):
    def setUp(self):
        self.qkv = [torch.ones(1, 1, 16, 2) for _ in range(3)]

    def switches(self):
        return [cuda.math_sdp_enabled(), cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.cudnn_sdp_enabled()]

    def name(self, device="cpu"):
        return type(attend(*(x.to(device).requires_grad_() for x in self.qkv)).grad_fn).__name__

    def test_selected_backend(self):
        flash, math_ = "ScaledDotProductFlashAttentionBackward0", "MatmulBackward0"
        for device in DEVICES:
            self.assertEqual(self.name(device), flash)
            with sdpa_kernel(SDPBackend.MATH):
                self.assertNotEqual(self.name(device), flash)
            with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
                self.assertEqual(self.name(device), flash)
            with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
                self.assertNotEqual(self.name(device), flash)
        if len(DEVICES) > 1:
            for way in (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
                with sdpa_kernel(way):
                    self.assertEqual(self.name("cuda"), flash)

    def test_no_viable_backend(self):
        for ways in ([], [SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
            with sdpa_kernel(ways), self.assertRaisesRegex(RuntimeError, "No viable backend for scaled_dot_product_attention was found"):
                attend(*self.qkv)
        for args, why in (((torch.ones(2, 2, dtype=torch.complex64),) * 3, "the same floating-point dtype"), ((torch.ones(2, 2), torch.ones(2, 3), torch.ones(2, 2)), "sizes"),
                          ((torch.ones(2, 2),) * 3 + (torch.ones(3, 3),), "attn_mask does not broadcast")):
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with self.assertRaisesRegex(RuntimeError, "No available kernel.  Aborting execution."):
                    attend(*args)
            self.assertIn(why, str(caught[0].message))

    def test_backend_flags_are_restored(self):
        self.assertEqual(self.switches(), [True] * 4)
        with self.assertRaises(ZeroDivisionError), sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            self.assertEqual(self.switches(), [False, True, False, False])
            with sdpa_kernel(SDPBackend.MATH):
                self.assertEqual(self.switches(), [True, False, False, False])
            1 / 0
        self.assertEqual(self.switches(), [True] * 4)
        cuda.enable_flash_sdp(False)
        self.assertEqual((self.switches(), cuda.flash_sdp_enabled()), ([True, False, True, True], False))
        cuda.enable_flash_sdp(True)
        with self.assertRaisesRegex(RuntimeError, "expects a bool, but got int"):
            cuda.enable_math_sdp(1)
        for wrong in (3, "x", ["x"], None):
            with self.assertRaisesRegex(AssertionError, "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got"):
                with sdpa_kernel(wrong):
                    pass
        self.assertEqual((repr(SDPBackend.MATH), str(SDPBackend.ERROR), int(SDPBackend.OVERRIDEABLE)), ("<SDPBackend.MATH: 0>", "SDPBackend.ERROR", 4))

    def test_can_use_functions(self):
        for device in DEVICES:
            params = cuda.SDPAParams(*(x.to(device) for x in self.qkv), None, 0.0, False, False)
            self.assertIs(cuda.can_use_flash_attention(params), True)
            self.assertIs(cuda.can_use_efficient_attention(params), device == "cuda")
            self.assertIs(cuda.can_use_cudnn_attention(params), device == "cuda")
            with sdpa_kernel(SDPBackend.MATH):
                self.assertIs(cuda.can_use_flash_attention(params), False)
        mask = torch.zeros(16, 16, requires_grad=True)
        params = cuda.SDPAParams(*self.qkv, mask, 0.0, False, False)
        self.assertIs(params.attn_mask, mask)
        with self.assertWarnsRegex(UserWarning, "attn_mask requires grad"):
            self.assertIs(cuda.can_use_flash_attention(params, debug=True), False)

    def test_dtype_checks(self):
        q, k, v = self.qkv
        with self.assertRaisesRegex(RuntimeError, "same dtype, but got query.dtype: float key.dtype: double and value.dtype: c10::Half instead."):
            attend(q, k.double(), v.half())
        with self.assertRaisesRegex(RuntimeError, "got attn_mask.dtype: long int and  query.dtype: float instead."):
            attend(q, k, v, torch.ones(16, 16, dtype=torch.int64))

    def test_used_by_modules(self):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            for training in (True, False):
                torch.nn.TransformerEncoder(layer.train(training), 2)(torch.randn(2, 5, 8)).sum().backward()
            torch.nn.MultiheadAttention(8, 2)(*(torch.randn(5, 2, 8) for _ in range(3)), need_weights=False)


if __name__ == "__main__":
    unittest.main()
