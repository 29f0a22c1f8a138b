# SPDX-License-Identifier: Apache-2.0
"""Memory formats of results and gradients: a grid of ops, shapes and dimension orders of the input, as text. `cases(torch)` runs it with any
library that has PyTorch's names. memory_formats.txt has the lines of PyTorch 2.15; running this file with PyTorch as `torch` writes it."""
import math
import os
import warnings

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "memory_formats.txt")
SHAPES = [(2, 3, 4, 6), (1, 3, 4, 6), (2, 3, 1, 1), (2, 3, 4, 4, 6)]


def packed(shape, order=None):
    """The strides of packed dimensions in the given order, outermost first."""
    strides, step = [0] * len(shape), 1
    for d in reversed(order or range(len(shape))):
        strides[d] = step
        step *= max(shape[d], 1)
    return tuple(strides)


def channels_last(shape):
    return packed(shape, [0, *range(2, len(shape)), 1])


def make(torch, shape, order):
    """A tensor that is row-major (c), channels last (l), channels last with gaps (s), or with reversed dimensions (r)."""
    values = torch.arange(float(math.prod(shape))).reshape(shape) / math.prod(shape) + 0.1
    if order == "c":
        return values
    if order == "r":
        return torch.empty(tuple(reversed(shape))).permute(*reversed(range(len(shape)))).copy_(values)
    wide = shape if order == "l" else (shape[0], shape[1] + 2, *shape[2:])
    there = torch.empty_strided(wide, channels_last(wide))
    return (there if order == "l" else there[:, 1:1 + shape[1]]).copy_(values)


def layout_code(t):
    """c: row-major; l: channels last; otherwise the strides."""
    strides, shape = tuple(t.stride()), tuple(t.shape)
    return "c" if strides == packed(shape) else "l" if len(shape) > 3 and strides == channels_last(shape) else ",".join(map(str, strides))


def ops(torch):
    """Maps a name to (function of the input, whether gradients are compared, dimension counts). Phlox's gradients of pad, interpolate, group norm
    and pixel shuffle are row-major; the next op upstream converts them."""
    F, found = torch.nn.functional, {}

    def last(x):
        return torch.channels_last if x.dim() == 4 else torch.channels_last_3d

    def of(x, name):
        return getattr(F, name + ("2d" if x.dim() == 4 else "3d"))

    def add(name, f, grads=True, dims=(4, 5)):
        found[name] = f, grads, dims

    def like(x, order="c"):
        return make(torch, tuple(x.shape), order)

    def channels(x, value=1.0):
        return torch.full((x.shape[1],), value)

    def weight(x, order, out=4, kernel=3, groups=1):
        return make(torch, (out, x.shape[1] // groups) + (kernel,) * (x.dim() - 2), order)

    for name in "neg exp abs relu sigmoid tanh round isnan zeros_like empty_like ones_like rand_like randn_like".split():
        add(name, getattr(torch, name), "_like" not in name and name != "isnan")
    for name in "gelu silu leaky_relu elu softplus hardswish mish threshold dropout".split():
        add(name, lambda x, f=getattr(F, name): f(x, 0.3, 0.1) if f is F.threshold else f(x))
    add("mul_self", lambda x: x * x)
    add("double", lambda x: x.double())
    add("to_int", lambda x: x.to(torch.int32), False)
    add("clone", lambda x: x.clone())
    add("detach", lambda x: x.detach(), False)
    add("clone_contiguous", lambda x: x.clone(memory_format=torch.contiguous_format))
    add("clone_last", lambda x: x.clone(memory_format=last(x)))
    add("contiguous", lambda x: x.contiguous())
    add("contiguous_last", lambda x: x.contiguous(memory_format=last(x)))
    add("to_last", lambda x: x.to(memory_format=last(x)))
    add("to_contiguous", lambda x: x.to(memory_format=torch.contiguous_format))
    add("to_double_last", lambda x: x.to(torch.float64, memory_format=last(x)))
    add("double_last", lambda x: x.double(memory_format=last(x)))
    add("cpu_last", lambda x: x.cpu(memory_format=last(x)))
    add("empty_last", lambda x: torch.empty(x.shape, memory_format=last(x)), False)
    add("zeros_like_last", lambda x: torch.zeros_like(x, memory_format=last(x)), False)
    add("randint_like_last", lambda x: torch.randint_like(x, 5, memory_format=last(x)), False)
    add("full_like_contiguous", lambda x: torch.full_like(x, 3.0, memory_format=torch.contiguous_format), False)
    add("full_like_double", lambda x: torch.full_like(x, 3.0, dtype=torch.float64), False)
    add("new_zeros", lambda x: x.new_zeros(x.shape), False)
    add("is_last", lambda x: torch.zeros(2 - x.is_contiguous(memory_format=last(x)), 2), False)
    add("is_row_major", lambda x: torch.zeros(2 - x.is_contiguous(), 2), False)
    add("suggests_last", lambda x: torch.zeros(2 - (x.to(memory_format=last(x)) is x), 2), False)
    for order in "clsr":
        add("add_" + order, lambda x, order=order: x + like(x, order))
        add("mul_after_" + order, lambda x, order=order: like(x, order) * x)
    add("addcmul", lambda x: torch.addcmul(x, x, x))
    add("where", lambda x: torch.where(x > 0.5, x, like(x)), False)
    add("iadd", lambda x: x.clone().add_(like(x)))
    add("relu_", lambda x: F.relu(x.clone(), inplace=True))
    add("copy_", lambda x: torch.empty_like(x).copy_(like(x)), False)
    for channel in ("mean", "sum", "amax"):
        add(channel, lambda x, channel=channel: getattr(x, channel)(1))
    add("cat", lambda x: torch.cat([x, x], 1))
    add("cat_row_major", lambda x: torch.cat([like(x), x], 1))
    for training in (True, False):
        add(f"batch_norm_{training}", lambda x, training=training: F.batch_norm(
            x, channels(x, 0.0), channels(x), channels(x), channels(x, 0.0), training), dims=(4, 5))
    add("group_norm", lambda x: F.group_norm(x, 1, channels(x), channels(x)), False)
    add("layer_norm", lambda x: F.layer_norm(x, x.shape[1:]))
    add("softmax", lambda x: F.softmax(x, 1))
    add("max_pool", lambda x: of(x, "max_pool")(x, 1, return_indices=True))
    add("avg_pool", lambda x: of(x, "avg_pool")(x, 1))
    add("adaptive_avg_pool", lambda x: of(x, "adaptive_avg_pool")(x, 2))
    add("adaptive_max_pool", lambda x: of(x, "adaptive_max_pool")(x, 2))
    for order in "cl":
        add("conv_" + order, lambda x, order=order: of(x, "conv")(x, weight(x, order), channels(weight(x, order).transpose(0, 1)), padding=1))
        add("conv1_" + order, lambda x, order=order: of(x, "conv")(x, weight(x, order, kernel=1)))
        add("depthwise_" + order, lambda x, order=order: of(x, "conv")(x, weight(x, order, 3, groups=3), padding=1, groups=3))
        add("conv_transpose_" + order, lambda x, order=order: of(x, "conv_transpose")(x, weight(x, order).transpose(0, 1).repeat(
            (1, 2) + (1,) * (x.dim() - 2)).clone(memory_format=torch.contiguous_format if order == "c" else last(x))), False)

        def of_weight(x, accumulated, order=order):
            w = weight(x, order).requires_grad_()
            y = of(x, "conv")(x, w, padding=1)
            if not accumulated:
                return torch.autograd.grad(y, w, torch.ones_like(y))[0]
            y.sum().backward()
            return w.grad
        add("conv_weight_" + order, lambda x, f=of_weight: f(x, False), False)
        add("conv_accumulated_" + order, lambda x, f=of_weight: f(x, True), False)
    for mode in ("nearest", "bilinear", "bicubic", "area"):
        add(mode, lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode), mode == "area", (4,))
    add("trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), False, (5,))
    add("pad", lambda x: F.pad(x, (1, 1, 1, 1)))
    add("replicate", lambda x: F.pad(x, (1,) * (2 * x.dim() - 4), mode="replicate"), False)
    add("pixel_shuffle", lambda x: F.pixel_shuffle(torch.cat([x] * 4, 1), 2), False, (4,))
    return found


def strides(torch, f, grads, shape, order):
    """The layouts of the results, and of the gradients for an expanded, a row-major and a channels-last gradient of the result."""
    leaf = make(torch, shape, order).detach().requires_grad_(grads)
    made = f(leaf)
    made = made if isinstance(made, tuple) else (made,)
    found = "".join(map(layout_code, made))
    if not grads:
        return found
    y = made[0]
    seeds = [torch.ones(()).expand(y.shape)] + [make(torch, tuple(y.shape), order) for order in ("cl" if y.dim() > 3 else "c")]
    return "/".join([found] + [layout_code(torch.autograd.grad(y, leaf, seed.to(y.dtype), retain_graph=True)[0]) for seed in seeds])


def cases(torch):
    """Lines with the op, the shape, and the layouts for an input that is row-major, channels last, strided with gaps, and reversed."""
    for name, (f, grads, dims) in ops(torch).items():
        for shape in SHAPES:
            if len(shape) in dims:
                yield f"{name} {'x'.join(map(str, shape))} " + " ".join(strides(torch, f, grads, shape, order) for order in "clsr")


if __name__ == "__main__":
    import torch
    warnings.simplefilter("ignore")
    with open(TABLE, "w") as to:
        to.writelines(line + "\n" for line in cases(torch))
