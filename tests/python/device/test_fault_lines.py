# SPDX-License-Identifier: Apache-2.0
"""A kernel error is reported with its op and the line of its launch. In a backward pass the report has the node and the lines of the backward
and forward calls. Invalid data makes kernels fail on any device; the fault point "kernel" fails any other kernel."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "4")

import ctypes
import glob
import re
import threading
import unittest

import phlox as torch
from phlox import nn
from phlox.nn import functional as F

devices = torch.cuda.device_count()

# ---- calls with invalid data: the op to report, and the line
BAD = """
    gather              | torch.gather(x, 0, wild)
    gather              | x.gather(1, wild)
    index_select        | torch.index_select(x, 0, far)
    index_select        | x.index_select(1, far)
    index               | x[far]
    index               | x[:, far]
    index               | x[far, far]
    index               | x[-far]
    index_put           | x[far] = 1
    take                | torch.take(x, far * 9)
    index_add           | x.index_add(0, far, x[:2])
    index_copy          | x.index_copy(0, far, x[:2])
    index_fill          | x.index_fill(0, far, 7.)
    scatter             | torch.scatter(x, 0, wild, 1.)
    scatter             | torch.scatter(x, 0, wild, x)
    scatter             | x.scatter_(1, wild, x.clone())
    scatter_add         | x.scatter_add(0, wild, x)
    embedding           | F.embedding(far, x)
    embedding           | nn.Embedding(4, 3, device=x.device)(far)
    one_hot             | F.one_hot(far, 4)
    nll_loss            | F.nll_loss(x, far.repeat(2))
    cross_entropy       | F.cross_entropy(x, far.repeat(2))
    cross_entropy       | nn.CrossEntropyLoss()(x, far.repeat(2))
    nll_loss            | F.nll_loss(x, far.repeat(2), reduction="none")
    binary_cross_entropy | F.binary_cross_entropy(x, ones.view(4, 3))
    binary_cross_entropy | F.binary_cross_entropy(ones.view(4, 3), x)
    multinomial         | torch.multinomial(-ones, 2)
    multinomial         | torch.multinomial(ones * 0, 2)
    multinomial         | torch.multinomial(ones / 0, 2, replacement=True)
    bernoulli           | torch.bernoulli(ones * 2)
    floor_divide        | far // zero
    remainder           | far % zero
    div_mode            | torch.div(far, zero, rounding_mode="trunc")
    fmod                | torch.fmod(far, zero)
    floor_divide        | far.floor_divide_(zero)
    index_put           | x.index_put_((far,), x[0].clone())
    index               | x[far] += 1
    index_put           | x.index_put_((far, far), ones[:2], accumulate=True)
    index_select        | x.t().index_select(0, far)
    index_add           | x.index_add_(0, far, x[:2].clone())
    gather              | x[:, 1].gather(0, far)
    gather              | x.double().gather(0, wild)
    embedding           | F.embedding(far.int(), x)
    floor_divide        | torch.floor_divide(far, 0)
    remainder           | far.remainder_(zero)
    index               | x.half()[far, 1]
    nll_loss            | F.nll_loss(x.view(1, 3, 4), far.repeat(2).view(1, 4))
"""
# ---- calls and their backward passes, on leaves w, v and m, indices i and classes c: each of their kernels is made to fail
CALLS = """
    w + v
    w * v
    w / v
    w ** 2
    w.exp()
    w.sqrt()
    w.sin() * v.cos()
    torch.atan2(w, v)
    torch.hypot(w, v)
    w.clamp(2, 4)
    torch.where(w > 3, w, v)
    torch.maximum(w, v)
    torch.addcmul(w, v, v)
    torch.lerp(w, v, 0.5)
    w.sum(0)
    w.mean(1)
    w.prod(1)
    w.var(0)
    w.norm()
    w.amax(1)
    w.max(1)[0]
    w.sort(1)[0]
    w.topk(2, 1)[0]
    w.cumsum(0)
    w.logsumexp(1)
    w @ m
    torch.addmm(v[:, :3], w, m)
    torch.bmm(w.view(1, 4, 3), m.view(1, 3, 3))
    torch.einsum("ij,jk->ik", w, m)
    w.t().contiguous()
    w[1:3]
    w[i]
    w[:, 1]
    w.gather(0, i.view(2, 1))
    w.index_select(0, i)
    w.index_add(0, i, v[:2])
    w.scatter_add(0, i.view(2, 1), v[:2, :1])
    torch.cat([w, v])
    torch.stack([w, v])
    w.repeat(2, 1)
    w.expand(2, 4, 3)
    w.flip(0)
    w.roll(1, 0)
    w.tril()
    F.pad(w, (1, 1))
    w.masked_fill(w > 3, 0.)
    w.double()
    w.clone()
    w.cpu()
    F.relu(w)
    F.gelu(w)
    F.silu(w)
    F.softmax(w, 1)
    F.log_softmax(w, 1)
    F.layer_norm(w, (3,))
    F.linear(w, m)
    F.embedding(i, w)
    F.cross_entropy(w, c)
    F.nll_loss(w, c)
    F.mse_loss(w, v)
    F.smooth_l1_loss(w, v)
    F.binary_cross_entropy_with_logits(w, v)
    F.conv1d(w.view(1, 4, 3), m.view(3, 3, 1)[:, :2].repeat(1, 2, 1))
    F.max_pool1d(w.view(1, 4, 3), 2)
    F.avg_pool1d(w.view(1, 4, 3), 2)
    F.batch_norm(w, None, None, training=True)
    F.dropout(w, 0.5)
    F.interpolate(w.view(1, 4, 3), scale_factor=2.)
"""


def table(text):
    return [line.strip() for line in text.strip().splitlines()]


def operands(device):
    """The operands named in both tables, on a device."""
    def leaf(*sizes): return (torch.rand(*sizes, device=device) + 1).requires_grad_()
    far = torch.tensor([9, 9], device=device)
    names = {"x": torch.arange(12., device=device).view(4, 3) + 5, "far": far, "wild": torch.full((4, 3), 9, device=device),
             "ones": torch.ones(12, device=device), "zero": torch.zeros(2, dtype=torch.int64, device=device),
             "w": leaf(4, 3), "v": leaf(4, 3), "m": leaf(3, 3), "i": torch.tensor([1, 2], device=device),
             "c": torch.tensor([1, 2, 0, 1], device=device)}
    synchronize_all()
    return {"torch": torch, "nn": nn, "F": F, **names}


def synchronize_all():
    for device in range(devices): torch.cuda.synchronize(device)


def at(line, code):
    """Compiles code as if it stood at that line of its own file."""
    return compile("\n" * (line - 1) + code, f"line{line}.py", "exec")


# ---- contexts of a call: each runs the given callable

def directly(call): call()

def on_side_stream(call):
    with torch.cuda.stream(torch.cuda.Stream()): call()

def in_a_thread(call):
    failed = []
    def work():
        try: call()
        except Exception as e: failed.append(e)
    thread = threading.Thread(target=work)
    thread.start(), thread.join()
    if failed: raise failed[0]

def in_a_module_with_hooks(call):
    class Net(nn.Module):
        def forward(self, x):
            call()
            return x
    net = Net()
    net.register_forward_hook(lambda *arguments: None)
    net(torch.ones(1))

def in_a_replica(call):
    class Net(nn.Module):
        def forward(self, x):
            if x.get_device() == 0: call()
            return x
    nn.parallel.data_parallel(Net(), torch.ones(2, 1, device="cuda:0"), device_ids=[0, 1])

def in_a_backward(call):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x * 1
        @staticmethod
        def backward(ctx, grad):
            call()
            return grad
    Function.apply(torch.ones(1, requires_grad=True)).sum().backward()

CONTEXTS = [directly, on_side_stream, in_a_thread, in_a_module_with_hooks, in_a_backward] + [in_a_replica] * (devices > 1)

# ---- the fault point

core = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(torch.__file__), "libphlox.so*"))[0])
core.px_fault_seen.restype = ctypes.c_int64


def arm_kernel_fault(nth):
    core.px_fault_disarm_all()
    if nth: core.px_fault_arm(b"kernel", ctypes.c_int64(nth), ctypes.c_bool(False))


def failures(make, run):
    """Runs `run(make())` repeatedly, each time with the next kernel failing. Returns the texts of the errors."""
    texts, nth = [], 1
    while True:
        made = make()
        synchronize_all()
        arm_kernel_fault(nth)
        try:
            run(made)
            synchronize_all()
        except torch.AcceleratorError as e:
            texts.append(str(e))
        hit = core.px_fault_seen(b"kernel") >= nth
        arm_kernel_fault(0)
        if not hit: return texts
        if len(texts) < nth: raise AssertionError(f"kernel {nth} failed unsaid")
        nth += 1


class Case(unittest.TestCase):
    def setUp(self):
        self.addCleanup(arm_kernel_fault, 0)

    def assert_launched(self, text, pattern):
        self.assertRegex(text, r"\nIt was reported by \w+( \(kernel \w+\))? on (stream \d+|the default stream) of cuda:\d, launched " + pattern)


@unittest.skipIf(devices < 1, "requires a device")
class Lines(Case):
    def test_at_least_200_invalid_calls(self):
        self.assertGreaterEqual(len(table(BAD)) * len(CONTEXTS), 200)

    def test_invalid_data_reports_op_and_line(self):
        for row in table(BAD):
            op, call = row.split("|", 1)
            for context in CONTEXTS:
                with self.subTest(row, context=context.__name__):
                    names = operands("cuda:0")
                    with self.assertRaises((IndexError, RuntimeError)) as caught:
                        context(lambda: exec(at(7, call.strip()), names))
                        synchronize_all()
                    self.assert_launched(str(caught.exception), r"at line7\.py:7( |$)")
                    self.assertRegex(str(caught.exception), rf"reported by {op.strip()}_?( |$)")

    def test_kernel_faults_report_line(self):
        for call in table(CALLS):
            with self.subTest(call):
                for text in failures(lambda: operands("cuda:0"), lambda names: exec(at(7, call), names)):
                    self.assert_launched(text, r"at line7\.py:7$")

    def test_backward_kernel_faults_report_node_and_lines(self):
        def make(call):
            names = operands("cuda:0")
            exec(at(7, f"y = ({call})"), names)
            names["seed"] = torch.ones_like(names["y"])
            return names
        for call in table(CALLS):
            with self.subTest(call):
                texts = failures(lambda: make(call), lambda names: exec(at(9, "y.backward(seed)"), names))
                for text in texts:
                    self.assert_launched(text, r"at line9\.py:9 in \w+ of line7\.py:7$")

    def test_backward_of_invalid_index_reports_lines(self):
        rows = ["w[i]", "w[i, 1]", "w.index_select(0, i)", "F.embedding(i, w)", "w.gather(0, i.view(2, 1))", "w.take(i)", "F.nll_loss(w, c)"]
        for call in rows:
            with self.subTest(call):
                names = operands("cuda:0")
                exec(at(7, f"y = ({call}).sum()"), names)
                names["i"].data.fill_(99), names["c"].data.fill_(99)  # not tracked by autograd
                with self.assertRaises((IndexError, RuntimeError)) as caught:
                    exec(at(9, "y.backward()"), names)
                    synchronize_all()
                self.assert_launched(str(caught.exception), r"at line9\.py:9 in \w+Backward0? of line7\.py:7$")

    def test_double_backward_kernel_faults_report_node(self):
        def make():
            names = operands("cuda:0")
            exec(at(7, "y = (w.exp() * v).sum()"), names)
            exec(at(8, "g, = torch.autograd.grad(y, w, create_graph=True)"), names)
            names["seed"] = torch.ones_like(names["g"])
            return names
        for text in failures(make, lambda names: exec(at(9, "g.backward(seed)"), names)):
            self.assert_launched(text, r"at line9\.py:9 in \w+ of line[78]\.py:[78]$")

    def test_optimizer_kernel_faults_report_line(self):
        for kind in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD"):
            def make():
                w, v = (torch.ones(3, device="cuda:0", requires_grad=True) for _ in range(2))
                w.grad, v.grad = torch.ones_like(w), torch.ones_like(v)
                return {"o": getattr(torch.optim, kind)([w, v], lr=0.1), "nn": nn, "w": w}
            with self.subTest(kind):
                texts = failures(make, lambda names: exec(at(9, "o.step()"), names))
                self.assertGreaterEqual(len(texts), 2)
                for text in texts: self.assert_launched(text, r"at line9\.py:9$")
                for text in failures(make, lambda names: exec(at(9, "o.zero_grad(set_to_none=False)"), names)):
                    self.assert_launched(text, r"at line9\.py:9$")

    def test_clip_grad_norm_kernel_faults_report_line(self):
        def make():
            w = torch.ones(3, device="cuda:0", requires_grad=True)
            w.grad = torch.ones_like(w)
            return {"w": w, "nn": nn}
        for text in failures(make, lambda names: exec(at(9, "nn.utils.clip_grad_norm_([w], .1)"), names)):
            self.assert_launched(text, r"at line9\.py:9$")


@unittest.skipIf(devices < 2, "requires two devices")
class MultipleDevices(Case):
    def make(self):
        net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).to("cuda:0")
        return {"net": nn.DataParallel(net, device_ids=[0, 1]), "x": torch.ones(6, 4, device="cuda:0"), "torch": torch}

    def made_forward(self):
        names = self.make()
        exec(at(7, "y = net(x)"), names)
        names["seed"] = torch.ones_like(names["y"])
        return names

    def test_data_parallel_forward_kernel_faults_report_line(self):
        texts = failures(self.make, lambda names: exec(at(7, "y = net(x)"), names))
        self.assertGreaterEqual(len(texts), 4)
        for text in texts: self.assert_launched(text, r"at line7\.py:7$")

    def test_data_parallel_backward_kernel_faults_report_lines(self):
        texts = failures(self.made_forward, lambda names: exec(at(9, "y.backward(seed)"), names))
        self.assertGreaterEqual(len(texts), 8)
        for text in texts: self.assert_launched(text, r"at line9\.py:9 in \w+ of line7\.py:7$")

    def test_two_device_backward_kernel_faults_report_lines(self):
        def make():
            names = {"a": torch.ones(3, device="cuda:0", requires_grad=True), "b": torch.ones(3, device="cuda:1", requires_grad=True)}
            exec(at(7, "y = (a * a).exp().to(1) * (b * b).exp()"), names)
            names["seed"] = torch.ones_like(names["y"])
            return names
        for text in failures(make, lambda names: exec(at(9, "y.backward(seed)"), names)):
            self.assert_launched(text, r"at line9\.py:9 in \w+ of line7\.py:7$")


if __name__ == "__main__":
    unittest.main()
