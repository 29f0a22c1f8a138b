# SPDX-License-Identifier: Apache-2.0
"""What torch.cuda tells of a device by name, and the mode of calls that wait."""
from phlox import cuda

_MODES = ("default", "warn", "error")


def get_device_name(device=None):
    """The name of a device's model; the current device by default."""
    return cuda.get_device_properties(device).name


def get_device_capability(device=None):
    """Major and minor number of a device's capability; the current device by default."""
    properties = cuda.get_device_properties(device)
    return properties.major, properties.minor


def set_sync_debug_mode(debug_mode):
    """Sets what calls that wait for a device do.

    Args:
        debug_mode (int or str): 0 or "default", 1 or "warn", 2 or "error"
    """
    cuda._sync_debug_mode(None)  # there must be a device
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = _MODES.index(debug_mode)
    cuda._sync_debug_mode(debug_mode)


def get_sync_debug_mode():
    """The mode that set_sync_debug_mode set, as a number."""
    return cuda._sync_debug_mode(None)
