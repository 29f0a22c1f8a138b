#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch 2.15.0 on the CPU: Wishart.sample takes valid samples for singular ones. It warns of them and draws all of them again.
#
# A sample should be replaced if it is not positive definite. The method tests the opposite in its first round. Each call consumes twice the random
# numbers. A sample that is truly singular is kept.
#
# Output seen:
#   first draw positive definite: True
#   warning: Singular sample detected.
#   sample() returns the first draw: False, the second one: True
exec "$(dirname "$0")/../tools/finding.sh" "$0" torch==2.15.0 numpy==2.3.5 <<'PROGRAM'
import warnings

import torch

wishart = torch.distributions.Wishart(torch.tensor(5.0), torch.eye(3))
torch.manual_seed(4)
first, second = wishart._bartlett_sampling(), wishart._bartlett_sampling(torch.Size([1]))[0]
print("first draw positive definite:", torch.linalg.eigvalsh(first).min().item() > 0)
torch.manual_seed(4)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    sample = wishart.sample()
print("warning:", seen[0].message)
print(f"sample() returns the first draw: {torch.equal(sample, first)}, the second one: {torch.equal(sample, second)}")
PROGRAM
