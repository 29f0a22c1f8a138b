# SPDX-License-Identifier: Apache-2.0
"""Ranks for tests: a body runs in a process for each, on the CPU over gloo, or on a device each over nccl."""
import os
import pickle
import sys
import tempfile
from datetime import timedelta

import phlox as torch
import phlox.distributed as dist
import phlox.multiprocessing as mp

LIMIT = timedelta(seconds=60)


def begin(rank, size, path, backend, body, args):
    if backend == "nccl":
        torch.cuda.set_device(rank)
        torch.use_deterministic_algorithms(True)  # GPUs add up what falls on one place in any order
    dist.init_process_group(backend, init_method=f"file://{path}", rank=rank, world_size=size, timeout=LIMIT)
    try:
        body(rank, size, torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu"), *args)
        dist.GroupMember.WORLD._monitored_barrier(LIMIT, True)
    finally:
        dist.destroy_process_group()


def ranks(body, *args, size=2, backend="gloo"):
    with tempfile.NamedTemporaryFile() as file:
        mp.spawn(begin, (size, file.name, backend, body, args), nprocs=size)


def exit_codes(body, *args, size=2, backend="gloo"):
    """Of a job whose ranks end by themselves; says what a rank raised instead."""
    with tempfile.NamedTemporaryFile() as file:
        job = mp.spawn(begin, (size, file.name, backend, body, args), nprocs=size, join=False)
        for process in job.processes:
            process.join(60)
        for path in filter(os.path.getsize, job.error_files):
            with open(path, "rb") as raised:
                print(pickle.load(raised), file=sys.stderr)
        return [process.exitcode for process in job.processes]


def refuses(error, text, make):
    try:
        make()
    except error as e:
        assert text in str(e), e
    else:
        raise AssertionError(f"no error: {text}")
