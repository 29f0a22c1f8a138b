# SPDX-License-Identifier: Apache-2.0
"""The package's types checked by mypy and pyright: a training script passes, and wrong calls are errors. Skipped if they are not
installed."""
import json, os, re, shutil, subprocess, sys, tempfile, unittest

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.join(HERE, "..", "..", "python")


PYRIGHT = shutil.which("pyright") or shutil.which("basedpyright")


def marked_lines():
    with open(os.path.join(HERE, "typed", "mistakes.py")) as file:
        return {number for number, line in enumerate(file, 1) if line.endswith("# error\n")}


@unittest.skipUnless(shutil.which("mypy"), "mypy is not installed")
class Types(unittest.TestCase):
    def check(self, name, *options):
        """Runs mypy on a file. Returns its errors as {line: text}, its other output, and the process."""
        with tempfile.TemporaryDirectory() as cache:
            run = subprocess.run(["mypy", "--python-version", "3.11", "--cache-dir", cache, "--show-error-codes", *options,
                                  os.path.join(HERE, "typed", name)],
                                 capture_output=True, text=True, cwd=HERE, env={**os.environ, "MYPYPATH": PACKAGE})
        found, rest = {}, []
        for line in run.stdout.splitlines():
            error = re.match(rf".*{name}:(\d+): error: (.*)", line)
            if error:
                found[int(error[1])] = error[2]
            elif "note:" not in line and not line.startswith(("Found ", "Success")):
                rest.append(line)
        return found, rest, run

    def test_training_script_passes_strict_check(self):
        found, rest, run = self.check("training.py", "--strict", "--follow-imports=silent")
        self.assertEqual((found, rest, run.returncode), ({}, [], 0), run.stdout + run.stderr)

    def test_wrong_calls_are_errors(self):
        found, rest, run = self.check("mistakes.py", "--follow-imports=silent")
        marked = marked_lines()
        self.assertGreater(len(marked), 30)
        self.assertEqual(set(found), marked, {line: found.get(line) for line in set(found) ^ marked})
        self.assertEqual(rest, [])

    def test_stubs_have_no_errors(self):
        stubs = [os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(PACKAGE, "phlox"))
                 for name in names if name.endswith(".pyi")]
        self.assertGreater(len(stubs), 15)
        found, rest, run = self.check("training.py", "--follow-imports=silent", *stubs)
        self.assertEqual((rest, run.returncode), ([], 0), run.stdout + run.stderr)


@unittest.skipUnless(PYRIGHT, "pyright is not installed")
class Pyright(unittest.TestCase):
    def test_reports_exactly_the_marked_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "pyrightconfig.json"), "w") as file:
                json.dump({"typeCheckingMode": "standard", "extraPaths": [os.path.abspath(PACKAGE)], "pythonVersion": "3.11",
                           "include": [os.path.join(HERE, "typed")]}, file)
            run = subprocess.run([PYRIGHT, "--outputjson", "-p", file.name], capture_output=True, text=True)
        errors = [one for one in json.loads(run.stdout)["generalDiagnostics"] if one["severity"] == "error"]
        found = {(os.path.basename(one["file"]), one["range"]["start"]["line"] + 1) for one in errors}
        self.assertEqual(found, {("mistakes.py", line) for line in marked_lines()})


class Package(unittest.TestCase):
    def test_py_typed(self):
        self.assertTrue(os.path.exists(os.path.join(PACKAGE, "phlox", "py.typed")))

    def test_python_functions_are_annotated(self):
        import phlox as torch
        for path, files in torch._IN_PYTHON.items():
            module = sys.modules["phlox." + path if path else "phlox"]
            for name in " ".join(files.values()).split():
                value = getattr(module, name)
                if type(value).__name__ == "function":
                    with self.subTest(module=path, name=name):
                        self.assertIn("return", value.__annotations__)

    def test_training_script_runs(self):
        run = subprocess.run([sys.executable, os.path.join(HERE, "typed", "training.py")], capture_output=True, text=True,
                             env={**os.environ, "PYTHONPATH": PACKAGE, "PHLOX_SIM_DEVICES": "2"})
        self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main()
