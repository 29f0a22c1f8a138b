# SPDX-License-Identifier: Apache-2.0
"""torch.utils.flop_counter. The figures and tables are PyTorch 2's."""
import contextlib
import io
import unittest

import phlox as torch
from phlox import nn
from phlox.utils.checkpoint import checkpoint
from phlox.utils.flop_counter import FlopCounterMode

aten = torch.ops.aten


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024, bias=False), nn.ReLU())
        self.head = nn.Linear(1024, 10)

    def forward(self, x):
        return self.head(self.layers(x))


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, stride=2, groups=4)
        self.up, self.fc = nn.ConvTranspose2d(32, 8, 4, stride=2), nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(self.up(self.c2(self.c1(x).relu()).relu()).mean((2, 3)))


def count(call, **options):
    with FlopCounterMode(display=False, **options) as counter:
        call()
    return counter


class Flops(unittest.TestCase):
    def test_flops_by_module_and_op(self):
        model = MLP()
        counter = count(lambda: model(torch.randn(128, 784)))
        self.assertEqual(counter.get_total_flops(), 476577792)
        self.assertEqual(counter.get_flop_counts()["MLP.layers"], {aten.addmm: 205520896, aten.mm: 268435456})
        self.assertEqual(counter.get_table(), """\
Module              FLOP    % Total
--------------  --------  ---------
MLP             476.578M    100.00%
 - aten.addmm   208.142M     43.67%
 - aten.mm      268.435M     56.33%
 MLP.head         2.621M      0.55%
  - aten.addmm    2.621M      0.55%
 MLP.layers     473.956M     99.45%
  - aten.addmm  205.521M     43.12%
  - aten.mm     268.435M     56.33%""")

    def test_backward_is_attributed_to_forward_module(self):
        model = CNN()
        counts = count(lambda: model(torch.randn(4, 3, 32, 32)).sum().backward()).get_flop_counts()
        self.assertEqual(counts["Global"], {aten.convolution: 12985344, aten.addmm: 640,
                                            aten.convolution_backward: 28652544, aten.mm: 1280})
        self.assertEqual(counts["CNN"], counts["Global"])
        self.assertEqual(counts["CNN.c2"], {aten.convolution: 2073600, aten.convolution_backward: 10368000})
        self.assertEqual(counts["CNN.fc"], {aten.addmm: 640, aten.mm: 1280})

    def test_causal_attention_counts_all_pairs(self):
        x = torch.randn(2, 4, 24, 16, requires_grad=True)
        for causal in (False, True):
            call = lambda: nn.functional.scaled_dot_product_attention(x, x, x, is_causal=causal).sum().backward()
            self.assertEqual({str(op): n for op, n in count(call).get_flop_counts()["Global"].items()},
                             {"aten._scaled_dot_product_flash_attention_for_cpu": 4 * 2 * 4 * 24 * 24 * 16,
                              "aten._scaled_dot_product_flash_attention_for_cpu_backward": 10 * 2 * 4 * 24 * 24 * 16})

    def test_batched_matmul(self):
        a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)

        def call():
            torch.bmm(a, b)
            torch.baddbmm(torch.randn(2, 3, 5), a, b)
            torch.addmm(torch.randn(5), a[0], b[0])
            a + a  # is not counted
        self.assertEqual(count(call).get_flop_counts(),
                         {"Global": {aten.bmm: 240, aten.baddbmm: 240, aten.addmm: 120}})

    def test_meta_tensors_suffice(self):
        with torch.device("meta"):
            model, x = MLP(), torch.empty(128, 784)
        self.assertEqual(count(lambda: model(x)).get_total_flops(), 476577792)

    def test_recomputation_counts_as_forward(self):
        model, x = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 3)), torch.randn(1, 2, 8, 8, requires_grad=True)
        plain = count(lambda: model(x).sum().backward()).get_flop_counts()["Global"]
        again = count(lambda: checkpoint(model, x, use_reentrant=False).sum().backward()).get_flop_counts()
        self.assertEqual(again["Global"], {aten.convolution: 2 * plain[aten.convolution],
                                           aten.convolution_backward: plain[aten.convolution_backward]})
        self.assertEqual(again["Sequential"], again["Global"])

    def test_nested_counters(self):
        a = torch.randn(8, 8, device="cuda" if torch.cuda.is_available() else "cpu", requires_grad=True)

        def inner():
            self.assertEqual(count(lambda: a @ a).get_total_flops(), 1024)
            (a @ a).sum().backward()
        self.assertEqual(count(inner).get_total_flops(), 1024 + 3 * 1024)

    def test_table_includes_global_and_is_printed(self):
        out, model = io.StringIO(), nn.Linear(4, 4)
        with contextlib.redirect_stdout(out), FlopCounterMode(depth=None):
            model(torch.ones(2, 4))
            torch.ones(2, 4) @ torch.ones(4, 4)
        self.assertEqual(out.getvalue(), """\
Module            FLOP    % Total
--------------  ------  ---------
Global             128    100.00%
 - aten.addmm       64     50.00%
 - aten.mm          64     50.00%
 Linear             64     50.00%
  - aten.addmm      64     50.00%
""")
        self.assertEqual(FlopCounterMode().get_table(), "Module      FLOP    % Total\n--------  ------  ---------\n"
                                                        "Global         0         0%")

    def test_exception_exits_module_scopes(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(3, 3))
        with FlopCounterMode(display=False) as counter:
            self.assertRaises(RuntimeError, model, torch.ones(2, 4))
            torch.ones(2, 4) @ torch.ones(4, 4)
        self.assertEqual(counter.get_flop_counts()["Sequential"], {aten.addmm: 64})
        self.assertEqual(counter.get_flop_counts()["Global"], {aten.addmm: 64, aten.mm: 64})

    def test_custom_mapping_not_implemented(self):
        with self.assertRaisesRegex(NotImplementedError, "custom_mapping"):
            FlopCounterMode(custom_mapping={aten.relu: lambda *a, **k: 1})
        with self.assertWarnsRegex(UserWarning, "mods argument is not needed anymore"):
            FlopCounterMode(mods=MLP())
        with self.assertRaisesRegex(NotImplementedError, "cannot be called"):
            aten.convolution_backward(torch.ones(1))


if __name__ == "__main__":
    unittest.main()
