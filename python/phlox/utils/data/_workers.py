# SPDX-License-Identifier: Apache-2.0
"""Worker processes of DataLoader: the worker's main function, and the iterator that distributes
indices and reorders batches. Processes, queues and pickling are Python's multiprocessing."""
import contextlib
import multiprocessing
import os
import queue
import random
import signal
import sys
import time
import traceback
import weakref
from multiprocessing.connection import wait

import phlox as torch
from phlox._errors import raise_caught
from phlox._reductions import copy_tensors

from . import dataloader
from ._collate import pin_memory
from .dataloader import _BaseDataLoaderIter, fetch, next_batch


class WorkerInfo:
    """The result of get_worker_info() in a worker."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


# ---- in a worker

def _seed(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def _caught():
    cls, _, _ = sys.exc_info()
    return cls, traceback.format_exc()


def _begin(dataset, number, count, seed, init):
    """Initializes worker `number` of `count`. Returns the exception and traceback on failure, else
    None."""
    try:
        torch.set_num_threads(1)  # parallelism comes from the workers
        _seed(seed + number)
        dataloader.worker_info = WorkerInfo(id=number, num_workers=count, seed=seed + number,
                                            dataset=dataset)
        if init is not None:
            init(number)
    except Exception:
        return _caught()
    return None


def _main(config, tasks, results, number, count, seed, init):
    """The main function of a worker. Answers each task (epoch, position, index) with (epoch,
    position, worker, kind, batch or error); the task None ends it. config: dataset, collate function,
    whether indices are batched, whether the dataset is iterable, batch size, drop_last."""
    dataset, collate, batched, iterable, size, drop_last = config

    # The queue's feeder thread pickles batches. Pickling errors must be answered, too: otherwise the
    # loader blocks forever.
    def on_pickling_error(error, answer):
        results.put((*answer[:3], "error", _caught()))

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it, too, and ends its workers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    results._on_queue_feeder_error = on_pickling_error
    copy_tensors()
    failed = _begin(dataset, number, count, seed, init)
    epoch = None
    while (task := tasks.recv()) is not None:
        now, position, index = task
        try:
            if failed:
                kind, answer = "error", failed
            else:
                if iterable and now != epoch:
                    epoch, items = now, iter(dataset)
                kind, answer = "batch", (next_batch(items, size, drop_last, collate) if iterable else
                                         fetch(dataset, collate, batched, index))
        except StopIteration if iterable else ():
            kind, answer = "end", None
        except Exception:
            kind, answer = "error", _caught()
        results.put((now, position, number, kind, answer))
    results.cancel_join_thread()  # discards unread results


# ---- in the program

@contextlib.contextmanager
def _signals_blocked():
    """A context manager that blocks signals with Python handlers, which may raise at any point."""
    handled = {i for i in signal.valid_signals() if callable(signal.getsignal(i))}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _shut_down(workers, pipes, results, grace):
    """Ends the workers, and empties the lists of workers and pipes."""
    # Resources are released with signals blocked: an exception from a handler in a finalizer is
    # ignored, and its resource would leak.
    for _, tasks in pipes:
        os.set_blocking(tasks.fileno(), False)  # the pipe may be full, or hold half a task
        with contextlib.suppress(OSError):
            tasks.send(None)
    results.cancel_join_thread()
    until = time.monotonic() + grace
    while pipes:
        worker = workers[0]
        started = worker.pid is not None
        if started:
            wait([worker.sentinel], max(until - time.monotonic(), 0))
        with _signals_blocked():  # see _receive
            if started:
                if worker.is_alive():
                    worker.kill()
                worker.join()
            for end in pipes[0]:
                end.close()
            del worker, workers[0], pipes[0]
    with _signals_blocked():
        for end in results._reader, results._writer:
            end.close()


def _finalize(owner, *what):
    """The finalizer of an iterator: ends its workers quickly, since their results are discarded.
    Worker processes of a later iterator inherit the finalizer, and must not run it."""
    if owner == os.getpid():
        with _signals_blocked():
            _shut_down(*what, grace=0.1)


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """An iterator over a loader with workers. Persistent workers serve several passes in turn."""

    def __init__(self, loader, seed):
        count, context = loader.num_workers, loader.multiprocessing_context or multiprocessing
        self.loader, self.next_position, self.epoch = loader, 0, 0
        config = (loader.dataset, loader._collate, loader.batch_sampler is not None, loader._iterable,
                  loader.batch_size, loader.drop_last)
        with _signals_blocked():  # pipes and processes must not be left half constructed
            self.results = context.Queue()
            # Pipes instead of queues: an interrupt could leave a queue's lock held forever.
            self.tasks = [context.Pipe(duplex=False) for _ in range(count)]
            self.workers = [
                context.Process(target=_main, daemon=True,
                                args=(config, tasks, self.results, i, count, seed,
                                      loader.worker_init_fn))
                for i, (tasks, _) in enumerate(self.tasks)]
            try:
                for worker in self.workers:
                    worker.start()
            except BaseException:
                self.close(grace=0)
                raise
            # A finalizer instead of __del__: the garbage collector may have cleared the pipes before
            # it.
            weakref.finalize(self, _finalize, os.getpid(), self.workers, self.tasks, self.results)
        self.start(seed)

    def start(self, seed):
        """Starts a pass."""
        loader = self.loader
        self.order = iter(lambda: None, 0) if loader._iterable else iter(loader._indices)
        self.epoch += 1  # answers to an earlier, unfinished pass are dropped
        self.sent = self.next_position = 0
        self.ready, self.ended = {}, set()
        for _ in range(loader.prefetch_factor * len(self.workers)):
            self._send()
        return self

    def _send(self):
        """Sends the next index to the next worker, round robin."""
        live = [i for i in range(len(self.workers)) if i not in self.ended]
        if not live:
            return
        worker = live[self.sent % len(live)]
        try:
            index = next(self.order)
        except StopIteration:
            return
        try:
            self.tasks[worker][1].send((self.epoch, self.sent, index))
        except BaseException:  # also an interrupt: the task may be partially sent
            self.close(grace=0)
            raise
        self.sent += 1

    def __iter__(self):
        return self

    def __len__(self):
        return len(self.loader)

    def __next__(self):
        while True:
            if self.next_position == self.sent:
                if not self.loader.persistent_workers:
                    self.close()
                raise StopIteration
            try:
                while self.next_position not in self.ready:
                    self._receive()
            except BaseException:  # also an interrupt: an answer may be partially read
                self.close(grace=0)
                raise
            worker, kind, value = self.ready.pop(self.next_position)
            self.next_position += 1
            if kind == "end":
                self.ended.add(worker)
                continue
            self._send()
            if kind == "error":
                raise_caught(*value, f"in DataLoader worker process {worker}")
            pins = self.loader.pin_memory and torch.cuda.is_available()
            return pin_memory(value) if pins else value

    def _receive(self):
        """Blocks until an answer to this pass arrives. Checks once a second that the workers are
        alive."""
        waited, limit = 0, self.loader.timeout
        while True:
            step = min(limit - waited, 1) if limit > 0 else 1
            try:
                epoch, position, worker, kind, value = self.results.get(timeout=step)
                if epoch != self.epoch:
                    continue
                self.ready[position] = worker, kind, value
                return
            except queue.Empty:
                waited += step
            # is_alive() must not be interrupted between reaping a process and recording its exit.
            with _signals_blocked():
                dead = [worker for worker in self.workers if not worker.is_alive()]
            if dead:
                self._report(dead)
            if limit > 0 and waited >= limit:
                raise RuntimeError(f"DataLoader timed out after {limit} seconds")

    def _report(self, dead):
        first, pids = dead[0], ", ".join(str(worker.pid) for worker in dead)
        how = (f"killed by signal: {-first.exitcode}" if first.exitcode < 0 else
               f"exited unexpectedly with exit code {first.exitcode}")
        cause = RuntimeError(f"DataLoader worker (pid {first.pid}) {how}. Details are lost due to "
                             "multiprocessing. Rerunning with num_workers=0 may give better error "
                             "trace.")
        raise RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly") from cause

    def close(self, grace=5):
        """Ends the workers. Idempotent."""
        _shut_down(self.workers, self.tasks, self.results, grace)
        self.sent = self.next_position  # the pass is over
