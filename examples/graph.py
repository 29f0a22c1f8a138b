# SPDX-License-Identifier: Apache-2.0
"""A graph: work captured once and replayed with new data in the same memory. Requires a device:
PHLOX_SIM_DEVICES=1 python3 -m phlox examples/graph.py."""
import torch

x = torch.zeros(1 << 10, device="cuda")
g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g):
    mean = (x * x).mean()  # captured, not executed
for i in range(1, 4):
    x.fill_(i)
    g.replay()
    print(f"mean of squares: {mean.item():g}")
