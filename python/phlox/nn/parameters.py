# SPDX-License-Identifier: Apache-2.0
"""torch.nn.ParameterList and ParameterDict: containers of parameters by index or by name. Each value is an attribute
of the module: tensors are registered as parameters, other values are plain attributes."""
from __future__ import annotations

from phlox import Tensor, empty
from phlox.nn import Module, Parameter

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any


def _as_parameter(value):
    """Converts a plain tensor to a Parameter. Other values are returned unchanged."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _line(name, value, by_dtype):
    """Returns a line of the printed form: "  (name): Parameter containing: [torch.float32 of size 2x3]"."""
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    device = f" ({value.device})" if value.is_cuda else ""
    size = "x".join(str(n) for n in value.shape)
    return f"  ({name}): {kind} containing: [{value.dtype if by_dtype else value.type()} of size {size}{device}]"


def _is_iterable(value):
    return hasattr(value, "__iter__") or hasattr(value, "__getitem__")


class _BufferMeta(type):
    """A metaclass: tensors marked with _is_buffer are instances."""

    def __instancecheck__(cls, value):
        return isinstance(value, Tensor) and getattr(value, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor registered as a buffer when it is assigned to a module attribute. persistent=False excludes it from
    state_dict.

    >>> module = torch.nn.Module()
    >>> module.scale = torch.nn.Buffer(torch.ones(2))
    >>> list(module.state_dict())
    ['scale']
    """

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Tensor:
        """Returns a tensor sharing the data's memory, marked as a buffer."""
        data = empty(0) if data is None else data
        made = data.detach().requires_grad_(data.requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made


class ParameterList(Module):
    """A list of parameters, registered under the names "0", "1", ... Plain tensors become parameters; other values are
    stored as they are.

    >>> list(torch.nn.ParameterList([torch.ones(2), 5]).state_dict())
    ['0']
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _name(self, index):
        index = index.__index__()
        if not -self._size <= index < self._size:
            raise IndexError(f"index {index} is out of range")
        return str(index % self._size)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        """Returns the value at an index, or a ParameterList of a slice."""
        if isinstance(index, slice):
            return type(self)().extend(list(self)[index])
        return getattr(self, self._name(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._name(index), _as_parameter(value))

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, str(i)) for i in range(self._size)])

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Appends a value. Returns the list."""
        setattr(self, str(self._size), _as_parameter(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Appends several values. Returns the list."""
        if not _is_iterable(values):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in list(values):  # a copy: a list may be extended by itself
            self.append(value)
        return self

    def extra_repr(self) -> str:
        """The lines of the printed form."""
        return "\n".join(_line(i, value, True) for i, value in enumerate(self))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RuntimeError: a ParameterList is not callable."""
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters, registered under their keys. Plain tensors become parameters; other values are stored as
    they are.

    >>> list(torch.nn.ParameterDict({"a": torch.ones(2)}).state_dict())
    ['a']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    @staticmethod
    def _checked(key):
        if not isinstance(key, str):
            raise TypeError("Index given to ParameterDict cannot be used as a key as it is not a string (type "
                            f"is '{type(key).__name__}'). Open an issue on github if you need non-string keys.")
        return key

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._checked(key))

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, self._checked(key), _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys.keys())

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __or__(self, other: ParameterDict) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        made = type(self)()
        made.update(other)
        made.update(self)
        return made

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self

    def keys(self) -> Iterable[str]:
        """Returns the keys."""
        return self._keys.keys()

    def values(self) -> Iterable[Any]:
        """Returns the values."""
        return [self[key] for key in self._keys]

    def items(self) -> Iterable[tuple[str, Any]]:
        """Returns the (key, value) pairs."""
        return [(key, self[key]) for key in self._keys]

    def copy(self) -> ParameterDict:
        """Returns a shallow copy."""
        made = type(self)()
        made.update(self)
        return made

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key, or the default."""
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key, after setting it to the default if it is missing."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Removes a key and returns its value."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Removes and returns the last inserted (key, value) pair."""
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key, _ = self._keys.popitem()
        value = getattr(self, key)
        delattr(self, key)
        return key, value

    def clear(self) -> None:
        """Removes all items."""
        for key in list(self._keys):
            del self[key]

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Returns a ParameterDict with the given keys, each with the default value."""
        made = ParameterDict()
        for key in keys:
            made[key] = default
        return made

    def update(self, parameters: Any) -> None:
        """Updates the dict from a mapping or from pairs. Keys of a plain dict are sorted."""
        if not _is_iterable(parameters):
            raise TypeError("ParametersDict.update should be called with an iterable of key/value pairs, but got "
                            f"{type(parameters).__name__}")
        if hasattr(parameters, "items"):
            names = sorted(parameters) if type(parameters) is dict else list(parameters.keys())
            parameters = [(name, parameters[name]) for name in names]
        for i, pair in enumerate(list(parameters)):
            if not _is_iterable(pair):
                raise TypeError(f"ParameterDict update sequence element #{i} should be Iterable; is{type(pair).__name__}")
            pair = tuple(pair)
            if len(pair) != 2:
                raise ValueError(f"ParameterDict update sequence element #{i} has length {len(pair)}; 2 is required")
            self[pair[0]] = pair[1]

    def extra_repr(self) -> str:
        """The lines of the printed form."""
        return "\n".join(_line(key, value, False) for key, value in self.items())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RuntimeError: a ParameterDict is not callable."""
        raise RuntimeError("ParameterDict should not be called.")
