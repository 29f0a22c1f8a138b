# SPDX-License-Identifier: Apache-2.0
"""Random index expressions and the repr of random tensors, compared with PyTorch if it can be imported, otherwise with NumPy;
and corrupt .pt files.

FUZZ_SECONDS (default 2) limits each test. FUZZ_SEED (default 1) is the first seed; a failure reports the seed of its case."""
import io
import itertools
import os
import pickle
import random
import re
import struct
import tempfile
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
    """Corrupt files: randomly changed, with hostile fields of a zip archive, and pickles of random opcodes. They load, or raise one of
    torch.load's errors."""
    ERRORS = {EOFError, RuntimeError, pickle.UnpicklingError}
    # Offset and bytes of the fields of a zip archive's records, by signature.
    FIELDS = {b"PK\3\4": ((0, 4), (4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)),
              b"PK\1\2": ((0, 4), (6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2), (42, 4), (46, 1), (50, 1)),
              b"PK\5\6": ((0, 4), (4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)),
              b"PK\6\6": ((0, 4), (4, 8), (12, 2), (16, 4), (20, 4), (24, 8), (32, 8), (40, 8), (48, 8)),
              b"PK\6\7": ((0, 4), (4, 4), (8, 8), (16, 4))}
    JSON = (b"{", b"}", b"[", b"]", b",", b":", b'"', b"-1", b"1e400", b"9223372036854775807", b"18446744073709551616", b"null", b"[" * 300, b"\\ud800",
            b"\\u0000", b"\xff", b'"dtype":"F4"', b'"F8_E4M3"', b'"shape":[]', b'"data_offsets":[8,4]', b'"a":', b'"__metadata__":{"phlox.structure":"[]"}')
    WORDS = (b"]", b"}", b")", b"(", b"N", b"K\1", b"J\xff\xff\xff\xff", b"a", b"e", b"s", b"u", b"t", b"\x85", b"\x86", b"\x87", b"R", b"b", b"\x81",
             b"q\0", b"h\0", b"q\1", b"h\1", b"X\7\0\0\0storage", b"X\1\0\0\0000", b"X\3\0\0\0cpu", b"ctorch\nFloatStorage\n", b"Q",
             b"ctorch._utils\n_rebuild_tensor_v2\n", b"ccollections\nOrderedDict\n", b"ctorch\nSize\n", b"c__builtin__\nset\n",
             b"ctorch.nn.parameter\nParameter\n", b"ctorch\ndevice\n", b"ctorch\nint8\n", b"c__builtin__\nbytearray\n", b"c_codecs\nencode\n",
             b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\4tQ")

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        shown = warnings.catch_warnings()
        shown.__enter__()
        self.addCleanup(shown.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def read(self, data, seed):
        """Loads from memory, from a file, or from a map of it."""
        try:
            if seed % 3 == 0:
                repr(phlox.load(io.BytesIO(data)))
                return
            path = os.path.join(self.folder.name, "x")
            with open(path, "wb") as file:
                file.write(data)
            repr(phlox.load(path, mmap=seed % 3 == 2 and data[:4] == b"PK\3\4"))
        except Exception as error:
            # PyTorch raises a ValueError for the byte order alone.
            allowed = type(error) in self.ERRORS or type(error) is ValueError and str(error).startswith("Unknown endianness type: ")
            self.assertTrue(allowed and str(error), f"case {seed}: {error!r}")

    def wholes(self):
        """A .pt file, the same with zip64 records, a legacy file, and a safetensors file."""
        thing = {"a": phlox.arange(6.0), "b": phlox.ones(2, 3).t(), "p": phlox.nn.Parameter(phlox.ones(2)), "n": [1, 2.5, "x", None]}
        for new in (True, False):
            file = io.BytesIO()
            phlox.save(thing, file, _use_new_zipfile_serialization=new)
            whole = file.getvalue()
            yield whole
            if new:
                end = whole.rindex(b"PK\5\6")
                count, size, begin = struct.unpack("<HII", whole[end + 10:end + 20])
                yield (whole[:end] + struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, begin)
                       + struct.pack("<4sIQI", b"PK\6\7", 0, end, 1) + whole[end:end + 8] + b"\xff" * 12 + whole[-2:])
        path = os.path.join(self.folder.name, "x.safetensors")
        phlox.save(thing, path)
        with open(path, "rb") as file:
            yield file.read()

    def change_field(self, r, data):
        """Gives a field of the zip archive an extreme value, its neighbour, or a random value."""
        signature = r.choice([s for s in self.FIELDS if s in data] or [b""])
        places = [found.start() for found in re.finditer(re.escape(signature), data)] if signature else []
        if not places:
            return
        at, width = r.choice(self.FIELDS[signature])
        at += r.choice(places)
        old, most = int.from_bytes(data[at:at + width], "little"), (1 << 8 * width) - 1
        value = r.choice((0, 1, most, most >> 1, most - 1, old + 1, old - 1, 2 * old, len(data), len(data) - 1, 1 << 31, 1 << 63, r.randint(0, most)))
        data[at:at + width] = (value & most).to_bytes(width, "little")

    def change(self, r, data, words):
        at = r.randrange(len(data))
        act = r.randrange(6)
        if act == 0:
            data[at] = r.randrange(256)
        elif act == 1:
            data[at] ^= 1 << r.randrange(8)
        elif act == 2:
            del data[at:at + r.randint(1, 30)]
        elif act == 3:
            data[at:at] = data[at // 2:at // 2 + r.randint(1, 30)]
        else:
            word = r.choice(words)
            data[at:at + (len(word) if act == 4 else 0)] = word

    def test_corrupted_files(self):
        wholes = list(self.wholes())
        for seed, r in cases():
            kind = r.randrange(6)
            data = bytearray(wholes[max(0, kind - 2)])
            for _ in range(r.choice((1, 1, 1, 2, 3))):
                if kind < 4 and r.randrange(4):
                    self.change_field(r, data)
                elif kind == 5 and r.randrange(4):  # the header is a small part of the file
                    size = 8 + int.from_bytes(wholes[3][:8], "little")
                    head, rest = data[:size], data[size:]
                    if head:
                        self.change(r, head, self.JSON)
                    data = bytearray(head + rest)
                elif data:
                    self.change(r, data, self.JSON if kind == 5 else self.WORDS)
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
