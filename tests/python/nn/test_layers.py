# SPDX-License-Identifier: Apache-2.0
"""Every layer and loss of the tables, on the examples of its docstring: help, repr, state, copies and pickles. Compared with PyTorch if it is
installed and has the layer: signature, repr, initial weights, results and gradients."""
import copy
import doctest
import inspect
import io
import pickle
import re
import unittest

import phlox as torch

try:
    import torch as pytorch
except ImportError:
    pytorch = None

nn = torch.nn
LAYERS = {name: kind for name, kind in vars(nn).items() if isinstance(kind, type) and issubclass(kind, nn.Module)
          and kind.__doc__ and ">>> layer = " in kind.__doc__}


def cases():
    """(name, source of the constructor call, source of the inputs) of each example."""
    for name, kind in sorted(LAYERS.items()):
        for made, given in re.findall(r">>> layer = torch\.nn\.(.*)\n +>>> layer\((.*)\)(?:\[0\])?\.shape", kind.__doc__):
            yield name, made, given


def first(result):
    """A result, or the first of a tuple of results."""
    return result[0] if isinstance(result, tuple) else result


def each(change, inputs):
    """The inputs with every tensor changed, including those in tuples."""
    return [tuple(each(change, x)) if isinstance(x, tuple) else change(x) for x in inputs]


def build(library, made):
    library.manual_seed(3)
    return eval(made, {**vars(library.nn), "torch": library})


def numbers(text):
    """Prints integral floats as integers, since versions of PyTorch differ in the type of defaults."""
    return re.sub(r"(\d)\.0\b", r"\1", text)


class Documents(unittest.TestCase):
    def test_every_layer_is_documented(self):
        known = {name for name, kind in vars(nn).items() if isinstance(kind, type) and issubclass(kind, nn.Module) and name[0] != "_"}
        known -= {name for name in known if issubclass(getattr(nn, name), nn.LazyModuleMixin)}
        others = {"Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "DataParallel", "RNNBase", "RNNCellBase",
                  "TransformerEncoder", "TransformerDecoder"}
        self.assertEqual(known - set(LAYERS) - others, set())
        self.assertGreater(len(LAYERS), 80)

    def test_docstring_examples(self):
        finder, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
        others = ("Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "TransformerEncoder", "TransformerDecoder")
        for name, kind in {**LAYERS, **{name: getattr(nn, name) for name in others}}.items():
            self.assertIn(">>> ", kind.__doc__, name)
            report = io.StringIO()
            runner.run(finder.get_doctest(kind.__doc__, {"torch": torch}, name, None, 0), out=report.write)
            self.assertEqual(report.getvalue(), "")
        self.assertGreater(runner.tries, 250)

    def test_signatures_match_documented_arguments(self):
        self.assertEqual(str(inspect.signature(nn.Linear)), "(in_features, out_features, bias=True, device=None, dtype=None)")
        self.assertEqual(str(inspect.signature(nn.Sequential)), "(*modules)")
        for name, kind in LAYERS.items():
            doc = kind.__doc__
            for parameter in inspect.signature(kind).parameters:
                self.assertRegex(doc, rf"\n    {parameter} \(", name)


class Tagged(torch.Tensor):
    pass


class RecordFunctions(torch.overrides.TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Overridden(unittest.TestCase):
    def test_layers_keep_subclasses_and_dispatch_to_modes(self):
        for name, made, given in cases():
            with self.subTest(name):
                layer, inputs = build(torch, made), eval(f"({given},)", {"torch": torch})
                results = []
                for tag in (False, True):
                    torch.manual_seed(4)
                    results.append(first(copy.deepcopy(layer)(*each(lambda x: x.as_subclass(Tagged) if tag else x, inputs))))
                torch.manual_seed(4)
                with RecordFunctions() as listing:
                    results.append(first(copy.deepcopy(layer)(*inputs)))
                listing.seen = [f for f in listing.seen if getattr(f, "__name__", "") not in ("__get__", "__set__", "clone", "detach", "as_strided")]
                self.assertEqual([type(r) for r in results], [torch.Tensor, Tagged, torch.Tensor])
                self.assertTrue(name == "Identity" or listing.seen)
                for result in results[1:]:
                    self.assertTrue(torch.equal(results[0], result.as_subclass(torch.Tensor)) or results[0].isnan().any())


class Copies(unittest.TestCase):
    def same(self, a, b):
        self.assertEqual(repr(a), repr(b))
        self.assertEqual(list(a.state_dict()), list(b.state_dict()))
        for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True):
            self.assertTrue(torch.equal(x, y))
        self.assertEqual((type(a), a.training), (type(b), b.training))

    def test_copies_and_pickles(self):
        for name, made, _ in cases():
            with self.subTest(made):
                layer = build(torch, made).eval()
                self.same(copy.deepcopy(layer), layer)
                self.same(pickle.loads(pickle.dumps(layer)), layer)

    def test_load_state_dict(self):
        for name, made, _ in cases():
            with self.subTest(made):
                layer, other = build(torch, made), eval(made, {**vars(nn), "torch": torch})
                self.assertEqual(str(other.load_state_dict(layer.state_dict())), "<All keys matched successfully>")

    def test_keyword_inputs(self):
        x, y = torch.randn(2, 3), torch.randn(2, 3)
        self.assertEqual(nn.L1Loss()(target=y, input=x).item(), nn.L1Loss()(x, y).item())
        for call, text in ((lambda: nn.L1Loss()(x), r"missing 1 required positional argument: 'target'"),
                           (lambda: nn.CosineEmbeddingLoss()(), r"missing 3 required positional arguments: 'input1', 'input2', and 'target'"),
                           (lambda: nn.L1Loss()(x, other=y), "unexpected keyword argument 'other'"),
                           (lambda: nn.L1Loss()(x, y, input=x), "multiple values for argument 'input'"),
                           (lambda: nn.ReLU()(x, y), r"takes 2 positional arguments but 3 were given")):
            with self.assertRaisesRegex(TypeError, text):
                call()

    def test_unexpected_arguments_raise(self):
        for call, text in ((lambda: nn.Sigmoid(1), "takes 1 positional argument but 2"), (lambda: nn.Sigmoid(inplace=True), "unexpected keyword argument"),
                           (lambda: nn.LayerNorm(3, eps=None), "argument 'eps' cannot be NoneType"), (lambda: nn.MaxPool2d("2"), "argument 'kernel_size' cannot be str"),
                           (lambda: nn.ModuleList(layers=[]), "unexpected keyword argument 'layers'")):
            with self.assertRaisesRegex(TypeError, text):
                call()
        self.assertEqual(len(nn.ModuleList(modules=[nn.ReLU()])), 1)
        self.assertIsNone(nn.Linear(2, 3, bias=None).bias)
        self.assertIsNone(nn.BatchNorm1d(2, momentum=None).momentum)

    def test_inplace(self):
        for name, made, given in cases():
            if "inplace=True" not in made:
                continue
            with self.subTest(made):
                layer, x = build(torch, made), eval(given)
                self.assertEqual(layer(x).data_ptr(), x.data_ptr())
                leaf = torch.randn(2, 3, requires_grad=True)
                layer.eval()(leaf * 1).sum().backward()
                plain = eval(re.sub(r"(, )?inplace=True", "", made), {**vars(nn), "torch": torch}).eval()
                other = leaf.detach().clone().requires_grad_()
                plain(other).sum().backward()
                self.assertTrue(torch.allclose(leaf.grad, other.grad))


# Arguments and parts of reprs that the current PyTorch has, and older ones may lack.
NEWER = {**{f"{kind}Norm{n}d": {"bias"} for kind in ("Batch", "Instance") for n in (1, 2, 3)}, "SyncBatchNorm": {"bias"}, "LayerNorm": {"bias"}, "GroupNorm": {"bias"},
         "Transformer": {"bias"}, "TransformerEncoderLayer": {"bias"}, "TransformerDecoderLayer": {"bias"}}
LACKING = {"Embedding": {"_weight"}, "EmbeddingBag": {"_weight"}, "Hardtanh": {"min_value", "max_value"}}
PRINTED = r", bias=(True|False)(?=, track)|, bias=(True|False)(?=\)$)"


@unittest.skipIf(pytorch is None or not hasattr(pytorch, "__version__") or "phlox" in pytorch.__version__, "PyTorch is not installed")
class ComparedWithPyTorch(unittest.TestCase):
    def known(self):
        for name, made, given in cases():
            try:
                theirs = build(pytorch, made)
            except (TypeError, AttributeError, NameError):
                continue
            yield name, made, given, theirs

    def test_signatures(self):
        for name, kind in LAYERS.items():
            theirs = getattr(pytorch.nn, name, None)
            if theirs is None: continue
            takes = {} if theirs.__init__ is pytorch.nn.Module.__init__ else inspect.signature(theirs).parameters
            wanted = [p for p in takes if p not in LACKING.get(name, ()) and p[0] != "_"]
            if "args" in wanted: continue  # an unspecific signature
            mine = [p for p in inspect.signature(kind).parameters if p in wanted or p not in NEWER.get(name, ())]
            self.assertEqual(mine, wanted, name)

    def test_reprs(self):
        for name, made, given, theirs in self.known():
            mine = numbers(repr(build(torch, made)))
            if name.startswith("Transformer"):  # contains norms
                mine, wanted = (re.sub(", bias=(True|False)(?=\\)$)", "", text, flags=re.M) for text in (mine, numbers(repr(theirs))))
                self.assertEqual(mine, wanted)
                continue
            if re.match("(Sync)?(Batch|Instance|Group|Layer)Norm", name):
                mine = re.sub(PRINTED, "", mine)
            wanted = numbers(repr(theirs))
            if re.match("(Sync)?(Batch|Instance|Group|Layer)Norm", name):  # printed arguments depend on the version
                wanted = re.sub(PRINTED, "", wanted)
            if name.startswith(("Upsampl", "EmbeddingBag")):  # old versions print the mode without quotes
                mine, wanted = mine.replace("'", ""), wanted.replace("'", "")
            self.assertEqual(mine, wanted)

    def test_initial_weights(self):
        for name, made, given, theirs in self.known():
            with self.subTest(made):
                mine = build(torch, made)
                self.assertEqual(list(mine.state_dict()), list(theirs.state_dict()))
                for key, value in theirs.state_dict().items():
                    if not key.endswith("weight") or "Loss" not in name:  # loss weights are random numbers of the example
                        self.assertTrue(pytorch.allclose(pytorch.tensor(mine.state_dict()[key].tolist()).to(value.dtype), value), key)

    def test_results_and_gradients(self):
        for name, made, given, theirs in self.known():
            if "Dropout" in name or name == "RReLU":  # random
                continue
            if name == "SyncBatchNorm" and pytorch.__version__ < "2":  # required a GPU
                continue
            with self.subTest(made):
                mine = build(torch, made)
                theirs.load_state_dict({k: pytorch.tensor(v.tolist()).to(theirs.state_dict()[k].dtype) for k, v in mine.state_dict().items()})
                torch.manual_seed(5)
                inputs = eval(f"({given},)")
                others = each(lambda x: pytorch.tensor(x.tolist()), inputs)
                floating = inputs[0].is_floating_point()
                if floating:
                    inputs[0].requires_grad_(), others[0].requires_grad_()
                # in-place ops need a non-leaf
                result = first(mine(inputs[0] * 1, *inputs[1:]) if floating else mine(*inputs))
                wanted = first(theirs(others[0] * 1, *others[1:]) if floating else theirs(*others))
                self.assert_close(result, wanted)
                if floating:
                    # The gradient of a norm's sum of squares would consist of rounding errors only.
                    slope = [i % 7 / 7 for i in range(result.numel())]
                    try:
                        (wanted * pytorch.tensor(slope).view(wanted.shape)).sum().backward()
                    except RuntimeError as error:  # PyTorch 1.13 lacks the derivative of channel_shuffle
                        self.assertIn("derivative for", str(error))
                        continue
                    (result * torch.tensor(slope).view(result.shape)).sum().backward()
                    self.assert_close(inputs[0].grad, others[0].grad)
                for (key, p), q in zip(mine.named_parameters(), theirs.parameters(), strict=True):
                    if floating:
                        self.assert_close(p.grad, q.grad)

    def assert_close(self, mine, theirs):
        self.assertEqual(tuple(mine.shape), tuple(theirs.shape))
        # pow differs between machines in the last digit, and CrossMapLRN2d's gradient is a small difference of such values.
        self.assertTrue(pytorch.allclose(pytorch.tensor(mine.tolist()), theirs.detach(), 1e-4, 5e-5), f"{mine}\n{theirs}")


if __name__ == "__main__":
    unittest.main()
