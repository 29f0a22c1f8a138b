# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils.rnn: padding and packing of variable-length sequences."""
from __future__ import annotations

from typing import NamedTuple

import phlox as torch
from phlox import Tensor

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class PackedSequence_(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


def _map(function, *tensors):
    return [None if tensor is None else function(tensor) for tensor in tensors]


class PackedSequence(PackedSequence_):
    """Packed sequences, sorted by decreasing length. `data` has the elements of each time step in turn. `batch_sizes`, on
    the CPU, is the number of sequences at each step. `sorted_indices` is the order of the sequences and
    `unsorted_indices` its inverse; both are None if the input was sorted.

    >>> packed = torch.nn.utils.rnn.pack_sequence([torch.tensor([1, 2, 3]), torch.tensor([4, 5])])
    >>> packed.data, packed.batch_sizes
    (tensor([1, 4, 2, 5, 3]), tensor([2, 2, 1]))
    """

    def __new__(cls, data: Any, batch_sizes: Tensor | None = None, sorted_indices: Tensor | None = None,
                unsorted_indices: Tensor | None = None) -> PackedSequence:
        if batch_sizes is None:
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError("batch_sizes should always be on CPU. Instances of PackedSequence should never be created "
                             "manually. They should be instantiated by functions like pack_sequence and "
                             "pack_padded_sequences in nn.utils.rnn. "
                             "https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data, move):
        return type(self)(data, self.batch_sizes, *_map(move, self.sorted_indices, self.unsorted_indices))

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Moves or converts the data, as Tensor.to. The indices follow; batch_sizes stays on the CPU."""
        data, late = self.data.to(*args, **kwargs), bool(kwargs.get("non_blocking"))
        return self if data is self.data else self._with(data, lambda t: t.to(data.device, non_blocking=late))

    def _to_device_type(self, kind, args, kwargs):
        there = torch.empty(0, dtype=self.data.dtype, device=self.data.device).to(*args, **kwargs).device.type == kind
        return self.to(*args, **kwargs) if there else self.to(*args, **{**kwargs, "device": kind})

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Moves the data to a CUDA device. Default: the current one."""
        return self._to_device_type("cuda", args, kwargs)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Moves the data to the CPU."""
        return self._to_device_type("cpu", args, kwargs)

    def pin_memory(self) -> PackedSequence:
        """Copies the data to page-locked memory."""
        return self._with(self.data.pin_memory(), lambda tensor: tensor.pin_memory())

    def is_pinned(self) -> bool:
        """Returns True if the data is in page-locked memory."""
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        """True if the data is on a CUDA device."""
        return self.data.is_cuda


def _conversion(dtype):
    def method(self) -> PackedSequence:
        return self.to(dtype=dtype)
    method.__doc__ = f"Converts the data to {dtype}."
    return method


for _name, _dtype in {"double": "float64", "float": "float32", "half": "float16", "long": "int64", "int": "int32",
                      "short": "int16", "char": "int8", "byte": "uint8"}.items():
    setattr(PackedSequence, _name, _conversion(getattr(torch, _dtype)))


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Returns the inverse of a permutation.

    >>> torch.nn.utils.rnn.invert_permutation(torch.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    return torch.empty_like(permutation).scatter_(0, permutation, torch.arange(permutation.numel(), device=permutation.device))


def pack_padded_sequence(input: Tensor, lengths: Tensor | list[int], batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Packs padded sequences. With enforce_sorted=False they are sorted by length first.

    >>> padded = torch.tensor([[1, 4], [2, 5], [3, 0]])
    >>> torch.nn.utils.rnn.pack_padded_sequence(padded, [3, 2]).data
    tensor([1, 4, 2, 5, 3])
    """
    order, where = None, {} if isinstance(lengths, Tensor) else {"device": "cpu"}
    lengths = torch.as_tensor(lengths, dtype=torch.int64, **where)
    if not enforce_sorted:
        lengths, order = torch.sort(lengths, descending=True)
        order = order.to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    return PackedSequence(*torch._pack_padded_sequence(input, lengths, batch_first), order)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """Pads a packed batch. Returns the sequences in their original order, and their lengths."""
    longest = sequence.batch_sizes.size(0)
    if total_length is not None and total_length < longest:
        raise ValueError("Expected total_length to be at least the length of the longest sequence in input, but got "
                         f"total_length={total_length} and max sequence length being {longest}")
    padded, lengths = torch._pad_packed_sequence(sequence.data, sequence.batch_sizes, batch_first, padding_value,
                                                 total_length or longest)
    back = sequence.unsorted_indices
    return (padded, lengths) if back is None else (padded.index_select(0 if batch_first else 1, back), lengths[back.cpu()])


def pad_sequence(sequences: Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Tensor:
    """Stacks sequences, padded to the length of the longest."""
    if not hasattr(sequences, "__iter__"):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    return torch._pad_sequence(tuple(sequences), batch_first, padding_value, padding_side)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """Returns the sequences without padding."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:length].clone() for row, length in zip(rows, lengths.tolist(), strict=True)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs a list of sequences."""
    return pack_padded_sequence(pad_sequence(sequences), [len(one) for one in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Returns the packed sequences in their original order."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)
