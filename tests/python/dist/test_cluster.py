# SPDX-License-Identifier: Apache-2.0
"""Simulated clusters: ranks are threads of one process, each with a simulated device. Training on 64 ranks matches training in one process and is
reproducible to the bit. Groups, objects and errors belong to a rank."""
import os
import signal
import time
import unittest
from unittest import mock

os.environ.update(PHLOX_BACKENDS="sim", PHLOX_SIM_DEVICES="64", PHLOX_SIM_MEMORY="64M", PHLOX_SIM_MODE="schedule", PHLOX_THREADS="1")

import phlox as torch
import phlox.distributed as dist
from phlox import nn
from phlox.nn.parallel import DistributedDataParallel as DDP


def model(device="cpu"):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).double().to(device)


def train(m, part, device="cpu"):
    torch.manual_seed(4)
    x, y = torch.randn(128, 5).double()[part].to(device), torch.randn(128, 2).double()[part].to(device)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    losses = []
    for _ in range(3):
        opt.zero_grad()
        loss = nn.functional.mse_loss(m(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def train_rank(rank, size):
    dist.init_process_group("nccl")
    assert dist.get_rank() == rank and torch.cuda.current_device() == rank
    losses = train(DDP(model("cuda"), bucket_cap_mb=1e-4), slice(rank, None, size), "cuda")
    dist.all_reduce(losses, op=dist.ReduceOp.AVG)
    return losses.tolist()


def groups(rank, size):
    dist.init_process_group("gloo")
    half = [dist.new_group(list(range(at, size, 2))) for at in (0, 1)][rank % 2]
    x = torch.tensor([rank + 1.0])
    dist.all_reduce(x, group=half)
    every = [None] * size
    dist.all_gather_object(every, {"rank": rank})
    dist.destroy_process_group()
    dist.init_process_group("gloo")  # a second time
    dist.barrier()
    return x.item(), dist.get_rank(half), every


def fail_on_rank_2(rank, size):
    dist.init_process_group("nccl")
    if rank == 2:
        raise KeyError("rank 2's own")
    dist.all_reduce(torch.ones(3, device="cuda"))
    torch.cuda.synchronize()


def draw(rank):
    torch.manual_seed(rank % 2)
    return torch.randn(3).tolist() + torch.randn(2, device="cuda").tolist()


def rank_exits(rank):
    dist.init_process_group("nccl")
    x = torch.ones(3, device="cuda")
    try:
        for _ in range(20):
            dist.all_reduce(x)
            torch.cuda.synchronize()
    except dist.DistBackendError as error:
        return str(error)


def wait_until_interrupted(rank, ended):
    try:
        dist.init_process_group("nccl")
        x = torch.ones(3, device="cuda")
        dist.all_reduce(x)
        torch.cuda.synchronize()
        if rank == 0:
            os.kill(os.getpid(), signal.SIGINT)
        while rank == 1:  # runs Python code; the other ranks are in a collective
            time.sleep(0.01)
        dist.all_reduce(x)
        torch.cuda.synchronize()
    finally:
        ended.append(rank)


class Clusters(unittest.TestCase):
    def test_training_64_ranks_is_deterministic_and_matches_one_process(self):
        first = dist.simulate(train_rank, (64,), 64)
        assert all(losses == first[0] for losses in first)
        torch.testing.assert_close(torch.tensor(first[0], dtype=torch.float64), train(model(), slice(None)), rtol=0, atol=1e-12)
        assert dist.simulate(train_rank, (64,), 64) == first

    def test_ranks_have_their_own_groups(self):
        for rank, (total, rank_in_group, every) in enumerate(dist.simulate(groups, (6,), 6)):
            assert (total, rank_in_group) == ((9.0, 12.0)[rank % 2], rank // 2)
            assert every == [{"rank": r} for r in range(6)]
        assert not dist.is_initialized()

    def test_failing_ranks_error_is_raised(self):
        with self.assertRaisesRegex(KeyError, "rank 2's own"):
            dist.simulate(fail_on_rank_2, (4,), 4)
        with self.assertRaisesRegex(RuntimeError, "PHLOX_SIM_DEVICES=65"):
            dist.simulate(fail_on_rank_2, (65,), 65)

    def test_interrupt_ends_all_ranks(self):
        ended = []
        with self.assertRaises(KeyboardInterrupt):
            dist.simulate(wait_until_interrupted, (ended,), 3)
        self.assertEqual(sorted(ended), [0, 1, 2])
        dist.simulate(groups, (4,), 4)  # a new simulation still works

    def test_random_numbers_match_processes(self):
        drawn = dist.simulate(draw, nprocs=8)
        assert drawn[0] == drawn[2] == drawn[4] == drawn[6] != drawn[1] == drawn[3] == drawn[5] == drawn[7]

    def test_seeded_rank_death_is_reported_by_peers(self):
        with mock.patch.dict(os.environ, PHLOX_SIM_DEATH="15", PHLOX_SIM_SEED="9"):
            reported = dist.simulate(rank_exits, nprocs=4)
            assert dist.simulate(rank_exits, nprocs=4) == reported
        dead = [rank for rank, text in enumerate(reported) if "has died at its collective number" in text]
        assert len(dead) == 1
        assert all(f"failed: lost the connection to rank {dead[0]}" in text for rank, text in enumerate(reported) if rank != dead[0])


if __name__ == "__main__":
    unittest.main()
