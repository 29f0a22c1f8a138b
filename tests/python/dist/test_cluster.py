# SPDX-License-Identifier: Apache-2.0
"""Simulated clusters: ranks as threads of one process, each with a simulated device. Training over 64 ranks is that of one process, to the
last bit the same again; groups, objects and errors are a rank's own."""
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
    dist.init_process_group("gloo")  # once more
    dist.barrier()
    return x.item(), dist.get_rank(half), every


def raises(rank, size):
    dist.init_process_group("nccl")
    if rank == 2:
        raise KeyError("rank 2's own")
    dist.all_reduce(torch.ones(3, device="cuda"))
    torch.cuda.synchronize()


def draws(rank):
    torch.manual_seed(rank % 2)
    return torch.randn(3).tolist() + torch.randn(2, device="cuda").tolist()


def dies(rank):
    dist.init_process_group("nccl")
    x = torch.ones(3, device="cuda")
    try:
        for _ in range(20):
            dist.all_reduce(x)
            torch.cuda.synchronize()
    except dist.DistBackendError as error:
        return str(error)


def waits(rank, ended):
    try:
        dist.init_process_group("nccl")
        x = torch.ones(3, device="cuda")
        dist.all_reduce(x)
        torch.cuda.synchronize()
        if rank == 0:
            os.kill(os.getpid(), signal.SIGINT)
        while rank == 1:  # in Python code; the others in a collective
            time.sleep(0.01)
        dist.all_reduce(x)
        torch.cuda.synchronize()
    finally:
        ended.append(rank)


class Clusters(unittest.TestCase):
    def test_64_ranks_train_as_one_process_does_and_the_same_again(self):
        first = dist.simulate(train_rank, (64,), 64)
        assert all(losses == first[0] for losses in first)
        torch.testing.assert_close(torch.tensor(first[0], dtype=torch.float64), train(model(), slice(None)), rtol=0, atol=1e-12)
        assert dist.simulate(train_rank, (64,), 64) == first

    def test_a_rank_has_groups_of_its_own(self):
        for rank, (total, place, every) in enumerate(dist.simulate(groups, (6,), 6)):
            assert (total, place) == ((9.0, 12.0)[rank % 2], rank // 2)
            assert every == [{"rank": r} for r in range(6)]
        assert not dist.is_initialized()

    def test_the_rank_whose_error_is_its_own_is_told(self):
        with self.assertRaisesRegex(KeyError, "rank 2's own"):
            dist.simulate(raises, (4,), 4)
        with self.assertRaisesRegex(RuntimeError, "PHLOX_SIM_DEVICES=65"):
            dist.simulate(raises, (65,), 65)

    def test_an_interrupt_ends_all_ranks(self):
        ended = []
        with self.assertRaises(KeyboardInterrupt):
            dist.simulate(waits, (ended,), 3)
        self.assertEqual(sorted(ended), [0, 1, 2])
        dist.simulate(groups, (4,), 4)  # another one goes as ever

    def test_a_rank_draws_as_a_process_does(self):
        drawn = dist.simulate(draws, nprocs=8)
        assert drawn[0] == drawn[2] == drawn[4] == drawn[6] != drawn[1] == drawn[3] == drawn[5] == drawn[7]

    def test_a_rank_dies_by_the_seed_and_the_others_say_so(self):
        with mock.patch.dict(os.environ, PHLOX_SIM_DEATH="15", PHLOX_SIM_SEED="9"):
            told = dist.simulate(dies, nprocs=4)
            assert dist.simulate(dies, nprocs=4) == told
        dead = [rank for rank, text in enumerate(told) if "has died at its collective number" in text]
        assert len(dead) == 1
        assert all(f"failed: lost the connection to rank {dead[0]}" in text for rank, text in enumerate(told) if rank != dead[0])


if __name__ == "__main__":
    unittest.main()
