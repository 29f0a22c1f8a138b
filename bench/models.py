# SPDX-License-Identifier: Apache-2.0
"""Whole models and their parts, Phlox compared to PyTorch: `python3 bench/models.py [parts of names of rows] [--device cpu]`.

Prints for each row the time of a step with both libraries, their ratio, the goal on an H100 or H200 (on the CPU: as a multiple of PyTorch's speed), the lower bound
(the operations of its products at the rate of the largest product, of PyTorch if available), peak memory and the losses of the first steps. Weights and batches are
drawn on the host from the same seed, so both libraries run the same training. `--losses 200` uses varying batches of images and text, 32 in turn. Without names,
the rows are those of the device. On the CPU the libraries alternate, and a figure is the minimum of several processes.
A row is a function that returns the step; `o` has the device and the flag `tiny`.
"""
import argparse, gc, itertools, json, os, sys, time

import run

sys.path.insert(0, os.path.join(run.ROOT, "examples"))
SHOWN = 4  # number of losses shown per library
BATCHES = 32  # number of different batches when comparing losses
ROWS = {}  # name: (function, more)


def row(name, goal=None, **more):
    """more: rate: the dtype of products, for the lower bound; tf32: allows TF32 for float32; graph: requires a device; parts: divides the time of a step;
    devices: the number of devices; cpu: a row of the CPU, with a goal as a multiple of PyTorch's speed; aside: runs only if named, or in another program."""
    def add(function):
        ROWS[name] = (function, {"goal": goal, **more})
        return function
    return add


# ---- parts of steps

def train(o, net, loss_of, optimizer=None, autocast=None):
    """Returns a training step. Default optimizer: AdamW."""
    torch = o.torch
    optimizer = optimizer or torch.optim.AdamW(net.parameters(), lr=1e-4)
    def step():
        with torch.autocast(o.device, autocast, enabled=autocast is not None): loss = loss_of(net)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def batches(o, make):
    """Cycles through different batches when comparing losses; repeats a single batch when timing."""
    return itertools.cycle([make() for _ in range(min(o.losses, BATCHES) if o.comparing else 1)])


def sgd(o, net):
    return o.torch.optim.SGD(net.parameters(), lr=0.01)


def classes(o, net, shape, count, dtype=None, layout=None):
    """A training step of an image classifier. Images are noise plus a colour per class."""
    torch = o.torch
    layout = layout or torch.contiguous_format
    net = net.to(o.device, dtype, memory_format=layout)
    colours = torch.randn(count, shape[1], 1, 1)
    def make():
        y = torch.randint(count, shape[:1])
        return (torch.randn(shape) + colours[y]).to(o.device, dtype, memory_format=layout), y.to(o.device)
    drawn = batches(o, make)
    def loss(net):
        x, y = next(drawn)
        return torch.nn.functional.cross_entropy(net(x).float(), y)
    # With ten times this rate a ResNet's losses soon reflect rounding only: PyTorch's float32 losses diverge from its float64 ones after a few steps.
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    return train(o, net, loss, optimizer), 3 * operations(o, net, next(drawn)[0])


def captured(o, step, warm=3):
    """Captures the step in one graph."""
    torch, aside = o.torch, o.torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(warm): step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph): result = step()
    return lambda: (graph.replay(), result)[1]


def operations(o, net, *inputs):
    """Returns the operations of all products of a forward pass, counted by hooks on the layers."""
    torch, found, hooks = o.torch, [], []
    def count(layer, inputs, output):
        result = output[0] if isinstance(output, tuple) else output
        weights = [p for p in layer.parameters(recurse=False) if p.dim() > 1]
        places = inputs[0].numel() // inputs[0].size(1) if "Transpose" in type(layer).__name__ else result.numel() // result.size(1 if result.dim() == 4 else -1)
        found.append(2 * places * sum(p.numel() for p in weights))
    for layer in net.modules():
        if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.LSTM)): hooks.append(layer.register_forward_hook(count))
    with torch.no_grad(): net(*inputs)
    for hook in hooks: hook.remove()
    return sum(found)


# ---- attention

def attention(o, sizes, dtype, backward, causal):
    torch = o.torch
    batch, heads, length, size = (2, 2, 16, 8) if o.tiny else sizes
    q, k, v = (torch.randn(batch, heads, length, size).to(o.device, getattr(torch, dtype)).requires_grad_(backward) for _ in range(3))
    g = torch.ones_like(q)
    def step():
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        if backward: torch.autograd.grad(y, (q, k, v), g)
        return y.detach()[0, 0, -1].float().abs().sum() if o.comparing else None
    return step, (3.5 if backward else 1) * 4 * batch * heads * length**2 * size / (2 if causal else 1)


for _sizes, _causal, _dtype, _goals in (((4, 16, 4096, 128), True, "bfloat16", (0.42e-3, 1.8e-3)), ((16, 12, 1024, 64), True, "bfloat16", (None, None)),
                                        ((128, 12, 197, 64), False, "bfloat16", (None, None)), ((8, 12, 1024, 64), True, "float32", (None, None))):
    for _backward in (False, True):
        row(f"sdpa {'causal ' * _causal}{_dtype} {'x'.join(map(str, _sizes))}{', with backward' * _backward}", _goals[_backward], rate=_dtype)(
            lambda o, *a, s=_sizes, c=_causal, d=_dtype, b=_backward: attention(o, s, d, b, c))


# ---- models

def gpt2(o, batch, dtype=None, autocast=None):
    from gpt2 import GPT2
    torch = o.torch
    net = (GPT2(64, 16, 16, 2, 1) if o.tiny else GPT2()).to(o.device, dtype)
    batch, length = (2, 16) if o.tiny else (batch, 1024)
    most = net.words.num_embeddings
    def make():  # each word determines the next one, which the net learns
        text = ((torch.randint(most, (batch, 1)) + 7 * torch.arange(length + 1)) % min(most, 512)).to(o.device)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()
    drawn = batches(o, make)
    size, layers = net.positions.embedding_dim, len(net.blocks)
    work = 6 * batch * length * (sum(p.numel() for p in net.parameters()) - net.positions.weight.numel() + layers * length * size)
    return train(o, net, lambda net: net(*next(drawn)), autocast=autocast), work


@row("GPT-2 124M, bfloat16 by autocast, 32x1024", 32768 / 450e3, rate="bfloat16")
def gpt2_autocast(o): return gpt2(o, 32, autocast=o.torch.bfloat16)


@row("GPT-2 124M, bfloat16, 16x1024", 34e-3, rate="bfloat16")
def gpt2_pure(o): return gpt2(o, 16, o.torch.bfloat16)


@row("GPT-2 124M, tf32, 8x1024", 48e-3, rate="tf32", tf32=True)
def gpt2_tf32(o): return gpt2(o, 8)


def generate(o, net, length, dtype, graph=False):
    """A step that generates 32 words, one at a time."""
    torch = o.torch
    size, heads = net.positions.embedding_dim, net.blocks[0].heads
    caches = [[torch.zeros(1, heads, length, size // heads, device=o.device, dtype=dtype) for _ in range(2)] for _ in net.blocks]
    word, at = torch.zeros(1, 1, dtype=torch.int64, device=o.device), torch.zeros(1, dtype=torch.int64, device=o.device)
    @torch.no_grad()
    def one():
        logits = net(word, caches=caches, at=at)
        word.copy_(logits[:, -1].argmax(-1, keepdim=True))
        at.add_(1)
        return logits
    one = captured(o, one) if graph else one
    def step():
        at.zero_()
        word.zero_()
        for _ in range(32): logits = one()
        return logits.detach().float().abs().mean()
    return step


def decode(o, graph):
    from gpt2 import GPT2
    net = (GPT2(64, 40, 16, 2, 1) if o.tiny else GPT2()).to(o.device).eval()
    return generate(o, net, 64, o.torch.float32, graph), None


row("GPT-2 124M, 32 words, one by one", 40e-3)(lambda o: decode(o, False))
row("GPT-2 124M, 32 words, one by one, in a graph", 12e-3, graph=True)(lambda o: decode(o, True))


def resnet(o, batch, dtype=None, layout=None):
    from resnet50 import resnet50
    torch = o.torch
    net = resnet50(10, 4, (1, 1)) if o.tiny else resnet50()
    return classes(o, net, (2, 3, 32, 32) if o.tiny else (batch, 3, 224, 224), 10, dtype and getattr(torch, dtype), layout and getattr(torch, layout))


row("ResNet-50, bfloat16, channels_last, b256", 256 / 5400, rate="bfloat16")(lambda o: resnet(o, 256, "bfloat16", "channels_last"))
row("ResNet-50, bfloat16, channels_last, b128", 25e-3, rate="bfloat16")(lambda o: resnet(o, 128, "bfloat16", "channels_last"))
row("ResNet-50, bfloat16, b128", rate="bfloat16")(lambda o: resnet(o, 128, "bfloat16"))
row("ResNet-50, tf32, b64", 28e-3, rate="tf32", tf32=True)(lambda o: resnet(o, 64))


@row("ViT-B/16, bfloat16, b128", 31e-3, rate="bfloat16")
def vit(o):
    from nets import ViT
    net = ViT(32, 8, 16, 2, 1, 10) if o.tiny else ViT()
    return classes(o, net, (2, 3, 32, 32) if o.tiny else (128, 3, 224, 224), 10, o.torch.bfloat16)


@row("UNet, float32, b16, 128x128", 8e-3, rate="tf32")
def unet(o):
    from nets import UNet
    torch = o.torch
    net = (UNet(8, 1) if o.tiny else UNet()).to(o.device)
    x = torch.randn((1, 3, 16, 16) if o.tiny else (16, 3, 128, 128)).to(o.device)
    return train(o, net, lambda net: (net(x) - x).square().mean()), 3 * operations(o, net, x)


@row("LSTM language model 2x650, b20, 35 words", 3e-3, rate="float32")
def words(o):
    from nets import LanguageModel
    torch = o.torch
    net = (LanguageModel(50, 8) if o.tiny else LanguageModel()).to(o.device)
    x, y = (torch.randint(50, (35, 20)).to(o.device) for _ in range(2))
    return train(o, net, lambda net: torch.nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten()), sgd(o, net)), 3 * operations(o, net, x)


@row("TransformerEncoder 4x256, b32, 128 words", 3e-3, rate="float32")
def encoder(o):
    torch = o.torch
    size, layers = (16, 1) if o.tiny else (256, 4)
    layer = torch.nn.TransformerEncoderLayer(size, 4 if o.tiny else 8, 4 * size, 0.1, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(o.device)
    x = torch.randn((2, 4, size) if o.tiny else (32, 128, size)).to(o.device)
    if o.comparing: net.eval()  # the libraries draw dropout masks in different orders
    return train(o, net, lambda net: net(x).square().mean()), 3 * operations(o, net, x)


@row("DCGAN, b128", 3.5e-3, rate="tf32")
def dcgan(o):
    from nets import discriminator, generator
    torch = o.torch
    width, batch = (4, 2) if o.tiny else (64, 128)
    make, judge = generator(width).to(o.device), discriminator(width).to(o.device)
    adams = [torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (make, judge)]
    real, noise = torch.randn(batch, 3, 64, 64).to(o.device), torch.randn(batch, 100, 1, 1).to(o.device)
    is_real, is_made = torch.ones(batch, device=o.device), torch.zeros(batch, device=o.device)
    cost = torch.nn.functional.binary_cross_entropy_with_logits
    def step():
        adams[1].zero_grad()
        made = make(noise)
        (cost(judge(real), is_real) + cost(judge(made.detach()), is_made)).backward()
        adams[1].step()
        adams[0].zero_grad()
        loss = cost(judge(made), is_real)
        loss.backward()
        adams[0].step()
        return loss.detach()
    return step, 4 * operations(o, make, noise) + 8 * operations(o, judge, real)


def small(o, name, shape, graph):
    import nets
    torch = o.torch
    net = getattr(nets, name)().to(o.device)
    if o.comparing: net.eval()
    x, y = torch.randn(shape).to(o.device), torch.randint(10, shape[:1]).to(o.device)
    step = train(o, net, lambda net: torch.nn.functional.cross_entropy(net(x), y), sgd(o, net))
    return captured(o, step) if graph else step, None


for _name, _shape, _goals in ("mlp", (128, 784), (0.19e-3, 0.06e-3)), ("cnn", (64, 1, 28, 28), (0.42e-3, 0.2e-3)):
    for _graph in (False, True):
        row(f"{_name.upper()} step, b{_shape[0]}{', as one graph' * _graph}", _goals[_graph], graph=_graph)(
            lambda o, n=_name, s=_shape, g=_graph: small(o, n, s, g))


@row("a small op in a captured graph of 1,000", 0.81e-6, graph=True, parts=1000)
def node(o):
    x = o.torch.ones(4, device=o.device)
    def step():
        for _ in range(1000): x.mul_(1.0)
        return x.sum()
    return captured(o, step), None


# ---- optimisers: 59 M numbers

def many(o, count, all=59_000_000, dtype="float32"):
    torch = o.torch
    sizes = [64 if o.tiny else all // count + 1000 * (i - count // 2) for i in range(count)]
    tensors = [torch.rand(n).to(o.device, getattr(torch, dtype)).requires_grad_() for n in sizes]
    for t in tensors: t.grad = torch.full_like(t, 0.01)
    return tensors


def update(o, name, count=200, all=59_000_000, dtype="float32", **options):
    tensors = many(o, count, all, dtype)
    optimizer = getattr(o.torch.optim, name)(tensors, **options)
    return lambda: (optimizer.step(), tensors[3].detach()[:9].float().sum())[1] if o.comparing else optimizer.step(), None


row("AdamW, 200 tensors", 0.45e-3)(lambda o: update(o, "AdamW", lr=1e-3))
row("SGD with momentum, 200 tensors", 0.33e-3)(lambda o: update(o, "SGD", lr=1e-3, momentum=0.9))


@row("clip_grad_norm_, 100 tensors", 0.2e-3)
def clip(o):
    tensors = many(o, 100)
    return lambda: o.torch.nn.utils.clip_grad_norm_(tensors, 1.0), None


# ---- two devices

def parallel(o, batch):
    torch = o.torch
    width = 16 if o.tiny else 4096
    net = torch.nn.Sequential(*[part for _ in range(4) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]).to(o.device)
    net = torch.nn.DataParallel(net, device_ids=[0, 1])
    x = torch.randn(8 if o.tiny else batch, width).to(o.device)
    return train(o, net, lambda net: net(x).square().mean(), sgd(o, net)), None


row("DataParallel over 2, MLP-4096, tf32, b256", 0.9e-3, devices=2, tf32=True)(lambda o: parallel(o, 256))
row("DataParallel over 2, MLP-4096, tf32, b8192", 9.9e-3, devices=2, tf32=True)(lambda o: parallel(o, 8192))


# ---- the CPU: small enough to measure in seconds

def cpu_row(name, goal=1.0, **more): return row(f"CPU: {name}", goal, cpu=True, **more)


def dtype_of(o, name): return getattr(o.torch, name)


def cpu_small(o, name, shape, dtype):
    import nets
    torch = o.torch
    net = getattr(nets, name)().to(o.device, dtype_of(o, dtype))
    if o.comparing: net.eval()  # the libraries draw dropout masks in different orders
    shape = (2, *shape[1:]) if o.tiny else shape
    x, y = torch.randn(shape).to(o.device, dtype_of(o, dtype)), torch.randint(10, shape[:1]).to(o.device)
    return train(o, net, lambda net: torch.nn.functional.cross_entropy(net(x).float(), y), sgd(o, net)), 3 * operations(o, net, x)


def cpu_resnet(o, dtype, layout):
    from resnet50 import resnet50
    net = resnet50(10, 4, (1, 1)) if o.tiny else resnet50(10)
    return classes(o, net, (2, 3, 32, 32) if o.tiny else (2, 3, 64, 64), 10, dtype_of(o, dtype), dtype_of(o, layout))


def cpu_inference(o, dtype):
    from resnet50 import resnet50
    torch = o.torch
    net = (resnet50(10, 4, (1, 1)) if o.tiny else resnet50(10)).to(o.device, dtype_of(o, dtype)).eval()
    x = torch.randn(1, 3, 64, 64).to(o.device, dtype_of(o, dtype))
    @torch.no_grad()
    def step(): return net(x).float().abs().mean()
    return step, operations(o, net, x)


def cpu_gpt2(o, dtype):
    from gpt2 import GPT2
    torch = o.torch
    net = (GPT2(64, 64, 16, 2, 1) if o.tiny else GPT2(512, 64, 128, 4, 3)).to(o.device, dtype_of(o, dtype))
    text = torch.randint(net.words.num_embeddings, (2, 65)).to(o.device)
    size, layers = net.positions.embedding_dim, len(net.blocks)
    work = 6 * 128 * (sum(p.numel() for p in net.parameters()) - net.positions.weight.numel() + layers * 64 * size)
    return train(o, net, lambda net: net(text[:, :-1].contiguous(), text[:, 1:].contiguous())), work


for _dtype, _goal in ("float32", 1.0), ("bfloat16", 1.1):
    for _name, _shape in ("mlp", (128, 784)), ("cnn", (64, 1, 28, 28)):
        cpu_row(f"{_name.upper()} step, {_dtype}, b{_shape[0]}", _goal, rate=_dtype)(lambda o, n=_name, s=_shape, d=_dtype: cpu_small(o, n, s, d))
    for _layout in "contiguous_format", "channels_last":
        cpu_row(f"ResNet-50 step, {_dtype}, {_layout}, b2, 64x64", max(_goal, 1.2 * (_dtype == "float32")), rate=_dtype)(
            lambda o, d=_dtype, l=_layout: cpu_resnet(o, d, l))
    cpu_row(f"ResNet-50 inference, {_dtype}, b1, 64x64", _goal, rate=_dtype)(lambda o, d=_dtype: cpu_inference(o, d))
    cpu_row(f"GPT-2 step, 3x128, {_dtype}, 2x64", _goal, rate=_dtype)(lambda o, d=_dtype: cpu_gpt2(o, d))


@cpu_row("GPT-2 3x128, bfloat16, 32 words, one by one", 1.1)
def cpu_decode(o):
    from gpt2 import GPT2
    torch = o.torch
    net = (GPT2(64, 64, 16, 2, 1) if o.tiny else GPT2(512, 64, 128, 4, 3)).to(o.device, torch.bfloat16).eval()
    return generate(o, net, 64, torch.bfloat16), None


@cpu_row("ViT step, 2x96, bfloat16, b2", 1.1, rate="bfloat16")
def cpu_vit(o):
    from nets import ViT
    net = ViT(32, 8, 16, 2, 1, 10) if o.tiny else ViT(224, 16, 96, 4, 2, 10)
    return classes(o, net, (2, 3, 32, 32) if o.tiny else (2, 3, 224, 224), 10, o.torch.bfloat16)


@cpu_row("UNet step, float32, b2, 32x32", rate="float32")
def cpu_unet(o):
    from nets import UNet
    net = (UNet(8, 1) if o.tiny else UNet(16, 3)).to(o.device)
    x = o.torch.randn(2, 3, 32, 32).to(o.device)
    return train(o, net, lambda net: (net(x) - x).square().mean()), 3 * operations(o, net, x)


@cpu_row("RNN by hand, 64 steps of 256")
def cpu_rnn(o):
    torch, nn = o.torch, o.torch.nn
    steps, size = (4, 8) if o.tiny else (64, 256)
    net = nn.ModuleList([nn.Linear(size, size), nn.Linear(size, size)]).to(o.device)
    x = torch.randn(steps, 8, size).to(o.device)
    def loss(net):
        h = torch.zeros_like(x[0])
        for part in x: h = torch.tanh(net[0](part) + net[1](h))
        return h.square().mean()
    return train(o, net, loss, sgd(o, net)), None


@cpu_row("embeddings and MLP step, b256")
def cpu_embeddings(o):
    torch, nn = o.torch, o.torch.nn
    words = 50 if o.tiny else 10000
    net = nn.Sequential(nn.Embedding(words, 32), nn.Flatten(), nn.Linear(8 * 32, 64), nn.ReLU(), nn.Linear(64, 1)).to(o.device)
    x, y = torch.randint(words, (256, 8)).to(o.device), torch.randn(256, 1).to(o.device)
    return train(o, net, lambda net: nn.functional.mse_loss(net(x), y), sgd(o, net)), None


@cpu_row("pointwise chain with backward, 1 M")
def cpu_chain(o):
    x = o.torch.randn(64 if o.tiny else 2**20).to(o.device).requires_grad_()
    def step():
        x.grad = None
        y = ((x * 0.5 + 0.1).sigmoid() * x.tanh() - x.square()).mean()
        y.backward()
        return y.detach()
    return step, None


@cpu_row("loader, 2 workers, 32 batches of 64")
def cpu_loader(o):
    from torch.utils.data import DataLoader, TensorDataset
    torch = o.torch
    pictures = TensorDataset(torch.randn(128 if o.tiny else 2048, 1, 28, 28), torch.arange(128 if o.tiny else 2048))
    loader = DataLoader(pictures, batch_size=64, num_workers=2, persistent_workers=True)
    def step():
        for x, _ in loader: last = x
        return last.abs().mean()
    return step, None


for _dtype in "float32", "bfloat16":
    for _name, _options in ("AdamW", {"lr": 1e-3}), ("SGD", {"lr": 1e-3, "momentum": 0.9}):
        cpu_row(f"{_name}, {_dtype}, 20 tensors of 100,000")(lambda o, n=_name, d=_dtype, more=_options: update(o, n, 20, 2_000_000, d, **more))


# ---- measuring

def rates(o):
    """Returns the operations per second of a large product, by dtype."""
    torch, found = o.torch, {}
    n = 64 if o.tiny else 8192 if o.device == "cuda" else 1024
    for name, dtype, tf32 in ("bfloat16", torch.bfloat16, False), ("tf32", torch.float32, True), ("float32", torch.float32, False):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = (torch.randn(n, n).to(o.device, dtype) for _ in range(2))
        def repeat(times):
            begin = time.perf_counter()
            for _ in range(times): a @ b
            o.wait()
            return time.perf_counter() - begin
        found[name] = 2 * n**3 / run.min_seconds(repeat, 0.1)
    return found


def measure(o, function, more):
    torch = o.torch
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    if not more.get("tf32"): torch.backends.cuda.matmul.allow_tf32 = False
    def start(comparing):
        o.comparing = comparing
        torch.manual_seed(1)
        return function(o)
    losses = []
    if o.losses and not more.get("graph"):
        step, _ = start(True)
        losses = [float(step()) for _ in range(o.losses)]
        del step
        gc.collect()
    if o.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    step, work = start(False)
    clock = {"wall": time.perf_counter, "processor": time.process_time, "virtual": lambda: torch.cuda.virtual_time(0) / 1e9}[o.clock]
    def repeat(times):
        begin = clock()
        for _ in range(times): step()
        o.wait()
        return clock() - begin
    repeat(1 if o.tiny else 3)
    seconds = run.min_seconds(repeat, 0 if o.tiny else o.seconds) / more.get("parts", 1)
    peak = torch.cuda.max_memory_allocated() if o.device == "cuda" else None
    return {"seconds": seconds, "work": work, "peak": peak, "losses": losses}


def worker(library, o):
    """Prints a line of JSON per row."""
    torch = o.torch = run.bind(library)
    if o.device == "cpu": torch.set_num_threads(o.threads or len(os.sched_getaffinity(0)))
    o.wait = torch.cuda.synchronize if o.device == "cuda" else lambda: None
    devices = torch.cuda.device_count() if o.device == "cuda" else 0
    print(json.dumps({"rates": rates(o)}), flush=True)
    for name, (function, more) in wanted(o).items():
        if more.get("devices", 0) > devices or (more.get("graph") and o.device != "cuda"): continue
        try:
            found = measure(o, function, more)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        gc.collect()
        if o.device == "cuda": torch.cuda.empty_cache()
        print(json.dumps({name: found}), flush=True)


def profiled(o):
    """Runs the named rows with one step of each between profiler start and stop, for `ncu --profile-from-start off`."""
    torch = o.torch = run.bind("phlox")
    o.comparing, o.wait = False, torch.cuda.synchronize
    for function, more in wanted(o).values():
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = True, bool(more.get("tf32"))
        step, _ = function(o)
        for _ in range(4): step()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        step()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def wanted(o):
    """Returns the named rows, or those of the device."""
    def is_wanted(name, more): return any(part in name for part in o.names) if o.names else not more.get("aside") and more.get("cpu", False) == (o.device == "cpu")
    return {name: entry for name, entry in ROWS.items() if is_wanted(name, entry[1])}


def head(rate):
    print("products: " + ", ".join(f"{name} {r / 1e12:.3g} TFLOP/s" for name, r in rate.items()))
    print(f"{'':48}{'Phlox':>9}{'torch':>9}{'ratio':>6}{'goal':>9}{'floor':>9}{'peak, MiB':>16}  first losses", flush=True)


def show(name, both, rate):
    goal, kind = ROWS[name][1]["goal"], ROWS[name][1].get("rate")
    goal = f"{goal:.1f}x" if ROWS[name][1].get("cpu") else run.text(goal, "s")
    ours, theirs = both.get("phlox", {}), both.get("torch", {})
    seconds = [f.get("seconds") for f in (ours, theirs)]
    ratio = f"{seconds[1] / seconds[0]:.2f}" if all(seconds) else ""
    floor = run.text(ours["work"] / rate[kind], "s") if ours.get("work") and kind in rate else "-"
    peaks = "/".join(f"{f['peak'] / 2**20:,.0f}" if f.get("peak") else "-" for f in (ours, theirs))
    losses = [f.get("losses", []) for f in (ours, theirs)]
    first = " | ".join(" ".join(f"{x:.4g}" for x in few[:SHOWN]) for few in losses if few)
    print(f"{name:48}{run.text(seconds[0], 's'):>9}{run.text(seconds[1], 's'):>9}{ratio:>6}{goal:>9}{floor:>9}{peaks:>16}  {first}", flush=True)
    if all(len(few) > SHOWN for few in losses):
        differences = [abs(a - b) for a, b in zip(*losses)]
        last = " | ".join(f"{sum(few[-20:]) / len(few[-20:]):.6g}" for few in losses)
        print(f"    {len(losses[0])} steps: losses are apart by {sum(differences) / len(differences):.1e} on average, {max(differences):.1e} at most; the means of the last 20 are {last}")
    for library, f in both.items():
        if "error" in f: print(f"    {library}: {f['error']}")


def keep_minimum(both, library, figures):
    if figures.get("seconds", 0) <= both.get(library, {}).get("seconds", 1e9): both[library] = figures


def main(o):
    python, have = run.choose()
    flags = ["--device", o.device, "--seconds", str(o.seconds), "--threads", str(o.threads), "--losses", str(o.losses), "--clock", o.clock] + ["--tiny"] * o.tiny
    found, rate, order = {}, {}, have * o.turns
    for turn, library in enumerate(order, 1):
        for name, figures in run.results_of(python, __file__, *flags, "--worker", library, *o.names):
            if name == "rates":
                rate = {kind: max(r, rate.get(kind, 0)) for kind, r in figures.items()}
                if turn == len(order): head(rate)
                continue
            keep_minimum(found.setdefault(name, {}), library, figures)
            if turn == len(order): show(name, found[name], rate)
    with open(o.out, "w") as file: json.dump({"rates": rate, "rows": found}, file, indent=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of rows")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--threads", type=int, default=0, help="number of CPU threads (default: all cores)")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds to measure a row")
    parser.add_argument("--turns", type=int, help="number of processes per library; the minimum counts (default on the CPU: 3)")
    parser.add_argument("--clock", choices=("wall", "processor", "virtual"), default="wall",
                        help="processor: CPU time of all threads, for a busy machine; virtual: simulated devices in mode schedule")
    parser.add_argument("--losses", type=int, default=SHOWN, help="steps whose losses are compared")
    parser.add_argument("--tiny", action="store_true", help="small models, one run: checks that all rows run")
    parser.add_argument("--out", default=os.path.join(run.ROOT, "build", "models.json"))
    parser.add_argument("--profiled", action="store_true", help="only runs one step of each row between cudaProfilerStart and Stop, for ncu")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.turns = options.turns or (3 if options.device == "cpu" else 1)
    profiled(options) if options.profiled else worker(options.worker, options) if options.worker else main(options)
