# SPDX-License-Identifier: Apache-2.0
"""python3 replay.py FILE [--device cpu sim] [--op NAME] [--dtype NAME] [--page PAGE] [--keep SMALL] [--jobs N] [--reference PYTHON]: replays samples made by
sample.py with Phlox alone, and prints how many outcomes are right.
An outcome is right if an error has the same class and text, and a result has the same structure, dtypes, shapes, strides and values, with NaN and infinity
at the same positions. Each device is replayed by one or more subprocesses. They report progress, so a crash or hang counts as a wrong outcome.
On a GPU, some of PyTorch's outcomes differ from those recorded on the CPU: for example, it has no integer matmul and fewer LAPACK drivers.
--reference names a Python whose PyTorch supports the GPU; an outcome that differs from the CPU's is right if PyTorch has it on that GPU."""
import argparse
import base64
import itertools
import json
import lzma
import math
import os
import re
import signal
import struct
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import form

# Tolerances relative to the value, or absolute for values below 1; other dtypes must match exactly. Gradients have four times the tolerance. If PyTorch's
# own error relative to float64 is larger, the tolerance is twice that error.
TOLERANCE = {"float16": 2**-9, "bfloat16": 2**-6, "float32": 2**-16, "float64": 2**-36, "complex32": 2**-9, "complex64": 2**-16, "complex128": 2**-36}
CODES = {"bool": "?", "uint8": "B", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q", "float16": "e",
         "float32": "f", "float64": "d", "complex32": "e", "complex64": "f", "complex128": "d"}
# Accuracy of PyTorch's own float64 results, for functions with less exact coefficients.
COARSE = {"special.bessel_j0": 2**-18, "special.bessel_j1": 2**-18, "special.bessel_y0": 2**-18, "special.bessel_y1": 2**-18, "special.airy_ai": 2**-27,
          "digamma": 2**-30, "lgamma": 2**-29, "mvlgamma": 2**-29, "nn.functional.hardsigmoid": 2**-26}
KEPT = {"float32", "int64", "uint8"}  # dtypes of the small set
UNDERIVED = re.compile(r"derivative for aten::\w+ is not implemented")  # PyTorch's error; Phlox may have the derivative, which is not compared
TIES = {"kthvalue", "topk"}  # any index among equal elements is valid
SIGNS = {"linalg.eigh", "linalg.eig"}  # vectors are unique up to a factor of absolute value 1
WIDER = {"native_batch_norm", "_native_batch_norm_legit", "native_layer_norm"}  # devices return float32 statistics for fp16 and bf16
DEVICES = {"cpu": {}, "sim": {"PHLOX_BACKENDS": "sim", "PHLOX_SIM_DEVICES": "1"}, "cuda": {"PHLOX_BACKENDS": "cuda"}}
FIXED = "Trying to resize storage that is not resizable"  # samples on the CPU are views of a buffer; copies on a device are resizable
KEY = "cannot be called"  # error of op names that exist only as keys of FLOP counts
LIMIT = 20  # seconds per outcome


def numbers(dtype, data):
    """The values of the bytes; two per complex number."""
    if dtype == "bfloat16":
        data, dtype = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)), "float32"
    if dtype not in CODES:
        return list(data)
    return [v for v, in struct.iter_unpack(CODES[dtype], data)]


def near(a, b, most):
    if a == b or a != a and b != b:
        return True
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= most * max(1, abs(b))


def similar_distributions(have, want):
    """Compares random results by their mean, if there are at least 8 finite values."""
    if len(want) < 8 or not all(map(math.isfinite, want)):
        return all(map(math.isfinite, have)) or not all(map(math.isfinite, want))
    mean = lambda values: sum(values) / len(values)
    deviation = max(math.sqrt(mean([(x - mean(v))**2 for x in v])) for v in (have, want))
    return abs(mean(have) - mean(want)) <= 6 * deviation * math.sqrt(2 / len(want))


def tensor_difference(have, want, how, slack, least, strided):
    (dtype, size, stride, data), (dtype_, size_, stride_, data_) = have, want
    if dtype != dtype_:
        return f"dtype {dtype}, not {dtype_}"
    if size != size_:
        return f"shape {size}, not {size_}"
    if strided and 0 not in size and any(n > 1 and a != b for n, a, b in zip(size, stride, stride_)):
        return f"strides {stride}, not {stride_}"
    if data == data_ or how == "unsaid":
        return None
    a, b = (numbers(dtype, base64.b64decode(x)) for x in (data, data_))
    if how == "drawn":
        return None if similar_distributions(a, b) else "values of another kind"
    most = max(TOLERANCE.get(dtype, 0) * slack, least)
    bad = [i for i, (x, y) in enumerate(zip(a, b)) if not near(x, y, most)]
    return f"values: {len(bad)} of {len(a)} differ, first {a[bad[0]]!r}, not {b[bad[0]]!r}" if bad else None


def difference(have, want, how=None, slack=1, least=0, strided=True):
    """Returns the difference from the wanted encoded value, or None."""
    if isinstance(want, dict) and isinstance(have, dict) and have.keys() == want.keys():
        (tag, a), (_, b) = *have.items(), *want.items()
        return tensor_difference(a, b, how, slack, least, strided) if tag == "tensor" else difference(a, b, how, slack, least, strided)
    if isinstance(want, list) and isinstance(have, list):
        if len(have) != len(want):
            return f"{len(have)} results, not {len(want)}" if not all(isinstance(v, str) for v in have + want) else f"warnings {have}, not {want}"
        return next(filter(None, (difference(a, b, how, slack, least, strided) for a, b in zip(have, want))), None)
    if isinstance(want, float) and isinstance(have, float):
        return None if how or not strided or near(have, want, 1e-6) else f"{have}, not {want}"
    return None if have == want and type(have) is type(want) or how or not strided else f"{have!r:.200}, not {want!r:.200}"


def distance(have, want, most):
    """The maximum difference of two outcomes, as a multiple of `most`; 1 if nothing can be compared."""
    def values(outcome):
        found = re.findall(r'"tensor": (\[[^{]*?\])}', json.dumps(outcome))
        return [(dtype, size, numbers(dtype, base64.b64decode(data))) for dtype, size, _, data in map(json.loads, found) if dtype in TOLERANCE]
    pairs = [(x, y) for a, b in zip(values(have), values(want)) if a[1] == b[1] for x, y in zip(a[2], b[2])]
    return max((abs(x - y) / max(1, abs(y)) / most for x, y in pairs if math.isfinite(x) and math.isfinite(y)), default=1)


def indexed_values(sample, result):
    """Replaces the indices of a result by the selected values, for ops with any order among equal elements."""
    (dtype, size, stride, data), index = sample["args"][0]["tensor"], result[1]["tensor"]
    flat, dim = numbers(dtype, base64.b64decode(data)), sample["kwargs"].get("dim", (sample["args"] + [-1, -1])[2])
    if not size or 0 in index[1]:
        return result
    dim %= len(size)
    outer = index[1] if len(index[1]) == len(size) else index[1][:dim] + [1] + index[1][dim:]
    positions = itertools.product(*map(range, outer))
    values = [flat[sum(s * (i if d == dim else p) for d, (s, p) in enumerate(zip(stride, position)))]
              for position, i in zip(positions, numbers("int64", base64.b64decode(index[3])))]
    return [result[0], {"tensor": [*index[:3], ""]}, values]


def indexed_values_of_form(sample, value):
    """The same for the containers of a form: a tuple, or a list with a tuple first."""
    if isinstance(value, dict):
        return indexed_values(sample, value["tuple"])
    return [indexed_values(sample, value[0]), *value[1:]]


def normalized_vectors(value):
    """Scales each eigenvector (a column) by a factor of absolute value 1, so that its first element of about maximum size is positive."""
    if isinstance(value, dict):
        return {tag: normalized_vectors(kept) for tag, kept in value.items()}
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(v, dict) and "tensor" in v for v in value):
        return [normalized_vectors(v) if isinstance(v, (dict, list)) else v for v in value]
    dtype, size, stride, data = value[1]["tensor"]
    if not math.prod(size) or len(size) < 2:
        return value
    flat, two = numbers(dtype, base64.b64decode(data)), dtype.startswith("complex")
    flat = [complex(*flat[i:i + 2]) for i in range(0, len(flat), 2)] if two else flat
    for column in (slice(at + j, at + math.prod(size[-2:]), size[-1]) for at in range(0, len(flat), math.prod(size[-2:])) for j in range(size[-1])):
        v = flat[column]
        lead = next((x for x in v if abs(x) > 0.99 * max(map(abs, v))), 1)
        flat[column] = [x * abs(lead) / lead for x in v]
    parts = [p for x in flat for p in ((x.real, x.imag) if two else (x,))]
    packed = struct.pack(f"={len(parts)}{CODES[dtype]}", *parts)
    return [value[0], {"tensor": [dtype, size, stride, base64.b64encode(packed).decode()]}]


def expected_value(have, want, wide):
    """The expected value if PyTorch's non-finite elements may also be the float64 results: takes elements of `wide` if `have` differs from PyTorch's."""
    if isinstance(want, list) and isinstance(have, list) and len(want) == len(have):
        return [*map(expected_value, have, want, wide)]
    if not isinstance(want, dict) or not isinstance(have, dict) or have.keys() != want.keys():
        return want
    if "tensor" not in want:
        return {tag: expected_value(have[tag], kept, wide[tag]) for tag, kept in want.items()}
    dtype, size, stride, data = want["tensor"]
    if dtype != have["tensor"][0] or size != have["tensor"][1]:
        return want
    item = len(base64.b64decode(data)) // max(1, math.prod(size))
    parts = [[raw[i:i + item] for i in range(0, len(raw), item or 1)] for raw in (base64.b64decode(v["tensor"][3]) for v in (have, want, wide))]
    same = lambda a, b: near(*numbers(dtype, a), *numbers(dtype, b), 0)
    return {"tensor": [dtype, size, stride, base64.b64encode(b"".join(b if same(a, b) else c for a, b, c in zip(*parts))).decode()]}


def judge(sample, name, have, want, device="cpu"):
    if "error" in want:
        if "value" in have and UNDERIVED.fullmatch(want["error"][1]):
            return None
        if "value" in have:
            return None if device != "cpu" and want["error"][1] == FIXED else "no error, but " + ": ".join(want["error"])
        if name.startswith("out") and have["error"][0] == want["error"][0] == "TypeError":
            return None  # an op without out= has another text
        return None if same_error(have["error"], want["error"]) else ": ".join(have["error"]) + "  --  not  " + ": ".join(want["error"])
    if "error" in have:
        return ": ".join(have["error"])
    if device != "cpu" and sample["op"] in WIDER:
        have = to_half_precision(have, want)
    if sample["op"] in SIGNS:
        if "grad" in name:  # depends on the choice of sign
            return None
        have, want = ({**o, "value": normalized_vectors(o["value"])} for o in (have, want))
    if name.startswith("out") and isinstance(have["value"], list) and isinstance(want["value"], list):
        have, want = ({**o, "value": [*o["value"][:2], sorted(o["value"][2])]} for o in (have, want))  # the order of resizing is unspecified
    if sample["op"] in TIES and "grad" not in name and len(sample["args"]) > 1:
        have, want = ({**o, "value": indexed_values_of_form(sample, o["value"])} for o in (have, want))
    how = sample.get("random"), max(4 if "grad" in name else 1, 2 * want.get("slack", 0)), COARSE.get(sample["op"], 0), "grad" not in name
    return difference(have["value"], expected_value(have["value"], want["value"], want["wide"]) if "wide" in want else want["value"], *how)


def same_error(have, want):
    """Compares errors. An error reported later by a device has the kernel and position appended to its text, and another class."""
    later = "\nIt was reported by" in have[1]
    return plain(have)[later:] == plain(want)[later:]


def to_half_precision(have, want):
    """Converts float32 results to the expected fp16 or bf16, for the statistics of WIDER ops on devices."""
    if isinstance(have, dict) and isinstance(want, dict):
        if "tensor" in have and "tensor" in want and have["tensor"][0] == "float32" and want["tensor"][0] in ("float16", "bfloat16"):
            dtype, (_, size, stride, data) = want["tensor"][0], have["tensor"]
            values = numbers("float32", base64.b64decode(data))
            packed = b"".join(struct.pack("e", v) if dtype == "float16" else struct.pack("f", v)[2:] for v in values)
            return {"tensor": [dtype, size, stride, base64.b64encode(packed).decode()]}
        return {k: to_half_precision(v, want.get(k)) for k, v in have.items()}
    return [*map(to_half_precision, have, want)] if isinstance(have, list) and isinstance(want, list) else have


def plain(error):
    """Class and text of an error, without the type of device."""
    return [error[0], error[1].split("\nIt was reported by")[0].replace("cuda:0", "cpu").replace("_cuda", "_cpu").replace("CUDA", "CPU").strip()]


class Peer:
    """PyTorch in a subprocess, running forms of samples on the same GPU. It is restarted after an error of a kernel."""
    def __init__(self, python, path):
        self.command, self.process = [python, os.path.abspath(__file__), path, "--peer"], None

    def outcome(self, sample, name):
        """The outcome, or None if the process exited."""
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.process.stdin.write(json.dumps([sample, name]) + "\n")
            self.process.stdin.flush()
            made = json.loads(self.process.stdout.readline())
        except (BrokenPipeError, ValueError):
            made = None
        if made is None or "error" in made and "CUDA" in made["error"][1]:  # the process is unusable after a kernel's error
            self.process.kill()
            self.process.wait()
            self.process = None
        return made


def serve():
    """The main loop of a Peer's process."""
    import torch
    torch.backends.cudnn.allow_tf32 = False
    for line in sys.stdin:
        print(json.dumps(form.outcome(torch, *json.loads(line), "cuda")), flush=True)


def check_form(torch, sample, name, device, peer):
    """The difference in a form, or None."""
    have, want = form.outcome(torch, sample, name, device), sample["forms"][name]
    reason = judge(sample, name, have, want, device)
    there = peer.outcome(sample, name) if reason and peer else None
    return judge(sample, name, have, {**there, "slack": want.get("slack", 0)}, device) if there else reason


def work(args, device, first, part, parts):
    """The process of one part of the samples on a device. Prints a line before and after each sample."""
    import phlox as torch
    torch.backends.cudnn.allow_tf32 = False
    peer = Peer(args.reference, args.file) if args.reference else None
    for i, sample in enumerate(form.read(args.file)):
        if i < first or i % parts != part or args.op and args.op not in sample["op"] or args.dtype and args.dtype not in sample["dtype"]:
            continue
        print(json.dumps([i]), flush=True)
        wrong = {}
        if form.lookup(torch, sample["path"]) is None:
            wrong = dict.fromkeys(sample["forms"], "missing")
        else:
            for name in sample["forms"]:
                signal.alarm(LIMIT)
                reason = check_form(torch, sample, name, device, peer)
                if reason:
                    wrong[name] = "missing" if reason.endswith(KEY) else reason
        signal.alarm(0)
        print(json.dumps([i, wrong]), flush=True)
    print("[null]", flush=True)


def replay_part(path, device, part, parts, given):
    """Replays one part of the samples. Returns the differences by form for each sample number."""
    results, first, more = {}, 0, [word for name, value in given.items() if value for word in ("--" + name, value)]
    while first is not None:
        command = [sys.executable, os.path.abspath(__file__), path, "--work", device, str(first), str(part), str(parts), *more]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **DEVICES[device]})
        first, at = None, -1
        for line in child.stdout:
            at, *wrong = json.loads(line)
            if wrong:
                results[at] = wrong[0]
        child.wait()
        if at is not None:  # exited before the end
            if at in results or at < 0:
                raise SystemExit(f"the process of {device} ended with {child.returncode} outside of a sample")
            results[at], first = {"forward": f"the process ended with {child.returncode}"}, at + 1
    return results


def replay(path, device, jobs=1, **given):
    """Replays all samples, split among `jobs` processes. `given` has the options op, dtype and reference."""
    with ThreadPoolExecutor(jobs) as pool:
        found = pool.map(lambda part: replay_part(path, device, part, jobs, given), range(jobs))
        return {number: wrong for part in found for number, wrong in part.items()}


def literal(value):
    """An argument as Python source."""
    again = literal
    if isinstance(value, list):
        return "[" + ", ".join(map(again, value)) + "]"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float('{value}')"
    if not isinstance(value, dict):
        return repr(value)
    (tag, kept), = value.items()
    if tag == "tensor":
        dtype, size, stride, data = kept
        flat = numbers(dtype, base64.b64decode(data))
        if dtype.startswith("complex"):
            flat = [complex(a, b) for a, b in zip(flat[::2], flat[1::2])]
        texts = [f"{x:.9g}" if isinstance(x, float) and dtype != "float64" else repr(x) for x in flat]
        text = f"torch.tensor([{', '.join(texts)}], dtype=torch.{dtype})".replace("nan", "float('nan')").replace("inf", "float('inf')")
        rows = [math.prod(size[i + 1:]) for i in range(len(size))]
        return text if size == [len(flat)] and stride == [1] else text + (f".reshape({size})" if stride == rows else f".as_strided({size}, {stride})")
    if tag == "dict":
        return "{" + ", ".join(f"{again(k)}: {again(v)}" for k, v in kept) + "}"
    inner = ", ".join(map(again, kept)) if isinstance(kept, list) else kept
    return {"tuple": f"({inner}{',' * (isinstance(kept, list) and len(kept) == 1)})", "slice": f"slice({inner})", "ellipsis": "...", "torch": f"torch.{kept}",
            "device": f"torch.device({kept!r})"}.get(tag, f"complex({inner})")


def line(sample, name):
    """The call as a line of Python source."""
    named = [f"{k}={literal(v)}" for k, v in sample["kwargs"].items()]
    path = {"method": "Tensor." + sample["op"], "inplace": "Tensor." + sample["op"] + "_"}.get(name, sample["path"])
    call = f"torch.{path}({', '.join([literal(v) for v in sample['args']] + named)})"
    if "state" in sample:
        call += f"({literal({'tuple': sample['inputs']}).strip('()')})"
    return f"{call}  # {name}" if name != "forward" else call


def summarize(samples, results, kinds=("real",)):
    """Summarizes each op: outcome counts by form and by real or complex dtype, and the shortest failure of each form among the given kinds."""
    ops = {}
    for i, sample in enumerate(samples):
        if not any(i in r for r in results.values()):
            continue
        row = ops.setdefault(sample["op"], {"total": Counter(), "right": Counter(), "missing": False, "first": {}})
        kind = "complex" if "complex" in sample["dtype"] else "real"
        for name in sample["forms"]:
            failures = {device: r[i][name] for device, r in results.items() if name in r.get(i, {})}
            form_of = name if sample["kind"] == "sample" else sample["kind"]
            row["total"][kind] += 1
            row["right"][kind] += not failures
            row["total"][form_of] += kind == "real"
            row["right"][form_of] += kind == "real" and not failures
            row["missing"] |= "missing" in failures.values()
            if failures and kind in kinds and not row["missing"]:
                where = "" if len(failures) == len(results) else f"on {next(iter(failures))} alone: "
                first = line(sample, name), where + next(iter(failures.values())), i
                row["first"][form_of] = min(row["first"].get(form_of, first), first, key=lambda f: len(f[0]))
    return ops


def keep(path, kept):
    """Writes the small set: for each op in Phlox, the shortest sample of each kind and dtype, and the samples of each error."""
    import phlox as torch
    best = {}
    for sample in form.read(path):
        text = json.dumps(sample, separators=(",", ":"))
        key = sample["op"], sample["kind"], {"sample": sample["dtype"], "error": text}.get(sample["kind"])
        if len(text) <= 5000 and sample["dtype"] in KEPT and form.lookup(torch, sample["path"]) and len(text) < len(best.get(key, text + " ")):
            best[key] = text
    with lzma.open(kept, "wt", preset=9) as file:
        file.writelines(text + "\n" for text in best.values())


def state(row):
    right, total = row["right"]["real"], row["total"]["real"]
    return "missing" if row["missing"] else "right" if right == total else "partly" if right else "wrong"


FORMS = "forward grad gradgrad out out_resized out_strided out_int inplace method strided empty error".split()


def totals(ops):
    """The numbers of ops by state, and of outcomes by form."""
    states = Counter(map(state, ops.values()))
    of = lambda form_of: (sum(r["right"][form_of] for r in ops.values()), sum(r["total"][form_of] for r in ops.values()))
    summary = ", ".join(f"{states[s]} {s}" for s in ("right", "partly", "wrong", "missing"))
    modules = [state(row) == "right" for op, row in ops.items() if op.startswith("nn.") and not op.startswith("nn.functional.")]
    share = f"; of them {len(modules)} modules: {sum(modules)} right ({100 * sum(modules) / len(modules):.1f} %)" if modules else ""
    return f"{len(ops)} ops: {summary}{share}", {name: of(name) for name in ("real", *FORMS, "complex")}


def reasons():
    """The known reasons for failures of an op, from reasons.txt with lines `op: reason`."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "reasons.txt")) as file:
        return dict(line.strip().split(": ", 1) for line in file if line.strip() and line[0] != "#")


def page(ops):
    """The page: failing ops with their shortest failure, and the names of right and missing ops."""
    head, counts = totals(ops)
    names = lambda kind: " ".join(f"`{op}`" for op, row in sorted(ops.items()) if state(row) == kind) or "None."
    short = lambda text, most: (text if len(text) <= most else text[:most] + " ...").replace("|", "\\|").replace("\n", " ").replace("`", "'")
    rows, why = [], reasons()
    for op, row in sorted(ops.items()):
        if row["first"]:
            text, failure, number = min(row["first"].values(), key=lambda f: len(f[0]))
            rows.append(f"| `{op}` | {state(row)} | {row['right']['real']} of {row['total']['real']} | {' '.join(row['first'])} | {short(failure, 160)} | "
                        + (f"`{short(text, 200)}`" if len(text) <= 200 else f"sample {number}") + f" | {why.get(op, '')} |")
    return f"""# Parity with PyTorch

`tests/parity/run.sh PYTHON` writes this page. PYTHON has PyTorch; it makes samples from PyTorch's tables of ops and modules and records PyTorch's outcomes.
Phlox replays them on the CPU and on simulated devices, without PyTorch. `DEVICES=cuda` replays on a GPU: an outcome that differs from the CPU's is right if
the PyTorch of `REFERENCE=PYTHON` has it on that GPU ([Parity with PyTorch on a GPU](parity-cuda.md) is such a page). An outcome is right if an error has the same class and
text, and a result the same structure, dtype, shape, strides (except for gradients) and values, within the tolerance of its dtype in `tests/parity/replay.py`.

- Derivatives that PyTorch lacks are not compared.
- If PyTorch's values in a short dtype left its range (infinity, NaN), its float64 result is right, too.
- Random results are compared by their mean. Uninitialized memory is compared by dtype, shape and strides. Errors that a device reports later are compared without their class.
- On devices, statistics of fp16 and bf16 may be float32, as PyTorch's are. `tensor_split` has its indices on the CPU. Errors about buffers that cannot be resized are ignored.

An op is *right* if all outcomes on each device are, *partly* or *wrong* if some or none are, and *missing* if Phlox has no such name. Complex dtypes are counted separately.
`PYTHONPATH=python python3 tests/parity/replay.py build/parity.gz --op NAME` prints all failures of an op. [The array API standard](array-api.md) has the tests of the array API standard.

{head}.

| outcomes | right | of |
|---|---|---|
""" + "".join(f"| {name} | {right} | {total} |\n" for name, (right, total) in counts.items()) + f"""
## Not right

| op | | outcomes | failing forms | shortest failure | call | reason |
|---|---|---|---|---|---|---|
""" + "\n".join(rows) + f"\n\n## Right\n\n{names('right')}\n\n## Missing\n\n" + (
        "".join(f"- `{op}`: {why.get(op, '')}\n" for op, row in sorted(ops.items()) if state(row) == "missing") or "None.\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--device", nargs="+", choices=DEVICES, default=["cpu", "sim"], help="sim is a simulated device, cuda a GPU")
    parser.add_argument("--op", help="only ops with this in their name")
    parser.add_argument("--dtype", help="only samples of dtypes with this in their name; with complex, lists failures of complex dtypes")
    parser.add_argument("--page", help="the page to write")
    parser.add_argument("--keep", metavar="SMALL", help="writes the set replayed by the tests, from samples made with --most 1")
    parser.add_argument("--jobs", type=int, default=1, help="processes per device")
    parser.add_argument("--reference", metavar="PYTHON", help="a Python whose PyTorch supports the GPU of --device cuda")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return serve()
    if args.work:
        return work(args, "cpu" if args.work[0] == "cpu" else "cuda", *map(int, args.work[1:]))
    if args.reference and args.device != ["cuda"]:
        parser.error("--reference is for --device cuda")
    if args.keep:
        return keep(args.file, args.keep)
    ops = summarize(form.read(args.file), {d: replay(args.file, d, args.jobs, op=args.op, dtype=args.dtype, reference=args.reference) for d in args.device},
                ["complex"] if "complex" in (args.dtype or "") else ["real"])
    for op, row in sorted(ops.items()):
        print(f"{op}: {state(row)}, {row['right']['real']} of {row['total']['real']}; complex {row['right']['complex']} of {row['total']['complex']}")
        for name, (text, failure, number) in row["first"].items() if state(row) != "missing" else ():
            print(f"    {name} ({number}): {failure:.600}\n        {text:.1500}")
    if args.page:
        with open(args.page, "w") as file:
            file.write(page(ops))
    head, counts = totals(ops)
    print(f"{head}; " + ", ".join(f"{name} {right} of {total}" for name, (right, total) in counts.items()))


if __name__ == "__main__":
    main()
