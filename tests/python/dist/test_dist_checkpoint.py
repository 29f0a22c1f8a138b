# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint: checkpoints saved by some ranks can be loaded by any number of ranks or by a single process."""
import os
import tempfile
import unittest

from jobs import exit_codes, ranks
import phlox as torch
import phlox.distributed as dist
import phlox.distributed.checkpoint as dcp
from phlox import nn
from phlox.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict, get_optimizer_state_dict, get_state_dict,
                                                     set_model_state_dict, set_optimizer_state_dict, set_state_dict)
from phlox.distributed.fsdp import fully_shard
from phlox.distributed.tensor import DTensor


def make(shard=True):
    torch.manual_seed(3)
    m = nn.Sequential(nn.Linear(4, 7), nn.BatchNorm1d(7, momentum=None), nn.Linear(7, 3)).double().eval()
    if shard:
        fully_shard(m[2])
        fully_shard(m)
    return m, torch.optim.AdamW(m.parameters(), 0.05)


def steps(m, opt, first, last, part=slice(None), device="cpu"):
    for i in range(first, last):
        torch.manual_seed(i)
        x, y = torch.randn(8, 4).double(), torch.randn(8, 3).double()
        opt.zero_grad()
        nn.functional.mse_loss(m(x[part].to(device)), y[part].to(device)).backward()
        opt.step()


def expected_state(last):
    m, opt = make(False)
    steps(m, opt, 0, last)
    return m.state_dict(), opt


def assert_same(m, opt, last):
    state, one = expected_state(last)
    mine = m.state_dict()
    assert list(mine) == list(state)
    for key, value in mine.items():
        value = value.full_tensor() if isinstance(value, DTensor) else value
        assert torch.allclose(value.cpu(), state[key], atol=1e-12), key
    for p, w in zip(m.parameters(), one.param_groups[0]["params"]):
        moment = opt.state[p]["exp_avg_sq"]
        moment = moment.full_tensor() if isinstance(moment, DTensor) else moment
        assert torch.allclose(moment.cpu(), one.state[w]["exp_avg_sq"], atol=1e-12) and float(opt.state[p]["step"]) == last


def save_steps(r, n, device, path, last):
    m, opt = make()
    steps(m, opt, 0, last, slice(r, None, n), device)
    model, optim = get_state_dict(m, opt)
    dcp.save({"model": model, "optim": optim, "epoch": last, "note": ["a", None, 1.5]}, checkpoint_id=path)


def load_into(m, opt, path):
    model, optim = get_state_dict(m, opt)
    state = {"model": model, "optim": optim, "epoch": None, "note": None}
    dcp.load(state, storage_reader=dcp.FileSystemReader(path))
    set_state_dict(m, opt, model_state_dict=state["model"], optim_state_dict=state["optim"])
    assert state["note"] == ["a", None, 1.5]
    return state["epoch"]


def resume(r, n, device, path):
    m, opt = make()
    steps(m, opt, 7, 8, slice(r, None, n), device)  # overwritten by the load
    assert load_into(m, opt, path) == 2
    steps(m, opt, 2, 4, slice(r, None, n), device)
    assert_same(m, opt, 4)


def full_state_dicts(r, n, device, path):
    m, opt = make()
    steps(m, opt, 0, 2, slice(r, None, n), device)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model, optim = get_model_state_dict(m, options=options), get_optimizer_state_dict(m, opt, options=options)
    if r:
        assert model == {} and optim == {}
    else:
        torch.save(model, path + "/whole.pt")
        assert torch.equal(torch.load(path + "/whole.pt")["0.weight"], model["0.weight"]) and model["0.weight"].shape == (7, 4)
        assert list(optim["state"]) == ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"] and optim["param_groups"][0]["lr"] == 0.05
    with torch.device("meta"):
        other = make(False)[0]
    fully_shard(other)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(other, model, options=options)
    opt = torch.optim.AdamW(other.parameters(), 1.0)
    set_optimizer_state_dict(other, opt, optim, options=options)
    steps(other, opt, 2, 3, slice(r, None, n), device)
    assert_same(other, opt, 3)


def rank_exits(r, n, device, path):
    state = {"w": torch.full((3,), 2.0), "mine": torch.ones(1) if r else torch.zeros(1)}
    try:  # a late rank may observe the death in the barrier
        dist.barrier()
        if r == 1:
            os._exit(7)
        dcp.save(state, checkpoint_id=path)
    except RuntimeError as e:
        assert type(e).__name__ == "DistBackendError" and "[Rank 0] " in str(e), e
        os._exit(9)
    raise AssertionError("the death of a rank was not told")


@unittest.skipUnless(dist.is_available(), "the gloo backend is not built")
class CheckpointTest(unittest.TestCase):
    def backend(self, size):
        return "nccl" if dist.is_nccl_available() and torch.cuda.device_count() >= size else "gloo"

    def test_resume_with_any_number_of_ranks(self):
        with tempfile.TemporaryDirectory() as path:
            ranks(save_steps, path, 1)
            ranks(save_steps, path, 2, backend=self.backend(2))  # replaces the first
            self.assertEqual(sum(name.endswith(".safetensors") for name in os.listdir(path)), 2)
            ranks(resume, path, size=4)
            m, opt = make(False)
            self.assertEqual(load_into(m, opt, path), 2)
            steps(m, opt, 2, 4)
            assert_same(m, opt, 4)
            self.assertEqual(dcp.FileSystemReader(path).read_metadata()["model.0.weight"], (torch.float64, torch.Size([7, 4])))

    def test_full_state_dicts_on_rank_0(self):
        with tempfile.TemporaryDirectory() as path:
            ranks(full_state_dicts, path)
            if self.backend(2) == "nccl":
                ranks(full_state_dicts, path, backend="nccl")

    def test_incomplete_and_corrupt_checkpoints(self):
        with tempfile.TemporaryDirectory() as path:
            with self.assertRaisesRegex(FileNotFoundError, "no complete checkpoint in this folder"):
                dcp.load({"w": torch.zeros(3)}, checkpoint_id=path)
            dcp.save({"w": torch.arange(3.0)}, checkpoint_id=path)
            self.assertEqual(exit_codes(rank_exits, path), [9, 7])
            state = {"w": torch.zeros(3)}
            dcp.load(state, checkpoint_id=path)
            self.assertEqual(state["w"].tolist(), [0, 1, 2])
            with self.assertRaisesRegex(RuntimeError, "Missing key in checkpoint state_dict: v."):
                dcp.load({"v": torch.zeros(3)}, checkpoint_id=path)
            with self.assertRaisesRegex(ValueError, r"Size mismatch between saved torch.Size\(\[3\]\) and current: torch.Size\(\[2\]\) for w"):
                dcp.load({"w": torch.zeros(2)}, checkpoint_id=path)
            with self.assertRaisesRegex(NotImplementedError, "async_save is not implemented in Phlox"):
                dcp.async_save({}, checkpoint_id=path)
            for name in os.listdir(path):
                if name.endswith(".safetensors"):
                    os.truncate(os.path.join(path, name), 20)
            with self.assertRaisesRegex(RuntimeError, "is damaged: expected .* bytes in its file .*, got 20"):
                dcp.load(state, checkpoint_id=path)


if __name__ == "__main__":
    unittest.main()
