# SPDX-License-Identifier: Apache-2.0
"""Deprecated functions of nn.init, without the trailing underscore."""
from __future__ import annotations

import functools
import warnings

from phlox.nn import init

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

    from phlox import Tensor


def _older(name: str) -> Any:
    function = getattr(init, name + "_")

    @functools.wraps(function, assigned=("__doc__",))
    def call(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)
    call.__name__ = call.__qualname__ = name
    return call


constant, dirac, eye, normal, orthogonal, sparse, uniform = map(_older, "constant dirac eye normal orthogonal sparse uniform".split())
kaiming_normal, kaiming_uniform = _older("kaiming_normal"), _older("kaiming_uniform")
xavier_normal, xavier_uniform = _older("xavier_normal"), _older("xavier_uniform")
