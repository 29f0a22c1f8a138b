# SPDX-License-Identifier: Apache-2.0
"""python3 sample.py FILE [--most N]: makes samples from PyTorch's own tables of ops and modules, with PyTorch's outcomes (form.py). --most limits the samples
of an op in the default dtype; other dtypes have a sixth of it. --most 1 makes the small test set. Requires only PyTorch."""
import argparse
import base64
import gzip
import json
import math
import os
import random
import sys
import warnings

import torch
from torch.testing._internal import common_modules
from torch.testing._internal.common_methods_invocations import op_db

import form
import replay

# Ops returning uninitialized memory; values are not compared.
UNSAID = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_"}
LARGEST, SMALL = 4096, 64
FEW = {torch.float32, torch.int64, torch.bfloat16, torch.uint8}
# If PyTorch's own rounding error exceeds the tolerance, a sum in another order may be off by as much. LOOSEST limits this multiple of the tolerance.
SHORT = {"float16", "bfloat16", "float32"}
LOOSEST = 64


def evenly_spaced(samples, most):
    """At most `most` elements of a list, evenly spaced."""
    return samples if len(samples) <= most else [samples[i * len(samples) // most] for i in range(most)]


def usable(value, largest=LARGEST):
    return sum(t.numel() for t in form.tensors(torch, value)) <= largest


def excluded(outcome):
    """True for ops not implemented by PyTorch itself, and for results other than strided tensors."""
    error = outcome.get("error", ["", ""])
    return "not implemented for" in error[1] or "cannot be kept" in error[1] or "another layout" in error[1]


def is_random(sample):
    """True if the same call returns different values."""
    seeds, torch.manual_seed = torch.manual_seed, lambda seed: None
    try:
        return any(form.outcome(torch, sample, "forward") != sample["forms"]["forward"] for _ in range(2))
    finally:
        torch.manual_seed = seeds


def has_uninitialized_memory(sample, name):
    """True if the result contains uninitialized memory: it then changes if PyTorch or earlier allocations fill new memory."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    for _ in [torch.full((n,), 12345.) for n in range(1, 800, 9)]:
        pass
    again = form.outcome(torch, sample, name)
    torch.use_deterministic_algorithms(False)
    return replay.judge(sample, name, again, sample["forms"][name]) is not None


def to_float64(value):
    """An encoded argument with its values in float64."""
    if isinstance(value, list):
        return [*map(to_float64, value)]
    if not isinstance(value, dict):
        return value
    (tag, kept), = value.items()
    if tag == "tensor":
        return form.encode(torch, t.double() if (t := form.decode(torch, value, "cpu")).is_floating_point() else t)
    return {tag: to_float64(kept)} if tag in ("tuple", "dict") else {"torch": "float64"} if tag == "torch" and kept in SHORT else value


def rounding(sample, given, name):
    """PyTorch's rounding error relative to its own float64 result, as a multiple of the tolerance. If values left the range of the dtype, the float64
    results are stored as well, as "wide"."""
    wide = {part: to_float64(sample[part]) for part in ("args", "inputs", "state") if part in sample}
    named = {part: {k: to_float64(v) for k, v in sample[part].items()} for part in ("kwargs", "named") if part in sample}
    exact = form.outcome(torch, {**sample, **wide, **named}, name)
    if "value" in exact and (kept := replace_non_finite(given["value"], exact["value"])) != given["value"]:
        given["wide"] = kept
    return replay.distance(given, exact, replay.TOLERANCE[sample["dtype"]])


def replace_non_finite(value, exact):
    """The encoded value, with each non-finite element replaced by its float64 result, if finite."""
    if isinstance(value, list) and isinstance(exact, list) and len(value) == len(exact):
        return [*map(replace_non_finite, value, exact)]
    if not isinstance(value, dict) or not isinstance(exact, dict) or value.keys() != exact.keys():
        return value
    if "tensor" not in value:
        return {tag: replace_non_finite(kept, exact[tag]) for tag, kept in value.items()}
    (dtype, size, stride, data), (wide, size_, _, data_) = value["tensor"], exact["tensor"]
    if dtype not in SHORT or wide != "float64" or size != size_:
        return value
    own, better = (replay.numbers(d, base64.b64decode(x)) for d, x in ((dtype, data), (wide, data_)))
    taken = torch.tensor([a if math.isfinite(a) or math.isnan(b) else b for a, b in zip(own, better)], dtype=torch.float64).to(getattr(torch, dtype))
    return {"tensor": [dtype, size, stride, base64.b64encode(form.raw_bytes(taken, taken.numel())).decode()]}


def finish(sample, forms):
    """The sample with the outcome of each form; None if PyTorch has none, or if it cannot be encoded."""
    if sample is None:
        return None
    try:
        sample["leaves"] = [i for i, t in enumerate(sample.pop("tensors")) if t.requires_grad]
        sample["args"] = form.encode(torch, list(sample["args"]))
        for part in "kwargs", "named":
            if part in sample:
                sample[part] = {k: form.encode(torch, v) for k, v in sample[part].items()}
        if "inputs" in sample:
            sample["inputs"] = form.encode(torch, list(sample["inputs"]))
    except (TypeError, RuntimeError):
        return None
    sample["forms"] = {}
    for name in forms:
        given = form.outcome(torch, sample, name)
        if excluded(given):
            continue
        sample["forms"][name] = given
        if name == "forward" and "error" in given:
            break
        if name == "forward" and is_random(sample):
            sample["random"] = "unsaid" if sample["op"] in UNSAID else "drawn"
        if has_uninitialized_memory(sample, name):
            del sample["forms"][name]
        elif sample["dtype"] in SHORT and "value" in given and (most := rounding(sample, given, name)) > 1:
            given["slack"] = min(most, LOOSEST)
    return sample if sample["forms"] else None


def path_of(op):
    for path in op.name, "Tensor." + op.name, "Tensor." + op.name + "_":
        if form.lookup(torch, path) is not None:
            return path
    return None


def forms_of(op, dtype, first):
    forms = ["forward"]
    if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
        forms += ["grad", "gradgrad"] if op.supports_gradgrad else ["grad"]
    if op.supports_out:
        forms += ["out", "out_resized", "out_strided", "out_int"] if first else ["out"]
    if op.get_inplace() is not None and hasattr(torch.Tensor, op.name + "_"):
        forms.append("inplace")
    if first and op.get_method() is not None and hasattr(torch.Tensor, op.name):
        forms.append("method")
    return forms


def map_tensors(value, change):
    """The structure with `change` applied to each tensor."""
    if isinstance(value, torch.Tensor):
        return change(value.detach()).requires_grad_(value.requires_grad) if value.layout == torch.strided else value
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(v, change) for v in value) if type(value) in (list, tuple) else value
    return {k: map_tensors(v, change) for k, v in value.items()} if isinstance(value, dict) else value


CHANGES = {"strided": lambda t: torch.stack([t, t], -1)[..., 0], "empty": lambda t: t[:0].clone() if t.dim() else t}


def samples_of_op(op, most):
    path, largest = path_of(op), LARGEST if most > 1 else SMALL
    dtypes = op.supported_dtypes("cpu") & (op.supported_dtypes("cpu") if most > 1 else FEW)
    for dtype in sorted(dtypes if path else (), key=str):
        try:
            needs_grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
            found = list(op.sample_inputs("cpu", dtype, requires_grad=needs_grad))
        except Exception:
            continue
        found = [s for s in found if usable([s.input, s.args, s.kwargs], largest)]
        default = dtype == torch.float32 or torch.float32 not in op.supported_dtypes("cpu")
        for i, s in enumerate(evenly_spaced(found, most if default else max(most // 6, 1))):
            call = [s.input, *s.args], s.kwargs
            about = {"op": op.name, "variant": op.variant_test_name, "path": path, "dtype": str(dtype).split(".")[-1]}
            for kind in ("sample", "strided", "empty")[:3 if i < 2 else 1]:
                args, kwargs = map_tensors(call, CHANGES.get(kind, lambda t: t))
                forms = forms_of(op, dtype, i == 0) if kind == "sample" else ["forward", "grad"][:1 + needs_grad]
                yield {**about, "kind": kind, "args": args, "kwargs": kwargs, "tensors": form.tensors(torch, [args, kwargs])}, forms
    if path and op.error_inputs_func is not None:
        yield from errors_of_op(op, path)


def errors_of_op(op, path):
    try:
        found = list(op.error_inputs("cpu"))
    except Exception:
        return
    for error in found:
        s = error.sample_input
        args = [s.input, *s.args]
        if usable([args, s.kwargs]):
            about = {"op": op.name, "variant": op.variant_test_name, "path": path, "dtype": "float32", "kind": "error"}
            yield {**about, "args": args, "kwargs": s.kwargs, "tensors": form.tensors(torch, [args, s.kwargs])}, ["forward"]


def samples_of_module(info, most):
    for dtype in sorted(info.supported_dtypes("cpu"), key=str):
        for train in (True, False) if info.train_and_eval_differ else (True,):
            found = info.module_inputs_func(info, "cpu", dtype, True, train)
            for s in evenly_spaced(found, most if dtype == torch.float32 else max(most // 6, 1)):
                yield module_sample(info, s, dtype, train)
    for e in info.module_error_inputs_func(info, "cpu", torch.float32, True, True) if info.module_error_inputs_func else ():
        yield module_sample(info, e.module_error_input, torch.float32, True, "error")


def module_sample(info, s, dtype, train, kind="sample"):
    made, given = s.constructor_input, s.forward_input or common_modules.FunctionInput()
    if not usable([given.args, given.kwargs]) or info.is_lazy:
        return None, []
    about = {"op": "nn." + info.name.removeprefix("nn."), "variant": "", "path": info.module_cls.__module__.split("torch.")[1].split(".")[0] + "." + info.module_cls.__name__,
             "dtype": str(dtype).split(".")[-1], "kind": kind, "train": train, "state": []}
    leaves = form.tensors(torch, [given.args])
    try:
        torch.manual_seed(0)
        module = info.module_cls(*made.args, **made.kwargs)
        about["state"] = [form.encode(torch, t.to(dtype) if t.is_floating_point() else t) for t in module.state_dict().values()]
        leaves += list(module.parameters())
    except Exception:
        if kind != "error":
            return None, []
    grads = ["grad", "gradgrad"] if info.supports_gradgrad else ["grad"]
    return ({**about, "args": made.args, "kwargs": made.kwargs, "inputs": given.args, "named": given.kwargs, "tensors": leaves},
            ["forward", *grads] if kind == "sample" else ["forward"])


def lines(of, entry, most, crashed):
    """The samples of an entry as lines, made in a subprocess. If PyTorch crashes in a sample, its index is skipped on the next run."""
    end, write = os.pipe()
    child = os.fork()
    if not child:
        torch.manual_seed(0)
        random.seed(0)
        with open(write, "w") as pipe:
            for i, (sample, forms) in enumerate(of(entry, most)):
                pipe.write(json.dumps(None if i in crashed else finish(sample, forms), separators=(",", ":")) + "\n")
                pipe.flush()
        os._exit(0)
    os.close(write)
    with open(end) as pipe:
        made = list(pipe)
    if os.waitpid(child, 0)[1] and len(made) not in crashed:
        return lines(of, entry, most, crashed | {len(made)})
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--most", type=int, default=18)
    parser.add_argument("--op", help="of ops whose name has this in it")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kept = left = 0
    with gzip.GzipFile(args.file, "wb", mtime=0) as file:
        for of, table in (samples_of_op, op_db), (samples_of_module, common_modules.module_db):
            for entry in table:
                if args.op and args.op not in entry.name:
                    continue
                for line in lines(of, entry, args.most, set()):
                    kept, left = (kept, left + 1) if line == "null\n" else (kept + 1, left)
                    if line != "null\n":
                        file.write(line.encode())
    print(f"{kept} samples, {left} that cannot be kept in a file or are of PyTorch's own gaps, with PyTorch {torch.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
