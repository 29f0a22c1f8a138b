# SPDX-License-Identifier: Apache-2.0
"""python3 -m phlox.env: prints what a bug report needs: versions, processor, devices, libraries, and the environment variables that are read."""
import os

import phlox as torch
from phlox.utils import collect_env

# Those of the tables; and misspelt names, and variables that NVIDIA's libraries and Gloo read.
_READ = (*(name.rstrip("*") for name in torch._C._environment()), "PHLOX_", "CUDA_", "NCCL_", "GLOO_")


def report() -> str:
    """Returns the report's text."""
    here = sorted(f"  {name}={'(hidden)' if 'SECRET' in name else value}" for name, value in os.environ.items() if name.startswith(_READ))
    return "\n".join([
        f"Phlox {torch.version.phlox}, {os.path.dirname(torch.__file__)}", f"CPU kernels: {torch.backends.cpu.get_cpu_capability()}",
        torch.__config__.parallel_info().strip(), torch.__config__.show().strip(), collect_env.get_pretty_env_info(), "Environment:", *(here or ["  nothing"])])


if __name__ == "__main__":
    print(report())
