# SPDX-License-Identifier: Apache-2.0
"""Live views of a module's dicts (_parameters, _buffers, _modules, __dict__). They store nothing: reads and writes go
to the module's entries in C. The base class dict is for isinstance only; every public method is redefined here."""
from collections.abc import MutableMapping, MutableSet

from phlox import _C

_KINDS = {"_parameters": 1, "_buffers": 2, "_modules": 4}
_CORE_NAMES = {"training", "_non_persistent_buffers_set", *_KINDS}


class Live(dict):
    """A live dict view of a module."""
    __slots__ = ("_module",)

    def __new__(cls, *args, **items):
        """Returns a view for a module. Other arguments (as in copies by type(d)(...)) create a plain dict."""
        of_module = args and isinstance(args[0], _C.nn.Module)
        return super().__new__(cls) if of_module else dict(*args, **items)

    def __init__(self, module):
        super().__init__()
        self._module = module

    def pop(self, name, *default):
        """Removes an item and returns its value."""
        value = self[name] if not default else self.get(name, *default)
        if name in self:
            del self[name]
        return value

    def popitem(self):
        """Removes and returns the last item."""
        for name in reversed(self):
            return name, self.pop(name)
        raise KeyError("dictionary is empty")

    def clear(self):
        """Removes all items."""
        for name in list(self):
            del self[name]

    def move_to_end(self, name, last=True):
        """Moves an item to the end, or to the start."""
        rest = [] if last else [other for other in self if other != name]
        for moved in [name, *rest]:
            self[moved] = self.pop(moved)

    def __ior__(self, other):
        self.update(other)
        return self

    def __reduce_ex__(self, protocol):
        return dict, (self.copy(),)

    update, setdefault = MutableMapping.update, MutableMapping.setdefault
    __hash__ = None


def _reading(base, name):
    method = getattr(base, name)
    return lambda self, *args: method(self._contents(), *args)


for _name in ("__contains__ __eq__ __getitem__ __iter__ __len__ __ne__ __or__ __repr__ __reversed__ __ror__ copy get "
              "items keys values").split():
    setattr(Live, _name, _reading(dict, _name))


class Entries(Live):
    """A view of the entries of one kind: parameters, buffers or children."""
    __slots__ = ("_kind",)

    def __init__(self, module, kind):
        super().__init__(module)
        self._kind = kind

    def _contents(self):
        return _C._module_entries(self._module, self._kind)

    def copy(self):
        """Returns a plain dict of the items."""
        return dict(self._contents())

    def __setitem__(self, name, value):
        _C._module_put(self._module, self._kind, name, value)

    def __delitem__(self, name):
        _C._module_drop(self._module, self._kind, name)


class Attributes(Live):
    """A view of a module's __dict__: its Python dict and the attributes stored in C."""
    __slots__ = ()

    def _core_items(self):
        module = self._module
        if not _C._module_has_begun(module):
            return {}
        return {"training": module.training, **{name: live(module, name) for name in _KINDS},
                "_non_persistent_buffers_set": live(module, "_non_persistent_buffers_set"),
                **_C._module_arguments(module)}

    def _contents(self):
        return {**self._core_items(), **_C._module_dict(self._module)}

    def __setitem__(self, name, value):
        if name in _CORE_NAMES:
            _C._module_begin(self._module)
        if name in self._core_items():
            setattr(self._module, name, value)
        else:
            _C._module_dict(self._module)[name] = value

    def __delitem__(self, name):
        own = _C._module_dict(self._module)
        if name not in own and name in self._core_items():
            raise TypeError(f"'{name}' of a module cannot be deleted")
        del own[name]


class NonPersistent(set):
    """A live set of the names of non-persistent buffers."""
    __slots__ = ("_module",)

    def __new__(cls, *args, **items):
        """Returns a view for a module. Other arguments create a plain dict."""
        of_module = args and isinstance(args[0], _C.nn.Module)
        return super().__new__(cls) if of_module else dict(*args, **items)

    def __init__(self, module):
        super().__init__()
        self._module = module

    def _contents(self):
        return _C._module_non_persistent(self._module)

    def _put(self, name, persistent):
        buffers = _C._module_entries(self._module, 2)
        if name in buffers:
            _C._module_put(self._module, 2, name, buffers[name], persistent)

    def add(self, name):
        """Makes a buffer non-persistent."""
        self._put(name, False)

    def discard(self, name):
        """Makes a buffer persistent."""
        self._put(name, True)

    def update(self, *others):
        """Makes several buffers non-persistent."""
        for name in (name for other in others for name in other):
            self.add(name)

    def __reduce_ex__(self, protocol):
        return set, (list(self._contents()),)

    remove, pop, clear = MutableSet.remove, MutableSet.pop, MutableSet.clear
    __ior__, __isub__, __iand__ = MutableSet.__ior__, MutableSet.__isub__, MutableSet.__iand__
    __hash__ = None


for _name in ("__and__ __contains__ __eq__ __iter__ __len__ __ne__ __or__ __repr__ __sub__ copy difference "
              "intersection issubset issuperset union").split():
    setattr(NonPersistent, _name, _reading(set, _name))


def live(module, name):
    """Returns the live view for an attribute of a module."""
    if name == "__dict__":
        return Attributes(module)
    return NonPersistent(module) if name not in _KINDS else Entries(module, _KINDS[name])


def fill(module, name_and_value):
    """Replaces the contents of a live view."""
    name, value = name_and_value
    own = dict.fromkeys(value) if name == "_non_persistent_buffers_set" else dict(value)
    if name == "__dict__":
        _C._module_dict(module).clear()
    view = live(module, name)
    if name in _KINDS or name == "_non_persistent_buffers_set":
        for key in [key for key in view if key not in own]:
            view.discard(key) if isinstance(view, set) else view.pop(key)
    view.update(own)
