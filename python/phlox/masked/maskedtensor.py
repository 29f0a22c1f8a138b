# SPDX-License-Identifier: Apache-2.0
"""torch.masked.MaskedTensor: a tensor some of whose elements are unspecified. Element-wise functions keep the mask, reductions and softmax leave masked
elements out, and functions that move elements move the mask with them. Others raise TypeError.

    x = torch.tensor([0.0, 4.0], requires_grad=True)
    y = torch.masked.as_masked_tensor(x, x > 0)
    y.sqrt().sum().backward()
    x.grad                      # tensor([0.0000, 0.2500]), not NaN
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

import phlox as torch
from phlox import _C

_C._name_missing(__name__)

_DTYPES = (torch.float16, torch.float32, torch.float64, torch.bool, torch.int8, torch.int16, torch.int32, torch.int64)
_POINTWISE = frozenset("""
abs absolute acos acosh add addcdiv addcmul angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min clip copysign cos cosh deg2rad digamma div divide
dropout elu eq erf erfc erfinv exp exp2 expm1 fix float_power floor floor_divide fmax fmin fmod frac ge gelu greater greater_equal gt heaviside
hypot igamma igammac isclose isfinite isinf isnan isneginf isposinf isreal ldexp le leaky_relu lerp less less_equal lgamma log log10 log1p log2 logaddexp
logaddexp2 logical_and logical_not logical_or logical_xor logit lt maximum minimum mish mul multiply mvlgamma nan_to_num ne neg negative nextafter not_equal
polygamma positive pow rad2deg real reciprocal relu relu6 remainder round rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc sinh softplus sqrt square
sub subtract tan tanh true_divide trunc xlogy empty_like full_like ones_like rand_like randn_like zeros_like
""".split())
_REFLECTED = frozenset(f"__r{name}__" for name in "add sub mul truediv div floordiv mod pow and or xor lshift rshift".split())
_CONVERSIONS = frozenset("bfloat16 bool byte char clone contiguous cpu cuda detach double float half int long short to to_dense type".split())
_MOVES = frozenset("""
__getitem__ __get__T __get__mT broadcast_to cat chunk column_stack concat concatenate diagonal dstack expand expand_as flatten flip fliplr flipud gather
hstack index_select moveaxis movedim narrow permute ravel repeat repeat_interleave reshape roll rot90 row_stack select split squeeze stack swapaxes swapdims
t take_along_dim tensor_split tile transpose unbind unflatten unfold unsqueeze view view_as vstack
""".split())
_REDUCTIONS = {name: ("dim", "keepdim") for name in "all amax amin any argmax argmin logsumexp mean prod sum".split()} | {
    "norm": ("ord", "dim", "keepdim"), "std": ("dim", "unbiased", "keepdim"), "var": ("dim", "unbiased", "keepdim")}  # positional arguments
_ALONG = frozenset("cumprod cumsum log_softmax softmax softmin normalize".split())
# Functions whose results are not masked tensors.
_PLAIN = frozenset("""
__deepcopy__ __len__ __reduce_ex__ __setstate__ backward data_ptr dim element_size get_device is_complex is_contiguous is_floating_point is_signed ndimension nelement numel register_hook
is_conj is_neg requires_grad_ retain_grad size storage storage_offset stride untyped_storage
""".split())


class _Unmasked(torch.autograd.Function):
    """The tensor itself; its gradient is 0 at masked elements, whatever the functions after it give there."""

    @staticmethod
    def forward(ctx, data, mask):
        ctx.save_for_backward(mask)
        return data.view_as(data)

    @staticmethod
    def backward(ctx, grad):
        return torch.where(ctx.saved_tensors[0], grad, 0), None


def _check(data, mask):
    for name, given in (("data", data), ("mask", mask)):
        if not isinstance(given, torch.Tensor) or isinstance(given, MaskedTensor):
            raise TypeError(f"{name} must be a Tensor")
    if mask.dtype != torch.bool:
        raise TypeError("mask must have dtype bool.")
    if data.dtype not in _DTYPES:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if data.dim() != mask.dim():
        raise ValueError("data.dim() must equal mask.dim()")
    if data.shape != mask.shape:
        raise ValueError("data.size() must equal mask.size()")


def _masked(data, mask):
    result = data.as_subclass(MaskedTensor)
    result._masked_mask = mask
    return result


def _plain(tensor):
    return tensor.as_subclass(torch.Tensor)


def _convert(given, convert):
    """Returns `given`, a nest of lists and tuples, with its masked tensors converted."""
    if isinstance(given, MaskedTensor):
        return convert(given)
    return type(given)(_convert(item, convert) for item in given) if type(given) in (list, tuple) else given


def _common_mask(args):
    """Returns the mask of all masked tensors among the arguments, which must agree."""
    masks = [arg._masked_mask for arg in args if isinstance(arg, MaskedTensor)]
    for mask in masks[1:]:
        if mask is not masks[0] and not torch.equal(mask, masks[0]):
            raise ValueError("Input masks must match.")
    return masks[0]


def _pointwise(func, name, args, kwargs):
    mask = _common_mask((*args, *kwargs.values()))

    def operand(arg):
        if isinstance(arg, MaskedTensor):
            return _plain(arg)
        if isinstance(arg, torch.Tensor) and arg.requires_grad:
            shape = torch.broadcast_shapes(arg.shape, mask.shape)
            return _Unmasked.apply(arg.expand(shape), mask.expand(shape))
        return arg

    result = func(*map(operand, args), **{key: operand(value) for key, value in kwargs.items()})
    return args[0] if name.endswith("_") and name not in _REFLECTED else _masked(result, mask.expand(result.shape))


def _where(condition, input, other):
    if isinstance(condition, MaskedTensor):
        condition = _plain(condition)

    def mask_of(given):
        return given._masked_mask if isinstance(given, MaskedTensor) else True

    data = torch.where(condition, *(_plain(given) if isinstance(given, MaskedTensor) else given for given in (input, other)))
    return _masked(data, torch.where(condition, mask_of(input), mask_of(other)).expand(data.shape))


def _move(func, name, args, kwargs):
    def mask_of(tensor):
        return tensor._masked_mask

    if name in ("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack", "row_stack") and not all(
            isinstance(item, MaskedTensor) for item in args[0]):
        raise TypeError(f"{name}: all tensors must be masked tensors")
    data = func(*_convert(args, _plain), **_convert(kwargs, _plain))
    mask = func(*_convert(args, mask_of), **_convert(kwargs, mask_of))
    if isinstance(data, torch.Tensor):
        return _masked(data, mask)
    return type(data)(map(_masked, data, mask))


def _truth(name, data, dim, keepdim, mask):
    kept = data.bool() & mask if name == "any" else data.bool() | ~mask
    return getattr(kept, name)() if dim is None else getattr(kept, name)(dim, keepdim)


def _reduce(name, input, *args, **kwargs):
    given = dict(zip(_REDUCTIONS[name], args), **kwargs)
    if "p" in given:
        given["ord"] = given.pop("p")
    if isinstance(given.get("dim"), bool):  # std(unbiased)
        given["unbiased"] = given.pop("dim")
    data, mask, dim, keepdim = _plain(input), input._masked_mask, given.get("dim"), given.get("keepdim", False)
    result = _truth(name, data, dim, keepdim, mask) if name in ("all", "any") else getattr(torch.masked, name)(data, **given, mask=mask)
    if dim is None:
        return _masked(result, mask.any().expand(result.shape))
    for i in sorted({i % mask.dim() for i in ([dim] if isinstance(dim, int) else dim)}, reverse=True):
        mask = mask.any(i, keepdim)
    return _masked(result, mask)


def _along(name, input, *args, **kwargs):
    return _masked(getattr(torch.masked, name)(_plain(input), *args, **kwargs, mask=input._masked_mask), input._masked_mask)


def _convert_to(func, input, *args, **kwargs):
    data = func(_plain(input), *args, **kwargs)
    return _masked(data, input._masked_mask.to(data.device))


def _gradients(outputs, inputs, *args, **kwargs):
    found = torch.autograd.grad(outputs, inputs, *args, **kwargs)
    wrap = lambda grad, of: _masked(grad, of._masked_mask) if isinstance(of, MaskedTensor) and grad is not None else grad
    return ({key: wrap(found[key], of) for key, of in inputs.items()} if isinstance(inputs, dict) else
            tuple(map(wrap, found, [inputs] if isinstance(inputs, torch.Tensor) else inputs)))


def _item(input):
    if not input._masked_mask.item():
        raise ValueError("a masked element has no value")
    return _plain(input).item()


def _text_of(value):
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _text(data, mask, indent):
    if data.dim() > 1:
        rows = ",\n".join(_text(*pair, indent + "  ") for pair in zip(data, mask))
        return f"{indent}[\n{rows}\n{indent}]"
    texts = [_text_of(value) if kept else "--" for value, kept in zip(data.tolist(), mask.tolist())]
    width = max(8, *map(len, texts), 0)
    return f"{indent}[{', '.join(text.rjust(width) if text == '--' else text for text in texts)}]"


def _repr(input):
    data, mask = _plain(input).detach().cpu(), input._masked_mask.cpu()
    if not data.dim():
        return f"MaskedTensor({_text_of(data.item()) if mask.item() else '--'}, {mask.item()})"
    return f"MaskedTensor(\n{_text(data, mask, '  ')}\n)"


class MaskedTensor(torch.Tensor):
    """MaskedTensor(data, mask, requires_grad=False): a copy of `data`, a tensor of floats, signed integers or bool, in which the elements count where
    the bool tensor `mask` is True. Element-wise functions of two masked tensors require equal masks. `.grad` is masked as the tensor is."""

    _masked_mask: torch.Tensor

    def __new__(cls, data: torch.Tensor, mask: torch.Tensor, requires_grad: bool = False) -> MaskedTensor:
        return masked_tensor(data, mask, requires_grad)

    def __init__(self, data: torch.Tensor, mask: torch.Tensor, requires_grad: bool = False) -> None:
        pass

    @classmethod
    def __torch_function__(cls, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        owner = getattr(func, "__self__", None)
        name = f"__get__{owner.__name__}" if func.__name__ == "__get__" else func.__name__
        with torch._C.DisableTorchFunctionSubclass():
            return cls._call(func, name, args, kwargs)

    @classmethod
    def _call(cls, func, name, args, kwargs):
        first = args[0] if args else None
        if name.removesuffix("_") in _POINTWISE or name in _REFLECTED:
            return _pointwise(func, name, args, kwargs)
        if name in _MOVES:
            return _move(func, name, args, kwargs)
        if func is torch.autograd.grad:
            return _gradients(*args, **kwargs)
        if name == "where":
            return _where(*args, **kwargs)
        if not isinstance(first, MaskedTensor):
            raise TypeError(f"{name} does not support MaskedTensor here")
        if name in _REDUCTIONS:
            return _reduce(name, *args, **kwargs)
        if name in _ALONG:
            return _along(name, *args, **kwargs)
        if name in _CONVERSIONS:
            return _convert_to(func, *args, **kwargs)
        if name in ("__get__grad", "__get__data"):
            found = func(*args)
            return found if found is None else _masked(_plain(found), first._masked_mask)
        if name in ("item", "__bool__", "__float__", "__int__"):
            return {"item": lambda x: x, "__bool__": bool, "__float__": float, "__int__": int}[name](_item(first))
        if name == "__repr__":
            return _repr(first)
        if name in _PLAIN or name.startswith(("__get__", "__set__")):
            return func(*args, **kwargs)
        raise TypeError(f"MaskedTensor does not support {name}; to_tensor(value) returns a plain tensor")

    def _map_both(self, function, *args):
        return _masked(function(_plain(self), *args), function(self._masked_mask, *args))

    def get_data(self) -> torch.Tensor:
        """Returns the elements as a plain tensor. Masked ones are arbitrary."""
        return _plain(self)

    def get_mask(self) -> torch.Tensor:
        """Returns the mask."""
        return self._masked_mask

    def to_tensor(self, value: float) -> torch.Tensor:
        """Returns a plain tensor with `value` in place of masked elements."""
        return _plain(self).masked_fill(~self._masked_mask, value)


def masked_tensor(data: torch.Tensor, mask: torch.Tensor, requires_grad: bool = False) -> MaskedTensor:
    """Returns a copy of `data` with a copy of `mask` as a new leaf."""
    _check(data, mask)
    return _masked(data.detach().clone(), mask.detach().clone()).requires_grad_(requires_grad)


def as_masked_tensor(data: torch.Tensor, mask: torch.Tensor) -> MaskedTensor:
    """Returns `data` with `mask`, without copies. Gradients reach `data`, and are 0 at masked elements."""
    _check(data, mask)
    return _masked(_Unmasked.apply(data, mask) if data.requires_grad and torch.is_grad_enabled() else data, mask)


def is_masked_tensor(obj: Any, /) -> bool:
    """Returns True for a MaskedTensor."""
    return isinstance(obj, MaskedTensor)
