# SPDX-License-Identifier: Apache-2.0
"""Edge cases of ops on the CPU and on a simulated device: empty, oversized and invalid arguments. Results are PyTorch's, or its error is raised
before anything changes."""
import collections
import functools
import itertools
import math
import os
import re
import threading
import unittest
import warnings

os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import phlox as torch

F, nn = torch.nn.functional, torch.nn


def each_device(test):
    """Runs a test on the CPU, then on a device if there is one, as the default device."""
    @functools.wraps(test)
    def run(self):
        for device in ["cpu", "cuda"][:1 + (torch.cuda.device_count() > 0)]:
            with self.subTest(device), torch.device(device):
                test(self)
    return run


class Edges(unittest.TestCase):
    def refuses(self, error, text, call, *args, **kwargs):
        with self.assertRaisesRegex(error, "^" + re.escape(text)):
            call(*args, **kwargs)


class Divisions(Edges):
    def test_failed_integer_division_leaves_output_unchanged(self):
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
            for x in (torch.arange(1, 9, dtype=dtype), torch.arange(1, 17, dtype=dtype)[::2]):
                divisor, before = (torch.arange(8) != 6).to(dtype), x.tolist()
                out = torch.full_like(x, 7)
                for call in (lambda: x.floor_divide_(divisor), lambda: x.remainder_(divisor), lambda: x.fmod_(divisor),
                             lambda: x.div_(divisor, rounding_mode="floor"), lambda: x.div_(divisor, rounding_mode="trunc"),
                             lambda: x.remainder_(0), lambda: x.__ifloordiv__(divisor), lambda: x.__imod__(divisor),
                             lambda: torch.fmod(x, divisor, out=out), lambda: torch.floor_divide(x, divisor, out=out)):
                    version = x._version
                    self.refuses(RuntimeError, "ZeroDivisionError", call)
                    self.assertEqual((x.tolist(), out.tolist(), x._version), (before, [7] * 8, version))
                pointer = x.data_ptr()
                self.assertIs(x.floor_divide_(2), x)
                self.assertEqual((x.tolist(), x.data_ptr(), x._version), ([i // 2 for i in before], pointer, version + 1))
                self.assertEqual(torch.remainder(x, 3, out=out).tolist(), [i // 2 % 3 for i in before])


class Dimensions(Edges):
    @each_device
    def test_dimensions_that_do_not_coalesce(self):
        dims = 16 if torch.cuda._backend_name() == "cuda" else 18  # kernels on GPUs support 16
        n = 2**dims
        y = torch.arange(n).reshape([2] * dims).permute(*range(dims - 1, -1, -1))
        reversed_bits = [int(f"{i:0{dims}b}"[::-1], 2) for i in range(n)]
        self.assertEqual(y.flatten().tolist(), reversed_bits)
        self.assertEqual((y + y).flatten().tolist(), [2 * i for i in reversed_bits])
        self.assertEqual((y * 1.0).sum(tuple(range(1, dims))).tolist(), [sum(reversed_bits[:n // 2]), sum(reversed_bits[n // 2:])])
        self.assertEqual((y + 0)[[0, 1], ..., [1, 1]].flatten()[:2].tolist(), [n // 2, n // 2 + n // 4])
        z = y.float().requires_grad_()
        (z * y).sum().backward()
        self.assertEqual(z.grad.flatten().tolist(), reversed_bits)

    @each_device
    def test_64_dimensions(self):
        x = torch.ones([1] * 63 + [2], requires_grad=True)
        y = x.transpose(0, 63).flip(0, 5).squeeze(range(1, 63)).movedim(0, 1)
        self.assertEqual((y.shape, torch.cat([x, x], 62).shape[62], x.stride()[:62]), ((1, 2), 2, (2,) * 62))
        self.assertEqual((x.sum(62, keepdim=True).ndim, x.sum((0, 63)).ndim, x.amax(tuple(range(64))).ndim), (64, 62, 0))
        (torch.einsum("...,...->...", x, 3 * x) * 2).sum().backward()
        self.assertEqual((x.grad.flatten().tolist(), x.grad.ndim), ([12.0, 12.0], 64))
        self.assertEqual(x.detach()[(0,) * 62].tolist(), [[1.0, 1.0]])
        self.assertEqual(x[(0,) * 63 + ([1, 0, 1],)].tolist(), [1.0] * 3)
        small = torch.ones(3)
        small.data = x.detach()
        self.assertEqual((small.shape, small.resize_(2).shape, small.resize_([1] * 9).ndim), (x.shape, (2,), 9))

    @each_device
    def test_more_than_64_dimensions(self):
        x, many = torch.zeros([1] * 64), [1] * 65
        for call in (lambda: torch.zeros(many), lambda: x.unsqueeze(0), lambda: x[None], lambda: x.expand(many), lambda: x.reshape(many),
                     lambda: torch.stack([x, x]), lambda: x.repeat(many), lambda: x.unfold(0, 1, 1), lambda: x.unflatten(0, (1, 1)),
                     lambda: F.one_hot(x.long()), lambda: x.view(many), lambda: x.broadcast_to(many), lambda: x.as_strided(many, many),
                     lambda: x[torch.zeros(1, 1, dtype=torch.int64)]):
            self.refuses(RuntimeError, "only tensors with up to 64 dims are supported", call)
        data = functools.reduce(lambda inner, _: [inner], range(65), 0)
        self.refuses(ValueError, "tensors have at most 64 dimensions, but the data has more", torch.tensor, data)


class Indices(Edges):
    @each_device
    def test_index_tensor_in_every_dimension(self):
        for ndim in (10, 11, 13, 16):
            x = torch.arange(2.0**ndim).reshape([2] * ndim).transpose(0, -1)
            at = [torch.tensor([d % 2, 1, -1 - d % 2]) for d in range(ndim)]
            at[3] = torch.tensor([[1], [0]])  # broadcasts
            rows = [i.expand(2, 3) % 2 for i in at]
            wanted = [[sum(int(rows[d][r, c]) * x.stride(d) for d in range(ndim)) for c in range(3)] for r in range(2)]
            self.assertEqual(x[tuple(at)].tolist(), wanted)
            y = x.clone()
            y[tuple(at)] = torch.tensor([-1.0, -2, -3])
            self.assertEqual(y[tuple(at)].tolist(), [[-1, -2, -3]] * 2)
            self.assertEqual((y < 0).sum().item(), len({n for row in wanted for n in row}))
            z = x.clone().requires_grad_()
            z[tuple(at)].sum().backward()
            self.assertEqual((z.grad.sum().item(), z.grad[tuple(at)].min().item() >= 1), (6, True))
            with self.assertRaisesRegex(IndexError, f"^index 2 is out of bounds for dimension {ndim - 1} with size 2"):
                x[tuple(at[:-1]) + (torch.tensor([0, 2, 0]),)].tolist()
        x = torch.arange(2.0**12).reshape([2] * 12)
        self.assertEqual(x[(torch.tensor([True, False]),) * 12].tolist(), [0])
        self.assertEqual(x[(torch.tensor([], dtype=torch.int64),) * 12].shape, (0,))


class Windows(Edges):
    @each_device
    def test_convolution_without_input_channels(self):
        with self.assertWarnsRegex(UserWarning, "zero-element"):
            conv = nn.Conv2d(0, 2, 3)
        x = torch.zeros(1, 0, 5, 5, requires_grad=True)
        y = conv(x)
        self.assertEqual(y.shape, (1, 0, 3, 3))
        y.sum().backward()
        self.assertEqual((x.grad.shape, conv.weight.grad.shape, conv.bias.grad.tolist()), (x.shape, conv.weight.shape, [0, 0]))
        self.assertEqual(F.conv1d(torch.ones(0, 4), torch.ones(2, 0, 3)).shape, (0, 2))
        self.assertEqual(F.conv2d(torch.ones(1, 0, 4, 4), torch.ones(2, 0, 3, 3), padding="same").shape, (1, 0, 4, 4))

    @each_device
    def test_convolution_of_empty_batch(self):
        self.assertEqual(F.conv2d(torch.ones(0, 2, 4, 4), torch.ones(3, 2, 3, 3)).shape, (0, 3, 2, 2))

    @each_device
    def test_transposed_convolution_of_empty_batch(self):
        for op, sizes, weight, wanted in ((F.conv_transpose2d, (0, 2, 4, 4), (2, 3, 3, 3), (0, 3, 6, 6)),
                                          (F.conv_transpose2d, (0, 2, 0, 4), (2, 3, 3, 3), (0, 3, 2, 6)),
                                          (F.conv_transpose2d, (2, 2, 4, 4), (2, 0, 3, 3), (2, 0, 6, 6)),
                                          (F.conv_transpose1d, (0, 2, 4), (2, 3, 3), (0, 3, 6)),
                                          (F.conv_transpose1d, (0, 2, 0), (2, 3, 3), (0, 3, 2))):
            x, w, b = (torch.ones(s, requires_grad=True) for s in (sizes, weight, weight[1:2]))
            y = op(x, w, b)
            self.assertEqual(y.shape, wanted)
            y.sum().backward()
            for t in (x, w, b):
                self.assertEqual((t.grad.shape, t.grad.abs().sum().item()), (t.shape, 0))
        self.refuses(RuntimeError, "Only zero batch or zero channel inputs are supported, but got input shape: [2, 2, 0, 4]",
                     F.conv_transpose2d, torch.ones(2, 2, 0, 4), torch.ones(2, 3, 3, 3))

    @each_device
    def test_conv1d_errors_name_1d_arguments(self):
        ones = torch.ones
        for op, way in ((F.conv1d, "groups=1"), (F.conv_transpose1d, "transposed=1")):
            self.refuses(RuntimeError, f"Given {way}, weight of size [3, 3, 3], expected input[1, 2, 4] to have 3 channels, but got 2 "
                         "channels instead", op, ones(2, 4), ones(3, 3, 3))
            self.refuses(RuntimeError, "Given groups=1, expected weight to be at least 1 at dimension 0, but got weight of size [0, 2, 3] "
                         "instead", op, ones(1, 2, 4), ones(0, 2, 3))
        self.refuses(RuntimeError, "Given weight of size [3, 3, 3], expected bias to be 1-dimensional with 3 elements, but got bias of "
                     "size [2] instead", F.conv1d, ones(1, 3, 4), ones(3, 3, 3), ones(2))
        self.refuses(RuntimeError, "Calculated padded input size per channel: (4). Kernel size: (6). Kernel size can't be greater than "
                     "actual input size", F.conv1d, ones(3, 4), ones(3, 3, 6))
        self.refuses(RuntimeError, "Given input size per channel: (1 x 4). Calculated output size per channel: (1 x -8). Output size is "
                     "too small", F.conv_transpose1d, ones(1, 3, 4), ones(3, 3, 3), padding=7)

    @each_device
    def test_empty_channels_or_planes(self):
        ones = torch.ones
        for mode in ("reflect", "replicate"):
            for sizes, pad, dims in (((2, 0, 4), (1, 1), "2D or 3D"), ((2, 2, 0), (1, 1), "2D or 3D"), ((0, 4), (1, 1), "2D or 3D"),
                                     ((2, 0, 4, 4), (1, 1, 1, 1), "3D or 4D"), ((2, 3, 4, 0), (1, 1, 1, 1), "3D or 4D")):
                self.refuses(RuntimeError, f"Expected {dims} (batch mode) tensor with possibly 0 batch size and other non-zero dimensions "
                             f"for input, but got: {list(sizes)}", F.pad, ones(sizes), pad, mode=mode)
            self.assertEqual(F.pad(ones(0, 2, 4), (1, 1), mode=mode).shape, (0, 2, 6))
        self.assertEqual(F.pad(ones(2, 0, 4), (1, 1), mode="circular").shape, (2, 0, 6))
        for mode, sizes, text in (("nearest", (2, 0, 4), "Non-empty 3D data tensor expected but got a tensor with sizes [2, 0, 4]"),
                                  ("linear", (2, 2, 0), "Input and output sizes should be greater than 0, but got input (W: 0) and output (W: 3)"),
                                  ("bicubic", (2, 2, 0, 4), "Input and output sizes should be greater than 0, but got input (H: 0, W: 4) "
                                   "output (H: 3, W: 3)")):
            self.refuses(RuntimeError, text, F.interpolate, ones(sizes), size=3, mode=mode)
        self.assertEqual(F.interpolate(ones(0, 2, 4), size=3).shape, (0, 2, 3))
        for sizes, text in (((2, 0, 3), "number of channels to be greater than 0, got 0"), ((0, 2, 0), "HxW to be greater than 0, got 0")):
            self.refuses(RuntimeError, "Expected " + text, F.group_norm, ones(sizes), 1)
        self.assertEqual(F.group_norm(ones(0, 2, 3), 2).shape, (0, 2, 3))
        self.refuses(IndexError, "kthvalue(): Expected reduction dim 1 to have non-zero size.", ones(2, 0).kthvalue, 1, 1)
        self.refuses(IndexError, "amin(): Expected reduction dim -1 to have non-zero size.", ones(2, 0).amin, (0, -1))
        self.refuses(IndexError, "argmax(): Expected reduction dim 1 to have non-zero size.", ones(2, 0).argmax, -1)
        text = "linalg.vector_norm cannot compute the -0.5 norm on an empty tensor because the operation does not have an identity"
        self.refuses(RuntimeError, text, torch.linalg.norm, ones(0), -0.5)
        self.assertEqual(F.pixel_unshuffle(ones(0, 1, 6, 6), 3).shape, (0, 1, 6, 6))  # as in PyTorch

    def test_native_layer_norm_statistics_have_no_gradient(self):
        x = torch.tensor([[1., 3.], [2., 6.]], requires_grad=True)
        output, mean, rstd = torch.native_layer_norm(x, (2,), None, None, 0.)
        self.assertEqual((mean.tolist(), rstd.tolist()), ([[2.], [4.]], [[1.], [.5]]))
        self.assertEqual([t.requires_grad for t in (output, mean, rstd)], [True, False, False])
        self.assertIn("NativeLayerNormBackward0", repr(output.grad_fn))
        half = x.detach().bfloat16()
        for weight, wanted in ((None, torch.bfloat16), (torch.ones(2), torch.float32)):
            self.assertEqual([t.dtype for t in torch.native_layer_norm(half, (2,), weight, weight, 0.)], [torch.bfloat16, wanted, wanted])

    def test_half_precision_rounds_once(self):
        for dtype in (torch.float16, torch.bfloat16):
            self_, row, column = (torch.linspace(a, b, 7).to(dtype) for a, b in ((-3, 2.7), (1.1, 4.3), (-2.9, 0.7)))
            wanted = torch.addr(self_.double(), row.double(), column.double(), beta=0.6, alpha=0.2)
            self.assertTrue(torch.equal(torch.addr(self_, row, column, beta=0.6, alpha=0.2), wanted.to(dtype)))
            square = torch.tensor([[3., 1.], [-2., 4.]])
            self.assertTrue(torch.equal(torch.matrix_exp(square.to(dtype)), torch.matrix_exp(square).to(dtype)))

    @each_device
    def test_empty_kernels(self):
        text = "kernel size should be greater than zero, but got kernel_height: {} kernel_width: 0"
        for op in (F.conv2d, F.conv_transpose2d):
            self.refuses(RuntimeError, text.format(0), op, torch.ones(1, 2, 4, 4), torch.ones(2, 2, 0, 0))
        for op in (F.conv1d, F.conv_transpose1d):
            self.refuses(RuntimeError, text.format(1), op, torch.ones(1, 2, 4), torch.ones(2, 2, 0))

    @each_device
    def test_weights_not_divisible_by_groups(self):
        for op in (F.conv2d, F.conv_transpose2d):
            self.refuses(RuntimeError, "Given groups=2, expected weight to be divisible by 2 at dimension 0, but got weight of size "
                         "[[3, 1, 2, 2]] instead", op, torch.ones(1, 3, 4, 4), torch.ones(3, 1, 2, 2), groups=2)
            self.refuses(RuntimeError, "Given groups=1, expected weight to be at least 1 at dimension 0, but got weight of size "
                         "[0, 2, 3, 3] instead", op, torch.ones(1, 2, 4, 4), torch.ones(0, 2, 3, 3))

    @each_device
    def test_invalid_window_arguments(self):
        image, signal = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 4)
        self.refuses(RuntimeError, "dilation should be greater than zero, but got dilationH: 0 dilationW: 0", F.max_pool2d, image, 2,
                     dilation=0)
        self.refuses(RuntimeError, "dilation should be greater than zero, but got dilationH: 1 dilationW: 0",
                     nn.MaxPool2d(2, dilation=(1, 0)), image)
        self.refuses(RuntimeError, "max_pool1d() dilation must be greater than zero, but got 0", F.max_pool1d, signal, 2, dilation=0)
        self.refuses(RuntimeError, "max_pool1d() dilation must be greater than zero, but got 0", nn.MaxPool1d(2, dilation=0), signal)
        self.refuses(RuntimeError, "max_pool1d() kernel_size must be greater than zero, but got 0", F.max_pool1d, signal, 0)
        self.refuses(RuntimeError, "max_pool1d() stride must be greater than zero, but got 0", F.max_pool1d, signal, 2, 0)
        self.refuses(RuntimeError, "max_pool1d() padding must be non-negative, but got -1", F.max_pool1d, signal, 2, padding=-1)
        for op in (F.max_pool2d, F.avg_pool2d):
            self.refuses(RuntimeError, "stride should not be zero", op, image, 2, 0)
            self.refuses(RuntimeError, "stride should be greater than zero, but got dH: -1 dW: -1", op, image, 2, -1)
            self.refuses(RuntimeError, "pad must be non-negative, but got pad: -1", op, image, 2, padding=-1)
            self.refuses(RuntimeError, "integer out of range", op, image, 2**62)

    @each_device
    def test_window_size_overflow(self):
        image, kernel = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2)
        for name in ("stride", "padding", "dilation"):
            self.refuses(RuntimeError, "integer out of range", F.conv2d, image, kernel, **{name: 2**62})
            self.refuses(RuntimeError, "integer out of range", F.conv_transpose2d, image, kernel, **{name: 2**62})

    @each_device
    def test_pooling_of_empty_images_and_batches(self):
        for op in (F.max_pool2d, F.avg_pool2d):
            self.refuses(RuntimeError, "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, but got:"
                         "[1, 0, 4, 4]", op, torch.ones(1, 0, 4, 4), 2)
            self.assertEqual(op(torch.ones(0, 1, 4, 4), 2).shape, (0, 1, 2, 2))
        self.refuses(RuntimeError, "adaptive_avg_pool2d(): Expected input to have non-zero size for non-batch dimensions, but input "
                     "has sizes [1, 1, 0, 4] with dimension 2 being empty", F.adaptive_avg_pool2d, torch.ones(1, 1, 0, 4), 2)
        self.refuses(RuntimeError, "adaptive_avg_pool2d(): Expected input", F.adaptive_avg_pool1d, torch.ones(1, 1, 0), 2)
        self.refuses(RuntimeError, "adaptive_avg_pool2d: elements of output_size must be greater than or equal to 0",
                     F.adaptive_avg_pool2d, torch.ones(1, 1, 4, 4), -1)


class EmptyInputs(Edges):
    @each_device
    def test_empty_batch_keeps_running_statistics(self):
        for layer, x in ((nn.BatchNorm1d(2), torch.zeros(0, 2)), (nn.BatchNorm2d(2), torch.zeros(2, 2, 0, 3)),
                         (nn.InstanceNorm1d(2, affine=True, track_running_stats=True), torch.zeros(2, 2, 0))):
            x.requires_grad_()
            y = layer(x)
            y.sum().backward()
            self.assertEqual((y.shape, x.grad.shape), (x.shape, x.shape))
            self.assertEqual((layer.running_mean.tolist(), layer.running_var.tolist()), ([0, 0], [1, 1]))
            self.assertEqual((layer.weight.grad.tolist(), layer.bias.grad.tolist()), ([0, 0], [0, 0]))

    @each_device
    def test_roll_and_flip_of_zero_dim_tensor(self):
        for dim in (0, -1):
            self.refuses(IndexError, f"Dimension specified as {dim} but tensor has no dimensions", torch.roll, torch.tensor(1.), 0, dim)
        self.assertEqual(torch.roll(torch.tensor(1.), 3).tolist(), 1)
        self.refuses(RuntimeError, "Input must be >= 1-d.", torch.flipud, torch.tensor(1.))
        self.refuses(RuntimeError, "Input must be >= 2-d.", torch.fliplr, torch.ones(2))


class Overflow(Edges):
    @each_device
    def test_repeat_interleave_overflow(self):
        for counts in ([2**62] * 3, [2**62] * 4, [2**61, 1, 0], [2**62, 1, 0]):
            with self.assertRaises(RuntimeError):
                torch.repeat_interleave(torch.zeros(len(counts)), torch.tensor(counts))
        self.refuses(RuntimeError, "repeats can not be negative", torch.repeat_interleave, torch.zeros(3), torch.tensor([1, -1, 2]))
        with self.assertRaisesRegex(RuntimeError, '"repeat_interleave_c\\w+" not implemented for \'Float\''):
            torch.repeat_interleave(torch.zeros(2), torch.ones(2))
        for call in (lambda: torch.zeros(2).repeat(2**62), lambda: torch.zeros(3).tile(2**62),
                     lambda: torch.zeros(2, 0).repeat_interleave(2**63 - 1, 0)):
            self.refuses(RuntimeError, "numel: integer multiplication overflow", call)


class ClearsList:
    """An integer; __index__ clears the enclosing list."""

    def __init__(self, value, within):
        self.value, self.within = value, within

    def __index__(self):
        self.within.clear()
        return self.value


class MutatedLists(Edges):
    def test_list_mutated_by_index_while_read(self):
        for call in (torch.zeros, lambda sizes: torch.zeros(6).view(sizes), lambda sizes: torch.zeros(6).sum(sizes),
                     lambda sizes: F.pad(torch.zeros(2), sizes), nn.LayerNorm):
            for _ in range(20):
                items = []
                items.extend([ClearsList(2, items), 10**3, ClearsList(3, items)])
                try:
                    call(items)
                except (RuntimeError, IndexError, TypeError, ValueError):
                    pass

    def test_rows_mutated_while_read(self):
        class Row:
            """Clears the enclosing list when its values are iterated."""

            def __len__(self):
                return 2

            def __getitem__(self, i):
                return 1.

            def __iter__(self):
                data.clear()
                return iter([1., 2.])

        for dtype in (torch.float32, None):
            data = [Row(), Row()]
            with self.assertRaises((RuntimeError, IndexError, ValueError)):
                torch.tensor(data, dtype=dtype)

    def test_tensors_removed_by_other_thread_outlive_call(self):
        stop, tensors = threading.Event(), []

        def change():
            while not stop.is_set():
                tensors.clear()
                tensors.extend(torch.ones(40000) for _ in range(3))

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(50):
                try:
                    total = torch.cat(tensors)
                except (RuntimeError, ValueError):
                    continue
                self.assertTrue(bool((total == 1).all()))
        finally:
            stop.set()
            thread.join()


class InvalidArguments(Edges):
    def test_ambiguous_tensor_as_bool(self):
        many = torch.zeros(2, 2)
        for make in (nn.ReLU, nn.SELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.PoissonNLLLoss, lambda t: nn.LeakyReLU(.1, t),
                     lambda t: nn.Dropout2d(.5, t), lambda t: nn.GaussianNLLLoss(full=t),
                     lambda t: torch.utils.data.DataLoader([1, 2], 2, t)):
            self.refuses(RuntimeError, "Boolean value of Tensor with more than one value is ambiguous", make, many)
        layer = nn.ReLU()
        with self.assertRaisesRegex(RuntimeError, "Boolean value of Tensor"):
            layer.inplace = many
        self.assertIs(layer.inplace, False)

    def test_string_arguments_are_type_checked(self):
        self.refuses(TypeError, "kaiming_normal_(): argument 'mode' (position 3) must be str, not Tensor", nn.init.kaiming_normal_,
                     torch.zeros(2, 2), 0, torch.zeros(2, 2))
        self.refuses(TypeError, "meshgrid() got an unexpected keyword argument 'order'", torch.meshgrid, torch.ones(2), torch.ones(2),
                     order="xy")
        self.refuses(TypeError, "index_put_(): argument", torch.zeros(3).index_put_, torch.tensor([1]), 5)
        for indices in None, 3, torch.tensor([1]):
            text = f"(): argument 'indices' must be tuple of Tensors, not {type(indices).__name__}"
            self.refuses(TypeError, "index_put_" + text, torch.zeros(3).index_put_, indices, torch.ones(1))
            self.refuses(TypeError, "index_put" + text, torch.index_put, torch.zeros(3), indices, torch.ones(1), True)

    def test_data_parallel_needs_module(self):
        self.refuses(TypeError, "data_parallel() takes a Module, not function", nn.parallel.data_parallel, lambda x: x, torch.ones(2, 2))
        self.refuses(TypeError, "_replicate(): argument 'module' (position 1) must be Module, not int", torch._C._replicate, 1, [0])

    def test_gather_and_reduce_take_iterables(self):
        if torch.cuda.device_count() == 0:
            self.skipTest("requires a device")
        parts = torch.ones(2, 3, device="cuda")
        comm = torch.cuda.comm
        self.assertEqual(comm.gather(parts).tolist(), [1] * 6)
        self.assertEqual(comm.gather(iter([parts, parts])).shape, (4, 3))
        self.assertEqual(comm.reduce_add(parts).tolist(), [2, 2, 2])
        self.assertEqual(comm.reduce_add(iter([parts, parts])).tolist(), [[2, 2, 2]] * 2)

    def test_recursive_containers_cannot_be_collated(self):
        collate = torch.utils.data.default_collate
        alone, mixed, named = [], [1], {}
        alone.append(alone), mixed.append(mixed), named.update(own=named)
        for held in (alone, [named]):
            self.refuses(RecursionError, "maximum recursion depth exceeded", collate, held)
        with self.assertRaises((TypeError, RuntimeError)):
            collate(mixed)


class Values(Edges):
    @each_device
    def test_max_and_min_with_zero_dim_tensor(self):
        x = torch.tensor([1, 5, 2])
        self.assertEqual(torch.max(x, torch.tensor(2)).tolist(), [2, 5, 2])
        self.assertEqual(x.min(torch.tensor(2)).tolist(), [1, 2, 2])
        self.assertEqual(torch.max(x, 0).indices.item(), 1)
        self.assertEqual(torch.max(x, dim=torch.tensor(0, device="cpu")).values.item(), 5)

    @each_device
    def test_uint8_interpolate_rounds(self):
        ramp = torch.arange(0, 250, 50, dtype=torch.uint8).view(1, 1, 1, 5)
        wide = F.interpolate(ramp.expand(1, 1, 5, 5), scale_factor=2, mode="bilinear")
        self.assertEqual(wide[0, 0, 0].tolist(), [0, 13, 38, 63, 88, 113, 138, 163, 188, 200])
        sharp = torch.tensor([[0, 0, 255, 255, 255]], dtype=torch.uint8).expand(5, 5)[None, None]
        out = F.interpolate(sharp, scale_factor=2, mode="bicubic")
        self.assertEqual((out.dtype, out.min().item(), out.max().item()), (torch.uint8, 0, 255))
        with self.assertRaisesRegex(NotImplementedError, "not implemented for 'Long'"):
            F.interpolate(ramp.long(), size=(2, 2), mode="bilinear")

    @each_device
    def test_float64_interpolate_uses_float64_weights(self):
        x = torch.tensor([0., 1.], dtype=torch.float64).view(1, 1, 2)
        self.assertEqual(F.interpolate(x, size=7, mode="linear", align_corners=True)[0, 0, 1].item(), 1 / 6)

    @each_device
    def test_cosine_similarity_broadcasts(self):
        x, y = torch.ones(3, 1), torch.tensor([1., 2., 3., 4.])
        wide = F.cosine_similarity(x.expand(3, 4), y.expand(3, 4), dim=1)
        self.assertTrue(torch.equal(F.cosine_similarity(x, y, dim=1), wide))
        self.assertLessEqual(wide.max().item(), 1)

    @each_device
    def test_gaussian_nll_loss_var_broadcasts(self):
        x, y, var = torch.ones(2, 2, 2), torch.zeros(2, 2, 2), torch.tensor([[1., 2.], [3., 4.]])
        wanted = F.gaussian_nll_loss(x, y, var[..., None].expand(2, 2, 2), reduction="none")
        self.assertTrue(torch.equal(F.gaussian_nll_loss(x, y, var, reduction="none"), wanted))
        self.assertTrue(torch.equal(nn.GaussianNLLLoss(reduction="none")(x, y, var[..., None]), wanted))
        self.refuses(ValueError, "var is of incorrect size", F.gaussian_nll_loss, x, y, torch.ones(2))

    @each_device
    def test_gradients_of_scattered_and_filled_values(self):
        source = torch.ones(2, 2, requires_grad=True)
        torch.zeros(3).masked_scatter(torch.tensor([True, False, True]), source * 1).mul(torch.tensor([2., 3., 4.])).sum().backward()
        self.assertEqual(source.grad.tolist(), [[2, 4], [0, 0]])
        for put in (lambda x, v: x.index_fill(0, torch.tensor([0, 2]), v), lambda x, v: x.clone().index_fill_(0, torch.tensor([0, 2]), v),
                    lambda x, v: x.masked_fill(torch.tensor([True, False, True]), v)):
            x, value = torch.zeros(3, requires_grad=True), torch.tensor(5., requires_grad=True)
            y = put(x, value)
            y.mul(torch.tensor([2., 3., 4.])).sum().backward()
            self.assertEqual((y.tolist(), x.grad.tolist(), value.grad.item()), ([5, 0, 5], [0, 3, 0], 6))
        self.refuses(RuntimeError, "index_fill_ only supports a 0-dimensional value tensor, but got tensor with 1 dimension(s).",
                     torch.zeros(3).index_fill, 0, torch.tensor([0]), torch.ones(1))

    @each_device
    def test_clamp_with_min_above_max(self):
        low, high = (torch.full((2,), v, requires_grad=True) for v in (2., 1.))
        x = torch.tensor([0., 5.], requires_grad=True)
        y = torch.clamp(x, low, high)
        y.sum().backward()
        self.assertEqual([t.tolist() for t in (y, x.grad, low.grad, high.grad)], [[1, 1], [0, 0], [0, 0], [1, 1]])

    @each_device
    def test_clamp_with_nan_bounds(self):
        x, nan = torch.tensor([1., 2.]), float("nan")
        for y in (torch.clamp(x, nan, 1.), x.clamp(torch.tensor(nan), torch.tensor(1.)), x.clamp(max=nan), x.clamp_min(torch.tensor(nan))):
            self.assertTrue(bool(y.isnan().all()))
        self.assertEqual(torch.clamp(torch.tensor([nan]), 0., 1.).isnan().tolist(), [True])

    @each_device
    def test_dropout2d_of_non_images_warns(self):
        with self.assertWarnsRegex(UserWarning, "dropout2d: Received a 3D input to dropout2d"):
            y = F.dropout2d(torch.ones(20, 30, 2))
        self.assertTrue(torch.equal(y[..., 0], y[..., 1]))
        self.assertTrue(0 < y[..., 0].count_nonzero() < 600)
        self.assertGreater(len({tuple(row) for row in y[..., 0].tolist()}), 2)
        with self.assertWarnsRegex(UserWarning, "dropout2d: Received a 2-D input to dropout2d, which is deprecated"):
            self.assertEqual(nn.Dropout2d(.5)(torch.randn(2, 4)).shape, (2, 4))
        self.refuses(RuntimeError, "Feature dropout requires at least 2 dimensions in the input", F.dropout2d, torch.ones(3))
        self.refuses(RuntimeError, "dropout1d: Expected 2D or 3D input, but received a 4D input. Note", F.dropout1d, torch.ones(1, 1, 1, 1))

    @each_device
    def test_circular_pad_with_negative_padding(self):
        x = torch.arange(16.).view(1, 1, 4, 4)
        self.assertEqual(F.pad(x, (-1, 1, -2, 1), "circular").tolist(), [[[[9, 10, 11, 9], [13, 14, 15, 13], [9, 10, 11, 9]]]])
        self.assertEqual(F.pad(torch.ones(1, 1, 0, 2), (1, 1, 0, 0), "circular").shape, (1, 1, 0, 4))
        same = F.pad(x, (0, 0, 0, 0), "reflect")
        self.assertTrue(torch.equal(same, x) and same.data_ptr() != x.data_ptr())

    @each_device
    def test_bce_with_large_logits_is_finite(self):
        loss = F.binary_cross_entropy_with_logits(torch.tensor([-200.]), torch.tensor([1.]), pos_weight=torch.tensor([2.]))
        self.assertEqual(loss.item(), 400)

    @each_device
    def test_nonzero_of_scalar_and_out(self):
        self.assertEqual([t.tolist() for t in torch.nonzero(torch.tensor(1.), as_tuple=True)], [[0]])
        self.assertEqual([t.tolist() for t in torch.tensor(0.).nonzero(as_tuple=True)], [[]])
        out = torch.zeros(1, 2, dtype=torch.int64)[:, ::2]
        self.assertIs(torch.nonzero(torch.tensor([0, 3]), out=out), out)
        self.assertEqual(out.tolist(), [[1]])
        self.refuses(RuntimeError, "nonzero: Expected out tensor to have scalar type Long but got scalar typeFloat", torch.nonzero,
                     torch.tensor([0, 3]), out=torch.zeros(1, 1))

    @each_device
    def test_untracked_running_statistics_are_kept(self):
        layer = nn.BatchNorm1d(2)
        layer.track_running_stats = False
        layer(torch.randn(4, 2))
        self.assertEqual((layer.running_mean.tolist(), layer.num_batches_tracked.item()), ([0, 0], 0))
        layer.eval()
        self.assertAlmostEqual(layer(torch.full((4, 2), 7.)).mean().item(), 7, 3)

    def test_iterable_dataset_length_in_batches(self):
        class Ten(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(range(10))

            def __len__(self):
                return 10

        loader = torch.utils.data.DataLoader
        self.assertEqual([len(loader(Ten(), **how)) for how in ({"batch_size": 2}, {"batch_size": 4}, {"batch_size": 4, "drop_last": True},
                                                                {"batch_size": None})], [5, 3, 2, 10])

    @each_device
    def test_integer_linspace_truncates_start(self):
        self.assertEqual(torch.linspace(4.9, 0.9, 5, dtype=torch.int64).tolist(), [4, 3, 2, 1, 0])

    def test_meshgrid_errors(self):
        self.refuses(RuntimeError, "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: ", torch.meshgrid,
                     torch.ones(2, 2), torch.ones(2))
        self.refuses(RuntimeError, "torch.meshgrid expects all tensors to have the same dtype", torch.meshgrid, torch.ones(2),
                     torch.ones(2, dtype=torch.int64))

    def test_hash_is_id(self):
        x = torch.ones(2)
        self.assertEqual(hash(x), id(x))

    @each_device
    def test_shrink_thresholds_in_half_precision(self):
        for dtype in (torch.bfloat16, torch.float16):
            x = torch.tensor([0.3, -0.3, 0.5], dtype=dtype)
            self.assertEqual(F.hardshrink(x, 0.3).tolist(), [0, 0, 0.5])
            wanted = (x.float() - 0.3 * x.float().sign()).clamp(min=0).to(dtype)
            self.assertEqual(F.softshrink(x, 0.3)[::2].tolist(), wanted[::2].tolist())

    @each_device
    def test_hardshrink_and_gradient(self):
        x = torch.tensor([math.nan, -math.inf, -0.5, 0.5, 0.75, -0.0], requires_grad=True)
        y = F.hardshrink(x)
        self.assertEqual(repr(y.tolist()), repr([math.nan, -math.inf, 0.0, 0.0, 0.75, 0.0]))
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), [1, 1, 0, 0, 1, 0])
        self.assertEqual(F.hardshrink(x, -1).tolist()[1:], x.tolist()[1:])

    @each_device
    def test_zero_dim_losses_and_broadcast_var(self):
        x, none = torch.tensor(0.25), torch.tensor(0)
        self.assertEqual(F.multi_margin_loss(x, none).tolist(), 0)
        self.assertEqual(F.multilabel_margin_loss(x, none).tolist(), 0)
        rows, var = torch.tensor([[1.0, 2], [3, 4]]), torch.tensor([[1.0, 4]])
        want = F.gaussian_nll_loss(rows, torch.zeros(2, 2), var.expand(2, 2).clone())
        self.assertEqual(F.gaussian_nll_loss(rows, torch.zeros(2, 2), var).tolist(), want.tolist())
        with self.assertRaisesRegex(ValueError, "^var is of incorrect size$"):
            F.gaussian_nll_loss(rows, rows, torch.ones(1, 1))

    @each_device
    def test_binary_cross_entropy_target_and_second_gradients(self):
        x, t = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ([0.25, 0.5], [1.0, 0.25]))
        of_x, of_t = torch.autograd.grad(F.binary_cross_entropy(x, t, reduction="sum"), (x, t), create_graph=True)
        self.assertEqual(of_x.tolist(), [-4, 1])
        self.assertEqual(of_t.tolist(), (torch.log(1 - x) - torch.log(x)).tolist())
        again = torch.autograd.grad(of_x.sum(), (x, t))
        for have, want in zip(again, ([16.0, 4.0], [-16 / 3, -4.0])):
            self.assertTrue(torch.allclose(have, torch.tensor(want, dtype=torch.float64)))

    def test_embedding_bag_argument_order_warns(self):
        weight, rows = torch.tensor([[1.0], [2], [4]]), torch.tensor([[0, 2], [1, 1]])
        with warnings.catch_warnings(record=True) as caught_warnings:
            warnings.simplefilter("always")
            self.assertEqual(F.embedding_bag(weight, rows, mode="sum").tolist(), [[5], [4]])
        self.assertRegex(str(caught_warnings[0].message), "^Argument order of nn.functional.embedding_bag was changed")

    @each_device
    def test_masked_scatter_broadcasts_to_mask(self):
        made = torch.zeros(2).masked_scatter(torch.tensor([[True, False], [True, True]]), torch.tensor([1.0, 2, 3]))
        self.assertEqual(made.tolist(), [[1, 0], [2, 3]])
        with self.assertRaisesRegex(RuntimeError, r"^expand\(C(PU|UDA)BoolType\{\[2, 2\]\}, size=\[2\]\)"):
            torch.zeros(2).masked_scatter_(torch.ones(2, 2, dtype=torch.bool), torch.ones(4))

    @each_device
    def test_adaptive_pooling_none_sizes(self):
        x = torch.arange(40.0).reshape(1, 2, 4, 5)
        for layer, function in (nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d), (nn.AdaptiveMaxPool2d, F.adaptive_max_pool2d):
            pool = layer((3, None))
            self.assertEqual((repr(pool), pool.output_size), (layer.__name__ + "(output_size=(3, None))", (3, None)))
            self.assertEqual(pool(x).tolist(), function(x, (3, 5)).tolist())
        self.assertEqual(nn.AdaptiveMaxPool3d((None, 2, None), return_indices=True)(x)[1].shape, (1, 2, 2, 5))
        self.assertEqual(nn.AdaptiveAvgPool3d([None, None, 2])(x).shape, (1, 2, 4, 2))
        for make in lambda: nn.AdaptiveAvgPool1d((None,)), lambda: nn.MaxPool2d((2, None)):
            self.refuses(TypeError, "'NoneType' object cannot be interpreted as an integer", make)

    def test_circular_pad_input_dimensions(self):
        for layer, text in ((nn.CircularPad1d, "expected 2D or 3D input (got 1D input)"), (nn.CircularPad2d, "expected 3D or 4D input (got 1D input)"),
                            (nn.CircularPad3d, "expected 4D or 5D input (got 1D input)")):
            self.refuses(ValueError, text, layer(1), torch.ones(3))

    @each_device
    def test_uint8_interpolate_rounds_per_dimension(self):
        x = torch.tensor([[[[0, 10, 201], [7, 255, 3], [90, 1, 4]]]], dtype=torch.uint8)
        self.assertEqual(F.interpolate(x, size=(2, 5), mode="bilinear").tolist(), [[[[2, 30, 71, 120, 152], [69, 67, 65, 28, 4]]]])
        self.assertEqual(F.interpolate(x, size=(5, 2), mode="bicubic", align_corners=True).tolist(), [[[[0, 201], [0, 102], [7, 3], [49, 0], [90, 4]]]])

    @each_device
    def test_half_precision_interpolate_rounds_once(self):
        x = torch.linspace(-7, 9, 30).sin().reshape(1, 1, 5, 6).bfloat16()
        for mode in "bilinear", "bicubic":
            self.assertEqual(F.interpolate(x, size=(7, 4), mode=mode).tolist(), F.interpolate(x.float(), size=(7, 4), mode=mode).bfloat16().tolist())

    @each_device
    def test_attention_without_heads(self):
        q, k = torch.ones(0, 3, 8), torch.ones(0, 6, 8)
        self.assertEqual(F.scaled_dot_product_attention(q, k, k, enable_gqa=True).shape, (0, 3, 8))

    @each_device
    def test_norm_of_one_element_is_its_absolute_value(self):
        for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
            for value, p in itertools.product((1e200, -1e-200, 5e-324, math.inf), (0.5, 1, 2, 3, -1, math.inf, -math.inf)):
                x = torch.tensor([[value, 3.0]], dtype=torch.float64, device=device)
                self.assertEqual(torch.linalg.vector_norm(x, p, dim=0).tolist(), [abs(value), 3], (value, p))
                self.assertEqual(x[0, :1].norm(p).item(), abs(value))
            self.assertEqual(torch.linalg.vector_norm(torch.tensor([[0.0, 3.0]], device=device), 0, dim=0).tolist(), [0, 1])

    def test_norm_of_empty_dimension(self):
        x = torch.zeros(0, 2)
        for norm in torch.linalg.vector_norm, torch.masked.norm:
            self.refuses(RuntimeError, "linalg.vector_norm cannot compute the inf norm on the dimension 0because this dimension is empty and the "
                         "operation does not have an identity", norm, x, float("inf"), dim=0)
            self.assertEqual(norm(x, 2, dim=0).tolist(), [0, 0])
            self.assertEqual(norm(x, float("inf"), dim=1).shape, (0,))

    def test_layer_constructor_types(self):
        for text, call in (
                ("input_size should be of type int, got: float", lambda: nn.GRU(3.0, 5)),
                ("hidden_size should be of type int, got: str", lambda: nn.LSTM(3, "5")),
                ("bias should be of type bool, got: int", lambda: nn.RNN(3.0, 5, bias=1)),
                ("dim must be an int or None, got <class 'bool'>", lambda: nn.Softmax(True)),
                ("dim must be an int or None, got <class 'float'>", lambda: nn.LogSoftmax(dim=1.0)),
                ("delta must be a float or int, got: <class 'complex'>", lambda: nn.HuberLoss(delta=1j))):
            with self.assertRaisesRegex(TypeError, "^" + re.escape(text) + "$"):
                call()
        self.assertEqual(nn.GRU(True, 5).input_size, 1)

    @each_device
    def test_instance_norm_of_empty_batch(self):
        x = torch.zeros(0, 3)
        self.assertEqual(F.batch_norm(x, torch.zeros(3), torch.ones(3), torch.ones(3), torch.ones(3)).shape, (0, 3))
        with self.assertRaisesRegex(IndexError, r"^select\(\): index 0 out of range for tensor of size \[0\] at dimension 0$"):
            F.instance_norm(torch.zeros(0, 3, 2), weight=torch.ones(3))

    def test_invalid_argument_values(self):
        one, rows = torch.ones(2), torch.ones(2, 3)
        for error, text, call in (
                (RuntimeError, "lambda must be in range [0, 3.40282e+38] for input dtype Float, but found -1", lambda: F.softshrink(one, -1)),
                (RuntimeError, "lambda must be in range [0, 3.40282e+38] for input dtype Float, but found -1", lambda: nn.Softshrink(-1)(one)),
                (ValueError, "min_val cannot be greater than max_val", lambda: F.hardtanh(one, 1, -1)),
                (RuntimeError, "approximate argument must be either none or tanh.", lambda: F.gelu(one, approximate="bad")),
                (RuntimeError, "approximate argument must be either none or tanh.", lambda: nn.GELU("bad")(one)),
                (ValueError, "margin must be greater than 0, got -1.0", lambda: F.triplet_margin_loss(rows, rows, rows, margin=-1.0)),
                (ValueError, "TripletMarginLoss: expected margin to be greater than 0, got -1", lambda: nn.TripletMarginLoss(-1)),
                (RuntimeError, "rtol must be greater than or equal to zero, but got -1", lambda: torch.isclose(one, one, rtol=-1)),
                (RuntimeError, "atol must be greater than or equal to zero, but got -2", lambda: torch.allclose(one, one, atol=-2)),
                (ValueError, "Expected more than 1 value per channel when training, got input size [1, 2]",
                 lambda: nn.GroupNorm(2, 2)(torch.ones(1, 2))),
                (RuntimeError, "1D target tensor expects 2D input tensors, but found inputs with sizes [2, 3, 4] and [2, 3, 4].",
                 lambda: F.cosine_embedding_loss(torch.ones(2, 3, 4), torch.ones(2, 3, 4), one)),
                (RuntimeError, "0D target tensor expects 1D input tensors, but found inputs with sizes [2, 3] and [2, 3].",
                 lambda: F.cosine_embedding_loss(rows, rows, torch.tensor(1.))),
                (RuntimeError, "0D or 1D target tensor expected, multi-target not supported",
                 lambda: F.cosine_embedding_loss(rows, rows, rows))):
            self.refuses(error, text, call)


class MalformedInputs(unittest.TestCase):
    def test_invalid_utf8(self):
        for call in (lambda: torch.nn.GELU("\ud800"), lambda: torch.nn.Conv2d(1, 1, 1, padding="\ud800"), lambda: torch.nn.L1Loss(reduction="\ud800"),
                     lambda: torch.nn.functional.gelu(torch.ones(2), approximate="\ud800")):
            with self.assertRaises(UnicodeEncodeError):
                call()

    def test_invalid_setstate(self):
        for state, error in ((3, TypeError), ({"_parameters": {"weight": 3}}, TypeError), ({"_buffers": {"x": "y"}}, TypeError), ({"_modules": 3}, TypeError),
                             ({"_parameters": {1: None}}, TypeError)):
            with self.subTest(state=state), self.assertRaises(error):
                torch.nn.Linear(2, 2).__setstate__(state)

    def test_torch_function_types_must_be_sequence(self):
        with self.assertRaisesRegex(TypeError, "types must be a sequence"):
            torch.Tensor.__torch_function__(lambda *a: a, 0, torch.ones(2))

    def test_torch_function_kwargs_must_be_mapping(self):
        def names(*args, **kwargs):
            return sorted(kwargs)
        for function in (torch.Tensor.__torch_function__, torch._C._disabled_torch_function_impl):
            with self.assertRaisesRegex(TypeError, r"argument after \*\* must be a mapping, not float"):
                function(names, (), (), 3.0)
            self.assertEqual(function(names, (), (), collections.UserDict(a=1)), ["a"])

    def test_device_index_beyond_c_int(self):
        for call in (torch.cuda.synchronize, torch.cuda.get_device_properties, torch.cuda.memory_allocated, torch.cuda.get_device_name):
            with self.subTest(call=call), self.assertRaises((RuntimeError, AssertionError)):
                call(2 ** 32)


class MemoryOverlap(Edges):
    WRITTEN = "unsupported operation: more than one element of the written-to tensor refers to a single memory location."
    READ = "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location."

    def assert_raises_unchanged(self, x, text, call):
        """Checks that the call raises and leaves x unchanged."""
        before = x.clone()
        self.refuses(RuntimeError, text, call)
        self.assertTrue(torch.equal(x, before))

    @each_device
    def test_partial_overlap_raises(self):
        x, i, mask = torch.arange(6.), torch.tensor([1, 0]), torch.tensor([True, False, True])
        for call in (lambda: torch.add(x[:3], 1, out=x[1:4]), lambda: torch.cat([x[:2], x[2:]], out=x), lambda: x[:3].add_(x[1:4]),
                     lambda: x.__setitem__(slice(2, 5), x[3:6]), lambda: x[:4].copy_(x[1:5]), lambda: x.sub_(x[0]),
                     lambda: torch.gather(x, 0, torch.tensor([5, 4, 3]), out=x[:3]), lambda: x[:3].scatter_(0, i, x[1:3]),
                     lambda: x[:3].scatter_add_(0, i, x[1:3]), lambda: x[:3].index_add_(0, i, x[1:3]), lambda: x[:3].index_copy_(0, i, x[1:3]),
                     lambda: x[:3].__setitem__(i, x[1:3]), lambda: torch.where(mask, x[:3], x[:3], out=x[1:4]),
                     lambda: torch.index_select(x, 0, i, out=x[:2]), lambda: torch.stack([x[:2], x[2:4]], out=x[1:5].view(2, 2)),
                     lambda: x[:4].lerp_(x[1:5], .5)):
            self.assert_raises_unchanged(x, self.READ, call)

    @each_device
    def test_scatter_from_output_raises(self):
        x, i = torch.arange(3.), torch.tensor([2, 1, 0])
        whole = torch.arange(3)
        for t, call in ((x, lambda: x.scatter_(0, i, x)), (x, lambda: x.index_copy_(0, i, x)), (x, lambda: x.index_add_(0, i, x)),
                        (x, lambda: x.__setitem__(i, x)), (x, lambda: torch.gather(x, 0, i, out=x)),
                        (x, lambda: torch.index_select(x, 0, i, out=x)), (whole, lambda: whole.scatter_(0, whole, 5)),
                        (whole, lambda: whole.index_fill_(0, whole, 5))):
            self.assert_raises_unchanged(t, self.READ, call)
        square = torch.ones(2, 2)
        self.assert_raises_unchanged(square, self.READ, lambda: square.addmm_(square, square))

    @each_device
    def test_full_overlap_is_allowed(self):
        x = torch.arange(4.).view(2, 2)
        self.assertEqual(torch.add(x, x, out=x).tolist(), [[0, 2], [4, 6]])
        self.assertEqual(x.copy_(x).tolist(), [[0, 2], [4, 6]])
        self.assertEqual(torch.mm(x, x, out=x).tolist(), [[8, 12], [24, 44]])
        self.assertEqual(torch.cumsum(x, 0, out=x).tolist(), [[8, 12], [32, 56]])
        y = torch.arange(6.)
        self.assertEqual(y[::2].add_(y[1::2]).tolist(), [1, 5, 9])
        self.assertEqual(y[:3].mul_(y[3:]).tolist(), [3, 9, 25])
        z = torch.arange(6.)
        self.assertEqual(z.masked_scatter_(z > 2, z).tolist(), [0, 1, 2, 0, 1, 2])

    @each_device
    def test_expanded_outputs_raise(self):
        x, i = torch.zeros(1).expand(3), torch.tensor([0])
        for call in (lambda: x.add_(1), lambda: x.copy_(torch.ones(3)), lambda: torch.add(torch.ones(3), 1, out=x), lambda: x.normal_(),
                     lambda: x.index_add_(0, i, torch.ones(1)), lambda: x.scatter_(0, i, 1.),
                     lambda: x.index_copy_(0, i, torch.ones(1)), lambda: x.masked_scatter_(torch.tensor([True] * 3), torch.ones(3)),
                     lambda: torch.mm(torch.ones(1, 1), torch.ones(1, 3), out=x[None]), lambda: torch.gather(torch.ones(3), 0, i, out=x)):
            self.assert_raises_unchanged(x, self.WRITTEN, call)
        for call, value in ((lambda: x.fill_(2), 2), (lambda: x.fill_(torch.tensor(3.)), 3), (lambda: x.zero_(), 0),
                            (lambda: x.masked_fill_(torch.tensor([True, False, True]), 4), 4), (lambda: x.index_fill_(0, i, 5), 5)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()
            self.assertEqual(x.tolist(), [value] * 3)

    @each_device
    def test_index_writes_to_expanded_tensors_warn(self):
        i, mask = torch.tensor([0, 1]), torch.tensor([True, False, True])
        for name, value, call in (("index_put_", 6, lambda x: x.index_put_((i,), torch.tensor([6., 6.]))),
                                  ("index_put_", 11, lambda x: x.index_put_((i,), torch.tensor([5., 6.]), accumulate=True)),
                                  ("index_put_", 6, lambda x: x.__setitem__(i, torch.tensor([6., 6.]))),
                                  ("index_put_", 6, lambda x: x.expand(2, 3).__setitem__((i, i), torch.tensor([6., 6.]))),
                                  ("index_fill_", 7, lambda x: x.index_fill_(0, i, 7.)),
                                  ("index_fill_", 7, lambda x: x.index_fill_(0, i, torch.tensor(7.))),
                                  ("masked_fill_", 4, lambda x: x.masked_fill_(mask, 4.)),
                                  ("masked_fill_", 4, lambda x: x.masked_fill_(mask, torch.tensor(4.)))):
            x = torch.zeros(1).expand(3)
            with self.assertWarnsRegex(UserWarning, f"^Use of {name} on expanded tensors is deprecated. Please clone\\(\\) the tensor before"):
                call(x)
            self.assertEqual(x.tolist(), [value] * 3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.zeros(3, 2).t().index_put_((i,), torch.ones(3))  # non-contiguous, but not expanded
            torch.zeros(1).expand(1).index_fill_(0, i[:1], 7.)


class LayoutsAndFormats(Edges):
    """Layouts, memory formats and names: unsupported ones raise an error naming them."""

    @each_device
    def test_channels_last_rank_errors(self):
        x, volume = torch.ones(2, 3, 4), torch.ones(2, 3, 4, 5, 6)
        for call in (lambda t, **how: t.to(**how), lambda t, **how: t.to(torch.float64, **how), lambda t, **how: t.contiguous(**how),
                     lambda t, **how: t.clone(**how), lambda t, **how: t.double(**how), lambda t, **how: t.cpu(**how),
                     lambda t, **how: torch.empty(t.shape, **how), lambda t, **how: torch.empty_like(t, **how),
                     lambda t, **how: torch.ones_like(t, **how)):
            self.refuses(RuntimeError, "required rank 4 tensor to use channels_last format", call, x, memory_format=torch.channels_last)
            self.refuses(RuntimeError, "required rank 4 tensor to use channels_last format", call, volume, memory_format=torch.channels_last)
            self.refuses(RuntimeError, "required rank 5 tensor to use channels_last_3d format", call, x, memory_format=torch.channels_last_3d)
        self.refuses(RuntimeError, "preserve memory format is unsupported by the contiguous operator", x.transpose(0, 1).contiguous,
                     memory_format=torch.preserve_format)
        self.assertTrue(x.contiguous(memory_format=torch.preserve_format) is x and x.is_contiguous(memory_format=torch.preserve_format))

    @each_device
    def test_is_contiguous_channels_last(self):
        x, volume = torch.ones(2, 3, 3, 2).permute(0, 3, 1, 2), torch.ones(2, 3, 3, 4, 5).permute(0, 4, 1, 2, 3)
        plain = torch.ones(2, 2, 3, 3)
        last, last_3d = torch.channels_last, torch.channels_last_3d
        self.assertEqual([t.is_contiguous(memory_format=last) for t in (x, plain, volume, torch.ones(2, 2), torch.ones(2, 1, 3, 3))],
                         [True, False, False, False, True])
        self.assertEqual([t.is_contiguous(memory_format=last_3d) for t in (volume, x)], [True, False])
        self.assertEqual([t.is_contiguous() for t in (x, plain)], [False, True])
        self.assertTrue(plain.is_contiguous(memory_format=torch.contiguous_format))

    @each_device
    def test_supported_formats_and_layouts(self):
        x = torch.ones(2, 3).t()
        for kept in (torch.preserve_format, None):
            self.assertEqual(torch.ones_like(x, memory_format=kept).stride(), (1, 3))
        self.assertEqual(torch.ones_like(x, memory_format=torch.contiguous_format).stride(), (2, 1))
        self.assertTrue(x.contiguous(memory_format=torch.contiguous_format).is_contiguous())
        for layout in (torch.strided, None):
            for made in (torch.ones(2, layout=layout), torch.tensor([1., 1.], layout=layout), torch.ones(2).new_ones(2, layout=layout)):
                self.assertEqual(made.tolist(), [1, 1])

    @each_device
    def test_sparse_layouts_and_names(self):
        x = torch.ones(2)
        for make in (lambda **how: torch.ones(2, **how), lambda **how: torch.zeros_like(x, **how), lambda **how: torch.tensor([1.], **how),
                     lambda **how: x.new_zeros(2, **how), lambda **how: torch.scalar_tensor(1, **how),
                     lambda **how: x.new_tensor([1], **how), lambda **how: torch.arange(3, **how)):
            self.refuses(NotImplementedError, "layout=torch.sparse_coo is not implemented in Phlox", make, layout=torch.sparse_coo)
            with self.assertRaisesRegex(TypeError, "must be torch.layout, not str"):
                make(layout="strided")
        for make in (lambda **how: torch.ones(2, **how), lambda **how: torch.tensor([1.], **how)):
            self.refuses(NotImplementedError, "named tensors (names=) are not implemented in Phlox", make, names=("a",))
            self.assertEqual(make(names=None).dim(), 1)

    def test_ops_without_layout_arguments(self):
        for name, value in (("layout", torch.strided), ("names", ("a",)), ("memory_format", torch.preserve_format)):
            for call in (torch.ones(2).sum, torch.ones(2).add, torch.ones(2).exp):
                with self.assertRaisesRegex(TypeError, "unexpected keyword|invalid combination|missing"):
                    call(**{name: value})
        self.refuses(TypeError, "empty(): argument 'memory_format' must be torch.memory_format, not str", torch.empty, 2,
                     memory_format="channels_last")


class Settings(Edges):
    """Settings and options once accepted without effect."""

    def test_fp32_precision(self):
        backends = torch.backends
        try:
            for where in (backends, backends.cuda.matmul, backends.cudnn):
                with self.assertRaisesRegex(RuntimeError, "^Unknown precision: nonsense"):
                    where.fp32_precision = "nonsense"
        finally:
            backends.fp32_precision = "none"
        self.assertEqual((backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32), (False, True))

    def test_unknown_matmul_setting(self):
        with self.assertRaisesRegex(AttributeError, "^Unknown attribute foo"):
            torch.backends.cuda.matmul.foo = 1

    def test_conflicting_optimizer_options(self):
        for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
            self.refuses(RuntimeError, "`fused` and `foreach` cannot be `True` together.", make, [torch.ones(1)], lr=1., fused=True,
                         foreach=True)
            self.refuses(RuntimeError, "`fused` does not support `differentiable`", make, [torch.ones(1)], lr=1., fused=True,
                         differentiable=True)

    def test_typed_constructors(self):
        x = torch.ones(2)
        self.assertEqual(torch.Tensor(x.long()).dtype, torch.int64)
        self.refuses(TypeError, "expected torch.LongTensor (got torch.FloatTensor)", torch.LongTensor, x)
        if torch.cuda.device_count():
            with self.assertWarns(UserWarning):
                self.refuses(TypeError, "expected torch.cuda.FloatTensor (got torch.FloatTensor)", torch.cuda.FloatTensor, x)
            self.refuses(TypeError, "expected torch.FloatTensor (got torch.cuda.FloatTensor)", torch.FloatTensor, x.cuda())
            self.assertEqual(torch.Tensor(x.cuda()).device.type, "cuda")

    @each_device
    def test_all_and_any_with_empty_dim(self):
        x = torch.tensor([[1, 0], [1, 1]])
        for op in (torch.all, torch.any):
            self.assertEqual(op(x, dim=()).tolist(), [[True, False], [True, True]])
        self.assertEqual((torch.all(x).item(), torch.any(x, dim=None).item(), torch.sum(x, dim=()).item()), (False, True, 3))

    @each_device
    def test_second_backward_through_scalar_multiplication(self):
        for op in (lambda x: x * 2, lambda x: 2 * x, lambda x: x / 2, lambda x: 2 / x, lambda x: x * x):
            x = torch.ones(2, requires_grad=True)
            y = op(x).sum()
            y.backward(retain_graph=True)
            y.backward()
            grad = x.grad.clone()
            self.refuses(RuntimeError, "Trying to backward through the graph a second time", y.backward)
            self.assertTrue(torch.equal(x.grad, grad))
        for op in (lambda x: x + 2, lambda x: 2 - x, lambda x: x.view(2, 1), lambda x: x.lerp(torch.zeros(2), .5)):
            x = torch.ones(2, requires_grad=True)
            y = op(x).sum()
            y.backward()
            y.backward()

    @each_device
    def test_saved_outputs_keep_output_nr(self):
        seen = []

        class Both(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                a, b = x * 2, x * 3
                ctx.save_for_backward(a, b, x)
                return a, b

            @staticmethod
            def backward(ctx, a, b):
                seen.extend((t.output_nr, t.requires_grad, t.is_leaf) for t in ctx.saved_tensors)
                return 2 * a + 3 * b

        x = torch.ones(2, requires_grad=True)
        sum(Both.apply(x)).sum().backward()
        self.assertEqual((seen, x.grad.tolist()), ([(0, True, False), (1, True, False), (0, True, True)], [5, 5]))


class Integers(Edges):
    @each_device
    def test_integer_overflow_wraps(self):
        for dtype in (torch.int64, torch.int32, torch.int16, torch.int8):
            most = torch.iinfo(dtype).max
            least = -most - 1
            x = torch.tensor([most, least], dtype=dtype)
            self.assertEqual([t.tolist() for t in (x + 1, x - 1, x * 2, -x, x.abs(), x.cumsum(0), x ** 2)],
                             [[least, least + 1], [most - 1, most], [-2, 0], [-most, least], [most, least],
                              x.long().cumsum(0).tolist(), [1, 0]])
        x = torch.tensor([2**63 - 1, 1])
        self.assertEqual((x.sum().item(), x.prod().item()), (-2**63, 2**63 - 1))
        if not x.is_cuda:  # no integer matmul on GPUs, as in PyTorch
            self.assertEqual(x.dot(x).item(), 2)
        self.assertEqual(torch.addcmul(x, x, x).tolist(), [-2**63, 2])

    @each_device
    def test_roll_by_large_shifts(self):
        x, weights = torch.arange(3., requires_grad=True), torch.tensor([1., 2., 4.])
        for shift in (-2**63, 2**63 - 1, -1, 7):
            x.grad = None
            (torch.roll(x, shift, 0) * weights).sum().backward()
            self.assertEqual(torch.roll(x, shift, 0).tolist(), torch.roll(x, shift % 3, 0).tolist())
            self.assertEqual(x.grad.tolist(), torch.roll(weights, -(shift % 3), 0).tolist())

    @each_device
    def test_integer_division_by_zero_raises_at_synchronization(self):
        for op in (torch.floor_divide, torch.remainder, torch.fmod, lambda a, b: torch.div(a, b, rounding_mode="trunc")):
            with self.assertRaisesRegex(RuntimeError, "^ZeroDivisionError"):
                op(torch.tensor([1, 2]), torch.tensor([0, 1])).tolist()
        self.assertEqual((torch.tensor([7]) // torch.tensor([2])).tolist(), [3])

    def test_array_interface_beyond_address_space(self):
        class Array:
            __array_interface__ = {"shape": (2**62, 2), "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3}

        class Spread(Array):
            __array_interface__ = dict(Array.__array_interface__, shape=(2, 2), strides=(2**62, 2**62))

        for array in (Array(), Spread()):
            with self.assertRaises((ValueError, RuntimeError, TypeError)):
                torch.as_tensor(array)


if __name__ == "__main__":
    unittest.main()
