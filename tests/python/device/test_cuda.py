# SPDX-License-Identifier: Apache-2.0
"""torch.cuda on simulated devices: device selection, streams, events and memory. Random numbers, and errors."""
import os
import re
os.environ.setdefault("PHLOX_SIM_DEVICES", "3")

import subprocess
import sys
import threading
import types
import unittest
import warnings
from unittest import mock

import phlox as torch

cuda = torch.cuda


@unittest.skipIf(cuda.device_count() < 1, "requires a device")
class Cuda(unittest.TestCase):
    def test_stream_subclass(self):
        class Mine(cuda.Stream):
            pass
        self.assertIsInstance(Mine(), cuda.Stream)

    def test_sleep_keeps_stream_busy(self):
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        cuda._sleep(30_000_000)
        self.assertFalse(cuda.current_stream().query())
        end.record()
        end.synchronize()
        self.assertGreaterEqual(start.elapsed_time(end), 25)
        with self.assertRaisesRegex(ValueError, "cycles must not be negative, but got -1"):
            cuda._sleep(-1)

    def test_device_metrics(self):
        for name in "utilization memory_usage temperature power_draw clock_rate device_memory_used".split():
            figure = getattr(cuda, name)
            if cuda._backend_name() == "sim":
                with self.assertRaisesRegex(NotImplementedError, f"^{name} is unknown for cuda:0: the backend sim has no such figures$"):
                    figure()
            else:
                self.assertGreaterEqual(figure(0), 0)
            with self.assertRaises((AssertionError, RuntimeError)):
                figure(99)

    def test_events(self):
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        self.assertEqual(repr(start), "<torch.cuda.Event uninitialized>")
        self.assertTrue(start.query())
        with self.assertRaisesRegex(ValueError, "Both events must be recorded"):
            start.elapsed_time(end)
        start.record()
        torch.ones(64, device="cuda") * 2
        end.record()
        end.synchronize()
        self.assertGreaterEqual(start.elapsed_time(end), 0)
        with self.assertRaisesRegex(ValueError, "enable_timing=True"):
            event = cuda.Event()
            event.record()
            start.elapsed_time(event)

    def test_memory_stats(self):
        before = cuda.memory_allocated()
        x = torch.empty(1000, device="cuda")
        self.assertEqual(cuda.memory_allocated() - before, 4096)
        stats = cuda.memory_stats()
        self.assertEqual(stats["allocated_bytes.all.current"], cuda.memory_allocated())
        lines = cuda.memory_summary().rstrip("\n").split("\n")
        self.assertEqual({len(line) for line in lines}, {77})
        self.assertIn("device ID 0", lines[1])
        segments = [s for s in cuda.memory_snapshot() if s["device"] == 0]
        self.assertTrue(any(b["address"] == x.data_ptr() for s in segments for b in s["blocks"]))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertEqual(cuda.memory_cached(), cuda.memory_reserved())
        self.assertTrue(issubclass(caught[0].category, FutureWarning))

    def test_nested_memory_stats(self):
        stats, nested = cuda.memory_stats(), cuda.memory_stats_as_nested_dict()
        self.assertEqual(set(nested["allocated_bytes"]["all"]), {"current", "peak", "allocated", "freed"})
        self.assertEqual(nested["segment"]["small_pool"]["peak"], stats["segment.small_pool.peak"])
        self.assertEqual(nested["num_ooms"], stats["num_ooms"])
        self.assertIn("current", cuda.host_memory_stats_as_nested_dict()["active_bytes"])

    def test_memory_stats_of_pools(self):
        self.assertEqual(cuda.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"], {})
        pool = cuda.MemPool()
        with cuda.use_mem_pool(pool): held = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
        own = cuda.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"][pool.id]
        self.assertEqual([own[name]["current"] for name in ("all", "large_pool", "small_pool")], [20 << 20, 20 << 20, 0])
        del held, pool
        self.assertEqual(cuda.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"], {})

    def test_empty_host_cache(self):
        torch.ones(1 << 20).pin_memory()
        torch.accelerator.memory.empty_host_cache()
        stats = cuda.host_memory_stats()
        self.assertEqual(stats["allocated_bytes.current"], stats["active_bytes.current"])

    def test_list_gpu_processes(self):
        driver = types.SimpleNamespace(NVMLError_DriverNotLoaded=OSError, nvmlInit=lambda: None, nvmlDeviceGetHandleByPciBusId=str,
                                       nvmlDeviceGetComputeRunningProcesses=lambda at: [types.SimpleNamespace(pid=7, usedGpuMemory=3 << 19)])
        with mock.patch.dict(sys.modules, pynvml=driver):
            self.assertEqual(cuda.list_gpu_processes(0), "GPU:0\nprocess          7 uses        1.500 MB GPU memory")
            driver.nvmlDeviceGetComputeRunningProcesses = lambda at: []
            self.assertEqual(cuda.list_gpu_processes("cuda:0"), "GPU:0\nno processes are running")
        with mock.patch.dict(sys.modules, pynvml=None):
            self.assertEqual(cuda.list_gpu_processes(), "pynvml module not found, please install nvidia-ml-py")

    def test_get_per_process_memory_fraction(self):
        self.assertEqual(cuda.get_per_process_memory_fraction(), 1.0)
        cuda.set_per_process_memory_fraction(0.5, 0)
        self.assertEqual(cuda.get_per_process_memory_fraction("cuda:0"), 0.5)
        cuda.set_per_process_memory_fraction(1.0, 0)

    def test_reset_host_memory_stats(self):
        torch.ones(1 << 20).pin_memory()
        cuda.reset_peak_host_memory_stats()
        stats = cuda.host_memory_stats()
        self.assertEqual(stats["active_bytes.peak"], stats["active_bytes.current"])
        cuda.reset_accumulated_host_memory_stats()
        stats = cuda.host_memory_stats()
        self.assertEqual((stats["active_requests.allocated"], stats["num_host_alloc"]), (0, 0))

    def test_caching_allocator_disabled(self):
        warm = torch.ones(1000, device="cuda")
        del warm
        before = cuda.memory_stats()
        with cuda.memory.caching_allocator_disabled():
            x = torch.ones(1000, device="cuda")
            y = x + 1
            del x
        after = cuda.memory_stats()
        for key in "allocation.all.allocated", "reserved_bytes.all.current":
            self.assertEqual(after[key], before[key])
        self.assertEqual(y.sum().item(), 2000)
        del y
        z = torch.ones(1000, device="cuda")
        self.assertEqual(cuda.memory_allocated() - after["allocated_bytes.all.current"], 4096)
        cuda.memory.caching_allocator_enable()
        self.assertEqual(z.sum().item(), 1000)

    def test_caching_allocator_alloc_and_delete(self):
        before = cuda.memory_allocated()
        at = cuda.caching_allocator_alloc(1000)
        self.assertEqual(cuda.memory_allocated() - before, 1024)
        other = cuda.caching_allocator_alloc(512, "cuda:0", cuda.Stream("cuda:0").cuda_stream)
        cuda.caching_allocator_delete(at)
        self.assertEqual(cuda.memory_allocated(), before + 512)
        with self.assertRaisesRegex(RuntimeError, f"^invalid device pointer: {at:#x}$"):
            cuda.caching_allocator_delete(at)
        cuda.caching_allocator_delete(other)
        with self.assertRaisesRegex(TypeError, "Invalid type for stream argument"):
            cuda.caching_allocator_alloc(8, stream="0")

    def test_mem_pool(self):
        pool, outside = cuda.MemPool(), torch.empty(1 << 20, device="cuda")
        self.assertEqual((pool.use_count(), pool.allocator, pool.snapshot()), (1, None, []))
        with cuda.use_mem_pool(pool):
            self.assertEqual(pool.use_count(), 2)
            x = torch.empty(1 << 20, device="cuda")
            at = x.data_ptr()
            del x
            x = torch.ones(1 << 20, device="cuda")
            self.assertEqual(x.data_ptr(), at)
        y = torch.empty(1 << 20, device="cuda")
        segments = {s["segment_pool_id"]: s for s in cuda.memory_snapshot() if any(b["address"] == at for b in s["blocks"])}
        self.assertEqual((list(segments), pool.snapshot()), ([pool.id], list(segments.values())))
        self.assertNotEqual(y.data_ptr(), at)
        self.assertNotEqual(pool.id, cuda.MemPool().id)
        held = cuda.memory_reserved()
        del x, pool
        self.assertLess(cuda.memory_reserved(), held)
        del outside, y

    def test_exception_exits_mem_pool(self):
        pool = cuda.MemPool()
        with self.assertRaises(ZeroDivisionError), cuda.use_mem_pool(pool, 0):
            1 / 0
        self.assertEqual(pool.use_count(), 1)
        with self.assertRaisesRegex(TypeError, r"^MemPool\(\): allocator must be a CUDAPluggableAllocator, not object$"):
            cuda.MemPool(object())

    def test_mem_pool_no_split(self):
        for no_split, segments in (False, 1), (True, 2):
            pool = cuda.MemPool(no_split=no_split)
            with cuda.use_mem_pool(pool):
                x, y = torch.ones(8, device="cuda"), torch.ones(8, device="cuda")
            self.assertEqual(len(pool.snapshot()), segments)
            del x, y

    def test_mem_pool_use_on_oom(self):
        for lends in False, True:
            cuda.empty_cache()
            pool = cuda.MemPool(use_on_oom=lends)
            with cuda.use_mem_pool(pool):
                x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
            at = x.data_ptr()
            del x
            cuda.set_per_process_memory_fraction((cuda.memory_reserved() + (8 << 20)) / cuda.get_device_properties(0).total_memory)
            try:
                if lends:
                    y = torch.ones(60 << 20, dtype=torch.uint8, device="cuda")
                    self.assertEqual((y.data_ptr(), y[-1].item()), (at, 1))
                    with self.assertRaises(cuda.OutOfMemoryError), cuda.use_mem_pool(cuda.MemPool()):
                        torch.ones(60 << 20, dtype=torch.uint8, device="cuda")
                    del y
                else:
                    with self.assertRaises(cuda.OutOfMemoryError):
                        torch.ones(60 << 20, dtype=torch.uint8, device="cuda")
            finally:
                cuda.set_per_process_memory_fraction(1.0)

    def test_graph_uses_mem_pool(self):
        pool, g, x = cuda.MemPool(), cuda.CUDAGraph(), torch.ones(8, device="cuda")
        with cuda.graph(g, pool=pool.id):
            y = x * 3
        self.assertEqual(pool.use_count(), 2)
        g.replay()
        self.assertEqual(y.tolist(), [3.0] * 8)
        self.assertTrue(any(b["address"] == y.data_ptr() for s in pool.snapshot() for b in s["blocks"]))

    def test_out_of_memory(self):
        with self.assertRaisesRegex(cuda.OutOfMemoryError, "CUDA out of memory. Tried to allocate"):
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        self.assertIs(cuda.OutOfMemoryError, torch.OutOfMemoryError)
        with self.assertRaisesRegex(TypeError, "must be `float`"):
            cuda.set_per_process_memory_fraction(1)

    def test_memory_stats_of_invalid_device(self):
        torch.ones(1, device="cuda")
        for figure in (cuda.memory_allocated, cuda.max_memory_reserved, cuda.memory_stats):
            with self.assertRaisesRegex(RuntimeError, "Invalid device argument 99: did you call init?"):
                figure(99)

    def test_random_state(self):
        cuda.manual_seed(7)
        state = cuda.get_rng_state()
        a = torch.rand(3, device="cuda")
        cuda.set_rng_state(state)
        self.assertEqual(torch.rand(3, device="cuda").tolist(), a.tolist())
        self.assertEqual((state.numel(), cuda.initial_seed()), (16, 7))
        with self.assertRaisesRegex(TypeError, "RNG state must be a torch.ByteTensor"):
            cuda.set_rng_state(torch.ones(16))
        with self.assertRaisesRegex(RuntimeError, "Expected a 'cuda' device type for generator"):
            torch.rand(2, device="cuda", generator=torch.Generator())

    def test_pinned_memory(self):
        x = torch.ones(3, pin_memory=True)
        self.assertTrue(x.is_pinned() and x.pin_memory() is x and x[1:].is_pinned())
        self.assertFalse(x.clone().is_pinned())
        self.assertTrue(torch.ones(2).untyped_storage().pin_memory().is_pinned())
        with self.assertRaisesRegex(RuntimeError, "cannot pin 'torch.cuda.FloatTensor' only dense CPU"):
            torch.ones(1, device="cuda").pin_memory()

    def test_record_stream(self):
        with self.assertRaisesRegex(NotImplementedError, "^Could not run 'aten::record_stream' with arguments from the 'CPU' backend."):
            torch.ones(1).record_stream(cuda.current_stream())
        with self.assertRaisesRegex(RuntimeError, "unknown parameter type"):
            torch.ones(1, device="cuda").record_stream(1)

    def test_live_streams_are_distinct(self):
        streams = [torch.cuda.Stream() for _ in range(40)]
        self.assertEqual(len({s.cuda_stream for s in streams}), 40)
        del streams
        self.assertLess(len({torch.cuda.Stream().cuda_stream for _ in range(200)}), 100)

    def test_streams_and_events_match_pytorch(self):
        lowest, highest = torch.cuda.Stream.priority_range()
        self.assertEqual((lowest, highest < 0, torch.cuda.Stream(priority=-100).priority, torch.cuda.Stream().device_type), (0, True, highest, 1))
        event = torch.Event(device="cuda")
        event.record()
        event.synchronize()
        self.assertTrue(event.query())
        with self.assertRaisesRegex(TypeError, "takes no arguments"):
            torch.cuda.Stream.priority_range(1)


class Objects(unittest.TestCase):
    def test_events_of_a_device(self):
        for args, device in (((), "cuda"), ((None,), "cuda"), (("cuda",), "cuda"), ((torch.device("cuda"),), "cuda"), ((0,), "cuda"), (("cpu",), "cpu")):
            event = torch.Event(*args)
            self.assertEqual((event.device, event.event_id, event.query(), event.synchronize()), (torch.device(device), 0, True, None))
            self.assertEqual(repr(event), f"torch.Event device_type={device}, device_index=-1, event_flag=0, event_id=0")
        for args, kind in (((True,), TypeError), ((1.5,), TypeError), (("cuda", True), TypeError), (("x",), RuntimeError)):
            with self.assertRaises(kind):
                torch.Event(*args)
        with self.assertRaises(TypeError):
            torch.Event(external=True)
        with self.assertRaisesRegex(RuntimeError, "^cpu backend doesn't support events.$"):
            torch.Event("cpu").record()

    def test_event_options_select_timing(self):
        for timing in (False, True):
            a, b = (torch.Event("cuda", enable_timing=timing, blocking=True, interprocess=False) for _ in range(2))
            a.record(), b.record(), b.synchronize()
            self.assertEqual((a.device, a.event_id != 0), (torch.device("cuda:0"), True))
            if timing:
                self.assertGreaterEqual(a.elapsed_time(b), 0)
            else:
                with self.assertRaisesRegex(ValueError, "enable_timing=True"):
                    a.elapsed_time(b)
        self.assertIn("event_flag=1", repr(torch.Event(enable_timing=True)))

    def test_cuda_classes_derive_from_the_general_ones(self):
        self.assertTrue(issubclass(torch.cuda.Stream, torch.Stream) and issubclass(torch.cuda.Event, torch.Event))
        plain, own = torch.Stream("cuda"), torch.cuda.Stream()
        self.assertEqual((type(plain.record_event()), type(own.record_event())), (torch.Event, torch.cuda.Event))
        self.assertEqual((type(cuda.current_stream()), isinstance(torch.accelerator.current_stream(), torch.Stream)), (torch.cuda.Stream, True))
        for name in ("cuda_stream", "priority", "priority_range"):
            self.assertFalse(hasattr(torch.Stream, name))
        self.assertIsNone(torch.cuda.Event().device)

    def test_streams_by_number(self):
        own, default = torch.cuda.Stream(), cuda.default_stream()
        for stream in (own, default):
            numbers = stream.stream_id, stream.device_index, stream.device_type
            names = dict(zip(("stream_id", "device_index", "device_type"), numbers))
            for found in (torch.Stream(*numbers), torch.Stream(**names), torch.Stream(numbers[0], device_index=0, device_type=1), torch.cuda.Stream(**names)):
                self.assertEqual((found, hash(found), found.native_handle), (stream, hash(stream), stream.cuda_stream))
        self.assertEqual(repr(torch.Stream(0, 0, 1)), "torch.Stream device_type=cuda, device_index=0, stream_id=0")
        with torch.Stream(own.stream_id, 0, 1):
            self.assertEqual(cuda.current_stream(), own)
        with self.assertRaisesRegex(ValueError, "^cuda:0 has no stream with the id 123456$"):
            torch.Stream(123456, 0, 1)
        for numbers, kind in (((1, 0, 9), RuntimeError), ((1, 200, 1), RuntimeError), ((1, 0), TypeError), (("1", 0, 1), TypeError), ((True, 0, 1), TypeError)):
            with self.assertRaises(kind):
                torch.Stream(*numbers)
        for names in (dict(stream_id=1), dict(device_index=0), dict(stream_id=0, device_index=0, device_type=0)):
            with self.assertRaises(TypeError):
                torch.cuda.Stream(**names)

    def test_streams_of_the_cpu(self):
        stream = torch.Stream("cpu")
        self.assertEqual((stream, stream.device, stream.stream_id, stream.device_type), (torch.Stream(0, -1, 0), torch.device("cpu"), 0, 0))
        with stream:
            self.assertEqual((stream.query(), stream.synchronize(), stream.is_capturing()), (True, None, False))
        for call in (stream.record_event, lambda: stream.wait_stream(stream), lambda: cuda.current_stream().wait_stream(stream)):
            with self.assertRaisesRegex(RuntimeError, "^cpu backend doesn't support events.$"):
                call()
        with self.assertRaisesRegex(RuntimeError, "^Event device type CUDA does not match recording stream's device type CPU.$"):
            torch.Event("cuda").record(stream)
        with self.assertRaisesRegex(RuntimeError, "^Backend doesn't support getting stream native handle.$"):
            stream.native_handle

    def test_handles_for_other_libraries(self):
        stream, event = torch.cuda.Stream(), torch.cuda.Event()
        event.record(stream)
        self.assertEqual((stream._as_parameter_.value, stream.__cuda_stream__()), (stream.cuda_stream, (0, stream.cuda_stream)))
        self.assertEqual((event._as_parameter_.value, event.event_id), (event.cuda_event, event.cuda_event))

    def test_stream_knows_that_it_is_captured(self):
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        x = torch.ones(2, device="cuda")
        with torch.cuda.graph(graph, stream=stream):
            x + 1
            self.assertEqual((stream.is_capturing(), torch.cuda.Stream().is_capturing()), (True, False))
        self.assertFalse(stream.is_capturing())

    def test_device_errors_keep_their_context(self):
        x, graph = torch.ones(2, device="cuda"), torch.cuda.CUDAGraph()
        with self.assertRaisesRegex(torch.AcceleratorError, "previous error during capture") as caught:
            with torch.cuda.graph(graph):
                x.tolist()
        self.assertIsInstance(caught.exception.__context__, torch.AcceleratorError)
        self.assertIn("not permitted when stream is capturing", str(caught.exception.__context__))
        self.assertNotEqual(caught.exception.error_code, caught.exception.__context__.error_code)

    def test_device_texts_and_indexes(self):
        self.assertEqual((torch.device("cuda", None), torch.device("cpu", index=None)), (torch.device("cuda"), torch.device("cpu")))
        self.assertEqual(torch.device("cuda: 1"), torch.device("cuda", 1))
        for text in ("cuda:  0", "cuda:\t0", "cuda:0 ", " cuda", "cuda ", "cuda :0", "cuda:0\n", "cuda:", "cuda: ", ":0", "cuda:+0", "cuda:01"):
            with self.assertRaisesRegex(RuntimeError, "^Invalid device string: '"):
                torch.device(text)
        for index in (True, 1.0, "0"):
            with self.assertRaisesRegex(TypeError, r"^device\(\): argument 'index' \(position 2\) must be int, not"):
                torch.device("cuda", index)
        with self.assertRaisesRegex(RuntimeError, "^type \\(string\\) must not include an index"):
            torch.device("cuda:0", None)

    def test_put_refuses_operands_of_another_device(self):
        x, i, v = torch.zeros(4, device="cuda"), torch.tensor([1]), torch.ones(1, device="cuda")
        for call in (lambda: x.put_(i, v), lambda: x.put(i, v)):
            with self.assertRaisesRegex(RuntimeError, r"got index is on cpu, different from other tensors on cuda:0 .*wrapper_CUDA__put_\)"):
                call()
        with self.assertRaisesRegex(RuntimeError, "got source is on cpu"):
            x.put_(i.cuda(), v.cpu())

    def test_strided_factories_make_pinned_memory(self):
        x = torch.ones(2, 3)
        for made in (torch.empty_strided((2, 3), (1, 4), pin_memory=True), torch.empty_permuted((2, 3), (1, 0), pin_memory=True),
                     x.new_empty_strided((2, 3), (0, 2), pin_memory=True), torch.empty_strided((0, 3), (1, 1), pin_memory=True)):
            self.assertTrue(made.is_pinned() or made.numel() == 0)
            self.assertEqual(made.stride(), torch.empty_strided(made.shape, made.stride()).stride())
            self.assertFalse(made._is_view())

    def test_saving_on_the_cpu_does_not_wait(self):
        x = torch.full((1 << 16,), 2.0, device="cuda", requires_grad=True)
        torch.cuda.set_sync_debug_mode("error")
        self.addCleanup(torch.cuda.set_sync_debug_mode, "default")
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            y = (x * x).exp().sum()
        y.backward()
        torch.cuda.set_sync_debug_mode("default")
        self.assertEqual((x.grad[0], x.grad[-1]), (x[0] * 2 * (x[0] * x[0]).exp(),) * 2)


class GeneratorStates(unittest.TestCase):
    def test_clone_has_the_state(self):
        for device in ("cpu", "cuda"):
            generator = torch.Generator(device).manual_seed(5)
            torch.randn(3, device=device, generator=generator)
            clone = generator.clone_state()
            self.assertEqual((clone.device, clone.initial_seed(), clone is generator), (generator.device, 5, False))
            draws = [torch.rand(4, device=device, generator=g) for g in (generator, clone)]
            self.assertTrue(torch.equal(*draws))
            clone.manual_seed(6)
            self.assertEqual(generator.initial_seed(), 5)

    def test_offsets(self):
        generator = torch.Generator("cuda").manual_seed(5)
        self.assertEqual(generator.get_offset(), 0)
        first = torch.rand(4, device="cuda", generator=generator)
        self.assertEqual(generator.get_offset(), 4)
        self.assertIs(generator.set_offset(0), generator)
        self.assertTrue(torch.equal(torch.rand(4, device="cuda", generator=generator), first))
        with self.assertRaisesRegex(RuntimeError, "^offset must be a multiple of 4$"):
            generator.set_offset(3)
        with self.assertRaisesRegex(RuntimeError, "^manual_offset expected a long, but got float$"):
            generator.set_offset(4.0)
        for call in (lambda: torch.Generator().get_offset(), lambda: torch.Generator().set_offset(4)):
            with self.assertRaisesRegex(RuntimeError, "^CPU Generator does not use offset$"):
                call()

    def test_shared_states(self):
        one, two = (torch.Generator("cuda").manual_seed(i) for i in (1, 2))
        alias = one.graphsafe_get_state()
        self.assertIs(two.graphsafe_set_state(alias), two)
        torch.rand(4, device="cuda", generator=two)
        self.assertEqual([g.get_offset() for g in (one, two, alias)], [4, 4, 4])
        alias.manual_seed(9)
        self.assertEqual([g.initial_seed() for g in (one, two)], [9, 9])
        for call in (torch.Generator().graphsafe_get_state, lambda: torch.Generator().graphsafe_set_state(one)):
            with self.assertRaisesRegex(NotImplementedError, "^graphsafe_[gs]et_state is not supported in this Generator$"):
                call()
        with self.assertRaisesRegex(TypeError, "^expected a Generator, but got int$"):
            one.graphsafe_set_state(3)

    def test_graph_draws_from_the_shared_state(self):
        generator, graph = torch.Generator("cuda").manual_seed(3), torch.cuda.CUDAGraph()
        alias = torch.Generator("cuda").graphsafe_set_state(generator.graphsafe_get_state())
        with torch.cuda.graph(graph):
            drawn = torch.rand(4, device="cuda", generator=alias)
        del alias
        generator.manual_seed(7)
        graph.replay()
        self.assertEqual(generator.get_offset(), 4)
        self.assertTrue(torch.equal(drawn, torch.rand(4, device="cuda", generator=torch.Generator("cuda").manual_seed(7))))

    def test_default_generators_are_those_of_the_devices(self):
        generators = torch.cuda.default_generators
        self.assertEqual([g.device.index for g in generators], list(range(cuda.device_count())))
        before = torch.cuda.get_rng_state()
        self.addCleanup(torch.cuda.set_rng_state, before)
        own = generators[0].graphsafe_get_state()
        self.addCleanup(generators[0].graphsafe_set_state, own)
        generators[0].graphsafe_set_state(torch.Generator("cuda"))
        torch.manual_seed(11)
        self.assertEqual((generators[0].initial_seed(), own.initial_seed() == 11), (11, False))
        torch.rand(4, device="cuda")
        self.assertEqual(generators[0].get_offset(), 4)

    def test_seeds(self):
        self.addCleanup(torch.set_rng_state, torch.get_rng_state())
        for seed, value in ((3.0, 3), (3.7, 3), ("12", 12), (True, 1), (torch.tensor(5), 5), (-1, 2**64 - 1), (-2**63, 2**63), (2**64 - 1, 2**64 - 1)):
            self.assertEqual(torch.manual_seed(seed).initial_seed(), value)
        for seed, kind in ((None, TypeError), (1j, TypeError), ("x", ValueError), (float("nan"), ValueError), (float("inf"), OverflowError),
                           (2**64, ValueError), (-2**63 - 1, ValueError)):
            with self.assertRaises(kind):
                torch.manual_seed(seed)
        for seed, name in ((3.0, "float"), ("3", "str"), (True, "bool"), (torch.tensor(5), "Tensor"), (None, "NoneType")):
            with self.assertRaisesRegex(RuntimeError, f"^manual_seed expected a long, but got {name}$"):
                torch.Generator().manual_seed(seed)


@unittest.skipIf(cuda.device_count() < 2, "requires two devices")
class MultipleDevices(unittest.TestCase):
    def tearDown(self):
        cuda.set_device(0)

    def test_device_contexts(self):
        scope = cuda.device(1)
        for _ in range(2):
            with scope, scope:
                self.assertEqual(cuda.current_device(), 1)
            self.assertEqual(cuda.current_device(), 0)
        with cuda.device(None), cuda.device(-1):
            self.assertEqual(cuda.current_device(), 0)
        with self.assertRaises(torch.AcceleratorError) as caught:
            cuda.device(99).__enter__()
        self.assertEqual(caught.exception.error_code, 101)
        self.assertIsInstance(caught.exception, RuntimeError)

    def test_external_streams(self):
        s = torch.cuda.Stream(priority=-1)
        for found in (torch.cuda.ExternalStream(s.cuda_stream), torch.cuda.get_stream_from_external(s.cuda_stream, "cuda:0")):
            self.assertIsInstance(found, torch.cuda.Stream)
            self.assertEqual((found, found.priority, found.stream_id, repr(found)), (s, -1, s.stream_id, repr(s)))
        with torch.cuda.stream(torch.cuda.ExternalStream(s.cuda_stream, device=0)):
            self.assertEqual(torch.cuda.current_stream(), s)
            x = torch.ones(3, device="cuda")
        torch.cuda.current_stream().wait_stream(s)
        self.assertEqual(x.tolist(), [1.0] * 3)
        self.assertEqual(torch.cuda.ExternalStream(0), torch.cuda.default_stream())
        if torch.cuda._backend_name() == "sim":  # a CUDA driver may not detect an invalid handle
            with self.assertRaisesRegex(torch.AcceleratorError, "CUDA error: invalid resource handle"):
                torch.cuda.ExternalStream(12345)
        for wrong, error in (("x", TypeError), (1 << 70, OverflowError)):
            self.assertRaises(error, torch.cuda.ExternalStream, wrong)

    def test_stream_contexts(self):
        stream, other = cuda.Stream(device=1), cuda.Stream(device=0)
        scope, first = cuda.stream(stream), cuda.current_stream(0)
        for enter in (lambda: scope, lambda: stream):
            for _ in range(2):
                with enter() as given, cuda.stream(other), enter():
                    self.assertIs(given, None if enter() is scope else stream)
                    self.assertEqual((cuda.current_device(), cuda.current_stream()), (1, stream))
                self.assertEqual((cuda.current_device(), cuda.current_stream()), (0, first))
                self.assertEqual(cuda.current_stream(1), cuda.default_stream(1))
        self.assertIs(scope.stream, stream)
        with cuda.stream(None):
            self.assertEqual(cuda.current_stream(), first)
        self.assertRaisesRegex(TypeError, "expected a torch.cuda.Stream, not int", cuda.stream(5).__enter__)
        self.assertRaisesRegex(TypeError, "a new stream is made by torch.cuda.Stream", cuda.stream)
        for left, text in ((scope, "the stream was not entered"), (cuda.device(1), "the device scope was not entered")):
            self.assertRaisesRegex(RuntimeError, text, left.__exit__, None, None, None)

    def test_device_context_subclasses(self):
        class Named(cuda.device):
            name = "one"
        with Named(1) as scope:
            self.assertEqual((scope.name, scope.idx, cuda.current_device()), ("one", 1, 1))
        self.assertTrue(issubclass(cuda.device_of, cuda.device))

    def test_device_contexts_restore_device(self):
        for given in (None, "cuda"):
            with cuda.device(given):
                cuda.set_device(1)
            self.assertEqual(cuda.current_device(), 0)
        for scope in (cuda.device(-1), cuda.device_of(torch.ones(1))):
            with scope:
                cuda.set_device(1)
            self.assertEqual(cuda.current_device(), 1)
            cuda.set_device(0)

    def test_device_of(self):
        class Unsure:
            is_cuda = property(lambda self: 1 / 0)

        x = torch.ones(1, device="cuda:1")
        for here in (x, x.storage()):
            with cuda.device_of(here):
                self.assertEqual(cuda.current_device(), 1)
        with cuda.device_of(torch.ones(1)):
            self.assertEqual(cuda.current_device(), 0)
        with self.assertRaisesRegex(AttributeError, "'int' object has no attribute 'is_cuda'"):
            cuda.device_of(5)
        with self.assertRaises(ZeroDivisionError):
            cuda.device_of(Unsure())

    def test_set_device(self):
        for device, text in (("cuda", "specified index or an integer, but got:cuda"),
                             (None, "specified index or an integer, but got:None"), (1.5, "but got:1.5"),
                             ("cpu", "Expected a cuda device, but got: cpu")):
            with self.assertRaisesRegex(ValueError, text):
                cuda.set_device(device)
        with self.assertRaises(RuntimeError):
            cuda.set_device(99)
        self.assertEqual(cuda.current_device(), 0)
        cuda.set_device(torch.device("cuda:1"))
        seen = []
        thread = threading.Thread(target=lambda: seen.append(cuda.current_device()))
        thread.start()
        thread.join()
        self.assertEqual((cuda.current_device(), seen), (1, [0]))

    def test_tensor_cuda(self):
        x = torch.ones(2)
        y = x.cuda(1)
        self.assertEqual((y.get_device(), x.get_device(), y.device), (1, -1, torch.device("cuda:1")))
        self.assertIs(y.cuda(1), y)
        with cuda.device(0):
            self.assertIsNot(y.cuda(), y)
        with self.assertRaisesRegex(RuntimeError, "Invalid device, must be cuda device"):
            x.cuda("cpu")
        with self.assertRaisesRegex(TypeError, r"cuda\(\) got an unexpected keyword argument 'device_id'"):
            x.cuda(device_id=1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x.cuda(0, **{"async": True})
        self.assertIn("This overload of cuda is deprecated", str(caught[0].message))

    def test_default_device(self):
        with torch.device("cuda:1"):
            self.assertEqual(torch.ones(1).get_device(), 1)
            self.assertEqual(torch.Tensor(1).get_device(), -1)
        self.assertEqual(torch.ones(1).get_device(), -1)
        with torch.device("cuda"):  # repr omits the device only for the default tensor type
            self.assertEqual((repr(torch.ones(1)), repr(torch.ones(1, device="cpu"))),
                             ("tensor([1.], device='cuda:0')", "tensor([1.])"))

    def test_stream_devices(self):
        s = cuda.Stream(1)
        with cuda.stream(s):
            self.assertEqual((cuda.current_stream(), cuda.current_device()), (s, 1))
            with s:
                pass
        self.assertEqual((cuda.current_stream(), cuda.current_device()), (cuda.default_stream(), 0))
        self.assertEqual(repr(cuda.default_stream()),
                         "<torch.cuda.Stream device=cuda:0 cuda_stream=0x0>")
        self.assertNotEqual(cuda.default_stream(0), cuda.default_stream(1))
        with self.assertRaisesRegex(AttributeError, "'NoneType' object has no attribute 'record_event'"):
            s.wait_stream(None)
        with self.assertRaisesRegex(TypeError, r"torch.cuda.Stream\(\)"):
            cuda.stream()
        with self.assertRaisesRegex(AttributeError, "'int' object has no attribute 'wait'"):
            s.wait_event(5)
        with self.assertRaisesRegex(AttributeError, "'int' object has no attribute 'record'"):
            s.record_event(5)
        self.assertIs(cuda.stream(s).stream, s)

    def test_cross_device_errors(self):
        F, here, there = torch.nn.functional, torch.ones(2, 3, device="cuda:0"), torch.ones(2, 3, device="cuda:1")
        elements = "found at least two devices, cuda:0 and cuda:1!"
        wrapper = r"got %s is on cuda:1, different from other tensors on cuda:0 \(when checking argument in method wrapper_CUDA_%s\)"
        for step in (torch.optim.SGD, torch.optim.Adam, torch.optim.Adadelta):  # the optimizer state stays on the old device
            p = torch.nn.Parameter(torch.ones(2))
            optimizer = step([p], lr=1., **({"momentum": 1.} if step is torch.optim.SGD else {}))
            for device in ("cpu", "cuda"):
                p.data, p.grad = p.data.to(device), None
                (p * 2).sum().backward()
                if device == "cpu":
                    optimizer.step()
            with self.assertRaisesRegex(RuntimeError, "found at least two devices, cuda:0 and cpu!"):
                optimizer.step()
        for call, text in ((lambda: F.mse_loss(here, there), elements), (lambda: F.smooth_l1_loss(here, there), elements),
                           (lambda: F.binary_cross_entropy(here, there), elements),
                           (lambda: F.mse_loss(torch.ones(2, 3), here), "found at least two devices, cuda:0 and cpu!"),
                           (lambda: here.clamp(min=there), wrapper % ("min", "clamp_Tensor")),
                           (lambda: F.layer_norm(here, (3,), there[0]), wrapper % ("weight", "_native_layer_norm")),
                           (lambda: torch.nn.Conv2d(1, 1, 1).cuda()(torch.ones(1, 1, 1, 1)),
                            r"got weight is on cuda:0, different from other tensors on cpu \(.* wrapper_CUDA___slow_conv2d_forward\)")):
            with self.assertRaisesRegex(RuntimeError, "^Expected all tensors to be on the same device, but " + text):
                call()

    def test_hooks_on_engine_threads(self):
        x = torch.ones(3, device="cuda:1", requires_grad=True)
        y = x * 2
        threads = []
        y.register_hook(lambda g: threads.append(threading.get_ident()))
        y.sum().backward()
        self.assertEqual((x.grad.tolist(), len(threads)), ([2.] * 3, 1))


class Forks(unittest.TestCase):
    def test_child_cannot_use_parents_context(self):
        code = """
import os, phlox as torch
x = torch.ones(2, device="cuda")
torch.cuda.synchronize()
if os.fork() == 0:
    for call in (lambda: x + 1, x.cpu, lambda: torch.ones(1, device="cuda")):
        try: call()
        except RuntimeError as e: print(type(e).__name__, str(e).split(chr(10))[0], flush=True)
    os._exit(0)
print(os.wait()[1])
"""
        env = {**os.environ, "PHLOX_SIM_DEVICES": "1"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        lost = "AcceleratorError CUDA error: initialization error"
        self.assertEqual(done.stdout.splitlines()[:3], [lost, lost, "RuntimeError Cannot re-initialize CUDA in forked subprocess. To use "
                                                        "CUDA with multiprocessing, you must use the 'spawn' start method"], done.stderr)


    def test_device_count_does_not_initialize(self):
        code = """
import os, phlox as torch
print(torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.is_initialized(), flush=True)
if os.fork() == 0:
    print(torch.ones(2, device="cuda").tolist(), flush=True)
    os._exit(0)
print(os.wait()[1])
"""
        env = {**os.environ, "PHLOX_SIM_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        self.assertEqual(done.stdout.splitlines(), ["True 1 False", "[1.0, 1.0]", "0"], done.stderr)


class NoDevices(unittest.TestCase):
    def test_seeding_does_not_initialize(self):
        code = """
import phlox as torch
torch.cuda.manual_seed(1), torch.cuda.manual_seed_all(1), torch.manual_seed(1)
assert torch.cuda.get_rng_state().tolist()[0] == 1 and not torch.cuda.is_initialized()
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_errors(self):
        code = """
import phlox as torch
assert not torch.cuda.is_available() and torch.cuda.memory_allocated() == 0
for call in (lambda: torch.ones(1, device="cuda"), lambda: torch.ones(1).cuda(),
             torch.cuda.current_device, torch.cuda.synchronize):
    try: call()
    except RuntimeError as e:
        assert str(e) == "No CUDA GPUs are available\\nPHLOX_SIM_DEVICES=2 in the environment simulates two devices on the CPU.", e
    else: raise SystemExit("nothing was raised")
torch.cuda.manual_seed_all(1)
torch.cuda.empty_cache()
assert "|" in torch.cuda.memory_summary()
"""
        env = {**os.environ, "PHLOX_SIM_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


@unittest.skipIf(torch.cuda.device_count() < 1, "requires a device")
class SyncDebugMode(unittest.TestCase):
    text = "called a synchronizing CUDA operation"

    def tearDown(self):
        cuda.set_sync_debug_mode("default")

    def calls(self):
        x = torch.arange(4.0, device="cuda")
        return x, (lambda: x.sum().item(), x.cpu, x.nonzero, lambda: repr(x), lambda: x[x > 1], lambda: bool(x[0] > 1),
                   lambda: torch.ones(2).cuda(), lambda: torch.tensor([1], device="cuda"), cuda.Stream().synchronize)

    def test_warn(self):
        x, calls = self.calls()
        for mode in (1, "warn"):
            cuda.set_sync_debug_mode(mode)
            self.assertEqual(cuda.get_sync_debug_mode(), 1)
            for call in calls:
                with self.assertWarnsRegex(UserWarning, self.text):
                    call()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                x + 1, x.clone(), x.sum(), cuda.synchronize(), torch.ones(2, pin_memory=True).to("cuda", non_blocking=True)

    def test_error(self):
        _, calls = self.calls()
        for mode in (2, "error"):
            cuda.set_sync_debug_mode(mode)
            for call in calls:
                with self.assertRaisesRegex(RuntimeError, self.text):
                    call()
        cuda.set_sync_debug_mode(0)
        for call in calls:
            call()

    def test_invalid_modes(self):
        for mode in ("loud", "Warn"):
            with self.assertRaisesRegex(RuntimeError, "invalid value of debug_mode, expected one of `default`, `warn`, `error`"):
                cuda.set_sync_debug_mode(mode)
        for mode in (3, -1):
            with self.assertRaisesRegex(RuntimeError, "invalid value of debug_mode, expected one of 0,1,2"):
                cuda.set_sync_debug_mode(mode)

    def test_allocator_settings(self):
        settings = cuda.memory._set_allocator_settings
        try:
            settings("max_split_size_mb:64")
            torch.ones(1, device="cuda")
            self.assertEqual(cuda.memory_stats()["max_split_size"], 64 << 20)
            with self.assertRaisesRegex(ValueError, "Unrecognized key 'foo' in Accelerator allocator config."):
                settings("foo:1")
            with self.assertWarnsRegex(UserWarning, "release_lock_on_cudamalloc has no effect"):
                settings("release_lock_on_cudamalloc:True")
        finally:
            settings("")


@unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
class KernelErrors(unittest.TestCase):
    """An error detected by a kernel is raised with the called op and its line."""
    def check(self, name, call, *kernel):
        with self.assertRaises((IndexError, RuntimeError)) as caught:
            call()
            torch.cuda.synchronize()
        line = call.__code__.co_firstlineno
        kernel = " (kernel %s)" % kernel if kernel else ""
        self.assertRegex(str(caught.exception), re.escape(f"It was reported by {name}{kernel} on the default stream of cuda:0, "
                                                          f"launched at {__file__}:{line}") + "$")
        torch.cuda.synchronize()

    def test_error_names_called_op(self):
        F, x = torch.nn.functional, torch.ones(4, 3, device="cuda")
        layer, loss = torch.nn.Embedding(4, 3).cuda(), torch.nn.CrossEntropyLoss()
        far, rows, target = torch.tensor([9]).cuda(), torch.ones(1, 3).cuda(), torch.tensor([0, 1, 2, 7]).cuda()
        self.check("index", lambda: x[far])
        self.check("embedding", lambda: F.embedding(far, x), "index")
        self.check("embedding", lambda: layer(far), "index")
        self.check("gather", lambda: x.gather(0, far[None]), "index")
        self.check("index_select", lambda: x.index_select(0, far), "index")
        self.check("take", lambda: x.take(far + 90), "index")
        self.check("scatter", lambda: x.scatter_(0, far[None], 1.0), "index_put_")
        self.check("scatter_add", lambda: x.scatter_add(0, far[None], rows), "index_put_")
        self.check("index_add", lambda: x.index_add(0, far, rows), "index_put_")
        self.check("index_copy", lambda: x.index_copy(0, far, rows), "index_put_")
        self.check("one_hot", lambda: F.one_hot(far, 3), "index_put_")
        self.check("nll_loss", lambda: F.nll_loss(x, target), "nll_loss_forward")
        self.check("cross_entropy", lambda: F.cross_entropy(x, target), "nll_loss_forward")
        self.check("cross_entropy", lambda: loss(x, target), "nll_loss_forward")
        self.check("bernoulli", lambda: torch.bernoulli(x + 1))
        self.check("floor_divide", lambda: far // (far - 9))

    def test_indexing_empty_tensor(self):
        F, none, one = torch.nn.functional, torch.zeros(0, 3, device="cuda"), torch.tensor([1], device="cuda")
        for call in (lambda: none[one], lambda: none.index_select(0, one), lambda: none.gather(0, one[None]), lambda: none.take(one),
                     lambda: none.scatter(0, one[None], 1.0), lambda: F.embedding(one, none)):
            with self.assertRaisesRegex(IndexError, "index is out of bounds for dimension with size 0"):
                call()
        torch.cuda.synchronize()
        self.assertEqual(none.index_select(0, one[:0]).shape, (0, 3))
        with self.assertRaisesRegex(RuntimeError, "bincount only supports 1-d non-negative integral inputs."):
            torch.bincount(-one)


class AttributeErrors(unittest.TestCase):
    def test_messages_use_class_name(self):
        for thing, name in ((torch.cuda.Stream(), "Stream"), (torch.cuda.Event(), "Event"), (torch.cuda.device(0), "device"),
                            (torch.zeros(1, device="cuda"), "Tensor"), (torch.nn.Linear(1, 1).cuda().weight, "Parameter")):
            for use in (lambda: thing.nothing, lambda: delattr(thing, "nothing")):
                with self.assertRaises(AttributeError) as caught:
                    use()
                self.assertEqual(str(caught.exception), f"'{name}' object has no attribute 'nothing'")
        self.assertEqual(repr(torch.cuda.Stream).replace("phlox", "torch"), "<class 'torch.cuda.Stream'>")

    def test_getter_exceptions_are_kept(self):
        class Late(torch.cuda.Stream):
            @property
            def odd(self):
                raise AttributeError("'torch.cuda.Stream' object is a text of its own")
        with self.assertRaisesRegex(AttributeError, "^'torch.cuda.Stream' object is a text of its own$"):
            Late().odd


@unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
class CrossDevice(unittest.TestCase):
    both = "found at least two devices, cuda:0 and cuda:1!"

    def setUp(self):
        self.x = torch.ones(3, device="cuda:0")
        self.mask = torch.ones(3, dtype=torch.bool, device="cuda:0")
        self.near, self.far = (torch.tensor(2.0, device=f"cuda:{i}") for i in range(2))

    def test_fill_value_on_other_device(self):
        x, mask, at = self.x, self.mask, torch.zeros(1, dtype=torch.int64, device="cuda:0")
        for fill in (lambda v: torch.full((3,), v, device="cuda:0"), lambda v: torch.full_like(x, v), lambda v: x.new_full((3,), v),
                     lambda v: x.masked_fill(mask, v), lambda v: x.clone().masked_fill_(mask, v), lambda v: x.clone().fill_(v), lambda v: torch.fill(x, v),
                     lambda v: x.index_fill(0, at, v)):
            with self.assertRaisesRegex(RuntimeError, self.both):
                fill(self.far)
            for value in (self.near, self.near.cpu(), 2.0):
                self.assertEqual(fill(value)[0].item(), 2)
        self.assertEqual(torch.full((2,), self.far).tolist(), [2, 2])

    def test_fill_value_keeps_gradient(self):
        value = torch.tensor(2.0, requires_grad=True)
        for fill in (torch.fill, lambda x, v: (x * 1).fill_(v), lambda x, v: x.masked_fill(self.mask, v)):
            value.grad = None
            fill(self.x, value).sum().backward()
            self.assertEqual(value.grad.item(), 3)

    def test_tensor_from_device_scalars(self):
        near, far = self.near, self.far
        for data in ([near, near], [[near], [1.5]], [near.cpu(), near], (1, far)):
            device = far.device if far is data[-1] else near.device
            self.assertEqual((torch.tensor(data).device, torch.as_tensor(data).device), (device, device))
            self.assertEqual(torch.tensor(data, device="cpu").device.type, "cpu")
        for make in (torch.tensor, torch.as_tensor):
            with self.assertRaisesRegex(RuntimeError, self.both):
                make([near, far])
        self.assertEqual(str(torch.tensor([near, far], device="cuda:1")), "tensor([2., 2.], device='cuda:1')")

    def test_generator_device(self):
        with self.assertRaisesRegex(RuntimeError, "Expected a 'cuda:1' device type for generator but found 'cuda:0'"):
            torch.rand(2, device="cuda:1", generator=torch.Generator("cuda:0"))
        for name in ("cuda", "cuda:1"):
            torch.rand(2, device="cuda:1", generator=torch.Generator(name))


class BatchNormStatistics(unittest.TestCase):
    def test_float16_statistics_are_float32_on_devices(self):
        for device, wanted in (("cpu", torch.float16), ("cuda", torch.float32)):
            x, weight = torch.ones(4, 3, device=device, dtype=torch.float16), torch.ones(3, device=device, dtype=torch.float16)
            out, mean, invstd = torch.native_batch_norm(x, weight, weight, None, None, True, 0.1, 1e-5)
            self.assertEqual([out.dtype, mean.dtype, invstd.dtype], [torch.float16, wanted, wanted])


if __name__ == "__main__":
    unittest.main()
