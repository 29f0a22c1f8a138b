# SPDX-License-Identifier: Apache-2.0
"""Random index expressions and the repr of random tensors, compared with PyTorch if it can be imported, otherwise with NumPy;
and corrupt .pt files.

FUZZ_SECONDS (default 2) limits each test. FUZZ_SEED (default 1) is the first seed; a failure reports the seed of its case."""
import io
import itertools
import os
import pickle
import random
import time
import unittest
import warnings
import zipfile

import phlox

try:
    import torch
except ImportError:
    torch = None
try:
    import numpy
except ImportError:
    numpy = None

# Dtypes whose repr is the same in all tested versions of PyTorch.
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def cases():
    """Yields the seed of each case until the time is up."""
    end = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "2"))
    for seed in itertools.count(int(os.environ.get("FUZZ_SEED", "1")) * 1_000_000):
        if time.monotonic() > end:
            return
        yield seed, random.Random(seed)


def outcome(call):
    """The result, or the class of the error."""
    try:
        return call()
    except (IndexError, ValueError, TypeError, RuntimeError) as error:
        return error


class Indices(unittest.TestCase):
    def part(self, r, lib):
        """One part of an index, as source text over `lib`."""
        size = r.randint(0, 3)
        def number():
            return str(r.choice((0, 1, 2, -1, -2, r.randint(-6, 6))))
        kind = r.randrange(9)
        if kind <= 1:
            return number()
        if kind <= 3:
            step = r.choice(("", ":1", ":2", ":3"))
            return f"{r.choice(('', number()))}:{r.choice(('', number()))}{step}"
        if kind == 4:
            return r.choice(("None", "...", ":"))
        if kind == 5:
            return f"[{', '.join(number() for _ in range(max(1, size)))}]"
        if kind == 6:
            return f"L([{', '.join(number() for _ in range(max(1, size)))}])"
        if kind == 7:
            return f"L([[{number()}], [{number()}]])"
        return f"B([{', '.join(r.choice(('True', 'False')) for _ in range(max(1, size)))}])"

    def expression(self, r):
        parts = [self.part(r, None) for _ in range(r.randint(1, 4))]
        # Versions of PyTorch differ in the handling of a second ellipsis.
        return ", ".join(p for i, p in enumerate(parts) if p != "..." or "..." not in parts[:i])

    def names(self, lib):
        return {"L": lambda v: lib.tensor(v, dtype=lib.int64), "B": lambda v: lib.tensor(v, dtype=lib.bool)}

    @unittest.skipIf(torch is None, "PyTorch is wanted")
    def test_indexing_matches_pytorch(self):
        for seed, r in cases():
            sizes = [r.randint(0, 4) if r.randrange(6) == 0 else r.randint(1, 4) for _ in range(r.randint(0, 4))]
            text = self.expression(r)
            code = compile(f"x[{text}]", "index", "eval")
            write = compile(f"x[{text}] = 7", "index", "exec")
            results = []
            for lib in (torch, phlox):
                n = 1
                for size in sizes:
                    n *= size
                x = lib.arange(n).reshape(sizes)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    read = outcome(lambda: eval(code, self.names(lib), {"x": x}))
                    wrote = outcome(lambda: exec(write, self.names(lib), {"x": x}))
                # A failed write changes nothing in Phlox, but may be partial in PyTorch. PyTorch also slices numbers on assignment.
                results.append(["error" if isinstance(v, Exception) else (tuple(t.shape), t.tolist())
                                for v, t in ((read, read), (wrote, x))][:2 if sizes else 1])
            self.assertEqual(results[0], results[1], f"seed {seed}: x of {sizes}, x[{text}]")

    @unittest.skipIf(numpy is None, "NumPy is wanted")
    def test_basic_indexing_matches_numpy(self):
        for seed, r in cases():
            sizes = [r.randint(0, 4) for _ in range(r.randint(0, 4))]
            text = ", ".join(r.choice((str(r.randint(-5, 5)), ":", "...", "None", f"{r.randint(-5, 5)}:", f":{r.randint(-5, 5)}:2",
                                       f"{r.randint(-9, 9)}:{r.randint(-9, 9)}:3")) for _ in range(r.randint(1, 4)))
            text = "...".join(text.replace("...", "\0", 1).replace("...", ":").split("\0"))  # NumPy accepts one ellipsis
            x = numpy.arange(int(numpy.prod(sizes)), dtype=numpy.int64).reshape(sizes)
            wanted = outcome(lambda: eval(f"x[{text}]", {"x": x}))
            got = outcome(lambda: eval(f"x[{text}]", {"x": phlox.from_numpy(x)}))
            where = f"seed {seed}: x of {sizes}, x[{text}]"
            self.assertEqual(isinstance(wanted, Exception), isinstance(got, Exception), where)
            if not isinstance(wanted, Exception):
                self.assertEqual((wanted.shape, wanted.tolist()), (tuple(got.shape), got.tolist()), where)


@unittest.skipIf(torch is None or numpy is None, "PyTorch and NumPy are wanted")
class Printing(unittest.TestCase):
    def values(self, r, dtype, sizes):
        n = int(numpy.prod(sizes))
        kind = r.randrange(5)
        if dtype == "bool":
            flat = [r.randrange(2) for _ in range(n)]
        elif not dtype.startswith("float"):
            info = numpy.iinfo(dtype)
            flat = [r.choice((0, 1, r.randint(info.min, info.max), r.randint(0, 9))) for _ in range(n)]
        elif kind == 0:
            return numpy.frombuffer(bytes(r.randrange(256) for _ in range(n * numpy.dtype(dtype).itemsize)), dtype).reshape(sizes)
        else:
            flat = [r.choice((r.gauss(0, 1), r.gauss(0, 1) * 10 ** r.randint(-8, 8) if kind == 1 else r.randint(-99, 99),
                              float(r.randint(0, 3)), float("nan") if kind == 2 else 0.0, float("inf") if kind == 3 else 1.0))
                    for _ in range(n)]
        return numpy.array(flat, dtype=dtype).reshape(sizes)

    def test_repr_matches_pytorch(self):
        for seed, r in cases():
            dtype = r.choice(DTYPES)
            sizes = [r.choice((0, 1, 2, 3, 5, 9, 13)) for _ in range(r.randint(0, 3))]
            if r.randrange(20) == 0:
                sizes = r.choice(([1001], [40, 30], [7, 2, 80], [3, 400]))
            with numpy.errstate(all="ignore"):
                x = self.values(r, dtype, sizes).copy()
            self.assertEqual(repr(torch.from_numpy(x)), repr(phlox.from_numpy(x)), f"seed {seed}: {dtype} of {sizes}")


class Files(unittest.TestCase):
    """Corrupt .pt files: randomly changed, and pickles of random opcodes. They load, or raise one of torch.load's errors."""
    ERRORS = (EOFError, RuntimeError, ValueError, pickle.UnpicklingError)
    WORDS = (b"]", b"}", b")", b"(", b"N", b"K\1", b"J\xff\xff\xff\xff", b"a", b"e", b"s", b"u", b"t", b"\x85", b"\x86", b"\x87", b"R", b"b", b"\x81",
             b"q\0", b"h\0", b"q\1", b"h\1", b"X\7\0\0\0storage", b"X\1\0\0\0000", b"X\3\0\0\0cpu", b"ctorch\nFloatStorage\n", b"Q",
             b"ctorch._utils\n_rebuild_tensor_v2\n", b"ccollections\nOrderedDict\n", b"ctorch\nSize\n", b"c__builtin__\nset\n",
             b"ctorch.nn.parameter\nParameter\n", b"ctorch\ndevice\n", b"ctorch\nint8\n", b"c__builtin__\nbytearray\n", b"c_codecs\nencode\n",
             b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\4tQ")

    def read(self, data, seed):
        try:
            repr(phlox.load(io.BytesIO(data)))
        except self.ERRORS as error:
            self.assertTrue(str(error), f"case {seed}")
        except Exception as error:
            raise AssertionError(f"case {seed}: {error!r}") from error

    def test_corrupted_files(self):
        thing = {"a": phlox.arange(6.0), "b": phlox.ones(2, 3).t(), "p": phlox.nn.Parameter(phlox.ones(2)), "n": [1, 2.5, "x", None, {1}, b"y"]}
        wholes = []
        for new in (True, False):
            file = io.BytesIO()
            phlox.save(thing, file, _use_new_zipfile_serialization=new)
            wholes.append(file.getvalue())
        for seed, r in cases():
            data = bytearray(r.choice(wholes))
            for _ in range(r.randint(1, 4)):
                at = r.randrange(len(data))
                act = r.randrange(4)
                if act == 0:
                    data[at] = r.randrange(256)
                elif act == 1:
                    data[at] ^= 1 << r.randrange(8)
                elif act == 2:
                    del data[at:at + r.randint(1, 30)]
                else:
                    data[at:at] = data[at // 2:at // 2 + r.randint(1, 30)]
            self.read(bytes(data), seed)

    def test_pickles_of_random_opcodes(self):
        for seed, r in cases():
            file = io.BytesIO()
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("a/data.pkl", b"\x80\2" + b"".join(r.choices(self.WORDS, k=r.randint(1, 30))) + b".")
                archive.writestr("a/data/0", bytes(16))
            self.read(file.getvalue(), seed)


if __name__ == "__main__":
    unittest.main()
