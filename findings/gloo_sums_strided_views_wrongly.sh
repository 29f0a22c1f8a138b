#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch 2.15.0 with the gloo backend: all_reduce of a view with gaps between its elements gives wrong sums without an error.
#
# The backend adds the first elements of the memory behind the view. Elements outside of the view change. Transposed tensors are summed correctly.
#
# Output seen:
#   every second column, over 2 ranks: 0.0 4.0 8.0 6.0 8.0 10.0
#   right: 0.0 4.0 8.0 12.0 16.0 20.0
#   the columns between, which are not in the view: 2.0 6.0 10.0 7.0 9.0 11.0
exec "$(dirname "$0")/../tools/finding.sh" "$0" torch==2.15.0 numpy==2.3.5 <<'PROGRAM'
import os
import tempfile

import torch
import torch.distributed as dist

whole = torch.arange(12.0).reshape(2, 6)
store = tempfile.mktemp()
child = os.fork()
dist.init_process_group("gloo", init_method="file://" + store, rank=int(child == 0), world_size=2)
dist.all_reduce(whole[:, ::2])
if child:
    os.waitpid(child, 0)
    print("every second column, over 2 ranks:", *whole[:, ::2].flatten().tolist())
    print("right:", *(torch.arange(12.0).reshape(2, 6)[:, ::2] * 2).flatten().tolist())
    print("the columns between, which are not in the view:", *whole[:, 1::2].flatten().tolist())
PROGRAM
