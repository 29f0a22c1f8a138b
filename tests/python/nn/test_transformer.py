# SPDX-License-Identifier: Apache-2.0
"""Attention and the layers of a Transformer: compared with explicit formulas on the CPU and on a simulated device; subclassing, replacement and
hooks; and results compared with PyTorch if it is installed, from the same seed."""
import copy
import io
import itertools
import math
import pickle
import unittest
import warnings

import phlox as torch

try:
    import torch as pytorch
    pytorch = None if "phlox" in pytorch.__file__ else pytorch
except ImportError:
    pytorch = None

nn, F = torch.nn, torch.nn.functional
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
E, H, N, L, S = 4, 2, 3, 5, 6


def close(a, b, tolerance=1e-5):
    return a.shape == b.shape and torch.allclose(a.cpu(), b.cpu(), atol=tolerance, rtol=tolerance)


def attention(layer, q, k, v, mask=None):
    """MultiheadAttention computed head by head, for inputs (N, L, E) and an additive mask (N, H, L, S)."""
    weights = layer.in_proj_weight.chunk(3) if layer.in_proj_weight is not None else (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
    biases = layer.in_proj_bias.chunk(3) if layer.in_proj_bias is not None else (None,) * 3
    q, k, v = (F.linear(x, w, b) for x, w, b in zip((q, k, v), weights, biases))
    for bias, name in ((layer.bias_k, "k"), (layer.bias_v, "v")):
        if bias is not None:
            k, v = (torch.cat([k, bias.expand(len(k), 1, -1)], 1), v) if name == "k" else (k, torch.cat([v, bias.expand(len(v), 1, -1)], 1))
    if layer.add_zero_attn:
        k, v = (F.pad(x, (0, 0, 0, 1)) for x in (k, v))
    width, outputs, shown = layer.head_dim, [], []
    for h in range(layer.num_heads):
        part = slice(h * width, (h + 1) * width)
        scores = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(width)
        if mask is not None:
            scores = scores + F.pad(mask[:, h], (0, k.shape[1] - mask.shape[-1]))
        shown.append(scores.softmax(-1))
        outputs.append(shown[-1] @ v[..., part])
    return layer.out_proj(torch.cat(outputs, -1)), torch.stack(shown, 1)


def masks(kind):
    """(key_padding_mask, attn_mask, both combined as an additive mask (N, H, L, S)) of a kind."""
    padding, pairs = torch.zeros(N, S, dtype=torch.bool), torch.zeros(L, S, dtype=torch.bool)
    padding[0, -2:] = padding[2, -1:] = True
    pairs[:, 0] = True
    as_number = {dtype: (lambda m: m) if dtype == torch.bool else (lambda m: torch.zeros(m.shape).masked_fill(m, -math.inf)) for dtype in (torch.bool, torch.float)}
    dtype = torch.float if "float" in kind else torch.bool
    full = torch.zeros(N, H, L, S)
    if "padding" in kind:
        full = full.masked_fill(padding[:, None, None], -math.inf)
    if "pairs" in kind:
        full = full.masked_fill(pairs, -math.inf)
    heads = torch.randn(N * H, L, S) if "heads" in kind else None
    if heads is not None:
        full = full + heads.view(N, H, L, S)
    return (as_number[dtype](padding) if "padding" in kind else None, as_number[dtype](pairs) if "pairs" in kind else heads, full)


KINDS = ("none", "padding", "pairs", "padding and pairs", "float padding and pairs", "heads", "float padding and heads")
OPTIONS = [dict(zip(("bias", "add_bias_kv", "add_zero_attn", "batch_first", "kdim"), row))
           for row in itertools.product((True, False), (False, True), (False, True), (False, True), (None, 3))]


class Attention(unittest.TestCase):
    def test_options_and_masks(self):
        torch.manual_seed(1)
        for device, options, kind in itertools.product(DEVICES, OPTIONS, KINDS):
            with self.subTest(device=device, kind=kind, **options):
                layer = nn.MultiheadAttention(E, H, **options).to(device)
                q, k, v = (torch.randn(N, n, size, device=device) for n, size in ((L, E), (S, layer.kdim), (S, E)))
                padding, pairs, full = (None if m is None else m.to(device) for m in masks(kind))
                wanted, weights = attention(layer, q, k, v, full)
                turn = (lambda x: x) if layer.batch_first else (lambda x: x.transpose(0, 1))
                given = {"key_padding_mask": padding, "attn_mask": pairs}
                result, shown = layer(turn(q), turn(k), turn(v), **given)
                self.assertTrue(close(turn(result), wanted))
                self.assertTrue(close(shown, weights.mean(1)))
                self.assertTrue(close(layer(turn(q), turn(k), turn(v), **given, average_attn_weights=False)[1], weights))
                result, shown = layer(turn(q), turn(k), turn(v), **given, need_weights=False)
                self.assertTrue(close(turn(result), wanted))
                self.assertIsNone(shown)

    def test_self_attention_and_shared_key_value(self):
        for batch_first, device in itertools.product((False, True), DEVICES):
            layer = nn.MultiheadAttention(E, H, batch_first=batch_first, device=device)
            x, y = torch.randn(N, L, E, device=device), torch.randn(N, S, E, device=device)
            turn = (lambda x: x) if batch_first else (lambda x: x.transpose(0, 1))
            for q, k in ((x, x), (x, y)):
                a, b = turn(q), turn(k)
                a = b if q is k else a
                self.assertTrue(close(turn(layer(a, b, b)[0]), attention(layer, q, k, k)[0]))

    def test_unbatched_input(self):
        layer = nn.MultiheadAttention(E, H, batch_first=True)
        q, k = torch.randn(L, E), torch.randn(S, E)
        padding = torch.tensor([False] * (S - 1) + [True])
        full = torch.zeros(1, H, L, S).masked_fill(padding, -math.inf)
        result, weights = layer(q, k, k, key_padding_mask=padding)
        wanted, shown = attention(layer, q[None], k[None], k[None], full)
        self.assertTrue(close(result, wanted[0]) and close(weights, shown.mean(1)[0]))
        each = torch.randn(H, L, S)
        self.assertTrue(close(layer(q, k, k, attn_mask=each)[0], attention(layer, q[None], k[None], k[None], each[None])[0][0]))

    def test_is_causal_with_mask(self):
        layer = nn.MultiheadAttention(E, H)
        x = torch.randn(L, N, E)
        mask = nn.Transformer.generate_square_subsequent_mask(L)
        wanted = layer(x, x, x, attn_mask=mask)[0]
        for need in (False, True):
            self.assertTrue(close(layer(x, x, x, attn_mask=mask, is_causal=True, need_weights=need)[0], wanted))
        padding = torch.zeros(N, L, dtype=torch.bool)
        self.assertTrue(close(layer(x, x, x, padding.float(), attn_mask=mask, is_causal=True, need_weights=False)[0], wanted))
        with self.assertRaisesRegex(RuntimeError, "Need attn_mask if specifying the is_causal hint"):
            layer(x, x, x, is_causal=True)

    def test_dropout_in_training(self):
        layer = nn.MultiheadAttention(E, H, dropout=0.5)
        x = torch.randn(L, N, E)
        shown = layer(x, x, x, average_attn_weights=False)[1]
        self.assertTrue((shown == 0).any())
        self.assertFalse(torch.equal(layer(x, x, x, need_weights=False)[0], layer(x, x, x, need_weights=False)[0]))
        layer.eval()
        self.assertTrue(close(layer(x, x, x)[0], layer(x, x, x, need_weights=False)[0]))

    def test_static_keys_and_values(self):
        layer, q = nn.MultiheadAttention(E, H), torch.randn(L, N, E)
        k, v = torch.randn(N * H, S, E // H), torch.randn(N * H, S, E // H)
        given = (q, q, q, E, H, layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0, layer.out_proj.weight, layer.out_proj.bias)
        result, weights = F.multi_head_attention_forward(*given, static_k=k, static_v=v)
        projected = F.linear(q, layer.in_proj_weight[:E], layer.in_proj_bias[:E]).view(L, N * H, -1).transpose(0, 1)
        heads = F.scaled_dot_product_attention(projected, k, v).transpose(0, 1).reshape(L, N, E)
        self.assertTrue(close(result, layer.out_proj(heads)))
        self.assertEqual(weights.shape, (N, L, S))
        self.assertTrue(close(F.multi_head_attention_forward(*given)[0], layer(q, q, q)[0]))

    def test_gradients(self):
        torch.manual_seed(2)
        tensors = [torch.randn(*shape, dtype=torch.float64, requires_grad=True)
                   for shape in ((2, 2, E), (2, 2, E), (2, 2, E), (3 * E, E), (3 * E,), (1, 1, E), (1, 1, E), (E, E), (E,))]
        for need in (True, False):
            def call(q, k, v, weight, bias, bias_k, bias_v, *out):
                return F.multi_head_attention_forward(q, k, v, E, H, weight, bias, bias_k, bias_v, True, 0.0, *out, need_weights=need)[0]
            self.assertTrue(torch.autograd.gradcheck(call, tensors))
            self.assertTrue(torch.autograd.gradgradcheck(lambda *x: call(*x, *tensors[3:]), tensors[:3]))

    def test_errors_match_pytorch(self):
        layer, x = nn.MultiheadAttention(E, H), torch.randn(L, N, E)
        separate = nn.MultiheadAttention(E, H, kdim=3)
        for call, error, text in (
                (lambda: nn.MultiheadAttention(0, 1), ValueError, "embed_dim and num_heads must be greater than 0, got embed_dim=0 and num_heads=1 instead"),
                (lambda: nn.MultiheadAttention(5, 2), AssertionError, "embed_dim must be divisible by num_heads"),
                (lambda: layer(x[None], x, x), AssertionError, "query should be unbatched 2D or batched 3D tensor but received 4-D query tensor"),
                (lambda: layer(x, x[0], x), AssertionError, r"For batched \(3-D\) `query`, expected `key` and `value` to be 3-D but found 2-D and 3-D tensors respectively"),
                (lambda: layer(x[0], x[0], x), AssertionError, r"For unbatched \(2-D\) `query`, expected `key` and `value` to be 2-D but found 2-D and 3-D tensors"),
                (lambda: layer(x, x, x, torch.zeros(L)), AssertionError, "expected `key_padding_mask` to be `None` or 2-D but found 1-D tensor instead"),
                (lambda: layer(x, x, x, attn_mask=torch.zeros(L)), AssertionError, "expected `attn_mask` to be `None`, 2-D or 3-D but found 1-D tensor instead"),
                (lambda: layer(x, x, x, attn_mask=torch.zeros(L, L, dtype=torch.int64)), AssertionError, "only bool and floating types of attn_mask are supported"),
                (lambda: layer(x[0], x[0], x[0], attn_mask=torch.zeros(1, N, N)), AssertionError, r"Expected `attn_mask` shape to be \(2, 3, 3\) but got torch.Size\(\[1, 3, 3\]\)"),
                (lambda: layer(x[..., :2], x, x), AssertionError, "was expecting embedding dimension of 4, but got 2"),
                (lambda: layer(x, x, x[:2]), AssertionError, r"key shape torch.Size\(\[5, 3, 4\]\) does not match value shape torch.Size\(\[2, 3, 4\]\)"),
                (lambda: layer(x, x, x, attn_mask=torch.zeros(2, L)), RuntimeError, r"The shape of the 2D attn_mask is torch.Size\(\[2, 5\]\), but should be \(5, 5\)."),
                (lambda: layer(x, x, x, attn_mask=torch.zeros(2, L, L)), RuntimeError, r"The shape of the 3D attn_mask is torch.Size\(\[2, 5, 5\]\), but should be \(6, 5, 5\)."),
                (lambda: layer(x, x, x, torch.zeros(N, 2)), AssertionError, r"Expected key_padded_mask.shape\[1\] to be 5, but got 2"),
                (lambda: separate(x, x, x), AssertionError, r"expecting key weights shape of \(4, 4\), but got torch.Size\(\[4, 3\]\)"),
                (lambda: layer(x, x), TypeError, r"MultiheadAttention.forward\(\) missing 1 required positional argument: 'value'"),
                (lambda: layer(x, x, x, causal=True), TypeError, r"MultiheadAttention.forward\(\) got an unexpected keyword argument 'causal'"),
                (lambda: layer(x, x, None), TypeError, r"MultiheadAttention.forward\(\): argument 'value' must be Tensor, not NoneType"),
                (lambda: layer(x, x, x, 3), TypeError, r"argument 'key_padding_mask' must be Tensor, not int")):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                call()
        with self.assertWarnsRegex(UserWarning, "Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for both instead."):
            layer(x, x, x, torch.zeros(N, L, dtype=torch.bool), attn_mask=torch.zeros(L, L))

    def test_state_and_attributes(self):
        layer = nn.MultiheadAttention(E, H, add_bias_kv=True, kdim=3)
        self.assertEqual([name for name, _ in layer.named_parameters()],
                         ["q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "bias_k", "bias_v", "out_proj.weight", "out_proj.bias"])
        self.assertEqual((layer.embed_dim, layer.num_heads, layer.kdim, layer.vdim, layer.head_dim, layer.dropout, layer.batch_first,
                          layer.add_zero_attn, layer._qkv_same_embed_dim, layer.in_proj_weight), (E, H, 3, E, E // H, 0.0, False, False, False, None))
        self.assertFalse(hasattr(layer, "bias") or hasattr(layer, "reset_parameters"))
        self.assertEqual(repr(nn.MultiheadAttention(E, H)), "MultiheadAttention(\n  (out_proj): NonDynamicallyQuantizableLinear"
                                                            "(in_features=4, out_features=4, bias=True)\n)")
        before = layer.q_proj_weight.clone()
        layer._reset_parameters()
        self.assertFalse(torch.equal(before, layer.q_proj_weight))

    def test_replaced_weights_are_used(self):
        layer, x = nn.MultiheadAttention(E, H), torch.randn(L, N, E)
        weight, wanted = layer.in_proj_weight, layer(x, x, x)[0]
        del layer.in_proj_weight
        layer.in_proj_weight = weight * 1
        self.assertTrue(close(layer(x, x, x)[0], wanted))
        class Scaled(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner
            bias = property(lambda self: self.inner.bias)
            weight = property(lambda self: self.inner.weight * 2)
        layer.out_proj = Scaled(layer.out_proj)
        self.assertTrue(close(layer(x, x, x)[0] - layer.out_proj.bias, 2 * (wanted - layer.out_proj.bias)))


# ---- layers

def encoder_layer(layer, x, mask=None):
    def attend(y):
        return attention(layer.self_attn, y, y, y, mask)[0]
    def feed(y):
        return layer.linear2(layer.activation(layer.linear1(y)))
    if layer.norm_first:
        x = x + attend(layer.norm1(x))
        return x + feed(layer.norm2(x))
    x = layer.norm1(x + attend(x))
    return layer.norm2(x + feed(x))


class Layers(unittest.TestCase):
    def test_encoder_layers(self):
        for device, activation, norm_first, batch_first in itertools.product(DEVICES, ("relu", "gelu", F.silu, nn.Tanh()), (False, True), (False, True)):
            with self.subTest(device=device, activation=activation, norm_first=norm_first, batch_first=batch_first):
                layer = nn.TransformerEncoderLayer(E, H, 8, 0.0, activation, norm_first=norm_first, batch_first=batch_first).to(device)
                x = torch.randn(N, S, E, device=device)
                padding = torch.zeros(N, S, dtype=torch.bool, device=device)
                padding[1, 3:] = True
                full = torch.zeros(N, H, S, S, device=device).masked_fill(padding[:, None, None], -math.inf)
                turn = (lambda x: x) if batch_first else (lambda x: x.transpose(0, 1))
                self.assertTrue(close(turn(layer(turn(x), src_key_padding_mask=padding)), encoder_layer(layer, x, full)))
                self.assertTrue(close(layer(turn(x)[0]), encoder_layer(layer, turn(x)[:1])[0]))

    def test_decoder_layers(self):
        for norm_first, device in itertools.product((False, True), DEVICES):
            layer = nn.TransformerDecoderLayer(E, H, 8, 0.0, norm_first=norm_first, batch_first=True, device=device)
            x, memory = torch.randn(N, L, E, device=device), torch.randn(N, S, E, device=device)
            mask = nn.Transformer.generate_square_subsequent_mask(L, device=device)
            def attend(y):
                return attention(layer.self_attn, y, y, y, mask.expand(N, H, L, L))[0]
            def look(y):
                return attention(layer.multihead_attn, y, memory, memory)[0]
            def feed(y):
                return layer.linear2(F.relu(layer.linear1(y)))
            wanted = x
            for norm, block in ((layer.norm1, attend), (layer.norm2, look), (layer.norm3, feed)):
                wanted = wanted + block(norm(wanted)) if norm_first else norm(wanted + block(wanted))
            for hint in ({}, {"tgt_is_causal": True}):
                self.assertTrue(close(layer(x, memory, mask, **hint), wanted))

    def test_stacks_copy_the_layer(self):
        layer = nn.TransformerEncoderLayer(E, H, 8, 0.0)
        stack = nn.TransformerEncoder(layer, 3, nn.LayerNorm(E), enable_nested_tensor=False)
        x = torch.randn(L, N, E)
        self.assertEqual((stack.num_layers, len(stack.layers), stack.enable_nested_tensor, stack.mask_check), (3, 3, False, True))
        self.assertIsNot(stack.layers[0].linear1.weight, stack.layers[1].linear1.weight)
        wanted = x
        for one in stack.layers:
            self.assertTrue(torch.equal(one.linear1.weight, layer.linear1.weight))
            wanted = one(wanted)
        self.assertTrue(close(stack(x), stack.norm(wanted)))
        stack.norm = None
        self.assertTrue(close(stack(x), wanted))
        self.assertIsNone(nn.TransformerEncoder(layer, 1).norm)

    def test_num_layers_limit(self):
        for make in (lambda n: nn.TransformerEncoder(nn.Identity(), n), lambda n: nn.TransformerDecoder(nn.Identity(), n),
                     lambda n: nn.Transformer(4, 2, num_encoder_layers=n), lambda n: nn.Transformer(4, 2, 1, n)):
            with self.assertRaisesRegex(ValueError, "num_layers must be at most 10000"):
                make(2 ** 62)

    def test_causal_mask_detection(self):
        class Layer(nn.TransformerEncoderLayer):
            def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
                hints.append(is_causal)
                return super().forward(src, src_mask, src_key_padding_mask, is_causal)
        hints, x = [], torch.randn(L, N, E)
        stack = nn.TransformerEncoder(Layer(E, H, 8, 0.0), 1)
        causal = nn.Transformer.generate_square_subsequent_mask(L)
        results = [stack(x, mask=mask) for mask in (None, causal, causal.isinf(), torch.zeros(L, L))]
        stack(x, causal, is_causal=False)
        stack(x, causal, is_causal=True)
        self.assertEqual(hints, [False, True, True, False, False, True])
        self.assertTrue(close(results[1], results[2]) and close(results[0], results[3]))
        self.assertFalse(close(results[0], results[1]))

    def test_transformer(self):
        for batch_first, device in itertools.product((False, True), DEVICES):
            model = nn.Transformer(E, H, 2, 2, 8, 0.0, batch_first=batch_first, device=device)
            src, tgt = (torch.randn(*((N, n) if batch_first else (n, N)), E, device=device) for n in (S, L))
            mask = nn.Transformer.generate_square_subsequent_mask(L, device=device)
            padding = torch.zeros(N, S, dtype=torch.bool, device=device)
            padding[0, -1] = True
            result = model(src, tgt, tgt_mask=mask, src_key_padding_mask=padding, memory_key_padding_mask=padding)
            memory = model.encoder(src, src_key_padding_mask=padding)
            self.assertTrue(close(result, model.decoder(tgt, memory, mask, memory_key_padding_mask=padding)))
            self.assertTrue(all(p.abs().max() <= math.sqrt(6 / sum(p.shape)) for p in model.parameters() if p.dim() > 1))

    def test_custom_encoder_and_layer(self):
        class Twice(nn.Module):
            def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
                return 2 * src
        model = nn.Transformer(E, H, 1, 1, 8, 0.0, custom_encoder=Twice())
        src, tgt = torch.randn(S, N, E), torch.randn(L, N, E)
        self.assertTrue(close(model(src, tgt), model.decoder(tgt, 2 * src)))
        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.self_attn, self.seen = nn.MultiheadAttention(E, H), []
            def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
                self.seen.append((src_mask, src_key_padding_mask, is_causal))
                return self.self_attn(src, src, src)[0]
        stack = nn.TransformerEncoder(Layer(), 2)
        stack(src)
        self.assertEqual([layer.seen for layer in stack.layers], [[(None, None, False)]] * 2)
        with self.assertRaisesRegex(AttributeError, "'Twice' object has no attribute 'self_attn'"):
            nn.TransformerEncoder(Twice(), 1)(src)

    def test_overridden_blocks_are_called(self):
        class Layer(nn.TransformerEncoderLayer):
            def _ff_block(self, x):
                return 3 * super()._ff_block(x)
            def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
                return torch.zeros_like(x)
        layer, x = Layer(E, H, 8, 0.0), torch.randn(L, N, E)
        y = layer.norm1(x)
        wanted = layer.norm2(y + 3 * layer.linear2(F.relu(layer.linear1(y))))
        self.assertTrue(close(layer(x), wanted))
        self.assertTrue(close(nn.TransformerEncoder(layer, 1)(x), wanted))
        plain = nn.TransformerEncoderLayer(E, H, 8, 0.0)
        self.assertTrue(close(plain._sa_block(x, None, None), plain.self_attn(x, x, x)[0]))
        plain._ff_block = torch.zeros_like
        self.assertTrue(close(plain(x), plain.norm2(plain.norm1(x + plain._sa_block(x, None, None)))))
        plain.activation = torch.tanh
        self.assertTrue(close(nn.TransformerEncoderLayer._ff_block(plain, x), plain.linear2(torch.tanh(plain.linear1(x)))))
        self.assertFalse(hasattr(nn.Linear, "_ff_block"))

    def test_hooks_and_replaced_children(self):
        layer, x, seen = nn.TransformerEncoderLayer(E, H, 8, 0.0), torch.randn(L, N, E), []
        layer.self_attn.register_forward_hook(lambda module, args, kwargs, result: seen.append((len(args), sorted(kwargs), result[1])), with_kwargs=True)
        layer.linear1.register_forward_hook(lambda module, args, result: seen.append(result.shape))
        layer(x)
        self.assertEqual(seen, [(3, ["attn_mask", "is_causal", "key_padding_mask", "need_weights"], None), (L, N, 8)])
        class Attention(nn.Module):
            batch_first = False
            def forward(self, query, key, value, **options):
                return query * 2, None
        layer.self_attn = Attention()
        y = layer.norm1(3 * x)
        self.assertTrue(close(layer(x), layer.norm2(y + layer._ff_block(y))))

    def test_reprs(self):
        self.assertEqual(repr(nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, 8, activation=nn.SiLU()), 2)).count("\n"), 16)
        self.assertIn("(0-1): 2 x TransformerEncoderLayer(", repr(nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, 8), 2)))
        self.assertIn("  (activation): SiLU()\n", repr(nn.TransformerEncoderLayer(E, H, 8, activation=nn.SiLU())))
        layer = nn.TransformerEncoderLayer(E, H, 8)
        self.assertIs(layer.activation, F.relu)
        self.assertFalse(hasattr(layer, "d_model") or hasattr(layer, "nhead"))

    def test_copies_pickles_and_files(self):
        x = torch.randn(L, N, E)
        for model in (nn.MultiheadAttention(E, H, kdim=E, add_zero_attn=True), nn.TransformerEncoderLayer(E, H, 8, 0.0, "gelu"),
                      nn.TransformerDecoderLayer(E, H, 8, 0.0, nn.SiLU(), norm_first=True), nn.Transformer(E, H, 1, 1, 8, 0.0)):
            def call(model):
                given = {nn.MultiheadAttention: (x, x, x), nn.TransformerEncoderLayer: (x,)}.get(type(model), (x, x))
                result = model(*given)
                return result[0] if isinstance(result, tuple) else result
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
                self.assertTrue(close(call(model), call(other)))
                self.assertEqual(repr(model), repr(other))
            other = copy.deepcopy(model)
            for p in other.parameters():
                p.data.zero_()
            self.assertEqual(str(other.load_state_dict(model.state_dict())), "<All keys matched successfully>")
            self.assertTrue(close(call(model), call(other)))

    @unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
    def test_data_parallel(self):
        torch.manual_seed(0)
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, 8, 0.0, F.silu, batch_first=True), 2).cuda()
        x = torch.randn(4, L, E, device="cuda")
        replicated = nn.DataParallel(model, [0, 1])
        self.assertTrue(close(replicated(x), model(x)))
        replicated(x).sum().backward()
        self.assertTrue(all(p.grad is not None for p in model.parameters()))

    def test_gradients(self):
        torch.manual_seed(0)
        model = nn.Transformer(E, H, 1, 1, 4, 0.0, "gelu").double()
        src, tgt = (torch.randn(2, 1, E, dtype=torch.float64, requires_grad=True) for _ in range(2))
        self.assertTrue(torch.autograd.gradcheck(model, (src, tgt)))

    def test_autocast(self):
        model, x = nn.TransformerEncoderLayer(E, H, 8, 0.0), torch.randn(L, N, E)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = model(x)
        self.assertTrue(close(result.float(), model(x), 0.1))
        result.sum().backward()

    def test_errors_match_pytorch(self):
        model, x = nn.Transformer(E, H, 1, 1, 8), torch.randn(L, N, E)
        for call, error, text in (
                (lambda: nn.TransformerEncoderLayer(E, H, activation="tanh"), RuntimeError, "activation should be relu/gelu, not tanh"),
                (lambda: nn.TransformerEncoderLayer(E), TypeError, "missing 1 required positional argument: 'nhead'"),
                (lambda: nn.TransformerEncoder(), TypeError, r"TransformerEncoder.__init__\(\) missing 2 required positional arguments: 'encoder_layer' and 'num_layers'"),
                (lambda: model(x, x[:, :2]), RuntimeError, "the batch number of src and tgt must be equal"),
                (lambda: model(x, x[..., :2]), RuntimeError, "the feature number of src and tgt must be equal to d_model"),
                (lambda: model.encoder(x, torch.zeros(L, L, dtype=torch.int64)), AssertionError, "only bool and floating types of mask are supported"),
                (lambda: model.encoder.layers[0](x, src_key_padding_mask=torch.zeros(N, L, dtype=torch.int64)), AssertionError,
                 "only bool and floating types of src_key_padding_mask are supported"),
                (lambda: model.encoder.layers[0](), TypeError, r"TransformerEncoderLayer.forward\(\) missing 1 required positional argument: 'src'")):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                call()


@unittest.skipIf(pytorch is None, "PyTorch is not installed")
class ComparedWithPyTorch(unittest.TestCase):
    def both(self, made, *shapes, **given):
        """Results, gradients and weights of a model in both libraries, from the same seed."""
        outcomes = []
        for library in (torch, pytorch):
            library.manual_seed(3)
            model = made(library)
            tensors = [library.tensor(value, requires_grad=True) for value in given.get("values", [])]
            tensors = [library.tensor(torch.linspace(-1, 1, math.prod(shape)).sin().view(shape).tolist(), requires_grad=True) for shape in shapes]
            more = {name: library.tensor(value) for name, value in given.items()}
            result = model(*tensors, **more)
            first = result[0] if isinstance(result, tuple) else result
            (first * first).sum().backward()
            values = [first, *tensors, *model.parameters()]
            outcomes.append([value.tolist() for value in values] + [value.grad.tolist() for value in values[1:] if value.grad is not None])
        for mine, theirs in zip(*outcomes, strict=True):
            self.assertTrue(close(torch.tensor(mine), torch.tensor(theirs), 1e-4))

    def test_weights_results_and_gradients(self):
        padding, causal = [[False, False, True], [False, False, False]], [[False, True, True], [False, False, True], [False, False, False]]
        old = "bias" not in pytorch.nn.TransformerEncoderLayer.__init__.__annotations__
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for options in ({}, {"kdim": 3, "vdim": 2}, {"add_bias_kv": True, "add_zero_attn": True}, {"bias": False, "batch_first": True}):
                shapes = [(2, 3, n) if "batch_first" in options else (3, 2, n) for n in (E, options.get("kdim", E), options.get("vdim", E))]
                self.both(lambda library: library.nn.MultiheadAttention(E, H, **options), *shapes, key_padding_mask=padding, attn_mask=causal)
            for options in ({}, {"norm_first": True, "activation": "gelu"}, {"batch_first": True}, {} if old else {"bias": False}):
                shape = (2, 3, E) if "batch_first" in options else (3, 2, E)
                self.both(lambda library: library.nn.TransformerEncoderLayer(E, H, 8, 0.0, **options), shape, src_mask=causal, src_key_padding_mask=padding)
                self.both(lambda library: library.nn.TransformerDecoderLayer(E, H, 8, 0.0, **options), shape, shape, tgt_mask=causal, memory_key_padding_mask=padding)
                self.both(lambda library: library.nn.Transformer(E, H, 2, 2, 8, 0.0, **options), shape, shape, tgt_mask=causal, src_key_padding_mask=padding)
                self.both(lambda library: library.nn.TransformerEncoder(library.nn.TransformerEncoderLayer(E, H, 8, 0.0, **options), 2), shape, mask=causal)


if __name__ == "__main__":
    unittest.main()
