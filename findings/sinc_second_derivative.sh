#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch 2.15.0, on the CPU: the second derivative of torch.sinc is NaN at 0, and 0 at 1e-9.
#
# The function is smooth. Its second derivative at 0 is -pi**2 / 3, about -3.2899. The backward formula divides a difference of nearly equal
# numbers by the square of the input and replaces the result at 0 alone. The first derivative at 1e-9 is 0, too, instead of -3.29e-9.
#
# Output seen:
#   at 0.0: first 0.0, second nan
#   at 1e-09: first 0.0, second 0.0
#   at 0.1: first -0.32575, second -3.19303
exec "$(dirname "$0")/../tools/finding.sh" "$0" torch==2.15.0 numpy==2.3.5 <<'PROGRAM'
import torch

for at in 0.0, 1e-9, 0.1:
    x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    first, = torch.autograd.grad(torch.sinc(x), x, create_graph=True)
    second, = torch.autograd.grad(first, x)
    print(f"at {at}: first {round(first.item(), 5)}, second {round(second.item(), 5)}")
PROGRAM
