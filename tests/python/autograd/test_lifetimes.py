# SPDX-License-Identifier: Apache-2.0
"""A table of protocols. Each row is a step of a program. Without the garbage collector, the bytes held on the devices are the same after each step."""
import ast, contextlib, copy, gc, os, unittest, warnings

import phlox as torch
from phlox import nn
from phlox.autograd.graph import save_on_cpu, saved_tensors_hooks
from phlox.nn.modules import module as modules
from phlox.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

STEPS, COUNT, WIDTH = int(os.environ.get("PHLOX_LIFETIMES", 50)), 1 << 14, 64


class Failure(Exception):
    """Raised by functions and hooks of the table."""


def fail(*args):
    raise Failure


def same(x):
    return x


def leaf(*sizes):
    return torch.ones(*sizes, device="cuda", requires_grad=True)


def held():
    torch.cuda.synchronize()
    return sum(torch.cuda.memory_allocated(i) for i in range(torch.cuda.device_count()))


def growth(step, steps):
    """Returns the bytes held after `steps` more steps."""
    for _ in range(3):
        step()
    before = held()
    for _ in range(steps):
        step()
    return held() - before


def fails_at(number):
    """Returns a pack hook that raises at its call with that number."""
    calls = []

    def pack(tensor):
        calls.append(None)
        if len(calls) == number:
            raise Failure
        return tensor

    return pack


# ---- Function: forward functions, and steps that use them

def saves_input(ctx, x):
    ctx.save_for_backward(x)
    return x * 2


def saves_output(ctx, x):
    y = x.exp()
    ctx.save_for_backward(y)
    return y


def saves_two_outputs(ctx, x):
    y, z = x.sin(), x.cos()
    ctx.save_for_backward(y, z)
    return y, z


def saves_input_and_outputs(ctx, x):
    y, z = x.sin(), x.cos()
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, y, None, z)
    return y, z


def marks_and_saves_constant(ctx, x):
    y, z = x * 2, x.sign()
    ctx.mark_non_differentiable(z)
    ctx.save_for_backward(y, z)
    return y, z


def marks_constants(ctx, x):
    y, z = x > 0, x.sign()
    ctx.mark_non_differentiable(y, z)
    return x * 2, y, z


def returns_its_input(ctx, x):
    ctx.save_for_backward(x)
    return x


def returns_a_view(ctx, x):
    y = x.view(-1)
    ctx.save_for_backward(y)
    return y


def marks_dirty(ctx, x):
    ctx.mark_dirty(x.mul_(2))
    return x


def marks_dirty_and_saves(ctx, x):
    ctx.mark_dirty(x.mul_(2))
    ctx.save_for_backward(x)
    return x


def unpacks(ctx, grad, *others):
    ctx.saved_tensors
    return grad


def function(forward, backward=unpacks):
    return type(forward.__name__, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def first_of(apply, x):
    y = apply(x)
    return y[0] if isinstance(y, tuple) else y


def is_dropped(apply, x):
    apply(x * 1)


def runs_backward(apply, x):
    first_of(apply, x * 1).sum().backward()


def runs_backward_twice(apply, x):
    y = first_of(apply, x * 1).sum()
    y.backward(retain_graph=True)
    y.backward()


def is_a_chain(apply, x):
    y = x * 1
    for _ in range(3):
        y = first_of(apply, y)
    y.sum().backward()


def creates_a_graph(apply, x):
    torch.autograd.grad(first_of(apply, x.sin()).sum(), x, create_graph=True)


def creates_a_graph_of_a_graph(apply, x):
    grad, = torch.autograd.grad(first_of(apply, x.sin()).sum(), x, create_graph=True)
    grad, = torch.autograd.grad(grad.sum(), x, create_graph=True)
    grad.sum().backward()


def is_inspected(apply, x):
    node = first_of(apply, x * 1).grad_fn
    node.saved_tensors, node.next_functions, node.metadata


def has_hooks(apply, x):
    y = first_of(apply, x * 1)
    y.retain_grad()
    y.register_hook(lambda grad: grad * 2)
    y.grad_fn.register_hook(lambda inputs, outputs: None)
    y.grad_fn.register_prehook(lambda outputs: None)
    y.sum().backward()


def saves_through_hooks(apply, x):
    with saved_tensors_hooks(same, same):
        y = first_of(apply, x * 1)
    y.sum().backward()


def saves_on_the_cpu(apply, x):
    with save_on_cpu(pin_memory=True):
        y = first_of(apply, x * 1)
    y.sum().backward()


def fails_at_the_first_pack_hook(apply, x):
    with contextlib.suppress(Failure), saved_tensors_hooks(fail, same):
        apply(x * 1)


def fails_at_the_second_pack_hook(apply, x):
    with contextlib.suppress(Failure), saved_tensors_hooks(fails_at(2), same):
        apply(x * 1)


def fails_at_an_unpack_hook(apply, x):
    with saved_tensors_hooks(same, fail):
        y = first_of(apply, x * 1)
    with contextlib.suppress(Failure):
        y.sum().backward()


def fails_in_backward(apply, x):
    y = first_of(apply, x * 1)
    y.grad_fn.register_prehook(fail)
    with contextlib.suppress(Failure):
        y.sum().backward()


def is_checkpointed(apply, x):
    checkpoint(lambda t: first_of(apply, t * 1), x, use_reentrant=False).sum().backward()


def is_checkpointed_without_early_stop(apply, x):
    checkpoint(lambda t: first_of(apply, t * 1), x, use_reentrant=False, early_stop=False).sum().backward()


def is_checkpointed_by_reentry(apply, x):
    checkpoint(lambda t: first_of(apply, t * 1), x, use_reentrant=True).sum().backward()


def changes_a_base(apply, x):
    y = x * 1
    view = y[1:]
    apply(y)
    view.sum().backward()


def changes_a_view(apply, x):
    y = x * 1
    apply(y[1:])
    y.sum().backward()


def changes_a_view_of_a_view(apply, x):
    y = x * 1
    apply(y[1:][1:])


def changes_a_view_in_a_checkpoint(apply, x):
    def run(t):
        y = t * 1
        apply(y[1:])
        return y

    checkpoint(run, x, use_reentrant=False).sum().backward()


def changes_a_view_and_fails(apply, x):
    y = x * 1
    with contextlib.suppress(Failure), saved_tensors_hooks(fail, same):
        apply(y[1:])


FORWARDS = [saves_input, saves_output, saves_two_outputs, saves_input_and_outputs, marks_and_saves_constant, marks_constants,
            returns_its_input, returns_a_view]
USES = [is_dropped, runs_backward, runs_backward_twice, is_a_chain, creates_a_graph, creates_a_graph_of_a_graph, is_inspected, has_hooks,
        saves_through_hooks, saves_on_the_cpu, fails_at_the_first_pack_hook, fails_at_the_second_pack_hook, fails_at_an_unpack_hook,
        fails_in_backward, is_checkpointed, is_checkpointed_without_early_stop, is_checkpointed_by_reentry]
CHANGES = [is_dropped, runs_backward, creates_a_graph, changes_a_base, changes_a_view, changes_a_view_of_a_view,
           changes_a_view_in_a_checkpoint, changes_a_view_and_fails, fails_at_the_first_pack_hook, is_checkpointed]


def applied(forward, use):
    apply, x = function(forward).apply, leaf(COUNT)

    def step():
        use(apply, x)
        x.grad = None

    return step


def functions():
    return {f"{forward.__name__} {use.__name__}": applied(forward, use)
            for forwards, uses in ((FORWARDS, USES), ([marks_dirty, marks_dirty_and_saves], CHANGES)) for forward in forwards for use in uses}


# ---- hooks of modules: name, a hook that changes nothing, and one that replaces its values

def doubled(values):
    return tuple(value if value is None else value * 2 for value in values)


HOOKS = {
    "register_forward_pre_hook": (lambda m, args: None, lambda m, args: (args[0] * 1,)),
    "register_forward_hook": (lambda m, args, result: None, lambda m, args, result: result),
    "register_full_backward_pre_hook": (lambda m, grads: None, lambda m, grads: doubled(grads)),
    "register_full_backward_hook": (lambda m, inward, outward: None, lambda m, inward, outward: doubled(inward)),
    "register_backward_hook": (lambda m, inward, outward: None, lambda m, inward, outward: doubled(inward)),
    "register_state_dict_pre_hook": (lambda m, prefix, keep: None, None),
    "register_state_dict_post_hook": (lambda m, state, prefix, metadata: None, None),
    "register_load_state_dict_pre_hook": (lambda *args: None, None),
    "register_load_state_dict_post_hook": (lambda m, keys: None, None),
}
GLOBAL_HOOKS = ["register_module_forward_pre_hook", "register_module_forward_hook", "register_module_full_backward_pre_hook",
                "register_module_full_backward_hook", "register_module_parameter_registration_hook",
                "register_module_buffer_registration_hook", "register_module_module_registration_hook"]


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = self.inner(x)
        return y, y * 2


def network():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).cuda()


def trains(model, x):
    first_of(model, x).sum().backward()


def is_only_called(model, x):
    model(x)


def differentiates_its_parameters(model, x):
    torch.autograd.grad(first_of(model, x).pow(2).sum(), list(model.parameters()), create_graph=True)


def differentiates_twice(model, x):
    if x.requires_grad:
        grad, = torch.autograd.grad(first_of(model, x).pow(2).sum(), x, create_graph=True)
        grad.sum().backward()


def is_checkpointed_as_a_module(model, x):
    checkpoint(model, x, use_reentrant=False)
    first_of(lambda t: checkpoint(model, t, use_reentrant=False), x).sum().backward()


def saves_and_loads(model, x):
    model.load_state_dict(model.state_dict())


MODULE_USES = [trains, is_only_called, differentiates_its_parameters, differentiates_twice, is_checkpointed_as_a_module, saves_and_loads]


def with_hook(model, register, hook, use, x):
    getattr(model, register)(hook)

    def step():
        use(model, x)
        model.zero_grad()
        x.grad = None

    return step


def with_failing_hook(register, create_graph):
    model, x = network(), leaf(WIDTH, WIDTH)
    getattr(model[0], register)(fail)

    def step():
        with contextlib.suppress(Failure):
            torch.autograd.grad(model(x).sum(), x, create_graph=create_graph)

    return step


def with_new_module(register, hook):
    x = leaf(WIDTH, WIDTH)

    def step():
        model = network()
        handle = getattr(model, register)(hook)
        trains(model, x)
        saves_and_loads(model, x)
        handle.remove()
        x.grad = None

    return step


def with_global_hook(register):
    x = leaf(WIDTH, WIDTH)

    def step():
        handle = getattr(modules, register)(lambda *args: None)
        try:
            trains(network(), x)
        finally:
            handle.remove()
        x.grad = None

    return step


def module_hooks():
    rows = {}
    for register, hooks in HOOKS.items():
        rows[f"{register} of a new module"] = with_new_module(register, hooks[0])
        for hook in filter(None, hooks):
            what = f"{register} {hooks.index(hook)}"
            for x in (leaf(WIDTH, WIDTH), torch.ones(WIDTH, WIDTH, device="cuda")):
                for use in MODULE_USES:
                    rows[f"{what} {use.__name__} {x.requires_grad}"] = with_hook(network(), register, hook, use, x)
                rows[f"{what} of two results {x.requires_grad}"] = with_hook(Twice().cuda(), register, hook, trains, x)
    for register in list(HOOKS)[:5]:
        for create_graph in (False, True):
            rows[f"{register} fails {create_graph}"] = with_failing_hook(register, create_graph)
    return rows | {register: with_global_hook(register) for register in GLOBAL_HOOKS}


# ---- other protocols: functions of a leaf and a module

def pack_hook_fails_in_a_module(model, x):
    with contextlib.suppress(Failure), saved_tensors_hooks(fails_at(2), same):
        model(x)


def pack_hook_fails_at_an_inplace_op(model, x):
    y = x * 1
    with contextlib.suppress(Failure), saved_tensors_hooks(fail, same):
        y[1:].exp_()


def pack_hook_fails_in_a_backward_that_records(model, x):
    y = model(x).exp().sum()
    with contextlib.suppress(Failure), saved_tensors_hooks(fail, same):
        torch.autograd.grad(y, x, create_graph=True)


def pack_hook_changes_its_tensor(model, x):
    with contextlib.suppress(RuntimeError), saved_tensors_hooks(lambda t: t.mul_(2), same):
        model(x)


def unpack_hook_returns_no_tensor(model, x):
    with saved_tensors_hooks(same, lambda t: 3):
        y = model(x)
    with contextlib.suppress(TypeError):
        y.sum().backward()


def checkpoint_is_dropped(model, x):
    checkpoint(model, x, use_reentrant=False)
    checkpoint(model, x, use_reentrant=True)


def checkpoints_are_nested(model, x):
    checkpoint(lambda t: checkpoint(model, t, use_reentrant=False), x, use_reentrant=False).sum().backward()
    checkpoint(lambda t: checkpoint(model, t, use_reentrant=True), x, use_reentrant=False).sum().backward()


def checkpoint_runs_in_segments(model, x):
    for reentrant in (False, True):
        checkpoint_sequential(model, 2, x, use_reentrant=reentrant).sum().backward()


def checkpoint_fails_when_recomputed(model, x):
    for reentrant in (False, True):
        calls = []

        def run(t):
            calls.append(None)
            y = model(t)
            return y if len(calls) == 1 else fail()

        with contextlib.suppress(Failure):
            checkpoint(run, x, use_reentrant=reentrant, **{} if reentrant else {"early_stop": False}).sum().backward()


def checkpoint_saves_other_tensors_when_recomputed(model, x):
    calls = []

    def run(t):
        calls.append(None)
        return t.exp().sin() if len(calls) == 1 else t.exp()

    with contextlib.suppress(RuntimeError):
        checkpoint(run, x, use_reentrant=False).sum().backward()


def checkpoint_has_an_unused_result(model, x):
    checkpoint(lambda t: (t.exp(), t.sin().cos()), x, use_reentrant=False, early_stop=False)[0].sum().backward()


def checkpoint_saves_selected_results(model, x):
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.exp.default])

    checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False, context_fn=contexts)
    checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False, context_fn=contexts).sum().backward()


def backward_creates_a_graph(model, x):
    (x.sin() * x).sum().backward(create_graph=True)


def gradients_are_penalised(model, x):
    y = model(x).sum()
    (y + sum(grad.pow(2).sum() for grad in torch.autograd.grad(y, model.parameters(), create_graph=True))).backward()


def views_change_in_place(model, x):
    y = x * 1
    y[1:].mul_(x[1:])
    y.t().mul_(2)
    y[0] = x[1] * 2
    y.sum().backward()


def transforms(model, x):
    point = x.detach()[0]
    torch.func.grad(lambda t: (t * t).sum())(point)
    torch.func.vmap(torch.func.grad(lambda t: (t * t).sum()))(x.detach())
    torch.func.jacrev(torch.sin)(point), torch.func.jacfwd(torch.sin)(point)
    torch.func.hessian(lambda t: (t * t * t).sum())(point)
    with contextlib.suppress(Failure):
        torch.func.grad(fail)(point)


def generator_function_fails(model, x):
    @torch.no_grad()
    def values():
        y = x * 2
        yield y
        raise Failure

    with contextlib.suppress(Failure):
        list(values())
    running = values()
    next(running)
    with contextlib.suppress(Failure):
        running.throw(Failure())


def future_fails(model, x):
    def failed():
        future = torch.futures.Future()
        future.set_exception(Failure())
        return future

    y = x * 2
    with contextlib.suppress(Failure):
        failed().wait()
    return y


def replicas_run(model, x):
    nn.DataParallel(model)(x)
    nn.DataParallel(model)(x).sum().backward()


def replicas_have_hooks(model, x):
    hooked = copy.deepcopy(model)
    hooked[0].register_full_backward_hook(lambda *args: None)
    hooked[0].register_forward_hook(lambda *args: None)
    nn.DataParallel(hooked)(x).sum().backward()


def replicas_fail(model, x):
    failing = copy.deepcopy(model)
    failing[0].register_forward_hook(fail)
    with contextlib.suppress(Failure):
        nn.DataParallel(failing)(x)


def ranks_train(model, x):
    def rank(number):
        torch.distributed.init_process_group("nccl")
        for options in ({}, {"find_unused_parameters": True}, {"static_graph": True}, {"gradient_as_bucket_view": True}):
            own = network()
            own[0].register_full_backward_hook(lambda *args: None)
            ddp = nn.parallel.DistributedDataParallel(own, **options)
            with ddp.no_sync():
                trains(ddp, torch.ones(WIDTH, WIDTH, device="cuda"))
            trains(ddp, torch.ones(WIDTH, WIDTH, device="cuda"))

    torch.distributed.simulate(rank, nprocs=2)


def ranks_fail(model, x):
    def rank(number):
        y = x.detach() * 2
        fail(y)

    with contextlib.suppress(Failure):
        torch.distributed.simulate(rank, nprocs=2)


def graph_is_captured(model, x):
    graph, source = torch.cuda.CUDAGraph(), x.detach()
    with torch.cuda.graph(graph):
        y = torch.nn.functional.dropout(source * 2)
    graph.replay()
    return y


def capture_fails(model, x):
    source = x.detach()
    with contextlib.suppress(Failure), torch.cuda.graph(torch.cuda.CUDAGraph()):
        y = source * 2
        fail(y)


def training_is_captured(model, x):
    graph, own = torch.cuda.CUDAGraph(), copy.deepcopy(model)
    with torch.cuda.graph(graph):
        trains(own, x.detach())
    graph.replay()
    own.zero_grad()


def generator_draws(model, x):
    generator = torch.Generator("cuda").manual_seed(1)
    torch.rand(COUNT, device="cuda", generator=generator)
    generator.set_state(generator.get_state())
    with torch.random.fork_rng():
        torch.rand(COUNT, device="cuda")


def generator_is_captured(model, x):
    graph, generator = torch.cuda.CUDAGraph(), torch.Generator("cuda")
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        torch.rand(COUNT, device="cuda", generator=generator)
    graph.replay()


OTHERS = [pack_hook_fails_in_a_module, pack_hook_fails_at_an_inplace_op, pack_hook_fails_in_a_backward_that_records,
          pack_hook_changes_its_tensor, unpack_hook_returns_no_tensor, checkpoint_is_dropped, checkpoints_are_nested,
          checkpoint_runs_in_segments, checkpoint_fails_when_recomputed, checkpoint_saves_other_tensors_when_recomputed,
          checkpoint_has_an_unused_result, checkpoint_saves_selected_results, backward_creates_a_graph, gradients_are_penalised,
          views_change_in_place, transforms, generator_function_fails, future_fails, replicas_run, replicas_have_hooks, replicas_fail,
          ranks_train, ranks_fail, graph_is_captured, capture_fails, training_is_captured, generator_draws, generator_is_captured]


def others():
    model = network()
    return {use.__name__: with_hook(model, "register_forward_hook", lambda *args: None, use, leaf(WIDTH, WIDTH)) for use in OTHERS}


def recursive_closures(path):
    """Yields the inner functions of a file that refer to themselves. Each call of the outer function makes a reference cycle."""
    with open(path) as file:
        tree = ast.parse(file.read())
    for outer in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for inner in (node for node in ast.walk(outer) if isinstance(node, ast.FunctionDef) and node is not outer):
            if any(isinstance(node, ast.Name) and node.id == inner.name for node in ast.walk(inner)):
                yield f"{os.path.basename(path)} {inner.name}"


@unittest.skipUnless(torch.cuda.device_count() > 1, "requires two devices")
class Lifetimes(unittest.TestCase):
    def setUp(self):
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def check(self, rows, steps=STEPS):
        found = {name: growth(step, steps) for name, step in rows.items()}
        if "PHLOX_LIFETIMES" in os.environ:
            print(f"\nbytes held after {steps} steps:", *(f"{name} {bytes}" for name, bytes in found.items()), sep="\n  ")
        self.assertEqual({name: bytes for name, bytes in found.items() if bytes}, {})

    def test_functions_hold_no_memory(self):
        self.check(functions())

    def test_module_hooks_hold_no_memory(self):
        self.check(module_hooks())

    def test_other_protocols_hold_no_memory(self):
        self.check(others(), STEPS if "PHLOX_LIFETIMES" in os.environ else STEPS // 5)

    def test_a_constant_result_is_freed_before_the_graph(self):
        x = leaf(COUNT)
        y, z = function(marks_and_saves_constant, lambda ctx, grad, _: grad).apply(x)
        a, b, c = function(marks_constants, lambda ctx, grad, *_: grad).apply(x)
        before = held()
        del b, c
        self.assertEqual(before - held(), 5 * COUNT)

    def test_the_library_has_no_recursive_closures(self):
        found = {name for folder, _, files in os.walk(os.path.dirname(torch.__file__)) for file in files if file.endswith(".py")
                 for name in recursive_closures(os.path.join(folder, file))}
        self.assertEqual(found, {"overrides.py wrapped"})  # made once for each decorated function


if __name__ == "__main__":
    unittest.main()
