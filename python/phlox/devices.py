# SPDX-License-Identifier: Apache-2.0
"""python3 -m phlox.devices [-o FILE.html]

Lists the backends for devices and for collectives, each with its devices or with the reason why it is
not used, and draws them as a page. Each backend is tried in a process of its own."""
import ctypes, json, os, subprocess, sys

import phlox
from phlox import _viewer

_TRY = """
import json, sys
sys.path.insert(0, sys.argv[1])
from phlox import cuda
found, why = [], ""
try:
    cuda.init()
    found = [{"name": p.name, "bytes": p.total_memory, "capability": f"{p.major}.{p.minor}", "multiprocessors": p.multi_processor_count}
             for p in map(cuda.get_device_properties, range(cuda.device_count()))]
except Exception as error:
    why = str(error)
print(json.dumps([found, why]))
"""


def _try(name):
    """Returns a backend's devices, and the reason if it has none."""
    if name == "cuda":
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            return [], f"the driver cannot be loaded: {error}"
    done = subprocess.run([sys.executable, "-c", _TRY, os.path.dirname(os.path.dirname(phlox.__file__))], env=dict(os.environ, PHLOX_BACKENDS=name),
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else ([], f"its process ended with {done.returncode}")


def _rows():
    used = None
    yield "cpu", [{"name": phlox.backends.cpu.get_cpu_capability(), "threads": phlox.get_num_threads()}], "", None
    for name, listed, library, why in phlox._C._backends():
        found, why = ([], why) if why else _try(name)
        if found and (used or not listed):
            why = f"{used} has devices and comes first" if listed else f"not in PHLOX_BACKENDS={os.environ.get('PHLOX_BACKENDS')}"
        elif found:
            used = name
        yield name, found, why, library
    for name in ("gloo", "nccl", "mpi"):
        try:
            yield name, [{"name": "available"}], "", phlox._C._engine_library(name)
        except RuntimeError as error:
            yield name, [], str(error), None


def main(arguments: "list[str] | None" = None) -> None:
    """Runs the command."""
    parser = _viewer.command("devices", __doc__)
    parser.add_argument("-o", "--output", default="devices.html", help="the page (devices.html)")
    given = parser.parse_args(arguments)
    try:
        rows = list(_rows())
    except ValueError as error:  # of an environment variable
        parser.error(str(error))
    for name, found, why, _ in rows:
        print(f"{name:6}", "not used: " + why.replace("\n", ". ") if why else f"{len(found)} x {found[0]['name']}" if "bytes" in found[0] else found[0]["name"])
    _viewer.write(given.output, "Devices", "devices", rows)
    print(given.output)


if __name__ == "__main__":
    main()
