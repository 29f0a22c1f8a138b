# SPDX-License-Identifier: Apache-2.0
"""torch.nn.attention.flex_attention: values beside scaled_dot_product_attention, gradients, block masks."""
import unittest

import phlox as torch
from phlox.nn.attention import flex_attention as flex
from phlox.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, create_mask, flex_attention
from phlox.nn.functional import scaled_dot_product_attention

DEVICES = ["cpu", "cuda"] if torch.cuda.device_count() else ["cpu"]
int32 = torch.int32


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def inputs(device="cpu", heads=2, length=20, kv_length=20, dtype=torch.float64):
    torch.manual_seed(1)
    return [torch.randn(2, heads, n, width, dtype=dtype).to(device).requires_grad_() for n, width in ((length, 8), (kv_length, 8), (kv_length, 4))]


class FlexAttention(unittest.TestCase):
    def assertClose(self, a, b):
        torch.testing.assert_close(a, b)

    def test_values_and_gradients_are_those_of_scaled_dot_product_attention(self):
        for device in DEVICES:
            for dtype in torch.float64, torch.float32, torch.bfloat16:
                of = inputs(device, dtype=dtype)
                mask = create_block_mask(causal, None, None, 20, 20, device=device, BLOCK_SIZE=8)
                out = flex_attention(*of, block_mask=mask)
                want = scaled_dot_product_attention(*of, is_causal=True)
                self.assertEqual(out.dtype, dtype)
                self.assertClose(out, want)
                g = torch.randn_like(want)
                for a, b in zip(torch.autograd.grad(out, of, g), torch.autograd.grad(want, of, g)):
                    torch.testing.assert_close(a, b, rtol=0.02, atol=0.02 if dtype == torch.bfloat16 else 1e-5)

    def test_grouped_heads_and_scale(self):
        q = inputs(heads=6)[0]
        _, k, v = inputs(heads=2)
        self.assertClose(flex_attention(q, k, v, enable_gqa=True, scale=0.3), scaled_dot_product_attention(q, k, v, enable_gqa=True, scale=0.3))

    def test_a_score_mod_reads_tensors_and_they_get_gradients(self):
        of = inputs()
        slopes = torch.tensor([0.5, -0.25], dtype=torch.float64, requires_grad=True)

        def alibi(score, b, h, q_idx, kv_idx):
            return score + slopes[h] * (kv_idx - q_idx) + b

        def bias_of(slopes):
            distance = torch.arange(20) - torch.arange(20)[:, None]
            return slopes[:, None, None] * distance

        self.assertTrue(torch.autograd.gradcheck(lambda *t: flex_attention(*t, score_mod=alibi), of))
        out = flex_attention(*of, score_mod=alibi)
        want = scaled_dot_product_attention(*of, attn_mask=bias_of(slopes))
        self.assertClose(out, want)
        self.assertClose(torch.autograd.grad(out.square().sum(), slopes)[0], torch.autograd.grad(want.square().sum(), slopes)[0])

    def test_queries_without_a_key_are_zero_and_have_no_gradient(self):
        of = inputs()
        mask = create_block_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx + 3, None, None, 20, 20, device="cpu")
        out, aux = flex_attention(*of, block_mask=mask, return_aux=AuxRequest(lse=True, max_scores=True))
        self.assertEqual(out[:, :, :3].abs().max().item(), 0)
        self.assertTrue(aux.lse[:, :, :3].isneginf().all() and aux.max_scores[:, :, :3].isneginf().all())
        (out.sum() + aux.lse[:, :, 3:].sum()).backward()
        self.assertEqual(of[0].grad[:, :, :3].abs().max().item(), 0)
        self.assertFalse(any(t.grad.isnan().any() for t in of))
        empty = [t[:, :, :0] for t in of[1:]]
        self.assertEqual(flex_attention(of[0], *empty).abs().sum().item(), 0)

    def test_results_besides_the_output(self):
        q, k, v = inputs()
        scores = (q @ k.mT / 8 ** 0.5).detach()
        with self.assertWarnsRegex(UserWarning, r"kernel_options \['BLOCK_M'\] have no effect"):
            out, lse = flex_attention(q, k, v, return_lse=True, kernel_options={"BLOCK_M": 32})
        self.assertClose(lse, scores.logsumexp(-1))
        self.assertEqual((lse.requires_grad, lse.dtype), (True, torch.float64))
        _, aux = flex_attention(q, k, v, return_aux=AuxRequest(max_scores=True))
        self.assertIsNone(aux.lse)
        self.assertClose(aux.max_scores, scores.amax(-1))
        self.assertEqual(flex_attention(q, k, v, return_aux=AuxRequest())[1], (None, None))

    def test_blocks_in_no_list_are_masked(self):
        of = inputs(length=8, kv_length=8)
        blocks = BlockMask.from_kv_blocks(torch.tensor([[[1, 0]]], dtype=int32), torch.tensor([[[[1, 0], [0, 1]]]], dtype=int32),
                                          torch.tensor([[[0, 1]]], dtype=int32), torch.tensor([[[[0, 1], [0, 1]]]], dtype=int32),
                                          BLOCK_SIZE=4, mask_mod=lambda b, h, q_idx, kv_idx: kv_idx != 5)
        seen = torch.zeros(8, 8, dtype=torch.bool)
        seen[:4, 4:] = seen[4:, :4] = True
        seen[:4, 5] = False
        self.assertClose(flex_attention(*of, block_mask=blocks), scaled_dot_product_attention(*of, attn_mask=seen))

    def test_lists_of_a_block_mask(self):
        mask = create_block_mask(causal, None, None, 300, 260, device="cpu")
        self.assertEqual((mask.shape, mask.numel(), mask.BLOCK_SIZE), ((1, 1, 300, 260), 78000, (128, 128)))
        lists = [t.flatten().tolist() for t in mask.as_tuple()[2:10]]
        self.assertEqual(lists, [[1, 1, 3], [0, 1, 2, 1, 0, 2, 0, 1, 2], [0, 1, 0], [0, 1, 2] * 3,
                                 [2, 2, 1], [0, 2, 1, 1, 2, 0, 2, 0, 1], [1, 0, 0], [1, 0, 2, 0, 1, 2, 0, 1, 2]])
        self.assertEqual({t.dtype for t in mask.as_tuple()[2:10]}, {int32})
        self.assertEqual(mask.to_dense()[0, 0].tolist(), [[1, 0, 0], [1, 1, 0], [1, 1, 1]])
        self.assertEqual(str(mask), "BlockMask(shape=(1, 1, 300, 260), sparsity=33.33%, \n(0, 0)\n██    \n████  \n██████\n)")
        whole = create_block_mask(causal, None, None, 256, 256, device="cpu", separate_full_blocks=False)
        self.assertEqual((whole.kv_num_blocks.tolist(), whole.full_kv_indices), ([[[1, 2]]], None))
        self.assertEqual(create_block_mask(flex.noop_mask, 1, 1, 128, 128, device="cpu").full_kv_num_blocks.tolist(), [[[1]]])
        large = create_block_mask(causal, None, None, 16 * 80, 16 * 90, device="cpu", BLOCK_SIZE=16)
        self.assertEqual(large.to_string(grid_size=(4, 5)), "(0, 0)\n░░░░      \n██░░░░    \n████░░░░  \n██████░░░░")
        self.assertEqual(mask.to("meta").kv_indices.device.type, "meta")

    def test_parts_of_a_block_mask(self):
        of = inputs()
        mask = create_block_mask(lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (b + h < 2), 2, 2, 20, 20, device="cpu", BLOCK_SIZE=8)
        self.assertEqual([mask[i].shape for i in (0, (1, 1), slice(0, 1), (0, 0, 2), -1)],
                         [(1, 2, 20, 20), (1, 1, 20, 20), (1, 2, 20, 20), (1, 1, 4, 20), (1, 2, 20, 20)])
        self.assertEqual([mask[1, 1].sparsity(), mask[torch.tensor([0, 1])].kv_num_blocks.tolist()], [100, mask.kv_num_blocks.tolist()])
        cropped = mask._adjust(12, 10)
        self.assertEqual((cropped.shape, cropped.to_dense()[0, 0].tolist()), ((2, 2, 12, 10), [[1, 0], [1, 1]]))
        short = [of[0][:, :, :12], of[1][:, :, :10], of[2][:, :, :10]]
        seen = create_mask(mask.mask_mod, 2, 2, 12, 10, device="cpu")
        self.assertClose(flex_attention(*short, block_mask=cropped)[0], scaled_dot_product_attention(*short, attn_mask=seen)[0])
        with self.assertRaisesRegex(RuntimeError, "Cannot use mask_mod from a sliced BlockMask"):
            flex_attention(of[0][:, :, 16:], *of[1:], block_mask=mask[0, 0, 2])
        with self.assertRaisesRegex(IndexError, "index 5 is out of bounds for dimension 0 with size 2"):
            mask[5]
        with self.assertRaisesRegex(IndexError, "supports batch, head, and Q-block dimensions"):
            mask[0, 0, 0, 0]
        with self.assertRaisesRegex(ValueError, "cannot grow"):
            mask._adjust(40, 20)

    def test_combined_masks(self):
        near = lambda b, h, q_idx, kv_idx: (q_idx - kv_idx).abs() < 2
        both, either = (create_mask(f(causal, near), None, None, 3, 3, device="cpu")[0, 0].int().tolist() for f in (flex.and_masks, flex.or_masks))
        self.assertEqual(both, [[1, 0, 0], [1, 1, 0], [0, 1, 1]])
        self.assertEqual(either, [[1, 1, 0], [1, 1, 1], [1, 1, 1]])
        self.assertTrue(create_mask(flex.and_masks(), None, None, 1, 1, device="cpu").item())
        hidden = create_mask(lambda s, b, h, q_idx, kv_idx: torch.where(q_idx >= kv_idx, s, -float("inf")), None, None, 2, 2, device="cpu")
        self.assertEqual(hidden[0, 0].int().tolist(), [[1, 0], [1, 1]])

    def test_refused_calls(self):
        q, k, v = (t.detach() for t in inputs())
        mask = create_block_mask(causal, None, None, 20, 20, device="cpu")
        many = create_block_mask(causal, 3, 2, 20, 20, device="cpu")
        for kind, text, call in [
                (NotImplementedError, "must be 4D", lambda: flex_attention(q[0], k[0], v[0])),
                (ValueError, "but got E=4 and E=8", lambda: flex_attention(q[..., :4], k, v)),
                (ValueError, "Hq=2 and Hkv=1. Try setting enable_gqa", lambda: flex_attention(q, k[:, :1], v[:, :1])),
                (ValueError, "multiple of kv heads for GQA but got Hq=1 and Hkv=2", lambda: flex_attention(q[:, :1], k, v, enable_gqa=True)),
                (ValueError, "block_mask=None, Bq=1, and Bkv=2", lambda: flex_attention(q[:1], k, v)),
                (ValueError, "Expect key and value", lambda: flex_attention(q, k, v[:, :, :3])),
                (ValueError, "floating-point", lambda: flex_attention(q.int(), k, v)),
                (RuntimeError, "smaller length", lambda: flex_attention(q, k, v, block_mask=create_block_mask(causal, None, None, 9, 20, device="cpu"))),
                (RuntimeError, r"larger length .*_adjust", lambda: flex_attention(q[:, :, :9], k, v, block_mask=mask)),
                (ValueError, "batch size 3 and 2 heads, but query has 2 and 2", lambda: flex_attention(q, k, v, block_mask=many)),
                (TypeError, "must be a BlockMask, but got Tensor", lambda: flex_attention(q, k, v, block_mask=q)),
                (ValueError, "both return_lse and return_aux", lambda: flex_attention(q, k, v, return_lse=True, return_aux=AuxRequest())),
                (AssertionError, "OUTPUT_MAX must not be", lambda: flex_attention(q, k, v, kernel_options={"OUTPUT_MAX": 1})),
                (AssertionError, "Expected 4 or 5 positional args, got 1", lambda: create_mask(lambda a: a, None, None, 2, 2)),
                (AssertionError, "requires a mask_mod", lambda: create_block_mask(lambda s, b, h, q, k: s, None, None, 2, 2)),
                (AssertionError, "must be torch.bool, got torch.int64", lambda: create_block_mask(lambda b, h, q, k: q - k, None, None, 2, 2)),
                (ValueError, "BLOCK_SIZE must be positive, but got 0", lambda: create_block_mask(causal, None, None, 2, 2, BLOCK_SIZE=0)),
                (RuntimeError, "All inputs should be callable", lambda: flex.or_masks(3)),
                (RuntimeError, "at least 2 dimensions", lambda: BlockMask.from_kv_blocks(*[torch.ones(2, dtype=int32)] * 2)),
                (AssertionError, "both provided or omitted", lambda: BlockMask.from_kv_blocks(*[torch.ones(2, 2, dtype=int32)] * 3))]:
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                call()


if __name__ == "__main__":
    unittest.main()
