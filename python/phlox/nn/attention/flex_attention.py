# SPDX-License-Identifier: Apache-2.0
"""torch.nn.attention.flex_attention: attention with functions that change or mask scores, composed of other ops. All scores are in memory.

A score_mod(score, batch, head, q_idx, kv_idx) returns the score that is used, a mask_mod(batch, head, q_idx, kv_idx) whether the key is seen. Both get
tensors without dimensions, and are mapped over all positions by torch.func.vmap. A BlockMask states, in lists of blocks, where a mask is wholly or
partly true. Ref: Dong et al. 2024, Flex Attention, https://arxiv.org/abs/2412.05496."""
from __future__ import annotations

import inspect
import itertools
import math
import warnings
from typing import Any, Callable, NamedTuple

import phlox as torch
from phlox import Tensor, _C
from phlox.func import vmap
from phlox.types import Device

_C._name_missing(__name__)
_DEFAULT_SPARSE_BLOCK_SIZE = 128
_LISTS = "kv_num_blocks kv_indices full_kv_num_blocks full_kv_indices q_num_blocks q_indices full_q_num_blocks full_q_indices".split()
_INF = float("inf")


class AuxRequest(NamedTuple):
    """The results that flex_attention returns besides the output."""
    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """Results besides the output, of shape (B, H, M); None if not requested.

    lse: the logarithm of the sum of exponentials of a query's scores. max_scores: their maximum, without a gradient."""
    lse: Tensor | None = None
    max_scores: Tensor | None = None


def _check(condition: Any, kind: type[Exception], text: str) -> None:
    if not condition:
        raise kind(text)


# ---- functions of positions

def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """A mask_mod that is true everywhere."""
    return batch.new_ones(size=(), dtype=torch.bool)


def _of_sliced_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")


def and_masks(*mask_mods: Callable) -> Callable:
    """Returns a mask_mod that is true where all given ones are."""
    _check(all(map(callable, mask_mods)), RuntimeError, f"All inputs should be callable mask_mods: {mask_mods}")

    def and_mask(b, h, q_idx, kv_idx):
        result = noop_mask(b, h, q_idx, kv_idx)
        for mod in mask_mods:
            result = result & mod(b, h, q_idx, kv_idx)
        return result
    return and_mask


def or_masks(*mask_mods: Callable) -> Callable:
    """Returns a mask_mod that is true where any of the given ones is."""
    _check(all(map(callable, mask_mods)), RuntimeError, f"All inputs should be callable mask_mods: {mask_mods}")

    def or_mask(b, h, q_idx, kv_idx):
        result = ~noop_mask(b, h, q_idx, kv_idx)
        for mod in mask_mods:
            result = result | mod(b, h, q_idx, kv_idx)
        return result
    return or_mask


def _takes_score(mod: Callable) -> bool:
    """Tells a score_mod from a mask_mod by the number of its parameters."""
    parameters = inspect.signature(mod).parameters.values()
    count = sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    _check(count in (4, 5), AssertionError, f"Expected 4 or 5 positional args, got {count}")
    return count == 5


def _map(mod: Callable, size: tuple[int, ...], device: Device, scores: Tensor | None = None) -> Tensor:
    """Calls a function at all positions: (B, H, M, N) = size."""
    first = () if scores is None else (0,)
    for dim in (3, 2, 1, 0):
        mod = vmap(mod, in_dims=first + tuple(0 if i == dim else None for i in range(4)))
    positions = [torch.arange(n, device=device) for n in size]
    return mod(*positions) if scores is None else mod(scores, *positions)


def create_mask(mod_fn: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Device = None) -> Tensor:
    """Returns a mask_mod at all positions, or where a score_mod does not return -inf: bool, of shape (B, H, Q_LEN, KV_LEN).

    Args:
        mod_fn (Callable): a mask_mod or score_mod
        B, H (int or None): batch size and number of heads; None for 1
        device (torch.device or str): the accelerator by default, or the CPU without one
    """
    size = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    device = device or torch.accelerator.current_accelerator() or "cpu"
    if _takes_score(mod_fn):
        return ~_map(mod_fn, size, device, torch.zeros(size, device=device)).isneginf()
    return _map(mod_fn, size, device)


# ---- lists of blocks: the number of listed columns in each row, and all columns, listed ones first

def _ordered(dense: Tensor) -> tuple[Tensor, Tensor]:
    dense = dense.to(torch.int32)
    indices = dense.argsort(dim=-1, descending=True, stable=True)
    return dense.sum(-1).to(torch.int32), indices.to(torch.int32).contiguous()


def _dense(count: Tensor, indices: Tensor, columns: int) -> Tensor:
    listed = torch.arange(indices.shape[-1], device=indices.device) < count[..., None]
    target = indices.long().masked_fill(~listed, columns)  # others go to a column that is dropped
    blocks = torch.zeros(*count.shape, columns + 1, dtype=torch.int32, device=count.device)
    return blocks.scatter_(-1, target, 1)[..., :columns]


def _transposed(count: Tensor | None, indices: Tensor | None, columns: int) -> tuple[Tensor | None, Tensor | None]:
    if count is None or indices is None:
        return None, None
    return _ordered(_dense(count, indices, columns).transpose(-2, -1))


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else tuple(size)
    _check(len(pair) == 2 and all(isinstance(n, int) and n > 0 for n in pair), ValueError, f"BLOCK_SIZE must be positive, but got {size}")
    return pair


class BlockMask:
    """A mask as lists of blocks: for each row of blocks the partly masked columns, for which mask_mod is asked, and the full ones.

    Made by create_block_mask and from_kv_blocks. block_mask[batch, head] selects batches and heads, a third index rows of blocks.

    Args:
        seq_lengths (tuple of int): the numbers of queries and keys
        kv_num_blocks, kv_indices (Tensor): of each row: number of partly masked columns, int32 (B, H, rows); columns, int32 (B, H, rows, columns)
        full_kv_num_blocks, full_kv_indices (Tensor or None): the same of columns without a mask
        q_num_blocks, q_indices, full_q_num_blocks, full_q_indices (Tensor or None): the same of rows, for each column
        BLOCK_SIZE (tuple of int): queries and keys of a block
        mask_mod (Callable): the mask inside of the partly masked blocks
    """

    def __init__(self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None,
                 full_kv_indices: Tensor | None, q_num_blocks: Tensor | None, q_indices: Tensor | None, full_q_num_blocks: Tensor | None,
                 full_q_indices: Tensor | None, BLOCK_SIZE: tuple[int, int] = (128, 128), mask_mod: Callable = noop_mask) -> None:
        _check(kv_indices.dim() >= 2, RuntimeError, "BlockMask must have at least 2 dimensions")
        for name, a, b in (("kv", full_kv_num_blocks, full_kv_indices), ("q", full_q_num_blocks, full_q_indices)):
            _check((a is None) == (b is None), AssertionError, f"full_{name}_num_blocks and full_{name}_indices must be both provided or omitted")
        _check((q_num_blocks is None) == (q_indices is None), AssertionError, "q_num_blocks and q_indices must be both provided or omitted")
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = tuple(seq_lengths), _pair(BLOCK_SIZE), mask_mod
        self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices = kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices, self.full_q_num_blocks, self.full_q_indices = q_num_blocks, q_indices, full_q_num_blocks, full_q_indices
        self._follows_mod = False  # the lists follow from mask_mod

    @classmethod
    def from_kv_blocks(cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None, full_kv_indices: Tensor | None = None,
                       BLOCK_SIZE: int | tuple[int, int] = 128, mask_mod: Callable | None = None, seq_lengths: tuple[int, int] | None = None,
                       compute_q_blocks: bool = True) -> BlockMask:
        """Makes a mask from lists of the columns of each row; those of the rows of each column follow, if compute_q_blocks. flex_attention masks blocks
        in neither list. seq_lengths: rows and columns times BLOCK_SIZE by default."""
        _check(kv_indices.dim() >= 2, RuntimeError, "BlockMask must have at least 2 dimensions")
        pair, (rows, columns) = _pair(BLOCK_SIZE), kv_indices.shape[-2:]
        lists = (kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        _check((full_kv_num_blocks is None) == (full_kv_indices is None), AssertionError,
               "full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        of_columns = _transposed(*lists[:2], columns) + _transposed(*lists[2:], columns) if compute_q_blocks else (None,) * 4
        return cls(seq_lengths or (rows * pair[0], columns * pair[1]), *lists, *of_columns, pair, mask_mod or noop_mask)

    def _lists(self) -> list[Tensor | None]:
        return [getattr(self, name) for name in _LISTS]

    def as_tuple(self, flatten: bool = True) -> tuple:
        """Returns lengths, lists, block sizes and mask_mod, as PyTorch orders them; flatten: lengths and sizes as single numbers."""
        lengths, sizes = (self.seq_lengths, self.BLOCK_SIZE) if flatten else ((self.seq_lengths,), (self.BLOCK_SIZE,))
        return (*lengths, *self._lists(), None, None, None, None, *sizes, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, queries, keys)."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string()}\n)"

    def __repr__(self) -> str:
        lists = "".join(f"    {name}={None if t is None else t.shape},\n" for name, t in zip(_LISTS, self._lists()))
        mod = getattr(self.mask_mod, "__name__", self.mask_mod)
        return (f"BlockMask(\n{lists}    BLOCK_SIZE={self.BLOCK_SIZE},\n    shape={self.shape},\n    sparsity={self.sparsity():.2f}%,\n"
                f"    mask_mod={mod}\n)")

    def __getitem__(self, index: Any) -> BlockMask:
        index = index if isinstance(index, tuple) else (index,)
        _check(len(index) <= self.kv_num_blocks.dim(), IndexError, "BlockMask indexing supports batch, head, and Q-block dimensions")
        for dim, i in enumerate(index):
            size = self.kv_num_blocks.shape[dim]
            _check(not isinstance(i, int) or -size <= i < size, IndexError, f"index {i} is out of bounds for dimension {dim} with size {size}")
        kept = tuple([i] if isinstance(i, int) else i for i in index)
        lists = [None if t is None else _select(t, kept) for t in self._lists()[:4]]
        lengths, mod, by_rows = self.seq_lengths, self.mask_mod, len(index) == self.kv_num_blocks.dim()
        if by_rows:
            begins = torch.arange(self.kv_num_blocks.shape[-1])[kept[-1]] * self.BLOCK_SIZE[0]
            lengths, mod = (int((lengths[0] - begins).clamp(0, self.BLOCK_SIZE[0]).sum()), lengths[1]), _of_sliced_mask
        made = BlockMask.from_kv_blocks(*lists, self.BLOCK_SIZE, mod, lengths, self.q_indices is not None)
        made._follows_mod = self._follows_mod and not by_rows
        return made

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """Returns the upper left part of the mask, for sequences of other lengths; lengths beyond those of the mask are refused."""
        _check(new_q_len <= self.seq_lengths[0] and new_kv_len <= self.seq_lengths[1], ValueError,
               f"a BlockMask of the lengths {self.seq_lengths} cannot grow to {(new_q_len, new_kv_len)}: create a new one")
        rows, columns = (-(-n // size) for n, size in zip((new_q_len, new_kv_len), self.BLOCK_SIZE))
        lists = []
        for count, indices in ((self.kv_num_blocks, self.kv_indices), (self.full_kv_num_blocks, self.full_kv_indices)):
            lists += (None, None) if count is None else _ordered(_dense(count, indices, self.kv_indices.shape[-1])[..., :rows, :columns])
        made = BlockMask.from_kv_blocks(*lists, self.BLOCK_SIZE, self.mask_mod, (new_q_len, new_kv_len), self.q_indices is not None)
        made._follows_mod = self._follows_mod
        return made

    def numel(self) -> int:
        """Returns the number of elements of the mask."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """Returns the percentage of blocks that are masked as a whole."""
        blocks = self.to_dense()
        return 100 * (1 - blocks.sum().item() / blocks.numel()) if blocks.numel() else 0.0

    def to_dense(self) -> Tensor:
        """Returns 1 for blocks that are not masked as a whole, else 0: int32, of shape (B, H, rows, columns)."""
        columns = self.kv_indices.shape[-1]
        blocks = _dense(self.kv_num_blocks, self.kv_indices, columns)
        return blocks if self.full_kv_indices is None else blocks | _dense(self.full_kv_num_blocks, self.full_kv_indices, columns)

    def to_string(self, grid_size: int | tuple[int, int] = 20, limit: int = 4) -> str:
        """Returns a picture of the first `limit` batches and heads, of at most grid_size (rows, columns; -1: any number) fields: two full blocks where no
        block is masked as a whole, light ones for some, blanks for all."""
        blocks = self.to_dense().cpu()
        rows, columns = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        steps = [1 if most < 0 else max(1, -(-size // most)) for size, most in zip(blocks.shape[-2:], (rows, columns))]
        pictures: list[str] = []
        for place in itertools.product(*map(range, blocks.shape[:-2])):
            if len(pictures) == limit:
                pictures.append("...\nTo print out more, set BlockMask.to_string(limit=N)\n"
                                "You can also index (BlockMask[batch, head]) to choose a specific batch or head")
                break
            lines = ["".join("  " if not part.any() else "██" if part.all() else "░░" for part in row.split(steps[1], 1))
                     for row in blocks[place].split(steps[0])]
            pictures.append("\n".join([str(place), *lines]) + ("\n" if blocks.shape[:-2].numel() > 1 else ""))
        return "\n".join(pictures).removesuffix("\n") if len(pictures) <= limit else "\n".join(pictures)

    def to(self, device: Device) -> BlockMask:
        """Returns the mask with its lists on another device. Tensors that mask_mod reads stay where they are."""
        made = BlockMask(self.seq_lengths, *[None if t is None else t.to(device) for t in self._lists()], self.BLOCK_SIZE, self.mask_mod)
        made._follows_mod = self._follows_mod
        return made


def _select(t: Tensor, index: tuple) -> Tensor:
    """Indexes dimensions one after another: lists of numbers do not combine."""
    for dim, i in enumerate(index):
        t = t[(slice(None),) * dim + (i,)]
    return t


def create_block_mask(mask_mod: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Device = None,
                      BLOCK_SIZE: int | tuple[int, int] = 128, _compile: bool = False, separate_full_blocks: bool = True) -> BlockMask:
    """Makes a BlockMask from a mask_mod.

    Args:
        mask_mod (Callable): (batch, head, q_idx, kv_idx) -> bool Tensor: whether the query sees the key
        B, H (int or None): batch size and number of heads; None if the mask is the same for all
        Q_LEN, KV_LEN (int): numbers of queries and keys
        device (torch.device or str): the accelerator by default, or the CPU without one
        BLOCK_SIZE (int or tuple of int): queries and keys of a block
        separate_full_blocks (bool): lists blocks without masked elements apart

    Example::

        >>> def causal(b, h, q_idx, kv_idx):
        ...     return q_idx >= kv_idx
        >>> block_mask = create_block_mask(causal, B=None, H=None, Q_LEN=256, KV_LEN=256)
        >>> query = key = value = torch.randn(2, 4, 256, 8, device=block_mask.kv_indices.device)
        >>> flex_attention(query, key, value, block_mask=block_mask).shape
        torch.Size([2, 4, 256, 8])
    """
    _check(not _takes_score(mask_mod), AssertionError, f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    size = _pair(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    _check(mask.dtype == torch.bool, AssertionError, f"mask.dtype must be torch.bool, got {mask.dtype}")
    padded = torch.nn.functional.pad(mask, (0, -KV_LEN % size[1], 0, -Q_LEN % size[0]))
    blocks = padded.unflatten(3, (-1, size[1])).unflatten(2, (-1, size[0])).sum((3, 5))
    full = blocks == size[0] * size[1]
    lists = (*_ordered((blocks > 0) & ~full), *_ordered(full)) if separate_full_blocks else (*_ordered(blocks > 0), None, None)
    made = BlockMask.from_kv_blocks(*lists, size, mask_mod, (Q_LEN, KV_LEN))
    made._follows_mod = True
    return made


# ---- attention

_TOO_SMALL = "block_mask was created for a smaller length than you're using it for, you likely need to create a new block mask."
_TOO_LARGE = ("block_mask was created for a larger length than you're using it for, you can either 1. create a new block mask with the correct length, or "
              "2. 'adjust' the existing block mask to the correct length by calling block_mask._adjust(q_len, kv_len). This essentially 'crops' the "
              "block mask to the upper left corner, which does not work for all mask_mods!")


def _check_inputs(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask | None, enable_gqa: bool) -> None:
    of = (query, key, value)
    _check(all(t.is_floating_point() for t in of), ValueError,
           f"Expected floating-point query, key, and value, but got {query.dtype}, {key.dtype} and {value.dtype}")
    _check(query.device == key.device == value.device, ValueError, "Expected query, key, and value to have the same device type, but got "
           f"query.device: {query.device}, key.device: {key.device}, and value.device: {value.device} instead.")
    _check(all(t.dim() == 4 for t in of), NotImplementedError, "NYI: query, key, and value must be 4D tensors")
    (batch, heads, length, width), (kv_batch, kv_heads, kv_length, kv_width) = query.shape, key.shape
    _check(width == kv_width, ValueError,
           f"Expect query and key/value to have the same embedding dimension but got E={width} and E={kv_width}.")
    _check(value.shape[:3] == key.shape[:3], ValueError,
           f"Expect key and value to have the same batch size, heads and length but got {tuple(key.shape)} and {tuple(value.shape)}.")
    _check(enable_gqa or heads == kv_heads, ValueError, "Expect query and key/value to have the same number of heads "
           f"but got Hq={heads} and Hkv={kv_heads}. Try setting enable_gqa=True for GQA.")
    _check(kv_heads and heads % kv_heads == 0, ValueError,
           f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={kv_heads}.")
    _check(batch == kv_batch or mask is not None and kv_batch == 1, ValueError, "Expect query and key/value to have the same batch size, "
           f"or non-none block_mask, but got block_mask={None if mask is None else mask.shape}, Bq={batch}, and Bkv={kv_batch}.")
    if mask is None:
        return
    _check(mask.mask_mod is not _of_sliced_mask, RuntimeError, "Cannot use mask_mod from a sliced BlockMask")
    _check(length <= mask.seq_lengths[0] and kv_length <= mask.seq_lengths[1], RuntimeError, _TOO_SMALL)
    _check((length, kv_length) == mask.seq_lengths, RuntimeError, _TOO_LARGE)
    _check(all(n in (1, m) for n, m in zip(mask.shape[:2], (batch, heads))), ValueError,
           f"block_mask has batch size {mask.shape[0]} and {mask.shape[1]} heads, but query has {batch} and {heads}")
    _check(query.device == mask.kv_indices.device, RuntimeError,
           f"Expect q/k/v and block_mask to be on the same device but got {query.device} and {mask.kv_indices.device}.")


def _mask_of(mask: BlockMask, size: tuple[int, ...], device: Device) -> Tensor:
    """Returns where a query sees a key."""
    seen = _map(mask.mask_mod, size, device)
    if mask._follows_mod:
        return seen

    def spread(count, indices):
        blocks = _dense(count, indices, mask.kv_indices.shape[-1]).bool()
        for dim, block, n in zip((-2, -1), mask.BLOCK_SIZE, size[2:]):
            blocks = blocks.repeat_interleave(block, dim).narrow(dim, 0, n)
        return blocks

    seen = seen & spread(mask.kv_num_blocks, mask.kv_indices)
    return seen if mask.full_kv_indices is None else seen | spread(mask.full_kv_num_blocks, mask.full_kv_indices)


def _no_hints(options: dict[str, Any] | None) -> None:
    for name in ("OUTPUT_LOGSUMEXP", "OUTPUT_MAX"):
        _check(name not in (options or {}), AssertionError, f"{name} must not be in kernel_options")
    if options:
        warnings.warn(f"flex_attention is composed of other ops: kernel_options {sorted(options)} have no effect", stacklevel=3)


def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: Callable | None = None, block_mask: BlockMask | None = None,
                   scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options: dict[str, Any] | None = None, *,
                   return_aux: AuxRequest | None = None) -> Any:
    """Returns softmax(score_mod(scale * query @ key^T)) @ value, without the keys that block_mask masks; 0 for queries without a key.

    Scores are float32, or float64 for float64 queries, and all of them are in memory: B * H * M * N elements. Gradients reach all inputs, and tensors
    that score_mod reads.

    Args:
        query (Tensor): (B, Hq, M, E)
        key, value (Tensor): (B, Hkv, N, E), (B, Hkv, N, Ev)
        score_mod (Callable): (score, batch, head, q_idx, kv_idx) -> score, all of them tensors without dimensions
        block_mask (BlockMask): the keys that queries see. Blocks in none of its lists are masked
        scale (float): default 1 / sqrt(E)
        enable_gqa (bool): heads of key and value serve Hq / Hkv consecutive heads of query each
        return_lse (bool): deprecated; return_aux=AuxRequest(lse=True)
        kernel_options (dict): options of kernels have no effect, and a warning says so
        return_aux (AuxRequest): also returns an AuxOutput

    Returns:
        Tensor: (B, Hq, M, Ev), of query's dtype; a tuple with the other results if there are any

    Example::

        >>> slopes = torch.tensor([0.5, 0.25])
        >>> def alibi(score, b, h, q_idx, kv_idx):
        ...     return score + slopes[h] * (kv_idx - q_idx)
        >>> query = key = value = torch.randn(1, 2, 16, 8)
        >>> flex_attention(query, key, value, score_mod=alibi).shape
        torch.Size([1, 2, 16, 8])
    """
    _check(block_mask is None or isinstance(block_mask, BlockMask), TypeError, f"block_mask must be a BlockMask, but got {type(block_mask).__name__}")
    _check_inputs(query, key, value, block_mask, enable_gqa)
    _check(not return_lse or return_aux is None, ValueError, "Cannot specify both return_lse and return_aux. "
           "return_lse is deprecated, please use return_aux=AuxRequest(lse=True) instead.")
    _no_hints(kernel_options)
    (batch, heads, length, width), (_, kv_heads, kv_length, _) = query.shape, key.shape
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    key, value = (t.to(dtype).expand(batch, -1, -1, -1).repeat_interleave(heads // kv_heads, 1) for t in (key, value))
    scores = query.to(dtype) @ key.transpose(-2, -1) * (1 / math.sqrt(width) if scale is None else scale)
    size = (batch, heads, length, kv_length)
    if score_mod is not None:
        scores = _map(score_mod, size, query.device, scores).to(dtype)
    if block_mask is not None:
        scores = scores.masked_fill(~_mask_of(block_mask, size, query.device), -_INF)
    most = scores.detach().amax(-1, keepdim=True) if kv_length else scores.new_full(size[:3] + (1,), -_INF)
    blind = most == -_INF  # queries without a key: the softmax is 0, not NaN
    scores = scores.masked_fill(blind, 0)
    out = (scores.softmax(-1).masked_fill(blind, 0) @ value).to(query.dtype)
    wanted = AuxRequest(lse=True) if return_lse else return_aux
    if wanted is None:
        return out
    lse = scores.logsumexp(-1).masked_fill(blind[..., 0], -_INF) if wanted.lse else None
    aux = AuxOutput(lse, most[..., 0] if wanted.max_scores else None)
    return out, aux.lse if return_lse else aux
