# SPDX-License-Identifier: Apache-2.0
"""python3 -m phlox.races [-o FILE.html] PROGRAM [ARGUMENT...]

Runs a program as python3 -m phlox does (a file, or after -- also -c CODE or -m MODULE), with the race
checker on. Races do not stop the program. Prints their reports at its end, and draws them as a page:
streams as lanes, with an arrow for each missing wait."""
import argparse, atexit, os

from phlox import __main__ as _program
from phlox import _viewer
from phlox.cuda import _sanitizer


def _report(given):
    reports = _sanitizer._reports()
    _viewer.write(given.output, os.path.basename(given.program[given.program[0] == "--"]), "races", reports)
    print(*reports, f"{len(reports)} races", given.output, sep="\n")


def main(arguments: "list[str] | None" = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python3 -m phlox.races", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="races.html", help="the page (races.html)")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    given = parser.parse_args(arguments)
    if not given.program:
        parser.error("a program is needed")
    _sanitizer._collect()
    atexit.register(_report, given)  # also if the program exits or fails
    _program.main(given.program[given.program[0] == "--":])


if __name__ == "__main__":
    main()
