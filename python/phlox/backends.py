# SPDX-License-Identifier: Apache-2.0
"""torch.backends: modules whose attributes read and write settings of the library. Also
torch.set_float32_matmul_precision."""
from __future__ import annotations

import sys
import warnings
from collections import namedtuple
from contextlib import contextmanager
from types import ModuleType

from phlox import _C, _precision
from phlox._utils import _get_device_index

__path__ = []
_SETTINGS = _C._settings()


def _attribute(number, name):
    def write(module, value):
        if not isinstance(value, bool):
            raise RuntimeError(f"{name} expects a bool, but got {type(value).__name__}")
        _C._setting(number, value)

    def remove(module):
        raise RuntimeError(f"{name} expects a bool, but got nothing")

    return property(lambda module: bool(_C._setting(number)), write, remove)


def _precision_of(part):
    """fp32_precision of a part of torch.backends."""
    return property(lambda module: _precision.read(part), lambda module, value: _precision.write(part, value))


def _allow(name, read, write):
    """allow_tf32, which the precisions keep."""
    def checked(module, value):
        if not isinstance(value, bool):
            raise RuntimeError(f"{name} expects a bool, but got {type(value).__name__}")
        write(value)

    return property(lambda module: read(), checked)


_PRECISIONS = {"cuda.matmul": "matmul", "cudnn": "cuda", "cudnn.conv": "conv", "cudnn.rnn": "rnn"}


def _refuse_unknown(module, name, value):
    if not hasattr(type(module), name) and not name.startswith("__"):
        raise AttributeError(f"Unknown attribute {name}")
    ModuleType.__setattr__(module, name, value)


def _module(path, **functions):
    """Creates a submodule of torch.backends with its settings and functions."""
    settings = {name: _attribute(i, name)
                for i, (where, name) in enumerate(_SETTINGS) if where == path}
    if path in _PRECISIONS:
        settings.pop("allow_tf32", None)
        settings["fp32_precision"] = _precision_of(_PRECISIONS[path])
    if path == "cudnn":
        settings["allow_tf32"] = _allow("allow_tf32", _precision.allows_cudnn, _precision.allow_cudnn)
    if path == "cuda.matmul":
        settings["allow_tf32"] = _allow("allow_tf32", _precision.allows_matmul, _precision.allow_matmul)
        settings["__setattr__"] = _refuse_unknown
    full = f"{__name__}.{path}"
    module = type("module", (ModuleType,), {
        "__module__": "torch.backends", **settings,
        "__dir__": lambda self: sorted({*ModuleType.__dir__(self), *settings})})(full)
    module.__path__ = []
    vars(module).update(functions)
    sys.modules[full] = module
    _C._name_missing(full)
    return module


# Functions that enable an attention implementation, and report if it is enabled or usable.
def _sdp_functions(name, can_use=None, on_cpu=False):
    number = _SETTINGS.index(("sdp", name))

    def enable(enabled: bool) -> None:
        if not isinstance(enabled, bool):
            raise RuntimeError(f"set_sdp_use_math expects a bool, but got {type(enabled).__name__}")
        _C._setting(number, enabled)

    return {f"enable_{name}_sdp": enable, f"{name}_sdp_enabled": lambda: bool(_C._setting(number)),
            can_use or "_": lambda params, debug=False: _C._can_use_sdp(
                number, on_cpu, *params, debug)}


def _has_device():
    return _C.cuda.device_count() > 0


def _unavailable():
    return False


def _has_winograd():
    return _C._cpu_capability() == "AVX512"


def _has_cudnn():
    return _C._library_version("cudnn") > 0


def _cudnn_version():
    return _C._library_version("cudnn") or None


def _set_all(module, values):
    """Sets the attributes whose value is not None. Returns the previous values of all."""
    before = tuple(getattr(module, name) for name in values)
    for name, value in values.items():
        if value is not None:
            setattr(module, name, value)
    return before


@contextmanager
def _temporarily(set_flags, *values):
    before = set_flags(*values)
    try:
        yield
    finally:
        set_flags(*before)


def _set_cudnn(_enabled=None, _benchmark=None, _benchmark_limit=None, _deterministic=None,
               _allow_tf32=None):
    if _benchmark_limit not in (None, 10):
        raise NotImplementedError("torch.backends.cudnn.set_flags: benchmark_limit is always 10")
    enabled, benchmark, deterministic, allow_tf32 = _set_all(cudnn, dict(
        enabled=_enabled, benchmark=_benchmark, deterministic=_deterministic,
        allow_tf32=_allow_tf32))
    return enabled, benchmark, None, deterministic, allow_tf32


def _cudnn_flags(enabled=False, benchmark=False, benchmark_limit=10, deterministic=False,
                 allow_tf32=True):
    return _temporarily(_set_cudnn, enabled, benchmark, benchmark_limit, deterministic, allow_tf32)


def _set_nnpack(_enabled):
    return _set_all(nnpack, {"enabled": _enabled})


def _nnpack_flags(enabled=False):
    return _temporarily(_set_nnpack, enabled)


class cuFFTPlanCache:
    """A device's cache of FFT plans."""

    def __init__(self, device_index):
        self.device_index = device_index

    @property
    def size(self):
        """Number of cached plans. 0 on simulated devices."""
        return _C.cuda._fft_plans(self.device_index)[0]

    @size.setter
    def size(self, value):
        raise RuntimeError(".size is a read-only property showing the number of plans currently in "
                           "the cache. To change the cache capacity, set cufft_plan_cache.max_size.")

    max_size = property(lambda self: _C.cuda._fft_plans(self.device_index)[1],
                        lambda self, value: _C.cuda._keep_fft_plans(self.device_index, value),
                        doc="Capacity in plans. The least recently used plan is evicted.")

    def clear(self):
        """Clears the cache."""
        _C.cuda._clear_fft_plans(self.device_index)


class cuFFTPlanCacheManager:
    """Caches by device index. Attributes are those of the current device's cache."""

    def __getitem__(self, device):
        index, count = _get_device_index(device), _C.cuda.device_count()
        if not 0 <= index < count:
            raise RuntimeError(f"cufft_plan_cache: expected 0 <= device index < {count}, but got "
                               f"device with index {index}")
        return cuFFTPlanCache(index)

    def __getattr__(self, name):
        return getattr(self[_C.cuda.current_device()], name)

    def __setattr__(self, name, value):
        setattr(self[_C.cuda.current_device()], name, value)


class _Backends(ModuleType):
    """The class of torch.backends, which has a property."""

    fp32_precision = _precision_of("generic")


sys.modules[__name__].__class__ = _Backends
_C._name_missing(__name__)
SDPAParams = namedtuple("SDPAParams", "query key value attn_mask dropout is_causal enable_gqa")
cuda = _module("cuda", is_built=_has_device, SDPAParams=SDPAParams, **_sdp_functions("math"),
               **_sdp_functions("flash", "can_use_flash_attention", True),
               **_sdp_functions("mem_efficient", "can_use_efficient_attention"),
               **_sdp_functions("cudnn", "can_use_cudnn_attention"))
cuda.matmul = _module("cuda.matmul")
cuda.cuFFTPlanCache, cuda.cuFFTPlanCacheManager = cuFFTPlanCache, cuFFTPlanCacheManager
cuda.cufft_plan_cache = cuFFTPlanCacheManager()
cudnn = _module("cudnn", is_available=_has_cudnn, version=_cudnn_version, flags=_cudnn_flags,
                set_flags=_set_cudnn)
cudnn.conv, cudnn.rnn = _module("cudnn.conv"), _module("cudnn.rnn")
# Winograd convolutions on the CPU. PyTorch's setting for them is NNPACK.
nnpack = _module("nnpack", is_available=_has_winograd, flags=_nnpack_flags, set_flags=_set_nnpack)
mkldnn = _module("mkldnn", is_available=_unavailable, is_built=_unavailable)
mps = _module("mps", is_available=_unavailable, is_built=_unavailable)


def set_float32_matmul_precision(precision: str) -> None:
    """Sets the internal precision of float32 matrix multiplications on GPUs.

    Args:
        precision (str): "highest": float32; "high" or "medium": TF32
    """
    if not isinstance(precision, str):
        raise RuntimeError("set_float32_matmul_precision expects a str, but got "
                           f"{type(precision).__name__}")
    if precision not in _precision.WORDS:
        warnings.warn(f"{precision} is not one of 'highest', 'high', or 'medium'; the current "
                      "setFloat32MatmulPrecision call has no effect.", stacklevel=2)
        return
    _precision.allow_matmul(_precision.WORDS.index(precision))


def get_float32_matmul_precision() -> str:
    """Returns the current precision of float32 matrix multiplications.

    >>> torch.get_float32_matmul_precision()
    'highest'
    """
    return _precision.matmul_word()
