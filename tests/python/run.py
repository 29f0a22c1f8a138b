# SPDX-License-Identifier: Apache-2.0
"""Runs one file of unittest cases, or the named cases of it. Prints each name as it starts, so that the log of a hanging test names it, then the
skipped tests with reasons. The last line is 'N passed, N failed, N skipped'."""
import importlib.util, os, sys, unittest

# Processes spawned by a test import this file, and must not run anything.
if __name__ == "__main__":
    path = os.path.abspath(sys.argv[1])
    sys.path[:1] = [os.path.dirname(path), os.path.dirname(os.path.abspath(__file__))]
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    loader = unittest.defaultTestLoader
    tests = loader.loadTestsFromNames(sys.argv[2:], module) if sys.argv[2:] else loader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    for test, reason in result.skipped:
        print(f"skip {test.id()}: {reason}")
    skipped = {test.id() for test, _ in result.skipped}
    failed = {getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors}  # subtests are one test
    print(f"{max(result.testsRun - len(failed) - len(skipped), 0)} passed, {len(failed)} failed, {len(skipped)} skipped")
    sys.exit(len(failed) > 0)
