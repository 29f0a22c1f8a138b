# SPDX-License-Identifier: Apache-2.0
"""The build hook of `pip install`: checks for the tools, runs make for the calling Python, and adds the libraries to the wheel. Variables of
make (CUDA, CUDAARCH, TARGET and others) are read from the environment; PHLOX_LOCAL_VERSION is appended to the version, as in 0.13.0+cpu."""
import os, re, shutil, subprocess, sys, sysconfig, tempfile, time

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MAKE = os.environ.get("MAKE", "make")
TARGET = os.environ.get("TARGET", "")
FOLDER = os.environ.get("O", "build" + (f"-{TARGET}" if TARGET else ""))


def version():
    with open("include/phlox/version.h") as file:
        number = re.search(r'^#define PX_VERSION "(.*)"', file.read(), re.M)[1]
    local = os.environ.get("PHLOX_LOCAL_VERSION")
    return f"{number}+{local}" if local else number


def _links(compiler, source, *flags):
    with tempfile.NamedTemporaryFile(suffix=".c", mode="w") as file:
        file.write(source)
        file.flush()
        return not subprocess.run([*compiler, file.name, "-o", "/dev/null", *flags], capture_output=True).returncode


def _missing():
    """Lists the missing requirements of the build."""
    compiler = os.environ.get("CC", f"{TARGET}-gcc" if TARGET else "cc").split()
    include = sysconfig.get_paths()["include"]
    if not shutil.which(MAKE): yield "make"
    if not shutil.which("objcopy"): yield "binutils"
    if not shutil.which(compiler[0]) or not _links(compiler, "#include <stdio.h>\nint main(void) { return 0; }"):
        yield f"a C compiler ({compiler[0]})"
    elif not _links(compiler, "#include <json-c/json.h>\nint main(void) { return 0; }", "-l:libjson-c.a"):
        yield "libjson-c-dev (json-c's headers and libjson-c.a)"
    if not os.path.exists(include + "/Python.h"): yield f"the headers of {sys.executable} ({include}/Python.h)"


def _terminal():
    """The terminal if there is one, since pip hides the output of builds; else the output, shown by `pip install -v`."""
    try:
        return open("/dev/tty", "w") if not sys.stderr.isatty() else sys.stderr
    except OSError:
        return sys.stderr


def _make(target, variables):
    command = [MAKE, f"-j{os.cpu_count()}", target, *variables]
    planned = subprocess.run([*command, "-n"], capture_output=True, text=True).stdout.count("printf '  %-8s")
    show, done, shown, lines = _terminal(), 0, 0, []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            lines.append(line)
            done += line.startswith("  ")
            if time.monotonic() - shown > (.5 if show.isatty() else 10):
                shown = time.monotonic()
                print(f"compiling: {done} of at most {planned} files", end=" \r" if show.isatty() else "\n", file=show, flush=True)
    if process.returncode:
        errors = [line for line in lines if not line.startswith("  ")]
        sys.exit("".join(errors[-40:]) + f"phlox: `{' '.join(command)}` failed. CONTRIBUTING.md says how to report it.")


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        missing = "; ".join(_missing())
        if missing: sys.exit(f"phlox: missing {missing}. `script/bootstrap` installs all requirements on Debian and Ubuntu.")
        python = "cp%d%d" % sys.version_info[:2]
        abi = python + getattr(sys, "abiflags", "")
        suffix, platform = sysconfig.get_config_var("SOABI"), re.sub("[-.]", "_", sysconfig.get_platform())
        if TARGET:
            suffix = suffix.replace(sysconfig.get_config_var("MULTIARCH"), TARGET)
            platform = "linux_" + TARGET.partition("-")[0]
        variables = ["PYINC=" + sysconfig.get_paths()["include"], "SOABI=" + suffix] if TARGET else ["PYTHON=" + sys.executable]
        build_data.update(pure_python=False, tag=f"{python}-{abi}-{platform}")
        if version == "editable":
            return _make("all", variables)
        _make("stripped", variables)
        for name in sorted(os.listdir(FOLDER + "/stripped")):
            build_data["force_include"][f"{FOLDER}/stripped/{name}"] = "phlox/" + name
        if f"_C.{suffix}.so" not in os.listdir(FOLDER + "/stripped"):
            sys.exit(f"phlox: {FOLDER}/_C.{suffix}.so was not built")
