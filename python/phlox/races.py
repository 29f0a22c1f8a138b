# SPDX-License-Identifier: Apache-2.0
"""python3 -m phlox.races [-o FILE.html] PROGRAM [ARGUMENT...]

Runs a program as python3 -m phlox does (a file, or after -- also -c CODE or -m MODULE), with the race
checker on. Races do not stop the program. Prints their reports at its end, and draws them as a page:
streams as lanes, with an arrow for each missing wait."""
import os

from phlox import _viewer
from phlox.cuda import _sanitizer


def _report(given):
    reports = _sanitizer._reports()
    _viewer.write(given.output, os.path.basename(given.program[0]), "races", reports)
    print(*reports, f"{len(reports)} races", given.output, sep="\n")


def main(arguments: "list[str] | None" = None) -> None:
    """Runs the command."""
    parser = _viewer.command("races", __doc__)
    parser.add_argument("-o", "--output", default="races.html", help="the page (races.html)")
    _viewer.run_program(parser, arguments, _sanitizer._collect, _report)


if __name__ == "__main__":
    main()
