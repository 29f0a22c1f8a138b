# SPDX-License-Identifier: Apache-2.0
"""Records what a program asks of the memory of devices: python3 bench/record.py FILE PROGRAM [ARGUMENT...]
PROGRAM is run as by `python3 -m phlox`. When it ends, FILE has its history, as torch.cuda.memory._dump_snapshot writes it, so that files of PyTorch are traces
too; of several processes each has its rank in FILE's name. bench/replay.py FILE replays it."""
import os
import pickle
import sys

MOST = 1 << 24  # events of a device


def events_of(snapshot, device):
    """What a device was asked for: (key, size, stream) where a block is taken, (key, None, None) where the program lets it go. What lived before the record
    began is taken first."""
    trace, events, taken, live = snapshot["device_traces"][device], [], 0, {}
    ends = {b["address"]: b.get("requested_size", b["size"]) for s in snapshot["segments"] if s["device"] == device
            for b in s["blocks"] if b["state"] == "active_allocated"}
    for event in reversed(trace):
        if event["action"] == "alloc":
            ends.pop(event["addr"], None)
        elif event["action"] == "free_requested":
            ends[event["addr"]] = event["size"]
    for address, size in sorted(ends.items()):
        live[address], taken = taken, taken + 1
        events.append((live[address], size, 0))
    for event in trace:
        if event["action"] == "alloc":
            live[event["addr"]], taken = taken, taken + 1
            events.append((live[event["addr"]], event["size"], event["stream"]))
        elif event["action"] == "free_requested" and event["addr"] in live:
            events.append((live.pop(event["addr"]), None, None))
    return events


def read(path):
    """The traces of a file, by device."""
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    found = {device: events_of(snapshot, device) for device in range(len(snapshot["device_traces"]))}
    return {device: events for device, events in found.items() if events}


def begin():
    from phlox.cuda import memory
    memory._record_memory_history(context=None, stacks="python", max_entries=MOST, clear_history=True,
                                  skip_actions=["free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot", "oom"])


def end():
    """The snapshot."""
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
