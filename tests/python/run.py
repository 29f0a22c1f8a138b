# SPDX-License-Identifier: Apache-2.0
"""Runs one file of unittest cases; the last line is 'N passed, N failed, N skipped'."""
import importlib.util, os, sys, unittest

path = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.dirname(path))
spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
result = unittest.TextTestRunner(verbosity=1).run(unittest.defaultTestLoader.loadTestsFromModule(module))
failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
sys.exit(failed > 0)
