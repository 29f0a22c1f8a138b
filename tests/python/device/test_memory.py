# SPDX-License-Identifier: Apache-2.0
"""Device memory history: events, frames, snapshot files and their plot. Storages resized to free their memory."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import contextlib
import inspect
import io
import pickle
import pickletools
import random
import tempfile
import threading
import unittest
from xml.etree import ElementTree

import phlox as torch
import phlox.memory as picture

memory = torch.cuda.memory
MiB = 1 << 20
SNAPSHOT = {"segments", "device_traces"}
EVENT = {"action", "addr", "size", "stream", "pool_id", "time_us", "frames"}


def give(n):
    return torch.empty(n, dtype=torch.uint8, device="cuda")


def events(action=None):
    return [e for e in memory._snapshot()["device_traces"][0] if action in (None, e["action"])]


def frames_at(address):
    return next(b["frames"] for s in memory.memory_snapshot() for b in s["blocks"] if b["address"] == address)


@unittest.skipIf(torch.cuda.device_count() < 1, "requires a device")
class History(unittest.TestCase):
    def setUp(self):
        torch.cuda.empty_cache()
        memory._record_memory_history(max_entries=1000, clear_history=True)

    def tearDown(self):
        memory._record_memory_history(enabled=None)

    def test_events_and_blocks_have_frames(self):
        line = inspect.currentframe().f_lineno + 1
        x = give(3 * MiB)
        frames = frames_at(x.data_ptr())
        self.assertEqual([f["name"] for f in frames[:3]], ["empty", "give", self._testMethodName])
        self.assertEqual((frames[2]["filename"], frames[2]["line"]), (__file__, line))
        (event,) = events("alloc")
        self.assertEqual((set(event), event["frames"], event["addr"]), (EVENT, frames, x.data_ptr()))
        self.assertEqual((event["size"], event["stream"], event["pool_id"]), (3 * MiB, 0, (0, 0)))

    def test_free_events_have_frames(self):
        x = give(3 * MiB)
        line = inspect.currentframe().f_lineno + 1
        del x
        requested, completed = events("free_requested"), events("free_completed")
        self.assertEqual([len(requested), len(completed)], [1, 1])
        self.assertEqual((requested[0]["frames"][0]["line"], requested[0]["frames"][0]["name"]), (line, self._testMethodName))

    def test_ops_without_gil_have_all_frames(self):
        x = torch.ones(4, 4, device="cuda")
        y = x @ x
        frames = frames_at(y.data_ptr())
        self.assertEqual([f["name"] for f in frames[:2]], ["matmul", self._testMethodName])
        self.assertGreater(len(frames), 3)

    def test_backward_frames_have_node_at_forward_line(self):
        x = torch.ones(1000, device="cuda", requires_grad=True)
        line = inspect.currentframe().f_lineno + 1
        y = x.exp()
        y.sum().backward()
        frames = frames_at(x.grad.data_ptr())
        op, node, called = frames[:3]
        self.assertEqual((op["filename"], node["name"], node["filename"], node["line"]), ("libphlox", "ExpBackward0", __file__, line))
        self.assertEqual((called["name"], called["line"]), (self._testMethodName, line + 1))

    def test_every_op_is_in_frames(self):
        x = torch.ones(64, 64, device="cuda")
        for name, op in ("add", lambda: x + x), ("sum", lambda: x.sum(0)), ("cat", lambda: torch.cat([x, x])), ("clone", lambda: x.clone()):
            made = op()
            self.assertEqual([f["name"] for f in frames_at(made.data_ptr())[:2]], [name, "<lambda>"])

    def test_pending_exception_survives_free(self):
        def fails():
            held = give(3 * MiB)
            raise KeyError(held.numel())
        with self.assertRaisesRegex(KeyError, str(3 * MiB)):
            fails()
        self.assertEqual(len(events("free_requested")), 1)

    def test_threads_have_their_own_frames(self):
        made = []
        thread = threading.Thread(target=lambda: made.append(give(512)))
        thread.start()
        thread.join()
        names = [f["name"] for f in frames_at(made[0].data_ptr())]
        self.assertIn("<lambda>", names)
        self.assertNotIn(self._testMethodName, names)

    def test_oom_event_has_free_memory(self):
        with self.assertRaises(torch.OutOfMemoryError):
            give(1 << 50)
        (event,) = events("oom")
        self.assertEqual(set(event), EVENT - {"addr"} | {"device_free"})
        self.assertEqual((event["size"], event["frames"][1]["name"]), (1 << 50, "give"))

    def test_out_of_memory_reports_op_line_and_owners(self):
        held = give(5 * MiB)
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 20 * MiB) / total)
        try:
            line = inspect.currentframe().f_lineno + 2
            with self.assertRaises(torch.OutOfMemoryError) as failed:
                torch.cat([held] * 20)
            self.assertIn(f"\nRequested by cat at {__file__}:{line}.", str(failed.exception))
            self.assertRegex(str(failed.exception), rf"\n  5.00 MiB in 1 block: empty at {__file__}:\d+\n")
            memory._record_memory_history(enabled=None)
            wide = held[::512].clone()[:, None]
            with self.assertRaisesRegex(torch.OutOfMemoryError, "The op was add[.]"):
                wide + wide.T
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    def test_out_of_memory_reports_freed_and_used_memory(self):
        side, graph, MOST = torch.cuda.Stream(), torch.cuda.CUDAGraph(), 96 * MiB
        memory._set_allocator_settings("expandable_segments:False")
        torch.cuda.set_per_process_memory_fraction(MOST / torch.cuda.get_device_properties(0).total_memory)
        try:
            with torch.cuda.graph(graph):
                x = give(40 * MiB).fill_(1)
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    y = x[:512] + 1
                del x  # memory held by a capture is never free
                with self.assertRaises(torch.OutOfMemoryError) as failed:
                    give(80 * MiB)
                torch.cuda.current_stream().wait_stream(side)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
            memory._set_allocator_settings("")
        text = str(failed.exception)
        self.assertRegex(text, r"\nRequested by empty at .*test_memory.py:\d+[.]\n")
        self.assertRegex(text, r"\nFree in blocks: .*, the largest has .*[.]\n")
        self.assertRegex(text, rf"\nFreed, but in use by stream {side.stream_id} of cuda:0: 40.00 MiB[.]\n")
        self.assertRegex(text, r"\n  .* in \d+ blocks?: add at .*test_memory.py:\d+\n")
        self.assertRegex(text, r"\nPossible remedy: ")

    def test_missing_names(self):
        for name in ("cuda.GreenContext", "cuda.memory._annotate_tensor", "cuda.graphs.export_dot", "cuda.CUDAGraph.pools",
                     "UntypedStorage.fill_", "storage.TypedStorage.float", "profiler._KinetoProfile", "profiler.profile.prepare_trace", "utils.benchmark.Colorize", "autograd.profiler_util.StringTable"):
            owner = torch
            *above, last = name.split(".")
            for part in above:
                owner = getattr(owner, part)
            with self.assertRaisesRegex(AttributeError, rf"torch[.].*{last} is not implemented in Phlox"):
                getattr(owner, last)

    def test_allocation_traceback(self):
        x = give(3 * MiB)
        self.assertEqual(memory._allocation_traceback(x.data_ptr()), frames_at(x.data_ptr()))
        self.assertIsNone(memory._allocation_traceback(x.data_ptr() + 1))
        memory._record_memory_history(enabled=None)
        self.assertIsNone(memory._allocation_traceback(give(512).data_ptr()))

    def test_context_selects_frames(self):
        for context, block, alloc, free in ((None, 0, 0, 0), ("state", 1, 0, 0), ("alloc", 1, 1, 0), ("all", 1, 1, 1)):
            memory._record_memory_history(context=context, stacks="python", clear_history=True)
            x, y = give(512), give(1024)
            self.assertEqual(bool(frames_at(x.data_ptr())), bool(block), context)
            del y
            self.assertEqual([bool(events(a)[-1]["frames"]) for a in ("alloc", "free_requested")], [bool(alloc), bool(free)], context)
            if block:
                self.assertEqual(frames_at(x.data_ptr())[0]["name"], "give")

    def test_max_entries_and_skip_actions(self):
        memory._record_memory_history(max_entries=3, skip_actions=["free_requested", "snapshot"])
        for n in range(1, 5):
            give(n * 512)
        self.assertEqual([(e["action"], e["size"]) for e in events()], [("free_completed", 1536), ("alloc", 2048), ("free_completed", 2048)])
        memory._record_memory_history(enabled="state")
        x = give(512)
        self.assertLessEqual(len(events()), 1)
        self.assertTrue(frames_at(x.data_ptr()))

    def test_dump_snapshot(self):
        x = give(3 * MiB)
        with tempfile.TemporaryDirectory() as folder:
            memory._dump_snapshot(folder + "/memory.pickle")
            with open(folder + "/memory.pickle", "rb") as file:
                data = file.read()
        read = pickle.loads(data)
        self.assertEqual(next(pickletools.genops(data))[1], 4)  # the highest protocol that PyTorch's viewer reads
        self.assertEqual((set(read), len(read["device_traces"])), (SNAPSHOT, torch.cuda.device_count()))
        block = next(b for s in read["segments"] for b in s["blocks"] if b["address"] == x.data_ptr())
        self.assertIs(block["frames"], next(e for e in read["device_traces"][0] if e["action"] == "alloc")["frames"])

    def test_history_replays_backwards_to_empty(self):
        streams = [torch.cuda.Stream() for _ in range(3)]
        memory._record_memory_history(max_entries=100000, clear_history=True)
        memory._set_allocator_settings("expandable_segments:True")
        most = memory.memory_reserved() + 64 * MiB
        torch.cuda.set_per_process_memory_fraction(most / torch.cuda.get_device_properties(0).total_memory)
        draw, live = random.Random(1), []
        try:
            for _ in range(400):
                while sum(x.numel() for x in live) > 40 * MiB:
                    live.pop(draw.randrange(len(live)))
                with torch.cuda.stream(draw.choice(streams)):
                    live.append(give(int(2 ** draw.uniform(16, 23))))
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
            memory._set_allocator_settings("")
        snapshot = memory._snapshot()
        segments = {s["address"]: (s["total_size"], s["stream"]) for s in snapshot["segments"] if s["device"] == 0}
        blocks = {b["address"] for s in snapshot["segments"] if s["device"] == 0 for b in s["blocks"] if b["state"] != "inactive"}
        self.assertGreater(len(events("segment_unmap")), 9)
        for event in reversed(snapshot["device_traces"][0]):
            self.undo(event, segments, blocks)
        self.assertEqual(blocks, set())

    # A mapped range is part of one segment. An unmapped range merges with its neighbours of the same stream.
    def undo(self, event, segments, blocks):
        action, at, size = event["action"], event.get("addr"), event["size"]
        if action == "segment_unmap":
            segments[at] = size, event["stream"]
            for low in (at, max((s for s in segments if s < at), default=at)):
                size, stream = segments[low]
                if segments.get(low + size, (0, None))[1] == stream:
                    segments[low] = size + segments.pop(low + size)[0], stream
        elif action == "segment_map":
            low = max(s for s in segments if s <= at)
            whole, stream = segments.pop(low)
            self.assertLessEqual(at + size, low + whole)
            segments.update({a: (n, stream) for a, n in ((low, at - low), (at + size, low + whole - at - size)) if n})
        elif action == "alloc":
            blocks.remove(at)
        elif action == "free_completed":
            blocks.add(at)
        elif action == "free_requested":
            self.assertIn(at, blocks)

    def test_disabling_clears_events(self):
        x = give(512)
        memory._record_memory_history(enabled=None)
        self.assertEqual(events(), [])
        self.assertTrue(frames_at(x.data_ptr()))
        y = give(3 * MiB)
        self.assertEqual((events(), frames_at(y.data_ptr())), ([], []))

    def test_legacy_arguments(self):
        memory._record_memory_history(True, trace_alloc_max_entries=50, trace_alloc_record_context=True)
        x = give(512)
        self.assertEqual([f["name"] for f in events("alloc")[-1]["frames"][:1]], ["give"])
        memory._record_memory_history(False)
        self.assertEqual(events(), [])

    def test_invalid_options_change_nothing(self):
        give(512)
        count = len(events())
        for options, error, text in (
                ({"enabled": "some"}, RuntimeError, "expected state to be 'state', 'all', or None"),
                ({"context": "some"}, RuntimeError, "expected context to be 'state', 'alloc', 'all', or None"),
                ({"stacks": "some"}, RuntimeError, "expected stacks to be 'python', or 'all'"),
                ({"skip_actions": ["some"]}, ValueError, "Unknown action to skip: 'some'"),
                ({"record_pinned_host_memory": True}, NotImplementedError, "record_pinned_host_memory is not implemented in Phlox")):
            with self.assertRaisesRegex(error, text):
                memory._record_memory_history(**options)
        self.assertEqual(len(events()), count + 1)  # the snapshot above


class Picture(unittest.TestCase):
    def write(self, folder, content):
        with open(folder + "/m.pickle", "wb") as file:
            file.write(content)
        return folder + "/m.pickle"

    def run_on(self, content, *more):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            picture.main([self.write(folder, content), *more])
            with open(folder + "/m.svg") as file:
                return file.read()

    @unittest.skipIf(torch.cuda.device_count() < 1, "requires a device")
    def test_shows_allocations_by_op_and_line(self):
        before = give(5 * MiB)
        memory._record_memory_history(clear_history=True)
        kept, line = give(3 * MiB), inspect.currentframe().f_lineno
        x = torch.ones(MiB, device="cuda")
        del before, x
        drawn = self.run_on(pickle.dumps(memory._snapshot()))
        memory._record_memory_history(enabled=None)
        texts = [e.text for e in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("5 MiB  before the history", texts)
        self.assertTrue(any(t.startswith("3 MiB  empty  test_memory.py:") for t in texts), texts)
        self.assertTrue(any(t == f"4 MiB  ones  test_memory.py:{line + 1}" for t in texts), texts)
        self.assertRegex(texts[0], r"^cuda:0: \d+ MiB live at most, at event ")
        self.assertEqual(kept.numel(), 3 * MiB)

    def test_bytes_add_up(self):
        frames = lambda n: [{"filename": "libphlox", "line": 0, "name": "add"}, {"filename": "/a/b.py", "line": n, "name": "f<"}]
        event = lambda action, addr, size, time, n=1: {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, "frames": frames(n)}
        events = [event("segment_alloc", 0, 4096, 0), event("alloc", 0, 1024, 5), event("alloc", 1024, 512, 7, 2), event("free_requested", 0, 1024, 9)]
        block = {"address": 1024, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": frames(2)}
        segments = [{"device": 1, "total_size": 4096, "blocks": [block]}]
        drawn = picture.draw({"segments": segments, "device_traces": [[], events]}, 1)
        for text in "cuda:1: 1.5 KiB live at most, at event 2, 0.007 ms", "1 KiB  add  b.py:1", "512 bytes  others (1)", "4 KiB  reserved":
            self.assertIn(text, drawn)
        self.assertNotIn("cuda:0", drawn)

    def test_owners_are_outside_of_the_packages(self):
        own = os.path.dirname(torch.__file__) + "/nn/f.py"
        for path, owner in (("/home/u/phlox/train.py", "train.py"), ("/home/u/torch/train.py", "train.py"), (own, "b.py"),
                            ("/v/lib/python3.12/site-packages/torch/nn/f.py", "b.py"), ("/usr/lib/python3/dist-packages/phlox/nn/f.py", "b.py")):
            frames = [{"filename": "libphlox", "line": 0, "name": "add"}, {"filename": path, "line": 7, "name": "f"},
                      {"filename": "/a/b.py", "line": 7, "name": "g"}]
            event = {"action": "alloc", "addr": 0, "size": 1024, "stream": 0, "time_us": 5, "frames": frames}
            self.assertIn(f"1 KiB  add  {owner}:7", picture.draw({"segments": [], "device_traces": [[event]]}, 1), path)

    def test_invalid_snapshots(self):
        for content, text in ((b"", "Ran out of input"), (pickle.dumps([]), "expected a dict with segments and device_traces"),
                              (pickle.dumps(os.getcwd), "not a memory snapshot: it names posix.getcwd"),
                              (pickle.dumps({"segments": [], "device_traces": [[]]}), "expected a snapshot with events"),
                              (pickle.dumps({"segments": 3, "device_traces": [[]]}), "'segments' must be a list"),
                              (pickle.dumps({"segments": [], "device_traces": [3]}), "a trace must be a list"),
                              (pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "size": 1}]]}), "missing 'addr'"),
                              (pickle.dumps({"segments": [{"device": 0, "total_size": 1, "blocks": [3]}], "device_traces": [[]]}), "missing 'state'")):
            with self.assertRaises(SystemExit) as failed, contextlib.redirect_stderr(io.StringIO()) as stderr:
                self.run_on(content)
            self.assertEqual(failed.exception.code, 1)
            self.assertIn(text, stderr.getvalue())


class Storages(unittest.TestCase):
    device = "cpu"
    CUT = r"^a tensor reaches to byte 16 of a storage that resize_ has left with {}: the storage must be resized before the tensor is used again"

    def make_storage(self, left=0):
        x = torch.arange(4.0, device=self.device)
        x.untyped_storage().resize_(left)
        return x

    def test_resize_keeps_contents(self):
        x = self.make_storage(8)
        self.assertEqual((x.untyped_storage().nbytes(), x[:2].tolist()), (8, [0, 1]))
        storage = x.untyped_storage()
        self.assertIs(storage.resize_(32), storage)
        self.assertEqual((storage.nbytes(), x.shape, x[:2].tolist()), (32, (4,), [0, 1]))
        self.assertEqual(x.fill_(3).tolist(), [3] * 4)

    def test_access_beyond_end_raises(self):
        other = torch.ones(4, device=self.device)
        for left in (0, 8):
            for use in (lambda x: x + 1, lambda x: x[3].item(), torch.clone, lambda x: x.fill_(1), torch.sum, lambda x: x.tolist(), other.copy_,
                        lambda x: x.copy_(other), lambda x: x.to(torch.float64), lambda x: x.cpu() + x, lambda x: x @ x, lambda x: x[2:] * 2,
                        lambda x: torch.cat([other, x]), lambda x: torch.utils.dlpack.to_dlpack(x), lambda x: torch.add(other, 1, out=x)):
                with self.assertRaisesRegex(RuntimeError, self.CUT.format(left)):
                    use(self.make_storage(left))
        self.assertEqual(other.tolist(), [1] * 4)

    def test_metadata_ops_work(self):
        x = self.make_storage()
        self.assertEqual((x.shape, x.view(2, 2).shape, x.detach().shape, x.data_ptr(), torch.zeros_like(x).tolist()), ((4,), (2, 2), (4,), 0, [0] * 4))
        self.assertEqual(x.resize_(5).untyped_storage().nbytes(), 20)
        x.fill_(2)

    def test_restored_storage_works(self):
        x, y = self.make_storage(), torch.ones(4, device=self.device)
        view = x[1:3]
        self.assertEqual((y + y).tolist(), [2] * 4)
        x.untyped_storage().resize_(16)
        x.copy_(y)
        self.assertEqual(view.tolist(), [1, 1])

    def test_backward_through_resized_storages(self):
        w = torch.ones(4, device=self.device, requires_grad=True)
        y = (w * 2).sum()
        w.untyped_storage().resize_(0)
        w.untyped_storage().resize_(16)
        with torch.no_grad():
            w.copy_(torch.ones(4, device=self.device))
        y.backward()
        self.assertEqual(w.grad.tolist(), [2] * 4)

    def test_invalid_sizes(self):
        x = torch.ones(4, device=self.device)
        for size, text in ((1.5, "resize_ expects an int, but got float"), ("a", "resize_ expects an int, but got str"),
                           (-1, "resize_: a storage cannot have the size -1")):
            with self.assertRaisesRegex(RuntimeError, text):
                x.untyped_storage().resize_(size)
        with self.assertRaises((MemoryError, torch.OutOfMemoryError)):
            x.untyped_storage().resize_(1 << 62)
        self.assertEqual((x.untyped_storage().nbytes(), x.tolist()), (16, [1] * 4))

    def test_typed_storage_resize(self):
        x = torch.arange(4.0, device=self.device)
        self.assertIsNone(x.storage().resize_(2))
        self.assertEqual((x.storage().size(), x.untyped_storage().nbytes(), x.untyped_storage().resizable()), (2, 8, True))

    def test_shared_memory_is_not_resizable(self):
        if self.device == "cpu":
            x = torch.ones(4).share_memory_()
            self.assertFalse(x.untyped_storage().resizable())
            with self.assertRaisesRegex(RuntimeError, "^Trying to resize storage that is not resizable"):
                x.untyped_storage().resize_(0)


@unittest.skipIf(torch.cuda.device_count() < 1, "requires a device")
class DeviceStorages(Storages):
    device = "cuda"

    def test_resize_frees_memory_at_once(self):
        x = give(8 * MiB)
        before = torch.cuda.memory_allocated()
        x.untyped_storage().resize_(0)
        self.assertEqual(torch.cuda.memory_allocated(), before - 8 * MiB)

    def test_pending_work_keeps_memory(self):
        x, y = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            y.copy_(x)
        x.untyped_storage().resize_(0)
        torch.full((1000,), 7.0, device="cuda")
        side.synchronize()
        self.assertEqual(y.sum().item(), 1000)

    def test_host_reads_wait_for_pending_copies(self):
        sizes, pinned = torch.tensor([1, 3], device="cuda"), torch.zeros(2, dtype=torch.int64).pin_memory()
        torch.cuda._sleep(30_000_000)
        pinned.copy_(sizes, non_blocking=True)
        split = lambda: [t.numel() for t in torch.tensor_split(torch.arange(5), pinned)]
        if os.environ.get("PHLOX_SANITIZE"):  # the program has not ordered the two
            with self.assertRaisesRegex(RuntimeError, "read reads it on the host at .*test_memory.py"):
                split()
            torch.cuda.synchronize()
        self.assertEqual(split(), [1, 2, 2])


if __name__ == "__main__":
    unittest.main()
