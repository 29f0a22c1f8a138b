# SPDX-License-Identifier: Apache-2.0
"""Interpreters other than the first cannot import the module. Each test runs programs."""
import os, subprocess, sys, sysconfig, unittest

import phlox

PATH = os.path.dirname(os.path.dirname(phlox.__file__))
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def run(*command, **environment):
    """Runs a program on two simulated devices. Returns its exit status and output."""
    env = {**os.environ, "PHLOX_SIM_DEVICES": "2", "PYTHONPATH": PATH, **environment}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout


MAKE = """
import phlox as torch
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
inner = interpreters.create({})
print(interpreters.run_string(inner, '''
try: import phlox
except ImportError as error: print(error, flush=True)
'''))
x = torch.ones(3, device="cuda", requires_grad=True)
x.register_hook(lambda grad: grad * 2)
(x * 2).sum().backward()
print(x.grad.tolist())
"""
REFUSED = "module phlox._C does not support loading in subinterpreters\n"


class Interpreters(unittest.TestCase):
    def test_subinterpreters_cannot_import(self):
        kinds = ["'legacy'", "'isolated'"] if sys.version_info >= (3, 13) else ["isolated=False", "isolated=True"]
        for kind in kinds:
            with self.subTest(kind):
                self.assertEqual(run(sys.executable, "-W", "ignore", "-c", MAKE.format(kind)), (0, REFUSED + "None\n[4.0, 4.0, 4.0]\n"))

    def test_second_load_is_refused(self):
        code = "import phlox, sys; sys.modules.clear(); import phlox"
        status, text = run(sys.executable, "-c", code)
        self.assertEqual((status, text.splitlines()[-1]), (1, "ImportError: cannot load module phlox._C more than once per process"))

    @unittest.skipUnless(FREE_THREADED, "requires a free-threaded Python")
    def test_free_threaded_interpreter_enables_the_gil(self):
        code = "import sys, phlox; print(sys._is_gil_enabled())"
        self.assertEqual(run(sys.executable, "-W", "ignore", "-c", code), (0, "True\n"))
        status, text = run(sys.executable, "-X", "gil=0", "-c", code)
        self.assertEqual((status, text.splitlines()[-1]), (1, "ImportError: module phlox._C requires the GIL, which PYTHON_GIL=0 or -X gil=0 disables"))


if __name__ == "__main__":
    unittest.main()
