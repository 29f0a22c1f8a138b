# SPDX-License-Identifier: Apache-2.0
"""torch.multiprocessing: tensors sent through queues, pipes, pools and arguments in shared memory; spawn()."""
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from multiprocessing.reduction import ForkingPickler

import phlox as torch
import phlox.multiprocessing as mp
from phlox import nn


def answer(tensor, queue, received):
    tensor.add_(1)
    queue.put(tensor * 0 + 5)
    received.wait(60)


def step(number, weight, rounds):
    for _ in range(rounds):
        loss = ((weight - 3) ** 2).sum()
        weight.grad = None
        loss.backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad


def fill(number, tensor, offset=0):
    tensor[number] = number + 1 + offset


def fail(number, path):
    if number == 1:
        raise ValueError("the second one")
    while True:
        signal.pause()


def double(connection):
    whole, part = connection.recv()
    connection.recv()
    part *= 2
    connection.send(part)
    connection.close()


def total(tensor):
    return tensor.sum()


def leave(number):
    sys.exit(3)


def be_killed(number):
    os.kill(os.getpid(), signal.SIGKILL)


def write_through(connection):
    held = connection.recv()
    for tensor in held["tensors"]:
        tensor.detach().fill_(7)
    held["storage"][0] = 9
    connection.send([type(t).__name__ for t in held["tensors"]] + [t.requires_grad for t in held["tensors"]] + [held["tensors"][0].note])
    connection.recv()


class Sharing(unittest.TestCase):
    def test_child_writes_and_returned_tensors(self):
        for method in ("fork", "spawn", "forkserver"):
            context = mp.get_context(method)
            tensor, queue, received = torch.zeros(3), context.Queue(), context.Event()
            self.assertIs(tensor.share_memory_(), tensor)
            process = context.Process(target=answer, args=(tensor, queue, received))
            process.start()
            result = queue.get(timeout=60)
            received.set()
            process.join()
            self.assertEqual((tensor.tolist(), result.tolist(), result.is_shared(), process.exitcode), ([1, 1, 1], [5, 5, 5], True, 0))

    def test_sending_moves_storage_to_shared_memory(self):
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=write_through, args=(theirs,))
        process.start()
        plain, matrix = torch.zeros(4), torch.zeros(2, 3).t()
        plain.note = "kept"
        parameter, storage = nn.Parameter(torch.zeros(2)), torch.zeros(2, dtype=torch.uint8).untyped_storage()
        ours.send({"tensors": [plain, plain[1:], matrix, parameter.data, parameter.detach(), parameter], "storage": storage})
        self.assertTrue(ours.poll(60))
        names = ours.recv()
        ours.send(None)
        process.join()
        self.assertEqual(names, ["Tensor"] * 5 + ["Parameter"] + [False] * 5 + [True, "kept"])
        for tensor in (plain, matrix, parameter):
            self.assertTrue(tensor.is_shared() and bool((tensor == 7).all()))
        self.assertEqual(storage[0], 9)

    def test_hogwild(self):
        weight = torch.zeros(4, requires_grad=True)
        weight.share_memory_()
        mp.spawn(step, (weight, 40), 2)
        self.assertTrue(torch.allclose(weight, torch.full((4,), 3.0), atol=0.05), weight)

    def test_views_follow_moved_storage(self):
        base = torch.arange(6.0)
        view, array_before = base[2:], base.data_ptr()
        self.assertFalse(base.is_shared())
        view.share_memory_()
        self.assertTrue(base.is_shared() and base.untyped_storage().is_shared() and base.storage().is_shared())
        base[3] = 9
        self.assertEqual((view[1].item(), base.tolist()), (9, [0, 1, 2, 9, 4, 5]))
        self.assertNotEqual(base.data_ptr(), array_before)
        with self.assertRaisesRegex(RuntimeError, "storage that is not resizable"):
            base.resize_(100)

    def test_pool(self):
        with mp.get_context("fork").Pool(2) as pool:
            self.assertEqual([t.item() for t in pool.map(total, [torch.ones(3), torch.ones(4)])], [3, 4])

    def test_non_leaf_raises(self):
        queue = multiprocessing.SimpleQueue()
        with self.assertRaisesRegex(RuntimeError, "Cowardly refusing to serialize non-leaf tensor"):
            queue.put(torch.ones(2, requires_grad=True) * 2)

    def test_meta_tensor(self):
        queue = multiprocessing.SimpleQueue()
        queue.put(torch.zeros(2, 3, device="meta"))
        got = queue.get()
        self.assertEqual((got.shape, str(got.device)), ((2, 3), "meta"))

    def test_no_descriptor_leaks(self):
        queue = multiprocessing.SimpleQueue()
        before = len(os.listdir("/proc/self/fd"))
        for i in range(20):
            queue.put(torch.full((10,), float(i)))
            self.assertEqual(queue.get()[3].item(), i)
        end = time.monotonic() + 10  # the resource sharer's thread holds some, and closes others late
        while len(os.listdir("/proc/self/fd")) > before + 3 and time.monotonic() < end: time.sleep(0.01)
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before + 3)

    def test_invalid_descriptors(self):
        with tempfile.TemporaryFile() as file:
            with self.assertRaisesRegex(ValueError, "a shared memory file of at least 8 bytes"):
                torch._C._storage_of_fd(file.fileno(), 8)
        with self.assertRaisesRegex(ValueError, "bytes must not be negative"):
            torch._C._storage_of_fd(0, -1)

    def test_sharing_strategies(self):
        self.assertEqual(mp.get_sharing_strategy(), "file_descriptor")
        self.assertEqual(mp.get_all_sharing_strategies(), {"file_descriptor", "file_system"})
        with self.assertRaisesRegex(AssertionError, "invalid sharing strategy 'carrier pigeon', expected one of"):
            mp.set_sharing_strategy("carrier pigeon")


class FileSystemStrategy(unittest.TestCase):
    """The file_system sharing strategy."""
    def setUp(self):
        mp.set_sharing_strategy("file_system")
        self.addCleanup(mp.set_sharing_strategy, "file_descriptor")
        self.files = self.shared()

    def shared(self):
        return {name for name in os.listdir("/dev/shm") if name.startswith("phlox_")}  # other programs use the directory too

    def made(self):
        return self.shared() - self.files

    def test_no_open_files_or_names_remain(self):
        open_files = len(os.listdir("/proc/self/fd"))
        many = [torch.full((3,), float(i)).share_memory_() for i in range(50)]
        self.assertEqual((mp.get_sharing_strategy(), len(os.listdir("/proc/self/fd"))), ("file_system", open_files))
        self.assertEqual(len(self.made()), 50)
        self.assertEqual(sum(t.sum().item() for t in many), 3 * sum(range(50)))
        del many
        self.assertEqual(self.made(), set())

    def test_processes_share_memory(self):
        here, there = mp.get_context("spawn").Pipe()
        weight = torch.zeros(4)
        child = mp.get_context("spawn").Process(target=double, args=(there,))
        child.start()
        here.send((weight, weight[1:]))
        weight += 3
        here.send("written")
        self.assertEqual(here.recv().tolist(), [6.0, 6, 6])
        child.join()
        self.assertEqual((child.exitcode, weight.tolist()), (0, [3.0, 6, 6, 6]))
        del weight
        self.assertEqual(self.made(), set())

    def test_message_keeps_memory_alive(self):
        sent = ForkingPickler.dumps(torch.arange(5))
        back = pickle.loads(sent)
        self.assertEqual((back.tolist(), len(self.made())), ([0, 1, 2, 3, 4], 1))
        del back
        with self.assertRaisesRegex(RuntimeError, "unable to open shared memory: No such file"):
            pickle.loads(sent)

    def test_names_of_killed_processes_are_removed(self):
        program = ("import phlox.multiprocessing as mp, phlox, os, signal; mp.set_sharing_strategy('file_system'); "
                   "x = [phlox.ones(9).share_memory_() for i in range(3)]; os.kill(os.getpid(), signal.SIGKILL)")
        subprocess.run([sys.executable, "-c", program], check=False)
        self.assertEqual(len(self.made()), 3)
        program = program.replace("os.kill(", "print(").replace("SIGKILL", "SIGTERM")
        subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(self.made(), set())

    def test_invalid_names(self):
        for name in ("", "/phlox", "/phlox_1_2_3", "/phlox_1_2_3@0", "/phlox_../x@5", "/phlox_1_2_3@5 ", "/other_1_2_3@5", "/phlox_" + "1" * 99 + "@5"):
            with self.assertRaisesRegex(ValueError, "is not a shared memory name", msg=name):
                torch._C._storage_of_name(name, 4)
        with self.assertRaisesRegex(RuntimeError, "unable to open shared memory"):
            torch._C._storage_of_name("/phlox_1_2_3@5", 4)
        storage = torch.ones(2).share_memory_().untyped_storage()
        name = torch._C._storage_name(storage)
        with self.assertRaisesRegex(ValueError, "a shared memory file of at least 9999 bytes"):
            torch._C._storage_of_name(name, 9999)
        self.assertEqual(torch._C._storage_of_name(name, 8).data_ptr(), storage.data_ptr())
        with self.assertRaisesRegex(RuntimeError, "is not in a named file"):
            torch._C._storage_name(torch.ones(2).untyped_storage())


def check_device_tensors(connection):
    """Writes to the received tensors, and replies with their earlier contents."""
    held = connection.recv()
    whole, part, parameter = held["whole"], held["part"], held["parameter"]
    seen = [whole.tolist(), part.tolist(), str(whole.device), whole.note, type(parameter).__name__, parameter.requires_grad]
    seen.append(whole.untyped_storage() == part.untyped_storage() and whole.is_shared())
    part.fill_(7)
    parameter.data.mul_(3)
    torch.cuda.synchronize()
    refused = []
    for call in (lambda: connection.send(whole), lambda: whole.resize_(1000)):
        try:
            call()
        except RuntimeError as error:
            refused.append(str(error))
    connection.send((seen, refused))
    connection.recv()


def hold(connection):
    tensor = connection.recv()
    connection.send(tensor.tolist())
    connection.recv()
    del tensor
    connection.send(torch.cuda.ipc_collect())
    connection.recv()


def wait_and_record(connection):
    theirs, ours = connection.recv()
    connection.send((theirs.query(), ours.query()))
    theirs.synchronize()
    tensor = torch.zeros(1000, device="cuda")
    for _ in range(200):
        tensor.add_(1)
    ours.record()
    connection.send(theirs.query())
    connection.recv()


def leave_a_tensor(path):
    warnings.simplefilter("ignore")  # the expected warning at exit
    with open(path, "wb") as file:
        ForkingPickler(file).dump(torch.ones(3, device="cuda"))


def twice(tensor):
    return tensor * 2


@unittest.skipUnless(torch.cuda.is_available(), "requires a device")
class Devices(unittest.TestCase):
    def start(self, function):
        ours, theirs = mp.get_context("spawn").Pipe()
        process = mp.get_context("spawn").Process(target=function, args=(theirs,))
        process.start()
        theirs.close()
        self.addCleanup(process.join)
        self.addCleanup(ours.close)
        return ours, process

    def receive(self, connection):
        self.assertTrue(connection.poll(60))
        return connection.recv()

    def tearDown(self):
        self.assertEqual(torch._C._ipc_collect(), 0)

    def test_child_writes_and_views(self):
        connection, process = self.start(check_device_tensors)
        whole = torch.arange(6.0, device="cuda")
        whole.note = "kept"
        parameter = nn.Parameter(torch.ones(2, device="cuda"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            connection.send({"whole": whole, "part": whole[2:4], "parameter": parameter})
        seen, refused = self.receive(connection)
        self.assertEqual(seen, [[0, 1, 2, 3, 4, 5], [2, 3], "cuda:0", "kept", "Parameter", True, True])
        self.assertRegex(refused[0], "Attempted to send CUDA tensor received from another process")
        self.assertRegex(refused[1], "storage that is not resizable")
        self.assertEqual((whole.tolist(), parameter.tolist()), ([0, 1, 7, 7, 4, 5], [3, 3]))
        self.assertEqual(torch._C._ipc_collect(), 2)
        connection.send(None)
        process.join()
        self.assertEqual(torch._C._ipc_collect(), 0)

    def test_received_tensor_is_ordered_after_work(self):
        side = torch.cuda.Stream()
        context = mp.get_context("spawn")
        with context.Pool(1) as pool, torch.cuda.stream(side):
            for turn in range(20):  # results arrive on a thread with a different current stream
                tensor = torch.full((100000,), float(turn), device="cuda")
                for _ in range(100):
                    tensor.add_(1)
                result = pool.apply(twice, (tensor,))
                self.assertEqual((result[-1].item(), result.is_cuda), (2 * turn + 200, True))
                del result

    def test_memory_lives_until_child_releases_it(self):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        connection, process = self.start(hold)
        connection.send(torch.full((1000,), 4.0, device="cuda"))
        self.assertEqual(self.receive(connection)[-1], 4)
        torch.cuda.ipc_collect()
        self.assertGreater(torch.cuda.memory_allocated(), before)
        connection.send(None)
        self.assertIsNone(self.receive(connection))
        torch.cuda.ipc_collect()
        self.assertEqual(torch.cuda.memory_allocated(), before)
        connection.send(None)

    def test_killed_child_releases_memory(self):
        before = torch.cuda.memory_allocated()
        connection, process = self.start(hold)
        connection.send(torch.full((1000,), 4.0, device="cuda"))
        self.receive(connection)
        self.assertEqual(torch._C._ipc_collect(), 1)
        process.kill()
        process.join()
        torch.cuda.ipc_collect()
        self.assertEqual(torch.cuda.memory_allocated(), before)

    def test_events_in_both_directions(self):
        connection, process = self.start(wait_and_record)
        ours, theirs = (torch.cuda.Event(interprocess=True) for _ in range(2))
        tensor = torch.zeros(1000, device="cuda")
        for _ in range(200):
            tensor.add_(1)
        ours.record()
        self.assertEqual(len(ours.ipc_handle()), 64)
        connection.send((ours, theirs))
        self.assertTrue(self.receive(connection)[1])
        self.assertTrue(self.receive(connection))
        self.assertTrue(ours.query())
        theirs.synchronize()
        self.assertTrue(theirs.query())
        connection.send(None)
        process.join()

    def test_invalid_event_handles(self):
        with self.assertRaisesRegex(RuntimeError, "invalid resource handle"):
            torch.cuda.Event().ipc_handle()
        with self.assertRaisesRegex(RuntimeError, "byte-like object of size 64, but got 3"):
            torch.cuda.Event.from_ipc_handle(0, b"abc")
        with self.assertRaisesRegex(TypeError, "handle to be bytes, not str"):
            torch.cuda.Event.from_ipc_handle(0, "abc")
        with self.assertRaises((ValueError, RuntimeError)):
            torch.cuda.Event.from_ipc_handle(0, bytes(64))

    def test_same_process_receives_same_memory(self):
        queue, sent = multiprocessing.SimpleQueue(), torch.arange(4, device="cuda")
        queue.put((sent, sent[1:]))
        got, part = queue.get()
        self.assertEqual((got.data_ptr(), part.tolist()), (sent.data_ptr(), [1, 2, 3]))
        queue.put(torch.zeros(0, 3, device="cuda"))
        self.assertEqual(queue.get().shape, (0, 3))
        queue.put(torch.ones(3, device="cuda"))  # freed before it is received
        self.assertEqual(queue.get().tolist(), [1, 1, 1])

    def test_reduce_tensor_arguments(self):
        sent = torch.arange(4.0, device="cuda")
        rebuild, args = mp.reductions.reduce_tensor(sent)
        args = list(args)
        args[6] = torch.cuda.current_device()
        self.assertEqual(rebuild(*args).data_ptr(), sent.data_ptr())
        storage = torch.UntypedStorage._new_shared_cuda(*sent.untyped_storage()._share_cuda_())
        self.assertEqual(storage, sent.untyped_storage())
        with self.assertRaisesRegex(ValueError, "handle must be 80 bytes"):
            torch.UntypedStorage._new_shared_cuda(0, b"", 4, 0, b"", 0, b"", True)
        with self.assertRaisesRegex(RuntimeError, "expected a device storage, got a CPU storage"):
            torch.ones(1).untyped_storage()._share_cuda_()
        with self.assertRaisesRegex(RuntimeError, "Cannot pickle CUDA storage"):
            multiprocessing.SimpleQueue().put(sent.untyped_storage())

    def test_terminated_producer_raises(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "message")
            process = mp.get_context("spawn").Process(target=leave_a_tensor, args=(path,))
            process.start()
            process.join()
            self.assertEqual(process.exitcode, 0)
            with open(path, "rb") as file, self.assertRaisesRegex(RuntimeError, "has ended or is inaccessible"):
                pickle.load(file)

    def test_exit_with_shared_tensors_warns(self):
        code = ("import phlox as torch; from multiprocessing.reduction import ForkingPickler; "
                "kept = ForkingPickler.dumps(torch.ones(2, device='cuda'))")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertIn("Producer process has been terminated before all shared CUDA tensors released", done.stderr)
        done = subprocess.run([sys.executable, "-c", code + "; import pickle; pickle.loads(kept)"], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")


class Spawn(unittest.TestCase):
    def test_spawn_passes_process_index(self):
        tensor = torch.zeros(3).share_memory_()
        self.assertIsNone(mp.spawn(fill, (tensor,), 3))
        self.assertEqual(tensor.tolist(), [1, 2, 3])
        context = mp.start_processes(fill, (tensor, 10), 3, join=False, start_method="fork")
        self.assertEqual(len(context.pids()), 3)
        while not context.join():
            pass
        self.assertTrue(context.join())
        self.assertEqual(tensor.tolist(), [11, 12, 13])

    def test_failure_ends_all_with_traceback(self):
        with tempfile.TemporaryDirectory() as folder:
            context = mp.start_processes(fail, (folder,), 3, join=False, start_method="fork")
            with self.assertRaisesRegex(mp.ProcessRaisedException, "-- Process 1 terminated with the following error:\n(.|\n)*ValueError: the second one") as caught:
                while not context.join():
                    pass
            self.assertEqual((caught.exception.error_index, caught.exception.pid), (1, context.pids()[1]))
            self.assertFalse(any(process.is_alive() for process in context.processes))

    def test_exit_codes_and_signals(self):
        with self.assertRaisesRegex(mp.ProcessExitedException, "process 0 terminated with exit code 3") as caught:
            mp.start_processes(leave, (), 1, start_method="fork")
        self.assertEqual((caught.exception.exit_code, caught.exception.signal_name), (3, None))
        with self.assertRaisesRegex(mp.ProcessExitedException, "process 0 terminated with signal SIGKILL") as caught:
            mp.start_processes(be_killed, (), 1, start_method="fork")
        self.assertEqual(caught.exception.signal_name, "SIGKILL")

    def test_unpicklable_function_leaves_no_process(self):
        with self.assertRaises(Exception):
            mp.spawn(lambda number: None, (), 2)
        self.assertFalse(any(process.name.startswith("SpawnProcess") for process in multiprocessing.active_children()))

    def test_parents_end_kills_children(self):
        program = ("import os, sys, time\nimport phlox.multiprocessing as mp\ndef work(n):\n    sys.stdout.write(f'{os.getpid()}\\n')\n"
                   "    sys.stdout.flush()\n    while True: time.sleep(0.05)\nif __name__ == '__main__': mp.spawn(work, nprocs=2)")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w") as file:
                file.write(program)
            # To the process group, as Ctrl-C does; to the parent only; and SIGKILL to the parent.
            for number, everybody in ((signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGKILL, False)):
                parent = subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                          env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(torch.__file__))})
                pids = [int(parent.stdout.readline()) for _ in range(2)]
                self.assertEqual(len(set(pids)), 2)
                (os.killpg if everybody else os.kill)(parent.pid, number)
                # The pipes reach end of file once all their writers have exited.
                parent.communicate(timeout=300)
                self.assertEqual(parent.returncode, -number)

    def test_start_method_warns(self):
        tensor = torch.zeros(1).share_memory_()
        with self.assertWarnsRegex(FutureWarning, "only supports start_method=spawn"):
            mp.spawn(fill, (tensor,), 1, start_method="fork")
        self.assertEqual(tensor.tolist(), [1])


if __name__ == "__main__":
    unittest.main()
