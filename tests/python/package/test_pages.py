# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of the pages: docs/**/*.md, README.md, HACKING.md and others at the top. The rules:

- The Python blocks of a page are one program, run by `python3 -m phlox` with two simulated devices.
- A C block with `main` is a program. Any other C block is the body of a function that returns px_status.
- A block whose first line is a comment with a file name (`# train.py`, `// train.c`) is written to that file instead.
- An `sh` block runs in the folder of these files.
- An `op`, `layer` or `optim` block is an entry of a table: the generator must accept it. A C block after it may use the generated files.
- A `text` block directly after a block is its output. `...` matches any text. An exception appears as `Type: message`; without a `text` block it is a
  failure.
- `<!-- run` before a block begins hidden code, up to `-->`. The line BLOCK in it is the position of the block; without that line the code comes first.
- `<!-- from FILE -->` before a block: the block is an excerpt of the file.
- `<!-- environment NAME=VALUE ... -->` sets variables for the page.
- `<!-- not run: REASON -->` before an indented block of commands: only the names of targets and scripts in it are checked. Commands that are run are
  in an `sh` block. TREE is the folder of the sources in its hidden code.

PAGE=docs/learn in the environment selects pages by the beginning of their name."""
import os, re, shutil, subprocess, sys, tempfile, unittest
import phlox

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
HOME = os.path.dirname(os.path.abspath(phlox.__file__))
BLOCK = re.compile(r"(?:^<!-- run\n(?P<hidden>.*?)^-->\n)?(?:^<!-- from (?P<source>\S+) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
NVCC = shutil.which("nvcc")
OWN_TEST = {"docs/learn/several-devices.md"}  # test_scaling.py compares the outputs of its programs
KINDS = ("python", "c", "sh", "op", "layer", "optim", "cuda")  # cuda: compiled if there is nvcc
COMMANDS = re.compile(r"(?P<above>^[^\n]*\n)(?P<lines>^    (?:\$ |[A-Z_]+=\S+ )*(?:python3|make|gcc|pip|apt|apt-get|git|for|sudo|\./\w+|(?:script|build)/\S+) [^\n]*\n(?:    [^\n]*\n)*)", re.M)
DRIVER = """
import sys, traceback
space = {"__name__": "__main__", "torch": __import__("torch")}
for path in sys.argv[1:]:
    print(">>>", path, flush=True)
    sys.argv = [path]
    try:
        exec(compile(open(path).read(), path, "exec"), space)
        if "torch" in space: space["torch"].cuda.synchronize()
    except BaseException as error:
        print("".join(traceback.format_exception_only(error)), end="", flush=True)
        traceback.print_exc()
"""
MAIN = """
int main(void) {
  if (run() == PX_OK) return 0;
  px_error_print();
  return 1;
}
"""
INCLUDES = "#include <phlox/phlox.h>\n#include <math.h>\n#include <signal.h>\n#include <stdio.h>\n#include <string.h>\n"


def pages():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    return [page for page in listed if page not in OWN_TEST and page.startswith(os.environ.get("PAGE", ""))]


class Block:
    def __init__(self, found, before):
        self.kind, self.expected, self.source = found["kind"], None, found["source"]
        self.table = (re.findall(rf"\b(?:ops|layers|optim)/\w+\.{self.kind}\b", before) or [None])[-1]  # the last one named before the block
        self.home = (re.findall(r"`(backends/cuda/(?:kernels|host/ops)/\w+\.cu?)`", before) or [None])[-1]  # of CUDA code
        hidden, text = found["hidden"] or "", found["text"]
        name = re.match(r"(?:#|//) ([\w./-]+\.(?:py|c))$", text.partition("\n")[0])
        self.file = name and name[1]
        place = re.search(r"^( *)BLOCK$", hidden, re.M)  # its indentation is that of the block
        self.code = hidden.replace(place[0] + "\n", re.sub("^(?=.)", place[1], text, flags=re.M)) if place else hidden + text


def read(page):
    """Returns the page's blocks, each with the output after it, and its variables."""
    with open(os.path.join(ROOT, page)) as file:
        text = file.read()
    blocks, end = [], 0
    for found in BLOCK.finditer(text):
        if found["kind"] != "text": blocks.append(Block(found, text[:found.start()]))
        elif found.start() == end + 1: blocks[-1].expected = found["text"]
        end = found.end()
    variables = re.search(r"^<!-- environment (.*) -->$", text, re.M)
    return blocks, dict(one.split("=", 1) for one in variables[1].split()) if variables else {}


class Pages(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_program(self, *command, **variables):
        environment = {**os.environ, "PHLOX_SIM_DEVICES": "2", "PHLOX_BACKENDS": "sim", "PHLOX_SANITIZE": "0", "PYTHONPATH": os.path.dirname(HOME), "TREE": ROOT,
                       "PATH": self.folder + os.pathsep + os.environ["PATH"], **variables}
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def tool(self, name, line):
        os.chmod(self.write(name, f"#!/bin/sh\n{line}\n"), 0o755)

    def compare(self, block, output, log):
        if block.expected is None:
            self.assertNotRegex(output, r"(?m)^\w+(Error|Exception)\b", log)
            return
        pattern = ".*".join(map(re.escape, block.expected.strip().split("...")))
        self.assertTrue(re.fullmatch(pattern, output.strip(), re.S), f"expected:\n{block.expected}\noutput:\n{output}\n{log}")

    def python(self, blocks, variables):
        self.write("driver.py", DRIVER)
        names = [self.write(f"block{i}.py", block.code) for i, block in enumerate(blocks)]
        done = self.run_program(sys.executable, "-m", "phlox", "driver.py", *map(os.path.basename, names), **variables)
        outputs = re.split(r"^>>> block\d+\.py\n", done.stdout, flags=re.M)[1:]
        self.assertEqual((done.returncode, len(outputs)), (0, len(blocks)), done.stdout + done.stderr)
        for block, output in zip(blocks, outputs):
            self.compare(block, output, done.stderr)

    def generated(self, blocks):
        """Adds the entries to copies of the tables and runs the generator. Returns the folder of the generated files."""
        opgen = os.path.abspath(os.environ.get("OPGEN", os.path.join(ROOT, "build", "opgen")))
        if not os.path.exists(opgen): self.skipTest("the generator is not built")
        tables, known = [], ""
        for folder, suffix in (("ops", "op"), ("layers", "layer"), ("optim", "optim")):
            shutil.copytree(os.path.join(ROOT, folder), os.path.join(self.folder, folder), dirs_exist_ok=True)
            for name in sorted(os.listdir(os.path.join(self.folder, folder))):
                if not name.endswith("." + suffix): continue
                tables.append(f"{folder}/{name}")
                with open(os.path.join(self.folder, tables[-1])) as file:
                    known += file.read()
        for block in blocks:
            table = block.table or {"op": "ops/pointwise.op", "layer": "layers/conv.layer", "optim": "optim/optimizers.optim"}[block.kind]
            if block.code.partition("(")[0] + "(" not in known:
                with open(os.path.join(self.folder, table), "a") as file:
                    file.write("\n" + block.code)
        out = os.path.join(self.folder, "gen")
        for name in ("phlox/ops", "hidden", "run_functions", "kernel_args", "vmap_rules"):
            os.makedirs(os.path.join(out, name), exist_ok=True)
        done = self.run_program(opgen, out, *tables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out

    def c(self, block, folder, variables):
        kernel = folder and re.search(r"PX_(CUDA_)?KERNEL\(", block.code)
        code = block.code
        if kernel and kernel[1]:
            with open(os.path.join(ROOT, block.home)) as file:
                code = file.read() + code
        if not kernel and "int main(" not in code:
            if "px_status run(void)" not in code: code = f"static px_status run(void) {{\n{code}\nreturn PX_OK;\n}}\n"
            code = ("" if "#include" in code else INCLUDES) + code + MAIN
        source = self.write("program.c", code)
        includes = [f"-I{folder or os.path.join(ROOT, 'build', 'gen')}", f"-I{ROOT}/include"]
        if kernel: includes += [f"-I{ROOT}/src", f"-I{ROOT}/backends"]
        library, program = os.path.join(HOME, "libphlox.so.0"), source[:-2]
        link = ["-fsyntax-only"] if kernel else [library, f"-Wl,-rpath,{HOME}", "-lm", "-o", program]
        done = self.run_program("cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wno-unused", "-Werror", source, *includes, *link)
        self.assertEqual(done.returncode, 0, done.stderr + code)
        if kernel: return
        done = self.run_program(program, **variables)
        self.assertTrue(done.returncode == 0 or block.expected, done.stderr)
        self.compare(block, done.stdout + done.stderr, code)

    def cuda(self, block, folder):
        """Compiles a kernel at the end of the file named before the block, as the Makefile does."""
        with open(os.path.join(ROOT, block.home)) as file:
            source = self.write("kernel.cu", file.read() + block.code)
        done = self.run_program(NVCC, "-std=c++17", "-arch=sm_90", "-Xcicc", "-O0", f"-I{ROOT}/include", f"-I{ROOT}/backends", f"-I{ROOT}/backends/cuda/kernels", f"-I{folder}", "-ptx", source)
        self.assertEqual(done.returncode, 0, done.stderr)

    def shell(self, block, variables):
        self.tool("python3", f'exec "{sys.executable}" "$@"')
        self.tool("pkg-config", f"echo -I{ROOT}/include -I{ROOT}/build/gen {HOME}/libphlox.so.0 -Wl,-rpath,{HOME}")
        done = self.run_program("sh", "-e", "-c", block.code, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.compare(block, done.stdout, done.stderr)

    def page(self, blocks, variables):
        has_c = shutil.which("cc") and os.path.isdir(os.path.join(ROOT, "build", "gen"))
        for block in blocks:
            self.assertIn(block.kind, KINDS, "a block without a known language")
            if block.file: self.write(block.file, block.code)
            if block.source:
                with open(os.path.join(ROOT, block.source)) as file:
                    self.assertIn(re.sub(r"\s+", " ", block.code), re.sub(r"\s+", " ", file.read()))
        blocks = [block for block in blocks if not block.source]
        entries = [block for block in blocks if block.kind in ("op", "layer", "optim")]
        folder = self.generated(entries) if entries else None
        inline = [block for block in blocks if block.kind == "python" and not block.file]
        if inline: self.python(inline, variables)
        for block in blocks:
            if block.kind == "c" and has_c and not block.file: self.c(block, folder, variables)
            if block.kind == "sh" and has_c: self.shell(block, variables)
            if block.kind == "cuda" and NVCC: self.cuda(block, folder)

    def test_commands_that_are_not_run_have_reason_and_known_names(self):
        with open(os.path.join(ROOT, "Makefile")) as file:
            targets = {name for line in re.findall(r"^([\w ./%$()-]+):(?!=)", file.read(), re.M) for name in line.split()}
        for page in pages():
            with open(os.path.join(ROOT, page)) as file:
                text = re.sub(r"^```.*?^```$|^<!-- run\n.*?^-->$", "", file.read(), flags=re.M | re.S)
            for found in COMMANDS.finditer(text):
                with self.subTest(page=page, command=found["lines"].strip().partition("\n")[0]):
                    self.assertRegex(found["above"], r"^<!-- not run: .+ -->$")
                    for line in re.sub(r" #.*", "", found["lines"]).split("\n"):
                        for script in re.findall(r"(?<![\w/-])(?:script|tests|bench|examples)/[\w./-]*\w", line):
                            self.assertTrue(line.strip().startswith("make") or os.path.exists(os.path.join(ROOT, script)), script)
                        for target in re.findall(r"\bmake((?: +(?:[A-Z_]+=(?:'[^']*'|\S+)|-\w+|[a-z][\w.-]*(?= |$)))*)", line):
                            named = [one for one in re.sub(r"'[^']*'", "", target).split() if one[0].islower()]
                            self.assertLessEqual({one for one in named if "/" not in one}, targets)

    def test_code_blocks_run(self):
        counts = {}
        for page in pages():
            blocks, variables = read(page)
            with self.subTest(page=page):
                self.page(blocks, variables)
            for block in blocks:
                counts[block.kind] = counts.get(block.kind, 0) + 1
        print("code blocks:", ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
        self.assertTrue(counts)


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "build", "gen")), "no build/gen")
class Reference(unittest.TestCase):
    """tools/docs.py, without Sphinx: the generated pages have all names."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        os.symlink(os.path.join(ROOT, "build", "gen"), os.path.join(folder.name, "gen"))
        subprocess.run([sys.executable, os.path.join(ROOT, "tools", "docs.py"), folder.name], check=True)
        cls.pages = {}
        for home, _, names in os.walk(os.path.join(folder.name, "docs")):
            for name in names:
                if name.endswith(".md"):
                    with open(os.path.join(home, name)) as file:
                        cls.pages[os.path.relpath(os.path.join(home, name), os.path.join(folder.name, "docs"))] = file.read()

    def text(self, start):
        return "\n".join(text for page, text in self.pages.items() if page.startswith(start))

    def test_every_c_function_is_documented(self):
        for folder, pages in (("include/phlox", "reference/c/"), ("build/gen/phlox/ops", "reference/ops/")):
            text = self.text(pages)
            for name in sorted(os.listdir(os.path.join(ROOT, folder))):
                if not name.endswith(".h"): continue
                with open(os.path.join(ROOT, folder, name)) as file:
                    functions = re.findall(r"^PX_(?:CALL|API) .*?\b(px_\w+)\(", file.read(), re.M)
                self.assertEqual([one for one in functions if not re.search(rf"\b{one}\(", text)], [], name)

    def test_examples_of_headers_pass_all_arguments(self):
        """The examples are fragments, which no compiler accepts: their calls are compared with the prototypes."""
        def arguments(text):
            """Returns the number of arguments at the start of a text that follows `(`, or None for a call cut short."""
            depth, commas = 0, 0
            for at, one in enumerate(text):
                depth += (one in "([{") - (one in ")]}")
                if depth < 0: return commas + bool(text[:at].strip()) if text[:at].strip() != "void" else 0
                commas += one == "," and depth == 0

        headers = "".join(self.pages[page] for page in self.pages if page.startswith(("reference/c/", "reference/ops/")))
        examples = re.findall(r"^```c\n(.*?)^```$", headers, re.M | re.S)
        prototypes = "\n".join(one for one in examples if re.search(r"^px_status px_\w+\(", one, re.M))
        expected = {name: arguments(rest) for name, rest in re.findall(r"^px_status (px_\w+)\(((?:[^;]|\n)*;)", prototypes, re.M)}
        self.assertGreater(len(expected), 1000)
        checked = 0
        for block in examples:
            if block in prototypes: continue
            for call in re.finditer(r"\b(px_\w+)\(", block):
                given = arguments(block[call.end():])
                if call[1] in expected and given is not None:
                    with self.subTest(call=block[call.start():].partition(";")[0]):
                        self.assertEqual(given, expected[call[1]])
                    checked += 1
        print("calls in examples of headers:", checked)
        self.assertGreater(checked, 300)

    def test_every_op_layer_and_optimizer_has_section(self):
        ops, layers, optimizers = (re.findall(r"^## (\w+)$", self.text("reference/" + start), re.M) for start in ("ops/", "layers/", "optimisers"))
        self.assertEqual(len(ops), len(set(ops)))
        self.assertLessEqual({name for name in vars(phlox.optim) if name[0].isupper() and name not in ("Optimizer", "KindOptimizer", "Params")}, set(optimizers))
        self.assertLessEqual({"Linear", "Conv2d", "LSTM", "LazyLinear", "CrossEntropyLoss"}, set(layers))
        for name, type_name in ((name, type(value).__name__) for name, value in vars(phlox).items()):
            if type_name == "op" and not name.endswith("_"):
                self.assertRegex(self.text("reference/ops/"), rf"torch\.{name}\(", name)

    def test_formulas_are_mathematics(self):
        for page, text in self.pages.items():
            if page.startswith("reference/ops/"):
                self.assertNotRegex(text, r"- (?:Each element|Gradient of `\w+`): `", page)

    def test_private_ops_are_last(self):
        for page, text in self.pages.items():
            if page.startswith("reference/ops/"):
                private = [name[0] == "_" for name in re.findall(r"^## (\w+)$", text, re.M)]
                self.assertEqual(private, sorted(private), page)


if __name__ == "__main__":
    unittest.main()
