# SPDX-License-Identifier: Apache-2.0
"""Tensors on the meta device: a shape, a dtype and strides without memory."""
import copy
import io
import pickle
import re
import unittest
import warnings

import phlox as torch
from phlox import nn


def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(),
                         nn.Linear(4 * 3 * 3, 5))



class Meta(unittest.TestCase):
    def refuses(self, error, call, text):
        with self.assertRaisesRegex(error, re.escape(text)):
            call()

    def test_shapes_and_dtypes(self):
        x = torch.empty(2, 3, device="meta")
        self.assertTrue(x.is_meta and not x.is_cpu and not x.is_cuda and x.device == torch.device("meta"))
        self.assertTrue((x @ x.t()).shape == (2, 2) and (x > 0).dtype == torch.bool)
        self.assertTrue(x.t().stride() == (1, 3) and x[0, 1:].storage_offset() == 1)
        self.assertTrue((x + torch.tensor(1.0)).is_meta and torch.where(x > 0, x, 0.0).is_meta)
        self.assertTrue(torch.empty(1 << 40, 1 << 20, device="meta").numel() == 1 << 60)
        self.assertTrue(torch.ones(2, 3).to("meta").is_meta and x.copy_(torch.ones(2, 3)) is x)
        self.assertTrue(x.data_ptr() == 0 and x.type() == "torch.meta.FloatTensor" and x.get_device() == -1)

    def test_repr(self):
        self.assertTrue(repr(torch.empty(2, 3, device="meta")) == "tensor(..., device='meta', size=(2, 3))")
        self.assertTrue(repr(torch.arange(3, device="meta")) == "tensor(..., device='meta', size=(3,), dtype=torch.int64)")
        self.assertTrue(repr(torch.device("meta")) == "device(type='meta')")

    def test_values_cannot_be_read(self):
        x = torch.ones(2, 3, device="meta")
        for read in (x.cpu, lambda: x.to("cpu"), x.tolist, lambda: torch.ones(2, 3).copy_(x)):
            self.refuses(NotImplementedError, read, "Cannot copy out of meta tensor; no data!")
        self.refuses(RuntimeError, x.sum().item, "Tensor.item() cannot be called on meta tensors")
        self.refuses(NotImplementedError, x.nonzero, "nonzero needs values, but meta tensors have none")
        self.refuses(NotImplementedError, lambda: x[x > 0], "needs values, but meta tensors have none")
        self.refuses(TypeError, x.numpy, "can't convert meta device type tensor to numpy")
        self.refuses(BufferError, x.__dlpack__, "Cannot pack tensors on meta")
        self.refuses(RuntimeError, lambda: x + torch.ones(2, 3), "at least two devices, meta and cpu!")
        self.refuses(RuntimeError, lambda: torch.Generator("meta"), "there is no generator for device type meta")

    def test_random_state_is_not_advanced(self):
        before = torch.get_rng_state()
        for made in (torch.randn(3, device="meta"), torch.rand(3, device="meta").normal_(), torch.randperm(4, device="meta"),
                     nn.Linear(3, 3, device="meta").weight):
            self.assertTrue(made.is_meta)
        self.assertTrue(torch.equal(before, torch.get_rng_state()))

    def test_training_step(self):
        model = net().to("meta")
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(2, 3, 8, 8, device="meta")).sum().backward()
        optimizer.step()
        self.assertTrue(all(p.grad.shape == p.shape and p.grad.is_meta for p in model.parameters()))
        self.assertTrue(optimizer.state[model[0].weight]["exp_avg"].is_meta)

    def test_to_empty_and_load_assign(self):
        with torch.device("meta"):
            model = net()
        self.assertTrue(all(value.is_meta for value in model.state_dict().values()))
        self.refuses(NotImplementedError, lambda: model.to("cpu"),
               "Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to()")
        self.assertTrue(all(value.is_meta for value in model.state_dict().values()))
        self.assertTrue(not any(p.is_meta for p in copy.deepcopy(model).to_empty(device="cpu").parameters()))
        source = net().eval()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.load_state_dict(source.state_dict())
        self.assertTrue(str(caught[0].message).startswith("for 0.weight: copying from a non-meta parameter in the checkpoint to a meta"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.load_state_dict(source.state_dict(), assign=True)
        x = torch.rand(2, 3, 8, 8)
        self.assertTrue(torch.equal(model.eval()(x), source(x)))

    def test_load_by_overridden_method_warns(self):
        class Own(nn.Linear):
            def _load_from_state_dict(self, *args):
                super()._load_from_state_dict(*args)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Own(2, 2, device="meta").load_state_dict(nn.Linear(2, 2).state_dict())
        self.assertTrue(len(caught) == 2 and "which is a no-op" in str(caught[0].message))

    def test_files_and_pickles_have_no_data(self):
        x = torch.empty_strided((2, 3), (1, 2), device="meta", requires_grad=True)
        p = nn.Parameter(torch.empty(1 << 40, device="meta"))
        file = io.BytesIO()
        torch.save({"x": x, "p": p}, file)
        self.assertTrue(len(file.getvalue()) < 4096)
        file.seek(0)
        for back in (torch.load(file), pickle.loads(pickle.dumps({"x": x, "p": p})), copy.deepcopy({"x": x, "p": p})):
            self.assertTrue(back["x"].is_meta and back["x"].requires_grad and back["x"].shape == (2, 3))
            self.assertTrue(isinstance(back["p"], nn.Parameter) and back["p"].shape == p.shape)
        file = io.BytesIO()
        torch.save(torch.ones(3), file)
        file.seek(0)
        self.assertTrue(torch.load(file, map_location="meta").is_meta)

    def test_repeat_interleave_needs_output_size(self):
        repeats = torch.tensor([1, 2], dtype=torch.int32, device="meta")
        self.refuses(RuntimeError, lambda: torch.repeat_interleave(repeats), "cannot repeat_interleave a meta tensor without output_size")
        got = torch.repeat_interleave(repeats, output_size=3)
        self.assertEqual((got.shape, got.dtype, got.is_meta), ((3,), torch.int32, True))
        self.assertEqual(torch.zeros(2, 2, device="meta").repeat_interleave(repeats, 0, output_size=3).shape, (3, 2))

    def test_empty_strided(self):
        x = torch.empty_strided((2, 3), (1, 2), dtype=torch.int64)
        self.assertTrue(x.stride() == (1, 2) and x.untyped_storage().nbytes() == 48)
        self.refuses(RuntimeError, lambda: torch.empty_strided((2, 3), (1,)), "dimensionality of sizes (2) must match dimensionality of strides (1)")
        self.refuses(RuntimeError, lambda: torch.empty_strided((2,), (-1,)), "Storage size calculation overflowed with sizes=[2] and strides=[-1]")
