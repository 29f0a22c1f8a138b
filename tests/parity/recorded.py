# SPDX-License-Identifier: Apache-2.0
"""Records the strides of results for channels_last, transposed and expanded inputs, and the random streams of the CPU at a seed.

    python tests/parity/recorded.py tests/parity/recorded.txt       # with PyTorch 2.15 or later

Each line is a case and its outcome. A stream is the sum of the drawn numbers and the next number of the generator. The test beside it
(tests/python/ops/test_recorded.py) evaluates the same cases with Phlox.
"""
import functools
import sys
import warnings

LAYOUTS = """
flip(x, (0,)) | flip(x, (1, 3)) | fliplr(x) | flipud(x) | rot90(x) | rot90(x, 2, (2, 3)) | roll(x, 1, 0) | roll(x, (1, 2), (1, 3)) | roll(x, 3)
sort(x, 1) | x.sort(dim=2, stable=True) | argsort(x, 1) | msort(x) | topk(x, 2, 1) | kthvalue(x, 2, 1) | median(x, 1) | mode(x, 1) | cumsum(x, 1) | cummax(x, 1)
x[i] | x[:, i] | x[..., i] | x[i, i] | x[:, i, i] | x[i, :, i] | x[1, i] | x[None, i] | x[:, 1:, i] | x[x > 0] | x[:, x[0, :, 0, 0] > -9]
stack((x, x)) | stack((x, x), 1) | stack((x, x), -1) | cat((x, x)) | cat((x, x), 1) | hstack((x, x)) | dstack((x, x)) | tile(x, (2,)) | x.repeat(2, 1, 1, 1)
masked_fill(x, x > 0, 1.) | masked_fill(x, x > 0, one) | masked_scatter(x, x > 0, r) | scatter(x, 0, z, r) | scatter(x, 0, z, 1.) | scatter_add(x, 0, z, r)
scatter_reduce(x, 0, z, r, 'sum') | index_add(x, 1, i, r[:, :2]) | index_copy(x, 1, i, r[:, :2]) | index_fill(x, 1, i, 1.) | index_fill(x, 1, i, one)
index_reduce(x, 1, i, r[:, :2], 'mean') | index_put(x, (i,), one) | index_select(x, 1, i) | gather(x, 1, z) | take_along_dim(x, z, 1) | put(x, i, ones(2))
diagonal_scatter(x, ones(4, 5, 2)) | select_scatter(x, ones(2, 4, 5), 1, 0) | slice_scatter(x, ones(2, 1, 4, 5), 1, 0, 1) | renorm(x, 2, 1, 1.)
x + 1 | x * x | x + r | r + x | where(x > 0, x, 0.) | x.clone() | x.contiguous() | zeros_like(x) | rand_like(x) | x.double() | tril(x) | clamp(x, 0, 1) | 2 ** x
softmax(x, 1) | log_softmax(x, 1) | sum(x, 1) | mean(x, (2, 3)) | amax(x, 1) | argmax(x, 1) | prod(x, 1) | var(x, 1) | logsumexp(x, 1) | norm(x, dim=1)
F.pad(x, (1, 1)) | F.pad(x, (1, 1, 1, 1), 'reflect') | F.pad(x, (1, 1, 1, 1), 'circular') | F.pad(x, (1, 1, 1, 1), 'replicate') | F.pixel_unshuffle(x[..., :4], 2)
F.avg_pool2d(x, 2) | F.max_pool2d(x, 2) | F.adaptive_avg_pool2d(x, 2) | F.interpolate(x, scale_factor=2) | F.interpolate(x, scale_factor=2, mode='bilinear')
F.batch_norm(x, zeros(3), ones(3)) | F.group_norm(x, 3) | F.layer_norm(x, (5,)) | F.instance_norm(x) | F.rms_norm(x, (5,)) | F.relu(x) | F.gelu(x) | F.glu(x, 2)
F.conv2d(x, ones(2, 3, 2, 2)) | F.conv_transpose2d(x, ones(3, 2, 2, 2)) | F.linear(x, ones(3, 5)) | x @ x.mT | einsum('bchw,cd->bdhw', x, ones(3, 3))
fft.fft(x) | fft.fft(x, dim=1) | fft.rfft2(x) | fft.fftshift(x) | F.dropout(x) | F.dropout2d(x) | F.normalize(x) | F.mse_loss(x, x, reduction='none') | kron(x, ones(1, 1, 1, 2))
complex(x, x) | polar(x, x) | frexp(x) | isin(x, one) | F.channel_shuffle(x, 3) | repeat_interleave(x, 2, 1) | diff(x, dim=1) | gradient(x, dim=1) | cross(x, x, dim=1)
F.smooth_l1_loss(x, r, reduction='none') | F.huber_loss(x, r, reduction='none') | F.l1_loss(x, r, reduction='none') | F.kl_div(x, r, reduction='none')
F.binary_cross_entropy_with_logits(x, r, reduction='none') | F.binary_cross_entropy(x * 0, r, reduction='none') | F.soft_margin_loss(x, r, reduction='none')
F.hinge_embedding_loss(x, r, reduction='none') | F.poisson_nll_loss(x, r, reduction='none') | F.gaussian_nll_loss(x, r, r, reduction='none')
F.hardshrink(x) | F.softshrink(x) | F.threshold(x, 0, 1) | F.rrelu(x) | F.elu(x) | F.celu(x) | F.leaky_relu(x) | F.prelu(x, ones(3)) | F.hardtanh(x) | F.silu(x)
F.softplus(x) | F.logsigmoid(x) | F.hardswish(x) | F.mish(x) | F.tanhshrink(x) | bernoulli(x, 0.5) | _weight_norm(x, ones(2, 1, 1, 1)) | rsub(x, r) | rsub(r, x)
F.conv1d(x[0], ones(2, 4, 2)) | F.conv_transpose1d(x[0], ones(4, 2, 2)) | F.max_pool1d(x[0], 2) | F.avg_pool1d(x[0], 2) | F.instance_norm(x[0]) | cdist(x, x)
x[t] | x[:, t] | x[t, :, i] | x[i[:, None], i] | x[..., i[:, None], i] | x[i[0]] | x[:, None, i] | x[i, None, :, i] | nan_to_num(x) | bucketize(x, ones(2)) | lerp(x, r, .5)
addcmul(r, x, x) | clamp(x, r) | heaviside(r, x) | trapezoid(x, dim=1) | index_select(x, 2, i) | view_as_complex(x[..., :2]) | searchsorted(ones(2), x) | baddbmm(x[0], r[0, :, :, :4], x[0])
"""
STREAMS = """
rand({n}, dtype=float32) | rand({n}, dtype=float64) | rand({n}, dtype=half) | rand({n}, dtype=bfloat16) | rand({n}, dtype=complex64)
randn({n}, dtype=float32) | randn({n}, dtype=float64) | randn({n}, dtype=half) | randn({n}, dtype=bfloat16) | randn({n}, dtype=complex64)
randint(0, 10, ({n},)) | randint(0, 2**28 - 1, ({n},)) | randint(0, 2**28, ({n},)) | randint(0, 2**31 - 1, ({n},)) | randint(0, 2**40, ({n},))
randint(0, 1000, ({n},), dtype=bfloat16) | randint(0, 5000, ({n},), dtype=half) | randint(0, 2**24 + 3, ({n},), dtype=float32) | randint(-9, 9, ({n},), dtype=int8)
empty({n}, dtype=int64).random_() | empty({n}, dtype=float32).random_() | empty({n}, dtype=uint8).random_() | empty({n}, dtype=bool).random_() | randperm({n})
empty({n}).uniform_(-1, 3) | empty({n}).normal_(1, 2) | empty({n}).exponential_(2.) | empty({n}).cauchy_() | empty({n}).log_normal_() | empty({n}).geometric_(0.3)
empty({n}).bernoulli_(0.3) | empty({n}).bernoulli_(full(({n},), 0.3)) | bernoulli(full(({n},), 0.3)) | poisson(full(({n},), 3.)) | _standard_gamma(full(({n},), 2.))
binomial(full(({n},), 9.), full(({n},), 0.3)) | multinomial(ones({n}), 1) | multinomial(ones({n}), {n}) | multinomial(ones({n}), 9, True) | normal(zeros({n}), 2.)
normal(zeros({n}), ones({n})) | normal(0., ones({n})) | F.dropout(ones({n})) | F.alpha_dropout(ones({n}), 0.5, True) | F.dropout1d(ones(1, {n}, 2)) | F.gumbel_softmax(ones({n}))
F.rrelu(-ones({n}), training=True) | rand_like(ones({n}).double()) | randn_like(ones({n})) | randint_like(ones({n}), 9) | _sample_dirichlet(ones({n}, 2))
"""


@functools.cache
def names(torch):
    """The names of torch, and F for torch.nn.functional."""
    space = {name: getattr(torch, name) for name in dir(torch) if not name.startswith("__")}
    return {**space, "F": torch.nn.functional}


def inputs(torch):
    def ramp(*size):
        return torch.arange(1., 1 + torch.Size(size).numel()).reshape(size).sin()
    yield "rows", ramp(2, 3, 4, 5)
    yield "channels_last", ramp(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    yield "transposed", ramp(5, 4, 3, 2).permute(3, 2, 1, 0)
    yield "permuted", ramp(3, 2, 5, 4).permute(1, 0, 3, 2)
    yield "expanded", ramp(2, 1, 4, 5).expand(2, 3, 4, 5)
    yield "sliced", ramp(4, 6, 8, 10)[::2, ::2, ::2, ::2]


def layout(torch, text, x):
    rows = torch.ones(2, 3, 4, 5)
    more = {"x": x, "r": rows, "i": torch.tensor([0, 1]), "t": torch.tensor([[0, 1], [1, 1]]).t(), "z": torch.zeros(1, 3, 4, 5, dtype=torch.int64), "one": torch.tensor(1.)}
    result = eval(text, {**names(torch), **more})
    results = result if isinstance(result, (tuple, list)) else [result]
    return " ".join(str(tuple(r.stride())) for r in results)


def stream(torch, text):
    torch.manual_seed(7)
    drawn = eval(text, names(torch))
    total = torch.view_as_real(drawn).sum() if drawn.is_complex() else drawn.double().sum()
    return f"{total.item():.6g} {torch.randint(0, 2**40, (1,)).item()}"


def cases(torch):
    """Yields the text of each case and its outcome, or the class of its error."""
    def outcome(run, *args):
        try:
            return run(torch, *args)
        except Exception as error:
            return type(error).__name__
    warnings.simplefilter("ignore")
    split = [text.strip() for line in LAYOUTS.strip().splitlines() for text in line.split(" | ")]
    for text in split:
        for kind, x in inputs(torch):
            yield f"{text} of {kind}", outcome(layout, text, x)
    for line in STREAMS.strip().splitlines():
        for text in line.split(" | "):
            for n in (1, 10, 40):
                yield text.strip().replace("{n}", str(n)), outcome(stream, text.strip().replace("{n}", str(n)))


def main():
    import torch
    with open(sys.argv[1], "w") as file:
        for key, value in cases(torch):
            print(f"{key} -> {value}", file=file)


if __name__ == "__main__":
    main()
