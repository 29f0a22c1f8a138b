# SPDX-License-Identifier: Apache-2.0
"""torchrun's legacy command. Ranks also get --local-rank=N, unless --use-env is given."""
from .run import command

if __name__ == "__main__":
    command(True)
