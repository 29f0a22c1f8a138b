# SPDX-License-Identifier: Apache-2.0
"""The small examples in C and Python, and the programs on pages: they run and print the expected output. The toy backend passes the conformance
tests of backends."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import phlox

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILT = os.path.join(ROOT, "build", "examples")
TESTS = os.path.join(ROOT, "build", "tests")


def run(*command, **env):
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(phlox.__file__)), **env}
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300)


@unittest.skipUnless(os.path.exists(os.path.join(BUILT, "own_op")), "the examples are not built: make examples")
class Examples(unittest.TestCase):
    def check_output(self, name, wanted, **env):
        for command in [os.path.join(BUILT, name)], [sys.executable, "-m", "phlox", f"examples/{name}.py"]:
            done = run(*command, **env)
            self.assertEqual((done.stderr, done.returncode), ("", 0))
            self.assertEqual(done.stdout, wanted)

    def test_memory_history(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run(sys.executable, "-m", "phlox", "examples/memory.py", f"{folder}/memory.pickle", PHLOX_SIM_DEVICES="1")
            most = r"46\.2" if phlox.cuda._backend_name() == "sim" else r"\d+\.\d"  # kernels on a GPU need other scratch memory
            self.assertEqual(done.stderr, "")
            self.assertRegex(done.stdout, rf"^{most} MiB at most\n$")
            done = run(sys.executable, "-m", "phlox.memory", f"{folder}/memory.pickle")
            self.assertEqual((done.stderr, done.stdout), ("", f"{folder}/memory.svg\n{folder}/memory.html\n"))

    def test_graph(self):
        self.check_output("graph", "".join(f"mean of squares: {n}\n" for n in (1, 4, 9)), PHLOX_SIM_DEVICES="1")

    def test_streams_and_events(self):
        for mode in "threads", "schedule":
            self.check_output("streams", "batch 0: 1\nbatch 1: 4\nbatch 2: 9\nbatch 3: 16\n", PHLOX_SIM_DEVICES="1", PHLOX_SIM_MODE=mode,
                      PHLOX_SIM_DELAY="100", PHLOX_SANITIZE="1")

    def test_custom_gradient(self):
        self.check_output("own_gradient", """\
value tensor([1.3839e-87, 6.9315e-01, 1.3133e+00, 2.0000e+02], dtype=torch.float64,
       grad_fn=<SoftplusBackward>)
gradient tensor([1.3839e-87, 5.0000e-01, 7.3106e-01, 1.0000e+00], dtype=torch.float64)
the gradient agrees with differences
""")

    @unittest.skipUnless(phlox._C._engine_available("gloo"), "the gloo backend is not built")
    def test_data_parallel_processes_match_one_process(self):
        for name, command in ("ddp.c", [os.path.join(BUILT, "ddp")]), ("ddp.py", [sys.executable, "-m", "phlox", "examples/ddp.py"]):
            for devices in "0", "4":
                found = []
                for size in "1", "2", "4":
                    done = run(*command, size, PHLOX_SIM_DEVICES=devices)
                    self.assertEqual((done.stderr, done.returncode), ("", 0))
                    found.append([float(line.split()[-1]) for line in done.stdout.splitlines()])
                with self.subTest(name, devices=devices):
                    self.assertLess(found[0][-1], found[0][0] / 2)
                    for losses in found[1:]:
                        self.assertTrue(all(abs(a - b) < 1e-2 for a, b in zip(losses, found[0], strict=True)), found)

    def test_custom_op(self):
        self.check_output("own_op", """\
value tensor([0.5000, 1.0000, 2.0000], grad_fn=<SquareplusBackward0>)
gradient tensor([0.2000, 0.5000, 0.8000])
value tensor([0.5000, 1.0000, 2.0000], device='cuda:0',
       grad_fn=<SquareplusBackward0>)
gradient tensor([0.2000, 0.5000, 0.8000], device='cuda:0')
""", PHLOX_SIM_DEVICES="1")


class Checkpoint(unittest.TestCase):
    def test_resumed_training_matches_uninterrupted(self):
        done = run(sys.executable, "-m", "phlox", "examples/checkpoint.py")
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        self.assertRegex(done.stdout, r"^loss \d\d\.\d\d to \d\.\d\d; the same after a stop: True, and the averages: True\n$")


class LanguageModel(unittest.TestCase):
    def run_example(self, *arguments, **env):
        done = run(sys.executable, "-m", "phlox", "examples/lstm_lm.py", *arguments, **env)
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        return done.stdout.splitlines()

    def test_learns_addition_on_cpu_and_device(self):
        for devices, hidden in ("0", {"CUDA_VISIBLE_DEVICES": ""}), ("1", {}):
            *steps, first, second = self.run_example(PHLOX_SIM_DEVICES=devices, **hidden)
            perplexity = [float(re.fullmatch(r"step +\d+: perplexity ([\d.]+) of 12 words", line)[1]) for line in steps]
            self.assertTrue(len(perplexity) == 6 and 1.6 < perplexity[-1] < 2 < perplexity[0] < 5, perplexity)
            self.assertEqual((first, second), ("two plus three is five", "four plus zero is four"))

    def test_reads_text_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("to be or not to be , that is the question . " * 100)
            file.flush()
            lines = self.run_example(file.name)
        self.assertEqual(lines[-1], "to be or not to be")


class TrainingLoops(unittest.TestCase):
    def test_mixed_precision(self):
        for devices, dtype, scale in ("1", "float16", 65536), ("0", "bfloat16", 1):
            hidden = {} if devices == "1" else {"CUDA_VISIBLE_DEVICES": ""}
            done = run(sys.executable, "-m", "phlox", "examples/amp.py", PHLOX_SIM_DEVICES=devices, **hidden)
            self.assertEqual((done.stderr, done.returncode), ("", 0))
            lines = re.findall(rf"^epoch \d: (\d+) % of torch\.{dtype}, scale {scale}$", done.stdout, re.M)
            self.assertEqual(len(lines), 5, done.stdout)
            self.assertGreater(int(lines[-1]), 90)


def installed_torch():
    """The command that runs an example on PyTorch, if a recent one is installed."""
    code = "import torch; print(torch.__version__) if hasattr(torch, '_dynamo') and 'phlox' not in torch.__file__ else 0"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    return [sys.executable] if re.match(r"2\.1[5-9]", done.stdout) else None


class Models(unittest.TestCase):
    """Tutorial programs: they learn on the CPU and on a device, and print PyTorch's numbers for the same seed."""

    def run_example(self, name, pattern, compare=True, arguments=(), **env):
        done = run(sys.executable, "-m", "phlox", f"examples/{name}.py", *arguments, **{"PHLOX_SIM_DEVICES": "0", **env})
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        if compare and (real := installed_torch()):
            wanted = run(*real, f"examples/{name}.py", *arguments, OMP_NUM_THREADS="1")
            numbers = [[float(number) for number in re.findall(r"-?\d+\.\d+", text)] for text in (done.stdout, wanted.stdout)]
            self.assertEqual(len(numbers[0]), len(numbers[1]), wanted.stderr)
            for ours, theirs in zip(*numbers):
                self.assertAlmostEqual(ours, theirs, delta={"vae": 0.11, "gpt2": 0.035}.get(name, 0.0021))  # GPT-2: one bfloat16 step
        return [[float(number) for number in match] for match in re.findall(pattern, done.stdout, re.M)], done.stdout

    def test_vae(self):
        losses, text = self.run_example("vae", r"^epoch (\d+): ([\d.]+)$")
        self.assertEqual([round(epoch) for epoch, _ in losses], [0, 7, 14])
        self.assertTrue(36 < losses[0][1] < 40 and 24 < losses[-1][1] < 27, losses)
        self.assertEqual(len(re.findall(r"^[ .:*#]{32}$", text, re.M)), 8)

    def test_gan(self):
        for devices in "0", "1":
            losses, text = self.run_example("gan", r"^epoch \d+: ([\d.]+) ([\d.]+)$", devices == "0", PHLOX_SIM_DEVICES=devices)
            self.assertTrue(len(losses) == 6 and all(1 < judged < 1.5 and 0.5 < fooled < 1.2 for judged, fooled in losses), losses)
            rows = re.findall(r"^[ .:*#]{32}$", text, re.M)
            left = "".join(row[at] for row in rows for at in range(32) if at % 8 in (0, 7))
            self.assertTrue(len(rows) == 8 and left.count(" ") > 55, text)  # the edges of digits are blank

    def test_transformer(self):
        for devices in "0", "1":
            losses, text = self.run_example("transformer", r"^epoch +(\d+): loss ([\d.]+)$", devices == "0", PHLOX_SIM_DEVICES=devices)
            self.assertTrue(len(losses) == 5 and losses[0][1] > 2 and losses[-1][1] < 0.1, losses)
            self.assertGreater(int(re.search(r"^(\d+)% of 297 digits are read$", text, re.M)[1]), 80)

    def test_gpt2(self):
        small = "LICENSE --steps 31 --batch 4 --length 32 --size 32 --heads 2 --layers 2 --words 256".split()
        for devices in "0", "1":
            ends = []
            for more in [], ["--autocast"]:
                losses, _ = self.run_example("gpt2", r"^step +(\d+): loss ([\d.]+)$", devices == "0", small + more, PHLOX_SIM_DEVICES=devices)
                self.assertTrue(len(losses) == 4 and losses[0][1] > 5.4 and losses[-1][1] < losses[0][1] - 0.3, losses)
                ends.append(losses[-1][1])
            self.assertAlmostEqual(*ends, delta=0.05)

    @unittest.skipUnless(os.path.exists(os.path.join(BUILT, "gpt2")), "the examples are not built: make examples")
    def test_gpt2_in_c_has_same_losses(self):
        small = "LICENSE --steps 12 --batch 3 --length 24 --size 48 --heads 3 --layers 3 --words 256".split()
        for devices in "0", "1":
            for more in [], ["--autocast"]:
                _, wanted = self.run_example("gpt2", "^$", False, small + more, PHLOX_SIM_DEVICES=devices)
                done = run(os.path.join(BUILT, "gpt2"), *small, *more, PHLOX_SIM_DEVICES=devices)
                self.assertEqual((done.stderr, done.returncode), ("", 0))
                self.assertEqual(done.stdout, wanted)
                self.assertEqual(done.stdout.count("loss"), 3)

    @unittest.skipUnless(os.path.exists(os.path.join(BUILT, "gpt2")), "the examples are not built: make examples")
    def test_gpt2_in_c_reports_errors(self):
        for arguments, code, text in ((), 2, "usage"), (("README.md", "--steps"), 2, "usage"), (("README.md", "--heads", "x"), 2, "usage"), \
                (("absent.txt",), 1, "FileNotFoundError: cannot open 'absent.txt'"), \
                (("README.md", "--length", "100000000"), 1, "ValueError: 'README.md' has"):
            done = run(os.path.join(BUILT, "gpt2"), *arguments, PHLOX_SIM_DEVICES="0")
            self.assertEqual((done.stdout, done.returncode), ("", code))
            self.assertIn(text, done.stderr)

    def test_resnet50(self):
        small = "--steps 6 --batch 4 --size 32 --width 4".split()
        for devices in "0", "1":
            for more in [], ["--float32"]:
                # The last number is a time.
                losses, text = self.run_example("resnet50", r"^step +(\d+): loss ([\d.]+)$", False, small + more, PHLOX_SIM_DEVICES=devices)
                self.assertTrue(len(losses) == 2 and losses[1][1] < losses[0][1], losses)
                self.assertRegex(text, r"\n\d+ pictures a second")

    def test_hogwild(self):
        (steps, before, after), = self.run_example("hogwild", r"^3 processes, (\d+) steps: (\d+)% of the digits before, (\d+)% after$", False)[0]
        self.assertTrue(steps <= 1128 and before < 30 and after > 80, (steps, before, after))

    def test_checkpointing_has_same_losses_and_less_memory(self):
        losses, text = self.run_example("checkpointing", r"^losses " + r"([\d.]+) ?" * 5 + "$")
        self.assertGreater(losses[0][0], losses[0][-1] + 0.5)
        self.assertEqual(re.findall(r"^(\w+): the same losses: True\b", text, re.M), ["each_again", "in_parts"])
        memory, _ = self.run_example("checkpointing", r"losses: True, (\d+) MiB instead of (\d+)$", False, PHLOX_SIM_DEVICES="1")
        self.assertEqual([again < whole / 2 for again, whole in memory], [True, True], memory)

    def test_actor_critic(self):
        steps, _ = self.run_example("actor_critic", r"^episode \d+: (\d+) steps, ([\d.]+) on average", False)
        self.assertTrue(len(steps) == 10 and steps[0][1] < 40 and steps[-1][1] > 80, steps)


@unittest.skipUnless(os.path.exists(os.path.join(BUILT, "libphlox_toy.so")), "the toy backend is not built: make examples")
class ToyBackend(unittest.TestCase):
    def check_conformance(self, program, skipped, **env):
        done = run(os.path.join(TESTS, "cts", program), **env)
        summary = done.stdout.splitlines()[-1]
        self.assertRegex(summary, rf"^\d+ passed, 0 failed, {skipped} skipped$", done.stdout + done.stderr)

    def test_backend_table_conforms(self):  # skips tests of the simulator, or of backends with shared memory
        self.check_conformance("backend", 18, CTS_BACKEND=os.path.join(BUILT, "libphlox_toy.so"))

    def test_library_conforms_on_backend(self):
        self.check_conformance("conformance", 18, PHLOX_BACKENDS="toy", PHLOX_BACKEND_PATH=BUILT)

    def test_backend_serves_cuda_devices(self):
        code = "import phlox as torch; print(torch.cuda.get_device_name(1), (torch.ones(2, device='cuda:1') + 1).sum().item())"
        done = run(sys.executable, "-c", code, PHLOX_BACKENDS="toy", PHLOX_BACKEND_PATH=BUILT)
        self.assertEqual(done.stdout, "Phlox toy device 4.0\n", done.stderr)


@unittest.skipUnless(shutil.which("cc") and os.path.isdir(os.path.join(ROOT, "build", "gen")), "no C compiler, or no build/gen")
class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = os.path.join(folder.name, "train.c")

    def blocks(self, page, language):
        with open(os.path.join(ROOT, "docs", page)) as file:
            found = re.findall(r"^```(\w*)\n(.*?)^```$", file.read(), re.M | re.S)
        return [text for name, text in found if name == language]

    def run_c(self, source):
        with open(self.program, "w") as file:
            file.write(source)
        library = os.path.join(os.path.dirname(phlox.__file__), "libphlox.so.0")
        flags = [f"-I{ROOT}/include", f"-I{ROOT}/build/gen", f"-Wl,-rpath,{os.path.dirname(library)}", "-o", self.program[:-2]]
        subprocess.run(["cc", "-std=c11", os.path.basename(self.program), library, *flags], cwd=os.path.dirname(self.program), check=True)
        return run(self.program[:-2], PHLOX_SIM_DEVICES="1")

    def test_first_program_is_hello(self):
        program = self.blocks("learn/first-network.md", "c")[0]
        with open(os.path.join(ROOT, "examples", "hello.c")) as file:
            self.assertIn(program.removeprefix("// hello.c\n"), file.read())
        done = self.run_c(program)
        self.assertEqual(done.stdout, "tensor([2., 4., 6.], device='cuda:0')\n", done.stderr)

    def test_error_on_c_page_matches(self):
        program, documented = self.blocks("reference/c-api.md", "c")[0], self.blocks("reference/c-api.md", "text")[0]
        self.assertEqual(self.run_c(program).returncode, 0)
        wrong = self.run_c(program.replace("px_linear_new(&model, 1, ", "px_linear_new(&model, 3, "))
        without_lines = [re.sub(r":\d+", "", text) for text in (wrong.stderr, documented)]
        self.assertEqual(*without_lines)


if __name__ == "__main__":
    unittest.main()
