# SPDX-License-Identifier: Apache-2.0
"""examples/own_op.c in Python: PYTHONPATH=python python3 -m phlox examples/own_op.py [LIBRARY]"""
import sys
import torch

torch.ops.load_library(sys.argv[1] if len(sys.argv) > 1 else "build/examples/libsquareplus.so")
for device in ["cpu", "cuda"][:1 + torch.cuda.is_available()]:
    x = torch.tensor([-1.5, 0., 1.5], device=device, requires_grad=True)
    y = torch.ops.toys.squareplus(x)
    y.sum().backward()
    print("value", y)
    print("gradient", x.grad)
