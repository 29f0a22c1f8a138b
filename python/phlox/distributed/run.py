# SPDX-License-Identifier: Apache-2.0
"""torchrun: starts and supervises the ranks of a job, and reports failures. In the ranks `import torch`
imports Phlox. phlox-run [OPTION...] PROGRAM [ARGUMENT...], or python3 -m phlox.distributed.run."""
import os
import sys

from phlox import _C

from .elastic.multiprocessing.errors import ChildFailedError


def main(args=None, local_rank_argument=False):
    """Runs a job. Raises ChildFailedError with a report if ranks failed and no restart is left."""
    args = list(sys.argv[1:] if args is None else args)
    if args[:1] in (["-h"], ["--help"]):
        print(_C._job_usage(), end="")
        return
    python = [os.environ.get("PYTHON_EXEC", sys.executable), "-u", "-m", "phlox"]
    environment = [f"{name}={value}" for name, value in os.environ.items()]
    try:
        _C._job_run(args, python, environment, local_rank_argument)
    except RuntimeError as error:
        if type(error) is RuntimeError:
            raise ChildFailedError(str(error)) from None
        raise


def command(local_rank_argument=False):
    """The shell command: prints errors and sets the exit code."""
    try:
        main(None, local_rank_argument)
    except (ValueError, NotImplementedError) as error:
        print(f"phlox-run: error: {error}", file=sys.stderr)
        sys.exit(2)
    except (OSError, RuntimeError, ChildFailedError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    command()
