#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch 2.15.0, on the CPU: without torch.compile, flex_attention ignores the lists of blocks of a BlockMask. It calls mask_mod alone.
#
# BlockMask.from_kv_blocks takes lists of visible blocks. mask_mod is optional. In the example queries see the first of two blocks of keys. to_dense()
# and sparsity() confirm it. Yet the result is that of all keys. Kernels of torch.compile skip blocks in no list.
#
# Output seen:
#   to_dense: [[1, 0], [1, 0]], sparsity 50.0
#   largest difference to attention over the first block: 0.457
#   largest difference to attention over all keys: 0.0
exec "$(dirname "$0")/../tools/finding.sh" "$0" torch==2.15.0 numpy==2.3.5 <<'PROGRAM'
import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention as plain

mask = BlockMask.from_kv_blocks(torch.ones(1, 1, 2, dtype=torch.int32), torch.zeros(1, 1, 2, 2, dtype=torch.int32))
torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 256, 16) for _ in range(3))
print(f"to_dense: {mask.to_dense()[0, 0].tolist()}, sparsity {mask.sparsity()}")
out = flex_attention(q, k, v, block_mask=mask)
for name, count in ("the first block", 128), ("all keys", 256):
    difference = (out - plain(q, k[:, :, :count], v[:, :, :count])).abs().max().item()
    print(f"largest difference to attention over {name}: {difference:.3}" if difference > 1e-6 else f"largest difference to attention over {name}: 0.0")
PROGRAM
