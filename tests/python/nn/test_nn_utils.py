# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils except clipping and packed sequences, and torch.func.functional_call. Compared with PyTorch if a recent one is installed."""
import copy, importlib, os, pickle, re, unittest, warnings
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import phlox as torch
from phlox import nn
from peer import newest as real
from package.test_main import run


def outcome(function, *args, **kwargs):
    """The result or error of a call in a form shared by both libraries: a text, and the values of tensors."""
    numbers = []
    try:
        value = function(*args, **kwargs)
    except Exception as error:
        value = type(error).__name__, str(error)
    return re.sub(r"torch\.nn\.modules\.\w+\.|phlox\.|torch\.| object at 0x\w+", "", repr(describe(value, numbers))), numbers


def describe(value, numbers):
    if hasattr(value, "detach"):
        numbers += value.detach().double().flatten().tolist()
        return tuple(value.shape)
    return type(value)(describe(item, numbers) for item in value) if type(value) in (list, tuple) else value


def linear(library, *args, **options):
    library.manual_seed(1)
    return library.nn.Linear(*args, **options)


class ComparedWithPyTorch:
    """Each method `case_x(library)` yields outcomes, which must equal PyTorch's if it is installed."""

    def test_matches_pytorch(self):
        for name in filter(lambda name: name.startswith("case_"), dir(self)):
            with self.subTest(case=name[5:]), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ours = list(getattr(self, name)(torch))
                self.assertTrue(ours)
                if real:
                    for i, ((text, numbers), (wanted, theirs)) in enumerate(zip(ours, getattr(self, name)(real), strict=True)):
                        self.assertEqual((text, len(numbers)), (wanted, len(theirs)), f"outcome {i}")
                        torch.testing.assert_close(torch.tensor(numbers), torch.tensor(theirs), rtol=1e-3, atol=1e-4)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = linear(torch, 2, 2), linear(torch, 2, 2)
        self.last.weight = self.first.weight
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x, fails=False):
        self.calls = self.calls + 1
        if fails:
            raise KeyError("on purpose")
        return self.last(self.first(x))


class FunctionalCall(ComparedWithPyTorch, unittest.TestCase):
    def case_layer(self, library):
        call, x = importlib.import_module(library.__name__ + ".func").functional_call, library.ones(1, 2)
        layer, ones = linear(library, 2, 3), library.ones(3, 2)
        yield outcome(call, layer, {"weight": ones}, x)
        yield outcome(call, layer, {"weight": ones, "bias": None}, (x,))
        yield outcome(call, layer, [{"weight": ones}, {"bias": library.ones(3)}], None, {"input": x})
        for wrong in ({"weight": 3}, {"a.weight": ones}, {"in_features": ones}, [{"weight": ones}, {"weight": ones}], 5, [5]):
            yield outcome(call, layer, wrong, x)
        yield outcome(call, layer, {"weight": ones, "more": ones}, x, strict=True)
        yield outcome(call, library.nn.DataParallel(layer), {}, x)
        yield outcome(lambda: layer.weight)

    def test_original_tensors_are_restored(self):
        layer, ones = nn.Linear(2, 3), torch.ones(3, 2, requires_grad=True)
        own = layer.weight
        torch.func.functional_call(layer, {"weight": ones, "new": ones}, torch.ones(1, 2)).sum().backward()
        self.assertTrue(layer.weight is own and own.grad is None and ones.grad.tolist() == [[1, 1]] * 3)
        self.assertFalse(hasattr(layer, "new"))
        with self.assertRaisesRegex(TypeError, "attribute `in_features`: 2 is not an instance of torch.Tensor"):
            torch.func.functional_call(layer, {"weight": ones, "in_features": ones}, torch.ones(1, 2))
        self.assertIs(layer.weight, own)

    def test_failed_call_changes_nothing(self):
        model, given = Tied(), {"calls": torch.full((1,), 5.0)}
        with self.assertRaisesRegex(KeyError, "on purpose"):
            torch.func.functional_call(model, given, torch.ones(1, 2), {"fails": True})
        self.assertEqual((model.calls.item(), given["calls"].item()), (0, 6))

    def test_tied_tensors(self):
        call, model, x, zeros = torch.func.functional_call, Tied(), torch.ones(1, 2), torch.zeros(2, 2)
        bias = model.last.bias.tolist()
        for given in {"first.weight": zeros}, {"last.weight": zeros}, {"last.weight": zeros, "first.weight": zeros}:
            self.assertEqual(call(model, given, x).tolist(), [bias])
        self.assertNotEqual(call(model, {"first.weight": zeros}, x, tie_weights=False).tolist(), [bias])
        with self.assertRaisesRegex(ValueError, r"multiple values for keys \['first.weight', 'last.weight'\], which are tied"):
            call(model, {"first.weight": zeros, "last.weight": torch.ones(2, 2)}, x)
        with self.assertRaisesRegex(RuntimeError, "reparametrizing for Tied:\n\tMissing key.s.: 'calls', 'first.bias', 'last.bias'."):
            call(model, {"first.weight": zeros}, x, strict=True)

    def test_reassigned_buffers_are_returned(self):
        model, given = Tied(), {"calls": torch.ones(1)}
        torch.func.functional_call(model, given, torch.ones(1, 2))
        self.assertEqual((given["calls"].item(), model.calls.item()), (2, 0))

    def test_deprecated_name_warns(self):
        from phlox.nn.utils import stateless
        with self.assertWarnsRegex(FutureWarning, "use `torch.func.functional_call` instead") as caught:
            stateless.functional_call(nn.Linear(1, 1), {}, torch.ones(1, 1))
        self.assertEqual(caught.filename, __file__)


def norm(library, cls, *args, **options):
    made = getattr(library.nn, cls)(*args, **options).eval()
    with library.no_grad():
        for i, tensor in enumerate([made.running_mean, made.running_var, *made.parameters()]):
            tensor.copy_(library.arange(len(tensor)) + i + 0.5)
    return made


class Fusion(ComparedWithPyTorch, unittest.TestCase):
    LAYERS = [("Conv1d", (3, 4, 2), {}, "BatchNorm1d", (2, 3, 5)), ("Conv2d", (3, 4, 2), {"bias": False}, "BatchNorm2d", (2, 3, 5, 5)),
              ("ConvTranspose2d", (3, 4, 2), {}, "BatchNorm2d", (2, 3, 5, 5)), ("Linear", (3, 4), {}, "BatchNorm1d", (2, 3))]

    def fused(self, library, name, args, options, norm_name, affine=True):
        layer, after = getattr(library.nn, name)(*args, **options).eval(), norm(library, norm_name, 4, affine=affine)
        if name == "Linear":
            return layer, after, library.nn.utils.fuse_linear_bn_eval(layer, after)
        return layer, after, library.nn.utils.fuse_conv_bn_eval(layer, after, name == "ConvTranspose2d")

    def test_fused_copy_matches_both_layers(self):
        for device in "cpu", "cuda":
            for affine in True, False:
                for *made, shape in self.LAYERS:
                    with self.subTest(layer=made[0], device=device, affine=affine):
                        layer, after, fused = self.fused(torch, *made, affine)
                        weight, x = layer.weight, torch.randn(shape, device=device)
                        layer, after, fused = layer.to(device), after.to(device), fused.to(device)
                        torch.testing.assert_close(fused(x), after(layer(x)), atol=1e-4, rtol=1e-4)
                        self.assertTrue(layer.weight is weight and fused.weight.requires_grad)
                        self.assertEqual((type(fused.bias), fused.bias.requires_grad), (nn.Parameter, layer.bias is not None))

    def case_errors(self, library):
        utils = library.nn.utils
        yield outcome(utils.fuse_conv_bn_eval, library.nn.Conv2d(3, 4, 2), norm(library, "BatchNorm2d", 4))
        yield outcome(utils.fuse_linear_bn_eval, linear(library, 3, 5).eval(), norm(library, "BatchNorm1d", 4))
        untracked = library.nn.BatchNorm1d(4, track_running_stats=False).eval()
        yield outcome(utils.fuse_linear_bn_eval, linear(library, 3, 4).eval(), untracked)

    def case_dtypes(self, library):
        half, wide, ones = library.ones(2, 2).half(), library.ones(2).double(), library.ones(2)
        made = library.nn.utils.fuse_conv_bn_weights(half, wide, ones, ones, 0.0, None, None)
        yield outcome(lambda: [(one.dtype, one.requires_grad) for one in made])


class SkipInit(ComparedWithPyTorch, unittest.TestCase):
    def case_skip_init(self, library):
        skip = library.nn.utils.skip_init
        yield outcome(lambda: skip(library.nn.Linear, 2, 3, dtype=library.float64).weight.dtype)
        yield outcome(lambda: skip(library.nn.Conv2d, 2, 3, kernel_size=1, device="cpu").weight.shape)
        yield outcome(skip, int)
        yield outcome(skip, type("Own", (library.nn.Module,), {"__init__": lambda self: None}))

    @unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
    def test_device(self):
        self.assertEqual(str(nn.utils.skip_init(nn.Linear, 2, 3, device="cuda:1").weight.device), "cuda:1")

    def test_no_random_numbers_are_drawn(self):
        torch.manual_seed(0)
        nn.utils.skip_init(nn.Linear, 2, 3)
        first = torch.rand(1)
        torch.manual_seed(0)
        self.assertEqual(first, torch.rand(1))


class SubmodulePaths(ComparedWithPyTorch, unittest.TestCase):
    def case_submodules(self, library):
        model = library.nn.Sequential(linear(library, 2, 3), library.nn.Sequential(library.nn.ReLU()))
        for path in "", "0", "1.0", "a", "0.weight", "0.x", "1..0", "1.", "1.0.0":
            yield outcome(model.get_submodule, path)
            yield outcome(model.get_parameter, path)

    def test_short_vector_changes_nothing(self):
        layer = nn.Linear(2, 3)
        before = layer.weight.tolist()
        with self.assertRaises(RuntimeError):
            nn.utils.vector_to_parameters(torch.zeros(7), layer.parameters())
        self.assertEqual(layer.weight.tolist(), before)


def module_of(library, name):
    return importlib.import_module(f"{library.__name__}.nn.utils.{name}")


def parametrization(library, *methods):
    """A parametrization class of the library, with the given forward and right_inverse."""
    names = dict(zip(["forward", "right_inverse"], methods))
    return type("Own", (library.nn.Module,), {name: (lambda self, *x, of=method: of(*x)) for name, method in names.items()})()


def states(layer):
    return type(layer).__name__, list(layer.state_dict()), layer.weight


class Parametrize(ComparedWithPyTorch, unittest.TestCase):
    def case_chained_parametrizations(self, library):
        register, layer = module_of(library, "parametrize").register_parametrization, linear(library, 2, 3)
        yield outcome(register, layer, "weight", parametrization(library, lambda x: x.square(), lambda x: x.abs().sqrt()))
        yield outcome(states, layer)
        yield outcome(layer, library.ones(1, 2))
        yield outcome(setattr, layer, "weight", library.full((3, 2), 4.0))
        yield outcome(lambda: (layer.weight, layer.parametrizations.weight.original))
        yield outcome(register, layer, "weight", parametrization(library, lambda x: -x))
        yield outcome(lambda: layer.weight)
        yield outcome(setattr, layer, "weight", library.ones(3, 2))
        yield outcome(module_of(library, "parametrize").remove_parametrizations, layer, "weight")
        yield outcome(states, layer)

    def case_several_originals(self, library):
        tools, layer, other = module_of(library, "parametrize"), linear(library, 2, 3), linear(library, 2, 3)
        half = parametrization(library, lambda a, b: a + b, lambda x: (x / 2, x / 2))
        yield outcome(tools.register_parametrization, layer, "weight", half)
        yield outcome(states, layer)
        yield outcome(tools.remove_parametrizations, layer, "weight", leave_parametrized=False)
        yield outcome(tools.transfer_parametrizations_and_params, layer, other)
        yield outcome(lambda: other.parametrizations.weight.original0 is layer.parametrizations.weight.original0)
        yield outcome(lambda: tools.type_before_parametrizations(other).__name__)
        yield outcome(tools.remove_parametrizations, layer, "weight")
        yield outcome(states, layer)

    def case_errors(self, library):
        tools = module_of(library, "parametrize")
        wrong = [(lambda x: x.double(),), (lambda x: x[:1],), (lambda x: 3,), (lambda x: x, lambda x: x.double()), (lambda x: x, lambda x: 3),
                 (lambda *x: x[0], lambda x: [x, 3]), (lambda x: x, lambda x: x[:1])]
        for methods in wrong:
            layer, used = linear(library, 2, 3), linear(library, 2, 3)
            tools.register_parametrization(used, "weight", parametrization(library, lambda x: x))
            for one in layer, used:
                yield outcome(tools.register_parametrization, one, "weight", parametrization(library, *methods))
                yield outcome(lambda: type(one).__name__)
        layer = linear(library, 2, 3)
        for start, later in ((lambda x: x, lambda x: x.double()), (lambda x: x, lambda x: 3), (lambda x: (x, x), lambda x: x),
                             (lambda x: (x, x), lambda x: (x, x.double())), (lambda x: (x, x), lambda x: (x,)), (lambda x: (x, x), lambda x: 3)):
            one, way = linear(library, 2, 3), [start]
            own = parametrization(library, lambda *x: x[0], lambda x: way[-1](x))
            tools.register_parametrization(one, "weight", own)
            way.append(later)
            yield outcome(setattr, one, "weight", library.ones(3, 2))
        tools.register_parametrization(one := linear(library, 2, 3), "weight", parametrization(library, lambda x: x))
        yield outcome(setattr, one, "weight", library.ones(3, 2))
        yield outcome(tools.register_parametrization, layer, "none", parametrization(library, lambda x: x))
        yield outcome(tools.remove_parametrizations, layer, "weight")
        yield outcome(tools.ParametrizationList, [], layer.weight)
        yield outcome(lambda: (tools.is_parametrized(layer), tools.is_parametrized(used, "weight"), tools.is_parametrized(used, "bias")))

    def test_failed_registration_changes_nothing(self):
        layer = nn.Linear(2, 3)
        weight, before = layer.weight, layer.weight.tolist()
        with self.assertRaises(ValueError):
            nn.utils.parametrize.register_parametrization(layer, "weight", parametrization(torch, lambda x: x[:1], lambda x: x * 2))
        self.assertTrue(layer.weight is weight and weight.tolist() == before)

    def test_cached(self):
        calls, layer, tools = [], nn.Linear(2, 3), nn.utils.parametrize
        tools.register_parametrization(layer, "weight", parametrization(torch, lambda x: (calls.append(1), x * 1)[1]), unsafe=True)
        with tools.cached():
            with tools.cached():
                first = layer.weight
            self.assertTrue(layer.weight is first and len(calls) == 1)
        self.assertIsNot(layer.weight, first)

    def test_copies_are_independent(self):
        tools, layer = nn.utils.parametrize, nn.Linear(2, 3)
        tools.register_parametrization(layer, "weight", parametrization(torch, lambda x: -x))
        copied = copy.deepcopy(layer)
        self.assertTrue(torch.equal(copied.weight, layer.weight))
        tools.remove_parametrizations(copied, "weight")
        self.assertTrue(tools.is_parametrized(layer, "weight") and type(copied) is nn.Linear)
        self.assertTrue(torch.equal(copied.weight, layer.weight))
        with self.assertRaisesRegex(RuntimeError, "only supported through state_dict"):
            pickle.dumps(layer)

    @unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
    def test_data_parallel_trains_originals(self):
        layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3)).cuda()
        model = nn.DataParallel(layer, [0, 1])
        model(torch.ones(4, 2, device="cuda")).sum().backward()
        lengths, directions = layer.parametrizations.weight.original0, layer.parametrizations.weight.original1
        self.assertTrue(lengths.grad.shape == (3, 1) and directions.grad.abs().sum() > 0)
        torch.testing.assert_close(model(torch.ones(4, 2, device="cuda")), layer(torch.ones(4, 2, device="cuda")))


class Parametrizations(ComparedWithPyTorch, unittest.TestCase):
    def case_weight_norm(self, library):
        for dim in 0, 1, None:
            layer = linear(library, 3, 4)
            yield outcome(module_of(library, "parametrizations").weight_norm, layer, dim=dim)
            yield outcome(states, layer)
            layer(library.ones(1, 3)).sum().backward()
            yield outcome(lambda: [p.grad for p in layer.parametrizations.weight.parameters()])
        older = {"weight_g": library.tensor(2.0), "weight_v": library.ones(4, 3), "bias": library.zeros(4)}
        yield outcome(layer.load_state_dict, older)
        yield outcome(states, layer)

    def case_spectral_norm(self, library):
        norm = module_of(library, "parametrizations").spectral_norm
        for kind, args, shape, options in (("Linear", (3, 4), (1, 3), {}), ("Conv2d", (2, 3, 2), (1, 2, 2, 2), {"dim": 2}),
                                           ("ConvTranspose2d", (2, 3, 2), (1, 2, 2, 2), {"n_power_iterations": 3})):
            library.manual_seed(5)
            layer = getattr(library.nn, kind)(*args)
            yield outcome(norm, layer, **options)
            yield outcome(lambda: [layer(library.ones(shape)).sum() for _ in range(3)])
            layer.eval()(library.ones(shape)).sum().backward()
            yield outcome(lambda: (layer.weight, layer.parametrizations.weight.original.grad, list(layer.state_dict())))
        yield outcome(lambda: states(norm(linear(library, 3, 4), "bias")))
        for wrong in {"dim": 5}, {"n_power_iterations": 0}, {"name": "none"}:
            yield outcome(norm, linear(library, 3, 4), **wrong)

    def test_orthogonal_weights_stay_orthogonal(self):
        torch.manual_seed(3)
        orthogonal = nn.utils.parametrizations.orthogonal
        for sizes in ((3, 3), (4, 2), (2, 5)):
            for way in (None, "matrix_exp", "cayley", "householder"):
                for trivial in (True, False):
                    layer = orthogonal(nn.Linear(*sizes), orthogonal_map=way, use_trivialization=trivial)
                    torch.optim.SGD(layer.parameters(), 0.1).zero_grad()
                    layer(torch.randn(7, sizes[0])).square().sum().backward()
                    torch.optim.SGD(layer.parameters(), 0.1).step()
                    weight = layer.weight if sizes[0] <= sizes[1] else layer.weight.mT
                    self.assertLess((weight.mT @ weight - torch.eye(min(sizes))).abs().max().item(), 1e-5)

    def test_orthogonal_assignment_and_errors(self):
        orthogonal, turn = nn.utils.parametrizations.orthogonal, torch.tensor([[0., 1.], [-1., 0.]])
        layer = orthogonal(nn.Linear(2, 2))
        layer.weight = turn
        self.assertLess((layer.weight - turn).abs().max().item(), 1e-6)
        for error, text, call in ((ValueError, "orthogonal_map has to be one of", lambda: orthogonal(nn.Linear(2, 2), orthogonal_map="x")),
                                  (ValueError, "Got a tensor of 1 dimensions", lambda: orthogonal(nn.Linear(2, 2), "bias")),
                                  (ValueError, "has no parameter or buffer with name 'x'", lambda: orthogonal(nn.Linear(2, 2), "x")),
                                  (NotImplementedError, "It is not possible to assign to the matrix exponential",
                                   lambda: setattr(orthogonal(nn.Linear(2, 2), use_trivialization=False), "weight", turn))):
            with self.assertRaisesRegex(error, text):
                call()


class Hooks(ComparedWithPyTorch, unittest.TestCase):
    def case_weight_norm(self, library):
        utils, layer = library.nn.utils, linear(library, 3, 4)
        yield outcome(utils.weight_norm, layer)
        yield outcome(states, layer)
        yield outcome(utils.weight_norm, layer)
        layer(library.ones(1, 3)).sum().backward()
        yield outcome(lambda: (layer.weight_g.grad, layer.weight_v.grad))
        state, newer = layer.state_dict(), linear(library, 3, 4)
        yield outcome(module_of(library, "parametrizations").weight_norm, newer)
        yield outcome(newer.load_state_dict, state)
        yield outcome(utils.remove_weight_norm, layer)
        yield outcome(states, layer)
        yield outcome(lambda: list(layer._forward_pre_hooks))
        yield outcome(utils.remove_weight_norm, layer)
        yield outcome(utils.weight_norm, library.nn.LazyLinear(3))
        yield outcome(utils.weight_norm, layer, dim=7)

    def case_spectral_norm(self, library):
        utils, layer = library.nn.utils, linear(library, 3, 4)
        library.manual_seed(3)
        yield outcome(utils.spectral_norm, layer, n_power_iterations=2)
        yield outcome(states, layer)
        yield outcome(lambda: [layer(library.ones(1, 3)) for _ in range(2)])
        copied = copy.deepcopy(utils.spectral_norm(linear(library, 3, 4)))
        copied(library.ones(1, 3)).sum().backward()
        yield outcome(lambda: copied.weight_orig.grad)
        yield outcome(lambda: layer.eval()(library.ones(1, 3)))
        yield outcome(utils.remove_spectral_norm, layer)
        yield outcome(states, layer)
        yield outcome(utils.remove_spectral_norm, layer)
        yield outcome(utils.spectral_norm, layer, n_power_iterations=0)
        yield outcome(utils.spectral_norm, layer, "none")
        yield outcome(utils.spectral_norm, linear(library, 3, 4, bias=False), "bias")
        yield outcome(utils.spectral_norm, library.nn.LazyLinear(3))

    def test_submodules_are_callable(self):
        code = ("import warnings; warnings.simplefilter('ignore')\n"
                "import torch, torch.nn.utils.weight_norm\nfrom torch.nn.utils.weight_norm import WeightNorm\n"
                "layer = torch.nn.utils.weight_norm(torch.nn.Linear(2, 2))\nhook, = layer._forward_pre_hooks.values()\n"
                "print(type(hook) is WeightNorm, torch.nn.utils.spectral_norm(torch.nn.Linear(1, 1)))")
        self.assertEqual(run("-c", code)[1], "True Linear(in_features=1, out_features=1, bias=True)")

    def test_weight_norm_warning_names_callers_line(self):
        with self.assertWarnsRegex(FutureWarning, "in favor of `torch.nn.utils.parametrizations.weight_norm`") as caught:
            nn.utils.weight_norm(nn.Linear(1, 1))
        self.assertEqual(caught.filename, __file__)

    def test_failed_weight_norm_changes_nothing(self):
        layer = nn.Linear(1, 1)
        with self.assertRaises(IndexError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nn.utils.weight_norm(layer, dim=7)
        self.assertEqual((list(layer.state_dict()), len(layer._forward_pre_hooks)), (["weight", "bias"], 0))

    def test_pickle_of_hooked_layer(self):
        layer = nn.utils.spectral_norm(nn.Linear(2, 3))
        again = pickle.loads(pickle.dumps(layer)).eval()
        self.assertEqual(again(torch.ones(1, 2)).tolist(), layer.eval()(torch.ones(1, 2)).tolist())


def pruned(layer, name="weight"):
    hooks = list(layer._forward_pre_hooks.values())
    return sorted(layer.state_dict()), [(type(hook).__name__, hook._tensor_name) for hook in hooks], getattr(layer, name)


class Prune(ComparedWithPyTorch, unittest.TestCase):
    def case_chained_pruning(self, library):
        prune, layer = module_of(library, "prune"), linear(library, 4, 3)
        for step in (lambda: prune.l1_unstructured(layer, "weight", 3), lambda: prune.l1_unstructured(layer, "weight", 0.5),
                     lambda: prune.ln_structured(layer, "weight", 0.4, 2, 0), lambda: prune.identity(layer, "bias"),
                     lambda: prune.custom_from_mask(layer, "bias", library.tensor([0, 1, 1])), lambda: layer(library.ones(1, 4)),
                     lambda: prune.remove(layer, "weight"), lambda: prune.remove(layer, "weight")):
            yield outcome(step)
            yield outcome(pruned, layer)
            yield outcome(prune.is_pruned, layer)

    def case_amounts(self, library):
        prune = module_of(library, "prune")
        for amount in -1, 1.5, "x", 100, 0, 0.0, 1, 1.0, 0.4:
            for function, more in ((prune.random_unstructured, ()), (prune.l1_unstructured, ()), (prune.random_structured, (0,)),
                                   (prune.random_structured, (-1,)), (prune.random_structured, (2,)), (prune.ln_structured, (1, 1)),
                                   (prune.ln_structured, ("fro", 0)), (prune.ln_structured, (float("inf"), -1))):
                layer = linear(library, 4, 3)
                library.manual_seed(0)
                yield outcome(function, layer, "weight", amount, *more)
                yield outcome(pruned, layer)
        yield outcome(prune.ln_structured, layer, "bias", 1, 1, 0)
        yield outcome(prune.random_structured, prune.identity(linear(library, 4, 3), "weight"), "weight", 1, -3)
        yield outcome(lambda: prune.ln_structured(library.nn.Conv2d(3, 4, 2), "weight", 0.5, 2, 1).weight_mask)

    def case_global_pruning(self, library):
        prune = module_of(library, "prune")
        model = library.nn.Sequential(linear(library, 2, 3), linear(library, 3, 2))
        targets = [(model[0], "weight"), (model[1], "weight"), (model[1], "bias")]
        yield outcome(prune.global_unstructured, targets, prune.L1Unstructured, amount=0.5)
        yield outcome(lambda: list(model.state_dict().values()))
        scores = {targets[0]: library.arange(6.0).view(3, 2)}
        yield outcome(prune.global_unstructured, iter(targets) if library is torch else targets, prune.L1Unstructured, scores, amount=2)
        yield outcome(lambda: list(model.state_dict().values()))
        for wrong in (targets, prune.LnStructured, None), (5, prune.L1Unstructured, None), (targets, prune.L1Unstructured, [1]):
            yield outcome(prune.global_unstructured, *wrong, **{"amount": 1, **({"n": 1} if wrong[1] is prune.LnStructured else {})})

    def case_user_defined_methods(self, library):
        prune, layer = module_of(library, "prune"), linear(library, 2, 3)

        class Even(prune.BasePruningMethod):
            PRUNING_TYPE = "unstructured"

            def compute_mask(self, t, default_mask):
                mask = default_mask.clone()
                mask.view(-1)[::2] = 0
                return mask

        class Odd(Even):
            PRUNING_TYPE = "odd"

        yield outcome(lambda: Even.apply(layer, "bias")._tensor_name)
        yield outcome(lambda: len(Even.apply(layer, "bias")))
        yield outcome(pruned, layer, "bias")
        yield outcome(Odd.apply, layer, "bias")
        yield outcome(Even().prune, library.arange(6.0).view(2, 3))
        yield outcome(Even().prune, library.arange(6.0).view(2, 3), importance_scores=library.ones(2))
        yield outcome(prune.BasePruningMethod)
        yield outcome(prune.l1_unstructured, layer, "weight", 1, importance_scores=library.ones(5))
        yield outcome(prune.l1_unstructured, layer, "none", 1)
        method = prune.L1Unstructured(1)
        yield outcome(prune.PruningContainer, method)
        method._tensor_name, other = "x", prune.Identity()
        container, other._tensor_name = prune.PruningContainer(method), "y"
        yield outcome(lambda: (len(container), container[0] is method, list(container) == [method]))
        yield outcome(container.add_pruning_method, other)
        yield outcome(container.add_pruning_method, 5)

    def test_failed_method_changes_nothing(self):
        class Wide(nn.utils.prune.BasePruningMethod):
            PRUNING_TYPE = "global"

            def compute_mask(self, t, default_mask):
                return torch.ones(7)

        layer = nn.Linear(2, 3)
        with self.assertRaisesRegex(RuntimeError, "size of tensor a"):
            Wide.apply(layer, "weight")
        self.assertEqual((list(layer.state_dict()), len(layer._forward_pre_hooks)), (["weight", "bias"], 0))
        nn.utils.prune.l1_unstructured(layer, "weight", 1)
        for wrong in (lambda: Wide.apply(layer, "weight")), (lambda: nn.utils.prune.l1_unstructured(layer, "weight", -1)):
            with self.assertRaises((RuntimeError, ValueError)):
                wrong()
            self.assertEqual([type(hook).__name__ for hook in layer._forward_pre_hooks.values()], ["L1Unstructured"])

    def test_pruned_weights_stay_zero_in_training(self):
        for device in "cpu", "cuda":
            layer = nn.utils.prune.random_structured(nn.LSTM(2, 3, device=device), "weight_ih_l0", 0.5, 0)
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
            for _ in range(3):
                layer(torch.ones(1, 1, 2, device=device))[0].sum().backward()
                optimizer.step()
            layer(torch.ones(1, 1, 2, device=device))
            zeros = layer.weight_ih_l0_mask == 0
            self.assertTrue(zeros.sum() == 12 and not layer.weight_ih_l0[zeros].any() and not layer.weight_ih_l0_orig.grad[zeros].any())

    def test_copies_and_pickles_stay_pruned(self):
        prune, layer = nn.utils.prune, nn.Linear(4, 3)
        prune.random_structured(prune.l1_unstructured(layer, "weight", 3), "weight", 1, 0)
        layer.weight = layer.weight.detach()
        for other in copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)):
            hook, = other._forward_pre_hooks.values()
            self.assertEqual([type(hook), *map(type, hook)], [prune.PruningContainer, prune.L1Unstructured, prune.RandomStructured])
            self.assertEqual(other(torch.ones(1, 4)).tolist(), layer(torch.ones(1, 4)).tolist())
            self.assertFalse(prune.is_pruned(prune.remove(other, "weight")))



class NormExceptDim(ComparedWithPyTorch, unittest.TestCase):
    def case_norm_except_dim(self, library):
        v = library.arange(1.0, 25).view(2, 3, 4)
        for dim in -1, 0, 1, 2, -2, -3, 3:
            yield outcome(library.norm_except_dim, v, 2, dim)
            yield outcome(lambda: library._weight_norm(v, library.norm_except_dim(v, 1, dim), dim))
        yield outcome(library.norm_except_dim, library.tensor([3.0, -4]))


if __name__ == "__main__":
    unittest.main()
