# SPDX-License-Identifier: Apache-2.0
"""Pluggable allocators compiled here as shared objects: in place of the caching allocator, and for pools."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import ctypes
import shutil
import subprocess
import sys
import tempfile
import unittest

import phlox as torch

cuda = torch.cuda
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
GEN = os.path.join(ROOT, "build", "gen")
SOURCE = """
#include <phlox/phlox.h>
#include <sys/types.h>
int taken, given, last_device;
void *take(ssize_t size, int device, void *stream) {
  void *at;
  taken++, last_device = device;
  return px_memory_device_alloc(&at, (size_t)size, device) == PX_OK ? at : NULL;
}
void give(void *at, ssize_t size, int device, void *stream) {
  given++;
  if (px_memory_device_free(at, device) != PX_OK) px_error_clear();
}
"""


@unittest.skipUnless(shutil.which("cc") and os.path.isdir(GEN), "no C compiler, or no build/gen")
class Pluggable(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = os.path.join(cls.folder.name, "plugged.so")
        library = os.path.join(os.path.dirname(torch.__file__), "libphlox.so.0")
        flags = "-x c - -shared -fPIC".split() + [f"-I{ROOT}/include", f"-I{GEN}", "-x", "none", library, "-o", cls.path]
        subprocess.run(["cc", *flags], input=SOURCE.encode(), check=True, timeout=60)

    def allocation_counts(self):
        return [ctypes.c_int.in_dll(ctypes.CDLL(self.path), name).value for name in ("taken", "given")]

    @unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
    def test_allocator_replaces_cache(self):
        process = subprocess.run([sys.executable, "-c", f"""
import ctypes
import phlox as torch
cuda = torch.cuda
def counts():
    return [ctypes.c_int.in_dll(ctypes.CDLL({self.path!r}), name).value for name in ("taken", "given")]
print(cuda.memory.get_allocator_backend())
cuda.memory.change_current_allocator(cuda.memory.CUDAPluggableAllocator({self.path!r}, "take", "give"))
print(cuda.memory.get_allocator_backend(), counts())
x = torch.ones(1000, device="cuda:1")
print(counts(), ctypes.c_int.in_dll(ctypes.CDLL({self.path!r}), "last_device").value)
y = x + x
del x
print(y.sum().item(), counts()[1] >= 1, cuda.memory_allocated(1))
del y
print(counts()[0] - counts()[1])
"""], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(process.stdout.splitlines(), ["native", "pluggable [0, 0]", "[1, 0] 1", "2000.0 True 0", "0"])

    def test_allocator_cannot_be_swapped_after_use(self):
        torch.ones(1, device="cuda")
        allocator = cuda.CUDAPluggableAllocator(self.path, "take", "give")
        with self.assertRaisesRegex(RuntimeError, "^Can't swap an already initialized allocator"):
            cuda.change_current_allocator(allocator)
        self.assertEqual(cuda.memory.get_allocator_backend(), "native")

    def test_mem_pool_with_allocator(self):
        allocator = cuda.CUDAPluggableAllocator(self.path, "take", "give")
        pool, before = cuda.MemPool(allocator.allocator()), self.allocation_counts()
        self.assertIs(pool.allocator, allocator)
        outside = torch.ones(8, device="cuda")
        with cuda.use_mem_pool(pool):
            x, y = torch.ones(1000, device="cuda"), torch.ones(1000, device="cuda")
        self.assertEqual((x + y).tolist(), [2.0] * 1000)
        self.assertEqual(self.allocation_counts(), [before[0] + 1, before[1]])
        self.assertEqual([s["total_size"] for s in pool.snapshot()], [2 << 20])
        del x, y, pool
        self.assertEqual(self.allocation_counts(), [before[0] + 1, before[1] + 1])
        self.assertEqual(outside.sum().item(), 8)

    def test_graph_in_mem_pool_with_allocator(self):
        pool, before = cuda.MemPool(cuda.CUDAPluggableAllocator(self.path, "take", "give").allocator()), self.allocation_counts()
        g, x = cuda.CUDAGraph(), torch.ones(8, device="cuda")
        with cuda.graph(g, pool=pool.id):
            y = x * 3
        g.replay()
        self.assertEqual(y.tolist(), [3.0] * 8)
        self.assertEqual(self.allocation_counts()[0], before[0] + 1)
        del y, g, pool
        cuda.empty_cache()
        self.assertEqual(self.allocation_counts()[1], before[1] + 1)

    def test_invalid_libraries(self):
        with self.assertRaisesRegex(OSError, "nowhere.so: cannot open shared object file: No such file"):
            cuda.CUDAPluggableAllocator("/nowhere.so", "take", "give")
        for names in ("absent", "give"), ("take", "absent"):
            with self.assertRaisesRegex(AttributeError, "undefined symbol: absent$"):
                cuda.CUDAPluggableAllocator(self.path, *names)
        with self.assertRaisesRegex(AttributeError, "'int' object has no attribute 'allocator'"):
            cuda.change_current_allocator(3)


if __name__ == "__main__":
    unittest.main()
