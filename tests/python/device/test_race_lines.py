# SPDX-License-Identifier: Apache-2.0
"""Race reports name both lines: of the access that came first, and of the one that nothing orders behind it. Each case is a function
whose lines say which they are; of a backward, the line of the forward call is named too."""
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


def race_across(case):
    """A race for which two devices are wanted."""
    return race(case) if devices > 1 else case


def ones(*shape, device="cuda:0", grad=False):
    made = torch.ones(*shape, device=device).requires_grad_(grad)
    torch.cuda.synchronize(device)
    return made


def pinned(*shape):
    return torch.ones(*shape).pin_memory()


def aside(device=0):
    return torch.cuda.stream(torch.cuda.Stream(device))


# ---- streams of a device

@race
def a_sum_of_what_is_drawn():
    x = ones(100)
    x.normal_()  # first
    with aside():
        x.sum()  # second

@race
def a_write_of_what_is_read():
    x = ones(100)
    y = x * 2  # first
    with aside():
        x.zero_()  # second

@race
def two_writes():
    x = ones(100)
    x.fill_(1)  # first
    with aside():
        x.fill_(2)  # second

@race
def a_copy_of_what_is_written():
    x, y = ones(100), ones(100)
    x.add_(1)  # first
    with aside():
        y.copy_(x)  # second

@race
def a_write_of_what_is_copied():
    x, y = ones(100), ones(100)
    y.copy_(x)  # first
    with aside():
        x.add_(1)  # second

@race
def slices_that_overlap():
    x = ones(100)
    x[10:20].zero_()  # first
    with aside():
        x[15:30].sum()  # second

@race
def a_product_in_a_function_of_the_library():
    x, w = ones(4, 4), ones(4, 4)
    w.mul_(2)  # first
    with aside():
        F.linear(x, w)  # second

@race
def a_download_of_what_is_written():
    x, p = ones(100), pinned(100)
    x.add_(1)  # first
    with aside():
        p.copy_(x, non_blocking=True)  # second

@race
def a_number_of_what_is_written():
    x = ones(1)
    x.add_(1)  # first
    with aside():
        x.item()  # second

@race
def the_same_memory_by_dlpack():
    x = ones(100)
    y = torch.from_dlpack(x)
    x.add_(1)  # first
    with aside():
        y.sum()  # second

@race
def memory_that_another_stream_has_had():
    x = ones(3000)
    x.add_(1)  # first
    del x
    y = torch.empty(3000, device="cuda:0")
    with aside():
        y.zero_()  # second

@race
def a_module_that_is_moved():
    net = nn.Linear(3, 3)
    net.weight.data = ones(3, 3)
    with aside():
        net.weight.data.zero_()  # first
    net.cpu()  # second

@race
def a_thread_of_its_own():
    x = ones(100)
    x.add_(1)  # first
    caught = []
    def work():
        try: x.mul_(2)  # second
        except RuntimeError as e: caught.append(e)
    def run():
        with aside(): work()
    thread = threading.Thread(target=run)
    thread.start(), thread.join()
    raise caught[0]

# ---- the host's side

@race
def an_item_of_a_download():
    x, p = ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    p[0].item()  # second

@race
def a_list_of_a_download():
    x, p = ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    p.tolist()  # second

@race
def a_text_of_a_download():
    x, p = ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    str(p)  # second

@race
def a_sum_of_a_download():
    x, p = ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    p.sum()  # second

@race
def a_large_write_of_a_download():
    x, p = ones(1 << 18), pinned(1 << 18)
    p.copy_(x, non_blocking=True)  # first
    p.mul_(2)  # second

@race
def a_download_by_to():
    x = ones(4)
    p = x.to("cpu", non_blocking=True)  # first
    p.add_(1)  # second

@race
def a_join_of_a_download():
    x, p = ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    torch.cat([p, p])  # second

@race
def a_copy_on_the_host_of_a_download():
    x, p, q = ones(4), pinned(4), torch.zeros(4)
    p.copy_(x, non_blocking=True)  # first
    q.copy_(p)  # second

@race
def a_write_of_an_upload():
    p = pinned(4)
    x = p.to("cuda:0", non_blocking=True)  # first
    p.zero_()  # second

@race
def a_write_of_an_upload_by_copy():
    x, p = ones(1 << 18), pinned(1 << 18)
    x.copy_(p, non_blocking=True)  # first
    p.add_(1)  # second

@race
def a_draw_into_an_upload():
    x, p = ones(4), pinned(4)
    x.copy_(p, non_blocking=True)  # first
    p.normal_()  # second

@race
def an_export_of_a_download():
    x, p = ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    p.__dlpack__()  # second

@race
def page_locked_memory_by_dlpack():
    x, p = ones(4), pinned(4)
    q = torch.from_dlpack(p)
    p.copy_(x, non_blocking=True)  # first
    q.sum()  # second

@race
def an_upload_of_a_download_on_another_stream():
    x, y, p = ones(4), ones(4), pinned(4)
    p.copy_(x, non_blocking=True)  # first
    with aside():
        y.copy_(p, non_blocking=True)  # second

# ---- optimisers

def trained(kind, **options):
    w = ones(4, grad=True)
    w.grad = ones(4)
    return w, getattr(torch.optim, kind)([w], **options)

@race
def a_step_while_the_weight_is_read():
    w, optimizer = trained("SGD", lr=0.1)
    y = w * 2  # first
    with aside():
        optimizer.step()  # second

@race
def a_forward_while_a_step_writes():
    w, optimizer = trained("Adam")
    optimizer.step()  # first
    with aside():
        y = w * 2  # second

@race
def a_step_while_the_gradient_is_written():
    w, optimizer = trained("AdamW")
    w.grad.mul_(0.5)  # first
    with aside():
        optimizer.step()  # second

@race
def a_state_that_a_step_writes():
    w, optimizer = trained("Adam")
    optimizer.step()  # first
    with aside():
        optimizer.state[w]["exp_avg"].zero_()  # second

@race
def two_steps():
    w, optimizer = trained("RMSprop")
    optimizer.step()  # first
    with aside():
        optimizer.step()  # second

@race
def gradients_set_to_zero_while_a_step_reads_them():
    w, optimizer = trained("SGD", lr=0.1)
    optimizer.step()  # first
    with aside():
        optimizer.zero_grad(set_to_none=False)  # second

@race
def a_clip_while_a_gradient_is_written():
    w, optimizer = trained("SGD", lr=0.1)
    w.grad.mul_(2)  # first
    with aside():
        nn.utils.clip_grad_norm_([w], 1.0)  # second

@race
def a_step_behind_a_backward():
    w, optimizer = trained("SGD", lr=0.1)
    loss = (w * w).sum()  # forward
    loss.backward()  # first
    with aside():
        optimizer.step()  # second

# ---- backward

@race
def a_gradient_that_backward_writes():
    w = ones(4, grad=True)
    loss = (w * w).sum()  # forward
    loss.backward()  # first
    with aside():
        w.grad.zero_()  # second

@race
def a_saved_tensor_that_is_written():
    w = ones(4, grad=True)
    x = ones(4)
    loss = (w * x).sum()  # forward
    torch.cuda.synchronize(0)
    with aside():
        x.data.zero_()  # first
    loss.backward()  # second

@race
def a_gradient_that_is_added_to():
    w = ones(4, grad=True)
    w.grad = ones(4)
    loss = w.exp().sum()  # forward
    with aside():
        w.grad.zero_()  # first
    loss.backward()  # second

@race
def a_gradient_asked_for():
    w = ones(4, 4, grad=True)
    x = ones(4, 4)
    loss = (x @ w).sum()  # forward
    torch.cuda.synchronize(0)
    with aside():
        x.data.zero_()  # first
    torch.autograd.grad(loss, w)  # second

@race
def indices_that_are_written():
    w, i = ones(4, 3, grad=True), torch.zeros(2, dtype=torch.int64, device="cuda:0")
    loss = F.embedding(i, w).sum()  # forward
    torch.cuda.synchronize(0)
    with aside():
        i.data.zero_()  # first
    loss.backward()  # second

@race
def a_function_of_the_program():
    x = ones(4)
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w): return w * 2
        @staticmethod
        def backward(ctx, g):
            return g * x  # second
    w = ones(4, grad=True)
    loss = Double.apply(w).sum()
    with aside():
        x.zero_()  # first
    loss.backward()

@race
def a_hook_of_the_program():
    w, x = ones(4, grad=True), ones(4)
    w.register_hook(lambda g: g * x)  # second
    loss = w.exp().sum()
    with aside():
        x.zero_()  # first
    loss.backward()

@race
def what_comes_behind_a_hook():
    w, x = ones(4, grad=True), ones(4)
    y = w * x  # forward
    y.register_hook(lambda g: float(g.sum()) and None)
    loss = y.sum()
    torch.cuda.synchronize(0)
    with aside():
        x.data.zero_()  # first
    loss.backward()  # second

@race_across
def a_graph_of_two_devices():
    w, x = ones(4, device="cuda:1", grad=True), ones(4, device="cuda:1")
    y = w * x  # forward
    loss = y.sum().to("cuda:0") * ones(1)
    torch.cuda.synchronize(1)
    with aside(1):
        x.data.zero_()  # first
    loss.backward()  # second

@race
def a_gradient_that_goes_to_the_host():
    w = ones(4, grad=True)
    w.grad = ones(4)
    loss = w.cpu().sum()  # forward
    with aside():
        w.grad.zero_()  # first
    loss.backward()  # second

# ---- several devices

def shared_net():
    net = nn.Linear(4, 4).to("cuda:0")
    torch.cuda.synchronize(0)
    return net, nn.DataParallel(net, device_ids=[0, 1])

@race_across
def a_replica_of_a_weight_that_is_written():
    net, both = shared_net()
    x = ones(8, 4)
    with aside():
        net.weight.data.zero_()  # first
    both(x)  # second

@race_across
def a_batch_that_is_written():
    net, both = shared_net()
    x = ones(8, 4)
    with aside():
        x.zero_()  # first
    both(x)  # second

@race_across
def a_result_of_replicas():
    net, both = shared_net()
    x = ones(8, 4)
    y = both(x)  # first
    with aside():
        y.data.zero_()  # second

@race_across
def a_gradient_of_replicas():
    net, both = shared_net()
    x = ones(8, 4)
    loss = both(x).sum()  # forward
    loss.backward()  # first
    with aside():
        net.weight.grad.zero_()  # second

@race_across
def a_line_in_a_replica():
    tables = [ones(4), ones(4, device="cuda:1")]
    class Net(nn.Module):
        def forward(self, x):
            return x * tables[x.get_device()]  # second
    x = ones(8, 4)
    with aside(1):
        tables[1].zero_()  # first
    nn.DataParallel(Net(), device_ids=[0, 1])(x)

@race_across
def a_layer_in_a_replica():
    nets = [nn.Linear(4, 4).to(f"cuda:{i}") for i in range(2)]
    x = [ones(2, 4), ones(2, 4, device="cuda:1")]
    torch.cuda.synchronize(1)
    with aside(1):
        nets[1].weight.data.zero_()  # first
    parallel.parallel_apply(nets, x)  # second

@race_across
def a_scatter():
    x = ones(8)
    with aside():
        x.zero_()  # first
    parallel.scatter(x, [0, 1])  # second

@race_across
def a_replicate():
    net, _ = shared_net()
    with aside():
        net.bias.data.zero_()  # first
    parallel.replicate(net, [0, 1])  # second

@race_across
def a_gather():
    x = [ones(2), ones(2, device="cuda:1")]
    with aside(1):
        x[1].zero_()  # first
    parallel.gather(x, 0)  # second

@race_across
def a_broadcast():
    x = ones(8)
    with aside():
        x.zero_()  # first
    comm.broadcast(x, [0, 1])  # second

@race_across
def a_sum_across_devices():
    x = [ones(2), ones(2, device="cuda:1")]
    with aside(1):
        x[1].zero_()  # first
    comm.reduce_add(x, 0)  # second

@race_across
def a_copy_to_another_device():
    x = ones(8)
    with aside():
        x.zero_()  # first
    x.to("cuda:1")  # second


def marked(case):
    """The lines of a case that say which they are: word -> number."""
    lines, start = inspect.getsourcelines(case)
    return {found[1]: start + i for i, line in enumerate(lines) for found in [re.search(r"# (first|second|forward)$", line.rstrip())] if found}


@unittest.skipIf(devices < 1, "a device is wanted")
class Lines(unittest.TestCase):
    def setUp(self):
        torch.cuda._sanitizer.enable_cuda_sanitizer()

    def test_there_are_forty(self):
        self.assertGreaterEqual(len(cases), 40)

    def test_both_lines_of_each_race_are_named(self):
        for case in cases:
            with self.subTest(case.__name__):
                lines = marked(case)
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
