# SPDX-License-Identifier: Apache-2.0
"""python3 -m phlox: `torch` is Phlox, in the program and in its child processes."""
import os
import subprocess
import sys
import tempfile
import unittest

import phlox


def run(*args, **env):
    path = os.path.dirname(os.path.dirname(phlox.__file__))
    env = {**os.environ, "PYTHONPATH": path, **env}
    done = subprocess.run([sys.executable, "-m", "phlox", *args], env=env, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.strip(), done.stderr


class Main(unittest.TestCase):
    def test_code(self):
        code = ("import sys, torch, torch.nn.functional as F; from torch import nn; "
                "print(torch.ones(2).sum().item(), F is nn.functional, sys.argv)")
        self.assertEqual(run("-c", code, "a", "b")[:2], (0, "2.0 True ['-c', 'a', 'b']"))
        self.assertIn("phlox", run("-c", "import torch; print(torch.__file__)")[1])

    def test_tracebacks_begin_with_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w") as file:
                file.write("def f():\n    raise KeyError('lost')\nf()\n")
            wanted = f'Traceback (most recent call last):\n  File "{path}", line 3, in <module>\n    f()\n  File "{path}", line 2, in f\n'
            packages = os.path.dirname(os.path.dirname(phlox.__file__))
            for args in ([path], ["-m", "program"]):
                code, _, text = run(*args, PYTHONPATH=f"{folder}:{packages}")
                self.assertEqual((code, text[:len(wanted)], text.splitlines()[-1]), (1, wanted, "KeyError: 'lost'"))
            with open(path, "w") as file:
                file.write("x = = 2\n")
            self.assertTrue(run(path)[2].startswith(f'  File "{path}", line 1\n'))

    def test_console_and_options(self):
        done = subprocess.run([sys.executable, "-m", "phlox"], input="import torch\ntorch.ones(2)\n", capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(phlox.__file__)), "PHLOX_BACKENDS": "sim", "PHLOX_SIM_DEVICES": "2"})
        self.assertEqual(done.stdout.strip(">\n "), "tensor([1., 1.])")
        self.assertRegex(done.stderr, r"^Phlox \d+\.\d+\.\d+ as torch .* on Python .* \(2 Phlox simulated devices\)\n")
        version = f"Phlox {phlox.version.phlox} (torch {phlox.__version__})"
        self.assertEqual([run("--version"), run("-V")], [(0, version, "")] * 2)
        self.assertIn("python3 -m phlox FILE", run("--help")[1])
        self.assertIn("unknown option --no-such", run("--no-such")[2])

    def test_report_of_the_environment(self):
        code, text, errors = run("-m", "torch.env", PHLOX_STORE_SECRET="hidden from reports", PHLOX_SIM_DEVICES="1",
                                 PHLOX_BACKENDS="sim")
        self.assertEqual((code, errors), (0, ""))
        for line in (f"Phlox {phlox.version.phlox}", "PHLOX_SIM_DEVICES=1", "PHLOX_STORE_SECRET=(hidden)", "GPU 0: Phlox simulated device", "CPU kernels: "):
            self.assertIn(line, text)

    def test_missing_programs_are_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            missing = os.path.join(folder, "missing.py")
            for args, code, text in (([missing], 2, f"can't open file {missing!r}: [Errno 2] No such file or directory"),
                                     ([folder], 2, f"can't open file {folder!r}: [Errno 21] Is a directory"),
                                     (["-m", "no_such"], 1, "No module named no_such"), (["-m", "torch.no_such"], 1, "No module named torch.no_such")):
                self.assertEqual(run(*args), (code, "", f"{sys.executable}: {text}\n"))
            with open(os.path.join(folder, "failing.py"), "w") as file:
                file.write("import no_such_import")
            self.assertIn("No module named 'no_such_import'", run("-m", "failing", PYTHONPATH=f"{folder}:{os.path.dirname(os.path.dirname(phlox.__file__))}")[2])

    def test_python_modules_are_imported_lazily_and_once(self):
        code = ("import sys, torch; print('phlox.utils.data' in sys.modules, 'data' in dir(torch.utils)); "
                "from torch.utils.data.sampler import Sampler; import phlox.utils.data as data, torch.utils.data as same; "
                "print(data is same is torch.utils.data, Sampler is data.Sampler, data.__spec__.name, data.__name__)")
        self.assertEqual(run("-c", code)[1].split("\n"), ["False True", "True True phlox.utils.data torch.utils.data"])
        self.assertIn("No module named 'torch.utils.no_such'", run("-c", "import torch.utils.no_such")[2])

    def test_modules_are_named_torch(self):
        code = ("import torch; from torch.optim import lr_scheduler; "
                "print(*(m.__name__ for m in (torch, torch.nn, torch.nn.utils, torch.cuda, torch.cuda.memory, torch.optim, lr_scheduler, "
                "torch.backends.cudnn)))")
        self.assertEqual(run("-c", code)[1], "torch torch.nn torch.nn.utils torch.cuda torch.cuda.memory "
                         "torch.optim torch.optim.lr_scheduler torch.backends.cudnn")
        self.assertEqual(phlox.__name__, "phlox")

    def test_package_metadata(self):
        code = ("import importlib.metadata as m, importlib.util, torch; print(m.version('torch') == torch.__version__, m.metadata('torch')['Name'], "
                "importlib.util.find_spec('torch').name, [d.version == torch.__version__ for d in m.distributions(name='torch')][:1])\n"
                "try: m.version('no-such-package')\nexcept m.PackageNotFoundError as error: print(error)")
        self.assertEqual(run("-c", code)[1], "True torch phlox [True]\nNo package metadata was found for no-such-package")

    def test_number_of_threads(self):
        count = "import os; print(len(os.listdir('/proc/self/task')))"
        program = f"""
import torch
x, w = torch.rand(16, 16, 64, 64), torch.rand(16, 16, 3, 3)  # convolutions take all threads
run = lambda: torch.nn.functional.conv2d(x, w)
before, _ = torch.get_num_threads(), run()
{count}
torch.set_num_threads(4)
y = run()
{count}
torch.set_num_threads(1)
print(before, torch.get_num_threads(), torch.equal(run(), y))
try: torch.set_num_threads(0)
except RuntimeError as error: print(error)
"""
        out = run("-c", program, PHLOX_THREADS="2")[1]
        self.assertEqual(out.split("\n"), ["2", "4", "2 1 True", "set_num_threads expects a positive integer"])

    def test_script_with_spawned_processes(self):
        program = """
import multiprocessing, sys, torch
def work(x): return (x * 2).tolist() + ["phlox" in torch.__file__]
if __name__ == "__main__":
    print(sys.argv[1:], __file__.endswith("program.py"))
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.apply(work, (torch.ones(2),)))
"""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "program.py")
            with open(file, "w") as f:
                f.write(program)
            code, out, errors = run(file, "--flag")
        self.assertEqual((code, out), (0, "['--flag'] True\n[2.0, 2.0, True]" + "\n[2.0, 2.0, True]" * 2), errors)

    def test_module_and_exit_status(self):
        self.assertEqual(run("-m", "platform")[0], 0)
        self.assertEqual(run("-c", "raise SystemExit(3)")[0], 3)
        self.assertIn("unknown option", run("--no-such")[2])


if __name__ == "__main__":
    unittest.main()
