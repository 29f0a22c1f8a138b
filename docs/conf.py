# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx for the documentation site (`make site`). The site needs no network: formulas are MathML, fonts are the system's."""
import re

from docutils import nodes
from docutils.utils.math import latex2mathml
from pygments.lexers.special import TextLexer

project = "Phlox"
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Phlox"
html_show_sphinx = html_show_copyright = html_show_sourcelink = html_copy_source = False
html_static_path = html_css_files = ["site.css"]
html_theme_options = {f"{mode}_css_variables": {"font-stack": "system-ui, sans-serif"} for mode in ("light", "dark")}
pygments_style, pygments_dark_style = "friendly", "monokai"
exclude_patterns = ["files"]
# The examples of docstrings in code blocks are not always whole programs. Headings of pages of the tree may skip a level.
suppress_warnings = ["misc.highlighting_failure", "myst.header"]


def _mathml(node, as_block):
    # MathML has no space between a function and an argument without parentheses.
    spaced = re.sub(r"(\\(?:log|exp|tanh)|\\operatorname\{\w+\})\s*(?=[a-zA-Z]|\\(?!left))", r"\1\\, ", node.astext())
    return latex2mathml.tex2mathml(spaced, as_block=as_block)


def _inline(writer, node):
    writer.body.append(_mathml(node, False))
    raise nodes.SkipNode


def _block(writer, node):
    writer.body.append(f'<div class="math">{_mathml(node, True)}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    app.config.html_math_renderer = "mathml"
    for language in ("op", "layer", "optim"):
        app.add_lexer(language, TextLexer)
