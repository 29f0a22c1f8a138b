# SPDX-License-Identifier: Apache-2.0
"""A graph: work that is captured once and then replayed, with new numbers in the same memory. Needs a device:
PHLOX_SIM_DEVICES=1 python3 -m phlox examples/graph.py."""
import torch

x = torch.zeros(1 << 10, device="cuda")
g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g):
    mean = (x * x).mean()  # is captured, and does not run
for i in range(1, 4):
    x.fill_(i)
    g.replay()
    print(f"mean of squares: {mean.item():g}")
