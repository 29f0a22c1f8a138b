# SPDX-License-Identifier: Apache-2.0
"""torch.ops: ops registered by shared objects, compiled here from C."""
import os
import shutil
import subprocess
import tempfile
import unittest

import phlox as torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
COMPILER = shutil.which("cc") or shutil.which("gcc")
GEN = os.path.join(ROOT, "build", "gen")

SOURCE = r"""
#include <phlox/phlox.h>
static px_status triple(const px_launch *l) {
  const float *x = l->operands[1].data;
  for (int64_t i = 0; i < px_operand_numel(&l->operands[0]); i++)
    ((float *)l->operands[0].data)[i] = 3 * x[i];
  return PX_OK;
}
static px_status gradient(px_op_gradient *g) { return px_mul_scalar(&g->out[0], g->grads[0], px_int(3)); }
static px_status both(px_tensor **results, const px_value *args) {
  PX_TRY(px_neg(&results[0], args[0].v.tensor));
  return px_abs(&results[1], args[0].v.tensor);
}
PX_CALL px_library_entry(void);
px_status px_library_entry(void) {
  ENTRY
  return PX_OK;
}
"""
TRIPLE = """PX_TRY(px_op_register(NULL, &(px_op_definition){.schema = "%s(Tensor self, *, float unused=1) -> Tensor",
    .kind = "pointwise inplace %s", .dtypes = "float32", .doc = "Gives three times self.", .kernels = {{"cpu", triple}}, .gradient = gradient}));"""
BOTH = """PX_TRY(px_op_register(NULL, &(px_op_definition){.schema = "%s(Tensor x) -> (Tensor neg, Tensor abs)",
    .kind = "composite", .run = both}));"""


@unittest.skipUnless(COMPILER and os.path.isdir(GEN), "no C compiler, or no build/gen")
class OwnOps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.compiled = 0

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def library(self, *entries, source=SOURCE):
        OwnOps.compiled += 1
        path = os.path.join(self.folder.name, f"lib{OwnOps.compiled}.so")
        package = os.path.dirname(torch.__file__)
        flags = "-x c - -std=c11 -shared -fPIC".split() + [f"-I{ROOT}/include", f"-I{GEN}", "-x", "none", f"{package}/libphlox.so.0", "-o", path]
        subprocess.run([COMPILER, *flags], input=source.replace("ENTRY", "\n".join(entries)).encode(), check=True, timeout=60)
        return path

    def load(self, *entries):
        torch.ops.load_library(self.library(*entries))

    def test_call_and_backward(self):
        path = self.library(TRIPLE % ("first::triple", ""))
        torch.ops.load_library(path)
        torch.ops.load_library(path)  # loading again has no effect
        self.assertIn(path, torch.ops.loaded_libraries)
        x = torch.tensor([1., 2.], requires_grad=True)
        y = torch.ops.first.triple(x)
        self.assertEqual(y.tolist(), [3., 6.])
        self.assertEqual(repr(y.grad_fn)[:16], "<TripleBackward0")
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), [3., 3.])
        self.assertIs(torch.ops.first.triple, torch.ops.first.triple)
        self.assertIn("Gives three times self.", torch.ops.first.triple.__doc__)

    def test_runs_on_simulated_devices(self):
        if not torch.cuda.is_available() or "simulated" not in torch.cuda.get_device_name(0):
            self.skipTest("requires a simulated device")
        self.load(TRIPLE % ("far::triple", ""))
        x = torch.arange(6., device="cuda").view(2, 3).t()
        self.assertEqual(torch.ops.far.triple(x).tolist(), (3 * x).tolist())
        self.assertEqual(torch.ops.far.triple_(x).tolist(), x.tolist())

    def test_method_and_toplevel_registration(self):
        self.load(TRIPLE % ("asked::asked_triple", "method toplevel"), TRIPLE % ("asked::hidden_triple", ""))
        x = torch.ones(2)
        self.assertEqual(x.asked_triple().tolist(), [3., 3.])
        self.assertEqual(torch.asked_triple(x).tolist(), [3., 3.])
        self.assertEqual(x.asked_triple_().tolist(), [3., 3.])
        self.assertEqual(x.tolist(), [3., 3.])
        self.assertFalse(hasattr(x, "hidden_triple") or hasattr(torch, "hidden_triple"))

    def test_multiple_results(self):
        self.load(BOTH % "pair::both")
        result = torch.ops.pair.both(torch.tensor([-2.]))
        self.assertIs(type(result), tuple)
        self.assertEqual([t.item() for t in result], [2., 2.])

    def test_call_errors(self):
        self.load(TRIPLE % ("told::triple", ""))
        with self.assertRaisesRegex(AttributeError, "'_OpNamespace' 'told' object has no attribute 'double'"):
            torch.ops.told.double
        with self.assertRaisesRegex(TypeError, r"triple\(\): argument 'input' \(position 1\) must be Tensor, not int"):
            torch.ops.told.triple(3)
        with self.assertRaisesRegex(TypeError, r"triple\(\) got an unexpected keyword argument 'bate'"):
            torch.ops.told.triple(torch.ones(1), bate=2)
        with self.assertRaisesRegex(NotImplementedError, "not implemented for 'Double'"):
            torch.ops.told.triple(torch.ones(1, dtype=torch.float64))

    def test_library_loads_library(self):
        inner = self.library(TRIPLE % ("inner::triple", ""))
        self.load(f'PX_TRY(px_op_load_library("{inner}"));', TRIPLE % ("outer::triple", ""))
        self.assertEqual(torch.ops.inner.triple(torch.ops.outer.triple(torch.ones(1))).item(), 9.)

    def test_missing_in_place_form(self):
        self.load((TRIPLE % ("still::triple", "")).replace("inplace", ""))
        x = torch.ones(2)
        with self.assertRaisesRegex(AttributeError, "'still' object has no attribute 'triple_'"):
            torch.ops.still.triple_(x)

    def test_load_errors(self):
        with self.assertRaisesRegex(OSError, "cannot open shared object file"):
            torch.ops.load_library("/nowhere/lib.so")
        with self.assertRaisesRegex(OSError, "has no function px_library_entry"):
            torch.ops.load_library(self.library(source="int nothing;"))
        with self.assertRaisesRegex(ValueError, "op 'twice::triple' is already registered"):
            self.load(TRIPLE % ("twice::triple", ""), TRIPLE % ("twice::triple", ""))
        with self.assertRaisesRegex(ValueError, "character 13: unknown type 'Tensro'"):
            self.load((TRIPLE % ("bad::triple", "")).replace("Tensor self", "Tensro self"))
        with self.assertRaisesRegex(RuntimeError, "taken::add cannot be torch.add: there is one"):
            self.load(TRIPLE % ("taken::add", "toplevel"))
        self.assertEqual(torch.add(torch.ones(1), 1).item(), 2.)

    def test_phlox_namespace(self):
        self.assertEqual(torch.ops.phlox.add(torch.ones(1), torch.ones(1), alpha=2).item(), 3.)
        self.assertEqual(torch.ops.phlox.neg_(torch.ones(1)).item(), -1.)


if __name__ == "__main__":
    unittest.main()
