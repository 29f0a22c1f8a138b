# SPDX-License-Identifier: Apache-2.0
"""Error reporting from a rank to torchrun, through a file named in the environment."""
import functools
import json
import os
import time
import traceback


class ChildFailedError(Exception):
    """Raised if ranks of torchrun failed. The text is the report."""

    def __init__(self, report):
        super().__init__(report)


def record(fn, error_handler=None):
    """Decorates a program's main function: an exception is written to TORCHELASTIC_ERROR_FILE, for
    torchrun's report."""
    if error_handler is not None:
        raise NotImplementedError("record(error_handler=) is not implemented in Phlox")

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
                more = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
                with open(path, "w") as file:
                    json.dump({"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": more}}, file)
            raise
    return wrapper
