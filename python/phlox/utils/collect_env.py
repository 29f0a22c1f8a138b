# SPDX-License-Identifier: Apache-2.0
"""torch.utils.collect_env: system information for bug reports. Unknown values are None and printed
as "Could not collect"."""
import os
import platform
import shutil
import subprocess
import sys
from collections import namedtuple

import phlox as torch

_TITLES = {
    "torch_version": "Phlox version", "is_debug_build": "Is debug build", "os": "OS",
    "gcc_version": "GCC version", "clang_version": "Clang version",
    "cmake_version": "CMake version", "libc_version": "Libc version",
    "python_version": "Python version", "python_platform": "Python platform",
    "is_cuda_available": "Is CUDA available", "cuda_backend": "Backend of type cuda",
    "nvidia_driver_version": "Nvidia driver version", "cudnn_version": "cuDNN version",
    "nvidia_gpu_models": "GPU models and configuration",
    "caching_allocator_config": "Caching allocator config", "cpu_info": "CPU",
    "pip_packages": "Versions of relevant libraries",
}
_ALLOCATOR = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
_DRIVER = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
SystemEnv = namedtuple("SystemEnv", _TITLES)
_RELEVANT = ("accelerate", "einops", "lightning", "numpy", "nvidia-", "onnx", "phlox", "safetensors",
             "scikit-learn", "scipy", "skorch", "tensorboard", "timm", "torch", "transformers",
             "triton")


def run(command):
    """Runs a command. Returns (exit status, output, errors); the status is 127 if it does not
    exist."""
    words = command.split() if isinstance(command, str) else command
    if not shutil.which(words[0]):
        return 127, "", f"{words[0]}: not found"
    done = subprocess.run(words, capture_output=True, text=True, errors="replace")
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def _first_line(command):
    status, out, _ = run(command)
    return out.split("\n")[0] if status == 0 and out else None


def _os_name():
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = platform.system()
    return f"{name} ({platform.machine()})"


def _packages():
    from importlib.metadata import distributions
    found = {(one.name, one.version) for one in distributions() if one.name}
    return "\n".join(f"{name}=={version}" for name, version in sorted(found)
                     if name.lower().startswith(_RELEVANT))


def _devices():
    return "\n".join(f"GPU {i}: {torch.cuda.get_device_name(i)}"
                     for i in range(torch.cuda.device_count()))


def get_env_info():
    """Returns the system information as a SystemEnv."""
    devices = torch.cuda.is_available()
    return SystemEnv(
        torch_version=torch.__version__, is_debug_build=str(torch.version.debug), os=_os_name(),
        gcc_version=_first_line("gcc --version"), clang_version=_first_line("clang --version"),
        cmake_version=_first_line("cmake --version"),
        libc_version="-".join(platform.libc_ver()).strip("-") or None,
        python_version=sys.version.replace("\n", ""),
        python_platform=platform.platform(), is_cuda_available=str(devices),
        cuda_backend=torch._C.cuda._backend_name() if devices else "N/A",
        nvidia_driver_version=_first_line(_DRIVER),
        cudnn_version=torch.backends.cudnn.version() or "N/A",
        nvidia_gpu_models=_devices() or "N/A",
        caching_allocator_config=next(filter(None, map(os.environ.get, _ALLOCATOR)), "N/A"),
        cpu_info=run("lscpu")[1] or None, pip_packages=_packages())


def pretty_str(envinfo):
    """Formats a SystemEnv: a line per field; multi-line values start below their title."""
    lines = []
    for field, title in _TITLES.items():
        value = getattr(envinfo, field)
        text = "Could not collect" if value is None else str(value)
        lines.append(f"{title}:\n{text}" if "\n" in text else f"{title}: {text}")
    return "\n".join(lines)


def get_pretty_env_info():
    """Returns the text printed by main."""
    return pretty_str(get_env_info())


def main():
    """python3 -m phlox -m torch.utils.collect_env"""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
