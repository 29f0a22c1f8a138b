# SPDX-License-Identifier: Apache-2.0
"""torch.profiler: profiles of selected steps of a program. Events, tables and traces are defined in
autograd/_profile.py."""
import enum
import os
import socket
import time
import warnings
from json import loads

from phlox import _C, cuda
from phlox.autograd._marks import record_function
from phlox.autograd._profile import DeviceType as DeviceType
from phlox.autograd._profile import EventList as EventList
from phlox.autograd._profile import FunctionEvent as FunctionEvent
from phlox.autograd._profile import FunctionEventAvg as FunctionEventAvg
from phlox.autograd._profile import profile as _Profile


class ProfilerActivity(enum.Enum):
    """Activities to profile. CPU and CUDA are supported."""
    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class ProfilerAction(enum.Enum):
    """The profiler's action in a step."""
    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


def supported_activities():
    """Returns the activities supported on this machine."""
    return {ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * cuda.is_available()}


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """Returns a function from step number to action. After skip_first steps it cycles through `wait`
    idle steps, `warmup` discarded steps and `active` recorded steps. repeat: the number of cycles; 0
    repeats forever. skip_first_wait: omits the first cycle's wait."""
    given = dict(wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip_first)
    if min(given.values()) < 0 or active < 1:
        listed = ", ".join(f"{name}={value} (need {'>' if name == 'active' else '>='} 0)"
                         for name, value in given.items())
        raise AssertionError(f"Invalid profiler schedule arguments. Got {listed}.")
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)
    cycle, gap = wait + warmup + active, wait if skip_first_wait else 0

    def action(step):
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        at = step - skip_first + gap
        if step < skip_first or (repeat and at // cycle >= repeat) or at % cycle < wait:
            return ProfilerAction.NONE
        if at % cycle < wait + warmup:
            return ProfilerAction.WARMUP
        last = at % cycle == cycle - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD
    return action


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """Returns an on_trace_ready handler that writes each trace to a folder, for TensorBoard's profiler
    plugin."""
    def handle(prof):
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError("Can't create directory: " + str(dir_name)) from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + ".gz" * use_gzip
        prof.export_chrome_trace(os.path.join(dir_name, name))
    return handle


class profile:
    """Profiles its scope: the steps selected by `schedule`, or all. `step()` begins the next step.
    on_trace_ready(profile) is called at the end of each cycle.

    activities: the activities to record; default: all supported. record_shapes: input shapes;
    profile_memory: memory use of ops; with_stack: source locations; with_flops: FLOPs; with_modules:
    no effect: it applies to TorchScript modules.

    >>> with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
    ...     x = torch.ones(2).exp()
    >>> [e.count for e in prof.key_averages() if e.key == "aten::exp"]
    [1]
    """

    def __init__(self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False,
                 profile_memory=False, with_stack=False, with_flops=False, with_modules=False,
                 experimental_config=None, execution_trace_observer=None, acc_events=False,
                 custom_trace_id_callback=None, post_processing_timeout_s=None):
        for name, value in dict(experimental_config=experimental_config,
                                execution_trace_observer=execution_trace_observer,
                                custom_trace_id_callback=custom_trace_id_callback,
                                post_processing_timeout_s=post_processing_timeout_s).items():
            if value is not None:
                raise NotImplementedError(f"{name}= is not implemented in Phlox")
        self.activities = set(supported_activities() if activities is None else activities)
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        for lacking in self.activities - supported_activities():
            warnings.warn(f"{lacking.name} is not available, disabling {lacking.name} profiling",
                          stacklevel=2)
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.with_flops = with_flops
        self.schedule, self.on_trace_ready = schedule or (lambda step: ProfilerAction.RECORD), on_trace_ready
        self.record_steps, self.acc_events = schedule is not None, acc_events
        self.step_num, self.current_action = 0, self.schedule(0)
        self.profiler, self.step_rec_fn, self._metadata, self._events = None, None, {}, []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.stop()

    # ---- steps

    def start(self):
        """Starts profiling."""
        self._change(ProfilerAction.NONE, self.current_action)
        self._mark_step()

    def stop(self):
        """Stops profiling and delivers the pending trace."""
        self._end_step()
        self._change(self.current_action, None)

    def step(self):
        """Begins the next step."""
        self._end_step()
        before, self.step_num = self.current_action, self.step_num + 1
        self.current_action = self.schedule(self.step_num)
        self._change(before, self.current_action)
        self._mark_step()

    def _mark_step(self):
        if self.record_steps:
            self.step_rec_fn = record_function(f"ProfilerStep#{self.step_num}")
            self.step_rec_fn.__enter__()

    def _end_step(self):
        if self.step_rec_fn:
            self.step_rec_fn.__exit__(None, None, None)
            self.step_rec_fn = None

    def _change(self, before, after):
        """Performs the transition between two actions. `after` is None at the end."""
        recorded, records = (action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
                             for action in (before, after))
        saves = recorded and (after is None or before is ProfilerAction.RECORD_AND_SAVE)
        if recorded and not records and not saves:
            warnings.warn(f"Incorrect schedule: {before.name} followed by {after.name}", stacklevel=4)
        if recorded and (saves or not records):
            self.stop_trace()
            if saves and self.on_trace_ready:
                self.on_trace_ready(self)
        if records and not (recorded and not saves):
            self.start_trace()

    def start_trace(self):
        """Starts recording, regardless of the schedule."""
        self.profiler = _Profile(use_cpu=ProfilerActivity.CPU in self.activities,
                                 use_device="cuda" if self._devices() else None,
                                 record_shapes=self.record_shapes, with_stack=self.with_stack,
                                 profile_memory=self.profile_memory, with_flops=self.with_flops)
        self.profiler._metadata = self._metadata
        self.profiler.__enter__()

    def _devices(self):
        return ProfilerActivity.CUDA in self.activities & supported_activities()

    def stop_trace(self):
        """Stops recording."""
        if self.profiler is None:
            raise AssertionError("Profiler must be initialized before stopping trace")
        self.profiler.__exit__(None, None, None)
        self._events = self._events * self.acc_events + list(self.profiler.function_events)

# ---- results

    def _ended(self):
        if self.profiler is None or self.profiler.function_events is None:
            raise AssertionError("Profiler must be initialized before getting events")
        return self.profiler.function_events

    def events(self):
        """Returns the events of the latest cycle; with acc_events=True of all cycles."""
        return self._ended()._like(self._events)

    def key_averages(self, *args, **kwargs):
        """Sums events with the same name (EventList.key_averages)."""
        return self.events().key_averages(*args, **kwargs)

    def export_chrome_trace(self, path):
        """Writes a Chrome trace of the latest cycle."""
        self._ended().export_chrome_trace(path)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Writes the stacks of events with a metric each. Requires with_stack=True."""
        self._ended()
        self.profiler.export_stacks(path, metric)

    def add_metadata(self, key, value):
        """Adds a string to the metadata of traces."""
        self._metadata[key] = str(value)

    def add_metadata_json(self, key, value):
        """Adds a JSON value to the metadata of traces."""
        self._metadata[key] = loads(value)

    preset_metadata_json = add_metadata_json


_C._name_missing(__name__)
