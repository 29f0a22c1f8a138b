# SPDX-License-Identifier: Apache-2.0
"""torchrun by its older name: ranks get --local-rank=N, too, unless --use-env says otherwise."""
from .run import command

if __name__ == "__main__":
    command(True)
