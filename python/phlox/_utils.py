# SPDX-License-Identifier: Apache-2.0
"""Support for pickles: functions that rebuild tensors, by PyTorch's names, and the storage classes.
Also maps PyTorch's names to Phlox's objects, and back."""
from __future__ import annotations

from importlib import import_module

from phlox import _C

# ---- storages: a pickle encodes their dtype as a class


class StorageType:
    """A typed storage class as named in pickles: torch.FloatStorage."""

    def __init__(self, name, dtype, module="torch"):
        self.__qualname__, self.__module__, self.dtype = name, module, dtype

    def __repr__(self):
        return f"{self.__module__}.{self.__qualname__}"


STORAGE_TYPES = [StorageType(_C._dtype_class(dtype) + "Storage", dtype)
                 for dtype in _C._typed_dtypes(True)]
STORAGE_TYPES.append(StorageType("UntypedStorage", None, "torch.storage"))
TYPE_OF_DTYPE = {kind.dtype: kind for kind in STORAGE_TYPES}
_TYPE_OF_NAME = {repr(kind): kind for kind in STORAGE_TYPES}


def typed(storage, dtype):
    """Converts an untyped storage to a typed one."""
    if dtype is None:
        return storage
    count = storage.nbytes() // dtype.itemsize
    return _C._tensor_of_storage(storage, dtype, 0, (count,), (1,)).storage()


# ---- names

def find(module, name):
    """Returns the object PyTorch calls module.name. If an inner module lacks it, as
    torch.nn.modules.linear.Linear, its parent packages are searched."""
    if f"{module}.{name}" in _TYPE_OF_NAME:
        return _TYPE_OF_NAME[f"{module}.{name}"]
    path = "phlox" + module[len("torch"):]
    while path:
        try:
            found = import_module(path)
            for part in name.split("."):
                found = getattr(found, part)
            return found
        except (ImportError, AttributeError):
            path = path.rpartition(".")[0]
    raise AttributeError(f"Phlox lacks {module}.{name}, which the file names")


def is_torch(module):
    return module == "torch" or module.startswith("torch.")


def public_name(obj, name=None):
    """Returns PyTorch's (module, name) of an object of Phlox; None for other objects."""
    if isinstance(obj, _C.dtype):
        return "torch", str(obj).partition(".")[2]
    module = getattr(obj, "__module__", None)
    name = name or getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if not isinstance(module, str) or not name:
        return None
    if module == "phlox" or module.startswith("phlox."):
        module = "torch" + module[len("phlox"):]
    if not is_torch(module):
        return None
    outer, _, inner = module.rpartition(".")
    if inner.startswith("_") and _is(obj, outer, name):  # a private file that exports to its package
        return outer, name
    return (module, name) if _is(obj, module, name) else None


def _is(obj, module, name):
    try:
        return find(module, name) is obj
    except AttributeError:
        return False


# ---- pickling and copying of C types without __reduce__

def reduced(obj):
    """The reduction function registered with copyreg in phlox/__init__.py."""
    if isinstance(obj, _C.Generator):
        return _rebuild_generator, (str(obj.device), obj.initial_seed(), obj.get_state())
    if _C.is_storage(obj):
        return _rebuild_storage, (bytes(memoryview(obj.cpu().untyped())), obj.dtype, str(obj.device))
    return find, ("torch", f"Tensor.{obj.__name__}") if isinstance(obj, METHOD) else public_name(obj)


METHOD = type(_C.Tensor.relu)


def _rebuild_generator(device, seed, state):
    generator = _C.Generator(device).manual_seed(seed)
    return generator.set_state(state)


def _rebuild_storage(data, dtype, device):
    storage = _C.empty(len(data), dtype=_C.uint8, device="cpu").untyped_storage()
    memoryview(storage)[:] = data
    device = _C.device(device)
    return typed(storage if device.type == "cpu" else storage.cuda(device.index), dtype)


# ---- functions called by pickles

get_tensor_metadata = _C._get_tensor_metadata
set_tensor_metadata = _C._set_tensor_metadata


def _rebuild_tensor(storage, storage_offset, size, stride):
    dtype = storage.dtype or _C.uint8
    return _C._tensor_of_storage(storage, dtype, storage_offset, size, stride)


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks,
                       metadata=None):
    return _rebuild_tensor_v3(storage, storage_offset, size, stride, requires_grad, backward_hooks,
                              storage.dtype or _C.uint8, metadata)


def _rebuild_tensor_v3(storage, storage_offset, size, stride, requires_grad, backward_hooks, dtype,
                       metadata=None):
    tensor = _C._tensor_of_storage(storage, dtype, storage_offset, size, stride)
    if metadata:
        set_tensor_metadata(tensor, metadata)
    for hook in (backward_hooks or {}).values():
        tensor.register_hook(hook)
    return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad):
    tensor = _C.empty_strided(size, stride, dtype=dtype, device="meta")
    return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_parameter(data, requires_grad, backward_hooks):
    parameter = _C._Parameter(data, requires_grad)
    for hook in (backward_hooks or {}).values():
        parameter.register_hook(hook)
    return parameter


def _rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    return with_state(_rebuild_parameter(data, requires_grad, backward_hooks), state)


def with_state(obj, state):
    """Restores the attributes of an unpickled object. `state` is a dict, or a tuple of it and a dict
    of slots."""
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    obj.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(obj, name, value)
    return obj


# ---- private functions used by libraries

def _get_device_index(device, optional=False, allow_cpu=False):
    """Returns the index of a device: an int, a torch.device or a str."""
    if isinstance(device, int):
        return device
    found = _C.device(device) if isinstance(device, (str, _C.device)) else None
    if found and found.type == "cpu":
        if allow_cpu:
            return -1
        raise ValueError(f"Expected a non cpu device, but got: {device}")
    if found and found.index is not None:
        return found.index
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    return _C.cuda.current_device()


def _flatten_dense_tensors(tensors):
    """Concatenates the flattened tensors into one vector."""
    return _C.cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat, tensors):
    """Splits a vector into views with the shapes of `tensors`."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(part.view_as(tensor) for part, tensor in zip(parts, tensors))
