# SPDX-License-Identifier: Apache-2.0
"""torch.save and torch.load.

The format is PyTorch's: a zip of a pickle and of each storage's bytes. PyTorch's legacy format (a
sequence of pickles, then storages) and safetensors can be read, too. Phlox's globals are written with
torch's names, so that PyTorch can load the files."""
from __future__ import annotations

import _compat_pickle
import copyreg
import io
import mmap as _mmap
import os
import pickle
import pickletools
import sys
import warnings
from collections import OrderedDict
from contextlib import contextmanager, nullcontext
from enum import Enum
from threading import local
from types import FunctionType

from phlox import _C, _archive, _utils

_C._name_missing(__name__)
TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_Module = _C.nn.Module
_HOOKS = ("_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
          "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
          "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
          "_load_state_dict_post_hooks")
_MAGIC, _PROTOCOL = 0x1950a86a20f9469cfc6c, 1001  # the header of the legacy format


# ---- globals allowed with weights_only, in addition to the list in unpickle_globals.c

_safe = []  # objects, and (object, name) pairs


def _name_of(item):
    if isinstance(item, tuple):
        return item[1]
    if not hasattr(item, "__qualname__"):
        raise TypeError("expected a safe global to be a class, a function, or a pair of one and its name, "
                        f"got {item!r}")
    module = item.__module__
    return item.__qualname__ if module == "builtins" else f"{module}.{item.__qualname__}"


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Marks classes and functions as safe for torch.load(weights_only=True). An (object, name) pair sets
    the name used in files."""
    for item in safe_globals:
        _name_of(item)
    _safe[:0] = [item for item in safe_globals if item not in _safe]


def get_safe_globals() -> list[Any]:
    """Returns the globals added by add_safe_globals."""
    return list(_safe)


def clear_safe_globals() -> None:
    """Removes the globals added by add_safe_globals."""
    _safe.clear()


@contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """A context manager that marks globals as safe for torch.load(weights_only=True)."""
    before = get_safe_globals()
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe[:] = before


# ---- settings

def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """Returns the names of the classes and functions in a file of torch.save that
    torch.load(weights_only=True) refuses. Nothing in the file is run.

    Args:
        f (path or file): as for torch.load

    Raises ValueError for other files, pickle.UnpicklingError for instructions that weights_only refuses.
    """
    with open(os.fspath(f), "rb") if _is_path(f) else nullcontext(f) as file:
        at = file.tell()
        begin = file.read(4)
        file.seek(at)
        if begin != b"PK\3\4":
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        archive = _archive.Reader(file)
        if "constants.pkl" in archive.records:
            raise ValueError("Expected input to be a checkpoint returned by torch.save but got a "
                             "torchscript checkpoint")
        safe, found = {_name_of(item) for item in _safe}, {}
        for op, argument, _ in pickletools.genops(archive.read("data.pkl")):
            if op.name in ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"):
                raise pickle.UnpicklingError(f"Unsupported operand {ord(op.code)}")
            if op.name == "GLOBAL":
                module, name = argument.split(" ", 1)
                module, name = _compat_pickle.NAME_MAPPING.get((module, name), (
                    _compat_pickle.IMPORT_MAPPING.get(module, module), name))
                full = name if module == "builtins" else f"{module}.{name}"
                if full not in safe and not _C._is_known_global(full):
                    found[f"{module}.{name}"] = None
        return list(found)


class LoadEndianness(Enum):
    """Byte orders."""
    NATIVE, LITTLE, BIG = 1, 2, 3


class _Settings(local):
    """Thread-local settings. skips: storages' bytes are neither written nor read."""
    skip = False


_settings = _Settings()
_mmap_flags, _endianness, _computes_crc32 = _mmap.MAP_PRIVATE, None, True


class skip_data:
    """A context manager: torch.save reserves space for storages' bytes without writing them, and
    torch.load does not read them."""

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        if materialize_fake_tensors:
            raise NotImplementedError("torch.serialization.skip_data: materialize_fake_tensors=True is not implemented in Phlox")

    def __enter__(self):
        self.before, _settings.skip = _settings.skip, True

    def __exit__(self, *error):
        _settings.skip = self.before


class set_default_mmap_options:
    """Sets the mapping of torch.load(mmap=True): mmap.MAP_PRIVATE, or mmap.MAP_SHARED to write changes to
    the file. Takes effect immediately; as a context manager, it restores the previous mapping."""

    def __init__(self, flags: int) -> None:
        global _mmap_flags
        if flags not in (_mmap.MAP_PRIVATE, _mmap.MAP_SHARED):
            raise ValueError("Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or "
                             f"mmap.MAP_SHARED, but got {flags}")
        self.before, _mmap_flags = _mmap_flags, flags

    def __enter__(self):
        """Does nothing: the constructor has set the flags."""

    def __exit__(self, *error):
        global _mmap_flags
        _mmap_flags = self.before


def get_default_mmap_options() -> int:
    """Returns the flags set by set_default_mmap_options."""
    return _mmap_flags


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Sets the byte order assumed for files without a record of it. None: little."""
    global _endianness
    if not isinstance(endianness, (LoadEndianness, type(None))):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _endianness = endianness


def get_default_load_endianness() -> LoadEndianness | None:
    """Returns the byte order set by set_default_load_endianness."""
    return _endianness


def set_crc32_options(compute_crc32: bool) -> None:
    """Sets if torch.save computes checksums. Default: True."""
    global _computes_crc32
    _computes_crc32 = compute_crc32


def get_crc32_options() -> bool:
    """Returns the option set by set_crc32_options."""
    return _computes_crc32


def _get_layout(name):
    found = {str(layout): layout for layout in (_C.strided,)}.get(name)
    if found is None:
        raise ValueError(f"Phlox lacks the layout {name}")
    return found


# ---- writing

class _Storages:
    """The storages referenced by a pickle, by key. `more` is appended to each persistent id."""

    def __init__(self, *more):
        self.keys, self.dtypes, self.locations, self.more = {}, {}, {}, more

    def refer(self, storage):
        untyped, dtype = storage.untyped(), storage.dtype
        key = self.keys.setdefault(untyped, str(len(self.keys)))
        if self.dtypes.setdefault(key, dtype) != dtype:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data "
                               "as different types")
        if self.more and dtype is None:  # the legacy format has no untyped storages
            dtype = _C.uint8
        location = location_tag(untyped) if _packages else str(storage.device)
        return ("storage", _utils.TYPE_OF_DTYPE[dtype], key,
                self.locations.setdefault(location, location), storage.size(), *self.more)


def _reduced(obj):
    """Reduces tensors and other objects of torch with a special form in files."""
    if isinstance(obj, _C.Tensor):
        return _reduced_tensor(obj)
    if isinstance(obj, _C.device):
        return _C.device, (obj.type,) if obj.index is None else (obj.type, obj.index)
    if type(obj) is _C.Size:
        return _C.Size, (tuple(obj),)
    if isinstance(obj, _C.layout):
        return _get_layout, (str(obj),)
    if isinstance(obj, _Module) and type(obj).__reduce__ is _Module.__reduce__:
        return copyreg.__newobj__, (type(obj),), _state_of_module(obj)
    if isinstance(obj, (_utils.StorageType, _C.dtype, type(_C.relu))):
        return _utils.public_name(obj)[1]
    return NotImplemented


def _state_of_module(module):
    """Returns a module's state, extended by the attributes of PyTorch's modules."""
    state = module.__getstate__()
    if not isinstance(state, dict) or "_parameters" not in state:
        return state  # the class has its own format
    hooks = {name: OrderedDict() for name in _HOOKS}
    return {**hooks, "_is_full_backward_hook": None, **state}


def _reduced_tensor(tensor):
    kind = type(tensor)
    state = tensor.__dict__
    if issubclass(kind, _C._Parameter):
        args = tensor.detach(), tensor.requires_grad, OrderedDict()
        func = _utils._rebuild_parameter
        if kind is _C._Parameter:
            return (_utils._rebuild_parameter_with_state, (*args, state)) if state else (func, args)
    elif tensor.is_meta:
        if _settings.skip:
            warnings.warn("Serializing tensors on the meta device under skip_data context manager is a no-op")
        args = tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.requires_grad
        func = _utils._rebuild_meta_tensor_no_storage
        if kind is _C.Tensor and not state:
            return func, args
    else:
        args = (tensor.storage(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(),
                tensor.requires_grad, OrderedDict())
        func = _utils._rebuild_tensor_v2
        if tensor.dtype not in _utils.TYPE_OF_DTYPE:  # there is no torch.UInt16Storage
            func = _utils._rebuild_tensor_v3
            args = tensor.untyped_storage(), *args[1:], tensor.dtype
        if metadata := _utils.get_tensor_metadata(tensor):
            args = *args, metadata
        if kind is _C.Tensor and not state:
            return func, args
    from phlox._tensor import _rebuild_from_type_v2
    return _rebuild_from_type_v2, (func, kind, args, state)


def _tensor_opcodes(tensor, storages, memo, protocol):
    """Returns the opcodes for a plain tensor in one call: a fast path, equivalent to _reduced_tensor. None
    for other tensors, and until the memo has all required globals."""
    if tensor.is_meta or storages.more or tensor.__dict__ or _utils.get_tensor_metadata(tensor):
        return None
    storage = tensor.storage()
    if storage.dtype not in _utils.TYPE_OF_DTYPE:
        return None
    return _C._tensor_opcodes(tensor, storages.refer(storage), memo, protocol,
                              _utils._rebuild_tensor_v2, OrderedDict)


_PLAIN = {type(None), bool, int, float, str, tuple, list, dict}  # types that need no override


def _pickler_of(module, storages):
    """Returns a pickler class that writes torch's names for Phlox's globals. Its base must be Python's
    pickler: the C pickler ignores save_global."""
    base = getattr(module, "_Pickler", module.Pickler)
    in_python = issubclass(base, pickle._Pickler)

    class Pickler(base):
        if in_python:  # a fast path for the methods below
            def save(self, obj, save_persistent_id=True):
                known, kind = self.memo.get(id(obj)), type(obj)
                if known is None and kind is _C.Tensor and self.proto >= 2 and not self.fast:
                    opcodes = _tensor_opcodes(obj, storages, self.memo, self.proto)
                    if opcodes is not None:
                        self.write(opcodes)
                        return
                self.framer.commit_frame()
                if known is not None:
                    self.write(self.get(known[0]))
                elif kind in _PLAIN:
                    self.dispatch[kind](self, obj)
                else:
                    super().save(obj, save_persistent_id)

        def persistent_id(self, obj):
            return storages.refer(obj) if _C.is_storage(obj) else None

        def reducer_override(self, obj):
            return _reduced(obj)

        def save_global(self, obj, name=None):
            public = _utils.public_name(obj, name)
            if public is None:
                return super().save_global(obj, name)
            if self.proto >= 4:
                for text in public:
                    self.save(text)
                self.write(pickle.STACK_GLOBAL)
            else:
                self.write(pickle.GLOBAL + "{}\n{}\n".format(*public).encode())
            self.memoize(obj)

        dispatch = {**getattr(base, "dispatch", {}), FunctionType: save_global}

    return Pickler


def _pickled(obj, module, protocol, storages):
    buffer = io.BytesIO()
    _pickler_of(module, storages)(buffer, protocol).dump(obj)
    return buffer.getvalue()


def _write_zip(sink, folder, obj, module, protocol):
    storages = _Storages()
    data = _pickled(obj, module, protocol, storages)
    archive = _archive.Writer(sink(), folder)
    for name, record in (("data.pkl", data), (".format_version", b"1"),
                         (".storage_alignment", str(_archive.ALIGNMENT).encode()),
                         ("byteorder", sys.byteorder.encode())):
        archive.record(name, record, _computes_crc32)
    for storage, key in storages.keys.items():
        if _settings.skip:
            archive.record(f"data/{key}", _C.zeros(storage.nbytes(), dtype=_C.uint8, device="cpu").untyped_storage(), False)
        else:
            archive.record(f"data/{key}", storage.cpu(), _computes_crc32)
    archive.record("version", b"3\n", _computes_crc32)
    archive.close()
    return archive.sink


def _write_legacy(sink, folder, obj, module, protocol):
    if _settings.skip:
        raise RuntimeError("Cannot use skip_data=True with _use_new_zipfile_serialization=False")
    storages = _Storages(None)  # the legacy format's view metadata: none
    data = _pickled(obj, module, protocol, storages)
    info = {"protocol_version": _PROTOCOL, "little_endian": sys.byteorder == "little",
             "type_sizes": {"short": 2, "int": 4, "long": 4}}
    keys = sorted(storages.keys.values())
    begin = [pickle.dumps(value, protocol) for value in (_MAGIC, _PROTOCOL, info)]
    file = sink()
    for part in (*begin, data, pickle.dumps(keys, protocol)):
        file.write(part)
    by_key = {key: storage for storage, key in storages.keys.items()}
    for key in keys:
        size = (storages.dtypes[key] or _C.uint8).itemsize
        file.write((by_key[key].nbytes() // size).to_bytes(8, "little"))
        file.write(memoryview(by_key[key].cpu()))
    return file


def _is_path(f):
    return isinstance(f, (str, bytes)) or hasattr(f, "__fspath__")


def save(obj: Any, f: Any, pickle_module: Any = pickle, pickle_protocol: int = 2,
             _use_new_zipfile_serialization: bool = True) -> None:
    """Saves an object to a file in PyTorch's format. Tensors sharing memory still share it after
    loading.

    Args:
        obj: any object that can be pickled
        f (path or file): a path, or a file-like object with `write`. A path ending in ".safetensors"
            is written in that format, which supports tensors, numbers, strings, None, and lists,
            tuples and dicts of them
        pickle_module, pickle_protocol: the pickling module and protocol
        _use_new_zipfile_serialization (bool): False writes the format of PyTorch before 1.6

    >>> import io; file = io.BytesIO()
    >>> torch.save({"x": torch.ones(2)}, file); file.seek(0)
    0
    >>> torch.load(file)
    {'x': tensor([1., 1.])}
    """
    write = _write_zip if _use_new_zipfile_serialization else _write_legacy
    if not _is_path(f):
        if not hasattr(f, "write"):
            raise AttributeError("expected 'f' to be string, path, or a file-like object with a "
                                 "'write' attribute")
        write(lambda: f, "archive", obj, pickle_module, pickle_protocol)
        if hasattr(f, "flush"):  # a temporary file may be opened again by its name
            f.flush()
        return
    path = os.fspath(f)
    name = os.path.basename(os.fsdecode(path))
    parent = os.path.dirname(os.fsdecode(path))
    if name.endswith(".safetensors"):
        _C._save_tree(obj, f)
        return
    if parent and not os.path.isdir(parent):
        raise RuntimeError(f"Parent directory {parent} does not exist.")
    folder = os.path.splitext(name)[0] or "archive"
    write(lambda: _C._File(path), folder, obj, pickle_module, pickle_protocol).commit()


# ---- devices of storages

def _available_device(location):
    """Returns the device of a location tag such as "cuda:1". Raises if it is not available."""
    try:
        device = _C.device(location)
    except (RuntimeError, TypeError, ValueError):
        raise RuntimeError("don't know how to restore data location of "
                           f"torch.storage.UntypedStorage (tagged with {location})") from None
    count = _C.cuda.device_count() if device.type == "cuda" else None
    if count == 0:
        raise RuntimeError("Attempting to deserialize object on a CUDA device but "
                           "torch.cuda.is_available() is False. If you are running on a CPU-only "
                           "machine, please use torch.load with map_location=torch.device('cpu') "
                           "to map your storages to the CPU.")
    if count is not None and device.index is not None and device.index >= count:
        raise RuntimeError(f"Attempting to deserialize object on CUDA device {device.index} but "
                           f"torch.cuda.device_count() is {count}. Please use torch.load with "
                           "map_location to map your storages to an existing device.")
    return device


def _default_tag(storage):
    return str(storage.device)


def _default_restore(storage, location):
    device = _available_device(location)
    if device.type == "meta":
        return _C.empty(storage.nbytes(), dtype=_C.uint8, device=device).untyped_storage()
    return storage if device.type == "cpu" else storage.cuda(device.index)


_packages = []  # registered by the program
_DEFAULT_PACKAGES = [(10, lambda storage: "cpu" if storage.device.type == "cpu" else None,
         lambda storage, location: storage if location == "cpu" else None), (20, _default_tag, _default_restore)]


def register_package(priority: int, tagger: Callable[[Any], str | None],
                     deserializer: Callable[[Any, str], Any]) -> None:
    """Registers functions for storages on other devices: tagger(storage) returns a location tag and
    deserializer(storage, location) a storage there. Each may return None, to try the next package.

    Args:
        priority (int): packages are tried in ascending order; the CPU has 10, devices have 20
    """
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda package: package[0])


def _sorted_packages():
    return sorted((*_packages, *_DEFAULT_PACKAGES), key=lambda package: package[0]) if _packages else _DEFAULT_PACKAGES


def location_tag(storage: Any) -> str:
    """Returns the location tag of a storage."""
    return next(filter(None, (tagger(storage) for _, tagger, _ in _sorted_packages())))


def default_restore_location(storage: Any, location: str) -> Any:
    """Moves a storage to the location of a tag from a file or map_location."""
    made = (deserializer(storage, location) for _, _, deserializer in _sorted_packages())
    return next(x for x in made if x is not None)


def _restored(storage, location, map_location):
    """Moves a loaded storage to the location given by map_location, or by the file."""
    if isinstance(map_location, (str, _C.device)):
        return default_restore_location(storage, str(map_location))
    if isinstance(map_location, dict):
        return default_restore_location(storage, map_location.get(location, location))
    if map_location is not None:
        mapped = map_location(storage, location)
        if mapped is not None:
            return mapped.untyped()
    return default_restore_location(storage, location)


def _device_of(map_location, tensor, saved):
    """Returns the device for a tensor of a safetensors file."""
    if isinstance(map_location, (str, _C.device)):
        saved = map_location
    elif isinstance(map_location, dict):
        saved = map_location.get(saved, saved)
    elif map_location is not None:
        mapped = map_location(tensor.untyped_storage(), saved)
        saved = saved if mapped is None else mapped.device
    return _available_device(str(saved))


def _bytes(storage):
    return _C._tensor_of_storage(storage, _C.uint8, 0, (storage.nbytes(),), (1,))


def _normalized(storage, dtype, order):
    """Normalizes a loaded storage: swaps bytes to the native order and converts bools to 0 or 1."""
    size = 1 if dtype is None else dtype.itemsize
    if order != sys.byteorder and size > 1:
        buffer = memoryview(storage)
        data = bytes(buffer)
        for i in range(size):
            buffer[i::size] = data[size - 1 - i::size]
    if dtype is _C.bool:
        flags = _bytes(storage)
        flags.copy_(flags != 0)
    return storage


# ---- reading

class _Source:
    """The base class of the file readers."""

    def __init__(self, file, map_location, module, weights_only, arguments):
        self.file, self.map_location, self.module = file, map_location, module
        self.weights_only, self.arguments = weights_only, arguments
        self.storages = {}

    def unpickled(self, data, at=0):
        """Unpickles at offset `at` of `data` (bytes or a map). Returns (value, end offset)."""
        if self.weights_only:
            safe = {_name_of(item): item[0] if isinstance(item, tuple) else item
                    for item in reversed(_safe)}
            return _C._unpickle(data, at, self.storages, self.storage, safe)
        source = self

        class Unpickler(self.module.Unpickler):
            def find_class(self, module, name):
                ours = _utils.is_torch(module)
                return _utils.find(module, name) if ours else super().find_class(module, name)

            def persistent_load(self, saved):
                return _C._storage_of_id(saved, source.storages, source.storage)

        stream = io.BytesIO(data[at:]) if at else io.BytesIO(data)
        value = Unpickler(stream, **source.arguments).load()
        return value, at + stream.tell()


class _Zip(_Source):
    def read(self, mmap):
        self.archive = _archive.Reader(self.file)
        self.map = self.archive.map(_mmap_flags == _mmap.MAP_SHARED) if mmap else None
        records = self.archive.records
        default_orders = {None: "little", LoadEndianness.NATIVE: sys.byteorder}
        self.order = (self.archive.read("byteorder").decode("ascii", "replace") if "byteorder" in records
                      else default_orders.get(_endianness) or _endianness.name.lower())
        if self.order not in ("little", "big"):
            raise ValueError("Unknown endianness type: " + self.order)
        if "constants.pkl" in records:
            raise RuntimeError("the file is an archive of torch.jit, which Phlox does not run")
        return self.unpickled(self.archive.read("data.pkl"))[0]

    def storage(self, dtype, key, location, size):
        name = f"data/{key}"
        begin = self.archive.claim(name, size)
        if self.map and size and begin % (dtype.itemsize if dtype else 1) == 0:
            made = _C._over_buffer(self.map, _C.uint8, size, begin).untyped_storage()
        else:
            made = _C.empty(size, dtype=_C.uint8, device="cpu").untyped_storage()
            if not _settings.skip:
                self.archive.fill(name, begin, made)
        return _restored(_normalized(made, dtype, self.order), location, self.map_location)


class _Legacy(_Source):
    """The legacy format: pickles followed by the storages."""

    def read(self):
        self.raw = {}
        begin = self.file.tell()
        data = self.whole()
        self.left = len(data)
        value, at = self.unpickled(data, 0)
        if value != _MAGIC:
            raise RuntimeError("Invalid magic number; corrupt file?")
        version, at = self.unpickled(data, at)
        if version != _PROTOCOL:
            raise RuntimeError("Invalid protocol version: "
                               + str(version if isinstance(version, int) else type(version)))
        info, at = self.unpickled(data, at)
        little = info.get("little_endian", True) if isinstance(info, dict) else True
        value, at = self.unpickled(data, at)
        keys, at = self.unpickled(data, at)
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise RuntimeError("the file has no list of its storages; corrupt file?")
        for key in keys:
            at = self.fill(data, at, key, "little" if little else "big")
        self.file.seek(begin + at)
        return value

    def whole(self):
        """Returns the remaining contents of the file, as a map if possible."""
        try:
            if self.file.tell() == 0:
                return _mmap.mmap(self.file.fileno(), 0, access=_mmap.ACCESS_READ)
        except (AttributeError, OSError, ValueError):
            pass
        return self.file.read()

    def storage(self, dtype, key, location, size):
        self.left -= size
        if self.left < 0:
            raise RuntimeError("unexpected EOF: the file is shorter than its storages. The file "
                               "might be corrupted.")
        # Zeros for now: the storages follow the pickle, and their offsets depend on its sizes.
        self.raw[key] = _C.zeros(size, dtype=_C.uint8, device="cpu").untyped_storage()
        return _restored(self.raw[key], location, self.map_location)

    def fill(self, data, at, key, order):
        if key not in self.storages:
            raise RuntimeError(f"the file has a storage {key} without a reference to it")
        storage, dtype = self.storages[key]
        raw = self.raw[key]
        begin, size = at + 8, raw.nbytes()
        end = begin + size
        if end > len(data):
            raise RuntimeError(f"unexpected EOF, expected {end - len(data)} more bytes. The file "
                               "might be corrupted.")
        count = int.from_bytes(data[at:begin], order)
        if count * (dtype.itemsize if dtype else 1) != size:
            raise RuntimeError(f"storage {key} has {count} elements in its header, but {size} bytes in the "
                               "pickle")
        with memoryview(data) as view, view[begin:end] as part:
            memoryview(raw)[:] = part
        _normalized(raw, dtype, order)
        if storage != raw:
            _bytes(storage).copy_(_bytes(raw))
        return end


def _is_safetensors(begin):
    return len(begin) > 8 and begin[8:9] == b"{" and int.from_bytes(begin[:8], "little") < 1 << 40


def _load(file, path, source, mmap):
    at = file.tell()
    begin = file.read(9)
    file.seek(at)
    if not begin:
        raise EOFError("Ran out of input: the file is empty")
    if begin[:4] == b"PK\3\4":
        return _Zip(file, *source).read(mmap)
    if mmap:
        raise RuntimeError("mmap can only be used with files saved with `torch.save("
                           f"{os.fsdecode(path)}, _use_new_zipfile_serialization=True), please "
                           "torch.save your checkpoint with this option in order to use mmap.")
    if _is_safetensors(begin):
        device_of = lambda tensor, home: _device_of(source[0], tensor, str(home))
        data = None if path is not None else file.read()
        maps_storages = not isinstance(source[0], (str, _C.device, dict, type(None)))
        return _C._load_tree(path, data, device_of, maps_storages)
    return _Legacy(file, *source).read()


def _forced(weights_only, default):
    """Applies the environment variables that force weights_only. The one that allows all content
    applies to calls without weights_only."""
    safe, unsafe = (os.environ.get(f"TORCH_FORCE_{name}WEIGHTS_ONLY_LOAD", "0").lower() in
                    ("1", "y", "yes", "true") for name in ("", "NO_"))
    if safe and unsafe:
        raise RuntimeError("Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or "
                           "`TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but both were set.")
    if safe:
        return True
    if unsafe and weights_only is None:
        warnings.warn("Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the"
                      "`weights_only` argument was not explicitly passed to `torch.load`, forcing "
                      "weights_only=False.", UserWarning, stacklevel=3)
        return False
    return default if weights_only is None else weights_only


def load(f: Any, map_location: Any = None, pickle_module: Any = None, *,
         weights_only: bool | None = None, mmap: bool | None = None,
         **pickle_load_args: Any) -> Any:
    """Loads a file saved by torch.save of Phlox or PyTorch, or a safetensors file.

    Args:
        f (path or file): a path, or a file-like object with read, seek, tell and readline
        map_location (device, str, dict, callable or None): the destination of storages: a device; a
            dict of location tags; or a function (CPU storage, location tag) -> storage or None.
            None: the devices they were saved from
        pickle_module: the unpickling module, for weights_only=False
        weights_only (bool): if True (default), loads only tensors, numbers, strings, containers of
            them and globals from add_safe_globals: safe for untrusted files. False executes
            arbitrary code in the pickle. TORCH_FORCE_WEIGHTS_ONLY_LOAD=1 in the environment forces
            True, and TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 makes False the default
        mmap (bool): if True, tensors are backed by a private map of the file, read on access
        pickle_load_args: arguments of the unpickler, for weights_only=False

    Raises pickle.UnpicklingError for content disallowed by weights_only; RuntimeError for corrupt files
    and unavailable devices; EOFError for pickles that end early; ValueError for an unknown byte order.
    """
    weights_only = _forced(weights_only, pickle_module is None)
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if weights_only and pickle_load_args:
        raise TypeError("load() accepts arguments of the unpickler only with weights_only=False, but "
                        f"got {', '.join(pickle_load_args)}")
    source = map_location, pickle_module or pickle, weights_only, pickle_load_args
    if not _is_path(f):
        for name in ("read", "seek", "tell", "readline"):
            if not hasattr(f, name):
                raise AttributeError(f"'{type(f).__name__}' object has no attribute '{name}'. You "
                                     "can only torch.load from a file that is seekable. Please "
                                     "pre-load the data into a buffer like io.BytesIO and try to "
                                     "load from it instead.")
        if mmap:
            raise ValueError("f must be a file path in order to use the mmap argument")
        return _load(f, None, source, mmap)
    path = os.fspath(f)
    with open(path, "rb") as file:
        return _load(file, path, source, mmap)
