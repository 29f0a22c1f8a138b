#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch 2.15.0, on the CPU: the mean that var_mean and std_mean return is NaN for values with an infinity.
#
# mean() of the same tensor is infinite, as IEEE 754 has it for the sum of infinity and a finite number. The variance is NaN in either case,
# because it contains a difference of infinities. A mean that each value updates (mean += (x - mean) / n) becomes NaN at the second value.
#
# Output seen:
#   mean inf
#   var_mean nan
#   std_mean nan
exec "$(dirname "$0")/../tools/finding.sh" "$0" torch==2.15.0 numpy==2.3.5 <<'PROGRAM'
import torch

x = torch.tensor([float("inf"), 1.0])
print("mean", x.mean().item())
print("var_mean", torch.var_mean(x)[1].item())
print("std_mean", torch.std_mean(x)[1].item())
PROGRAM
