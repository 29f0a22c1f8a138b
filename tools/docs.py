#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the source of the documentation site: tools/docs.py BUILD makes BUILD/docs from docs/, the pages at the top of the tree, and the reference
pages generated from the output of tools/opgen, the tables of environment variables and the public headers. Python signatures come from the built
module; without it the schemas of the tables stand instead. Links to pages become links within the site, all others refer to copies of the files."""
import ast, collections, inspect, itertools, os, re, shutil, subprocess, sys, textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(sys.argv[1])
GEN, OUT = os.path.join(BUILD, "gen"), os.path.join(BUILD, "docs")
PAGES = {"README.md": "index.md", "docs/README.md": "index.md", "ARCHITECTURE.md": "explanation/architecture.md", "HACKING.md": "howto/hacking.md",
         "CONTRIBUTING.md": "howto/contributing.md", "STYLE.md": "howto/style.md", "SECURITY.md": "reference/security.md",
         "CHANGELOG.md": "reference/changes.md", "ops/GRAMMAR.md": "howto/op-tables.md", "layers/GRAMMAR.md": "howto/layer-tables.md",
         "optim/GRAMMAR.md": "howto/optimiser-tables.md"}
SPACES = {"torch": "torch", "tensor": "Tensor", "nn_functional": "torch.nn.functional"}  # others: torch.NAME
EXTENSION = ("backend.h", "engine.h", "extend.h", "register.h")  # for extensions: last


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def write(path, text):
    path = os.path.join(OUT, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


# ---- formulas
MATH = "{math}`%s`"
GREEK = {"lr": r"\eta", "alpha": r"\alpha", "beta": r"\beta", "beta1": r"\beta_1", "beta2": r"\beta_2", "eps": r"\epsilon", "param": r"\theta",
         "weight_decay": r"\lambda", "momentum": r"\mu", "gamma": r"\gamma", "delta": r"\delta", "grad": "g", "inf": r"\infty", "pi": r"\pi"}
FUNCTIONS = {name: "\\" + name for name in "exp log sin cos tan sinh cosh tanh max min".split()}
BINARY = {ast.Add: ("+", 1), ast.Sub: ("-", 1), ast.Mult: (r"\cdot", 2), ast.Mod: (r"\bmod", 2), ast.MatMult: ("@", 2),
          ast.BitAnd: (r"\,\&\,", 1), ast.BitOr: (r"\mid", 1), ast.BitXor: (r"\oplus", 1)}
COMPARE = {ast.Lt: "<", ast.LtE: r"\le", ast.Gt: ">", ast.GtE: r"\ge", ast.Eq: "=", ast.NotEq: r"\ne", ast.Is: "=", ast.IsNot: r"\ne", ast.In: r"\in"}


def word(name):
    return GREEK.get(name) or (name if len(name) == 1 else r"\mathrm{%s}" % name.replace("_", r"\_"))


def cases(*rows):
    return r"\begin{cases}" + r" \\ ".join(f"{value} & {when}" for value, when in rows) + r"\end{cases}"


def call(name, args):
    text = [tex(one) for one in args]
    if name in ("sqrt", "rsqrt"): return r"\sqrt{%s}" % text[0] if name == "sqrt" else r"\frac{1}{\sqrt{%s}}" % text[0]
    if name == "abs": return r"\left|%s\right|" % text[0]
    if name == "floor": return r"\left\lfloor %s\right\rfloor" % text[0]
    if name == "neg": return "-" + tex(args[0], 2)
    if name == "conj": return r"\overline{%s}" % text[0]
    if name in ("select", "where", "choose"): return cases((text[1], r"\text{if } " + text[0]), (text[2], r"\text{otherwise}"))
    if name in ("pow", "square"): return "{%s}^{%s}" % (tex(args[0], 4), "2" if name == "square" else text[1])
    infix = {"equals": "=", "eq": "=", "ne": r"\ne", "lt": "<", "le": r"\le", "gt": ">", "ge": r"\ge"}.get(name)
    if infix: return f"{text[0]} {infix} {text[1]}"
    return "%s(%s)" % (FUNCTIONS.get(name) or r"\mathrm{%s}" % name.replace("_", r"\_"), ", ".join(text))


def operation(node):
    """LaTeX of an operator, and how strongly it binds."""
    if isinstance(node, ast.BinOp):
        sign, own = BINARY[type(node.op)]
        return f"{tex(node.left, own)} {sign} {tex(node.right, own + (sign == '-'))}", own
    if isinstance(node, ast.UnaryOp): return (r"\lnot " if isinstance(node.op, ast.Not) else "-") + tex(node.operand, 2), 2
    if isinstance(node, ast.BoolOp): return (r" \land " if isinstance(node.op, ast.And) else r" \lor ").join(tex(one, 0.5) for one in node.values), 0
    if isinstance(node, ast.Compare):
        return tex(node.left, 1) + "".join(f" {COMPARE[type(op)]} {tex(one, 1)}" for op, one in zip(node.ops, node.comparators)), 0.9
    raise SyntaxError(type(node).__name__)


def tex(node, level=0):
    """LaTeX of a parsed formula, in parentheses if its operator binds less than `level`."""
    if isinstance(node, ast.Name): return word(node.id)
    if isinstance(node, ast.Constant): return r"\text{'%s'}" % node.value if isinstance(node.value, str) else str(node.value) if type(node.value) in (int, float) else word(str(node.value))
    if isinstance(node, ast.List): return r"\left[%s\right]" % ", ".join(map(tex, node.elts))
    if isinstance(node, ast.Tuple): return r"\left(%s\right)" % ", ".join(map(tex, node.elts))
    if isinstance(node, ast.Starred): return tex(node.value)
    if isinstance(node, ast.Subscript): return "%s_{%s}" % (tex(node.value, 4), tex(node.slice))
    if isinstance(node, ast.Call): return call(node.func.id, node.args)
    if isinstance(node, ast.IfExp): return cases((tex(node.body), r"\text{if } " + tex(node.test)), (tex(node.orelse), r"\text{otherwise}"))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
        text = r"\frac{%s}{%s}" % (tex(node.left), tex(node.right))
        return text if isinstance(node.op, ast.Div) else r"\left\lfloor%s\right\rfloor" % text
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return r"\sqrt{%s}" % tex(node.left) if ast.unparse(node.right) == "0.5" else "{%s}^{%s}" % (tex(node.left, 4), tex(node.right))
    text, own = operation(node)
    return text if own >= level else r"\left(%s\right)" % text


def formula(text, left=""):
    """A formula of the tables as mathematics, or as code if it is not an expression."""
    plain = re.sub(r"!(?!=)", " not ", re.sub(r"\bis\(", "equals(", text).replace("&&", " and ").replace("||", " or ").replace("@", "")).strip()
    try:
        made = tex(ast.parse(re.sub(r"\s+", " ", plain), mode="eval").body)
    except (SyntaxError, KeyError, AttributeError):
        return f"`{text}`"
    return MATH % ((left and word(left) + " = ") + made)


def lines_as_math(block):
    """The lines NAME = FORMULA of an optimiser or schedule. An assignment is an arrow."""
    out, label = [], "" if "epoch) = " in block else "\nA step:\n\n"
    for line in block.strip().split("\n"):
        name, sign, right = line.partition(" = ")
        if line.startswith("requires: "): out.append("- requires " + formula(line[10:]))
        elif not sign: out.append(f"- `{line}`")
        else:
            out.append(label)
            label, arrow, made = "", r" \leftarrow ", formula(right)
            shown = word(name)
            if "(" in name:
                arrow, shown = " = ", re.sub(r"(\w+)\((.*)\)", lambda m: r"\mathrm{%s}(%s)" % (m[1], ", ".join(map(word, m[2].split(", ")))), name)
            out.append("- " + (made.replace("{math}`", "{math}`" + shown + arrow, 1) if made[0] == "{" else f"`{line}`"))
    return "\n".join(filter(None, out)) + "\n"


# ---- ops, layers, optimisers
def tables(folder, suffix, kind):
    """Returns {entry: table} and {table: title}; titles are the beginnings of the tables' first comments."""
    homes, titles = {}, {}
    for name in sorted(os.listdir(os.path.join(ROOT, folder))):
        if not name.endswith("." + suffix): continue
        text, table = read(ROOT, folder, name), name.rpartition(".")[0]
        titles[table] = re.split(r"[.:;,(](?=\s|[A-Z])| \(", text.partition("\n")[0].lstrip("# "))[0].strip(". ")
        homes.update((entry, table) for entry in re.findall(rf"^{kind} (\w+)\(", text, re.M))
    return homes, titles


def plain(text):
    """Escapes stars and brackets outside of code."""
    parts = re.split(r"(^```.*?^```$|^    [^\n]*$|`[^`\n]*`)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else re.sub(r"([*\[\]<])", r"\\\1", part) for i, part in enumerate(parts))


def sections(text):
    """Splits a page at headings of the second level: [(name, body)]."""
    parts = re.split(r"^## (.*)\n", text, flags=re.M)
    return list(zip(parts[1::2], (part.strip("\n") for part in parts[2::2])))


def module():
    sys.path.insert(0, os.path.join(ROOT, "python"))
    try:
        import phlox
        import phlox.optim.lr_scheduler
        return phlox
    except (ImportError, OSError) as error:
        print(f"tools/docs.py: without Python signatures: {error}")


def owner_of(space):
    owner = phlox
    for part in space.split("."): owner = owner and getattr(owner, part, None)
    return owner


def class_signature(space, name):
    """The constructor of a class, without annotations."""
    if not hasattr(owner_of(space), name): return ""
    made = inspect.signature(getattr(owner_of(space), name))
    parameters = [one.replace(annotation=inspect.Parameter.empty) for one in made.parameters.values()]
    return f"torch.{space}.{name}{made.replace(parameters=parameters, return_annotation=inspect.Signature.empty)}"


def example(space, name):
    """The example of a class's docstring."""
    text = inspect.getdoc(getattr(owner_of(space), name, None)) or "" if hasattr(owner_of(space), name) else ""
    lines = re.findall(r"^\s*(>>> .*(?:\n\s*[^>\s].*)*)", text, re.M)
    return "\nExample:\n\n```python\n" + "\n".join(re.sub(r"^ +(?=torch|tensor|\()", "", line, flags=re.M) for line in lines) + "\n```\n" if lines else ""


def python_signatures():
    """{sentence: [(name, signature)]} of all ops and their aliases."""
    found = {}
    for _, owner, name, signature, doc in phlox._op_signatures() if phlox else ():
        found.setdefault(doc, []).append((name, f"{SPACES.get(owner, 'torch.' + owner)}.{name}{signature}"))
    return found


def c_prototypes():
    """{op: (prototypes, a call of the first one)}."""
    found = {}
    for name in sorted(os.listdir(os.path.join(GEN, "phlox", "ops"))):
        for op, used, lines in re.findall(r"^//   (\w+)\(.*\n(?://(?! Example).*\n)*(?:// Example: (.*)\n)?((?:PX_CALL .*\n)+)", read(GEN, "phlox", "ops", name), re.M):
            found[op] = lines.replace("PX_CALL", "px_status"), used
    return found


def c_constructor(text, name, what):
    """The call of a layer's or optimiser's constructor: required arguments by position, others with their defaults."""
    macro = re.search(rf"^#define {name.upper()}_NEW\((.*), \.\.\.\)", text, re.M)
    if not macro: return ""
    struct = re.search(rf"typedef struct {name}_args \{{(.*?)^\}}", text, re.M | re.S)[1]
    types = {member: kind.strip() for kind, member in re.findall(r"^  ([\w *]+[ *])(\w+)(?:\[\d+\])?;", struct, re.M)}
    defaults = re.search(rf"^#define {name.upper()}_ARGS (.*)", text, re.M)[1]
    given = [one.strip().rstrip("_") for one in macro[1].split(",")]
    rest = zip(types, re.findall(r"\{[^}]*\}|[^\s,][^,]*", defaults))
    args = [f"{what} **{given[0]}"] + [f"{types.get(one, '')} {one}".strip() for one in given[1:]]
    args += [f".{one} = " + re.sub(r"^\{([^,]*)(, PX_NO_INT)*\}$", r"\1", value) for one, value in rest if one not in (*given, "by_name", "out")]
    return f"{name}_new({', '.join(args)})\n"


def folded(lines):
    """Breaks long lines at spaces after commas."""
    return "\n".join("\n    ".join(part.rstrip() for part in re.findall(r".{1,84}(?:(?<=,) |$)|.+", line)) for line in lines.rstrip().split("\n"))


def both(python, c):
    return (f"```python\n{folded(python)}\n```\n" if python else "") + (f"```c\n{folded(c)}\n```\n" if c else "")


def op_pages():
    homes, titles = tables("ops", "op", "op")
    python, c = python_signatures(), c_prototypes()
    pages = {table: [] for table in titles}
    entries = sections(plain(read(GEN, "ops.md")))
    about = collections.Counter(body.split("\n")[2] for _, body in entries)
    for name, body in entries:
        schema, _, body = body.partition("\n\n")
        doc = body.lstrip().partition("\n")[0]
        renamed = re.search(r"^- Python: `([\w.]+)`$", body, re.M)
        forms = (name, name + "_", (renamed[1] if renamed else name).rpartition(".")[2])
        lines = dict.fromkeys(line for form, line in python.get(doc.replace("\\", ""), ()) if about[doc] == 1 or form in forms)
        body = re.sub(r"^- (Each element|Equivalent|Gradient of `\w+`): `(.*)`$", lambda m: f"- {m[1]}: {formula(m[2])}", body, flags=re.M)
        body = re.sub(r"^Example:\n\n((?:    .*\n?)+)", lambda m: "Example:\n\n```python\n" + re.sub(r"^    ", "", m[1], flags=re.M).rstrip() + "\n```\n", body, flags=re.M)
        prototypes, used = c.get(name, ("", ""))
        if used: body = body.rstrip() + ("" if "\nExample:\n" in body else "\n\nExample:\n") + f"\n```c\n{used}\n```\n"
        if homes.get(name): pages[homes[name]].append((name, f"## {name}\n\n{both(chr(10).join(lines) or schema.strip('`'), prototypes)}\n{body.lstrip()}\n\n"))
    return write_tables("ops", titles, pages)


def write_tables(folder, titles, pages):
    """Writes a page for each table, private entries last. Returns the list of links."""
    links = []
    for table, title in titles.items():
        entries = sorted(pages[table], key=lambda entry: (entry[0].startswith("_"), entry[0].lower()))
        if not entries: continue
        write(f"reference/{folder}/{table}.md", f"# {title}\n\n" + "".join(text for _, text in entries))
        public = [name for name, _ in entries if name[0] != "_"]
        links.append((f"{folder}/{table}.md", title, f"`{public[0]}` to `{public[-1]}`" if len(public) > 1 else ""))
    return sorted(links, key=lambda link: link[1].lower())


def condition_text(text):
    return f"`{text}`" if text.isidentifier() else formula(text)


def own_tensor(line):
    """The description of a parameter or buffer of a layer: its sizes, dtype, initial value and condition."""
    kind, name, sizes, dtype, start, condition = line.groups()
    function, args = start.rstrip(")").split("(", 1)
    value = {"zeros": "zeros", "ones": "ones", "constant": formula(args), "fan_uniform": "uniform in " + MATH % r"\pm \frac{1}{\sqrt{\mathrm{fan\_in}}}",
             "uniform": "uniform from {} to {}".format(*map(formula, args.split(", "))) if function == "uniform" else ""}.get(function) or f"`{function}_({args})`"
    return (f"- {kind} `{name.replace('{layer}', 'K').replace('{reverse:_reverse}', '')}`: " + (f"sizes {formula(f'({sizes},)')}" if sizes else "a number")
            + (f", `{dtype}`" if dtype else "") + f", initially {value}" + (f", if {condition_text(condition)}" if condition else ""))


def layer_pages():
    homes, titles = tables("layers", "layer", "layer")
    header = read(GEN, "phlox", "layers.h")
    pages = {table: [] for table in titles}
    for name, body in sections(plain(read(GEN, "layers.md"))):
        signature, _, body = body.partition("\n\n")
        c = re.search(r"^- C: `(\w+)_new`$", body, re.M)
        body = re.sub(r"^- C: .*\n?|^- where `\w+ = '.*\n", "", body, flags=re.M)
        body = re.sub(r"^- where `(\w+) = (.*)`$", lambda m: f"- where {formula(m[2], m[1])}", body, flags=re.M)
        body = re.sub(r"^- for each `layer .*`$", "- for each layer K; those of the reverse direction end in `_reverse`", body, flags=re.M)
        body = re.sub(r"^- (parameter|buffer) `(\S+)` `\[(.*?)\] (?:(\w+) )?= (.*?)(?: if (.*))?`$", own_tensor, body, flags=re.M)
        body = re.sub(r"^- child `(\w+) = (.*)`$", r"- child `\1`: `\2`", body, flags=re.M)
        body = re.sub(r"^- returns `(.*)`\n?", lambda m: "" if "```{math}" in body else f"- function: {formula(m[1])}\n", body, flags=re.M)
        shown = both("torch.nn." + signature.strip("`"), c_constructor(header, c[1], "px_module") if c else "")
        pages[homes.get(name) or homes.get(name.removeprefix("Lazy"), "container")].append((name, f"## {name}\n\n{shown}\n{body}\n{example('nn', name)}\n"))
    return write_tables("layers", titles, pages)


def optimiser_pages():
    text = re.sub(r"^```\n(.*?)^```\n", lambda m: lines_as_math(m[1]), plain(read(GEN, "optim.md")), flags=re.M | re.S)
    header = read(GEN, "phlox", "optimizers.h")
    for title, path, space, page in zip(("", "# Schedules\n"), ("optimisers", "schedules"), ("optim", "optim.lr_scheduler"), text.split("\n# Schedules\n")):
        for name, body in sections(page):
            shown = both(class_signature(space, name), c_constructor(header, "px_" + name.lower(), "px_optimizer"))
            kept = re.sub(r"^`.*`\n", "", body) if shown else body  # the schema of a schedule
            page = page.replace(f"## {name}\n\n{body}", f"## {name}\n\n{shown}\n{kept.strip()}\n{example(space, name)}", 1).replace(
                f"## {name}\n{body}", f"## {name}\n\n{shown}\n{kept.strip()}\n{example(space, name)}", 1)
        write(f"reference/{path}.md", title + page)
    return [("optimisers.md", "Optimisers", ""), ("schedules.md", "Schedules of the learning rate", "")]


# ---- environment variables
def environment_table():
    rows = []
    for path in ("include/phlox/tables/env.def", "include/phlox/tables/env_cluster.def", "python/ext/bind/env.def"):
        for name, kind, default, allowed, doc in re.findall(r'^PX_ENV\(([\w*]+), (\w+), "(.*?)", "(.*?)", "(.*)"\)$', read(ROOT, path), re.M):
            allowed = allowed.replace("|", ", ").replace("..", " to ").removesuffix(" to ")
            rows.append(f"| `{name}` | {kind}{allowed and ': ' + allowed} | {default and f'`{default}`'} | {doc} |\n")
    rows.sort(key=lambda row: ("`PHLOX_" not in row.split("|")[1], row))
    return "| variable | type | default | meaning |\n|---|---|---|---|\n" + "".join(rows)


# ---- headers
def prose(comment):
    """The text of a comment in Markdown: names of the library as code, indented lines as a block of code or, without a semicolon, of text."""
    out = []
    for indented, lines in itertools.groupby(comment, lambda line: line.startswith("  ")):
        lines = list(lines)
        if indented:
            out += ["", "```c" if any(";" in line or line.rstrip().endswith(")") for line in lines) else "```text", textwrap.dedent("\n".join(lines)), "```", ""]
            continue
        for line in lines:
            parts = re.split(r"(`[^`]*`|\b(?:px|PX)_\w+)", line)
            out.append("".join((part if part[0] == "`" else f"`{part}`") if i % 2 else re.sub(r"([*_<>\[\]])", r"\\\1", part) for i, part in enumerate(parts)))
    return "\n".join(out)


def declared_names(lines):
    found = re.findall(r"(?:^|[\s*])(px_\w+)\(|\} (px_\w+);|^#define (\w+)|^typedef struct px_\w+ (px_\w+);", "\n".join(lines), re.M)
    return [one for match in found for one in match if one]


def groups(text):
    """Splits a header at blank lines and comments: [(comment, declarations)]. A comment `---- topic` is (topic, None)."""
    comment, declared, depth = [], [], 0
    for line in text.split("\n") + [""]:
        if depth == 0 and not (declared and declared[-1].endswith("\\")):
            topic = re.match(r"// ---- (.*)", line)
            if (topic or not line.strip() or (line.startswith("//") and declared)) and (comment or declared):
                yield comment, declared
                comment, declared = [], []
            if topic: yield topic[1], None
            if topic or not line.strip(): continue
            if line.startswith("//"):
                comment.append(line[3:])
                continue
        declared.append(line)
        bare = re.sub(r"//.*|\"[^\"]*\"|'.'", "", line)
        depth += sum(bare.count(one) for one in "{(") - sum(bare.count(one) for one in "})")


def header_page(name):
    text = re.sub(r"^#(?:pragma once|include).*\n|^// SPDX.*\n|^#ifdef __cplusplus\n(?:extern \"C\" \{|\})\n#endif\n", "", read(ROOT, "include/phlox", name), flags=re.M)
    lead, body, seen, level = "", [], set(), "###" if "\n// ---- " in text else "##"
    for comment, declared in groups(text):
        if declared is None: body.append(f"## {comment[0].upper()}{comment[1:]}\n\n")
        elif not declared and not any("```c\n" in one for one in body): lead += prose(comment) + "\n\n"
        elif not declared: body.append(prose(comment) + "\n\n")
        else:
            names = [one for one in dict.fromkeys(declared_names(declared)) if one not in seen]
            seen.update(names)
            shown = "\n".join(declared).replace("PX_CALL", "px_status").replace("PX_API ", "")
            heading = f"{level} " + ", ".join(f"`{one}`" for one in names[:4]) + (" ..." if len(names) > 4 else "") + "\n\n" if names else ""
            body.append(f"{heading}```c\n{shown}\n```\n\n" + (prose(comment) + "\n\n" if comment else ""))
    write(f"reference/c/{name[:-2]}.md", f"# phlox/{name}\n\n{lead}" + "".join(body))
    return f"c/{name[:-2]}.md", f"phlox/{name}", re.split(r"[.:](?=\s|$)", " ".join(lead.split()))[0]


def header_pages():
    names = [name for name in os.listdir(os.path.join(ROOT, "include/phlox")) if name.endswith(".h") and name != "phlox.h"]
    return [header_page(name) for name in sorted(names, key=lambda name: (name in EXTENSION, name))]


# ---- pages of the tree
def listed(links):
    return "".join(f"- [{title}]({path})" + (f": {about}" if about else "") + "\n" for path, title, about in links)


def toctree(paths):
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(paths) + "\n```\n"


def stage(source, target):
    """Copies a page with its links changed. A README.md becomes an index with a table of contents of the linked pages."""
    order = []

    def link(found):
        path, mark, heading = found[2].partition("#")
        if re.match(r"[a-z]+:|#", found[2]): return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(source), path))
        to = PAGES.get(path) or (path[5:].replace("README.md", "index.md") if path.startswith("docs/") else "files/" + path)
        if to.startswith("files/"): write(to, read(ROOT, path))
        order.append(to)
        return f"[{found[1]}]({os.path.relpath(to, os.path.dirname(target))}{mark}{heading})"

    parts = re.split(r"(^```.*?^```$|`[^`\n]*`)", read(ROOT, source), flags=re.M | re.S)
    text = "".join(part if i % 2 else re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", link, part) for i, part in enumerate(parts))
    text = re.sub(r"^<!-- run\n.*?^-->\n", "", text, flags=re.M | re.S)
    if target.endswith("index.md"):
        folder = os.path.dirname(target)
        here = [os.path.relpath(one, folder or ".") for one in dict.fromkeys(order)
                if one.endswith(".md") and one != target and (os.path.dirname(one) == folder or (not folder and one.endswith("/index.md")))]
        if "<!-- generated pages -->" in text: here[:0], text = [path for path, *_ in GENERATED], text.replace("<!-- generated pages -->", listed(GENERATED).strip())
        text += toctree(here)
    write(target, text.replace("<!-- generated table -->", environment_table()))


def group(path, title, links):
    write(f"reference/{path}.md", f"# {title}\n\n" + listed(links) + toctree([link for link, *_ in links]))
    return f"{path}.md", title, f"{len(links)} pages"


phlox = module()
shutil.rmtree(OUT, ignore_errors=True)
GENERATED = [group("ops", "Ops", op_pages()), group("layers", "Layers and losses", layer_pages()), *optimiser_pages(), group("c", "C headers", header_pages())]
pictures = []
for path in subprocess.run(["git", "ls-files", "docs"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split():
    if path.endswith(".md"): stage(path, PAGES.get(path) or path[5:].replace("README.md", "index.md"))
    elif path.endswith((".svg", ".png")): pictures.append(path)
for path, to in PAGES.items():
    if to != "index.md": stage(path, to)
for path in pictures: shutil.copy(os.path.join(ROOT, path), os.path.join(OUT, path[5:]))
