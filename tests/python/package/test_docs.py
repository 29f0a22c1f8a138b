# SPDX-License-Identifier: Apache-2.0
"""Output of help() and inspect: signatures and docstrings of all public names (names.py finds them)."""
import ast, doctest, inspect, sys, unittest
import phlox as torch
import names


def ops(space):
    return {name: value for name, value in vars(space).items() if type(value).__name__ in ("op", "method")}


class OpSignatures(unittest.TestCase):
    def test_every_op_has_signature(self):
        for space in (torch, torch.Tensor, torch.nn.functional):
            self.assertGreater(len(ops(space)), 30)
            for name, op in ops(space).items():
                with self.subTest(space=space.__name__, name=name):
                    inspect.signature(op)

    def shows(self, op, text):
        self.assertEqual(str(inspect.signature(op)), text)

    def test_functions_methods_and_bound_methods(self):
        self.shows(torch.add, "(input, other, *, alpha=1, out=None)")
        self.shows(torch.Tensor.add, "(self, /, other, *, alpha=1)")
        self.shows(torch.ones(2).add_, "(other, *, alpha=1)")

    def test_arguments_beyond_schema(self):
        self.shows(torch.nn.functional.dropout, "(input, p=0.5, training=True, inplace=False)")
        self.shows(torch.zeros, "(*size, dtype=None, device=None, pin_memory=False, requires_grad=False, out=None, layout=None)")
        self.shows(torch.Tensor.permute, "(self, /, *dims)")

    def test_shortest_overload_is_shown(self):
        self.shows(torch.sum, "(input, *, dtype=None)")

    def test_typed_signatures_are_valid_python(self):
        for _, owner, name, signature, doc in torch._op_signatures():
            with self.subTest(owner=owner, name=name):
                ast.parse(f"def f{signature}: ...")
                self.assertTrue(doc)

    def test_docstrings_begin_with_signatures(self):
        self.assertTrue(torch.max.__doc__.startswith("max(input: Tensor, *, out: Tensor | None = None) -> Tensor\nmax(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor\n"
                                                     "max(input: Tensor, dim: int, keepdim: bool = False, *, out: tuple[Tensor, ...] | None = None) -> return_types.max\n"))
        self.assertTrue(torch.ones(2).relu.__doc__.startswith("relu() -> Tensor\n\nReplaces"))


# Exception classes created in C, called like Python's own.
UNSIGNED = {"linalg.LinAlgError", "utils.checkpoint.CheckpointError", "autograd.variable.VariableMeta", "AcceleratorError", "OutOfMemoryError",
            *(f"compiler.{name}" for name in ("InvalidBackend", "TorchDynamoException", "Unsupported")),
            *(f"distributed.{name}Error" for name in ("Dist", "DistBackend", "DistNetwork", "DistStore", "QueueEmpty"))}


class Names(unittest.TestCase):
    def test_every_public_name_has_docstring_and_signature(self):
        every, mute, callables, unsigned = names.report()
        print(f"{len(every)} public names, {len(every) - len(mute)} with a docstring; "
              f"{len(callables)} callables, {len(callables) - len(unsigned)} with a signature")
        self.assertGreater(len(every), 1200)
        self.assertEqual(mute, [])
        self.assertEqual(set(unsigned), UNSIGNED)


class Examples(unittest.TestCase):
    """Examples in docstrings print the documented output. A tensor in an op's example stands on one line."""

    def run_one(self, path, value):
        """Returns the number of example lines in the docstring."""
        home = sys.modules.get("phlox." + path.rpartition(".")[0])
        space = {**(vars(home) if hasattr(home, "__file__") else {}), "torch": torch}  # the globals of a Python file
        test = doctest.DocTestParser().get_doctest(names.docstring(value) or "", space, path, None, 0)
        text = []
        failed = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=text.append).failed
        self.assertEqual(failed, 0, "".join(text))
        return len(test.examples)

    def test_all_examples_run(self):
        counts = {}
        for path, value in names.public():
            if "cuda" in (names.docstring(value) or "") and not torch.cuda.is_available():
                continue
            with self.subTest(path=path):
                counts[path] = self.run_one(path, value)
        with_examples = {path for path, count in counts.items() if count}
        print(f"{sum(counts.values())} lines of examples at {len(with_examples)} names")
        self.assertGreater(sum(type(value).__name__ == "op" for path, value in names.public() if path in with_examples), 60)
        self.assertLessEqual({"nn.Linear", "nn.Conv2d", "nn.BatchNorm2d", "nn.ReLU", "nn.CrossEntropyLoss", "nn.MaxPool2d",
                              "optim.SGD", "optim.Adam", "optim.lr_scheduler.StepLR", "utils.data.DataLoader"}, with_examples)

    def test_every_layer_optimizer_and_scheduler_has_example(self):
        for space, base in ((torch.nn, torch.nn.Module), (torch.optim, torch.optim.Optimizer),
                            (torch.optim.lr_scheduler, torch.optim.lr_scheduler.LRScheduler)):
            for name, cls in vars(space).items():
                if inspect.isclass(cls) and issubclass(cls, base) and cls is not base and not name.startswith(("_", "Kind", "Plateau")):
                    with self.subTest(name=name):
                        self.assertIn(">>> ", cls.__doc__)


if __name__ == "__main__":
    unittest.main()
