# SPDX-License-Identifier: Apache-2.0
"""Signatures declared in C for Python: inspect reads them, arguments are bound by them, and the error texts of mismatches."""
import inspect, sys, unittest
import phlox as torch


def signatures():
    """(row, object) of every declared type, function and method."""
    owners = {}
    rows = torch._declared()
    for what, word, name, *_ in rows:
        if what == "module":
            path = name.split()[0]
            owners[word] = sys.modules["phlox._C"] if path == "." else sys.modules["phlox." + path]
        if what == "type" and name:
            path = name.split()[0].split(".")
            owners[word] = getattr(sys.modules[".".join(["phlox"] + path[:-1])], path[-1])
    for row in rows:
        owner = owners.get(row[1])
        if row[0] == "member" and owner is not None:
            yield row, getattr(owner, row[2])
        if row[0] == "new" and owner is not None:
            yield row, owner


def names(text):
    """The parameters of a declared signature, parsed here by Python."""
    return list(inspect.signature(compile_signature(text)).parameters)


def compile_signature(text):
    space = {}
    exec("from __future__ import annotations\ndef f" + text + ": pass", space)
    return space["f"]


class Signatures(unittest.TestCase):
    def test_calls_use_vectorcall(self):
        vectorcall, method_descriptor = 1 << 11, 1 << 17
        for one in (torch.add, torch.Tensor.add, torch.nn.functional.relu, torch.nn.ReLU()):
            self.assertTrue(type(one).__flags__ & vectorcall, one)
        self.assertTrue(type(torch.Tensor.__dict__["add"]).__flags__ & method_descriptor)

    def test_signatures_are_inspectable(self):
        count = 0
        for row, function in signatures():
            with self.subTest(owner=row[1], name=row[2]):
                declared = names(row[3])
                shown = [p for p in inspect.signature(function).parameters if p != "self"]
                self.assertEqual(shown, declared)
                count += 1
        self.assertGreater(count, 10)

    def test_annotations_are_valid_python(self):
        for what, word, name, signature, _ in torch._declared():
            if what in ("member", "new"):
                with self.subTest(owner=word, name=name):
                    compile_signature(signature)


class LazyNames(unittest.TestCase):
    def test_python_functions_are_imported_on_access(self):
        for path, files in torch._IN_PYTHON.items():
            module = sys.modules["phlox." + path if path else "phlox"]
            for name in " ".join(files.values()).split():
                with self.subTest(module=path, name=name):
                    self.assertIn(name, dir(module))
                    self.assertTrue(getattr(module, name).__doc__)


    def test_star_import(self):
        space = {}
        exec("from phlox import *\nfrom phlox.cuda import *", space)
        for name in ("ones", "save", "meshgrid", "FloatTensor", "memory_summary", "current_stream"):
            self.assertIn(name, space)

    def test_tensor_methods_in_python(self):
        self.assertEqual(torch.Tensor.apply_.__qualname__, "Tensor.apply_")
        self.assertEqual(torch.ones(2).new_zeros(1).tolist(), [0.0])


class Arguments(unittest.TestCase):
    def refused(self, text, function, *args, **kwargs):
        with self.assertRaises(TypeError) as caught:
            function(*args, **kwargs)
        self.assertEqual(str(caught.exception), text)

    def test_type_errors_name_the_argument(self):
        f = torch.set_default_device
        self.refused("set_default_device(): argument 'device' (position 1) must be torch.device, not list", f, [])
        self.refused("set_default_device(): argument 'device' must be torch.device, not list", f, device=[])

    def test_argument_count_and_unknown_names(self):
        f = torch.set_default_device
        self.refused("set_default_device() takes 1 positional argument but 2 were given", f, "cpu", 1)
        self.refused("set_default_device() missing 1 required positional argument: 'device'", f)
        self.refused("set_default_device() got an unexpected keyword argument 'where'", f, "cpu", where=1)
        self.refused("Event() got multiple values for argument 'blocking'", torch.cuda.Event, True, True, blocking=True)

    def test_keyword_only_arguments(self):
        self.refused("Stream() takes 2 positional arguments but 3 were given", torch.cuda.Stream, None, 0, 1)


if __name__ == "__main__":
    unittest.main()
