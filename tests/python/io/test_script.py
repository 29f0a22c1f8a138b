# SPDX-License-Identifier: Apache-2.0
"""torch.jit.load: archives of PyTorch and results recorded by tests/script/record.py."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import io
import json
import unittest

import phlox as torch
from phlox import nn

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "script")


def archive(name):
    return os.path.join(FOLDER, name + ".pt")


def value_of(row):
    """The value of a JSON row."""
    if isinstance(row, dict) and "tensor" in row:
        return torch.tensor(row["tensor"], dtype=getattr(torch, row["dtype"])).reshape(row["size"])
    if isinstance(row, dict):
        return {key: value_of(item) for key, item in row["dict"]}
    return [value_of(item) for item in row] if isinstance(row, list) else row


class Recorded(unittest.TestCase):
    def check(self, got, wanted):
        if isinstance(wanted, torch.Tensor):
            self.assertEqual((got.dtype, got.shape), (wanted.dtype, wanted.shape))
            torch.testing.assert_close(got.detach(), wanted, rtol=1e-5, atol=1e-6)
        elif isinstance(wanted, list):
            self.assertIsInstance(got, (list, tuple))
            self.assertEqual(len(got), len(wanted))
            for one, other in zip(got, wanted):
                self.check(one, other)
        else:
            self.assertIs(type(got), type(wanted))
            self.assertEqual(got, wanted)

    def test_all_recorded_calls_have_pytorchs_results(self):
        with open(os.path.join(FOLDER, "expected.json")) as file:
            calls = json.load(file)["calls"]
        models, names = {}, set()
        for model, method, args, wanted in calls:
            if model not in models:
                models[model] = torch.jit.load(archive(model))
            names.add((model, method))
            with self.subTest(method=method, args=args):
                call = getattr(models[model], method)
                if isinstance(wanted, dict) and "error" in wanted:
                    with self.assertRaises(Exception) as caught:
                        call(*value_of(args))
                    self.assertTrue(wanted["error"].endswith(str(caught.exception)))
                    self.assertTrue(str(caught.exception))
                else:
                    self.check(call(*value_of(args)), value_of(wanted))
        for model in models:  # each method has a row
            self.assertEqual({m for m in models[model]._script.methods("")} -
                             {name for of, name in names if of == model}, set())


class Modules(unittest.TestCase):
    def setUp(self):
        self.model = torch.jit.load(archive("scripted"))

    def test_the_model_is_a_module_of_its_parameters(self):
        self.assertIsInstance(self.model, nn.Module)
        self.assertIsInstance(self.model, torch.jit.ScriptModule)
        self.assertEqual(len(list(self.model.parameters())), 13)
        self.assertEqual([name for name, _ in self.model.named_buffers()][0], "sub.count")
        self.assertEqual(list(self.model.state_dict())[1], "sub.lin.weight")
        self.assertIn("(lin): RecursiveScriptModule(original_name=Linear)", repr(self.model))

    def test_code_reads_current_parameters(self):
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        state["sub.lin.weight"].zero_()
        state["sub.lin.bias"].fill_(2)
        self.model.load_state_dict(state)
        self.assertEqual(self.model(torch.ones(1, 3)).tolist(), [[3.0, 3.0]])
        self.assertEqual(self.model.sub(torch.ones(1, 3)).tolist(), [[3.0, 3.0]])

    def test_code_changes_buffers_in_place(self):
        self.model(torch.ones(1, 3))
        self.model.sub(torch.ones(1, 3))
        self.assertEqual(self.model.sub.count.item(), 2)
        self.assertEqual(self.model.state_dict()["sub.count"].item(), 2)

    def test_training_mode_reaches_the_code(self):
        x = torch.linspace(-1, 1, 8).reshape(2, 1, 4)
        before = self.model.net(x)
        self.model.train()
        self.assertTrue(self.model.seq.training)
        self.assertFalse(torch.equal(self.model.net(x), before))
        self.assertEqual(self.model.state_dict()["seq.1.num_batches_tracked"].item(), 1)

    def test_models_train(self):
        self.model(torch.ones(1, 3)).sum().backward()
        self.assertEqual(self.model.sub.lin.bias.grad.tolist(), [1.5, 1.5])

    def test_models_move_to_devices_and_dtypes(self):
        self.model.to("cuda")
        self.assertEqual(self.model(torch.ones(1, 3, device="cuda")).device.type, "cuda")
        self.model.double()
        self.assertEqual(self.model(torch.ones(1, 3, device="cuda").double()).dtype, torch.float64)
        last = f"cuda:{torch.cuda.device_count() - 1}"
        loaded = torch.jit.load(archive("traced"), map_location=last)
        self.assertEqual(str(next(loaded.parameters()).device), last)

    def test_attributes_are_those_of_the_code(self):
        self.assertEqual((self.model.sub.scale, self.model.pair), (1.5, (1, "two")))
        self.assertEqual((self.model.names, self.model.title), ({"a": 1, "b": 2}, 'héllo\n"x"'))
        self.model.ratio = 0.25
        self.assertEqual(self.model.attributes()[2], 0.25)
        with self.assertRaisesRegex(RuntimeError, "cannot have a value of type 'str'"):
            self.model.ratio = "x"
        with self.assertRaisesRegex(AttributeError, "'M' object has no attribute 'nothing'"):
            self.model.nothing

    def test_hooks_of_the_model_run(self):
        seen = []
        self.model.register_forward_hook(lambda module, args, result: seen.append(result.shape))
        self.model(torch.ones(4, 3))
        self.assertEqual(seen, [(4, 2)])

    def test_arguments_are_checked(self):
        with self.assertRaisesRegex(RuntimeError, "Expected a value of type 'int' for argument 'n' but "
                                                  "instead found type 'str'"):
            self.model.branches("x")
        with self.assertRaisesRegex(RuntimeError, "missing value for argument 'n'"):
            self.model.branches()
        with self.assertRaisesRegex(TypeError, "TorchScript takes tensors"):
            self.model.branches(object())

    def test_files_and_paths_are_read(self):
        with open(archive("traced"), "rb") as file:
            data = file.read()
        self.assertEqual(torch.jit.load(io.BytesIO(data)).original_name, "T")
        with self.assertRaisesRegex(RuntimeError, "failed finding central directory"):
            torch.jit.load(io.BytesIO(data[:3000]))
        with self.assertRaisesRegex(ValueError, "The provided filename /nothing does not exist"):
            torch.jit.load("/nothing")
        with self.assertRaisesRegex(NotImplementedError, "_extra_files"):
            torch.jit.load(archive("traced"), _extra_files={"a": ""})

    def test_files_of_torch_save_are_refused_by_name(self):
        file = io.BytesIO()
        torch.save({"a": torch.ones(2)}, file)
        file.seek(0)
        with self.assertRaisesRegex(RuntimeError, "not a TorchScript archive"):
            torch.jit.load(file)


if __name__ == "__main__":
    unittest.main()
