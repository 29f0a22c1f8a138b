# SPDX-License-Identifier: Apache-2.0
"""Steps of training on GPUs beside what virtual time tells of them: `python3 bench/measured.py [names of rows]`.

Measures each row of bench/models.py and bench/distributed.py on this machine, and by build/bench/calibrate the figures of the machine itself, and writes
both to a file. Then it tells the rows' virtual time, by the figures of PHLOX_SIM_MACHINE (an H200's by default) and by those that were measured, and how far each is
off. `--read FILE` does that with what was measured before, and needs no GPU. Where there is none, simulated devices are measured in its place, in virtual time.

The host's time for a launch (`issue_ns`), which calibrate measures from C, is here that of a step of a net too small to keep a device busy, from Python.
"""
import argparse, json, os, sys, tempfile, types

import distributed, models, predict, run

WANTED = ("MLP step, b128", "CNN step, b64", "ResNet-50, bfloat16, channels_last, b128", "GPT-2 124M, bfloat16, 16x1024", "GPT-2 124M, bfloat16 by autocast, 32x1024",
          "DataParallel over 2, MLP-4096, tf32, b256", "DataParallel over 2, MLP-4096, tf32, b8192",
          "DDP, MLP-4096, tf32, b256", "DDP, MLP-4096, tf32, b8192", "GPT-2 124M, bfloat16 by autocast, 32x1024 a rank, DDP")
HOST = "a small net, of which the host's time is measured"
DEFAULT_ISSUE = 6000  # nanoseconds of a launch, as backends/sim/cost_model.h has it


@models.row(HOST, aside=True)
def small(o):
    nn = o.torch.nn
    net = nn.Sequential(*[part for _ in range(8) for part in (nn.Linear(16, 16), nn.ReLU())]).to(o.device)
    x = o.torch.zeros(16, 16, device=o.device)
    return models.train(o, net, lambda net: net(x).square().mean(), models.sgd(o, net)), None


def devices_of(name):
    return 2 if name in distributed.ROWS else models.ROWS[name][1].get("devices", 1)


# ---- what is measured, in processes of their own

def worker(name, o):
    """Prints the seconds of a step of a row of bench/models.py."""
    function, more = models.ROWS[name]
    torch = run.bind("phlox")
    o = types.SimpleNamespace(torch=torch, device="cuda", tiny=o.tiny, losses=0, names=[name], clock=o.clock, seconds=o.seconds, wait=torch.cuda.synchronize)
    print(json.dumps(models.measure(o, function, more)["seconds"]))


def measure(name, o, env):
    """Seconds of a step; None, and an error, if it fails."""
    if name in distributed.ROWS:
        job = types.SimpleNamespace(names=[name], ranks=2, device="cuda", seconds=o.seconds, tiny=o.tiny)
        line = {name: {"error": "no rank told of it"}}
        for told in distributed.job(job, sys.executable, "phlox"): line.update(told)
        if "error" in line[name]: return print(f"{name}: {line[name]['error']}", file=sys.stderr)
        return worth(name, o.tiny) / line[name]["figure"] if distributed.ROWS[name][1]["unit"] == "tokens/s" else line[name]["figure"]
    clock = "virtual" if env["PHLOX_BACKENDS"] == "sim" else "wall"
    return run.found(name, sys.executable, os.path.abspath(__file__), name, "--worker", "--seconds", str(o.seconds), "--clock", clock, *["--tiny"] * o.tiny, **env)


def worth(name, tiny):
    """Tokens of a step of two ranks."""
    return 2 * (2 * 16 if tiny else 32 * 1024)


def calibrated(o, env):
    """The lines of build/bench/calibrate; none if it is not there."""
    program = os.path.join(run.ROOT, "build", "bench", "calibrate")
    if not os.path.exists(program): return ""
    with tempfile.NamedTemporaryFile("r", suffix=".machine") as file:
        run.output(program, file.name, *[str(o.matrix)] * (o.matrix > 0), **env)
        return file.read()


def measure_all(o):
    gpu = run.has_gpu(sys.executable, "phlox")
    env = {"PHLOX_BACKENDS": "cuda"} if gpu else {**run.SIMULATED, "PHLOX_SIM_DEVICES": "2"}
    have = int(run.output(sys.executable, "-c", "import phlox; print(phlox.cuda.device_count())", **env))
    found = {"device": run.output(sys.executable, "-c", "import phlox; print(phlox.cuda.get_device_name())", **env).strip(), "machine": calibrated(o, env), "rows": {}}
    for name in [HOST, *o.names]:
        if devices_of(name) > have or not gpu and name in distributed.ROWS: continue
        found["rows"][name] = measure(name, o, env)
        print(f"measured: {name:68}{predict.text(found['rows'][name] and 1e3 * found['rows'][name]):>10} ms", flush=True)
    with open(o.out, "w") as file: json.dump(found, file, indent=1)
    return found


# ---- what is told

def told(name, tiny, figures):
    """Milliseconds of virtual time."""
    if name in distributed.ROWS: return predict.apart("ranks", name, str(int(tiny)), devices=2, figures=figures)
    return predict.apart("row", name, str(int(tiny)), devices=devices_of(name), figures=figures)


def issue_line(found, tiny):
    """The host's time for a launch, by the small net."""
    virtual, seconds = told(HOST, tiny, f"issue_ns = {DEFAULT_ISSUE}\nkernel_ns = 0\n"), found["rows"].get(HOST)
    return f"issue_ns = {DEFAULT_ISSUE * 1e3 * seconds / virtual:.0f}\n" if virtual and seconds else ""


def compare(found, o):
    machine = found["machine"] + issue_line(found, o.tiny)
    print(f"\n{found['device']}: its figures, as PHLOX_SIM_MACHINE takes them\n{machine}")
    print(f"{'a step, ms':60}{'measured':>10}{'told':>10}{'off by':>9}{'by its figures':>16}{'off by':>9}")
    for name in o.names:
        measured = found["rows"].get(name)
        line = f"{name:60}{predict.text(measured and 1e3 * measured):>10}"
        for figures, width in ("", 10), (machine, 16):
            ms = told(name, o.tiny, figures)
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
        with open(o.read) as file: found = json.load(file)
    compare(found if o.read else measure_all(o), o)


if __name__ == "__main__":
    main()
