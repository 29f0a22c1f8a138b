#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch 2.15.0 on the CPU: "1" in a pattern of torch.func.rearrange accepts a dimension of any size and keeps its last element.
#
# einops 0.8.1 defines these patterns. It raises an error for the same call. A "1" stands for a dimension of size 1.
#
# Output seen:
#   shape (2, 3, 4) by '1 a b -> a b': shape (3, 4), first element 12
#   einops: EinopsError
exec "$(dirname "$0")/../tools/finding.sh" "$0" torch==2.15.0 numpy==2.3.5 einops==0.8.1 <<'PROGRAM'
import einops
import torch

x = torch.arange(24).reshape(2, 3, 4)
y = torch.func.rearrange(x, "1 a b -> a b")
print(f"shape (2, 3, 4) by '1 a b -> a b': shape {tuple(y.shape)}, first element {y[0, 0]}")
try:
    einops.rearrange(x, "1 a b -> a b")
except Exception as error:
    print(f"einops: {type(error).__name__}")
PROGRAM
