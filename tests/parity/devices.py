# SPDX-License-Identifier: Apache-2.0
"""Records behaviour of CUDA devices: random streams at a seed, conversions of numbers out of range, and what a capture forbids.

    python tests/parity/devices.py tests/parity/devices.txt       # with PyTorch 2.11 or later, on a GPU

Each line is a case and its outcome in JSON. A stream is the offset of the generator after the draw, the first three numbers and the sum of all.
The test beside it (tests/python/device/test_devices_recorded.py) evaluates the same cases with Phlox, also on simulated devices.
"""
import json
import os
import sys
import warnings

STREAMS = """
z.uniform_(-1, 3) | z.normal_(1, 2) | z.exponential_(2.) | z.cauchy_(0.5, 2) | z.log_normal_(0.5, 0.7) | z.geometric_(0.3) | z.bernoulli_(0.3) | z.random_(3, 100)
bernoulli(z + 0.3) | normal(z + 1, z + 2) | F.dropout(z + 1) | F.alpha_dropout(z + 1, training=True) | F.rrelu(z - 1, training=True) | z.view(-1, 1).expand(-1, 7).clone().T.normal_()
_standard_gamma(z + 0.3) | _standard_gamma(z + 2.5) | _sample_dirichlet((z + 0.7).reshape(-1, 5)) | poisson(z + 0.3) | poisson(z + 40) | poisson(z + 5000)
binomial(z + 5, z + 0.25) | binomial(z + 1000, z + 0.5) | multinomial(z + 1, 1) | multinomial(z + 1, 5) | multinomial(z + 1, 50, True) | multinomial((z + 1).reshape(-1, 5), 2)
multinomial((z + 1).reshape(-1, 5), 2, True) | randperm(len(z), device=z.device) | randint(0, 1000, (len(z),), device=z.device) | randint(0, 2**40, (len(z),), device=z.device)
"""
# A value that is the identity shows which weights are kept. (For half PyTorch may choose cuDNN, whose numbers are its own.)
DROPOUT = """
2, 3, 16, 8, 'float32', None | 1, 1, 40, 80, 'float32', None | 1, 2, 5, 7, 'float32', None | 1, 2, 9, 5, 'float16', None | 1, 2, 9, 8, 'float64', None
2, 3, 16, 8, 'float16', 'EFFICIENT_ATTENTION' | 2, 3, 16, 8, 'bfloat16', 'EFFICIENT_ATTENTION'
2, 3, 16, 8, 'float16', 'MATH' | 2, 3, 16, 8, 'float32', 'MATH' | 1, 1, 40, 80, 'bfloat16', 'MATH'
"""
NUMBERS = [float("nan"), float("inf"), -float("inf"), 1e20, -1e20, 3e9, -3e9, 300.7, -300.7, 70000.5, -70000.5, -1.5, 2.**31, 2.**32, 2.**63, 2.**64, -2.**63,
           255.9, 256., -0.7, 65535.9, 1e10, -1e10, 5e18, 1.2e19]
FLOATS, INTEGERS = "float16 bfloat16 float32 float64".split(), "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64".split()
# Run after `z + 1` in a capture.
CAPTURED = """
cuda.manual_seed(1) | manual_seed(1) | cuda.set_rng_state(zeros(16, dtype=uint8)) | cuda.get_rng_state() | cuda.initial_seed()
KEPT.append(cuda.CUDAGraph()) or KEPT[-1].capture_begin() | z.copy_(ones(3)) | ones(3).cuda() | z[0].item() | cuda.synchronize() | cuda.current_stream().synchronize() | z.cpu()
z.nonzero() | cuda.empty_cache() | tensor([1., 2.], device='cuda') | z.copy_(ones(3).pin_memory(), non_blocking=True) | cuda.Event().query()
cuda.current_stream().query()
"""
KEPT = []  # graphs whose capture failed: PyTorch ends the process when it destroys one


def split(text):
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


def space(torch, **names):
    return {**{name: getattr(torch, name) for name in dir(torch) if not name.startswith("__")}, "F": torch.nn.functional, **names}


def stream(torch, draw):
    torch.manual_seed(1234)
    numbers = draw()
    offset = int.from_bytes(bytes(torch.cuda.get_rng_state()[8:].tolist()), "little")
    numbers = numbers.double().flatten().tolist()
    return [offset, *numbers[:3], sum(numbers)]


def attention(torch, batch, heads, length, keys, dtype, backend):
    from contextlib import nullcontext
    dtype = getattr(torch, dtype)
    q, k = (torch.zeros(batch, heads, n, 8, device="cuda", dtype=dtype) for n in (length, keys))
    v = torch.eye(keys, device="cuda", dtype=dtype).expand(batch, heads, keys, keys).contiguous()
    attend = torch.nn.attention
    with attend.sdpa_kernel(getattr(attend.SDPBackend, backend)) if backend else nullcontext():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5).flatten().cumsum(0, dtype=torch.float64)[::7]


def captured(torch, text):
    z, graph = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            z + 1
            eval(text, space(torch, z=z, KEPT=KEPT))
        return "accepted"
    except RuntimeError as error:
        cause = error.__context__
        return [str(e).splitlines()[0] for e in (error, cause) if e]


def cases(torch):
    import importlib
    importlib.import_module(torch.__name__ + ".nn.attention")
    warnings.simplefilter("ignore")
    for n in 10, 700:
        for dtype in FLOATS:
            z = torch.zeros(n, device="cuda", dtype=getattr(torch, dtype))
            for text in split(STREAMS):
                yield f"{text} of {n} {dtype}", stream(torch, lambda: eval(text, space(torch, z=z.clone())))
    for text in split(DROPOUT):
        yield f"attention {text}", stream(torch, lambda: attention(torch, *eval(text)))
    for source in FLOATS:
        x = torch.tensor(NUMBERS, dtype=torch.float64).to(getattr(torch, source)).cuda()
        for target in INTEGERS:
            yield f"{source} to {target}", x.to(getattr(torch, target)).tolist()
    for text in split(CAPTURED):
        yield f"captured {text}", captured(torch, text)
    yield "pool handles", [torch.cuda.graph_pool_handle(), torch.cuda.graph_pool_handle()]


def main():
    import torch
    with open(sys.argv[1], "w") as file:
        for key, value in cases(torch):
            print(f"{key} -> {json.dumps(value)}", file=file, flush=True)
    os._exit(0)  # without destroying KEPT


if __name__ == "__main__":
    main()
