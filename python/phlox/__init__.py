# SPDX-License-Identifier: Apache-2.0
"""Phlox: tensors, devices, streams, autograd, modules and data parallelism, with PyTorch's names.

What costs time is in the C extension, whose names this file puts here. What programs derive from,
patch and read is Python, beside this file, and imported when it is first asked for."""

from . import _C

globals().update({name: value for name, value in vars(_C).items()
                  if not name.startswith("__") or name in ("__version__", "__getattr__")})

# What is Python: of each module, the files, and the names that a file gives to its module. A file
# with its own name among them is a submodule.
_TENSOR_TYPES = ("BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor "
                 "HalfTensor IntTensor LongTensor ShortTensor")
_IN_PYTHON = {
    "": {
        "_functional": "allclose asarray broadcast_shapes broadcast_tensors einsum is_complex "
                       "is_nonzero isclose meshgrid numel result_type scalar_tensor",
        "_files": "frombuffer",
        "serialization": "load save serialization",
        "random": "get_rng_state initial_seed manual_seed random seed set_rng_state",
        "_settings": "set_printoptions",
        "hub": "hub",
        "_jit": "compile",
        "_limits": "finfo iinfo",
        "_legacy": "set_default_tensor_type " + _TENSOR_TYPES,
        "optim": "optim",
        "overrides": "overrides",
        "multiprocessing": "multiprocessing",
        "backends": "backends get_float32_matmul_precision set_float32_matmul_precision",
        "phlox.utils.dlpack": "from_dlpack to_dlpack",
        "_utils": "_utils",
        "types": "types",
        "version": "version",
    },
    "amp": {"grad_scaler": "GradScaler grad_scaler"},
    "cpu.amp": {"grad_scaler": "GradScaler grad_scaler"},
    "cuda.amp": {"grad_scaler": "GradScaler grad_scaler"},
    "autograd": {"_check": "gradcheck gradgradcheck", "variable": "Variable variable"},
    "autograd.graph": {"phlox.autograd._saved": "save_on_cpu saved_tensors_hooks"},
    "cuda": {
        "_types": _TENSOR_TYPES,
        "comm": "comm",
        "memory": "memory max_memory_cached memory_cached memory_snapshot memory_summary "
                  "reset_max_memory_allocated reset_max_memory_cached",
        "_properties": "get_device_properties get_sync_debug_mode set_sync_debug_mode",
        "random": "get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all random "
                  "seed seed_all set_rng_state set_rng_state_all",
    },
    "nn.functional": {"_images": "interpolate upsample"},
    "nn.parameter": {"phlox.nn._lazy": "UninitializedBuffer UninitializedParameter is_lazy",
                     "phlox.nn.parameters": "Buffer"},
    "nn.utils": {"_vectors": "parameters_to_vector vector_to_parameters", "rnn": "rnn"},
    "nn": {"_lazy": "UninitializedBuffer UninitializedParameter", "parallel": "parallel DataParallel",
           "parameters": "Buffer ParameterDict ParameterList"},
    "utils": {"_pytree": "_pytree", "checkpoint": "checkpoint", "data": "data", "deterministic": "deterministic",
              "dlpack": "dlpack"},
}
# Methods of types of C in Python: the file, whose class of the same name has them, and the names.
_METHODS = {
    _C.Tensor: ("phlox._tensor",
                "__copy__ __deepcopy__ __format__ __reduce_ex__ __setstate__ allclose apply_ "
                "isclose map_ new new_empty new_full new_ones new_tensor new_zeros type"),
    _C.nn.Module: ("phlox.nn._module",
                   "_register_load_state_dict_pre_hook _register_state_dict_hook get_buffer "
                   "get_parameter register_backward_hook register_full_backward_hook "
                   "register_full_backward_pre_hook register_load_state_dict_post_hook "
                   "register_load_state_dict_pre_hook register_state_dict_post_hook "
                   "register_state_dict_pre_hook set_submodule share_memory to_empty"),
    _C.nn.LazyModuleMixin: ("phlox.nn._lazy",
                            "__init__ _infer_parameters _lazy_load_hook _save_to_state_dict "
                            "has_uninitialized_params initialize_parameters"),
    _C.nn.Sequential: ("phlox.nn._containers",
                       "__add__ __iadd__ __imul__ __mul__ __reversed__ __rmul__"),
    _C.nn.ModuleList: ("phlox.nn._containers", "__add__ __iadd__ __reversed__"),
    _C.nn.RNNBase: ("phlox.nn._recurrent", "_all_weights _flat_weights _flat_weights_names all_weights "
                                           "flatten_parameters permute_hidden"),
}


def _import_when_asked(module, files):
    """Makes the names that files give to a module attributes of it before they are imported."""
    lacking = module.__getattr__
    file_of = {name: file for file, names in files.items() for name in names.split()}
    for name in file_of:
        vars(module).pop(name, None)  # an op of the tables, which the function has behind it

    def find(name):
        file = file_of.get(name)
        if name == "__all__":  # from torch import *
            return [name for name in module.__dir__() if not name.startswith("_")]
        if file is None:
            return lacking(name)
        from importlib import import_module
        found = import_module(file if file.startswith("phlox.") else f"{module.__name__}.{file}")
        value = found if name == file else getattr(found, name)
        setattr(module, name, value)
        return value

    module.__getattr__ = find
    module.__dir__ = lambda: sorted({*vars(module), *file_of})


class _Late:
    """A method in Python of a type of C, which is imported, and takes this place, when it is first
    asked for."""

    def __init__(self, file, cls, name):
        self.file, self.cls, self.name = file, cls, name

    def __get__(self, instance, cls):
        from importlib import import_module
        method = vars(getattr(import_module(self.file), self.cls.__name__))[self.name]
        setattr(self.cls, self.name, method)
        return method.__get__(instance, cls)


def _reduced(obj):
    from . import _utils
    return _utils.reduced(obj)


def _make_picklable():
    import copyreg
    for kind in (_C.Generator, _C.UntypedStorage, _C.TypedStorage, type(_C.relu),
                 type(_C.Tensor.relu)):
        copyreg.pickle(kind, _reduced)


def _arrange():
    import sys
    for path, files in _IN_PYTHON.items():
        module = sys.modules[f"{__name__}.{path}" if path else __name__]
        if path:
            module.__path__.append(f"{__path__[0]}/{path.replace('.', '/')}")
        _import_when_asked(module, files)
    for cls, (file, names) in _METHODS.items():
        for name in names.split():
            setattr(cls, name, _Late(file, cls, name))
    sys.meta_path.append(_Table)


class _Table:
    """An import hook for the modules of PyTorch that are no files."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        names = _C._path(name[6:]) if name.startswith("phlox.") else None
        if names is None:
            return None
        from ._paths import spec_of
        return spec_of(name, names)


class _AfterImport:
    """An import hook: once a module is loaded, `then` gets it. Programs that never import it do not
    pay for it."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        import sys
        from importlib.machinery import PathFinder
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def load_and_tell(module):
            load(module)
            self.then(module)

        spec.loader.exec_module = load_and_tell
        return spec


def _share_tensors():
    """Tensors go to other processes by their memory once multiprocessing is there."""
    import sys
    name = "multiprocessing.reduction"

    def register(reduction):
        from . import _reductions  # noqa: F401

    if name in sys.modules:
        register(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, register))


_arrange()
_share_tensors()
_make_picklable()
del _arrange, _share_tensors, _make_picklable
