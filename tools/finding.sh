#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a program of findings/: tools/finding.sh SCRIPT PACKAGE... < PROGRAM. Installs the packages in a temporary folder, runs the Python program, and
# fails unless it prints the lines after "Output seen:" at the head of SCRIPT.
set -eu
script=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "$@"
"$folder/venv/bin/python" - | tee "$folder/output"
sed -n '/^# Output seen:/,/^[^#]/s/^#   //p' "$script" | diff - "$folder/output"
