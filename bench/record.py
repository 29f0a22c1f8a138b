# SPDX-License-Identifier: Apache-2.0
"""Records the device memory requests of a program: python3 bench/record.py FILE PROGRAM [ARGUMENT...]
PROGRAM runs as by `python3 -m phlox`. At its end the history is written to FILE in the format of torch.cuda.memory._dump_snapshot: snapshots of PyTorch are
traces, too. With several processes the rank is appended to FILE's name. bench/replay.py FILE replays the trace."""
import os
import pickle
import sys

MAX_EVENTS = 1 << 24  # maximum number of events per device


def events_of(snapshot, device):
    """Returns a device's requests: (key, size, stream) for an allocation, (key, None, None) for a free. Blocks older than the record are allocated at the
    start."""
    trace, events, allocated, live = snapshot["device_traces"][device], [], 0, {}
    ends = {b["address"]: b.get("requested_size", b["size"]) for s in snapshot["segments"] if s["device"] == device
            for b in s["blocks"] if b["state"] == "active_allocated"}
    for event in reversed(trace):
        if event["action"] == "alloc":
            ends.pop(event["addr"], None)
        elif event["action"] == "free_requested":
            ends[event["addr"]] = event["size"]
    for address, size in sorted(ends.items()):
        live[address], allocated = allocated, allocated + 1
        events.append((live[address], size, 0))
    for event in trace:
        if event["action"] == "alloc":
            live[event["addr"]], allocated = allocated, allocated + 1
            events.append((live[event["addr"]], event["size"], event["stream"]))
        elif event["action"] == "free_requested" and event["addr"] in live:
            events.append((live.pop(event["addr"]), None, None))
    return events


def read(path):
    """Returns the traces of a file, by device."""
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    found = {device: events_of(snapshot, device) for device in range(len(snapshot["device_traces"]))}
    return {device: events for device, events in found.items() if events}


def begin():
    from phlox.cuda import memory
    memory._record_memory_history(context=None, stacks="python", max_entries=MAX_EVENTS, clear_history=True,
                                  skip_actions=["free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot", "oom"])


def end():
    """Stops recording and returns the snapshot."""
    from phlox.cuda import memory
    snapshot = memory._snapshot()
    memory._record_memory_history(enabled=None)
    return snapshot


def main(path, *program):
    from phlox import __main__ as runner
    path += "." + os.environ["RANK"] if "RANK" in os.environ else ""
    begin()
    try:
        runner.main(list(program))
    finally:
        with open(path, "wb") as file:
            pickle.dump(end(), file)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
