#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the documentation site: tools/site.sh BUILD turns BUILD/docs into BUILD/site by Sphinx. Warnings are errors. The packages of
# docs/requirements.txt are installed into BUILD/site-venv if they changed; afterwards no network is needed. Exits 77 if they cannot be installed.
set -eu
cd "$(dirname "$0")/.."
venv=$1/site-venv
if ! cmp -s docs/requirements.txt "$venv/requirements.txt"; then
  rm -rf "$venv"
  if ! "${PYTHON:-python3}" -m venv "$venv" || ! "$venv/bin/python" -m pip install -q --disable-pip-version-check -r docs/requirements.txt; then
    echo 'skipped: the packages of docs/requirements.txt cannot be installed'
    exit 77
  fi
  cp docs/requirements.txt "$venv/requirements.txt"
fi
"$venv/bin/python" -m sphinx -q -W --keep-going -c docs -b html -d "$1/site-cache" "$1/docs" "$1/site"
if grep -rlE '<(script|link|img|iframe)[^>]*(src|href)="(https?:)?//' "$1/site" --include='*.html'; then
  echo 'these pages load files from other hosts' >&2
  exit 1
fi
echo "$1/site/index.html"
