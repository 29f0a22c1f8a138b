# SPDX-License-Identifier: Apache-2.0
"""python3 -m phlox.profile [-o FILE.svg] [--trace FILE.json] [--rows N] PROGRAM [ARGUMENT...]

Runs a program as python3 -m phlox does (a file, or after -- also -c CODE or -m MODULE). Prints the ops
and kernels by time and a summary of each device. Draws threads and streams as lanes, with the critical
path of each device. FILE.html, written beside the picture, is a page to zoom and search, with flame
graphs of lines and ops."""
import json, os

from phlox import _C, _viewer, cuda
from phlox.autograd._profile import EventList as _EventList
from phlox.autograd._profile import _events, _Row


def _page(events):
    """Returns the data of the page from a trace, with each text once."""
    trace, texts = json.loads(_C.autograd.profiler._trace(list(events), ""))["traceEvents"], {}

    def text(of):
        return texts.setdefault(of, len(texts))
    spans = [(text(e["name"]), round(e["ts"] * 1000), round(e["dur"] * 1000), e["tid"], args["External id"],
              text(args.get("work", e["cat"])), args.get("device", -1), text(args.get("Call stack", "")))
             for e in trace if e["ph"] == "X" for args in (e["args"],)]
    memory = [(round(e["ts"] * 1000), e["pid"], e["args"]["bytes"]) for e in trace
              if e["ph"] == "C" and e["pid"] != os.getpid()]
    return {"spans": spans, "memory": memory, "texts": list(texts)}


def _report(given):
    stem = os.path.splitext(given.output)[0]
    of, rows, table = _C.autograd.profiler._report(stem + ".svg")
    events = _EventList(_events(of, [_Row(*row) for row in rows]), profile_memory=True)
    by = "self_device_time_total" if cuda.is_available() else "self_cpu_time_total"
    print(events.key_averages().table(sort_by=by, row_limit=given.rows), table, stem + ".svg", stem + ".html",
          sep="\n")
    _viewer.write(stem + ".html", os.path.basename(given.program[0]), "profile", _page(events))
    if given.trace:
        events.export_chrome_trace(given.trace)


def main(arguments: "list[str] | None" = None) -> None:
    """Runs the command."""
    parser = _viewer.command("profile", __doc__)
    parser.add_argument("-o", "--output", default="profile.svg", help="the SVG file (profile.svg)")
    parser.add_argument("--trace", help="also write a trace for Perfetto and chrome://tracing")
    parser.add_argument("--rows", type=int, default=20, help="maximum number of table rows (20)")
    _viewer.run_program(parser, arguments, lambda: _C.autograd.profiler._start(True, cuda.is_available(), False, True, True, True), _report)


if __name__ == "__main__":
    main()
