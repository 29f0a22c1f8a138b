# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.profiler.profile and the events of a profile. The core records events (phlox/profile.h);
this module turns them into objects, averages, tables and traces."""
import enum
import gzip
import json
import os
import warnings
from collections import namedtuple

from phlox import _C, cuda

_Row = namedtuple("_Row", "kind name shapes stack parent start end thread device stream cpu_bytes "
                          "device_bytes flops")
Kernel = namedtuple("Kernel", "name device duration")
_OP, _NODE, _ANNOTATION, _DEVICE, _MEMORY = range(5)
_METRICS = ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total",
            "self_privateuse1_time_total"]
_UNDERSCORES = str.maketrans(" ;\t\n", "____")  # flame graphs separate frames by these
_STATISTICS = ("cpu_time_total self_cpu_time_total device_time_total self_device_time_total "
            "cpu_memory_usage self_cpu_memory_usage device_memory_usage "
            "self_device_memory_usage flops").split()


class DeviceType(enum.Enum):
    """The type of device an event ran on."""
    CPU, CUDA = 0, 1


class Interval(namedtuple("Interval", "start end")):
    """Start and end of an event, in microseconds since the first event of the profile."""

    def elapsed_us(self):
        """Returns the duration in microseconds."""
        return self.end - self.start


def format_time(time_us, time_unit=None):
    """Formats a time in s, ms or us. Default unit: by magnitude."""
    unit = time_unit or ("s" if time_us >= 1e6 else "ms" if time_us >= 1e3 else "us")
    return f"{time_us / {'s': 1e6, 'ms': 1e3, 'us': 1}[unit]:.3f}{unit}"


def format_memory(nbytes):
    """Formats a number of bytes with its unit."""
    for unit, size in ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"


def _older(name):
    """A figure by an older name, in which devices are called cuda."""
    older = name.replace("device", "cuda")

    def get(event):
        warnings.warn(f"`{older}` is deprecated. Use `{name}` instead.", FutureWarning,
                      stacklevel=2)
        return getattr(event, name)
    return property(get)


class _Statistics:
    """Times in microseconds and sizes in bytes. `self_` excludes child events."""
    cpu_time = property(lambda self: self.cpu_time_total / self.count if self.count else 0.0)
    device_time = property(lambda self: self.device_time_total / self.count if self.count else 0.0)
    cpu_time_str = property(lambda self: format_time(self.cpu_time))
    cpu_time_total_str = property(lambda self: format_time(self.cpu_time_total))
    self_cpu_time_total_str = property(lambda self: format_time(self.self_cpu_time_total))
    device_time_str = property(lambda self: format_time(self.device_time))
    device_time_total_str = property(lambda self: format_time(self.device_time_total))
    self_device_time_total_str = property(lambda self: format_time(self.self_device_time_total))
    cuda_time, cuda_time_total, self_cuda_time_total, self_cuda_memory_usage = map(
        _older, "device_time device_time_total self_device_time_total "
                "self_device_memory_usage".split())

    def __repr__(self):
        figures = " ".join(f"{name}={getattr(self, name)}" for name in _STATISTICS)
        return f"<{type(self).__name__} key={self.key} count={self.count} {figures}>"


class FunctionEvent(_Statistics):
    """One event: an op call, a node of a backward pass, a user annotation or a piece of device work."""
    count, is_async, is_remote, is_legacy, node_id = 1, False, False, False, -1

    def __init__(self, number, row, since, of):
        self.id, self.name, self.thread, self._of = number, row.name, row.thread, of
        self.key = self.trace_name = row.name
        self.input_shapes = json.loads(row.shapes or "[]")
        self.stack = row.stack
        self.time_range = Interval((row.start - since) / 1e3, (row.end - since) / 1e3)
        self.device_type = DeviceType.CPU if row.device < 0 else DeviceType.CUDA
        self.device_index, self.device_resource_id = max(row.device, 0), row.stream
        self.is_user_annotation = row.kind == _ANNOTATION
        self.cpu_parent, self.cpu_children, self.kernels = None, [], []
        took, work = self.time_range.elapsed_us(), row.kind == _DEVICE
        self.cpu_time_total = self.self_cpu_time_total = 0.0 if work else took
        self.device_time_total = self.self_device_time_total = took if work else 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = row.cpu_bytes
        self.device_memory_usage = self.self_device_memory_usage = row.device_bytes
        self.flops = row.flops

    def _add_to(self, parent):
        if self.device_type is DeviceType.CUDA and self.device_time_total:
            parent.kernels.append(Kernel(self.name, self.device_index, self.device_time_total))
            parent.self_device_time_total += self.device_time_total
        else:
            self.cpu_parent = parent
            parent.cpu_children.append(self)
            parent.self_cpu_time_total -= self.cpu_time_total
            parent.cpu_memory_usage += self.cpu_memory_usage
            parent.device_memory_usage += self.device_memory_usage
        parent.device_time_total += self.device_time_total


class FunctionEventAvg(_Statistics):
    """The sum of events with the same key."""

    def __init__(self, key="Total"):
        self.key, self.count, self.input_shapes, self.stack = key, 0, [], []
        self.device_type, self.is_user_annotation = DeviceType.CPU, False
        vars(self).update(dict.fromkeys(_STATISTICS, 0))

    def add(self, other):
        """Adds an event or another sum."""
        if not self.count:
            for name in "input_shapes", "stack", "device_type", "is_user_annotation":
                setattr(self, name, getattr(other, name))
        self.count += other.count
        for name in _STATISTICS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


# ---- tables

def _share(part, whole):
    return f"{part / whole * 100 if whole else 0:.2f}%"


def _columns(events, cpu_total, device_total, unit, memory, wide):
    """Returns the non-empty columns after the name, as pairs (title, function of an event to text)."""
    def time(of):
        return lambda e: format_time(getattr(e, of), unit)

    def size(of):
        return lambda e: format_memory(getattr(e, of))
    columns = [("Self CPU %", lambda e: _share(e.self_cpu_time_total, cpu_total)),
               ("Self CPU", time("self_cpu_time_total")),
               ("CPU total %", lambda e: _share(e.cpu_time_total, cpu_total)),
               ("CPU total", time("cpu_time_total")), ("CPU time avg", time("cpu_time"))]
    if device_total:
        columns += [("Self CUDA", time("self_device_time_total")),
                    ("Self CUDA %", lambda e: _share(e.self_device_time_total, device_total)),
                    ("CUDA total", time("device_time_total")), ("CUDA time avg", time("device_time"))]
    if memory:
        columns += [("CPU Mem", size("cpu_memory_usage")),
                    ("Self CPU Mem", size("self_cpu_memory_usage"))]
        if any(e.device_memory_usage for e in events):
            columns += [("CUDA Mem", size("device_memory_usage")),
                        ("Self CUDA Mem", size("self_device_memory_usage"))]
    columns.append(("# of Calls", lambda e: str(e.count)))
    flops = [event.flops for event in events if event.flops]
    if flops:
        power = min(5, (len(str(min(flops))) - 1) // 3)
        columns.append((f"Total {' KMGTP'[power].strip()}FLOPs",
                        lambda e: f"{e.flops / 1000 ** power:8.3f}" if e.flops else "--"))
    if any(e.input_shapes for e in events):
        columns.append(("Input Shapes", lambda e: str(e.input_shapes)[:wide["shapes"]]))
    if any(e.stack for e in events):
        columns.append(("Source Location", lambda e: [line[-wide["src"]:] for line in e.stack]))
    return columns


def _lines(cells):
    """Splits an event into table rows: its stack continues on the rows below."""
    *first, last = cells
    stack = last if isinstance(last, list) else [last]
    return [[*first, *(stack[:1] or [""])], *([""] * len(first) + [line] for line in stack[1:])]


def _short(name, limit):
    return name if limit is None or len(name) <= limit else name[:limit - 3] + "..."


class EventList(list):
    """A list of events or of averages."""

    def __init__(self, *args, use_device=None, profile_memory=False, metadata=None):
        super().__init__(*args)
        self._use_device, self._profile_memory = use_device, profile_memory
        self._metadata = metadata or {}

    def __str__(self):
        return self.table()

    @property
    def self_cpu_time_total(self):
        """Total CPU time of all events, in microseconds."""
        return sum(event.self_cpu_time_total for event in self)

    def _like(self, events):
        return EventList(events, use_device=self._use_device, profile_memory=self._profile_memory)

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0,
                     group_by_overload_name=False, include_python_functions=False):
        """Sums events with the same name. Optionally also groups by input shapes and by the top
        `group_by_stack_n` stack lines."""
        if group_by_overload_name or include_python_functions:
            name = "group_by_overload_name" if group_by_overload_name else "include_python_functions"
            raise NotImplementedError(f"key_averages({name}=) is not implemented in Phlox")
        groups = {}
        for event in self:
            key = (event.key, event.device_type, str(event.input_shapes) * group_by_input_shape,
                   *event.stack[:group_by_stack_n])
            groups.setdefault(key, FunctionEventAvg(event.key)).add(event)
        for average in groups.values():
            average.input_shapes = average.input_shapes if group_by_input_shape else []
            average.stack = average.stack[:group_by_stack_n]
        return self._like(groups.values())

    def total_average(self):
        """Returns the sum of all events."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
        total.key, total.input_shapes, total.stack = "Total", [], []
        return total

    def table(self, sort_by=None, row_limit=100, max_src_column_width=75, max_name_column_width=55,
              max_shapes_column_width=80, header=None, top_level_events_only=False, time_unit=None):
        """Formats the events as a table. `sort_by` is the name of a statistic or "count"; the order is
        descending."""
        if not self:
            return ""
        events = list(self)
        if sort_by is not None:
            by = sort_by.replace("cuda", "device")
            events.sort(key=lambda event: getattr(event, by), reverse=True)
        if top_level_events_only:
            events = [event for event in events if getattr(event, "cpu_parent", None) is None]
        events = events[:row_limit] if row_limit >= 0 else events
        work = sum(e.self_device_time_total for e in self if e.device_type is DeviceType.CUDA)
        columns = [("Name", lambda event: _short(event.key, max_name_column_width)),
                   *_columns(events, self.self_cpu_time_total, work, time_unit, self._profile_memory,
                             {"shapes": max_shapes_column_width, "src": max_src_column_width})]
        rows = [[title for title, _ in columns]]
        for event in events:
            rows += _lines([text(event) for _, text in columns])
        widths = [max(12, *map(len, column)) for column in zip(*rows)]
        line = "  ".join("-" * width for width in widths)
        rows = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths)) for row in rows]
        above = ["=" * len(line), header] if header else []
        below = [f"Self CPU time total: {format_time(self.self_cpu_time_total, time_unit)}"]
        if work:
            below.append(f"Self CUDA time total: {format_time(work, time_unit)}")
        return "\n".join([*above, line, rows[0], line, *rows[1:], line, *below, ""])

    def export_chrome_trace(self, path):
        """Writes a Chrome trace, readable by Perfetto, chrome://tracing and TensorBoard. A path ending
        in .gz is compressed."""
        path = os.fspath(path)  # rejects an int, a file descriptor to open()
        text = _C.autograd.profiler._trace(list(self), json.dumps(self._metadata)[1:-1])
        with (gzip.open if path.endswith(".gz") else open)(path, "wt", encoding="utf-8") as file:
            file.write(text)

    def export_stacks(self, path, metric):
        """Writes each event's stack, outermost line first, with the value of `metric`. Input for flame
        graphs."""
        if metric not in _METRICS:
            raise ValueError(f"metric should be one of: {_METRICS}")
        figure = "self_device_time_total" if metric != "self_cpu_time_total" else metric
        with open(os.fspath(path), "w", encoding="utf-8") as file:
            for event in self:
                took = int(getattr(event, figure))
                if event.stack and took > 0:
                    frames = (frame.translate(_UNDERSCORES) for frame in reversed(event.stack))
                    file.write(f"{';'.join(frames)} {took}\n")


def _events(of, rows):
    since = min((row.start for row in rows), default=0)
    events = [FunctionEvent(i + 1, row, since, of) for i, row in enumerate(rows)]
    for event, row in zip(reversed(events), reversed(rows)):  # children have larger indices
        if row.parent >= 0:
            event._add_to(events[row.parent])
    for event in events:
        event.cpu_children.reverse()
        event.kernels.reverse()
    return events


class profile:
    """Records the ops, backward nodes and user annotations run in its scope, and with
    use_device="cuda" the devices' work. Afterwards `function_events` is the list of events.

    record_shapes: input shapes; profile_memory: memory use; with_stack: source locations;
    with_flops: FLOPs of matmuls, convolutions, attention, add and mul.

    >>> with torch.autograd.profiler.profile() as prof:
    ...     x = torch.ones(2).exp()
    >>> [event.name for event in prof.function_events][-1]
    'aten::exp'
    """

    def __init__(self, enabled=True, *, use_cuda=False, use_device=None, record_shapes=False,
                 with_flops=False, profile_memory=False, with_stack=False, with_modules=False,
                 use_kineto=False, use_cpu=True):
        self.enabled, self.use_device = enabled, "cuda" if use_cuda else use_device
        if enabled and self.use_device == "cuda" and not cuda.is_available():
            warnings.warn("CUDA is not available, disabling CUDA profiling", stacklevel=2)
            self.use_device = None
        elif self.use_device not in ("cuda", None):
            raise NotImplementedError(f"use_device={self.use_device!r} is not implemented in Phlox")
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.with_flops = with_flops
        self.use_cpu, self.function_events, self.entered, self._metadata = use_cpu, None, False, {}

    def __enter__(self):
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        _C.autograd.profiler._start(self.use_cpu, self.use_device == "cuda", self.record_shapes,
                                    self.profile_memory, self.with_stack, self.with_flops)
        self.entered = True
        return self

    def __exit__(self, *exc):
        if self.enabled:
            of, rows = _C.autograd.profiler._stop()
            events = _events(of, [_Row(*row) for row in rows])
            self.function_events = EventList(events, use_device=self.use_device,
                                             profile_memory=self.profile_memory,
                                             metadata=self._metadata)
        return False

    def _ended(self):
        if self.function_events is None:
            raise RuntimeError("Profiler didn't finish running")
        return self.function_events

    def __str__(self):
        return repr(self) if self.function_events is None else str(self.function_events)

    def __repr__(self):
        return "<unfinished torch.autograd.profile>" if self.function_events is None else str(self)

    def table(self, *args, **kwargs):
        """The events as a table (EventList.table)."""
        return self._ended().table(*args, **kwargs)

    def key_averages(self, *args, **kwargs):
        """Sums of the events with the same name (EventList.key_averages)."""
        return self._ended().key_averages(*args, **kwargs)

    def total_average(self):
        """Returns the sum of all events."""
        return self._ended().total_average()

    def export_chrome_trace(self, path):
        """Writes a Chrome trace (EventList.export_chrome_trace)."""
        self._ended().export_chrome_trace(path)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Writes the stacks of events with a metric each. Requires with_stack=True."""
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        self._ended().export_stacks(path, metric)

    self_cpu_time_total = property(lambda self: self._ended().self_cpu_time_total,
                                   doc="Total CPU time of all events, in microseconds.")
