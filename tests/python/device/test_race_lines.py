# SPDX-License-Identifier: Apache-2.0
"""Race reports name the lines of both accesses: the earlier one, and the later one that is not ordered after it. Each case is a function
with its lines marked; in a backward pass the report also has the line of the forward call."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "4")

import inspect
import re
import threading
import unittest

import phlox as torch
from phlox import nn
from phlox.cuda import comm
from phlox.nn import functional as F
from phlox.nn import parallel

FILE = re.escape(__file__)
devices = torch.cuda.device_count()
cases = []


def race(case):
    cases.append(case)
    return case


def race_across_devices(case):
    """Marks a race between two devices."""
    return race(case) if devices > 1 else case


def ones(*shape, device="cuda:0", grad=False):
    made = torch.ones(*shape, device=device).requires_grad_(grad)
    torch.cuda.synchronize(device)
    return made


def pinned(*shape):
    return torch.ones(*shape).pin_memory()


def on_side_stream(device=0):
    return torch.cuda.stream(torch.cuda.Stream(device))


# ---- streams of one device

@race
def sum_of_random_fill():
    x = ones(100)
    x.normal_()  # first
    with on_side_stream():
        x.sum()  # second

@race
def write_after_read():
    x = ones(100)
    y = x * 2  # first
    with on_side_stream():
        x.zero_()  # second

@race
def write_after_write():
    x = ones(100)
    x.fill_(1)  # first
    with on_side_stream():
        x.fill_(2)  # second

@race
def copy_from_written_tensor():
    x, y = ones(100), ones(100)
    x.add_(1)  # first
    with on_side_stream():
        y.copy_(x)  # second

@race
def write_to_copied_tensor():
    x, y = ones(100), ones(100)
    y.copy_(x)  # first
    with on_side_stream():
        x.add_(1)  # second

@race
def overlapping_slices():
    x = ones(100)
    x[10:20].zero_()  # first
    with on_side_stream():
        x[15:30].sum()  # second

@race
def matmul_in_library_function():
    x, w = ones(4, 4), ones(4, 4)
    w.mul_(2)  # first
    with on_side_stream():
        F.linear(x, w)  # second

@race
def download_of_written_tensor():
    x, p = ones(100), pinned(100)
    x.add_(1)  # first
    with on_side_stream():
        p.copy_(x, non_blocking=True)  # second

@race
def item_of_written_tensor():
    x = ones(1)
    x.add_(1)  # first
    with on_side_stream():
        x.item()  # second

@race
def aliasing_by_dlpack():
    x = ones(100)
    y = torch.from_dlpack(x)
    x.add_(1)  # first
    with on_side_stream():
        y.sum()  # second

@race
def memory_reused_by_other_stream():
    x = ones(3000)
    x.add_(1)  # first
    del x
    y = torch.empty(3000, device="cuda:0")
    with on_side_stream():
        y.zero_()  # second

@race
def moved_module():
    net = nn.Linear(3, 3)
    net.weight.data = ones(3, 3)
    with on_side_stream():
        net.weight.data.zero_()  # first
    net.cpu()  # second

@race
def other_thread():
    x = ones(100)
    x.add_(1)  # first
    caught = []
    def work():
        try: x.mul_(2)  # second
        except RuntimeError as e: caught.append(e)
    def run():
        with on_side_stream(): work()
    thread = threading.Thread(target=run)
    thread.start(), thread.join()
    raise caught[0]

# ---- accesses by the host

@race
def item_of_download():
    x, p = ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    p[0].item()  # second

@race
def tolist_of_download():
    x, p = ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    p.tolist()  # second

@race
def str_of_download():
    x, p = ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    str(p)  # second

@race
def sum_of_download():
    x, p = ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    p.sum()  # second

@race
def large_write_to_download():
    x, p = ones(1 << 18), pinned(1 << 18)
    p.copy_(x, non_blocking=True)  # first
    p.mul_(2)  # second

@race
def write_to_download_by_to():
    x = ones(4)
    p = x.to("cpu", non_blocking=True)  # first
    p.add_(1)  # second

@race
def cat_of_download():
    x, p = ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    torch.cat([p, p])  # second

@race
def host_copy_of_download():
    x, p, q = ones(4), pinned(4), torch.zeros(4)
    p.copy_(x, non_blocking=True)  # first
    q.copy_(p)  # second

@race
def write_to_uploaded_tensor():
    p = pinned(4)
    x = p.to("cuda:0", non_blocking=True)  # first
    p.zero_()  # second

@race
def write_to_tensor_uploaded_by_copy():
    x, p = ones(1 << 18), pinned(1 << 18)
    x.copy_(p, non_blocking=True)  # first
    p.add_(1)  # second

@race
def random_fill_of_uploaded_tensor():
    x, p = ones(4), pinned(4)
    x.copy_(p, non_blocking=True)  # first
    p.normal_()  # second

@race
def dlpack_export_of_download():
    x, p = ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    p.__dlpack__()  # second

@race
def pinned_memory_aliased_by_dlpack():
    x, p = ones(4), pinned(4)
    q = torch.from_dlpack(p)
    p.copy_(x, non_blocking=True)  # first
    q.sum()  # second

@race
def upload_of_download_on_other_stream():
    x, y, p = ones(4), ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    with on_side_stream():
        y.copy_(p, non_blocking=True)  # second

# ---- optimizers

def trained(kind, **options):
    w = ones(4, grad=True)
    w.grad = ones(4)
    return w, getattr(torch.optim, kind)([w], **options)

@race
def step_during_read_of_weight():
    w, optimizer = trained("SGD", lr=0.1)
    y = w * 2  # first
    with on_side_stream():
        optimizer.step()  # second

@race
def forward_during_step():
    w, optimizer = trained("Adam")
    optimizer.step()  # first
    with on_side_stream():
        y = w * 2  # second

@race
def step_during_write_of_gradient():
    w, optimizer = trained("AdamW")
    w.grad.mul_(0.5)  # first
    with on_side_stream():
        optimizer.step()  # second

@race
def write_to_optimizer_state_during_step():
    w, optimizer = trained("Adam")
    optimizer.step()  # first
    with on_side_stream():
        optimizer.state[w]["exp_avg"].zero_()  # second

@race
def two_steps():
    w, optimizer = trained("RMSprop")
    optimizer.step()  # first
    with on_side_stream():
        optimizer.step()  # second

@race
def zero_grad_during_step():
    w, optimizer = trained("SGD", lr=0.1)
    optimizer.step()  # first
    with on_side_stream():
        optimizer.zero_grad(set_to_none=False)  # second

@race
def clip_grad_norm_during_write_of_gradient():
    w, optimizer = trained("SGD", lr=0.1)
    w.grad.mul_(2)  # first
    with on_side_stream():
        nn.utils.clip_grad_norm_([w], 1.0)  # second

@race
def step_during_backward():
    w, optimizer = trained("SGD", lr=0.1)
    loss = (w * w).sum()  # forward
    loss.backward()  # first
    with on_side_stream():
        optimizer.step()  # second

# ---- backward

@race
def write_to_gradient_during_backward():
    w = ones(4, grad=True)
    loss = (w * w).sum()  # forward
    loss.backward()  # first
    with on_side_stream():
        w.grad.zero_()  # second

@race
def write_to_saved_tensor():
    w = ones(4, grad=True)
    x = ones(4)
    loss = (w * x).sum()  # forward
    torch.cuda.synchronize(0)
    with on_side_stream():
        x.data.zero_()  # first
    loss.backward()  # second

@race
def gradient_accumulation_during_write():
    w = ones(4, grad=True)
    w.grad = ones(4)
    loss = w.exp().sum()  # forward
    with on_side_stream():
        w.grad.zero_()  # first
    loss.backward()  # second

@race
def autograd_grad_during_write_of_saved_tensor():
    w = ones(4, 4, grad=True)
    x = ones(4, 4)
    loss = (x @ w).sum()  # forward
    torch.cuda.synchronize(0)
    with on_side_stream():
        x.data.zero_()  # first
    torch.autograd.grad(loss, w)  # second

@race
def write_to_saved_indices():
    w, i = ones(4, 3, grad=True), torch.zeros(2, dtype=torch.int64, device="cuda:0")
    loss = F.embedding(i, w).sum()  # forward
    torch.cuda.synchronize(0)
    with on_side_stream():
        i.data.zero_()  # first
    loss.backward()  # second

@race
def custom_function_backward():
    x = ones(4)
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w): return w * 2
        @staticmethod
        def backward(ctx, g):
            return g * x  # second
    w = ones(4, grad=True)
    loss = Double.apply(w).sum()
    with on_side_stream():
        x.zero_()  # first
    loss.backward()

@race
def tensor_hook():
    w, x = ones(4, grad=True), ones(4)
    w.register_hook(lambda g: g * x)  # second
    loss = w.exp().sum()
    with on_side_stream():
        x.zero_()  # first
    loss.backward()

@race
def node_after_hook():
    w, x = ones(4, grad=True), ones(4)
    y = w * x  # forward
    y.register_hook(lambda g: float(g.sum()) and None)
    loss = y.sum()
    torch.cuda.synchronize(0)
    with on_side_stream():
        x.data.zero_()  # first
    loss.backward()  # second

@race_across_devices
def backward_over_two_devices():
    w, x = ones(4, device="cuda:1", grad=True), ones(4, device="cuda:1")
    y = w * x  # forward
    loss = y.sum().to("cuda:0") * ones(1)
    torch.cuda.synchronize(1)
    with on_side_stream(1):
        x.data.zero_()  # first
    loss.backward()  # second

@race
def gradient_of_copy_to_host():
    w = ones(4, grad=True)
    w.grad = ones(4)
    loss = w.cpu().sum()  # forward
    with on_side_stream():
        w.grad.zero_()  # first
    loss.backward()  # second

# ---- multiple devices

def shared_net():
    net = nn.Linear(4, 4).to("cuda:0")
    torch.cuda.synchronize(0)
    return net, nn.DataParallel(net, device_ids=[0, 1])

@race_across_devices
def replicate_during_write_of_weight():
    net, both = shared_net()
    x = ones(8, 4)
    with on_side_stream():
        net.weight.data.zero_()  # first
    both(x)  # second

@race_across_devices
def write_to_data_parallel_input():
    net, both = shared_net()
    x = ones(8, 4)
    with on_side_stream():
        x.zero_()  # first
    both(x)  # second

@race_across_devices
def write_to_data_parallel_output():
    net, both = shared_net()
    x = ones(8, 4)
    y = both(x)  # first
    with on_side_stream():
        y.data.zero_()  # second

@race_across_devices
def write_to_data_parallel_gradient():
    net, both = shared_net()
    x = ones(8, 4)
    loss = both(x).sum()  # forward
    loss.backward()  # first
    with on_side_stream():
        net.weight.grad.zero_()  # second

@race_across_devices
def access_in_replica():
    tables = [ones(4), ones(4, device="cuda:1")]
    class Net(nn.Module):
        def forward(self, x):
            return x * tables[x.get_device()]  # second
    x = ones(8, 4)
    with on_side_stream(1):
        tables[1].zero_()  # first
    nn.DataParallel(Net(), device_ids=[0, 1])(x)

@race_across_devices
def layer_in_replica():
    nets = [nn.Linear(4, 4).to(f"cuda:{i}") for i in range(2)]
    x = [ones(2, 4), ones(2, 4, device="cuda:1")]
    torch.cuda.synchronize(1)
    with on_side_stream(1):
        nets[1].weight.data.zero_()  # first
    parallel.parallel_apply(nets, x)  # second

@race_across_devices
def scatter_during_write():
    x = ones(8)
    with on_side_stream():
        x.zero_()  # first
    parallel.scatter(x, [0, 1])  # second

@race_across_devices
def replicate_during_write():
    net, _ = shared_net()
    with on_side_stream():
        net.bias.data.zero_()  # first
    parallel.replicate(net, [0, 1])  # second

@race_across_devices
def gather_during_write():
    x = [ones(2), ones(2, device="cuda:1")]
    with on_side_stream(1):
        x[1].zero_()  # first
    parallel.gather(x, 0)  # second

@race_across_devices
def broadcast_during_write():
    x = ones(8)
    with on_side_stream():
        x.zero_()  # first
    comm.broadcast(x, [0, 1])  # second

@race_across_devices
def reduce_add_during_write():
    x = [ones(2), ones(2, device="cuda:1")]
    with on_side_stream(1):
        x[1].zero_()  # first
    comm.reduce_add(x, 0)  # second

@race_across_devices
def peer_copy_during_write():
    x = ones(8)
    with on_side_stream():
        x.zero_()  # first
    x.to("cuda:1")  # second


def marked_lines(case):
    """Maps the words first, second and forward to the lines of a case marked with them."""
    lines, start = inspect.getsourcelines(case)
    return {found[1]: start + i for i, line in enumerate(lines) for found in [re.search(r"# (first|second|forward)$", line.rstrip())] if found}


@unittest.skipIf(devices < 1, "requires a device")
class Lines(unittest.TestCase):
    def setUp(self):
        torch.cuda._sanitizer.enable_cuda_sanitizer()

    def test_at_least_forty_cases(self):
        self.assertGreaterEqual(len(cases), 40)

    def test_reports_name_both_lines(self):
        for case in cases:
            with self.subTest(case.__name__):
                lines = marked_lines(case)
                with self.assertRaisesRegex(RuntimeError, "Phlox found a race") as caught:
                    case()
                for device in range(devices): torch.cuda.synchronize(device)
                text = str(caught.exception)
                later, earlier = text[text.index("Phlox found a race"):].split("\n")[1:3]
                self.assertRegex(later, rf" at {FILE}:{lines['second']}( in \w+ of |$)", text)
                self.assertRegex(earlier, rf" at {FILE}:{lines['first']}( in \w+ of |$)", text)
                if "forward" in lines:
                    self.assertRegex(text, rf" in \w+Backward\d* of {FILE}:{lines['forward']}(\n|$)|AccumulateGrad of {FILE}:{lines['forward']}\n")


if __name__ == "__main__":
    unittest.main()
