# SPDX-License-Identifier: Apache-2.0
"""Random and invalid calls of all public names of the package. Any Python exception is allowed, except a SystemError. Crashes, hangs, a MemoryError for small
sizes, and a library that no longer works afterwards are failures.

Earlier failures are in corpus/calls.txt and run first. A case depends only on FUZZ_SEED (default 1) and its number, and is limited to FUZZ_LIMIT seconds
(default 20). FUZZ_FROM=n starts at case n. Cases run for FUZZ_SECONDS (default 10), or with FUZZ_TO=n up to case n, in batches, each in a subprocess; if a
case ends the process, the next batch continues after it. FUZZ_SAMPLES names the samples of the ops (BUILD/gen/samples.inc). FUZZ_NAME=nn.Linear,relu selects names."""
import ast
import contextlib
import inspect
import io
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import types
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = [line for line in open(os.path.join(HERE, "corpus", "calls.txt")).read().splitlines() if line and not line.startswith("#")]
BATCH, ADDRESS_SPACE = 4000, 15 << 30  # cases per process; address space in bytes, of which two simulated devices reserve 9 GiB

# Functions that accept memory of other libraries; called more often.
LENT = ("from_dlpack from_numpy frombuffer as_tensor asarray tensor nn.Parameter utils.dlpack.from_dlpack Tensor.__array_wrap__ Tensor.new_tensor "
        "Tensor.__setitem__ Tensor.__add__").split()

# Names not called, with the reason.
LEFT_OUT = {
    "set_num_threads": "starts any number of threads", "set_num_interop_threads": "likewise",
    "multiprocessing.spawn": "starts any number of processes", "multiprocessing.start_processes": "likewise",
    "cuda.caching_allocator_delete": "takes an address", "cuda.ExternalStream": "likewise", "cuda.get_stream_from_external": "likewise", "cuda.streams.ExternalStream": "likewise",
    "cuda.memory.caching_allocator_delete": "likewise",
    "cuda.CUDAPluggableAllocator": "runs code of a file", "cuda.memory.CUDAPluggableAllocator": "likewise", "ops.load_library": "likewise",
    "memory.main": "a command, which ends the process", "profile.main": "likewise", "devices.main": "likewise", "races.main": "likewise", "distributed.launch.command": "likewise", "distributed.launch.main": "likewise", "distributed.run.command": "likewise", "distributed.run.main": "likewise",
    "utils.data.get_worker_info": "tells about workers, which are processes", "nn.Module.share_memory": "memory of the machine's", "Tensor.share_memory_": "likewise",
    "jit.Future.wait": "waits until another thread gives the value", "jit.wait": "likewise", "futures.Future.wait": "likewise",
    "futures.wait_all": "likewise",
    "overrides.TorchFunctionMode.__enter__": "every call goes to a mode that says nothing, until it is left",
    "overrides.BaseTorchFunctionMode.__enter__": "likewise",
}

# Names that wait for another process, for minutes by default: the position and the name of the timeout, which is set to a tenth of a second.
WAITS = {"distributed.TCPStore": (4, "timeout")}


def setting(name, default):
    return int(os.environ.get(name, default))


# Special methods called by operators, copies and pickles, including repeated or partial initialization.
SPECIAL = ("init new setstate reduce_ex getitem setitem delitem contains len iter next bool int index float complex format repr str hash eq lt add radd "
           "iadd sub rsub mul imul matmul rmatmul truediv rtruediv floordiv mod pow rpow and or xor invert lshift rshift neg abs call enter exit copy "
           "deepcopy array array_wrap dlpack dlpack_device getattr setattr delattr dir torch_function").split()


# ---- names to call
def callables():
    """(path, object) of each public name and of the special methods of classes, sorted by path."""
    import names
    found = {path: value for path, value in names.public() if not inspect.ismodule(value)}
    for path, value in list(found.items()):
        for name in SPECIAL if inspect.isclass(value) else ():
            found.setdefault(f"{path}.__{name}__", getattr(value, f"__{name}__", None))
    return [(path, found[path]) for path in sorted(found) if found[path] is not None and path not in LEFT_OUT]


def parameters(value):
    try:
        return list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return []


# Values of names that examples define on an earlier line.
FREE = {"weight": "torch.nn.Parameter(T([2, 3]))", "x": "T([2, 3])", "optimizer": "torch.optim.SGD([torch.nn.Parameter(T([2]))], lr=0.1)",
        "model": "torch.nn.Linear(3, 2)"}


def source(node):
    return re.sub(r"(?<![\w.'])(weight|x|optimizer|model)(?![\w'=(.])", lambda m: FREE[m[1]], ast.unparse(node))


def arguments_of_examples(path, value):
    """[(positional texts, {name: text})] of the calls in the name's docstring."""
    found = []
    for line in re.findall(r">>> (.*)", value.__doc__ or ""):
        with contextlib.suppress(SyntaxError):
            for node in ast.walk(ast.parse(line)):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) == path.split(".")[-1]:
                    receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
                    method = receiver and not ast.unparse(receiver[0]).startswith("torch.nn") and ast.unparse(receiver[0]) != "torch"
                    positional = (receiver if method else []) + node.args
                    found.append(([source(a) for a in positional], {k.arg: source(k.value) for k in node.keywords if k.arg}))
    return found


def sample_tensor(match):
    kind, sizes = match[1], [int(n) for n in match[2].split(",") if n]
    dtype = {"i": "int64", "perm": "int64", "b": "bool"}.get(kind, "float32")
    return f"T({sizes},{dtype!r})".replace(" ", "")


def arguments_of_samples():
    """The same for the samples of the op tables: {op: [...]}."""
    found, path = {}, os.environ.get("FUZZ_SAMPLES")
    for name, text in re.findall(r'PX_SAMPLE\("(\w+)", "((?:[^"\\]|\\.)*)"', open(path).read() if path else ""):
        text = re.sub(r"\b(perm|[fpusibd])\(([\d,]*)(?:;\d+)?\)", sample_tensor, text)
        text = re.sub(r"\{([^}]*)\}", lambda m: "[" + re.sub(r"(?<=\)) +", ", ", m[1]) + "]", text)
        positional, named = [], {}
        for word in re.findall(r"(?:\w+=)?(?:\[(?:[^\[\]]|\[[^\]]*\])*\]|T\([^)]*\)|'[^']*'|[^\s\[]+)", text):
            key, _, rest = word.partition("=") if re.match(r"[a-z_0-9]+=", word) else ("", "", word)
            rest = f"torch.{rest}" if key == "dtype" else rest
            named.update({key: rest}) if key else positional.append(rest)
        found.setdefault(name, []).append((positional, named))
    return found


class Caller:
    """Generates the source text of a case."""

    def __init__(self):
        import pool
        self.pool, self.names = pool, callables()
        only = os.environ.get("FUZZ_NAME", "").split(",")
        self.names = [pair for pair in self.names if only == [""] or pair[0] in only]
        samples = arguments_of_samples()
        self.lent = [pair for pair in self.names if pair[0] in LENT] or self.names
        self.params = {}
        self.known = {path: arguments_of_examples(path, value) + samples.get(path.split(".")[-1], []) for path, value in self.names}

    def text(self, number):
        """(path, text) of a case; negative numbers are cases of the corpus."""
        if number < 0:
            return f"kept {number}", KEPT[number]
        r = random.Random(setting("FUZZ_SEED", 1) * 1_000_003 + number)
        p = self.pool.Pool(r)
        path, value = r.choice(self.lent if r.random() < 0.08 else self.names)
        if path not in self.params:
            self.params[path] = parameters(value)
        params = self.params[path]
        receiver, _, name = path.rpartition(".")
        if not callable(value):
            return path, f"{p.pick('setattr', 'setattr', 'getattr')}({self.receiver(p, receiver)}, {name!r}, {p.any()})"
        if self.known[path] and r.random() < 0.6:
            positional, named = r.choice(self.known[path])
            positional, named = list(positional), dict(named)
        else:
            positional, named = self.fresh(p, params, receiver)
        self.mutate(p, params, positional, named)
        if path in WAITS:
            position, timeout = WAITS[path]
            del positional[position:]
            named[timeout] = "timedelta(milliseconds=100)"
        arguments = ", ".join(positional + [f"{name}={text}" for name, text in named.items()])
        return path, f"torch.{path}({arguments})"

    def fresh(self, p, params, receiver):
        """An argument for each parameter, except for some with a default."""
        positional, named = [], {}
        for param in params:
            given = param.default is param.empty or p.random.random() < 0.25
            if param.name == "self":
                positional.append(self.receiver(p, receiver))
            elif param.kind is param.VAR_POSITIONAL:
                positional += [p.fitting(param) for _ in range(p.random.randint(0, 3))]
            elif given and param.kind in (param.POSITIONAL_ONLY, param.POSITIONAL_OR_KEYWORD) and not named:
                positional.append(p.fitting(param))
            elif given and param.kind is not param.VAR_KEYWORD and not param.kind is param.POSITIONAL_ONLY:
                named[param.name] = p.fitting(param)
        return positional, named

    def receiver(self, p, path):
        """An object of the class at the path."""
        if path in ("Tensor", "nn.Parameter") or p.random.random() < 0.03:
            return p.tensor()
        if p.random.random() < 0.04:
            return f"torch.{path}.__new__(torch.{path})"
        examples = [f"torch.{path}({', '.join(a + [f'{k}={v}' for k, v in n.items()])})" for a, n in self.known.get(path, [])]
        return p.pick(*examples) if examples else p.module() if path.startswith("nn.") else f"torch.{path}()"

    def mutate(self, p, params, positional, named):
        """Replaces some arguments, and occasionally adds or removes one."""
        r = p.random
        for i in range(len(positional)):
            if r.random() < 0.2:
                positional[i] = f"E({positional[i]}, {r.randint(0, 8)})"
            elif r.random() < 0.2:
                fits = i < len(params) and r.random() < 0.4
                positional[i] = p.fitting(params[i]) if fits else p.any()
        for name in list(named):
            if r.random() < 0.2:
                named[name] = p.pick(p.any(), f"E({named[name]}, {r.randint(0, 8)})")
        extra = r.choice(params).name if params and r.random() < 0.12 else None
        if extra and extra.isidentifier() and extra != "self":
            named[extra] = p.any()
        if r.random() < 0.05:
            positional.append(p.any())
        if positional and r.random() < 0.05:
            positional.pop()


# ---- a case
class Find(Exception):
    pass


def restore(torch):
    """Resets global settings that a call may have changed."""
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.set_printoptions(profile="default")
    torch.autograd.set_detect_anomaly(False)
    torch.cuda.set_sync_debug_mode(0)
    torch.cuda.set_device(0)
    for device in range(torch.cuda.device_count()):
        torch.cuda.set_per_process_memory_fraction(1.0, device)
    torch.manual_seed(0)


def canary(torch):
    with contextlib.suppress(Exception):  # errors reported by the case's kernels
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)
    with contextlib.suppress(Exception):
        torch.cuda.synchronize(1)
    for device in ("cpu", "cuda:0", "cuda:1"):
        x = torch.ones(2, 3, device=device, requires_grad=True)
        y = (x * 2 + 1).sum()
        y.backward()
        if (y.detach() + x.grad.sum() * 100).item() != 18 + 1200:
            raise Find(f"the library computes wrong numbers on {device}")


def use(torch, result):
    """Uses the result of a call."""
    if isinstance(result, torch.Tensor):
        if result.numel() <= 4096:
            repr(result), result.tolist(), result.clone(), result + 1
            if result.requires_grad:
                result.sum().backward()
    elif isinstance(result, torch.nn.Module):
        repr(result), result.state_dict(), result(torch.ones(2, 3))
    elif isinstance(result, (tuple, list)):
        for part in result[:4]:
            use(torch, part)
    elif isinstance(result, types.GeneratorType) or hasattr(result, "__next__"):
        for _ in range(3):
            use(torch, next(result))
    elif type(result).__module__ not in ("pool", "builtins"):
        repr(result), hash(result), result == result


def needs_little_memory(text):
    """True if the text has no number large enough to request much memory. Tiny numbers count as well, since sizes may be divided by them."""
    return not re.search(r"Lies|\bE\(|\*\*|\d{6}|e\d{3}|e-\d|b'bytes'|memoryview", text)


def run_case(torch, space, text):
    try:
        use(torch, eval(text, dict(space)))
    except SystemError as error:
        raise Find(f"SystemError: {error}") from error
    except MemoryError as error:
        if needs_little_memory(text):
            raise Find("MemoryError") from error
    except (Exception, GeneratorExit) as error:
        repr(error) if not isinstance(error, space["Hostile"]) else None
    except (SystemExit, KeyboardInterrupt) as error:
        raise Find(repr(error)) from error
    restore(torch)
    canary(torch)


def worker(first, last):
    """Runs cases. Prints `NUMBER PATH` before each, and a line `find NUMBER WHAT TEXT` for each failure."""
    sys.path[:0] = [HERE, os.path.join(HERE, "..", "python")]
    import phlox as torch
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    caller, out, alone = Caller(), os.dup(1), last - first == 1
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout, sys.unraisablehook = io.StringIO(), lambda hint: None
    for number in range(first, last):
        path, text = caller.text(number)
        os.write(out, f"{number} {text[:600] if alone else path}\n".encode(errors="replace"))
        signal.alarm(setting("FUZZ_LIMIT", 20))
        try:
            run_case(torch, caller.pool.NAMES, text)
        except Exception as error:
            what = error if isinstance(error, Find) else f"the library no longer works after it: {error!r}"
            os.write(out, f"find {number} {what}: {text[:600]}\n".encode(errors="replace"))
            if not isinstance(error, Find):
                return
        signal.alarm(0)
        sys.stdout.seek(0), sys.stdout.truncate()


# ---- batches
def batch(first, last, folder):
    """Runs cases in a subprocess. Returns the failures and the number of the next case."""
    with open(os.path.join(folder, "log"), "wb+") as log, open(os.path.join(folder, "errors"), "wb+") as errors:
        process = subprocess.run([sys.executable, os.path.abspath(__file__), "worker", str(first), str(last)], stdout=log, stderr=errors, cwd=folder,
                                 stdin=subprocess.DEVNULL)
        log.seek(0)
        lines = log.read().decode(errors="replace").splitlines()
        errors.seek(0)
        trouble = errors.read().decode(errors="replace")
    finds = [line for line in lines if line.startswith("find ")]
    begun = [line for line in lines if re.match(r"-?\d", line)]
    if not begun:
        sys.exit(f"no case ran:\n{trouble[-3000:]}")
    number = int(begun[-1].split()[0])
    if process.returncode:
        why = "hangs" if process.returncode == -signal.SIGALRM else f"ends the process ({process.returncode})"
        frames = "; ".join(re.findall(r"#\d+ 0x\w+ in (\S+ \S+:\d+)|(\S+: runtime error: .*)", trouble)[0:6] and
                           ["".join(m) for m in re.findall(r"#\d+ 0x\w+ in (\S+ \S+:\d+)|(\S+: runtime error: .*)", trouble)[:6]])
        finds.append(f"find {number} {why}: {begun[-1]} {frames}")
    return finds, number + 1


def main():
    os.environ.setdefault("PHLOX_SIM_DEVICES", "2")
    os.environ.setdefault("PHLOX_SIM_MEMORY", "256M")
    only, first = os.environ.get("FUZZ_CASE"), setting("FUZZ_FROM", -len(KEPT))
    last, begin, count, finds = setting("FUZZ_TO", sys.maxsize), time.monotonic(), 0, []
    end = begin + float(os.environ.get("FUZZ_SECONDS", "10"))
    with tempfile.TemporaryDirectory() as folder:
        if only:
            finds, _ = batch(int(only), int(only) + 1, folder)
            print(open(os.path.join(folder, "log")).read(), open(os.path.join(folder, "errors")).read()[-4000:], *finds, sep="\n")
            sys.exit(len(finds) > 0)
        while first < last and (last < sys.maxsize or time.monotonic() < end):
            new, following = batch(first, min(first + BATCH, last), folder)
            count, first = count + following - first, following
            for find in new:
                print(find, flush=True)
            finds += new
    print(f"calls: {count} cases, {count / (time.monotonic() - begin):.0f} a second, {len(finds)} finds (FUZZ_SEED={setting('FUZZ_SEED', 1)})")
    print(f"{int(not finds)} passed, {int(bool(finds))} failed")
    sys.exit(len(finds) > 0)


if __name__ == "__main__":
    worker(int(sys.argv[2]), int(sys.argv[3])) if sys.argv[1:2] == ["worker"] else main()
