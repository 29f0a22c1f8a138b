# SPDX-License-Identifier: Apache-2.0
"""Worker processes of DataLoader: a worker's main, and the pass that hands out indices and puts
batches back in order. Processes, queues and pickling are Python's own."""
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
from .dataloader import _BaseDataLoaderIter, fetch, take


class WorkerInfo:
    """What get_worker_info() gives in a worker."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


# ---- in a worker

def _seed(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def _caught():
    kind, _, _ = sys.exc_info()
    return kind, traceback.format_exc()


def _begin(dataset, number, count, seed, init):
    """Makes a process worker `number` of `count`; what went wrong, or None."""
    try:
        torch.set_num_threads(1)  # the workers themselves keep the processor busy
        _seed(seed + number)
        dataloader.worker_info = WorkerInfo(id=number, num_workers=count, seed=seed + number,
                                            dataset=dataset)
        if init is not None:
            init(number)
    except Exception:
        return _caught()
    return None


def _main(how, tasks, results, number, count, seed, init):
    """Answers each (turn, position, index) of `tasks` with (turn, position, worker, sort, batch or
    error); None ends it. how: dataset, collate function, whether indices are batched, whether the
    dataset is iterable, batch size, drop_last."""
    dataset, collate, batched, iterable, size, drop_last = how

    # A batch is pickled by the queue's thread. What it cannot pickle is answered too, or the loader
    # would wait for ever.
    def unsendable(error, answer):
        results.put((*answer[:3], "error", _caught()))

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program gets it too, and ends its workers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    results._on_queue_feeder_error = unsendable
    copy_tensors()
    failed = _begin(dataset, number, count, seed, init)
    turn = None
    while (task := tasks.recv()) is not None:
        now, position, index = task
        try:
            if failed:
                sort, answer = "error", failed
            else:
                if iterable and now != turn:
                    turn, items = now, iter(dataset)
                sort, answer = "batch", (take(items, size, drop_last, collate) if iterable else
                                         fetch(dataset, collate, batched, index))
        except StopIteration if iterable else ():
            sort, answer = "end", None
        except Exception:
            sort, answer = "error", _caught()
        results.put((now, position, number, sort, answer))
    results.cancel_join_thread()  # what was not taken yet is wanted by nobody


# ---- in the program

@contextlib.contextmanager
def _undisturbed():
    """Signals whose handlers may raise anywhere wait meanwhile."""
    handled = {i for i in signal.valid_signals() if callable(signal.getsignal(i))}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(workers, pipes, results, patience):
    """Ends the workers, and empties the lists of them and of their pipes."""
    # All is let go while signals wait: an interrupt in a finalizer is lost, and with it what that was
    # to close.
    for _, tasks in pipes:
        os.set_blocking(tasks.fileno(), False)  # it may not read, or have half a task
        with contextlib.suppress(OSError):
            tasks.send(None)
    results.cancel_join_thread()
    until = time.monotonic() + patience
    while pipes:
        worker = workers[0]
        started = worker.pid is not None
        if started:
            wait([worker.sentinel], max(until - time.monotonic(), 0))
        with _undisturbed():  # as in _receive
            if started:
                if worker.is_alive():
                    worker.kill()
                worker.join()
            for end in pipes[0]:
                end.close()
            del worker, workers[0], pipes[0]
    with _undisturbed():
        for end in results._reader, results._writer:
            end.close()


def _abandon(owner, *what):
    """Ends the workers of a pass that is gone. Nobody wants what they still make, and a program that
    was interrupted wants to go on. Workers of a later pass inherit this call: it is not theirs."""
    if owner == os.getpid():
        with _undisturbed():
            _end(*what, patience=0.1)


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """One pass over a loader with workers; several, one after another, if they persist."""

    def __init__(self, loader, seed):
        count, context = loader.num_workers, loader.multiprocessing_context or multiprocessing
        self.loader, self.wanted, self.turn = loader, 0, 0
        how = (loader.dataset, loader._collate, loader.batch_sampler is not None, loader._iterable,
               loader.batch_size, loader.drop_last)
        with _undisturbed():  # lest a pipe or a process be half made
            self.results = context.Queue()
            # Pipes, not queues: an interrupt could leave the lock of a queue taken for ever.
            self.tasks = [context.Pipe(duplex=False) for _ in range(count)]
            self.workers = [
                context.Process(target=_main, daemon=True,
                                args=(how, tasks, self.results, i, count, seed,
                                      loader.worker_init_fn))
                for i, (tasks, _) in enumerate(self.tasks)]
            try:
                for worker in self.workers:
                    worker.start()
            except BaseException:
                self.close(patience=0)
                raise
            # Not __del__: the collector may have closed the pipes of a pass before it.
            weakref.finalize(self, _abandon, os.getpid(), self.workers, self.tasks, self.results)
        self.start(seed)

    def start(self, seed):
        """Begins a pass."""
        loader = self.loader
        self.order = iter(lambda: None, 0) if loader._iterable else iter(loader._indices)
        self.turn += 1  # answers to an earlier pass that was left early are dropped
        self.sent = self.wanted = 0
        self.ready, self.ended = {}, set()
        for _ in range(loader.prefetch_factor * len(self.workers)):
            self._send()
        return self

    def _send(self):
        """Gives the next index to the worker whose turn it is."""
        live = [i for i in range(len(self.workers)) if i not in self.ended]
        if not live:
            return
        worker = live[self.sent % len(live)]
        try:
            index = next(self.order)
        except StopIteration:
            return
        try:
            self.tasks[worker][1].send((self.turn, self.sent, index))
        except BaseException:  # an interrupt, too: the task may be half sent
            self.close(patience=0)
            raise
        self.sent += 1

    def __iter__(self):
        return self

    def __len__(self):
        return len(self.loader)

    def __next__(self):
        while True:
            if self.wanted == self.sent:
                if not self.loader.persistent_workers:
                    self.close()
                raise StopIteration
            try:
                while self.wanted not in self.ready:
                    self._receive()
            except BaseException:  # an interrupt, too: an answer may be half read
                self.close(patience=0)
                raise
            worker, sort, value = self.ready.pop(self.wanted)
            self.wanted += 1
            if sort == "end":
                self.ended.add(worker)
                continue
            self._send()
            if sort == "error":
                raise_caught(*value, f"in DataLoader worker process {worker}")
            pins = self.loader.pin_memory and torch.cuda.is_available()
            return pin_memory(value) if pins else value

    def _receive(self):
        """Waits for an answer to this pass, and looks after the workers meanwhile."""
        waited, limit = 0, self.loader.timeout
        while True:
            step = min(limit - waited, 1) if limit > 0 else 1
            try:
                turn, position, worker, sort, value = self.results.get(timeout=step)
                if turn != self.turn:
                    continue
                self.ready[position] = worker, sort, value
                return
            except queue.Empty:
                waited += step
            with _undisturbed():  # lest it be known that one ended, and not noted
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

    def close(self, patience=5):
        """Ends the workers; harmless when they have ended."""
        _end(self.workers, self.tasks, self.results, patience)
        self.sent = self.wanted  # the pass is over
