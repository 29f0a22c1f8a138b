# SPDX-License-Identifier: Apache-2.0
"""Ops under Python's own profilers, and torch.profiler."""
import copy
import cProfile
import gzip
import inspect
import io
import json
import os
import pstats
import shutil
import subprocess
import sys
import tempfile
import unittest

import phlox as torch


# A stub of the NVTX library, and a program that calls it.
STUB = """
#include <stdint.h>
#include <stdio.h>
int nvtxRangePushA(const char *message) { return fprintf(stderr, "push %s\\n", message), 0; }
int nvtxRangePop(void) { return fprintf(stderr, "pop\\n"), 0; }
void nvtxMarkA(const char *message) { fprintf(stderr, "mark %s\\n", message); }
uint64_t nvtxRangeStartA(const char *message) { return fprintf(stderr, "start %s\\n", message), 7; }
void nvtxRangeEnd(uint64_t range) { fprintf(stderr, "end %d\\n", (int)range); }
"""
# A tool's injection library for NVTX 3. It checks the callback tables, then installs the functions selected by the bit mask -DFUNCTIONS.
TOOL = STUB + """
typedef void (*function)(void);
typedef const void *(*give)(uint32_t table);
int InitializeInjectionNvtx2(give table) {
  const struct { size_t bytes; int (*module)(int, function ***, unsigned *); } *callbacks = table(1);
  const struct { size_t bytes; uint32_t version; } *versions = table(3);
  static const unsigned sizes[] = {0, 16, 9, 15, 7, 16, 7};
  function **core, **other;
  unsigned size;
  if (callbacks->bytes != 16 || versions->version != 3 || table(2) || callbacks->module(0, &core, &size) || callbacks->module(7, &core, &size)) return 0;
  for (int i = 1; i < 7; i++)
    if (!callbacks->module(i, &other, &size) || size != sizes[i] || !other[size - 1] || other[size]) return 0;
  if (!callbacks->module(1, &core, NULL)) return 0;
  function own[] = {[2] = (function)nvtxMarkA, [5] = (function)nvtxRangeStartA, [7] = (function)nvtxRangeEnd, [9] = (function)nvtxRangePushA, [11] = (function)nvtxRangePop};
  for (int i = 0; i < 12; i++)
    if (own[i] && FUNCTIONS >> i & 1) *core[i] = own[i];
  return FUNCTIONS != 0;
}
"""
HEARD = """
import sys
import phlox as torch
nvtx, x = torch.cuda.nvtx, torch.ones(2)
print(nvtx.range_push("a"), file=sys.stderr)
print(nvtx.range_pop(), file=sys.stderr)
nvtx.mark("b")
nvtx.range_end(nvtx.range_start("c"))
with nvtx.range("step {}", 3):
    pass
with torch.autograd.profiler.emit_nvtx(record_shapes=True):
    x.add(1)
x.add(1)
twice = nvtx.range("twice")(len)
twice([]), twice([])
"""


class Profilers(unittest.TestCase):
    def events(self, call):
        """Events of builtin functions seen by sys.setprofile during a call."""
        seen = []

        def hook(frame, event, argument):
            if event.startswith("c_") and argument is not sys.setprofile:
                seen.append((event, argument.__name__))
                torch.ones(1).add(1)  # calls made by the profiler are not profiled
        sys.setprofile(hook)
        try:
            call()
        except RuntimeError:
            pass
        finally:
            sys.setprofile(None)
        return seen

    def test_setprofile_sees_ops(self):
        x, y = torch.ones(2), torch.ones(3)
        for name, call in (("add", lambda: torch.add(x, x)), ("relu", lambda: torch.nn.functional.relu(x)), ("mul", lambda: x.mul(2)),
                           ("sum", lambda: torch.sum(*(x,))), ("add_", lambda: torch.Tensor.add_(x, 1)),
                           ("zeros", lambda: torch.zeros(2, dtype=torch.int64))):
            self.assertEqual(self.events(call), [("c_call", name), ("c_return", name)])
        self.assertEqual(self.events(lambda: torch.add(x, y)), [("c_call", "add"), ("c_exception", "add")])

    def test_cprofile_names_ops(self):
        profile = cProfile.Profile()
        x = torch.ones(2, 2)
        profile.runcall(lambda: [torch.nn.functional.softmax(torch.matmul(x, x).exp(), 0) for _ in range(3)])
        text = io.StringIO()
        pstats.Stats(profile, stream=text).print_stats()
        for name in ("torch.matmul", "torch.Tensor.exp", "torch.nn.functional.softmax"):
            self.assertRegex(text.getvalue(), r"\n +3 .*{" + name + "}")

    def test_profile_function_may_raise_and_unset_itself(self):
        def fail(frame, event, argument):
            if event == "c_call":
                raise KeyError("profiler")
        x = torch.ones(2)
        raised = None
        sys.setprofile(fail)
        try:
            torch.add(x, x)
        except KeyError as error:
            raised = error
        sys.setprofile(None)
        self.assertEqual(str(raised), "'profiler'")
        sys.setprofile(lambda frame, event, argument: sys.setprofile(None) if event == "c_call" else None)
        self.assertEqual(torch.add(x, x).tolist(), [2, 2])
        self.assertIsNone(sys.getprofile())

    def test_ops_are_distinct_builtin_functions(self):
        self.assertTrue(inspect.isbuiltin(torch.add) and isinstance(torch.Tensor.add, type(len).__mro__[0]))
        self.assertEqual(len({torch.add, torch.sub, torch.add}), 2)
        self.assertNotEqual(torch.add, torch.sub)


class Marks(unittest.TestCase):
    """record_function and torch.cuda.nvtx."""

    def test_record_function(self):
        record = torch.profiler.record_function
        self.assertIs(record, torch.autograd.profiler.record_function)
        with record("forward", "batch 3") as part:
            self.assertEqual((part.name, part.args), ("forward", "batch 3"))

        @record("add")
        def add(a, b=1):
            return a + b

        class Holder:
            @record("method")
            def method(self):
                return self
        holder = Holder()
        self.assertEqual((add(1, b=2), add.__name__, holder.method() is holder), (3, "add", True))
        with self.assertRaises(KeyError), record("fails"):
            raise KeyError
        for wrong, kind in ((lambda: record(), TypeError), (lambda: record("x")(3), TypeError)):
            with self.assertRaises(kind):
                wrong()

    def test_emit_nvtx_can_be_disabled_and_does_not_nest(self):
        with torch.autograd.profiler.emit_nvtx(enabled=False) as nothing:
            self.assertIsNone(nothing)
        with torch.autograd.profiler.emit_nvtx(record_shapes=True) as marks:
            self.assertEqual(torch.ones(2).add(1).tolist(), [2, 2])
            with self.assertRaisesRegex(RuntimeError, "NVTX annotation context manager is not reentrant"):
                marks.__enter__()

    @unittest.skipUnless(shutil.which("cc"), "requires a C compiler")
    def test_nvtx_library_receives_ranges_marks_and_ops(self):
        with tempfile.TemporaryDirectory() as folder:
            self.build(STUB, f"{folder}/libnvToolsExt.so.1")
            self.assertEqual(self.run_with_tool(LD_LIBRARY_PATH=folder), self.ALL)

    @unittest.skipUnless(shutil.which("cc"), "requires a C compiler")
    def test_nvtx_injection_library(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, functions, output in (("all", 0xaa4, self.ALL), ("some", 0x004, ["-2", "-2", "mark b", ""]), ("refuses", 0, ["-2", "-2", ""])):
                self.build(TOOL, f"{folder}/{name}.so", f"-DFUNCTIONS={functions}")
                self.assertEqual(self.run_with_tool(NVTX_INJECTION64_PATH=f"{folder}/{name}.so"), output, name)
            self.build(STUB, f"{folder}/libnvToolsExt.so.1")
            self.assertEqual(self.run_with_tool(NVTX_INJECTION64_PATH=f"{folder}/libnvToolsExt.so.1"), ["-2", "-2", ""])  # no tool
            self.assertEqual(self.run_with_tool(NVTX_INJECTION64_PATH="/nowhere.so"), ["-2", "-2", ""])
            for path in "/nowhere.so", f"{folder}/refuses.so":  # falls back to the older NVTX library
                self.assertEqual(self.run_with_tool(NVTX_INJECTION64_PATH=path, LD_LIBRARY_PATH=folder), self.ALL)

    ALL = ["push a", "0", "pop", "0", "mark b", "start c", "end 7", "push step 3", "pop", "push aten::add, sizes = [[2], [], []]", "pop", "push twice", "pop",
           "push twice", "pop", ""]

    def build(self, text, library, *more):
        with open(library + ".c", "w") as file:
            file.write(text)
        subprocess.run(["cc", "-shared", "-fPIC", *more, "-o", library, library + ".c"], check=True)

    def run_with_tool(self, **env):
        return subprocess.run([sys.executable, "-c", HEARD], env={**os.environ, **env}, capture_output=True, text=True).stderr.split("\n")

    def test_cuda_profiler(self):
        profiler = torch.cuda.profiler
        with self.assertRaisesRegex(AssertionError, "CUDA12. does not need profiler initialization!"):
            profiler.init("out.txt")
        if not torch.cuda.is_available():
            for call in profiler.start, profiler.stop:
                self.assertRaises(RuntimeError, call)
            return
        self.assertEqual((profiler.start(), profiler.stop()), (None, None))
        with self.assertRaises(KeyError), profiler.profile() as nothing:
            self.assertIsNone(nothing)
            raise KeyError

    def test_nvtx_without_tool(self):
        nvtx = torch.cuda.nvtx
        self.assertEqual((nvtx.range_push("a"), nvtx.range_pop(), nvtx.range_end(nvtx.range_start("b")), nvtx.mark("c")), (-2, -2, None, None))
        with nvtx.range("step {}", 3) as part:
            self.assertIsInstance(part, nvtx.range)
        self.assertEqual(nvtx.range("f")(len)([1]), 1)
        with self.assertRaises(IndexError):
            nvtx.range("step {}")


class Profiles(unittest.TestCase):
    CPU = [torch.profiler.ProfilerActivity.CPU]

    def test_events_with_shapes_memory_and_stacks(self):
        x = torch.ones(4, 5, requires_grad=True)
        with torch.profiler.profile(activities=self.CPU, record_shapes=True, profile_memory=True, with_stack=True) as prof:
            with torch.profiler.record_function("forward"):
                loss = (x @ torch.ones(5, 3)).sum()
            loss.backward()
        events = {event.name: event for event in reversed(prof.events())}  # first event of each name
        part, product = events["forward"], events["aten::matmul"]
        self.assertEqual(product.input_shapes, [[4, 5], [5, 3]])
        self.assertTrue(product.cpu_parent is part and product in part.cpu_children and part.cpu_parent is None)
        self.assertGreaterEqual(part.cpu_time_total, sum(e.cpu_time_total for e in part.cpu_children))
        self.assertAlmostEqual(part.self_cpu_time_total, part.cpu_time_total - sum(e.cpu_time_total for e in part.cpu_children))
        self.assertTrue(part.time_range.start <= product.time_range.start and product.time_range.end <= part.time_range.end)
        self.assertEqual((product.cpu_memory_usage, events["aten::mm"].self_cpu_memory_usage), (48, 48))
        self.assertEqual(part.cpu_memory_usage, 64)  # the product is freed; the sum and the saved tensors remain
        self.assertRegex(product.stack[0], r"test_profile.py\(\d+\): test_events_with_shapes_memory_and_stacks$")
        self.assertTrue(part.is_user_annotation and not product.is_user_annotation)
        self.assertIn("MmBackward0", events)
        self.assertIn(events["MmBackward0"], [e.cpu_parent for e in prof.events() if e.name == "aten::mm"])

    def test_stacks(self):
        def below(x):
            return x.exp()
        x = torch.ones(3, requires_grad=True)
        with torch.profiler.profile(activities=self.CPU, with_stack=True) as prof:
            y = below(x)
            below(x)
            y.sum().backward()
        first, second = (e.stack for e in prof.events() if e.name == "aten::exp")
        self.assertEqual([line.rpartition(": ")[2] for line in first[:2]], ["below", "test_stacks"])
        self.assertEqual((first[0], first[2:]), (second[0], second[2:]))
        self.assertFalse(any(os.path.dirname(torch.__file__) in line for line in first))
        (node,) = (e for e in prof.events() if e.name == "ExpBackward0")
        self.assertIn("test_stacks", " ".join(node.stack))
        counts = [[e.count for e in prof.key_averages(group_by_stack_n=n) if e.key == "aten::exp"] for n in (0, 1, 2)]
        self.assertEqual(counts, [[2], [2], [1, 1]])
        table = prof.key_averages(group_by_stack_n=2).table(max_src_column_width=40, row_limit=1).splitlines()
        self.assertEqual([row.split()[-1] for row in table[3:5]], ["below", "test_stacks"])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "stacks")
            prof.export_stacks(path, "self_cpu_time_total")
            with open(path) as file:
                lines = [line for line in file.read().splitlines() if line.rpartition(" ")[0].endswith(first[0].replace(" ", "_"))]
            for line in lines:
                stack, _, time = line.rpartition(" ")
                self.assertTrue(stack.split(";")[-2:][0].endswith("test_stacks") and int(time) > 0)
            with self.assertRaisesRegex(ValueError, "metric should be one of"):
                prof.export_stacks(path, "count")
            self.assertRaises(TypeError, prof.export_stacks, 3)
            with torch.profiler.profile(activities=self.CPU) as prof:
                torch.ones(2)
            with self.assertRaisesRegex(AssertionError, r"export_stacks\(\) requires with_stack=True"):
                prof.export_stacks(path)

    def test_key_averages_and_tables(self):
        with torch.profiler.profile(activities=self.CPU, record_shapes=True) as prof:
            for size in (2, 3, 3):
                torch.ones(size).exp()
        averages = {e.key: e for e in prof.key_averages()}
        self.assertEqual((averages["aten::exp"].count, len(prof.key_averages())), (3, 3))
        self.assertAlmostEqual(averages["aten::exp"].cpu_time, averages["aten::exp"].cpu_time_total / 3)
        shapes = [(e.input_shapes, e.count) for e in prof.key_averages(group_by_input_shape=True) if e.key == "aten::exp"]
        self.assertEqual(shapes, [([[2]], 1), ([[3]], 2)])
        total = prof.key_averages().total_average()
        self.assertEqual((total.key, total.count), ("Total", 9))
        self.assertAlmostEqual(total.self_cpu_time_total, prof.key_averages().self_cpu_time_total)
        text = prof.key_averages().table(sort_by="cpu_time_total", row_limit=2, header="Steps")
        lines = text.splitlines()
        self.assertEqual((lines[0], lines[1], len(lines)), ("=" * len(lines[2]), "Steps", 9))
        self.assertEqual(lines[3].split()[:3], ["Name", "Self", "CPU"])
        self.assertRegex(lines[-1], r"^Self CPU time total: [0-9.]+(us|ms|s)$")
        times = [e.cpu_time_total for e in prof.key_averages()]
        order = [line.split()[0] for line in prof.key_averages().table(sort_by="cpu_time_total").splitlines()[3:6]]
        self.assertEqual(averages[order[0]].cpu_time_total, max(times))
        self.assertRegex(prof.key_averages().table(time_unit="ms"), r"time total: [0-9.]+ms")
        self.assertEqual(len(prof.events().table(top_level_events_only=True).splitlines()), 3 + 6 + 2)
        with self.assertRaises(AttributeError):
            prof.key_averages().table(sort_by="nonsense")

    @unittest.skipUnless(torch.cuda.is_available(), "requires a device")
    def test_device_events(self):
        with torch.profiler.profile(profile_memory=True) as prof:
            y = torch.ones(256, device="cuda").exp()
            y.cpu()
        events = prof.events()
        call = next(e for e in events if e.name == "aten::exp")
        work = next(e for e in events if e.name == "exp")
        self.assertEqual((work.device_type, work.device_index, call.device_type),
                         (torch.profiler.DeviceType.CUDA, 0, torch.profiler.DeviceType.CPU))
        self.assertEqual([k.name for k in call.kernels], ["exp"])
        self.assertEqual((call.device_time_total, call.self_device_time_total), (work.device_time_total,) * 2)
        self.assertEqual((call.device_memory_usage, call.cpu_memory_usage, work.cpu_time_total), (1024, 0, 0))
        self.assertGreaterEqual(work.time_range.end, work.time_range.start)
        self.assertIn("copy", [e.name for e in events])
        self.assertIn("Self CUDA time total: ", prof.key_averages().table(sort_by="cuda_time_total"))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
            y.exp()
        self.assertEqual([e.name for e in prof.events()], ["exp"])

    def test_schedule(self):
        action, kinds = torch.profiler.ProfilerAction, torch.profiler.schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
        none, warm, record, save = action
        self.assertEqual([kinds(i) for i in range(11)], [none, none, warm, record, save, none, warm, record, save, none, none])
        seen = []
        with torch.profiler.profile(activities=self.CPU, schedule=kinds, on_trace_ready=lambda p: seen.append((p.step_num, p.events()))) as prof:
            for _ in range(12):
                torch.ones(1)
                prof.step()
        self.assertEqual([n for n, _ in seen], [5, 9])
        names = [[e.name for e in events if e.cpu_parent is None] for _, events in seen]
        self.assertEqual(names, [["ProfilerStep#3", "ProfilerStep#4"], ["ProfilerStep#7", "ProfilerStep#8"]])
        for wrong in dict(wait=0, warmup=0, active=0), dict(wait=-1, warmup=0, active=1):
            with self.assertRaisesRegex(AssertionError, "Invalid profiler schedule arguments"):
                torch.profiler.schedule(**wrong)
        with self.assertRaisesRegex(AssertionError, "No valid profiler activities found"):
            torch.profiler.profile(activities=[])

    def test_legacy_names_and_missing_functions(self):
        from phlox.autograd.profiler_util import FunctionEvent
        from phlox.profiler.profiler import schedule
        self.assertIs(schedule, torch.profiler.schedule)
        self.assertFalse(torch.profiler.itt.is_available())
        with torch.profiler.profile(activities=self.CPU) as prof:
            torch.ones(2)
        prof.preset_metadata_json("a", "[1]")
        for event in prof.events()[0], prof.key_averages()[0]:
            with self.assertWarnsRegex(FutureWarning, "`self_cuda_time_total` is deprecated. Use `self_device_time_total` instead."):
                self.assertEqual(event.self_cuda_time_total, event.self_device_time_total)
        self.assertFalse(hasattr(prof, "export_memory_timeline") or hasattr(FunctionEvent, "sequence_nr"))
        with self.assertRaisesRegex(AttributeError, "torch.profiler.profile.export_memory_timeline is not implemented in Phlox"):
            prof.export_memory_timeline("memory.html")
        for option in "group_by_overload_name", "include_python_functions":
            with self.assertRaisesRegex(NotImplementedError, option):
                prof.key_averages(**{option: True})
        for option in "experimental_config", "custom_trace_id_callback", "post_processing_timeout_s":
            with self.assertRaisesRegex(NotImplementedError, option):
                torch.profiler.profile(**{option: 1})

    @unittest.skipUnless(torch.cuda.device_count(), "requires a device")
    def test_cudart(self):
        runtime = torch.cuda.cudart()
        self.assertEqual((runtime.cudaProfilerStart(), runtime.cudaProfilerStop()), (0, 0))
        self.assertEqual(runtime.cudaMemGetInfo(0)[1], torch.cuda.mem_get_info(0)[1])

    @unittest.skipUnless(torch.cuda.device_count(), "requires a device")
    def test_cudart_registers_host_memory(self):
        runtime = torch.cuda.cudart()
        t = torch.arange(4096.0)
        part = t[1024:2048]
        self.assertIs(runtime.cudaHostRegister(part.data_ptr(), 4096, 3), runtime.cudaError.success)
        self.assertTrue(part.is_pinned() and t[1024:].is_pinned() and part.pin_memory() is part)
        self.assertFalse(t.is_pinned() or t.untyped_storage().is_pinned())
        self.assertEqual(runtime.cudaHostRegister(part.data_ptr(), 1, 0), runtime.cudaError.hostMemoryAlreadyRegistered)
        device = part.to("cuda", non_blocking=True)
        torch.cuda._sleep(1000)
        part.copy_(device + 1, non_blocking=True)
        torch.cuda.check_error(runtime.cudaHostUnregister(part.data_ptr()))  # waits for the copy
        self.assertEqual(part[[0, -1]].tolist(), [1025, 2048])
        self.assertFalse(part.is_pinned())
        self.assertEqual(runtime.cudaHostUnregister(part.data_ptr()), 713)
        self.assertEqual(runtime.cudaHostRegister(0, 8, 0), 1)
        with self.assertRaisesRegex(torch.cuda.CudaError, r"invalid argument \(1\)"):
            pinned = t.pin_memory()
            torch.cuda.check_error(runtime.cudaHostRegister(pinned.data_ptr(), 8, 0))
        with self.assertRaisesRegex(NotImplementedError, "flags 4"):
            runtime.cudaHostRegister(t.data_ptr(), 8, 4)

    def test_profile_ended_early_has_events(self):
        seen = []
        with torch.profiler.profile(activities=self.CPU, on_trace_ready=seen.append) as prof:
            torch.ones(1)
        self.assertEqual(seen, [prof])
        with self.assertRaises(KeyError), torch.profiler.profile(activities=self.CPU):
            raise KeyError
        self.assertFalse(torch.autograd.profiler._enabled())
        with torch.profiler.profile(activities=self.CPU):
            with self.assertRaisesRegex(RuntimeError, "already enabled"):
                torch.autograd.profiler.profile().__enter__()

    def test_chrome_traces(self):
        with tempfile.TemporaryDirectory() as folder:
            with torch.profiler.profile(activities=self.CPU, on_trace_ready=torch.profiler.tensorboard_trace_handler(folder, "me", use_gzip=True)) as prof:
                prof.add_metadata("run", 7)
                with torch.profiler.record_function("part"):
                    torch.ones(2)
            name, = os.listdir(folder)
            self.assertRegex(name, r"^me\.\d+\.pt\.trace\.json\.gz$")
            with gzip.open(os.path.join(folder, name)) as file:
                trace = json.load(file)
            self.assertEqual(trace["run"], "7")
            events = {e["name"]: e for e in trace["traceEvents"]}
            self.assertRaises(RuntimeError, copy.deepcopy(prof.events()).export_chrome_trace, name)  # a copy belongs to no profile
            part, op = events["part"], events["aten::ones"]
            self.assertEqual((part["ph"], part["cat"], op["cat"], op["pid"]), ("X", "user_annotation", "cpu_op", os.getpid()))
            self.assertTrue(part["ts"] <= op["ts"] and op["ts"] + op["dur"] <= part["ts"] + part["dur"])
            self.assertRaises(TypeError, prof.export_chrome_trace, 3)  # open() would accept it as a file descriptor
            with self.assertRaisesRegex(RuntimeError, "Can't create directory"):
                torch.profiler.tensorboard_trace_handler(os.path.join(folder, name, "below"))(prof)

    def trace(self, events):
        with tempfile.TemporaryDirectory() as folder:
            events.export_chrome_trace(os.path.join(folder, "trace.json"))
            with open(os.path.join(folder, "trace.json"), encoding="utf-8") as file:
                return json.load(file)["traceEvents"]

    @unittest.skipUnless(torch.cuda.device_count(), "requires a device")
    def test_device_traces_use_trace_event_format(self):
        side, x = torch.cuda.Stream(), torch.ones(64, 64, device="cuda")
        with torch.profiler.profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
            with torch.profiler.record_function('a "part"\\\n\u00e9'):
                y = x @ x
            with torch.cuda.stream(side):
                side.wait_stream(torch.cuda.default_stream())
                z = y + 1
            torch.cuda.synchronize()
        events = self.trace(prof)
        needed = {"M": {"args"}, "X": {"ts", "dur", "cat", "args"}, "s": {"ts", "id", "cat"}, "f": {"ts", "id", "cat", "bp"}, "i": {"ts", "s", "args"}, "C": {"ts", "args"}}
        for e in events:
            self.assertLessEqual(needed[e["ph"]] | {"name", "pid", "tid"}, set(e))
            self.assertEqual([type(e["pid"]), type(e["tid"])], [int, int])
        tracks = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
        self.assertEqual(tracks, {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"})
        named = {e["name"]: e for e in events if e["ph"] == "X"}
        op, kernel, part = named["aten::matmul"], named["mm"], named['a "part"\\\n\u00e9']
        self.assertEqual((op["args"]["Input Dims"], kernel["cat"], kernel["pid"]), ([[64, 64], [64, 64]], "kernel", 0))
        self.assertRegex(op["args"]["Call stack"], r"test_profile.py\(\d+\): test_device_traces_use_trace_event_format;")
        self.assertEqual([kernel["args"][name] for name in ("device", "stream")], [kernel["pid"], kernel["tid"]])
        self.assertEqual(named["add"]["args"]["stream"], side.stream_id)
        ids = {e["args"]["External id"]: e["name"] for e in events if e.get("cat") == "cpu_op"}
        self.assertRegex(ids[kernel["args"]["External id"]], "mm|matmul")  # the launching op
        ends = [[e["id"] for e in events if e["ph"] == ph] for ph in "sf"]
        self.assertEqual(ends[0], ends[1])
        self.assertIn(kernel["args"]["correlation"], ends[0])
        taken = [e for e in events if e["name"] == "[memory]" and e["args"]["Device Type"] == 1]
        self.assertEqual([e["args"]["Bytes"] for e in taken], [64 * 64 * 4] * 2)
        self.assertEqual([e["args"]["Total Allocated"] for e in taken], [64 * 64 * 4, 2 * 64 * 64 * 4])
        self.assertTrue(part["ts"] <= taken[0]["ts"] < part["ts"] + part["dur"])
        self.assertEqual([e["args"]["bytes"] for e in events if e["ph"] == "C" and e["pid"] == 0], [64 * 64 * 4, 2 * 64 * 64 * 4])

    def test_traces_of_parts_and_several_cycles(self):
        with torch.profiler.profile(activities=self.CPU, schedule=torch.profiler.schedule(wait=0, warmup=1, active=1), acc_events=True) as prof:
            for _ in range(6):
                torch.ones(2).exp()
                prof.step()
        self.assertEqual([e["name"] for e in self.trace(prof.events()) if e["ph"] == "X"].count("aten::exp"), 3)
        some = type(prof.events())(e for e in prof.events() if e.name == "aten::exp")
        self.assertEqual([(e["name"], e["args"]["External id"]) for e in self.trace(some) if e["ph"] == "X"], [("aten::exp", n) for n in (1, 2, 3)])

    def test_autograd_profile(self):
        with torch.autograd.profiler.profile() as prof:
            torch.ones(2).exp()
        self.assertEqual([e.name for e in prof.function_events if e.cpu_parent is None], ["aten::ones", "aten::exp"])
        self.assertIn("aten::exp", str(prof))
        self.assertEqual(prof.total_average().count, len(prof.function_events))
        with torch.autograd.profiler.profile(enabled=False) as nothing:
            self.assertIsNone(nothing)
        with self.assertRaisesRegex(RuntimeError, "not reentrant"), prof:
            pass
        with self.assertRaisesRegex(RuntimeError, "didn't finish"):
            torch.autograd.profiler.profile().table()
        with self.assertRaisesRegex(NotImplementedError, "experimental_config"):
            torch.profiler.profile(experimental_config=object())


if __name__ == "__main__":
    unittest.main()
