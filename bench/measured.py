# SPDX-License-Identifier: Apache-2.0
"""Measured steps of training on GPUs compared to their virtual time: `python3 bench/measured.py [names of rows]`.

Measures rows of bench/models.py and bench/distributed.py on this machine, and the machine's parameters by build/bench/calibrate, and writes both to a file. Then
computes the rows' virtual time, with the parameters of PHLOX_SIM_MACHINE (default: an H200's) and with the measured ones, and prints the relative errors.
`--read FILE` uses an earlier measurement and needs no GPU. Without a GPU, simulated devices are measured in virtual time.

calibrate measures the host's time per launch (`issue_ns`) from C. Here it is derived from a step of a net too small to keep a device busy, from Python.
"""
import argparse, json, os, sys, tempfile, types

import distributed, models, predict, run

WANTED = ("MLP step, b128", "CNN step, b64", "ResNet-50, bfloat16, channels_last, b128", "GPT-2 124M, bfloat16, 16x1024", "GPT-2 124M, bfloat16 by autocast, 32x1024",
          "DataParallel over 2, MLP-4096, tf32, b256", "DataParallel over 2, MLP-4096, tf32, b8192",
          "DDP, MLP-4096, tf32, b256", "DDP, MLP-4096, tf32, b8192", "GPT-2 124M, bfloat16 by autocast, 32x1024 a rank, DDP")
HOST = "a small net, of which the host's time is measured"
DEFAULT_ISSUE = 6000  # nanoseconds per launch; the default in backends/sim/cost_model.h


@models.row(HOST, aside=True)
def small(o):
    nn = o.torch.nn
    net = nn.Sequential(*[part for _ in range(8) for part in (nn.Linear(16, 16), nn.ReLU())]).to(o.device)
    x = o.torch.zeros(16, 16, device=o.device)
    return models.train(o, net, lambda net: net(x).square().mean(), models.sgd(o, net)), None


def devices_of(name):
    return 2 if name in distributed.ROWS else models.ROWS[name][1].get("devices", 1)


# ---- measuring, in separate processes

def worker(name, o):
    """Prints the seconds of a step of a row of bench/models.py."""
    function, more = models.ROWS[name]
    torch = run.bind("phlox")
    o = types.SimpleNamespace(torch=torch, device="cuda", tiny=o.tiny, losses=0, names=[name], clock=o.clock, seconds=o.seconds, wait=torch.cuda.synchronize)
    print(json.dumps(models.measure(o, function, more)["seconds"]))


def measure(name, o, env):
    """Returns the seconds of a step. Prints an error and returns None on failure."""
    if name in distributed.ROWS:
        job = types.SimpleNamespace(names=[name], ranks=2, device="cuda", seconds=o.seconds, tiny=o.tiny)
        line = {name: {"error": "no rank reported it"}}
        for result in distributed.job(job, sys.executable, "phlox"): line.update(result)
        if "error" in line[name]: return print(f"{name}: {line[name]['error']}", file=sys.stderr)
        return tokens_of(name, o.tiny) / line[name]["figure"] if distributed.ROWS[name][1]["unit"] == "tokens/s" else line[name]["figure"]
    clock = "virtual" if env["PHLOX_BACKENDS"] == "sim" else "wall"
    return run.last_json(name, sys.executable, os.path.abspath(__file__), name, "--worker", "--seconds", str(o.seconds), "--clock", clock, *["--tiny"] * o.tiny, **env)


def tokens_of(name, tiny):
    """Returns the tokens of a step of two ranks."""
    return 2 * (2 * 16 if tiny else 32 * 1024)


def calibrated(o, env):
    """Returns the output of build/bench/calibrate, or "" if it is not built."""
    program = os.path.join(run.ROOT, "build", "bench", "calibrate")
    if not os.path.exists(program): return ""
    with tempfile.NamedTemporaryFile("r", suffix=".machine") as file:
        run.output(program, file.name, *[str(o.matrix)] * (o.matrix > 0), **env)
        return file.read()


def measure_all(o):
    gpu = run.has_gpu(sys.executable, "phlox")
    env = {"PHLOX_BACKENDS": "cuda"} if gpu else {**run.SIMULATED, "PHLOX_SIM_DEVICES": "2"}
    have = int(run.output(sys.executable, "-c", "import phlox; print(phlox.cuda.device_count())", **env))
    results = {"device": run.output(sys.executable, "-c", "import phlox; print(phlox.cuda.get_device_name())", **env).strip(), "machine": calibrated(o, env), "rows": {}}
    for name in [HOST, *o.names]:
        if devices_of(name) > have or not gpu and name in distributed.ROWS: continue
        results["rows"][name] = measure(name, o, env)
        print(f"measured: {name:68}{predict.text(results['rows'][name] and 1e3 * results['rows'][name]):>10} ms", flush=True)
    with open(o.out, "w") as file: json.dump(results, file, indent=1)
    return results


# ---- virtual time

def virtual_ms(name, tiny, figures):
    """Returns milliseconds of virtual time."""
    if name in distributed.ROWS: return predict.in_process("ranks", name, str(int(tiny)), devices=2, figures=figures)
    return predict.in_process("row", name, str(int(tiny)), devices=devices_of(name), figures=figures)


def issue_line(results, tiny):
    """Returns the host's time per launch, derived from the small net, as a line of the machine file."""
    virtual, seconds = virtual_ms(HOST, tiny, f"issue_ns = {DEFAULT_ISSUE}\nkernel_ns = 0\n"), results["rows"].get(HOST)
    return f"issue_ns = {DEFAULT_ISSUE * 1e3 * seconds / virtual:.0f}\n" if virtual and seconds else ""


def compare(results, o):
    machine = results["machine"] + issue_line(results, o.tiny)
    print(f"\n{results['device']}: its figures, as PHLOX_SIM_MACHINE takes them\n{machine}")
    print(f"{'a step, ms':60}{'measured':>10}{'virtual':>10}{'off by':>9}{'by its figures':>16}{'off by':>9}")
    for name in o.names:
        measured = results["rows"].get(name)
        line = f"{name:60}{predict.text(measured and 1e3 * measured):>10}"
        for figures, width in ("", 10), (machine, 16):
            ms = virtual_ms(name, o.tiny, figures)
            line += f"{predict.text(ms):>{width}}" + (f"{ms / (1e3 * measured) - 1:+9.1%}" if ms and measured else f"{'-':>9}")
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(WANTED), help="names of rows")
    parser.add_argument("--read", help="a file that was written before; nothing is measured")
    parser.add_argument("--out", default=os.path.join(run.ROOT, "build", "measured.json"))
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a row is measured")
    parser.add_argument("--matrix", type=int, default=0, help="the size of calibrate's matrices; 0: its own")
    parser.add_argument("--tiny", action="store_true", help="small models: to see that all rows run")
    parser.add_argument("--clock", default="wall", help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    for name in o.names:
        if name not in models.ROWS and name not in distributed.ROWS: sys.exit(f"no row is called {name!r}")
    if o.worker: return worker(o.names[0], o)
    if o.read:
        with open(o.read) as file: results = json.load(file)
    compare(results if o.read else measure_all(o), o)


if __name__ == "__main__":
    main()
