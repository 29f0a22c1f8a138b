# SPDX-License-Identifier: Apache-2.0
"""Records a memory history of three training steps. Also runs on PyTorch; PHLOX_SIM_DEVICES=1 python3 -m phlox examples/memory.py [FILE]"""
import sys

import torch

torch.cuda.memory._record_memory_history(max_entries=100000)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    x, labels = torch.randn(1024, 512, device="cuda"), torch.randint(10, (1024,), device="cuda")
    hidden = net[:4](x)
    loss = torch.nn.functional.cross_entropy(net[4](hidden), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{torch.cuda.max_memory_allocated() / 2**20:.1f} MiB at most")
torch.cuda.memory._dump_snapshot(sys.argv[1] if len(sys.argv) > 1 else "memory.pickle")
