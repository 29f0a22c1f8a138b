# SPDX-License-Identifier: Apache-2.0
"""Runs a test body on each rank of a group: a process per rank, on the CPU over gloo or on a device each over nccl."""
import os
import pickle
import sys
import tempfile
from datetime import timedelta

import phlox as torch
import phlox.distributed as dist
import phlox.multiprocessing as mp

LIMIT = timedelta(seconds=60)


def run_rank(rank, size, path, backend, body, args):
    if backend == "nccl":
        torch.cuda.set_device(rank)
        torch.use_deterministic_algorithms(True)  # accumulating into the same element is otherwise unordered on GPUs
    dist.init_process_group(backend, init_method=f"file://{path}", rank=rank, world_size=size, timeout=LIMIT)
    try:
        body(rank, size, torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu"), *args)
        dist.GroupMember.WORLD._monitored_barrier(LIMIT, True)
    finally:
        dist.destroy_process_group()


def ranks(body, *args, size=2, backend="gloo"):
    with tempfile.NamedTemporaryFile() as file:
        mp.spawn(run_rank, (size, file.name, backend, body, args), nprocs=size)


def exit_codes(body, *args, size=2, backend="gloo"):
    """Exit codes of self-terminating ranks. Prints the exceptions raised by ranks."""
    with tempfile.NamedTemporaryFile() as file:
        job = mp.spawn(run_rank, (size, file.name, backend, body, args), nprocs=size, join=False)
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
