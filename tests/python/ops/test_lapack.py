# SPDX-License-Identifier: Apache-2.0
"""The search for a LAPACK library, including libraries with 64-bit integers and decorated function names."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import phlox as torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
PACKAGE = os.path.dirname(os.path.abspath(torch.__file__))
# Functions with 64-bit integers that wrap this process's LAPACK: those called by the test below; all other names abort.
WIDE = """
#include <stdint.h>
#include <stdlib.h>
void dgetrf_(int *, int *, double *, int *, int *, int *);
void dgetrs_(const char *, int *, int *, const double *, int *, const int *, double *, int *, int *, size_t);
static int pivots[64];
void scipy_dgetrf_64_(int64_t *m, int64_t *n, double *a, int64_t *lda, int64_t *out, int64_t *info) {
  int sizes[] = {(int)*m, (int)*n, (int)*lda}, bad = 0;
  dgetrf_(sizes, sizes + 1, a, sizes + 2, pivots, &bad);
  for (int i = 0; i < sizes[0]; i++) out[i] = pivots[i];
  *info = bad;
}
void scipy_dgetrs_64_(const char *turned, int64_t *n, int64_t *columns, const double *a, int64_t *lda, const int64_t *in, double *b, int64_t *ldb,
                      int64_t *info, size_t length) {
  int sizes[] = {(int)*n, (int)*columns, (int)*lda, (int)*ldb}, bad = 0;
  for (int i = 0; i < sizes[0]; i++) pivots[i] = (int)in[i];
  dgetrs_(turned, sizes, sizes + 1, a, sizes + 2, pivots, b, sizes + 3, &bad, length);
  *info = bad;
}
"""


def names():
    """Undecorated names of all functions required of a library."""
    with open(os.path.join(ROOT, "backends", "cpu", "linalg", "lapack.h")) as f:
        rows = re.findall(r"XX\(\w+, (\w+), (\w+),", f.read())
    return {letter + name for real, of_complex in rows for letter, name in (("s", real), ("d", real), ("c", of_complex), ("z", of_complex))}


class Search(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.prefix = os.path.realpath(temporary.name)
        self.site = os.path.join(self.prefix, "lib", "python3", "site-packages")
        package = os.path.join(self.site, "phlox")
        os.makedirs(package)
        for name in os.listdir(PACKAGE):
            os.symlink(os.path.join(PACKAGE, name), os.path.join(package, name))
        self.library = torch._C._cpu_lapack()

    def install(self, *path, source=None):
        """Installs a library at a path below site-packages; by default the one found by this process."""
        path = os.path.join(self.site, *path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(source or self.library, path)
        return os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)

    def run_code(self, code, **env):
        unset = {name: value for name, value in os.environ.items() if name != "PHLOX_LAPACK"}
        done = subprocess.run([sys.executable, "-c", "import phlox as torch\n" + code], env={**unset, "PYTHONPATH": self.site, **env}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def found_library(self, **env):
        path = self.run_code("print(torch._C._cpu_lapack())\nassert torch.linalg.det(torch.eye(3)).item() == 1", **env)
        return os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)

    def test_pip_installed_libraries_precede_others(self):
        scipys = self.install("..", "scipy.libs", "libscipy_openblas-1.so")
        self.assertNotEqual(self.found_library(), scipys)
        numpys = self.install("numpy.libs", "libscipy_openblas64_-1.so")
        self.assertEqual(self.found_library(), numpys)
        scipys = self.install("scipy.libs", "libscipy_openblas-1.so")
        self.assertEqual(self.found_library(), scipys)
        mkl = self.install("..", "..", "libmkl_rt.so.2")
        self.assertEqual(self.found_library(), mkl)
        self.assertEqual(self.found_library(PHLOX_LAPACK=numpys), numpys)

    def test_libraries_without_functions_are_skipped(self):
        self.install("scipy.libs", "libscipy_openblas-1.so", source=__file__)
        self.install("numpy.libs", "libscipy_openblas64_-1.so", source=next(line.split()[-1] for line in open("/proc/self/maps") if "/libm.so" in line))
        numpys = self.install("numpy.libs", "libscipy_openblas64_-2.so")
        self.assertEqual(self.found_library(), numpys)

    def test_system_openblas_precedes_reference_lapack(self):
        openblas = self.install("system", "libopenblas.so.0")
        self.install("system", "liblapack.so.3")
        self.assertEqual(self.found_library(LD_LIBRARY_PATH=os.path.dirname(openblas)), openblas)

    def test_config_names_library(self):
        self.assertIn("\n  - LAPACK: %s\n" % self.library, torch.__config__.show())
        self.assertIn("LAPACK: none", self.run_code("print(torch.__config__.show())", PHLOX_LAPACK="nowhere.so"))

    @unittest.skipUnless(shutil.which("cc"), "requires a C compiler")
    def test_ilp64_interface(self):
        source, library = os.path.join(self.prefix, "wide.c"), os.path.join(self.prefix, "libwide.so")
        with open(source, "w") as f:
            f.write(WIDE + "".join("void scipy_%s_64_(void) { abort(); }\n" % name for name in sorted(names()) if name not in ("dgetrf", "dgetrs")))
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, self.library], check=True, timeout=60)
        code = """
a = torch.rand(3, 5, 5, dtype=torch.float64)
a[0, 0, 0] = 0  # so that rows are exchanged
b = torch.rand(3, 5, 2, dtype=torch.float64)
parts = torch.linalg.lu_factor(a)
print((a @ torch.linalg.lu_solve(*parts, b) - b).abs().max().item() < 1e-9, parts[1].min().item(), torch.linalg.lu_factor_ex(a * 0)[2].tolist())"""
        self.assertRegex(self.run_code(code, PHLOX_LAPACK=library), r"^True [1-5] \[1, 1, 1\]$")


if __name__ == "__main__":
    unittest.main()
