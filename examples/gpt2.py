# SPDX-License-Identifier: Apache-2.0
"""GPT-2 (Radford et al. 2019), trained from scratch on the bytes of a text: python3 -m phlox examples/gpt2.py TEXT. The default model has 124 million
parameters; bytes use 256 of its words. `--autocast` keeps weights in float32 and computes in bfloat16; otherwise everything is bfloat16. Also runs on
PyTorch, with the same weights and batches."""
import argparse, math
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.wide, self.back = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def attend(self, x, cache, at, seen):
        batch, length, size = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(size, 2))
        if cache is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # a single word, attending to the previous ones
            for kept, new in zip(cache, (k, v)): kept.index_copy_(2, at, new)
            y = F.scaled_dot_product_attention(q, *cache, attn_mask=seen)
        return self.proj(y.transpose(1, 2).reshape(batch, length, size))

    def forward(self, x, cache=None, at=None, seen=None):
        x = x + self.attend(self.ln_1(x), cache, at, seen)
        return x + self.back(F.gelu(self.wide(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, words=50304, length=1024, size=768, heads=12, layers=12):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, size), nn.Embedding(length, size)
        self.blocks = nn.ModuleList([Block(size, heads) for _ in range(layers)])
        self.ln = nn.LayerNorm(size)
        for name, p in self.named_parameters():
            if p.dim() > 1: nn.init.normal_(p, 0.0, 0.02 / (math.sqrt(2 * layers) if name.endswith(("proj.weight", "back.weight")) else 1))
            elif name.endswith("bias"): nn.init.zeros_(p)

    def forward(self, words, wanted=None, caches=None, at=None):
        positions = torch.arange(words.size(1), device=words.device) if at is None else at
        seen = caches and torch.arange(caches[0][0].size(2), device=words.device).view(1, 1, 1, -1) <= at
        x = self.words(words) + self.positions(positions)
        for i, block in enumerate(self.blocks):
            x = block(x, caches and caches[i], at, seen)
        y = F.linear(self.ln(x), self.words.weight)
        return y if wanted is None else F.cross_entropy(y.view(-1, y.size(-1)), wanted.reshape(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text")
    parser.add_argument("--autocast", action="store_true")
    for name, number in ("steps", 100), ("batch", 16), ("length", 1024), ("size", 768), ("heads", 12), ("layers", 12), ("words", 50304):
        parser.add_argument(f"--{name}", type=int, default=number)
    o = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with open(o.text, "rb") as file: text = torch.tensor(list(file.read()))
    net = GPT2(o.words, o.length, o.size, o.heads, o.layers).to(device, torch.float32 if o.autocast else torch.bfloat16)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(o.steps):
        starts = torch.randint(len(text) - o.length, (o.batch,))
        lines = torch.stack([text[i:i + o.length + 1] for i in starts.tolist()]).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=o.autocast):
            loss = net(lines[:, :-1], lines[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0 or step + 1 == o.steps: print(f"step {step:4}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
