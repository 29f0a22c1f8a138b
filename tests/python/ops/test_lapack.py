# SPDX-License-Identifier: Apache-2.0
"""Which LAPACK is found, and that it may have integers of 64 bits and other names around its functions."""
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
# Functions with integers of 64 bits, over those that this process has: what the test below calls, and for all other names one that ends it.
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
    """Of all functions that a library must have, without what stands around them."""
    with open(os.path.join(ROOT, "backends", "cpu", "lapack.h")) as f:
        rows = re.findall(r"XX\(\w+, (\w+), (\w+),", f.read())
    return {letter + name for real, of_complex in rows for letter, name in (("s", real), ("d", real), ("c", of_complex), ("z", of_complex))}


class Search(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.prefix = os.path.realpath(place.name)
        self.site = os.path.join(self.prefix, "lib", "python3", "site-packages")
        package = os.path.join(self.site, "phlox")
        os.makedirs(package)
        for name in os.listdir(PACKAGE):
            os.symlink(os.path.join(PACKAGE, name), os.path.join(package, name))
        self.library = torch._C._cpu_lapack()

    def put(self, *path, source=None):
        """A library at a path below site-packages; without a source the one that this process has found."""
        path = os.path.join(self.site, *path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(source or self.library, path)
        return os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)

    def say(self, code, **env):
        unset = {name: value for name, value in os.environ.items() if name != "PHLOX_LAPACK"}
        done = subprocess.run([sys.executable, "-c", "import phlox as torch\n" + code], env={**unset, "PYTHONPATH": self.site, **env}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def found(self, **env):
        path = self.say("print(torch._C._cpu_lapack())\nassert torch.linalg.det(torch.eye(3)).item() == 1", **env)
        return os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)

    def test_what_pip_puts_beside_the_package_comes_first_and_of_these_mkl_and_scipys(self):
        scipys = self.put("..", "scipy.libs", "libscipy_openblas-1.so")
        self.assertNotEqual(self.found(), scipys)
        numpys = self.put("numpy.libs", "libscipy_openblas64_-1.so")
        self.assertEqual(self.found(), numpys)
        scipys = self.put("scipy.libs", "libscipy_openblas-1.so")
        self.assertEqual(self.found(), scipys)
        mkl = self.put("..", "..", "libmkl_rt.so.2")
        self.assertEqual(self.found(), mkl)
        self.assertEqual(self.found(PHLOX_LAPACK=numpys), numpys)

    def test_a_library_that_lacks_functions_is_passed_over(self):
        self.put("scipy.libs", "libscipy_openblas-1.so", source=__file__)
        self.put("numpy.libs", "libscipy_openblas64_-1.so", source=next(line.split()[-1] for line in open("/proc/self/maps") if "/libm.so" in line))
        numpys = self.put("numpy.libs", "libscipy_openblas64_-2.so")
        self.assertEqual(self.found(), numpys)

    def test_the_systems_openblas_comes_before_its_reference_library(self):
        openblas = self.put("system", "libopenblas.so.0")
        self.put("system", "liblapack.so.3")
        self.assertEqual(self.found(LD_LIBRARY_PATH=os.path.dirname(openblas)), openblas)

    def test_the_configuration_says_which_was_found(self):
        self.assertIn("\n  - LAPACK: %s\n" % self.library, torch.__config__.show())
        self.assertIn("LAPACK: none", self.say("print(torch.__config__.show())", PHLOX_LAPACK="nowhere.so"))

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_integers_may_have_64_bits(self):
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
        self.assertRegex(self.say(code, PHLOX_LAPACK=library), r"^True [1-5] \[1, 1, 1\]$")


if __name__ == "__main__":
    unittest.main()
