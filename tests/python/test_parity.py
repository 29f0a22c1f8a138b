# SPDX-License-Identifier: Apache-2.0
"""The expressions of parity_cases.txt give the same text, or the same error, in PyTorch and Phlox."""
import os
import re
import unittest
import warnings

import phlox

try:
    import torch
    torch = None if "phlox" in (torch.__file__ or "") else torch
except ImportError:
    torch = None

HERE = os.path.dirname(os.path.abspath(__file__))
# What PyTorch 2.14 says, where 1.13 says otherwise: the newest is the reference.
NEWER = {
    "x[torch.tensor([0.5])]":
        "IndexError: tensors used as indices must be long, int, byte or bool tensors",
    "x.item()": "RuntimeError: a Tensor with 6 elements cannot be converted to Scalar",
}


def outcome(library, expression):
    space = {"torch": library, "x": library.tensor([[1., 2., 3.], [4., 5., 6.]]),
             "i": library.tensor([1, 2, 3])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            text = repr(eval(expression, space))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def cases():
    with open(os.path.join(HERE, "parity_cases.txt")) as file:
        return [line.rstrip("\n") for line in file if line.strip()]


class Parity(unittest.TestCase):
    @unittest.skipIf(torch is None, "PyTorch is not installed for this Python")
    def test_expressions(self):
        for expression in cases():
            with self.subTest(expression):
                wanted = outcome(torch, expression)
                if torch.__version__.startswith("1."):
                    wanted = NEWER.get(expression, wanted)
                self.assertEqual(outcome(phlox, expression), wanted)


if __name__ == "__main__":
    unittest.main()
