# SPDX-License-Identifier: Apache-2.0
"""Pages to look at: one HTML file each with its data and scripts, which loads nothing else. And their commands."""
import argparse, atexit, html, json, os, re, sys
from collections.abc import Callable

from phlox import __main__ as _program


def command(name: str, about: "str | None") -> argparse.ArgumentParser:
    """Returns the parser of python3 -m phlox.NAME."""
    return argparse.ArgumentParser(prog="python3 -m phlox." + name, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def run_program(parser: argparse.ArgumentParser, arguments: "list[str] | None", begin: Callable[[], object], report: Callable[..., object]) -> None:
    """Runs the program named by the last arguments between begin() and report(arguments)."""
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    given = parser.parse_args(arguments)
    given.program = given.program[given.program[:1] == ["--"]:]
    if not given.program:
        parser.error("a program is needed")

    def end():
        try:
            report(given)
        except RuntimeError as error:  # nothing was recorded
            print(f"{parser.prog}: {error}", file=sys.stderr)
    begin()
    atexit.register(end)  # also if the program exits or fails
    _program.main(given.program)


def write(path: str, title: str, kind: str, data: object) -> None:
    """Writes a page that shows `data` by the script viewer/KIND.js."""
    def part(name):
        with open(os.path.join(os.path.dirname(__file__), "viewer", name), encoding="utf-8") as file:
            return file.read()
    scripts = [part(name) for name in ("chart.js", "page.js", kind + ".js")]
    run = f"show{kind.capitalize()}(JSON.parse(byId('data').textContent));"
    parts = {"title": html.escape(title), "script": "\n".join([*scripts, run]),
             "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")}
    with open(path, "w", encoding="utf-8") as file:
        file.write(re.sub("@(title|script|data)@", lambda found: parts[found[1]], part("page.html")))
