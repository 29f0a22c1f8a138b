# SPDX-License-Identifier: Apache-2.0
"""What help() and inspect show: signatures and docstrings of all public names (names.py finds them)."""
import ast, inspect, unittest
import phlox as torch
import names


def ops(space):
    return {name: value for name, value in vars(space).items() if type(value).__name__ in ("op", "method")}


class OpSignatures(unittest.TestCase):
    def test_every_op_has_one(self):
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

    def test_what_calls_take_beside_the_schema(self):
        self.shows(torch.nn.functional.dropout, "(input, p=0.5, training=True, inplace=False)")
        self.shows(torch.zeros, "(*size, dtype=None, device=None, pin_memory=False, requires_grad=False, layout=None)")
        self.shows(torch.Tensor.permute, "(self, /, *dims)")

    def test_of_several_the_one_with_the_fewest_arguments(self):
        self.shows(torch.sum, "(input, *, dtype=None)")

    def test_typed_ones_are_python(self):
        for _, owner, name, signature, doc in torch._op_signatures():
            with self.subTest(owner=owner, name=name):
                ast.parse(f"def f{signature}: ...")
                self.assertTrue(doc)

    def test_docstrings_begin_with_them(self):
        self.assertTrue(torch.max.__doc__.startswith("max(input: Tensor) -> Tensor\n"
                                                     "max(input: Tensor, dim: int, keepdim: bool = False) -> return_types.max\n"))
        self.assertTrue(torch.ones(2).relu.__doc__.startswith("relu() -> Tensor\n\nReplaces"))


# Classes of errors that C makes, which are called as Python's own are.
UNSIGNED = {"AcceleratorError", "OutOfMemoryError"}


class Names(unittest.TestCase):
    def test_every_public_name_has_a_docstring_and_a_signature(self):
        every, mute, callables, unsigned = names.report()
        print(f"{len(every)} public names, {len(every) - len(mute)} with a docstring; "
              f"{len(callables)} callables, {len(callables) - len(unsigned)} with a signature")
        self.assertGreater(len(every), 1200)
        self.assertEqual(mute, [])
        self.assertEqual(set(unsigned), UNSIGNED)


if __name__ == "__main__":
    unittest.main()
