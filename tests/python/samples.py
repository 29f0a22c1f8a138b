# SPDX-License-Identifier: Apache-2.0
"""The samples of the op tables as arguments of Python calls, for any library with torch's names."""
import math
import os
import re

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PATH = os.environ.get("MATRIX_SAMPLES", os.path.join(ROOT, "build", "gen", "samples.inc"))
DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()


def python_names():
    """Python names of ops whose entry defines a different one."""
    names, folder = {}, os.path.join(ROOT, "ops")
    for file in os.listdir(folder):
        op = None
        with open(os.path.join(folder, file)) as lines:
            for line in lines if file.endswith(".op") else ():
                op = re.match(r"op (\w+)", line) or op
                name = re.match(r"  pyname (\w+)", line)
                if name: names[op.group(1)] = name.group(1)
    return names


class Numbers:
    """Values for the tensors of one sample, the same for each library."""
    def __init__(self, low, high):
        self.low, self.high, self.drawn = low, high, 0

    def of(self, kind, n, limit):
        self.drawn += 1
        low, high = (max(self.low, 0.3), max(self.high, 1.9)) if kind == "p" else (self.low, self.high)
        if kind in "fp":
            first, last = math.ceil(low * 128) | 1, math.floor(high * 128)
            steps = (last - first) // 2 + 1
            return [(first + 2 * ((self.drawn * 13 + i * 37) % steps)) / 128 for i in range(n)]
        if kind == "d":  # symmetric positive-definite matrices; `limit` is the number of rows
            indices = [(i // limit // limit, i // limit % limit, i % limit) for i in range(n)]
            return [3 + r + m / 4 if r == c else ((r * c + r + c + m) % 5 - 2) / 4 for m, r, c in indices]
        if kind == "i": return [(i * 7 + 3 + self.drawn) % limit for i in range(n)]
        if kind == "b": return [(i * 5 + self.drawn) % 3 != 0 for i in range(n)]
        return list(range(n))[::-1]


TOKEN = re.compile(r"(?P<name>\w+=)?(?:(?P<kind>f|p|d|i|b|perm)\((?P<sizes>[^)]*)\)|(?P<list>\[[^\]]*\])|(?P<open>\{)|"
                   r"(?P<close>\})|(?P<text>'[^']*')|(?P<word>[^\s{}]+))")


def tensor(library, numbers, match, dtype, device):
    sizes, _, limit = match["sizes"].partition(";")
    sizes = [int(x) for x in sizes.split(",") if x.strip()]
    values = numbers.of(match["kind"][0] if match["kind"] != "perm" else "q", math.prod(sizes), int(limit or (sizes[-1:] or [1])[0]))
    kind = {"f": dtype, "p": dtype, "d": dtype, "b": "bool"}.get(match["kind"], "int64")
    t = library.tensor(values, dtype=library.float64 if kind == dtype else getattr(library, kind))
    return t.to(getattr(library, kind)).reshape(sizes).to(device)


def parse_word(library, text):
    if text in ("True", "False", "None"): return {"True": True, "False": False, "None": None}[text]
    if re.fullmatch(r"-?\d+", text): return int(text)
    try: return float(text)
    except ValueError: return getattr(library, text) if text in DTYPES else text


def arguments(library, text, low, high, dtype, device="cpu"):
    """The positional and keyword arguments of a sample."""
    numbers, args, keywords, inside = Numbers(low, high), [], {}, None
    for match in TOKEN.finditer(text):
        if match["close"]:
            args.append(inside)
            inside = None
            continue
        if match["open"]:
            inside = []
            continue
        if match["kind"]: value = tensor(library, numbers, match, dtype, device)
        elif match["list"]: value = [int(x) for x in match["list"][1:-1].split(",") if x.strip()]
        elif match["text"]: value = match["text"][1:-1]
        else: value = parse_word(library, match["word"])
        if inside is not None: inside.append(value)
        elif match["name"]: keywords[match["name"][:-1]] = value
        else: args.append(value)
    return args, keywords


def samples():
    """Yields the op, its Python name, and the text and value range of each sample."""
    names = python_names()
    with open(PATH) as file:
        for op, text, low, high in re.findall(r'PX_SAMPLE\("(\w+)", "([^"]*)", (\S+), (\S+)\)', file.read()):
            yield op, names.get(op, op), (text, float(low), float(high))
