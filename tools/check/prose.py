#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the prose of the tree: comments, docstrings, `doc` lines of the tables, and pages. STYLE.md has the rules.

    tools/check/prose.py            prints four figures a folder; fails if a folder exceeds a limit
    tools/check/prose.py FILE...    prints the figures of single files

Sentences of four words and more count. The figures are relative words (which, that, where ...) per 100 words, "what" per 1,000 words, the
percentage of sentences that begin with such a word, and commas a sentence."""
import ast, collections, pathlib, re, subprocess, sys

FIGURES = ("relative", "what", "openings", "commas")
LIMITS = dict(zip(FIGURES, (2.0, 1.5, 2.0, 1.0)))        # of a folder
TREE_LIMITS = dict(zip(FIGURES, (1.2, 0.6, 1.0, 0.8)))   # of the whole tree
RELATIVE = {"what", "which", "whose", "who", "whom", "that", "where"}
OPENINGS = {"What", "Where", "Who", "Whose", "Of", "So", "That", "As", "Such"}
SLASHES = {".c", ".h", ".cu", ".cuh", ".cc"}
HASHES = {".op", ".layer", ".optim", ".sym", ".sh", ".awk", ".py", ".def"}


def page(text):
    """Paragraphs and list items of Markdown, without code, tables and headings."""
    text = re.sub(r"```.*?```", "\n\n", text, flags=re.S)
    lines = ("" if re.match(r"    |#|\|", line) else re.sub(r"^\s*([-*]|\d+\.)\s", "\n", line) for line in text.split("\n"))
    return re.split(r"\n\s*\n", "\n".join(lines))


def comments(text, marker):
    """Runs of comment lines. A comment after code is a run of its own."""
    runs, last = [], None
    for number, line in enumerate(text.split("\n")):
        found = re.match(rf"^(\s*|.*\S\s+){marker}+ ?(.*)$", line)
        if not found or re.match(r"SPDX|----|!", found[2]): continue
        if last == number - 1 and not found[1].strip(): runs[-1] += " " + found[2]
        else: runs.append(found[2])
        last = number
    return runs


def docstrings(text):
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [found for node in ast.walk(ast.parse(text)) if isinstance(node, nodes) and (found := ast.get_docstring(node))]


def paragraphs(path):
    text = path.read_text(errors="replace")
    if path.suffix == ".md": return page(text)
    if path.suffix in SLASHES: return comments(text, "//") + re.findall(r"/\*(.*?)\*/", text, flags=re.S)
    found = comments(text, "#")
    if path.suffix in (".op", ".layer", ".optim"): found += re.findall(r"^  doc +(.*(?:\n {9,}.*)*)", text, flags=re.M)
    if path.suffix == ".py": found += docstrings(text)
    return found


def count(path):
    total = collections.Counter()
    for paragraph in paragraphs(path):
        plain = " ".join(re.sub(r"`[^`]*`", "X", paragraph).split())
        for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`(\"'0-9])", plain):
            words = re.findall(r"[A-Za-z][A-Za-z'-]*", sentence)
            if len(words) < 4: continue
            lower = [word.lower() for word in words]
            total.update(sentences=1, words=len(words), commas=sentence.count(","), relative=sum(word in RELATIVE for word in lower),
                         what=lower.count("what"), openings=words[0] in OPENINGS)
    return total


def figures(total):
    words, sentences = max(total["words"], 1), max(total["sentences"], 1)
    return dict(zip(FIGURES, (100 * total["relative"] / words, 1000 * total["what"] / words, 100 * total["openings"] / sentences, total["commas"] / sentences)))


def folder(path):
    if path.suffix == ".md": return "pages"
    depth = 2 if path.parts[0] in ("src", "backends", "python", "tests", "include") else 1
    return "/".join(path.parts[:min(depth, len(path.parts) - 1)]) or "top"


def main():
    listed = sys.argv[1:] or subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.split()
    totals = collections.defaultdict(collections.Counter)
    for path in map(pathlib.Path, listed):
        if path.suffix not in SLASHES | HASHES | {".md"} and path.name != "Makefile" or not path.is_file(): continue
        number = count(path)
        totals[str(path) if sys.argv[1:] else folder(path)] += number
        if not sys.argv[1:]: totals["all"] += number
    exceeded = False
    for name in sorted(totals, key=lambda name: (name == "all", name)):
        now = figures(totals[name])
        limits = TREE_LIMITS if name == "all" else LIMITS
        over = [figure for figure in FIGURES if now[figure] > limits[figure]] if totals[name]["sentences"] >= 20 else []
        exceeded |= bool(over)
        if sys.argv[1:] or over: print(f"{name}: " + ", ".join(f"{figure} {now[figure]:.2f}" for figure in FIGURES) + (f" <- {' '.join(over)}" if over else ""))
    sys.exit(exceeded and not sys.argv[1:])


main()
