#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch 2.15.0, on the CPU: soft_margin_loss of an input of -100 and a target of 1 is infinite.
#
# The loss is log(1 + exp(-target * input)), here 100 up to rounding. In float32 exp(100) overflows. The gradient is NaN, so that training ends
# with NaN in all parameters. binary_cross_entropy_with_logits computes the same loss without overflow: 100, with a gradient of -1.
#
# Output seen:
#   soft_margin_loss inf, gradient nan
#   binary_cross_entropy_with_logits 100.0, gradient -1.0
exec "$(dirname "$0")/../tools/finding.sh" "$0" torch==2.15.0 numpy==2.3.5 <<'PROGRAM'
import torch
from torch.nn import functional as F

for loss in F.soft_margin_loss, F.binary_cross_entropy_with_logits:
    x = torch.tensor([-100.0], requires_grad=True)
    value = loss(x, torch.ones(1))
    value.backward()
    print(f"{loss.__name__} {value.item()}, gradient {x.grad.item()}")
PROGRAM
