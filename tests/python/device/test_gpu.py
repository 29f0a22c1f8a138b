# SPDX-License-Identifier: Apache-2.0
"""Behaviour of a real GPU: properties, environment, driver errors, out of memory. Error texts are compared with PyTorch's if it is
installed."""
import os
import re
import subprocess
import sys
import unittest

import phlox

try:
    import torch
    torch = None if "phlox" in (torch.__file__ or "") or not torch.cuda.is_available() else torch
except ImportError:
    torch = None

HERE = phlox.cuda._backend_name() == "cuda"
wants_gpu = unittest.skipUnless(HERE, "requires an NVIDIA GPU")
wants_torch = unittest.skipIf(torch is None, "no PyTorch with CUDA is here to compare with")


def run(code, **environment):
    """Runs a program in a subprocess. Returns its output and errors, stripped."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", **environment}
    done = subprocess.run([sys.executable, "-c", "import phlox as torch\n" + code], env=environment,
                          capture_output=True, text=True, timeout=120)
    return (done.stdout + done.stderr).strip()


def raised(call):
    try: call()
    except Exception as error: return type(error).__name__, str(error)
    return "nothing was raised"


@wants_gpu
class Properties(unittest.TestCase):
    def test_mem_get_info(self):
        free, total = phlox.cuda.mem_get_info()
        self.assertTrue(0 < free < total)
        self.assertEqual(total, phlox.cuda.get_device_properties(0).total_memory)
        x = phlox.empty(1 << 30, dtype=phlox.uint8, device="cuda")
        self.assertLessEqual(phlox.cuda.mem_get_info()[0], free)
        del x

    @wants_torch
    def test_properties_match_pytorch(self):
        self.assertEqual(repr(phlox.cuda.get_device_properties(0)), repr(torch.cuda.get_device_properties(0)))
        for name in ("name", "major", "minor", "total_memory", "multi_processor_count", "max_threads_per_multi_processor",
                     "L2_cache_size", "uuid"):
            mine, theirs = (getattr(lib.cuda.get_device_properties(0), name) for lib in (phlox, torch))
            self.assertEqual(str(mine), str(theirs), name)
        for name in ("get_device_name", "get_device_capability", "device_count", "is_available", "current_device"):
            self.assertEqual(getattr(phlox.cuda, name)(), getattr(torch.cuda, name)(), name)
        self.assertEqual(phlox.cuda.mem_get_info()[1], torch.cuda.mem_get_info()[1])

    def test_stream_pool(self):
        for priority in (0, -1):
            streams = [phlox.cuda.Stream(priority=priority) for _ in range(32)]
            self.assertEqual(len({s.cuda_stream for s in streams}), 32)
            self.assertEqual({s.priority for s in streams}, {priority})
            x = phlox.ones(8, device="cuda")
            phlox.cuda.synchronize()
            for s in streams:
                with phlox.cuda.stream(s): x = x + 1
                phlox.cuda.current_stream().wait_stream(s)
                for other in streams: other.wait_stream(s)
            self.assertEqual(x.tolist(), [33] * 8)

    def test_event_timing(self):
        start, end = phlox.cuda.Event(enable_timing=True), phlox.cuda.Event(enable_timing=True)
        x = phlox.ones(1 << 26, device="cuda")
        start.record()
        for _ in range(50): x.mul_(1)
        end.record()
        end.synchronize()
        self.assertTrue(1 < start.elapsed_time(end) < 1000)


@wants_gpu
class Environment(unittest.TestCase):
    COUNT = "print(torch.cuda.device_count(), torch.cuda.is_available())"

    def test_visible_devices(self):
        total = int(run(self.COUNT, CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6,7").split()[0])
        uuid = run("print(torch.cuda.get_device_properties(0).uuid)", CUDA_VISIBLE_DEVICES="0")
        for text, count in (("", 0), ("-1", 0), ("99", 0), ("0", 1), ("0,99,0", 1), (" 0 ", 1), ("0gpu", 1),
                            ("GPU-" + uuid, 1), ("GPU-" + uuid[:6], 1), ("GPU-00000000-1111", 0)):
            self.assertEqual(run(self.COUNT, CUDA_VISIBLE_DEVICES=text), f"{count} {count > 0}", repr(text))
        self.assertGreaterEqual(total, 1)

    def test_duplicate_visible_device(self):
        output = run("try: torch.ones(1, device='cuda')\nexcept RuntimeError as e: print(type(e).__name__, e)",
                   CUDA_VISIBLE_DEVICES="0,0")
        self.assertIn("invalid device ordinal", output)

    def test_environment_is_read_at_first_use(self):
        self.assertEqual(run("import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''; " + self.COUNT), "0 False")

    def test_no_devices(self):
        output = run("try: torch.ones(1, device='cuda')\nexcept RuntimeError as e: print(e)", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(output.splitlines()[0], "No CUDA GPUs are available")

    BAD = """
x = torch.ones(5, device='cuda')
i = torch.tensor([9], device='cuda')
try:
    y = x[i]
    z = x + 1
    torch.cuda.synchronize()
except IndexError as e: print(e.__traceback__.tb_lineno, str(e))
print((x + 1).tolist())
"""

    def test_launch_blocking(self):
        for blocking, line in (("1", 6), ("0", 8)):
            output = run(self.BAD, CUDA_LAUNCH_BLOCKING=blocking)
            self.assertTrue(output.startswith(f"{line} index 9 is out of bounds for dimension 0 with size 5"), output)
            self.assertIn("launched at <string>:6", output)
            self.assertTrue(output.endswith("[2.0, 2.0, 2.0, 2.0, 2.0]"), output)

    def test_import_does_not_initialize(self):
        self.assertEqual(run("a = torch.cuda.is_initialized(); torch.cuda.device_count(); torch.cuda.manual_seed(1)\n"
                             "b = torch.cuda.is_initialized(); torch.ones(1, device='cuda')\n"
                             "print(a, b, torch.cuda.is_initialized())"), "False False True")

    FORK = """
import os
if {first}: torch.ones(1, device='cuda')
torch.cuda.device_count(), torch.cuda.is_available()
child = os.fork()
if not child:
    try: print(torch.ones(2, device='cuda').tolist(), flush=True)
    except RuntimeError as e: print(e, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(torch.ones(1, device='cuda').tolist())
"""

    def test_fork(self):
        output = run(self.FORK.format(first=True)).splitlines()
        self.assertEqual(output, ["Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
                                "use the 'spawn' start method", "[1.0]"])

    def test_device_count_does_not_initialize(self):
        self.assertEqual(run(self.FORK.format(first=False)).splitlines(), ["[1.0, 1.0]", "[1.0]"])

    def test_device_count_matches_driver(self):
        count = "a = torch.cuda.device_count(); torch.cuda.init(); print(a, torch.cuda.device_count())"
        uuid = "GPU-" + str(phlox.cuda.get_device_properties(0).uuid)
        for names, seen in (("", 0), ("0", 1), (uuid, 1), (uuid[:12], 1), ("0,99", 1), ("99", 0), ("-1,0", 0), ("MIG-absent", 0)):
            output = run(count, CUDA_VISIBLE_DEVICES=names)
            if seen:
                self.assertEqual(output, f"{seen} {seen}", names)
            else:
                self.assertIn("No CUDA GPUs are available", output, names)
        output = run(count).split()
        self.assertEqual(output[0], output[1])


@wants_gpu
class Errors(unittest.TestCase):
    @wants_torch
    def test_errors_match_pytorch(self):
        for call in (lambda lib: lib.ones(1, device="cuda:77"), lambda lib: lib.cuda.set_device(77),
                     lambda lib: lib.cuda.get_device_properties(77), lambda lib: lib.cuda.can_device_access_peer(0, 77),
                     lambda lib: lib.cuda.Stream(device=77), lambda lib: lib.ones(1).cuda(77)):
            self.assertEqual(raised(lambda: call(phlox)), raised(lambda: call(torch)))
        self.assertEqual(phlox.cuda.current_device(), 0)

    def test_integer_matmul_is_not_implemented(self):
        a, b = (phlox.ones(shape, dtype=phlox.int64, device="cuda") for shape in ((2, 3), (3, 0)))
        self.assertEqual([(a @ b).shape, phlox.bmm(a[None, :0], b[None]).shape], [(2, 0), (1, 0, 0)])
        self.assertEqual(raised(lambda: a @ a.T), ("NotImplementedError", "\"addmm_cuda\" not implemented for 'Long'"))

    def test_driver_error_code(self):
        with self.assertRaises(phlox.AcceleratorError) as caught: phlox.cuda.set_device(77)
        self.assertEqual(caught.exception.error_code, 101)
        self.assertIsInstance(caught.exception, RuntimeError)

    ILLEGAL = """
import ctypes
class Device(ctypes.Structure): _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]
class Dtype(ctypes.Structure): _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]
class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int), ("dtype", Dtype),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]
class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]
shape = (ctypes.c_int64 * 1)(1000)
managed = Managed(Tensor(0x7000, Device(2, 0), 1, Dtype(2, 32, 1), shape, None, 0), None, None)
new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
good = torch.ones(3, device="cuda")
bad = torch.from_dlpack(new(ctypes.addressof(managed), b"dltensor", None))
torch.cuda.synchronize()
for call in (lambda: (bad + 1, torch.cuda.synchronize()), lambda: (good + 1).tolist(), torch.cuda.synchronize):
    try: call()
    except torch.AcceleratorError as e: print(e.error_code, str(e).splitlines()[:2])
    else: print("nothing was raised")
import os; os._exit(0)
"""

    def test_illegal_access_breaks_device(self):
        for line in run(self.ILLEGAL).splitlines():
            self.assertEqual(line, "700 ['CUDA error: an illegal memory access was encountered', \"Search for "
                             "`cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/cuda-runtime-api/"
                             "group__CUDART__TYPES.html for more information.\"]")


def without_numbers(text):
    """Drops sizes, the list of other processes (which changes) and the lines that Phlox adds."""
    text = text.partition("\nRequested by")[0]
    return re.sub(r"Process \d+ has N memory in use\. ", "", re.sub(r"[\d.]+ (GiB|MiB|KiB|bytes)", "N", text))


@wants_gpu
class OutOfMemory(unittest.TestCase):
    """Fills the device's memory, so requires exclusive use of the GPU."""
    SIZE = 4 << 30

    def tearDown(self):
        phlox.cuda.set_per_process_memory_fraction(1.0)
        phlox.cuda.empty_cache()

    def fill(self):
        held = []
        with self.assertRaises(phlox.OutOfMemoryError) as caught:
            while True: held.append(phlox.empty(self.SIZE, dtype=phlox.uint8, device="cuda"))
        return held, str(caught.exception)

    @unittest.skipUnless(os.environ.get("TEST_FILL"), "TEST_FILL=1 allows to fill the card")
    def test_fills_memory_and_recovers(self):
        free, total = phlox.cuda.mem_get_info()
        held, text = self.fill()
        self.assertGreater((len(held) + 1) * self.SIZE, free - (1 << 30))
        self.assertRegex(text, r"^CUDA out of memory\. Tried to allocate 4\.00 GiB\. GPU 0 has a total capacity of "
                               r"[\d.]+ GiB of which [\d.]+ (GiB|MiB|KiB|bytes) is free\. ")
        self.assertIn(f"{len(held) * 4}.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated",
                      text)
        self.assertEqual(phlox.cuda.memory_stats()["num_ooms"], 1)
        held.pop()
        again = phlox.full((self.SIZE // 4,), 2.0, device="cuda")
        self.assertEqual(again[-1].item(), 2)
        del held, again
        phlox.cuda.empty_cache()
        self.assertGreater(phlox.cuda.mem_get_info()[0], free - (1 << 30))

    @unittest.skipUnless(os.environ.get("TEST_FILL"), "TEST_FILL=1 allows to fill the card")
    def test_waits_for_frees_on_other_streams(self):
        free, _ = phlox.cuda.mem_get_info()
        half = free // 2 + (2 << 30)
        x = phlox.empty(half, dtype=phlox.uint8, device="cuda")
        with phlox.cuda.stream(phlox.cuda.Stream()):
            for _ in range(3): x.add_(1)
        del x
        x = phlox.empty(half, dtype=phlox.uint8, device="cuda")
        self.assertEqual(x.numel(), half)

    @wants_torch
    def test_text_matches_pytorch(self):
        texts = [raised(lambda: lib.empty(1 << 48, dtype=lib.uint8, device="cuda")) for lib in (phlox, torch)]
        self.assertEqual(*[(kind, without_numbers(text)) for kind, text in texts])
        for lib in (phlox, torch): lib.cuda.set_per_process_memory_fraction(0.01)
        texts = [raised(lambda: lib.empty(2 << 30, dtype=lib.uint8, device="cuda")) for lib in (phlox, torch)]
        torch.cuda.set_per_process_memory_fraction(1.0)
        self.assertEqual(*[(kind, without_numbers(text)) for kind, text in texts])

    def test_size_overflow(self):
        self.assertRaisesRegex(RuntimeError, "Storage size calculation overflowed",
                               phlox.empty, 1 << 62, device="cuda")


if __name__ == "__main__":
    unittest.main()
