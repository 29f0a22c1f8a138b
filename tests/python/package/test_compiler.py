# SPDX-License-Identifier: Apache-2.0
"""torch.compile and torch.compiler: what a compiled call is, its arguments, and modules."""
import copy
import os
import pickle
import unittest

import phlox as torch


class Double(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.factor = torch.nn.Linear(3, 3), 2.0

    def forward(self, x):
        return self.layer(x).relu() * self.factor


class Functions(unittest.TestCase):
    def test_compiled_function_keeps_its_name_and_text(self):
        @torch.compile(dynamic=False)
        def scaled(x, *, by=2):
            "Scales."
            return x * by + 1

        self.assertEqual((scaled.__name__, scaled.__doc__), ("scaled", "Scales."))
        self.assertEqual(scaled(torch.ones(2), by=3).tolist(), [4, 4])

    def test_disabled_compile_returns_function(self):
        self.assertIs(torch.compile(len, disable=True), len)
        self.assertIs(torch.compile(disable=True)(len), len)

    def test_argument_errors(self):
        for arguments, text in (({"mode": "default", "options": {}}, "^Either mode or options can be specified, but both can't be specified at the same time.$"),
                                ({"mode": "best"}, "^Unrecognized mode=best, should be one of: default, reduce-overhead"),
                                ({"options": {"speed": 1}}, "^Unexpected optimization option speed, known options are"),
                                ({"backend": "llvm"}, "^Invalid backend: 'llvm', see `torch._dynamo.list_backends\\(\\)` for available backends.$")):
            with self.assertRaisesRegex(RuntimeError, text):
                torch.compile(len, **arguments)
        with self.assertRaisesRegex(RuntimeError, "expected a function or a module, but got int"):
            torch.compile(3)
        with self.assertRaisesRegex(NotImplementedError, "takes a torch.fx graph"):
            torch.compile(len, backend=lambda graph, inputs: graph)

    def test_whole_graph_refuses_reads_of_values(self):
        x = torch.ones(3)
        for read in (lambda x: x.sum().item(), lambda x: bool(x.sum() > 0), lambda x: x.tolist(), lambda x: float(x.sum()), lambda x: int(x.sum())):
            with self.assertRaisesRegex(torch._dynamo.exc.Unsupported, "^Graph break: the program needs the "):
                torch.compile(lambda x: (x + 1, read(x)), fullgraph=True)(x)
            torch.compile(lambda x: (x + 1, read(x)))(x)
        self.assertEqual(torch.compile(lambda x: x.sum() * x.shape[0], fullgraph=True)(x).item(), 9)

    def test_exception_of_function_ends_the_call(self):
        def fails(x):
            y = x + 1
            raise KeyError(y)

        with self.assertRaises(KeyError) as raised:
            torch.compile(fails)(torch.ones(2))
        self.assertEqual(raised.exception.args[0].tolist(), [2, 2])
        self.assertFalse(torch.compiler.is_compiling())

    def test_disabled_function_runs_uncompiled_within_a_compiled_one(self):
        seen = []
        inner = torch.compiler.disable(lambda x: (seen.append(torch.compiler.is_compiling()), x + 1)[1])
        outer = torch.compile(lambda x: (seen.append(torch.compiler.is_compiling()), inner(x) * 2)[1])
        self.assertEqual((outer(torch.ones(1)).item(), seen), (4, [True, False]))
        self.assertFalse(torch.compile(torch.compiler.disable(reason="a test")(torch.compiler.is_compiling))())
        self.assertIs(torch.compiler.disable(len, recursive=False), len)

    def test_stance_chooses_how_functions_run(self):
        compiling = torch.compile(torch.compiler.is_compiling)
        with torch.compiler.set_stance("force_eager"):
            self.assertFalse(compiling())
            with torch.compiler.set_stance("fail_on_recompile"):
                self.assertTrue(compiling())
            self.assertFalse(compiling())
        self.assertTrue(compiling())
        self.assertFalse(torch.compiler.set_stance("force_eager")(compiling)())
        with self.assertRaisesRegex(RuntimeError, "invalid torch.compile stance 'quick'"):
            torch.compiler.set_stance("quick")

    def test_backends_by_tag(self):
        self.assertEqual(torch.compiler.list_backends(), ["cudagraphs", "inductor"])
        self.assertEqual(torch.compiler.list_backends(()), ["aot_eager", "cudagraphs", "eager", "inductor"])
        for name in torch.compiler.list_backends(()):
            self.assertEqual(torch.compile(lambda x: x * 2 + 1, backend=name)(torch.ones(1)).item(), 3)


class Modules(unittest.TestCase):
    def test_compiled_module_holds_the_module(self):
        module = Double()
        compiled = torch.compile(module)
        self.assertIs(compiled._orig_mod, module)
        self.assertEqual([name for name, _ in compiled.named_parameters()], ["_orig_mod.layer.weight", "_orig_mod.layer.bias"])
        compiled.factor = 5.0
        self.assertEqual(module.factor, 5.0)
        compiled.eval()
        self.assertFalse(module.training or compiled.training)
        x = torch.ones(2, 3)
        self.assertTrue(torch.equal(compiled(x), module(x)))
        with self.assertRaises(AttributeError):
            compiled.missing
        del compiled.factor
        self.assertFalse(hasattr(module, "factor"))

    def test_compiled_module_is_copied(self):
        compiled = torch.compile(Double())
        for made in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
            self.assertIsNot(made._orig_mod, compiled._orig_mod)
            self.assertTrue(torch.equal(made(torch.ones(1, 3)), compiled(torch.ones(1, 3))))

    def test_module_compiles_itself(self):
        seen = []

        class Watched(torch.nn.Module):
            def forward(self, x):
                seen.append(torch.compiler.is_compiling())
                return x * 2

        module = Watched()
        self.assertIsNone(module.compile(mode="reduce-overhead"))
        self.assertEqual((module(torch.ones(1)).item(), type(module), seen), (2, Watched, [True]))
        module.compile(fullgraph=True)
        layer = torch.nn.Linear(2, 2)
        layer.register_forward_hook(lambda module, inputs, result: result.sum().item())
        layer.compile(fullgraph=True)
        with self.assertRaises(torch._dynamo.exc.Unsupported):
            layer(torch.ones(1, 2))
        with self.assertRaisesRegex(RuntimeError, "Unrecognized mode=best"):
            module.compile(mode="best")


class Memory(unittest.TestCase):
    @unittest.skipUnless(torch.cuda.is_available(), "needs a device")
    @unittest.skipIf(os.environ.get("PHLOX_SANITIZE", "0") == "1", "the race checker turns fusion off")
    @unittest.skipIf(torch.cuda._backend_name() == "cuda", "GPUs do not fuse")
    def test_intermediate_results_get_no_memory(self):
        x = torch.ones(1 << 20, device="cuda", requires_grad=True)

        def peak(function):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            kept = function(x)
            torch.cuda.synchronize()
            return (torch.cuda.max_memory_allocated() - before) / x.nbytes, kept

        def chain(x):
            for _ in range(6):
                x = (x * 0.5 + 1).tanh()
            return x

        fused, result = peak(torch.compile(chain))
        self.assertEqual(fused, 1)
        self.assertGreaterEqual(peak(chain)[0], 7)
        self.assertLess(peak(torch.compile(lambda x: chain(x).sum()))[0], 0.01)
        result.sum().backward()
