# SPDX-License-Identifier: Apache-2.0
"""Records TorchScript archives and their results with PyTorch: python tests/script/record.py.

The archives are those of torch.jit.save without debug records."""
import torch
from typing import *
from enum import Enum
import torch.nn as nn, torch.nn.functional as F
class Color(Enum):
    RED = 1
    BLUE = 2
class Point(NamedTuple):
    x: torch.Tensor
    n: int
@torch.jit.script
class Acc:
    def __init__(self, start: int):
        self.total = start
        self.parts: List[int] = []
    def add(self, n: int) -> int:
        self.total += n
        self.parts.append(n)
        return self.total
class Sub(nn.Module):
    scale: torch.jit.Final[float]
    def __init__(self):
        super().__init__()
        self.scale = 1.5
        self.lin = nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
    def forward(self, x):
        self.count += 1
        return self.lin(x) * self.scale
class M(nn.Module):
    maybe: Optional[int]
    def __init__(self):
        super().__init__()
        self.sub = Sub()
        self.seq = nn.Sequential(nn.Conv1d(1, 2, 3, padding=1), nn.BatchNorm1d(2), nn.ReLU(), nn.Dropout(0.5))
        self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])
        self.norm = nn.LayerNorm(4)
        self.emb = nn.Embedding(5, 3, padding_idx=0)
        self.names: Dict[str, int] = {"a": 1, "b": 2}
        self.sizes = [1, 2, 3]
        self.maybe: Optional[int] = None
        self.ratio = 0.5
        self.title = "héllo\n\"x\""
        self.pair = (1, "two")
        self.dev = torch.device("cpu")
        self.dt = torch.float64
    def forward(self, x):
        return self.sub(x)
    @torch.jit.export
    def layers_of(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x
    @torch.jit.export
    def net(self, x):
        return self.norm(self.seq(x))
    @torch.jit.export
    def embed(self, i):
        return self.emb(i)
    @torch.jit.export
    def branches(self, n: int) -> str:
        if n > 10:
            return "large"
        elif n == 0 or n == -1:
            return "edge"
        return "small" if n > 0 else "negative"
    @torch.jit.export
    def loops(self, n: int) -> Tuple[int, float, List[int]]:
        total, i = 0, 0
        out: List[int] = []
        while i < n:
            i += 1
            if i % 3 == 0:
                continue
            if i > 20:
                break
            total += i
            out.append(i * i)
        f = 0.0
        for k in range(n, 0, -2):
            f += k / 2
        return total, f, out
    @torch.jit.export
    def numbers(self, a: int, b: int, x: float) -> Tuple[int, int, float, float, int, bool, int, float, int]:
        return a // b, a % b, a / b, x ** 2, int(x), a < b and x > 0, max(a, b), abs(-x), (a << 2) ^ b | 1
    @torch.jit.export
    def lists(self, v: List[int]) -> Tuple[List[int], int, int, List[int], List[int], bool]:
        v.append(7)
        v.insert(0, -1)
        last = v.pop()
        v.sort()
        w = v[1:3] + [9] * 2
        w.reverse()
        return v, len(v), last, w, sorted(w), 9 in w
    @torch.jit.export
    def dicts(self, d: Dict[str, int]) -> Tuple[List[str], int, int, bool]:
        d["z"] = 26
        d.update({"y": 25})
        total = 0
        for k, v in d.items():
            total += v * len(k)
        return list(d.keys()), total, d.get("q", -5), "a" in d
    @torch.jit.export
    def optional(self, x: Optional[torch.Tensor], n: Optional[int] = None) -> torch.Tensor:
        if x is None:
            x = torch.zeros(2, dtype=self.dt, device=self.dev)
        if n is not None:
            x = x + n
        return x
    @torch.jit.export
    def texts(self, s: str, n: int) -> Tuple[str, str, List[str], str, bool, int]:
        return "{} has {}".format(s, n), f"{s}!{n}", s.split(","), s.upper().replace("A", "_"), s.startswith("a"), s.find(",")
    @torch.jit.export
    def classes(self, n: int) -> Tuple[int, List[int]]:
        a = Acc(n)
        for i in range(3):
            a.add(i)
        return a.total, a.parts
    @torch.jit.export
    def tuples(self, x: torch.Tensor) -> Tuple[torch.Tensor, int]:
        p = Point(x * 2, 3)
        return p.x + p.n, p.n
    @torch.jit.export
    def enums(self, n: int) -> Tuple[str, int]:
        c = Color.RED if n == 1 else Color.BLUE
        return c.name, c.value
    @torch.jit.export
    def indexing(self, x: torch.Tensor, i: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        y = x.clone()
        y[0, 1] = 5.0
        y[i] = y[i] * 2
        return y, x[i], x[:, None, 1:], x[x > 0]
    @torch.jit.export
    def reductions(self, x: torch.Tensor):
        v, i = x.max(dim=1)
        return x.sum(), x.mean(1, keepdim=True), v, i, x.std(), x.softmax(-1), torch.cat([x, x], 1), x.view(-1).topk(2)[0], x.to(torch.int64)
    @torch.jit.export
    def creation(self, n: int):
        return torch.arange(n), torch.full([2, n], 1.5), torch.tensor([[1, 2], [3, 4]]), torch.ones(n, dtype=torch.float64), torch.tensor(2.5)
    @torch.jit.export
    def raises(self, n: int) -> int:
        if n < 0:
            raise ValueError("negative number {}".format(n))
        assert n != 5, "five"
        return n
    @torch.jit.export
    def attributes(self) -> Tuple[int, int, float, str, str, int]:
        self.sizes.append(4)
        if self.maybe is None:
            self.maybe = 8
        m = self.maybe
        assert m is not None
        return self.names["b"], len(self.sizes), self.ratio, self.title, self.pair[1], m
    @torch.jit.export
    def nograd(self, x: torch.Tensor) -> bool:
        with torch.no_grad():
            y = x * 2
        return y.requires_grad
    @torch.jit.export
    def instances(self, v: Union[int, str, List[int]]) -> str:
        if isinstance(v, int):
            return "int"
        if isinstance(v, str):
            return "str"
        return "list"
class RNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(2, 3, batch_first=True)
        self.gru = nn.GRU(3, 2, batch_first=True)
        self.cell = nn.LSTMCell(2, 2)
    def forward(self, x):
        y, (h, c) = self.lstm(x)
        z, g = self.gru(y)
        a, b = self.cell(z[:, 0])
        return y, h, c, z, g, a, b
class T(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(1, 2, 3, stride=2)
        self.b = nn.BatchNorm2d(2)
        self.l = nn.Linear(8, 2)
    def forward(self, x):
        x = F.relu(self.b(self.c(x)))
        return self.l(x.reshape(x.shape[0], -1)), F.avg_pool2d(x, 2)
class Orders(nn.Module):
    """Ops with other arguments in the dispatcher than in torch.nn.functional."""
    def forward(self, x):
        y = x[:, 0]
        labels = torch.tensor([0, 2])
        rows = x.reshape(2, 3, -1)[:, :, 0]
        return (F.interpolate(x, scale_factor=2.0), F.interpolate(x, size=(5, 6), mode="bilinear"),
                F.interpolate(x, size=(3, 3), mode="bicubic", align_corners=True), F.interpolate(y, size=7, mode="linear"),
                F.cross_entropy(rows, labels), F.nll_loss(rows, labels, reduction="sum"), F.unfold(x, 2),
                F.adaptive_max_pool2d(x, 2, return_indices=True)[1], F.max_pool2d(x, 2), F.pad(x, (1, 1, 0, 1), mode="reflect"),
                F.pad(y, (1, 0), value=2.0), x.var(1, unbiased=False), x.std((2, 3)), x.median(1)[0], F.group_norm(x, 3),
                F.instance_norm(x), F.embedding(labels, y[0]), x.expand(2, 3, 4, 4), 1 - x, x // 0.5, (x > 0) & (x < 1))


def make(folder):
    torch.manual_seed(0)
    m = torch.jit.script(M().eval()); r = torch.jit.script(RNN().eval())
    t = torch.jit.trace(T().eval(), torch.randn(1, 1, 5, 5))
    o = torch.jit.trace(Orders(), torch.linspace(-1, 1, 96).view(2, 3, 4, 4))
    for name, model in zip(NAMES, (m, r, t, o)):
        torch.jit.save(model, f"{folder}/{name}.pt")


NAMES = ("scripted", "recurrent", "traced", "orders")

# Calls recorded with their results: archive, method, arguments.
x = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.5]])
CALLS = [
    ("scripted", "forward", [x]), ("scripted", "layers_of", [x[:, :2]]),
    ("scripted", "net", [torch.linspace(-1, 1, 8).view(2, 1, 4)]),
    ("scripted", "embed", [torch.tensor([0, 3, 4])]),
    *[("scripted", "branches", [n]) for n in (11, 0, -1, 3, -7)],
    *[("scripted", "loops", [n]) for n in (0, 1, 9, 40)],
    *[("scripted", "numbers", [a, b, v]) for a, b, v in ((7, 2, 1.5), (-7, 2, -2.9), (7, -3, 0.1))],
    ("scripted", "lists", [[3, 1, 2]]), ("scripted", "lists", [[]]),
    ("scripted", "dicts", [{"a": 1, "bb": 2}]), ("scripted", "dicts", [{"q": 3}]),
    ("scripted", "optional", [None]), ("scripted", "optional", [x, 2]), ("scripted", "optional", [None, 3]),
    ("scripted", "texts", ["a,Ab,c", 3]), ("scripted", "texts", ["", -1]),
    ("scripted", "classes", [5]), ("scripted", "tuples", [x]),
    ("scripted", "enums", [1]), ("scripted", "enums", [2]),
    ("scripted", "indexing", [x, torch.tensor([1, 0])]), ("scripted", "reductions", [x]),
    ("scripted", "creation", [3]), ("scripted", "raises", [2]), ("scripted", "raises", [-1]),
    ("scripted", "raises", [5]), ("scripted", "attributes", []), ("scripted", "attributes", []),
    ("scripted", "nograd", [x]),
    ("scripted", "instances", [1]), ("scripted", "instances", ["s"]), ("scripted", "instances", [[1]]),
    ("recurrent", "forward", [torch.linspace(-1, 1, 12).view(2, 3, 2)]),
    ("traced", "forward", [torch.linspace(-1, 1, 50).view(2, 1, 5, 5)]),
    ("orders", "forward", [torch.linspace(0, 40, 96).view(2, 3, 4, 4).sin() * 2]),
]


def short(numbers):
    """Nested lists of float32 numbers, with 8 digits."""
    if isinstance(numbers, list):
        return [short(number) for number in numbers]
    return float(f"{numbers:.8g}") if isinstance(numbers, float) else numbers


def plain(value):
    """A value as JSON."""
    if isinstance(value, torch.Tensor):
        return {"tensor": short(value.detach().tolist()), "dtype": str(value.dtype)[6:], "size": list(value.shape)}
    if isinstance(value, dict):
        return {"dict": [[key, plain(item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def call(model, method, args):
    try:
        return plain(getattr(model, method)(*args))
    except Exception as error:
        return {"error": str(error).strip().splitlines()[-1]}


if __name__ == "__main__":
    import json, os, sys, warnings, zipfile
    warnings.simplefilter("ignore")
    folder = os.path.dirname(os.path.abspath(__file__))
    make(folder)
    for name in NAMES:  # the debug records make up half of an archive
        path = f"{folder}/{name}.pt"
        with zipfile.ZipFile(path) as old:
            kept = [(i, old.read(i)) for i in old.infolist() if not i.filename.endswith(".debug_pkl")]
        with zipfile.ZipFile(path, "w") as new:
            for info, data in kept:
                new.writestr(info.filename, data, info.compress_type)
    models = {n: torch.jit.load(f"{folder}/{n}.pt") for n in NAMES}
    rows = [[a, m, plain(args), call(models[a], m, args)] for a, m, args in CALLS]
    json.dump({"version": torch.__version__, "calls": rows}, open(f"{folder}/expected.json", "w"), separators=(",", ":"))
