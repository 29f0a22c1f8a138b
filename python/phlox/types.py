# SPDX-License-Identifier: Apache-2.0
"""torch.types: type aliases for annotations."""
import os
from typing import IO, Callable, Dict, List, Optional, Sequence, Tuple, Union

from phlox import Size, Tensor
from phlox import device as _device
from phlox import dtype as _dtype
from phlox import layout as _layout
from phlox.storage import UntypedStorage as Storage

_int, _float, _bool, _str, _bytes, _complex = int, float, bool, str, bytes, complex
Number = Union[int, float, bool]
_Number = (int, float, bool)
Device = Union[_device, str, int, None]
FileLike = Union[str, "os.PathLike[str]", IO[bytes]]
_size = Union[Size, List[int], Tuple[int, ...]]
_TensorOrTensors = Union[Tensor, Sequence[Tensor]]
MAP_LOCATION = Optional[Union[Callable[[Storage, str], Storage], _device, str, Dict[str, str]]]
