# SPDX-License-Identifier: Apache-2.0
"""Texts as arguments: embedded null characters, lone surrogates, any length, and texts of C that are not UTF-8."""
import datetime
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import phlox as torch
import phlox.distributed as dist
from phlox import nn

F = nn.functional
LENGTHS = 1, 255, 256, 257, 4096, 10 ** 6
SHORT = datetime.timedelta(milliseconds=1)


def library(kind="FRAGMENT"):
    return torch.library.Library("texts", kind)


def waited(store, key):
    store.wait([key], SHORT)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad


# Calls with a text that C reads.
CALLS = {
    "device": lambda t: torch.device(t),
    "device of a factory": lambda t: torch.ones(1, device=t),
    "device of a layer": lambda t: nn.Linear(1, 1, device=t),
    "device of a generator": lambda t: torch.Generator(t),
    "autocast": lambda t: torch.autocast(t),
    "einsum": lambda t: torch.einsum(t, torch.ones(2, 2), torch.ones(2, 2)),
    "rounding_mode": lambda t: torch.div(torch.ones(2), 2, rounding_mode=t),
    "reduction": lambda t: F.mse_loss(torch.ones(2), torch.ones(2), reduction=t),
    "padding mode": lambda t: F.pad(torch.ones(2, 2), (1, 1), mode=t),
    "order of a norm": lambda t: torch.linalg.norm(torch.ones(2, 2), ord=t),
    "type": lambda t: torch.ones(1).type(t),
    "keyword of an op": lambda t: torch.add(1, torch.ones(1), **{t: 1}),
    "keyword of a list op": lambda t: torch._foreach_add([torch.ones(1)], 1, **{t: 1}),
    "schema": lambda t: library().define(t),
    "kind of a library": lambda t: library(t),
    "library": lambda t: torch.ops.load_library(t),
    "attribute of a module": lambda t: getattr(nn.Linear(1, 1), t),
    "buffer": lambda t: nn.Linear(1, 1).register_buffer(t, torch.ones(1)),
    "parameter": lambda t: nn.Linear(1, 1).register_parameter(t, None),
    "child": lambda t: nn.ModuleDict({t: nn.ReLU()}),
    "state": lambda t: nn.Linear(1, 1).load_state_dict({t: torch.ones(1)}, strict=False),
    "prefix of a state": lambda t: nn.Linear(1, 1).state_dict(prefix=t),
    "gain": lambda t: nn.init.calculate_gain(t),
    "range": lambda t: torch.cuda.nvtx.range_push(t),
    "allocator settings": lambda t: torch.cuda.memory._set_allocator_settings(t),
    "key of a store": lambda t: dist.HashStore().set(t, "value"),
    "awaited key": lambda t: waited(dist.HashStore(), t),
    "prefix of a store": lambda t: dist.PrefixStore(t, dist.HashStore()).set("a", "b"),
    "host": lambda t: dist.TCPStore(t, 1, timeout=SHORT),
    "path": lambda t: torch.load(t),
    "tensor of a file": lambda t: torch.save({t: torch.ones(1)}, os.path.join(tempfile.gettempdir(), "texts.safetensors")),
}
LOOKUPS = "keyword of an op", "keyword of a list op", "attribute of a module"


class Texts(unittest.TestCase):
    def setUp(self):
        self.addCleanup(lambda path: os.path.exists(path) and os.remove(path), os.path.join(tempfile.gettempdir(), "texts.safetensors"))
        shown = warnings.catch_warnings()
        shown.__enter__()
        self.addCleanup(shown.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def test_embedded_nulls_are_refused(self):
        for name, call in CALLS.items():
            for text in ("cpu\0x", "weight\0x", "\0"):
                with self.subTest(name, text=text), self.assertRaises((ValueError, RuntimeError, TypeError, AttributeError)) as caught:
                    call(text)
                error = caught.exception
                if name in LOOKUPS:
                    self.assertIn(text, str(error))
                else:
                    self.assertRegex(str(error), "^embedded null (character|byte)$|^Invalid device string: '.*\\\\x00.*'$|^invalid type")

    def test_device_with_a_null_has_pytorchs_text(self):
        for call in (torch.device, torch.ones(1).to, torch.Generator, torch.cuda.set_device, torch.get_device_module):
            with self.assertRaisesRegex(RuntimeError, r"^Invalid device string: 'cpu\\x00x'$"):
                call("cpu\0x")

    def test_names_that_c_cannot_have_are_missing(self):
        for owner in (torch, F, torch.ops.aten, torch.ops.texts, torch.ops.aten.add, nn.Linear(1, 1), torch.ones(1)):
            for name in ("weight\0", "add\0", "\0", "\ud800"):
                self.assertFalse(hasattr(owner, name), (owner, name))

    def test_lone_surrogates_are_refused(self):
        for name, call in CALLS.items():
            with self.subTest(name), self.assertRaises((UnicodeEncodeError, TypeError, AttributeError)):
                call("a\ud800b")

    def test_any_length_has_an_ordinary_result(self):
        for name, call in CALLS.items():
            for length in (0, *LENGTHS):
                with self.subTest(name, length=length):
                    try:
                        call("x" * length)
                    except (ValueError, RuntimeError, TypeError, AttributeError, KeyError, NotImplementedError, OSError) as error:
                        self.assertTrue(str(error))

    def test_long_names_of_ops(self):
        for length in LENGTHS:
            name = library().define("n" * length + "(Tensor x) -> Tensor")
            library().impl(name, lambda x: x + 1)
            self.assertEqual((len(name), getattr(torch.ops.texts, name)(torch.ones(1)).item()), (length, 2))
            space = torch.library.Library("s" * length, "FRAGMENT")
            space.impl(space.define("f(Tensor x) -> Tensor"), lambda x: x + 2)
            self.assertEqual(getattr(torch.ops, "s" * length).f(torch.ones(1)).item(), 3)

    def test_long_names_in_state_dicts(self):
        for length in (*LENGTHS[:-1], 10 ** 5):
            part = "\u00e9" * length
            inner = nn.ParameterDict({part + "1": torch.ones(1), part + "2": torch.zeros(1)})
            model = nn.ModuleDict({part: inner})
            names = [f"{part}.{part}{i}" for i in (1, 2)]
            self.assertEqual(list(model.state_dict()), names)
            self.assertEqual(list(dict(model.named_parameters())), names)
            self.assertEqual(list(model.state_dict(prefix=part + ".")), [f"{part}.{name}" for name in names])
            self.assertIn(f"({part}): ParameterDict", repr(model))
            self.assertEqual(model.load_state_dict(model.state_dict()).missing_keys, [])

    def test_long_class_names(self):
        name = "\u00e9" * 300
        made = type(name, (Function,), {}).apply(torch.ones(1, requires_grad=True))
        self.assertEqual((type(made.grad_fn).__name__, made.grad_fn.name()), (name + "Backward",) * 2)
        self.assertTrue(repr(torch.ones(1).as_subclass(type(name, (torch.Tensor,), {}))).startswith(name + "([1.]"))

    def test_texts_of_c_that_are_not_utf8_are_escaped(self):
        environment = {**os.environb, b"PHLOX_BACKENDS": b"a\xffb", b"PYTHONPATH": os.fsencode(os.path.dirname(os.path.dirname(torch.__file__)))}
        done = subprocess.run([sys.executable, "-c", "import phlox; phlox.ones(1, device='cuda')"], env=environment, capture_output=True, text=True)
        self.assertIn(r"RuntimeError: No CUDA GPUs are available (PHLOX_BACKENDS is 'a\xffb'", done.stderr)
        with self.assertRaisesRegex(RuntimeError, r"\u00e9$|\\xc3$"):  # a long error text, cut inside a character
            torch.linalg.norm(torch.ones(2, 2), ord="x" + "\u00e9" * 5000)


if __name__ == "__main__":
    unittest.main()
