# SPDX-License-Identifier: Apache-2.0
"""python3 -m phlox.devices [-o FILE.html]

Lists the backends for devices and for collectives, each with its devices or with the reason why it is
not used, and draws them as a page. Each backend is tried in a process of its own."""
import ctypes, json, os, subprocess, sys

import phlox
from phlox import _viewer

_FOLDER = os.path.dirname(phlox.__file__)
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


def _library(name):
    """Returns the path of a backend's library, or None."""
    paths = (os.path.join(folder, f"libphlox_{name}.so") for folder in (os.environ.get("PHLOX_BACKEND_PATH"), _FOLDER) if folder)
    return next(filter(os.path.exists, paths), None)


def _try(name):
    """Returns a backend's devices, and the reason if it has none."""
    if not _library(name):
        return [], f"libphlox_{name}.so is not installed"
    if name == "cuda":
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            return [], f"the driver cannot be loaded: {error}"
    done = subprocess.run([sys.executable, "-c", _TRY, os.path.dirname(_FOLDER)], env=dict(os.environ, PHLOX_BACKENDS=name),
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else ([], f"its process ended with {done.returncode}")


def _rows():
    order = os.environ.get("PHLOX_BACKENDS", "cuda,sim")
    names, used = order.split(","), None
    yield "cpu", [{"name": phlox.backends.cpu.get_cpu_capability(), "threads": phlox.get_num_threads()}], "", None
    for name in dict.fromkeys(filter(None, [*names, "cuda", "sim"])):
        found, why = _try(name)
        if found and (used or name not in names):
            why = f"{used} has devices and comes first" if name in names else f"not in PHLOX_BACKENDS={order}"
        elif found:
            used = name
        yield name, found, why, _library(name)
    for name, package in {"gloo": "libgloo0", "nccl": "libnccl2", "mpi": "openmpi-bin"}.items():
        missing = f"its library is not found (package {package})" if _library(name) else f"libphlox_{name}.so is not installed"
        available = phlox._C._engine_available(name)
        yield name, [{"name": "available"}] if available else [], "" if available else missing, _library(name)


def main(arguments: "list[str] | None" = None) -> None:
    """Runs the command."""
    parser = _viewer.command("devices", __doc__)
    parser.add_argument("-o", "--output", default="devices.html", help="the page (devices.html)")
    given = parser.parse_args(arguments)
    rows = list(_rows())
    for name, found, why, _ in rows:
        why = why.replace("\n", ". ")
        print(f"{name:6}", f"not used: {why}" if why else f"{len(found)} x {found[0]['name']}" if "bytes" in found[0] else found[0]["name"])
    _viewer.write(given.output, "Devices", "devices", rows)
    print(given.output)


if __name__ == "__main__":
    main()
