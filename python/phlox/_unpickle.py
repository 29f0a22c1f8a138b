# SPDX-License-Identifier: Apache-2.0
"""Reads pickles of values and tensors that may come from anybody (weights_only).

A machine of the opcodes that torch.save writes, and of no others. It calls what stands in a closed
list, and the classes that the program has declared safe. Python's own Unpickler, with find_class
restricted, is no help: it lets a pickle set attributes of the functions and classes that are
allowed, calls them with any arguments (bytearray(2**40)), and takes 16 bytes for each number up to
the largest memo index.

What a pickle makes is bounded by its length. A key of a dict or set is at most a thousand parts, so
that its hash takes no stack and no time."""
from __future__ import annotations

import _codecs
import pickle
import struct
from collections import Counter, OrderedDict

from phlox import _C, _utils

UnpicklingError = pickle.UnpicklingError
_BLOCKED = ("sys", "os", "posix", "nt")
_KEY_PARTS = 1000
_DICTS = (dict, OrderedDict, Counter)


class Blocked(UnpicklingError):
    """A name that is not to be had even as a safe global."""


class Unsafe(UnpicklingError):
    """A name that a program may declare safe."""


# ---- the list of what is called, each with its arguments checked

def _check_key(key):
    parts, left = 0, [key]
    while left:
        item = left.pop()
        parts += 1 + (len(item) if isinstance(item, tuple) else 0)
        if parts > _KEY_PARTS:
            raise UnpicklingError(f"a key of more than {_KEY_PARTS} parts")
        if isinstance(item, tuple):
            left.extend(item)


def _check_keys(keys):
    for key in keys:
        _check_key(key)
    return keys


def _ordered(pairs=()):
    _check_keys([key for key, _ in pairs])
    return OrderedDict(pairs)


def _counter(counts=()):
    return Counter(_check_keys(counts))


def _set(items=()):
    return set(_check_keys(items))


def _bytearray(data=b"", encoding=None):
    if isinstance(data, int):
        raise UnpicklingError("bytearray is called with a size")
    return bytearray(data) if encoding is None else bytearray(_encode(data, encoding))


def _encode(text, encoding):
    if encoding not in ("latin1", "latin-1"):
        raise UnpicklingError(f"bytes are written as latin1, not {encoding!r}")
    return text.encode("latin1")


def _parameter(data, requires_grad=True):
    if not isinstance(data, _C.Tensor):
        raise UnpicklingError("a Parameter is made of a tensor")
    return _C._Parameter(data, requires_grad)


def _from_type(func, new_type, args, state):
    from phlox._tensor import _rebuild_from_type_v2
    if func not in _REBUILD or new_type not in (_C.Tensor, _C._Parameter, *_allowed()):
        raise UnpicklingError(f"Trying to call reduce for unrecognized function {func}")
    return _rebuild_from_type_v2(func, new_type, args, state)


_REBUILD = [_utils._rebuild_tensor, _utils._rebuild_tensor_v2, _utils._rebuild_tensor_v3,
            _utils._rebuild_parameter, _utils._rebuild_parameter_with_state,
            _utils._rebuild_meta_tensor_no_storage]
_CALLS = {"collections.OrderedDict": (OrderedDict, _ordered),
          "collections.Counter": (Counter, _counter),
          "set": (set, _set),
          "complex": (complex, complex),
          "bytearray": (bytearray, _bytearray),
          "_codecs.encode": (_codecs.encode, _encode),
          "torch.Size": (_C.Size, _C.Size),
          "torch.device": (_C.device, _C.device),
          "torch.nn.parameter.Parameter": (_C._Parameter, _parameter),
          **{f"torch._utils.{func.__name__}": (func, func) for func in _REBUILD}}
_CALLED = {}  # by the identity of what is called


def _called():
    if not _CALLED:
        from phlox import _tensor, serialization
        _CALLS["torch._tensor._rebuild_from_type_v2"] = (_tensor._rebuild_from_type_v2, _from_type)
        layout = serialization._get_layout
        _CALLS["torch.serialization._get_layout"] = (layout, layout)
        _CALLED.update((id(func), call) for func, call in _CALLS.values())
    return _CALLED


def _value_of(name):
    """What is no function: a dtype, the type of a storage, Tensor."""
    if name == "torch.Tensor":
        return _C.Tensor
    for kind in _utils.STORAGE_TYPES:
        if name == repr(kind):
            return kind
    value = getattr(_C, name[len("torch."):], None) if name.count(".") == 1 else None
    return value if isinstance(value, _C.dtype) else None


# ---- what programs declare safe

safe = []  # objects, and pairs of an object and its name


def name_of(item):
    if isinstance(item, tuple):
        return item[1]
    if not hasattr(item, "__qualname__"):
        raise TypeError("a safe global is a class or a function, or a pair of one and its name, "
                        f"not {item!r}")
    module = item.__module__
    return item.__qualname__ if module == "builtins" else f"{module}.{item.__qualname__}"


def _allowed():
    return [item[0] if isinstance(item, tuple) else item for item in safe]


def _is_safe(value, kind):
    """Whether a value's class is one of that kind which a program has declared safe."""
    return isinstance(value, kind) and any(type(value) is item for item in _allowed())


def find(module, name):
    """The object of a global, if it is allowed."""
    full = name if module in ("builtins", "__builtin__") else f"{module}.{name}"
    for item in safe:
        if name_of(item) == full:
            return item[0] if isinstance(item, tuple) else item
    if module.partition(".")[0] in _BLOCKED:
        raise Blocked(f"Trying to load unsupported GLOBAL {full} whose module {module} is blocked.")
    _called()
    found = _CALLS[full][0] if full in _CALLS else _value_of(full)
    if found is not None:
        return found
    if _utils.is_torch(module) and safe:  # a class of Phlox by the name that PyTorch has for it
        try:
            found = _utils.find(module, name)
        except AttributeError:
            found = None
        if any(found is item for item in _allowed()):
            return found
    raise Unsafe(f"Unsupported global: GLOBAL {full} was not an allowed global by default. Please "
                 f"use `torch.serialization.add_safe_globals([{full}])` or the "
                 f"`torch.serialization.safe_globals([{full}])` context manager to allowlist this "
                 "global if you trust this class/function.")


# ---- the machine

class Unpickler:
    """Reads the pickle that begins at `at` of data, bytes or a map of a file; `at` is its end
    then."""

    def __init__(self, data, at, persistent_load):
        self.data, self.at, self.end = data, at, len(data)
        self.persistent_load = persistent_load
        self.stack, self.marks, self.memo = [], [], {}
        self.room = (self.end - at) // 2 + 4096  # for tuples, lists and dicts

    def load(self):
        data, table = self.data, _TABLE
        while self.at < self.end:
            opcode = data[self.at]
            self.at += 1
            if opcode == 0x2e:  # STOP
                return self.pop()
            step = table.get(opcode)
            if step is None:
                raise UnpicklingError(f"Unsupported operand {opcode}")
            step(self)
        raise EOFError("the pickle has no end")

    # what the steps share
    def take(self, count):
        begin, self.at = self.at, self.at + count
        if self.at > self.end:
            raise EOFError("the pickle is truncated")
        return self.data[begin:self.at]

    def number(self, count):
        return int.from_bytes(self.take(count), "little")

    def line(self):
        end = self.data.find(b"\n", self.at, self.at + 1000)
        if end < 0:
            raise UnpicklingError("a name has no end")
        begin, self.at = self.at, end + 1
        return self.data[begin:end].decode("utf-8", "replace")

    def pop(self):
        if not self.stack:
            raise UnpicklingError("the pickle takes a value from an empty stack")
        return self.stack.pop()

    def top(self):
        if not self.stack:
            raise UnpicklingError("the pickle takes a value from an empty stack")
        return self.stack[-1]

    def pop_mark(self):
        if not self.marks:
            raise UnpicklingError("the pickle takes a mark that is not there")
        items, self.stack = self.stack, self.marks.pop()
        return items

    def made(self, value):
        self.room -= 1
        if self.room < 0:
            raise UnpicklingError("the pickle makes more values than its length is worth")
        self.stack.append(value)

    # the steps
    def global_(self):
        module, name = self.line(), self.line()
        self.stack.append(find(module, name))

    def reduce(self):
        args, func = self.pop(), self.pop()
        call = _called().get(id(func))
        if call is None and any(func is item for item in _allowed()):
            call = func
        if call is None:
            raise UnpicklingError(f"Trying to call reduce for unrecognized function {func}")
        self.made(self.called(call, args))

    @staticmethod
    def called(call, args):
        try:
            return call(*args)
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise UnpicklingError(f"{getattr(call, '__name__', call)} does not take the arguments "
                                  f"of the pickle: {error}") from error

    def newobj(self):
        args, cls = self.pop(), self.pop()
        if cls is OrderedDict or cls is Counter or cls is _C._Parameter:
            self.made(self.called(_called()[id(cls)], args))
        elif any(cls is item for item in _allowed()) and isinstance(cls, type):
            self.made(self.called(cls.__new__, (cls, *args)))
        else:
            raise UnpicklingError("Can only create new object for nn.Parameter or classes "
                                  f"allowlisted via `add_safe_globals` but got {cls}")

    def build(self):
        state, made = self.pop(), self.top()
        kind = type(made)
        if kind is OrderedDict or kind is _C._Parameter:
            self.called(_utils.with_state, (made, dict(state)))
        elif _is_safe(made, object):
            self.called(getattr(made, "__setstate__", lambda s: _utils.with_state(made, s)),
                        (state,))
        else:
            raise UnpicklingError("Can only build Tensor, Parameter, OrderedDict or types "
                                  f"allowlisted via `add_safe_globals`, but got {kind}")

    def append(self):
        self.extend("append to", [self.pop()])

    def appends(self):
        self.extend("extend", self.pop_mark())

    def extend(self, what, items):
        if type(self.top()) is not list and not _is_safe(self.top(), list):
            raise UnpicklingError(f"Can only {what} lists, but got {type(self.top())}")
        self.top().extend(items)

    def setitem(self):
        value = self.pop()
        self.update("SETITEM", [self.pop(), value])

    def setitems(self):
        self.update("SETITEMS", self.pop_mark())

    def update(self, what, items):
        target = self.top()
        if type(target) not in _DICTS and not _is_safe(target, dict):
            raise UnpicklingError(f"Can only {what} for dict, collections.OrderedDict, "
                                  f"collections.Counter, but got {type(target)}")
        for key, value in zip(items[::2], items[1::2]):
            _check_key(key)
            self.called(target.__setitem__, (key, value))

    def mark(self):
        self.marks.append(self.stack)
        self.stack = []

    def tuple_(self, count):
        items = [self.pop() for _ in range(count)]
        self.made(tuple(reversed(items)))

    def persid(self):
        saved = self.pop()
        if not isinstance(saved, tuple):
            raise UnpicklingError(f"saved_id must be a tuple, got {type(saved).__name__}")
        if not saved or saved[0] != "storage":
            raise UnpicklingError("Only persistent_load of storage is allowed, but got "
                                  f"{type(saved[0]) if saved else saved}")
        self.stack.append(self.persistent_load(saved))

    def get(self, index):
        if index not in self.memo:
            raise UnpicklingError(f"the pickle remembers nothing under {index}")
        self.stack.append(self.memo[index])

    def put(self, index):
        self.memo[index] = self.top()

    def text(self):
        try:
            self.stack.append(bytes(self.take(self.number(4))).decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError as error:
            raise UnpicklingError(f"a text is not UTF-8: {error}") from None

    def push(self, value):
        self.stack.append(value)


def _table():
    u = Unpickler
    steps = {
        "c": u.global_, "R": u.reduce, "\x81": u.newobj, "b": u.build, "a": u.append,
        "e": u.appends, "s": u.setitem, "u": u.setitems, "(": u.mark, "Q": u.persid, "X": u.text,
        "t": lambda s: s.made(tuple(s.pop_mark())), "\x85": lambda s: s.tuple_(1),
        "\x86": lambda s: s.tuple_(2), "\x87": lambda s: s.tuple_(3),
        "N": lambda s: s.push(None), "\x88": lambda s: s.push(True),
        "\x89": lambda s: s.push(False), ")": lambda s: s.push(()),
        "]": lambda s: s.made([]), "}": lambda s: s.made({}), "\x8f": lambda s: s.made(set()),
        "J": lambda s: s.push(int.from_bytes(s.take(4), "little", signed=True)),
        "K": lambda s: s.push(s.number(1)), "M": lambda s: s.push(s.number(2)),
        "G": lambda s: s.push(struct.unpack(">d", s.take(8))[0]),
        "U": lambda s: s.push(bytes(s.take(s.number(1))).decode("latin1")),
        "\x8a": lambda s: s.push(int.from_bytes(s.take(s.number(1)), "little", signed=True)),
        "h": lambda s: s.get(s.number(1)), "j": lambda s: s.get(s.number(4)),
        "q": lambda s: s.put(s.number(1)), "r": lambda s: s.put(s.number(4)),
        "\x80": lambda s: s.number(1),
    }
    return {ord(opcode): step for opcode, step in steps.items()}


_TABLE = _table()
