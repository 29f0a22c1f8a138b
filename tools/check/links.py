#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks references to pages: links of Markdown files to files and headings of the repository, and names such as docs/FOLDER/PAGE.md in any
source. Every page of docs/ is listed by the README.md of its folder."""
import os, re, subprocess, sys

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
files = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.split()
known = {name for path in files if os.path.exists(path) for name in (path, *(path[:at.start()] for at in re.finditer("/", path)))}
bad = []


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


def anchors(path):
    """GitHub's anchors of the headings."""
    text = re.sub(r"^```.*?^```$", "", read(path), flags=re.M | re.S)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.M)}


def check_link(page, target, line):
    path, _, heading = target.partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if path not in known: bad.append(f"{page}:{line}: no file {path}")
    elif heading and heading not in anchors(path): bad.append(f"{page}:{line}: no heading {target}")
    return path


linked = {}
for path in (path for path in files if path in known):
    if path.endswith(".md"):
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", lambda code: re.sub(r"[^\n]", " ", code[0]), read(path), flags=re.M | re.S)
        linked[path] = {check_link(path, found[1], text[:found.start()].count("\n") + 1)
                        for found in LINK.finditer(text) if not re.match(r"[a-z]+:", found[1])}
    if path.startswith("tools/check/") or os.path.getsize(path) > 1 << 20: continue
    for number, line in enumerate(read(path).split("\n"), 1):
        bad += [f"{path}:{number}: no file {name}" for name in re.findall(r"(?<![\w/.-])docs/[\w/-]+\.(?:md|svg)\b", line) if name not in known]
for path in known:
    index = os.path.join(os.path.dirname(path), "README.md")
    if re.match(r"docs/\w+/(?!README).*\.md$", path) and path not in linked.get(index, ()): bad.append(f"{path}: not listed by {index}")
print("".join(f"{text}\n" for text in sorted(bad)), end="")
sys.exit(bool(bad))
