# SPDX-License-Identifier: Apache-2.0
"""Convolutions of whole networks on the CPU, Phlox compared to PyTorch: python3 bench/convolutions.py [NETWORK...]

All convolution shapes of ResNet-50, MobileNetV2 and UNet with batches of 1, 8 and 64 images (BATCHES=1,8), forward and backward (to input and weight), in float32,
row-major. Each library runs in a separate process. They alternate row by row for TURNS turns (2), each the best of three timings (ops.py), with THREADS threads
(all cores). Rows are sorted by ratio, PyTorch's time over Phlox's, slowest first. Also prints the number of rows below 1.
"""
import json
import os
import statistics
import subprocess
import sys

import ops

TURNS = int(os.environ.get("TURNS", 2))
BATCHES = [int(n) for n in os.environ.get("BATCHES", "1,8,64").split(",")]
LARGEST = 1 << 26  # maximum number of elements of a batch: larger ones take seconds
# (input channels, output channels, height and width, kernel size, stride, groups)
NETWORKS = {
    "ResNet-50": [(3, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 1), (256, 64, 56, 1, 1, 1), (256, 128, 56, 1, 1, 1),
                  (128, 128, 56, 3, 2, 1), (256, 512, 56, 1, 2, 1), (128, 512, 28, 1, 1, 1), (512, 128, 28, 1, 1, 1), (128, 128, 28, 3, 1, 1), (512, 256, 28, 1, 1, 1),
                  (256, 256, 28, 3, 2, 1), (512, 1024, 28, 1, 2, 1), (256, 1024, 14, 1, 1, 1), (1024, 256, 14, 1, 1, 1), (256, 256, 14, 3, 1, 1), (1024, 512, 14, 1, 1, 1),
                  (512, 512, 14, 3, 2, 1), (1024, 2048, 14, 1, 2, 1), (512, 2048, 7, 1, 1, 1), (2048, 512, 7, 1, 1, 1), (512, 512, 7, 3, 1, 1)],
    "MobileNetV2": [(3, 32, 224, 3, 2, 1), (32, 32, 112, 3, 1, 32), (32, 16, 112, 1, 1, 1), (16, 96, 112, 1, 1, 1), (96, 96, 112, 3, 2, 96), (96, 24, 56, 1, 1, 1),
                    (24, 144, 56, 1, 1, 1), (144, 144, 56, 3, 1, 144), (144, 144, 56, 3, 2, 144), (144, 32, 28, 1, 1, 1), (32, 192, 28, 1, 1, 1), (192, 192, 28, 3, 1, 192),
                    (192, 192, 28, 3, 2, 192), (192, 64, 14, 1, 1, 1), (64, 384, 14, 1, 1, 1), (384, 384, 14, 3, 1, 384), (384, 96, 14, 1, 1, 1), (96, 576, 14, 1, 1, 1),
                    (576, 576, 14, 3, 1, 576), (576, 576, 14, 3, 2, 576), (576, 160, 7, 1, 1, 1), (160, 960, 7, 1, 1, 1), (960, 960, 7, 3, 1, 960), (960, 320, 7, 1, 1, 1),
                    (320, 1280, 7, 1, 1, 1)],
    "UNet": [(3, 64, 128, 3, 1, 1), (64, 64, 128, 3, 1, 1), (64, 128, 64, 3, 1, 1), (128, 128, 64, 3, 1, 1), (128, 256, 32, 3, 1, 1), (256, 512, 16, 3, 1, 1),
             (512, 512, 16, 3, 1, 1), (768, 256, 32, 3, 1, 1), (384, 128, 64, 3, 1, 1), (192, 64, 128, 3, 1, 1)],
}


def rows(networks):
    """Yields (row name, (batch, shape, backward))."""
    for network in networks:
        for shape in NETWORKS[network]:
            channels, results, size, kernel, stride, groups = shape
            for batch in BATCHES:
                if batch * max(channels, results) * size * size > LARGEST: continue
                shape_text = f"{batch} x {channels} x {size} x {size} to {results}, {kernel}x{kernel}" + f" / {stride}" * (stride > 1) + f" in {groups}" * (groups > 1)
                for backward in (False, True):
                    yield f"{network}: {shape_text}{', backward' if backward else ''}", (batch, shape, backward)


def step_of(torch, batch, shape, backward):
    channels, results, size, kernel, stride, groups = shape
    x = torch.randn(batch, channels, size, size, requires_grad=backward)
    weight = torch.randn(results, channels // groups, kernel, kernel, requires_grad=backward)
    forward = lambda: torch.nn.functional.conv2d(x, weight, stride=stride, padding=kernel // 2, groups=groups)
    if not backward: return forward
    y = forward()
    gradient = torch.randn(*y.shape)
    return lambda: torch.autograd.grad(y, (x, weight), gradient, retain_graph=True)


def serve(library):
    torch = __import__(library)
    torch.set_num_threads(ops.THREADS)
    for line in sys.stdin:
        print(ops.timed(step_of(torch, *json.loads(line)), turns=3, seconds=0.02), flush=True)


def main(*networks):
    start = lambda library: subprocess.Popen([sys.executable, __file__, "--measure", library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    phlox, torch = start("phlox"), start("torch")
    table = []
    for name, row in rows(networks or NETWORKS):
        times = [tuple(ops.ask(worker, json.dumps(row)) for worker in (phlox, torch)) for _ in range(TURNS)]
        table.append((statistics.median(b / a for a, b in times), name, *(statistics.median(turn) for turn in zip(*times))))
    ratios = [row[0] for row in table]
    print(f"{ops.THREADS} threads on {os.cpu_count()} cores, {TURNS} turns: {len(table)} rows, geometric mean {statistics.geometric_mean(ratios):.2f}; "
          f"{sum(r < 1 for r in ratios)} below 1, {sum(r < 0.8 for r in ratios)} below 0.8")
    print(f"{'us':70}{'Phlox':>10}{'PyTorch':>10}{'ratio':>8}")
    for ratio, name, mine, theirs in sorted(table): print(f"{name:70}{1e3 * mine:10.0f}{1e3 * theirs:10.0f}{ratio:8.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        serve(sys.argv[2])
    else:
        main(*sys.argv[1:])
