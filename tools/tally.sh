#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the counts of test programs run with TALLY=FILE in their environment, as one line: tools/tally.sh FILE. A program writes its counts
# only if it has passed: failures are not included.
awk '{n[$1] += $2}
  END {
    printf "held: %d allocations, %d launches by 4 threads on 4 devices; faults survived: %d; bad inputs refused or right: %d; ", n["allocations"],
      n["launches"], n["faults"], n["inputs"]
    printf "pairs of threads on one object: %d; frames sent to a store: %d; ends with daemon threads: %d; ", n["pairs"], n["frames"], n["exits"]
    printf "crash states loaded: %d; forks: %d; races found: all %d planted; false alarms: none in %d programs without races\n", n["crash-states"],
      n["forks"], n["races"], n["race-free"]
  }' "$1"
