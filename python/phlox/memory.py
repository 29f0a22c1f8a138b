# SPDX-License-Identifier: Apache-2.0
"""python3 -m phlox.memory FILE [-o FILE.svg] [--owners N]

Draws a snapshot of device memory, which torch.cuda.memory._dump_snapshot wrote while a history was
recorded: for each device the bytes that live, event by event, by the op and the line that allocated
them, and what was reserved. What lived before the record began is one part."""
import argparse
import io
import os
import pickle
from xml.sax.saxutils import escape

_COLUMNS, _HEIGHT, _LEFT, _TOP, _LEGEND = 720, 260, 80, 40, 330
_COLORS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e",
           "#7f7f7f", "#1f77b4", "#bcbd22", "#17becf", "#d62728", "#8c564b", "#e377c2")
_OTHERS, _BEFORE = "others", "before the record"


class _Reader(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"a snapshot has no {module}.{name}")


def _read(data):
    snapshot = _Reader(io.BytesIO(data)).load()
    if not isinstance(snapshot, dict) or not {"segments", "device_traces"} <= set(snapshot):
        raise ValueError("the file is no snapshot of memory: it has no segments and device_traces")
    return snapshot


def _owner(frames):
    """The op, or else the function or the node of a backward pass, and the line of the program."""
    for frame in frames:
        if frame["line"] and not {"phlox", "torch"} & set(frame["filename"].split("/")[:-1]):
            return f"{frames[0]['name']}  {os.path.basename(frame['filename'])}:{frame['line']}"
    return frames[0]["name"] if frames else "no stack was kept"


def _lived_before(segments, events):
    """Of what lives at the end, and what was freed, that of which no event tells the beginning: size
    and owner by address."""
    live = {b["address"]: (b.get("requested_size", b["size"]), _owner(b.get("frames", ())))
            for s in segments for b in s["blocks"] if b["state"] == "active_allocated"}
    for event in reversed(events):
        if event["action"] == "free_requested":
            live[event["addr"]] = event["size"], _BEFORE
        elif event["action"] == "alloc":
            live.pop(event["addr"], None)
    return {address: (size, _BEFORE) for address, (size, _) in live.items()}


def _steps(segments, events):
    """Yields what lives by owner, its sum, and what is reserved: the state after each event."""
    live, owned = _lived_before(segments, events), {}
    change = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
    reserved = sum(s["total_size"] for s in segments) - sum(change.get(e["action"], 0) * e["size"] for e in events)
    for size, owner in live.values():
        owned[owner] = owned.get(owner, 0) + size
    total = sum(owned.values())
    for event in events:
        action, size, owner = event["action"], event["size"], None
        if action == "alloc":
            owner = _owner(event.get("frames", ()))
            live[event["addr"]] = size, owner
        elif action == "free_requested" and event["addr"] in live:
            size, owner = live.pop(event["addr"])
            size = -size
        if owner is not None:
            owned[owner], total = owned.get(owner, 0) + size, total + size
        reserved += change.get(action, 0) * event["size"]
        yield owned, total, reserved


def _columns(segments, events):
    """The highest state within each column of the picture. A column is some events, not some time:
    on a device the host runs ahead, and most of its memory is asked for at once."""
    columns, last = [None] * _COLUMNS, None
    for number, (owned, total, reserved) in enumerate(_steps(segments, events)):
        at = number * _COLUMNS // len(events)
        if columns[at] is None or total >= columns[at][1]:
            columns[at] = dict(owned), total, max(reserved, columns[at][2] if columns[at] else 0)
    for at, state in enumerate(columns):
        columns[at] = last = state or last
    return columns


def _bytes(count):
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.4g} {unit}"
        count /= 1024


def _edge(values, scale):
    """The corners of steps, from left to right."""
    turns = [at for at in range(_COLUMNS) if at in (0, _COLUMNS - 1) or values[at] != values[at - 1]]
    corners = [(at, value) for at in turns for value in (values[max(0, at - 1)], values[at])]
    return [f"{_LEFT + at} {_TOP + _HEIGHT - value * scale:.1f}"
            for at, value in [*corners, (_COLUMNS, values[-1])]]


def _text(x, y, text, more=""):
    return f"<text x='{x}' y='{y}'{more}>{escape(text)}</text>"


def _draw(device, segments, events, owners):
    columns = _columns(segments, events)

    def tell(at):
        number = min(len(events) - 1, at * len(events) // _COLUMNS)
        time = events[number].get("time_us", 0) - events[0].get("time_us", 0)
        return f"event {number}, {time / 1000:.4g} ms"

    peak = max(range(_COLUMNS), key=lambda at: columns[at][1])
    most = {}
    for owned, _, _ in columns:
        for owner, size in owned.items():
            most[owner] = max(size, most.get(owner, 0))
    ranked = sorted((o for o in most if most[o]), key=lambda o: (-columns[peak][0].get(o, 0), -most[o], o))
    shown, rest = ranked[:owners], ranked[owners:]
    parts = [(o, [c[0].get(o, 0) for c in columns]) for o in shown]
    if rest:
        parts.append((f"{_OTHERS} ({len(rest)})", [sum(c[0].get(o, 0) for o in rest) for c in columns]))
    scale = _HEIGHT / max(1, max(max(c[1], c[2]) for c in columns))
    title = f"cuda:{device}: {_bytes(columns[peak][1])} live at most, at {tell(peak)}, and then by op and line"
    lines = [_text(_LEFT, 20, title, " font-weight='bold'")]
    for tick in range(5):
        y = _TOP + _HEIGHT - tick * _HEIGHT / 4
        lines += [f"<path d='M{_LEFT} {y}h{_COLUMNS}' stroke='#ddd'/>",
                  _text(_LEFT - 6, y + 4, _bytes(tick * _HEIGHT / 4 / scale), " text-anchor='end'"),
                  _text(_LEFT + tick * _COLUMNS / 4, _TOP + _HEIGHT + 18, tell(tick * _COLUMNS // 4), " text-anchor='middle'")]
    below = [0] * _COLUMNS
    for row, (owner, sizes) in enumerate(parts):
        above, color = [b + s for b, s in zip(below, sizes)], _COLORS[row % len(_COLORS)]
        outline = _edge(above, scale) + _edge(below, scale)[::-1]
        lines += [f"<path d='M{' '.join(outline)}Z' fill='{color}' stroke='none'><title>{escape(owner)}</title></path>",
                  f"<rect x='{_LEFT + _COLUMNS + 16}' y='{_TOP + 18 * row}' width='12' height='12' fill='{color}' stroke='none'/>",
                  _text(_LEFT + _COLUMNS + 34, _TOP + 11 + 18 * row, f"{_bytes(sizes[peak])}  {owner}")]
        below = above
    reserved = [c[2] for c in columns]
    lines += [f"<path d='M{' '.join(_edge(reserved, scale))}' stroke-dasharray='4 3'/>",
              f"<path d='M{_LEFT + _COLUMNS + 16} {_TOP + 18 * len(parts) + 6}h12' stroke-dasharray='4 3'/>",
              _text(_LEFT + _COLUMNS + 34, _TOP + 11 + 18 * len(parts), f"{_bytes(reserved[peak])}  reserved")]
    return lines, max(_TOP + _HEIGHT + 40, _TOP + 18 * (len(parts) + 2))


def draw(snapshot: dict, owners: int = 12) -> str:
    """The picture of a snapshot, as the text of an SVG.

    Args:
        snapshot (dict): what torch.cuda.memory._snapshot gives
        owners (int): how many owners have a colour of their own
    """
    body, top = [], 0
    for device, events in enumerate(snapshot["device_traces"]):
        if any(e["action"] in ("alloc", "free_requested") for e in events):
            segments = [s for s in snapshot["segments"] if s["device"] == device]
            lines, height = _draw(device, segments, events, owners)
            body += [f"<g transform='translate(0 {top})'>", *lines, "</g>"]
            top += height
    if not body:
        raise ValueError("the snapshot has no events: record a history before (_record_memory_history)")
    width = _LEFT + _COLUMNS + _LEGEND
    return "\n".join([f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{top}' font-family='sans-serif' "
                      "font-size='12' fill='none' stroke='#333'>", "<style>text { fill: #333; stroke: none }</style>",
                      f"<rect width='{width}' height='{top}' fill='white' stroke='none'/>", *body, "</svg>", ""])


def main(arguments: "list[str] | None" = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python3 -m phlox.memory", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="a snapshot")
    parser.add_argument("-o", "--output", help="the picture; the snapshot's name with .svg by default")
    parser.add_argument("--owners", type=int, default=12, help="how many owners have a colour of their own (12)")
    given = parser.parse_args(arguments)
    try:
        with open(given.file, "rb") as file:
            picture = draw(_read(file.read()), given.owners)
    except (OSError, ValueError, pickle.UnpicklingError, EOFError) as error:
        parser.exit(1, f"{given.file}: {error}\n")
    output = given.output or os.path.splitext(given.file)[0] + ".svg"
    with open(output, "w") as file:
        file.write(picture)
    print(output)


if __name__ == "__main__":
    main()
