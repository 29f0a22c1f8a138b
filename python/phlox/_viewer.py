# SPDX-License-Identifier: Apache-2.0
"""Pages to look at: one HTML file each with its data and scripts, which loads nothing else."""
import html, json, os, re


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
