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
    "torch.zeros()": 'TypeError: zeros() missing 1 required positional arguments: "size"',
    "torch.nn.functional.pad(x, (-4, 2))": "RuntimeError: narrow(): length must be non-negative.",
    "torch.multinomial(torch.tensor([float('inf'), 1.]), 1, True)":
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
    "torch.nn.functional.binary_cross_entropy(torch.tensor([.5]), torch.tensor([-1.]))":
        "RuntimeError: all elements of target should be between 0 and 1",
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


# Of dtypes that kernels do not take. 1.13 raises RuntimeError, 2 NotImplementedError, which is one.
REFUSED = """i.softmax(0)|i.log_softmax(0)|i.bernoulli()|i.normal_()|torch.rand(2, dtype=torch.int64)|F.gelu(i)|F.layer_norm(i, (3,))
F.mse_loss(i, i)|F.smooth_l1_loss(i, i)|F.huber_loss(i, i)|F.nll_loss(i[None], i[:1])|F.binary_cross_entropy(i, i)|b.ceil()|b.round()
torch.dot(b, b)|torch.mm(b[None], b[:, None])|b // b|torch.addcmul(b, b, b)|F.max_pool2d(i.repeat(1, 4, 1), 2)""".replace("\n", "|").split("|")


class Parity(unittest.TestCase):
    @unittest.skipIf(torch is None, "PyTorch is not installed for this Python")
    def test_texts_of_refused_dtypes(self):
        for expression in REFUSED:
            texts = []
            for library in (torch, phlox):
                i = library.tensor([1, 2, 3])
                with self.assertRaises(RuntimeError) as caught:
                    eval(expression, {"torch": library, "F": library.nn.functional, "i": i, "b": i > 1})
                texts.append(str(caught.exception))
            self.assertEqual(texts[1], texts[0], expression)

    @unittest.skipIf(phlox.cuda.device_count() == 0, "there is no device")
    def test_texts_of_refused_dtypes_on_devices(self):
        F, i = phlox.nn.functional, phlox.tensor([1, 2, 3], device="cuda")
        for call, kernel in ((lambda: i.softmax(0), "host_softmax"), (lambda: F.gelu(i), "GeluCUDAKernelImpl"),
                             (lambda: F.mse_loss(i, i), "mse_cuda"), (lambda: (i > 1).ceil(), "ceil_cuda")):
            with self.assertRaisesRegex(NotImplementedError, f'^"{kernel}" not implemented for \'(Long|Bool)\''):
                call()
        with self.assertRaisesRegex(RuntimeError, "^std and var only support floating point and complex dtypes"):
            i.var()

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
