# SPDX-License-Identifier: Apache-2.0
"""Every sample of the op tables in every dtype, in PyTorch and Phlox on the same GPU: Phlox must support each dtype that PyTorch supports, with
equal results. Internal ops without a counterpart in PyTorch are skipped."""
import math
import os
import re
import unittest
import warnings

import phlox
import samples

try:
    import torch
    torch = None if "phlox" in (torch.__file__ or "") else torch
except ImportError:
    torch = None

# MATRIX_DEVICE=cpu compares on the CPU, without a GPU.
DEVICE = os.environ.get("MATRIX_DEVICE", "cuda")
DTYPES = {"float64": 1e-9, "float32": 2e-5, "float16": 1e-2, "bfloat16": 6e-2, "int64": 0, "int32": 0, "int16": 0,
          "int8": 0, "uint8": 0, "bool": 0}
# Values are not compared: uninitialized memory, random numbers (tested separately), and the choice among several modes.
NOT_COMPARED = re.compile(r"^(empty|new_empty|rand|normal|bernoulli|dropout|uniform|random|exponential|multinomial|_standard_gamma$|_sample_dirichlet$|poisson$|mode$)")
# Any index among ties is valid, so only the first result is compared.
TIES = {"topk", "kthvalue", "median", "nanmedian", "sort", "argsort", "argmax", "argmin", "max", "min"}
# As PyTorch on GPUs, Phlox returns float32 statistics for bfloat16 rows.
if DEVICE == "cpu": TIES.add("native_layer_norm")
# Kernels that PyTorch has on the device and Phlox lacks; Phlox rejects the dtype.
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
GAPS = {("avg_pool2d", "int64")} | {(name, dtype) for name in ("conv1d", "conv2d") for dtype in INTEGERS} if DEVICE == "cpu" else {
    (name, dtype) for name in ("histc", "mse_loss") for dtype in INTEGERS}
GAPS |= {("stft", "float16")}
# PyTorch stores constants such as 1/6 as float32, also for float64.
LOOSE = {"hardsigmoid": 1e-7, "hardswish": 1e-7}
# PyTorch's GPU kernels are less exact: TF32 in recurrent layers, float32 accumulation of float64.
if DEVICE == "cuda": LOOSE |= {"rnn_tanh": 1e-3, "rnn_relu": 1e-3, "gru": 1e-3, "_weight_norm": 1e-7, "_standard_gamma_grad": 1e-4}
# torch._neg_view is unavailable. Positional arguments differ in PyTorch's kl_div; its hinge_embedding_loss of integers raises, or truncates the mean.
# On GPUs, its cdist of bfloat16 via matmul is off by one half, and its matrix_exp of float16 is NaN.
OTHERS = {"kl_div", "hinge_embedding_loss", "_neg_view"} | ({"cdist", "matrix_exp"} if DEVICE == "cuda" else set())


def missing():
    if torch is None: return "PyTorch is not installed for this Python"
    if not os.path.exists(samples.PATH): return "the samples of the op tables were not generated"
    if DEVICE == "cpu": return None
    if not torch.cuda.is_available(): return "this PyTorch has no CUDA device"
    if phlox.cuda._backend_name() != "cuda": return "Phlox has no NVIDIA GPU"
    return None


REASON = missing()
if REASON is None and DEVICE == "cuda": torch.backends.cudnn.allow_tf32 = False  # on by default for recurrent layers


def outcome(library, name, sample, dtype):
    """The results as a list of tensors, the exception, or None if the library has no such name."""
    text, low, high = sample
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args, keywords = samples.arguments(library, text, low, high, dtype, DEVICE)
        first = args[0] if args else None
        namespaces = [library.nn.functional, library] + ([first] if isinstance(first, library.Tensor) else [])
        found = [getattr(namespace, name) for namespace in namespaces if hasattr(namespace, name)]
        error = None
        for function in found:
            method = first is not None and getattr(function, "__self__", None) is first
            try:
                result = function(*args[method:], **keywords)
                if DEVICE == "cuda": library.cuda.synchronize()  # so that a kernel's error is attributed to this op
            except Exception as e: error = error or e
            else: return flat(library, result)
        return error


def flat(library, result):
    if isinstance(result, library.Tensor): return [result]
    if isinstance(result, (list, tuple)): return [r for r in result if isinstance(r, library.Tensor)]
    return [library.tensor(result)] if isinstance(result, (bool, int, float)) else []


def as_doubles(t):
    return t.double().cpu().flatten().tolist()


def differ(a, b, name):
    tolerance = max(DTYPES.get(str(b.dtype).partition(".")[2], 0), LOOSE.get(name, 0))
    if tuple(a.shape) != tuple(b.shape): return f"shape {tuple(a.shape)}, not {tuple(b.shape)}"
    if str(a.dtype) != str(b.dtype): return f"dtype {a.dtype}, not {b.dtype}"
    for i, (x, y) in enumerate(zip(as_doubles(a), as_doubles(b))):
        if x != y and not (math.isnan(x) and math.isnan(y)) and not abs(x - y) <= tolerance * max(1, abs(y)):
            return f"element {i} is {x}, not {y}"
    return None


@unittest.skipIf(REASON, REASON)
class Matrix(unittest.TestCase):
    def test_every_sample_in_every_dtype(self):
        lacking, wrong, unknown, compared = [], [], set(), 0
        for op, name, sample in samples.samples():
            if op in OTHERS or op.startswith("_") and not hasattr(phlox, op): continue
            for dtype in DTYPES:
                wanted = outcome(torch, name, sample, dtype)
                if not isinstance(wanted, list): continue
                what = f"{name}({sample[0]}) of {dtype}"
                got = outcome(phlox, name, sample, dtype)
                if "ZeroDivisionError" in str(got): continue  # PyTorch reports it on the CPU only
                # Missing names, argument forms and libraries are not missing kernels.
                if "is not implemented in Phlox" in str(got) or "is not implemented for GPUs" in str(got) or isinstance(got, TypeError):
                    unknown.add(f"{name}({sample[0]})")
                    continue
                if (name, dtype) in GAPS:
                    self.assertIsInstance(got, NotImplementedError, "no gap any more")
                    continue
                if not isinstance(got, list):
                    lacking.append(f"{what}: {type(got).__name__}: {str(got).splitlines()[0] if got else 'no such name'}")
                    continue
                compared += 1
                pairs = [] if NOT_COMPARED.match(name) else list(zip(got, wanted))
                differences = [differ(a, b, name) for a, b in (pairs[:1] if name in TIES else pairs)]
                wrong += [f"{what}: {text}" for text in differences if text]
        print(f"{compared} compared; names or forms that Phlox has not:", *sorted(unknown))
        self.assertEqual((lacking, wrong), ([], []), "\n".join([""] + lacking + ["---- other numbers:"] + wrong))
        self.assertGreater(compared, 1000)


if __name__ == "__main__":
    unittest.main()
