# SPDX-License-Identifier: Apache-2.0
"""What ops do with nothing, with too much and with what cannot be, on the CPU and on a simulated device: PyTorch's values, or its
error before anything has changed."""
import functools
import os
import re
import threading
import unittest

os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import phlox as torch

F, nn = torch.nn.functional, torch.nn


def each_device(test):
    """Runs a test on the CPU, then on a device, if there is one: what it makes is there."""
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


class Windows(Edges):
    @each_device
    def test_a_convolution_of_no_channels_is_without_channels_and_its_gradients_are_zeros(self):
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
    def test_a_convolution_of_an_empty_batch_is_empty(self):
        self.assertEqual(F.conv2d(torch.ones(0, 2, 4, 4), torch.ones(3, 2, 3, 3)).shape, (0, 3, 2, 2))

    @each_device
    def test_kernels_without_elements_are_refused(self):
        text = "kernel size should be greater than zero, but got kernel_height: {} kernel_width: 0"
        for op in (F.conv2d, F.conv_transpose2d):
            self.refuses(RuntimeError, text.format(0), op, torch.ones(1, 2, 4, 4), torch.ones(2, 2, 0, 0))
        for op in (F.conv1d, F.conv_transpose1d):
            self.refuses(RuntimeError, text.format(1), op, torch.ones(1, 2, 4), torch.ones(2, 2, 0))

    @each_device
    def test_weights_that_groups_do_not_divide_are_refused(self):
        for op in (F.conv2d, F.conv_transpose2d):
            self.refuses(RuntimeError, "Given groups=2, expected weight to be divisible by 2 at dimension 0, but got weight of size "
                         "[[3, 1, 2, 2]] instead", op, torch.ones(1, 3, 4, 4), torch.ones(3, 1, 2, 2), groups=2)
            self.refuses(RuntimeError, "Given groups=1, expected weight to be at least 1 at dimension 0, but got weight of size "
                         "[0, 2, 3, 3] instead", op, torch.ones(1, 2, 4, 4), torch.ones(0, 2, 3, 3))

    @each_device
    def test_windows_of_impossible_measures_are_refused(self):
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
    def test_measures_whose_sums_no_number_holds_are_refused(self):
        image, kernel = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2)
        for name in ("stride", "padding", "dilation"):
            self.refuses(RuntimeError, "integer out of range", F.conv2d, image, kernel, **{name: 2**62})
            self.refuses(RuntimeError, "integer out of range", F.conv_transpose2d, image, kernel, **{name: 2**62})

    @each_device
    def test_pools_of_empty_images_are_refused_and_of_empty_batches_empty(self):
        for op in (F.max_pool2d, F.avg_pool2d):
            self.refuses(RuntimeError, "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, but got:"
                         "[1, 0, 4, 4]", op, torch.ones(1, 0, 4, 4), 2)
            self.assertEqual(op(torch.ones(0, 1, 4, 4), 2).shape, (0, 1, 2, 2))
        self.refuses(RuntimeError, "adaptive_avg_pool2d(): Expected input to have non-zero size for non-batch dimensions, but input "
                     "has sizes [1, 1, 0, 4] with dimension 2 being empty", F.adaptive_avg_pool2d, torch.ones(1, 1, 0, 4), 2)
        self.refuses(RuntimeError, "adaptive_avg_pool2d(): Expected input", F.adaptive_avg_pool1d, torch.ones(1, 1, 0), 2)
        self.refuses(RuntimeError, "adaptive_avg_pool2d: elements of output_size must be greater than or equal to 0",
                     F.adaptive_avg_pool2d, torch.ones(1, 1, 4, 4), -1)


class Nothing(Edges):
    @each_device
    def test_an_empty_batch_leaves_running_statistics_as_they_are(self):
        for layer, x in ((nn.BatchNorm1d(2), torch.zeros(0, 2)), (nn.BatchNorm2d(2), torch.zeros(2, 2, 0, 3)),
                         (nn.InstanceNorm1d(2, affine=True, track_running_stats=True), torch.zeros(2, 2, 0))):
            x.requires_grad_()
            y = layer(x)
            y.sum().backward()
            self.assertEqual((y.shape, x.grad.shape), (x.shape, x.shape))
            self.assertEqual((layer.running_mean.tolist(), layer.running_var.tolist()), ([0, 0], [1, 1]))
            self.assertEqual((layer.weight.grad.tolist(), layer.bias.grad.tolist()), ([0, 0], [0, 0]))

    @each_device
    def test_a_tensor_without_dimensions_has_none_to_roll_or_to_flip(self):
        for dim in (0, -1):
            self.refuses(IndexError, f"Dimension specified as {dim} but tensor has no dimensions", torch.roll, torch.tensor(1.), 0, dim)
        self.assertEqual(torch.roll(torch.tensor(1.), 3).tolist(), 1)
        self.refuses(RuntimeError, "Input must be >= 1-d.", torch.flipud, torch.tensor(1.))
        self.refuses(RuntimeError, "Input must be >= 2-d.", torch.fliplr, torch.ones(2))


class TooMuch(Edges):
    @each_device
    def test_repeats_whose_sum_no_tensor_holds_are_refused(self):
        for counts in ([2**62] * 3, [2**62] * 4, [2**61, 1, 0], [2**62, 1, 0]):
            with self.assertRaises(RuntimeError):
                torch.repeat_interleave(torch.zeros(len(counts)), torch.tensor(counts))
        self.refuses(RuntimeError, "repeats can not be negative", torch.repeat_interleave, torch.zeros(3), torch.tensor([1, -1, 2]))
        with self.assertRaisesRegex(RuntimeError, '"repeat_interleave_c\\w+" not implemented for \'Float\''):
            torch.repeat_interleave(torch.zeros(2), torch.ones(2))
        for call in (lambda: torch.zeros(2).repeat(2**62), lambda: torch.zeros(3).tile(2**62),
                     lambda: torch.zeros(2, 0).repeat_interleave(2**63 - 1, 0)):
            self.refuses(RuntimeError, "numel: integer multiplication overflow", call)


class Changing:
    """An integer whose __index__ empties a list: the one that it is in."""

    def __init__(self, value, within):
        self.value, self.within = value, within

    def __index__(self):
        self.within.clear()
        return self.value


class Lists(Edges):
    def test_a_list_may_be_changed_by_its_own_items_while_it_is_read(self):
        for call in (torch.zeros, lambda sizes: torch.zeros(6).view(sizes), lambda sizes: torch.zeros(6).sum(sizes),
                     lambda sizes: F.pad(torch.zeros(2), sizes), nn.LayerNorm):
            for _ in range(20):
                items = []
                items.extend([Changing(2, items), 10**3, Changing(3, items)])
                try:
                    call(items)
                except (RuntimeError, IndexError, TypeError, ValueError):
                    pass

    def test_a_list_of_rows_that_changes_while_it_is_read_is_refused(self):
        class Row:
            """Empties the list that it is in as soon as its values are asked for one by one."""

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

    def test_tensors_that_another_thread_takes_out_of_a_list_live_until_the_call_ends(self):
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


class Misfits(Edges):
    def test_a_tensor_of_several_elements_is_no_truth(self):
        many = torch.zeros(2, 2)
        for make in (nn.ReLU, nn.SELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.PoissonNLLLoss, lambda t: nn.LeakyReLU(.1, t),
                     lambda t: nn.Dropout2d(.5, t), lambda t: nn.GaussianNLLLoss(full=t),
                     lambda t: torch.utils.data.DataLoader([1, 2], 2, t)):
            self.refuses(RuntimeError, "Boolean value of Tensor with more than one value is ambiguous", make, many)
        layer = nn.ReLU()
        with self.assertRaisesRegex(RuntimeError, "Boolean value of Tensor"):
            layer.inplace = many
        self.assertIs(layer.inplace, False)

    def test_words_are_asked_for_their_type(self):
        self.refuses(TypeError, "kaiming_normal_(): argument 'mode' (position 3) must be str, not Tensor", nn.init.kaiming_normal_,
                     torch.zeros(2, 2), 0, torch.zeros(2, 2))
        self.refuses(TypeError, "meshgrid() got an unexpected keyword argument 'order'", torch.meshgrid, torch.ones(2), torch.ones(2),
                     order="xy")
        self.refuses(TypeError, "index_put_(): argument", torch.zeros(3).index_put_, torch.tensor([1]), 5)

    def test_only_a_module_is_run_in_parallel(self):
        self.refuses(TypeError, "data_parallel() takes a Module, not function", nn.parallel.data_parallel, lambda x: x, torch.ones(2, 2))
        self.refuses(TypeError, "_replicate(): argument 'module' (position 1) must be Module, not int", torch._C._replicate, 1, [0])

    def test_sums_and_gathers_take_what_can_be_iterated(self):
        if torch.cuda.device_count() == 0:
            self.skipTest("there is no device")
        parts = torch.ones(2, 3, device="cuda")
        comm = torch.cuda.comm
        self.assertEqual(comm.gather(parts).tolist(), [1] * 6)
        self.assertEqual(comm.gather(iter([parts, parts])).shape, (4, 3))
        self.assertEqual(comm.reduce_add(parts).tolist(), [2, 2, 2])
        self.assertEqual(comm.reduce_add(iter([parts, parts])).tolist(), [[2, 2, 2]] * 2)

    def test_what_holds_itself_cannot_be_collated(self):
        collate = torch.utils.data.default_collate
        alone, mixed, named = [], [1], {}
        alone.append(alone), mixed.append(mixed), named.update(own=named)
        for held in (alone, [named]):
            self.refuses(RecursionError, "maximum recursion depth exceeded", collate, held)
        with self.assertRaises((TypeError, RuntimeError)):
            collate(mixed)


if __name__ == "__main__":
    unittest.main()
