# SPDX-License-Identifier: Apache-2.0
"""The PEP 517 build backend of `pip install .`: runs make for the calling Python and packs python/phlox into a wheel."""
import base64, hashlib, os, re, subprocess, sys, sysconfig, zipfile


def _version():
    with open("include/phlox/version.h") as file:
        return re.search(r'^#define PX_VERSION "(.*)"', file.read(), re.M)[1]


def _row(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    subprocess.run([os.environ.get("MAKE", "make"), "-s", f"-j{os.cpu_count()}", "stripped", "PYTHON=" + sys.executable], check=True)
    version, python = _version(), "cp%d%d" % sys.version_info[:2]
    tag = f"{python}-{python}-" + re.sub("[-.]", "_", sysconfig.get_platform())
    info, name = f"phlox-{version}.dist-info/", f"phlox-{version}-{tag}.whl"
    extension = f"_C.{sysconfig.get_config_var('SOABI')}.so"
    paths = sorted(os.path.join(folder, n) for folder, _, names in os.walk("python/phlox") for n in names
                   if n.endswith((".py", ".pyi", ".typed", ".so", ".so.0")) and (n == extension or not n.startswith("_C.") or n.endswith(".pyi")))
    files = {os.path.relpath(path, "python"): open(path.replace("python/phlox", "build/stripped") if ".so" in path else path, "rb").read()
             for path in paths}
    if "phlox/" + extension not in files:
        sys.exit(f"the extension was not built: check that the headers of {sys.executable} are installed")
    files[info + "LICENSE"] = open("LICENSE", "rb").read()
    files[info + "METADATA"] = (f"Metadata-Version: 2.1\nName: phlox\nVersion: {version}\nLicense: Apache-2.0\n"
                                "Summary: Tensors and neural networks with CUDA semantics, in C\nRequires-Python: >=3.10\n").encode()
    files[info + "WHEEL"] = f"Wheel-Version: 1.0\nGenerator: phlox\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[info + "entry_points.txt"] = b"[console_scripts]\nphlox-run = phlox.distributed.run:command\n"
    record = "".join(_row(*item) for item in files.items()) + info + "RECORD,,\n"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items(): wheel.writestr(path, data)
        wheel.writestr(info + "RECORD", record)
    return name
