#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares each op and module with PyTorch on samples of PyTorch's own test tables, and writes docs/reference/parity.md (docs/reference/parity-cuda.md for GPUs).
#   tests/parity/run.sh TORCH [DEVICE...]   TORCH: a Python with PyTorch. DEVICE: cpu, sim (the default: both) or cuda.
# Environment: REFERENCE, a Python whose PyTorch supports the GPU; JOBS, processes per device (2); MOST, samples per op (12); O, the build folder (build).
set -eu
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || { sed -n '3,5s/^# //p' "$0" >&2; exit 2; }
torch=$1
shift
devices=${*:-cpu sim} samples=${O:-build}/parity.gz page=docs/reference/parity.md
case $devices in *cuda*) page=docs/reference/parity-cuda.md ;; esac
"$torch" tests/parity/sample.py "$samples" --most "${MOST:-12}"
# shellcheck disable=SC2086
PYTHONPATH=python ${PYTHON:-python3} tests/parity/replay.py "$samples" --device $devices --jobs "${JOBS:-2}" ${REFERENCE:+--reference "$REFERENCE"} --page "$page"
