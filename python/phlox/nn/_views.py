# SPDX-License-Identifier: Apache-2.0
"""The dicts of a module, as programs read and write them. They hold nothing: what they show, and change, are the
entries of the module. They are dicts for isinstance alone; every method that a program can call is here."""
from collections.abc import MutableMapping, MutableSet

from phlox import _C

_SORTS = {"_parameters": 1, "_buffers": 2, "_modules": 4}
_OF_CORE = {"training", "_non_persistent_buffers_set", *_SORTS}


class Live(dict):
    """A dict over what a module has."""
    __slots__ = ("_module",)

    def __new__(cls, *args, **items):
        """What a program makes of this type, as of a dict that it copies, is a plain dict."""
        of_module = args and isinstance(args[0], _C.nn.Module)
        return super().__new__(cls) if of_module else dict(*args, **items)

    def __init__(self, module):
        super().__init__()
        self._module = module

    def pop(self, name, *default):
        """Takes out an item, and gives its value."""
        value = self[name] if not default else self.get(name, *default)
        if name in self:
            del self[name]
        return value

    def popitem(self):
        """Takes out the last item."""
        for name in reversed(self):
            return name, self.pop(name)
        raise KeyError("dictionary is empty")

    def clear(self):
        """Takes out all items."""
        for name in list(self):
            del self[name]

    def move_to_end(self, name, last=True):
        """Moves an item to the end, or to the beginning, of the order."""
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
    return lambda self, *args: method(self._now(), *args)


for _name in ("__contains__ __eq__ __getitem__ __iter__ __len__ __ne__ __or__ __repr__ __reversed__ __ror__ copy get "
              "items keys values").split():
    setattr(Live, _name, _reading(dict, _name))


class Entries(Live):
    """The entries of one sort."""
    __slots__ = ("_sort",)

    def __init__(self, module, sort):
        super().__init__(module)
        self._sort = sort

    def _now(self):
        return _C._module_entries(self._module, self._sort)

    def copy(self):
        """A plain dict of the same items."""
        return dict(self._now())

    def __setitem__(self, name, value):
        _C._module_put(self._module, self._sort, name, value)

    def __delitem__(self, name):
        _C._module_drop(self._module, self._sort, name)


class Attributes(Live):
    """A module's __dict__: its own dict, and what the core keeps."""
    __slots__ = ()

    def _of_core(self):
        module = self._module
        if not _C._module_has_begun(module):
            return {}
        return {"training": module.training, **{name: live(module, name) for name in _SORTS},
                "_non_persistent_buffers_set": live(module, "_non_persistent_buffers_set"),
                **_C._module_arguments(module)}

    def _now(self):
        return {**self._of_core(), **_C._module_dict(self._module)}

    def __setitem__(self, name, value):
        if name in _OF_CORE:
            _C._module_begin(self._module)
        if name in self._of_core():
            setattr(self._module, name, value)
        else:
            _C._module_dict(self._module)[name] = value

    def __delitem__(self, name):
        own = _C._module_dict(self._module)
        if name not in own and name in self._of_core():
            raise TypeError(f"'{name}' of a module cannot be deleted")
        del own[name]


class Passing(set):
    """The names of the buffers that do not persist."""
    __slots__ = ("_module",)

    def __new__(cls, *args, **items):
        """What a program makes of this type, as of a dict that it copies, is a plain dict."""
        of_module = args and isinstance(args[0], _C.nn.Module)
        return super().__new__(cls) if of_module else dict(*args, **items)

    def __init__(self, module):
        super().__init__()
        self._module = module

    def _now(self):
        return _C._module_passing(self._module)

    def _put(self, name, persistent):
        buffers = _C._module_entries(self._module, 2)
        if name in buffers:
            _C._module_put(self._module, 2, name, buffers[name], persistent)

    def add(self, name):
        """Lets state_dict leave a buffer out."""
        self._put(name, False)

    def discard(self, name):
        """Lets state_dict have a buffer."""
        self._put(name, True)

    def update(self, *others):
        """Adds the names of others."""
        for name in (name for other in others for name in other):
            self.add(name)

    def __reduce_ex__(self, protocol):
        return set, (list(self._now()),)

    remove, pop, clear = MutableSet.remove, MutableSet.pop, MutableSet.clear
    __ior__, __isub__, __iand__ = MutableSet.__ior__, MutableSet.__isub__, MutableSet.__iand__
    __hash__ = None


for _name in ("__and__ __contains__ __eq__ __iter__ __len__ __ne__ __or__ __repr__ __sub__ copy difference "
              "intersection issubset issuperset union").split():
    setattr(Passing, _name, _reading(set, _name))


def live(module, name):
    """The dict, or set, that an attribute of a module is."""
    if name == "__dict__":
        return Attributes(module)
    return Passing(module) if name not in _SORTS else Entries(module, _SORTS[name])


def fill(module, name_and_value):
    """Gives such a dict other contents."""
    name, value = name_and_value
    own = dict.fromkeys(value) if name == "_non_persistent_buffers_set" else dict(value)
    if name == "__dict__":
        _C._module_dict(module).clear()
    shown = live(module, name)
    if name in _SORTS or name == "_non_persistent_buffers_set":
        for key in [key for key in shown if key not in own]:
            shown.discard(key) if isinstance(shown, set) else shown.pop(key)
    shown.update(own)
