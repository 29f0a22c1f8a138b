# SPDX-License-Identifier: Apache-2.0
"""Misuse of the C API: every function of the public headers is called with one argument at a time replaced by NULL, a negative count, an invalid
device or dtype, or an object of another kind. No call may crash. A failing call must report a reason and leak nothing. NULL for a required pointer
must be a TypeError that names the argument."""
import ctypes as c
import functools
import glob
import os
import re
import resource
import signal
import tempfile
import unittest

import phlox as torch

os.environ.update(PHLOX_BACKENDS="sim", PHLOX_SIM_DEVICES="4")
HEADERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "include", "phlox")
OK, TYPE, KEY, FOREIGN, BUG = 0, 3, 5, 22, 23


def declared():
    """The text of each public header, without comments and preprocessor lines."""
    for path in sorted(glob.glob(os.path.join(HEADERS, "*.h"))):
        with open(path) as file:
            text = re.sub(r"//[^\n]*", "", file.read())
        yield re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)


# Plain structures, and typedefs of pointers. All other types of the library are enumerations, unless they are pointers.
FIELDS = {name: fields for text in declared() for fields, name in re.findall(r"\btypedef struct \w+ \{([^{}]*)\} (\w+);", text)}
POINTERS = {name for text in declared() for name in re.findall(r"\btypedef [^;{}()]*\(\*(\w+)\)\(", text)}
NUMBERS = {"int": c.c_int, "unsigned": c.c_uint, "bool": c.c_bool, "double": c.c_double, "float": c.c_float, "size_t": c.c_size_t,
           **{f"{sign}int{bits}_t": getattr(c, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}}


def fields_of(declaration):
    """The names and types of the fields in one declaration of a structure: 'int64_t first, *others'."""
    words = " ".join(re.sub(r"\b(const|struct)\b", "", declaration).split())
    function = re.fullmatch(r"[^()]*\(\*(\w+)\)\(.*\)", words)
    if function:
        return [(function[1], c.c_void_p)]
    base, names = words.split(" ", 1)
    plain = c.c_void_p if base in POINTERS else NUMBERS.get(base) or (layout(base) if base in FIELDS else c.c_int)
    kinds = {0: plain, 1: c.c_char_p if base == "char" else c.c_void_p}
    return [(name.strip(" *"), kinds.get(name.count("*"), c.c_void_p)) for name in names.split(",")]


@functools.cache
def layout(name):
    """A structure as declared in a public header."""
    return type(name, (c.Structure,), {"_fields_": [field for line in FIELDS[name].split(";") if line.strip() for field in fields_of(line)]})


Device = layout("px_device")


class Scalar(c.Structure):
    _fields_ = [("kind", c.c_char), ("value", c.c_int64)]


class Complex(c.Structure):
    _fields_ = [("real", c.c_double), ("imag", c.c_double)]


class Value(c.Structure):
    _fields_ = [("kind", c.c_uint8), ("category", c.c_char), ("n", c.c_int32), ("value", c.c_int64)]


class Frame(c.Structure):
    _fields_ = [("file", c.c_char_p), ("line", c.c_int), ("function", c.c_char_p)]


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("detail", c.c_int), ("frame_count", c.c_int), ("frames", Frame * 16), ("foreign", c.c_void_p),
                ("release", c.c_void_p), ("message", c.c_char * 4096)]


NONE, CPU = Device(-1, -1), Device(0, -1)
lib = c.CDLL(os.path.join(os.path.dirname(torch.__file__), "libphlox.so.0"))
lib.px_error_last.restype = c.POINTER(Error)
lib.px_live_objects.restype = c.c_int64
lib.px_engine_available.restype = c.c_bool
for name in ("px_tensor_storage", "px_module_kind_find", "px_optimizer_kind_find", "px_scheduler_kind_find", "px_op_find"):
    getattr(lib, name).restype = c.c_void_p
nothing = c.CFUNCTYPE(c.c_int, *[c.c_void_p] * 6)(lambda *arguments: 0)

# Pointers that may be NULL, by the name of the parameter, or of the function and the parameter.
OPTIONAL = {"px_comm_run.work", "px_checkpoint_save.comm", "px_checkpoint_save.values", "px_sync_batch_norm.running_mean", "px_sync_batch_norm.running_var", "px_sync_batch_norm.weight", "px_sync_batch_norm.bias",
            "px_script_run.args", "px_script_run.named", "px_script_method.module", "px_device_of_memory.memory",
            "px_op_set_dispatch_hook.hook", "px_op_set_dispatch_hook.before", "px_saved_hooks_disable.message", "px_op_before_write.written", "release", "generator", "metadata", "gradients", "node_name",
            "prefix", "total", "px_profile_trace.members", "px_module_count_flops.class_name", "px_module_new.args", "px_dlpack_export.stream", "px_stream_set_current.stream", "px_stream_scope_begin.stream", "px_shards_after_event.event", "px_shards_on_reduced.fn", "px_shards_on_reduced.stream",
            "px_memory_configure.text", "px_memory_record.history", "px_memory_set_allocator.allocator", "px_memory_pool_new_over.allocator", "px_module_register_parameter.parameter", "px_module_register_buffer.buffer",
            "px_module_register_module.child", "px_init_kaiming_uniform.nonlinearity", "px_init_kaiming_normal.nonlinearity",
            "px_tensor_wrap.strides", "px_tensor_set_grad.grad", "px_parallel_apply.devices", "px_function_record.inputs", "px_function_record.outputs",
            "px_optimizer_set_state.value", "px_optimizer_set_rate.rate",
            "px_optimizer_kind_step.manner", "px_transformer_encoder_new.norm", "px_transformer_decoder_new.norm", "px_op_register.out"}
# Pointers rejected with another text, or for another reason first.
OTHER_ERROR = {"px_op_call.op", "px_op_call_batch.op", "px_op_check_out.op", "px_tensor_from_data.data", "hook", "fn",
          "px_fuse_norm.of_bias"}
# Not called: they release objects needed by other calls, have arguments that the sweep cannot create, or belong to a callback's side.
SKIPPED = {"px_duals_end", "px_release", "px_release_at", "px_move_at", "px_retain", "px_free", "px_object_end", "px_object_init", "px_error_set",
           "px_error_note", "px_error_give", "px_error_add_frame", "px_error_take", "px_error_drop", "px_error_set_foreign", "px_warn", "px_op_set_hooks",
           "px_thread_start", "px_name_suggest", "px_realloc", "px_site_set", "px_site_set_source", "px_site_set_frames", "px_site_here", "px_site_lend", "px_site_set_backward", "px_warning_set_sink", "px_vmap_begin",
           "px_print_options_get", "px_print_options_set", "px_module_set_attribute", "px_tensor_set_kept_release", "px_tensor_set_user", "px_tensor_set_kept",
           "px_module_set_user", "px_tensor_set_slot_take", "px_node_name", "px_node_edge_count", "px_node_edge", "px_node_sequence",
           "px_node_variable", "px_op_describe"}


def functions():
    """Yields (whether it can fail, name, parameters) of each declaration."""
    for text in declared():
        nested = r"((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)"
        for kind, name, inner in re.findall(r"\b(PX_CALL|PX_API)\b[^;{}()]*?\b(px_\w+)\(" + nested + r"\)[^;]*;", text):
            parameters = re.findall(r"(?:[^,()]|\((?:[^()]|\([^()]*\))*\))+", inner)
            parameters = [" ".join(p.split()) for p in parameters]
            if name not in SKIPPED:
                yield kind == "PX_CALL", name, [] if parameters == ["void"] else parameters


def objects():
    """One object of each type, by type name."""
    made = {}
    lib.px_fault_disarm_all()
    lib.px_device_set_default(NONE)
    lib.px_device_set_home(NONE)

    def new(kind, function, *arguments):
        pointer = c.c_void_p()
        assert getattr(lib, function)(c.byref(pointer), *arguments) == OK, lib.px_error_last().contents.message
        made[kind] = pointer

    sizes, numbers = (c.c_int64 * 2)(2, 3), (c.c_float * 6)(*range(6))
    new("px_tensor", "px_tensor_from_data", numbers, 2, sizes, 8, NONE)
    new("number", "px_tensor_from_scalar", Scalar(b"i", 1))
    new("device", "px_tensor_from_data", numbers, 2, sizes, 8, Device(1, 0))
    new("px_list", "px_list_new", (c.c_void_p * 2)(made["px_tensor"], made["px_tensor"]), c.c_int64(2))
    new("px_dict", "px_dict_new")
    lib.px_dict_set(made["px_dict"], b"weight", made["px_tensor"])
    linear = c.c_void_p(lib.px_module_kind_find(b"Linear"))
    new("px_module", "px_module_new", linear, (Value * 5)(Value(4, b"\0", 0, 3), Value(4, b"\0", 0, 2)), None)
    new("px_optimizer", "px_optimizer_new", b"SGD")
    lib.px_optimizer_add(made["px_optimizer"], (c.c_void_p * 1)(made["px_tensor"]), c.c_int64(1))
    new("px_generator", "px_generator_new", CPU)
    new("px_tree", "px_tree_new", 10)
    new("px_file", "px_file_create", b"file")
    new("px_event", "px_event_new", 1)
    new("px_stream", "px_stream_new", Device(1, 0), 0)
    new("px_saved", "px_saved_new", made["px_tensor"], False)
    new("px_memory_pool", "px_memory_pool_new", 0)
    new("px_script", "px_script_load", os.path.join(HEADERS, "..", "..", "tests", "script", "traced.pt").encode(), NONE)
    new("px_store", "px_store_memory")
    lib.px_store_set_timeout(made["px_store"], c.c_int64(20))
    lib.px_store_set(made["px_store"], b"weight", b"1", c.c_size_t(1))
    assert lib.px_checkpoint_save(b"checkpoint", None, NONE, c.byref(layout("px_checkpoint_item")(b"weight", made["px_tensor"].value)), 1, None) == OK, lib.px_error_last().contents.message
    new("px_checkpoint", "px_checkpoint_open", b"checkpoint")
    made["px_storage"] = c.c_void_p(lib.px_tensor_storage(made["px_tensor"]))
    made["px_op"] = c.c_void_p(lib.px_op_find(b"neg"))
    made["px_module_kind"] = c.c_void_p(lib.px_module_kind_find(b"ReLU"))
    made["px_optimizer_kind"] = c.c_void_p(lib.px_optimizer_kind_find(b"SGD"))
    made["px_scheduler_kind"] = c.c_void_p(lib.px_scheduler_kind_find(b"StepLR"))
    return made


def join(made):
    """Adds a communicator of one rank and a work object of it. Created on demand, since this is slow."""
    store, comm, work = c.c_void_p(), c.c_void_p(), c.c_void_p()
    assert lib.px_store_memory(c.byref(store)) == OK
    assert lib.px_comm_new(c.byref(comm), c.byref(layout("px_comm_options")(b"gloo", store.value, 0, 1, 10000))) == OK, lib.px_error_last().contents.message
    tensors = (c.c_void_p * 1)(made["px_tensor"])
    broadcast = layout("px_collective")(op=0, outputs=c.addressof(tensors), output_count=1)
    assert lib.px_comm_run(c.byref(work), comm, c.byref(broadcast)) == OK, lib.px_error_last().contents.message
    mesh, one = c.c_void_p(), (c.c_int64 * 1)(1)
    assert lib.px_mesh_new(c.byref(mesh), c.byref(layout("px_mesh_options")(comm=comm.value, sizes=c.addressof(one), ndim=1))) == OK, lib.px_error_last().contents.message
    shards, reducer, leaf = c.c_void_p(), c.c_void_p(), c.c_void_p()
    assert lib.px_tensor_from_data(c.byref(leaf), (c.c_float * 2)(1, 2), 1, (c.c_int64 * 1)(2), 8, NONE) == OK
    lib.px_tensor_set_requires_grad(leaf, True)
    leaves = (c.c_void_p * 1)(leaf)
    options = layout("px_reducer_options")(comm=comm.value, parameters=c.addressof(leaves), count=1)
    assert lib.px_reducer_new(c.byref(reducer), c.byref(options)) == OK, lib.px_error_last().contents.message
    options = layout("px_shard_options")(comm=comm.value, device=NONE, param_dtype=-1, reduce_dtype=-1)
    assert lib.px_shards_new(c.byref(shards), made["px_module"], c.byref(options)) == OK, lib.px_error_last().contents.message
    made.update(px_comm=comm, px_work=work, px_mesh=mesh, px_shards=shards, px_reducer=reducer)


JOINED = ("px_comm", "px_work", "px_mesh", "px_shards", "px_reducer")
INTEGERS = {"int64_t": c.c_int64, "int": c.c_int, "size_t": c.c_size_t, "unsigned": c.c_uint, "uint64_t": c.c_uint64, "uint16_t": c.c_uint16}
DEVICES = [Device(*pair) for pair in ((-1, -1), (1, 0), (1, 99), (7, 0), (1, -7), (-5, 3))]
TEXTS = {"kind": b"SGD", "point": b"alloc", "option": b"lr", "path": b"/nowhere/file"}


def number(base, name):
    kind = INTEGERS[base]
    counts = re.search(r"count|_n$|ndim|length|size$|bytes", name)  # a larger count would read out of bounds
    bad = [-1, 0, -2**31] + ([] if counts else [77]) + ([] if counts or base != "int64_t" else [-2**63, 2**62, 2**40])
    if base not in ("int64_t", "int"):
        bad = [0]
    good = 24 if base == "size_t" else 2 if name == "ndim" else 0 if name in ("dim", "offset", "index", "group", "i", "device", "from", "to") else 1
    return kind(good), [kind(b) for b in bad]


def choices(function, parameter, made):
    """A valid value and the invalid values of a parameter."""
    if "(*" in parameter or re.search(r"_hook \w+$|px_parallel_work|px_module_visitor|px_module_replace|px_loss|px_cluster_function", parameter):
        return nothing, [None]
    words, name = re.match(r"(.*?)(\w+)(?:\[.*\])?$", parameter).groups()
    if "[" in parameter:
        return c.create_string_buffer(256), []
    base, stars, constant = re.sub(r"const|\*| ", "", words), words.count("*"), "const" in words
    if stars == 0:
        if base in INTEGERS:
            return number(base, name)
        if base in ("double", "float"):
            kind = c.c_double if base == "double" else c.c_float
            return kind(0.5), [kind(x) for x in (float("nan"), float("inf"), -1.0, 0.0)]
        if base == "px_device":
            return CPU, DEVICES
        if base == "px_scalar":
            return Scalar(b"i", 1), [Scalar(b"\0", 0), Scalar(b"x", 5)]
        if base == "px_complex":
            return Complex(1, 2), [Complex(float("nan"), 0)]
        if base == "bool":
            return c.c_bool(False), [c.c_bool(True)]
        good = {"px_dtype": 8, "px_tree_kind": 6}.get(base, 0)  # an enumeration
        return c.c_int(good), [c.c_int(b) for b in (-1, 99, 1000, -5)]
    if base == "char" and stars == 1 and constant:
        return c.c_char_p(TEXTS.get(name, b"weight")), [None, c.c_char_p(b""), c.c_char_p(b"\xff\xfe")]
    if base == "char" and stars == 2:
        return (c.c_char_p * 8)(b"weight", b"weight"), [None, (c.c_char_p * 8)()]
    if base == "px_device" and constant:
        return (Device * 8)(*[Device(1, i) for i in range(8)]), [None] + [(Device * 8)(*[d] * 8) for d in DEVICES]
    if base == "int64_t" and constant:
        return (c.c_int64 * 8)(2, 3, *[1] * 6), [None, (c.c_int64 * 8)(*[-2] * 8), (c.c_int64 * 8)(*[2**62] * 8)]
    if base in JOINED and stars == 1 and base not in made:
        join(made)
    if base in made and stars == 1:
        return made[base], [None] + ([made["number"], made["device"]] if base == "px_tensor" else [])
    if base in made and constant:
        return (c.c_void_p * 8)(*[made[base].value] * 8), [None, (c.c_void_p * 8)()]
    needed = constant or base != "void" or stars > 1 or name in ("managed", "to", "out")  # otherwise the argument of a callback
    return c.create_string_buffer(1 << 16), [None] if needed else []


def cases(fallible, function, parameters):
    """Yields (index of the replaced parameter, its value, all arguments); the first case replaces none. Infallible functions get valid objects."""
    made = objects()
    pairs = [choices(function, p, made) for p in parameters]
    yield -1, "", [good for good, _ in pairs]
    for i, (_, bads) in enumerate(pairs):
        for k in range(len(bads)):
            if bads[k] is None and not fallible:
                continue
            made = objects()
            pairs = [choices(function, p, made) for p in parameters]
            yield i, pairs[i][1][k], [pairs[j][1][k] if j == i else pairs[j][0] for j in range(len(pairs))]


def judge(fallible, function, parameter, value, arguments):
    """Returns the fault of one call, or None."""
    call = getattr(lib, function)
    lib.px_error_clear()
    before = lib.px_live_objects(None)
    status = call(*arguments)
    if not fallible:
        return ""
    left = lib.px_live_objects(None) - before
    error = lib.px_error_last().contents
    message = error.message.decode(errors="replace")
    if status in (FOREIGN, BUG) or not 0 <= status <= BUG:
        return f"status {status}: {message}"
    if status and (error.code != status or not message and status != KEY):
        return f"no text for status {status}"
    if status and left:
        return f"{left} objects are left after: {message}"
    name = re.search(r"\(\*(\w+)\)|(\w+)$", parameter)
    name = name and (name[1] or name[2])
    names = {name, f"{function}.{name}"}
    named = name and status == TYPE and name in message or status and names & OTHER_ERROR
    return "" if not parameter or value is not None or named or names & OPTIONAL else f"status {status}: {message}"


def sweep(fallible, function, parameters, report):
    """All cases of a function, in a subprocess: writes each case, then its fault."""
    for i, value, arguments in cases(fallible, function, parameters):
        parameter = parameters[i] if i >= 0 else ""
        shown = getattr(value, "value", value) if not isinstance(value, Device) else (value.type, value.index)
        report(f"\n{function}({parameter} = {shown}): died")
        wrong = judge(fallible, function, parameter, value, arguments)
        report(f"\r{wrong}")


def run(folder, fallible, function, parameters):
    """Returns the failed cases. Files are written to the folder."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.chdir(folder)
        signal.alarm(60)
        resource.setrlimit(resource.RLIMIT_DATA, (64 << 30, resource.RLIM_INFINITY))  # systems with overcommit grant any size
        try:
            sweep(fallible, function, parameters, lambda text: os.write(writer, text.encode()))
        except BaseException as error:
            os.write(writer, f"\n{function}: {error!r}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        lines = pipe.read().decode(errors="replace").split("\n")
    os.waitpid(child, 0)
    good = re.compile(r".*: died\r$", re.S)
    return [line.replace(": died\r", ": ") for line in lines if line and not good.match(line)]


class Misuse(unittest.TestCase):
    def test_every_function_rejects_invalid_arguments(self):
        self.assertGreater(sum(1 for _ in functions()), 250)
        engine = lib.px_engine_available(b"gloo")  # required for communicators
        with tempfile.TemporaryDirectory() as folder:
            wrong = [line for function in functions() if engine or not re.search("|".join(JOINED), str(function[2])) for line in run(folder, *function)]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
