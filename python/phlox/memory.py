# SPDX-License-Identifier: Apache-2.0
"""python3 -m phlox.memory FILE [-o FILE.svg] [--owners N]

Draws a snapshot of device memory, written by torch.cuda.memory._dump_snapshot while a history was
recorded. For each device: live bytes per event, by the op and source line that allocated them, and
reserved bytes. Allocations older than the record are drawn as one part. FILE.html is a page to zoom and
search, with the owners after each event and the blocks of segments."""
import os, pickle

from phlox import _viewer
from phlox.cuda import _draw_memory as draw


class _Reader(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"not a memory snapshot: it names {module}.{name}")


def _read(name):
    try:
        with open(name, "rb") as file:
            snapshot = _Reader(file).load()
    except OSError:
        raise
    except Exception as error:  # pickle raises any class for a corrupt file
        raise ValueError(f"not a memory snapshot: {error}") from None
    if not isinstance(snapshot, dict) or not {"segments", "device_traces"} <= set(snapshot):
        raise ValueError("not a memory snapshot: expected a dict with segments and device_traces")
    return snapshot


def _page(snapshot, owners):
    """Returns the data of the page, with each stack once."""
    stacks = {}

    def number(item):
        frames = tuple((f["filename"], f["line"], f["name"]) for f in item.get("frames") or ())
        return stacks.setdefault(frames, len(stacks)) if frames else None
    devices = [[(e["action"], e.get("addr", 0), e.get("size", 0), e.get("stream", 0), e.get("time_us", 0), number(e))
                for e in trace] for trace in snapshot["device_traces"]]
    segments = [{"device": s["device"], "stream": s["stream"], "size": s["total_size"], "address": s["address"],
                 "blocks": _blocks(s, number)} for s in snapshot["segments"]]
    return {"devices": devices, "segments": segments, "stacks": list(stacks), "owners": owners}


def _blocks(segment, number):
    at, rows = segment["address"], []
    for b in segment["blocks"]:
        at = b.get("address", at)  # older files have no addresses of blocks
        rows.append((at, b["size"], b["state"], number(b)))
        at += b["size"]
    return rows


def main(arguments: "list[str] | None" = None) -> None:
    """Runs the command."""
    parser = _viewer.command("memory", __doc__)
    parser.add_argument("file", help="a snapshot")
    parser.add_argument("-o", "--output", help="the SVG file to write (default: FILE with the suffix .svg)")
    parser.add_argument("--owners", type=int, default=12, help="number of owners with a separate colour (12)")
    given = parser.parse_args(arguments)
    try:
        snapshot = _read(given.file)
        picture = draw(snapshot, given.owners)
    except (OSError, ValueError) as error:
        parser.exit(1, f"{given.file}: {error}\n")
    output = given.output or os.path.splitext(given.file)[0] + ".svg"
    with open(output, "w", encoding="utf-8") as file:
        file.write(picture)
    page = os.path.splitext(output)[0] + ".html"
    _viewer.write(page, os.path.basename(given.file), "memory", _page(snapshot, given.owners))
    print(output, page, sep="\n")


if __name__ == "__main__":
    main()
