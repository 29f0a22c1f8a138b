# SPDX-License-Identifier: Apache-2.0
"""The precision of float32 on GPUs: fp32_precision of torch.backends and its parts, and the older allow_tf32 and matmul precision.

A part without a precision of its own ("none") has that of the parts above it: cuda.matmul, cudnn.conv and cudnn.rnn that of cudnn, and cudnn that of
torch.backends. The older settings write the newer ones. Reading them fails once the two disagree. The settings of the core are what kernels read;
C programs may change them, too."""
from __future__ import annotations

from phlox import _C

WORDS = "highest", "high", "medium"
_SETTINGS = _C._settings()
_NUMBERS = {op: _SETTINGS.index(place) for op, place in (("matmul", ("cuda.matmul", "allow_tf32")), ("conv", ("cudnn", "allow_tf32")), ("rnn", ("cudnn.rnn", "allow_tf32")))}
_SEE = "See also: https://pytorch.org/docs/main/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices"
_ABOVE = {"matmul": "cuda", "conv": "cuda", "rnn": "cuda", "cuda": "generic"}
_own = dict.fromkeys(("generic", "cuda", *_NUMBERS), "none")
_written: dict[str, int] = {}  # settings of the core, as last read or written here
_older: dict[str, int] = {}  # last value of allow_tf32; for matmul the index in WORDS


def _follow_core() -> None:
    """Takes over settings of the core that others have written."""
    for op, number in _NUMBERS.items():
        value = _C._setting(number)
        if _written.get(op) != value:
            _written[op] = _older[op] = value
            _own[op] = "tf32" if value else "ieee" if op == "matmul" and len(_written) == len(_NUMBERS) else "none"


def _write_core() -> None:
    for op, number in _NUMBERS.items():
        uses = read(op) == "tf32"
        _written[op] = _older[op] if bool(_older[op]) == uses else int(uses)
        _C._setting(number, _written[op])


def read(part: str) -> str:
    """Returns the precision of a part: "generic", "cuda", or an operation."""
    _follow_core()
    asked = part
    while _own[part] in ("none", "unset") and part in _ABOVE:
        part = _ABOVE[part]
    return "tf32" if _own[part] == "none" and _own[asked] == "unset" else _own[part]


def write(part: str, precision: str) -> None:
    """Sets the precision of a part."""
    if precision not in ("none", "ieee", "tf32", "bf16"):
        raise RuntimeError(f"Unknown precision: {precision}")
    if precision == "bf16":
        raise RuntimeError(f"backend '{'generic' if part == 'generic' else 'cuda'}' does not support precision 'bf16'")
    _follow_core()
    _own[part] = precision
    _write_core()


def allows_matmul() -> bool:
    """Returns cuda.matmul.allow_tf32."""
    uses = read("matmul") == "tf32"
    if uses != bool(_older["matmul"]):
        raise RuntimeError("PyTorch is checking whether allow_tf32_new is enabled for cuBlas matmul,Current status indicate that you have used mix of the "
                           "legacy and new APIs to set the TF32 status for cublas matmul. We suggest only using the new API to set the TF32 flag. " + _SEE)
    return uses


def allow_matmul(index: int) -> None:
    """Sets cuda.matmul.allow_tf32, or the precision of products by its index in WORDS."""
    _follow_core()
    _older["matmul"], _own["matmul"] = index, "tf32" if index else "ieee"
    _write_core()


def matmul_word() -> str:
    """Returns the precision of products: "highest", "high" or "medium"."""
    if read("matmul") == "tf32" and not _older["matmul"]:
        raise RuntimeError("PyTorch is checking the matmul precision without a specific backend name,Current status indicate that you have used mix of the "
                           "legacy and new APIs to set the matmul precision. We suggest only using the new API for matmul precision. " + _SEE)
    return WORDS[_older["matmul"]]


def allows_cudnn() -> bool:
    """Returns cudnn.allow_tf32."""
    conv, rnn = (read(op) == "tf32" for op in ("conv", "rnn"))
    if conv != rnn or conv != bool(_older["conv"]):
        raise RuntimeError("PyTorch is checking whether allow_tf32 is enabled for cuDNN without a specific operator name,but the current flag(s) indicate that "
                           "cuDNN conv and cuDNN RNN have different TF32 flags.This combination indicates that you have used a mix of the legacy and new APIs "
                           "to set the TF32 flags. We suggest only using the new API to set the TF32 flag(s). " + _SEE)
    return conv


def allow_cudnn(on: bool) -> None:
    """Sets cudnn.allow_tf32."""
    _follow_core()
    for op in "conv", "rnn":
        _older[op], _own[op] = int(on), "tf32" if on else "none"
    _write_core()


_follow_core()
_own["matmul"] = "tf32" if _written["matmul"] else "none"
for _op in "conv", "rnn":  # TF32 until it, or a part above it, is set
    _own[_op] = "unset" if _written[_op] else "none"
