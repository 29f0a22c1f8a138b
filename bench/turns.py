# SPDX-License-Identifier: Apache-2.0
"""Compares two builds: `make bench AGAINST=../other`, or `python3 bench/turns.py OTHER [rows ...]`.

Runs the rows of bench/run.py and bench/call.c with this tree and another built one, alternating, each in separate processes. Prints the
minimum time of each and the relative difference. Rows more than 3 % slower in this tree are marked. Requires an idle machine: other load
distorts the results.
"""
import os, sys

import run

TURNS = int(os.environ.get("TURNS", 6))
SLOWER = 1.03


def figures(tree, names):
    from_c = {f"C: {name}": seconds for name, seconds in run.c_lines(tree=tree) if any(part in name for part in names)}
    return {**from_c, **run.worker_seconds(sys.executable, "phlox", names, tree)}


def main(other, *names):
    trees = run.ROOT, os.path.abspath(other)
    minimum = {tree: {} for tree in trees}
    for turn in range(TURNS):
        for tree in trees if turn % 2 else trees[::-1]:
            for name, seconds in figures(tree, names or [""]).items():
                minimum[tree][name] = min(seconds, minimum[tree].get(name, seconds))
    here, there = minimum[trees[0]], minimum[trees[1]]
    print(f"{run.THREADS} threads on {os.cpu_count()} cores, {TURNS} turns; load {os.getloadavg()[0]:.1f}")
    print(f"{'':44}{'here':>10}{'there':>10}")
    for name in here:
        if name not in there: continue
        ratio = here[name] / there[name]
        print(f"{name:44}{run.text(here[name], 's'):>10}{run.text(there[name], 's'):>10}{100 * (ratio - 1):>+8.1f} %" + "  slower" * (ratio > SLOWER))


if __name__ == "__main__":
    main(*sys.argv[1:])
