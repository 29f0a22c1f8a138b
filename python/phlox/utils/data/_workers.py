# SPDX-License-Identifier: Apache-2.0
"""Worker processes of DataLoader: a worker's main, and the pass that hands out indices and puts batches back in order.

Processes and their queues are Python's own, and a worker runs the user's Python: this is why it is not in C."""
import multiprocessing, os, queue, random, sys, traceback
import phlox as torch
from phlox._errors import raise_caught

from . import dataloader
from ._collate import pin_memory
from .dataloader import fetch, take


class WorkerInfo:
    def __init__(self, **fields): self.__dict__.update(fields)


def _seed(seed, number):
    torch.manual_seed(seed + number)
    random.seed(seed + number)
    if "numpy" in sys.modules: sys.modules["numpy"].random.seed((seed + number) % 2**32)


def _main(dataset, collate, batched, iterable, batch_size, drop_last, tasks, results, number, count, seed, init):
    """Answers each (turn, position, index) of `tasks` with (turn, position, worker, batch or error); None ends."""
    # A batch is pickled by the queue's thread: what it cannot pickle is answered too, or the loader would wait for ever.
    results._on_queue_feeder_error = lambda error, answer: results.put((*answer[:3], "error", _caught()))
    turn, failed = None, None
    try:
        _seed(seed, number)
        dataloader.worker_info = WorkerInfo(id=number, num_workers=count, seed=seed + number, dataset=dataset)
        if init is not None: init(number)
    except Exception:
        failed = _caught()
    while True:
        task = tasks.get()
        if task is None:
            results.cancel_join_thread()  # what was not taken yet is wanted by nobody
            break
        now, position, index = task
        if failed: results.put((now, position, number, "error", failed)); continue
        try:
            if iterable and now != turn: turn, items = now, iter(dataset)
            batch = take(items, batch_size, drop_last, collate) if iterable else fetch(dataset, collate, batched, index)
            results.put((now, position, number, "batch", batch))
        except StopIteration if iterable else ():
            results.put((now, position, number, "end", None))
        except Exception:
            results.put((now, position, number, "error", _caught()))


def _caught():
    kind, _, _ = sys.exc_info()
    return kind, traceback.format_exc()


class Pass:
    """One pass over a loader with workers (several, one after another, if they persist)."""

    def __init__(self, loader, seed):
        self.loader, count, self.owner, self.wanted = loader, loader.num_workers, os.getpid(), 0
        context = loader.multiprocessing_context
        context = multiprocessing.get_context(context) if context is None or isinstance(context, str) else context
        self.results = context.Queue()
        self.tasks = [context.SimpleQueue() for _ in range(count)]
        batched = loader.batch_sampler is not None
        self.workers = [context.Process(target=_main, daemon=True, args=(loader.dataset, loader._collate, batched, loader._iterable, loader.batch_size,
                        loader.drop_last, tasks, self.results, i, count, seed, loader.worker_init_fn)) for i, tasks in enumerate(self.tasks)]
        self.turn = 0
        for worker in self.workers: worker.start()
        self.start(seed)

    def start(self, seed):
        loader = self.loader
        self.order = iter(lambda: None, 0) if loader._iterable else iter(loader._indices)
        self.turn += 1  # answers to an earlier pass that was left early are dropped
        self.sent = self.wanted = 0
        self.ready, self.ended = {}, set()
        for _ in range(loader.prefetch_factor * len(self.workers)): self._send()
        return self

    def _send(self):
        live = [i for i in range(len(self.workers)) if i not in self.ended]
        if not live: return
        worker = live[self.sent % len(live)]
        try: index = next(self.order)
        except StopIteration: return
        self.tasks[worker].put((self.turn, self.sent, index))
        self.sent += 1

    def __iter__(self): return self
    def __len__(self): return len(self.loader)

    def __next__(self):
        while True:
            if self.wanted == self.sent:
                if not self.loader.persistent_workers: self.close()
                raise StopIteration
            while self.wanted not in self.ready: self._receive()
            worker, sort, value = self.ready.pop(self.wanted)
            self.wanted += 1
            if sort == "end":
                self.ended.add(worker)
                continue
            self._send()
            if sort == "error":
                raise_caught(*value, f"in DataLoader worker process {worker}")
            return pin_memory(value) if self.loader.pin_memory and torch.cuda.is_available() else value

    def _receive(self):
        waited, limit = 0, self.loader.timeout
        while True:
            step = min(limit - waited, 1) if limit > 0 else 1
            try:
                turn, position, worker, sort, value = self.results.get(timeout=step)
                if turn != self.turn: continue
                self.ready[position] = worker, sort, value
                return
            except queue.Empty:
                waited += step
            dead = [w for w in self.workers if not w.is_alive()]
            if dead: self._report(dead)
            if limit > 0 and waited >= limit:
                self.close()
                raise RuntimeError(f"DataLoader timed out after {limit} seconds")

    def _report(self, dead):
        pids = ", ".join(str(w.pid) for w in dead)
        first = dead[0]
        how = f"killed by signal: {-first.exitcode}" if first.exitcode < 0 else f"exited unexpectedly with exit code {first.exitcode}"
        cause = RuntimeError(f"DataLoader worker (pid {first.pid}) {how}. Details are lost due to multiprocessing. "
                             "Rerunning with num_workers=0 may give better error trace.")
        self.close()
        raise RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly") from cause

    def close(self):
        """Ends the workers; harmless when they have ended."""
        for tasks, worker in zip(self.tasks, self.workers):
            if worker.is_alive(): tasks.put(None)
        self.results.cancel_join_thread()
        for worker in self.workers:
            if worker.pid is None: continue  # it could not be started
            worker.join(timeout=5)
            if worker.is_alive(): worker.terminate(); worker.join()
        self.workers, self.tasks, self.sent = [], [], self.wanted  # the pass is over

    def __del__(self):
        # A worker of a later pass inherits this object: the workers are not its children.
        if getattr(self, "workers", None) and self.owner == os.getpid(): self.close()
