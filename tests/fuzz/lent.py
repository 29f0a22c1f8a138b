# SPDX-License-Identifier: Apache-2.0
"""Memory of other libraries, for random calls: DLPack capsules, arrays and buffers, with valid or invalid descriptions. Undetectable errors (more elements than
memory) are left out. Memory is allocated with exactly the described number of bytes."""
import array
import ctypes

try:
    import numpy
except ImportError:
    numpy = None


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    pass


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Managed._fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", Deleter),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
LENT = {}  # exported memory, by the address of its Managed or Versioned
NAMES = b"dltensor", b"used_dltensor", b"dltensor_versioned", b"other"


@Deleter
def give_back(address):
    LENT.pop(address)  # a second release prints a KeyError


def allocate(sizes, strides, item, odd=0):
    """Memory up to the end of the last element, at `odd` bytes past a multiple of 16; returns (owner, address)."""
    count = 0 if 0 in sizes else 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    owner = ctypes.create_string_buffer(bytes((i * 37) % 251 for i in range(odd + count * item)), odd + count * item or 1)
    return owner, ctypes.addressof(owner) + odd


def contiguous_strides(sizes):
    strides, step = [], 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= max(size, 1)
    return strides


def capsule(sizes, strides=None, kind=(2, 32, 1), odd=0, name=0, deleter=True, major=1, flags=0, **lies):
    """A capsule with its own memory, versioned for name 2; `lies` overrides fields of DLTensor, including shape and strides."""
    owner, address = allocate(sizes, strides or contiguous_strides(sizes), kind[1] // 8, odd)
    fields = dict(data=address, device_type=1, device_id=0, ndim=len(sizes), code=kind[0], bits=kind[1], lanes=kind[2], byte_offset=0, shape=sizes,
                  strides=strides)
    fields.update(lies)
    for key in ("shape", "strides"):
        numbers = None if fields[key] is None else (ctypes.c_int64 * 8)(*fields[key])
        fields[key] = ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int64))  # keeps the numbers alive
    tensor, end = DLTensor(**fields), give_back if deleter else Deleter()
    managed = Versioned(major, 0, None, end, flags, tensor) if NAMES[name] == b"dltensor_versioned" else Managed(tensor, None, end)
    LENT[ctypes.addressof(managed)] = managed, owner
    return new_capsule(ctypes.addressof(managed), NAMES[name], None)


class Exporter:
    """An object with __dlpack__; it may return any object, including a consumed capsule."""

    def __init__(self, given, device=(1, 0)):
        self.given, self.device = given, device

    def __dlpack__(self, **options):
        return self.given

    def __dlpack_device__(self):
        return self.device


class Interface:
    """An object with NumPy's array interface; `lies` overrides entries of the description."""

    def __init__(self, sizes, typestr="<f4", steps=None, odd=0, **lies):
        item = int(typestr[2:]) if isinstance(typestr, str) and typestr[2:].isdigit() else 4
        self.owner, address = allocate(sizes, steps or contiguous_strides(sizes), item, odd)
        strides_in_bytes = steps and tuple(step * item for step in steps)
        self.description = dict(shape=tuple(sizes), typestr=typestr, strides=strides_in_bytes, data=(address, False), version=3)
        self.description.update(lies)

    @property
    def __array_interface__(self):
        return self.description


class Emptying:
    """An integer that clears the enclosing description."""

    def __init__(self, number, description):
        self.number, self.description = number, description

    def __index__(self):
        self.description.clear()
        return self.number


def emptied(key):
    """An array; its description is cleared while it is read."""
    made = Interface([2, 2])
    strides_in_bytes = made.description
    strides_in_bytes[key] = (Emptying(2, strides_in_bytes), 2) if key != "data" else (strides_in_bytes["data"][0], Emptying(0, strides_in_bytes))
    return made


KINDS = ["(2, 32, 1)", "(2, 64, 1)", "(0, 64, 1)", "(1, 8, 1)", "(6, 8, 1)", "(2, 16, 1)", "(4, 16, 1)", "(0, 16, 1)"]
TYPES = "<f4 <f8 <i8 |u1 |b1 <f2 <i2 <i4 |i1".split()
FAR = ["-1", "2**62", "2**63-1", "-2**63", "2**32"]
CAPSULE_LIES = ["ndim=-1", "ndim=65", "ndim=2**31-1", "shape=None", "data=None", "byte_offset=2**63", "byte_offset=2**64-1", "code=5", "code=255", "bits=0",
                "bits=255", "lanes=0", "lanes=4", "device_type=7", "device_type=-1", "device_id=-1, device_type=2", "device_id=2**31-1, device_type=2",
                "deleter=False", "name=1", "name=2", "name=3", "name=2, major=2", "name=2, flags=3", "name=2, device_type=7"]
INTERFACE_LIES = ["typestr=''", "typestr='<'", "typestr='<c8'", "typestr='>f4'", "typestr=None", "typestr=5", "typestr='<U9'", "shape=None", "shape=5",
                  "shape='ab'", "shape=Raises()", "strides='x'", "strides=(4,)", "strides=Raises()", "strides=(-4, -4)", "strides=(1, 1)", "data=None",
                  "data=b'abcd'", "data=('x', False)", "data=(0, False)", "data=(2**70, False)", "data=(1.5, False)", "data=()", "version=0"]
ARRAYS = ["numpy.arange(6.0).reshape(2, 3)[::-1]", "numpy.arange(6.0)[::2]", "numpy.arange(6, dtype='>i4')", "numpy.frombuffer(bytes(17), 'f8', offset=1)",
          "numpy.frombuffer(bytes(9), 'f4', offset=1)", "numpy.zeros((0, 3))", "numpy.array(2.5)", "numpy.array(['a'])", "numpy.array([None])",
          "numpy.zeros(2, 'c8')", "numpy.zeros(2, [('a', 'i1'), ('b', 'f4')])['b']", "numpy.broadcast_to(numpy.float32(1), (2, 3))", "numpy.float64(1)",
          "numpy.zeros(3, 'M8[s]')", "numpy.lib.stride_tricks.as_strided(numpy.zeros(4), (2**40, 2**40), (0, 0))", "numpy.ones((2, 3), order='F')",
          "numpy.frombuffer(b'abc', bool)", "numpy.zeros([1] * 32)", "numpy.ma.array([1.0, 2.0], mask=[0, 1])"]
BUFFERS = ["bytearray(16)", "bytes(16)", "b''", "memoryview(bytearray(32))[::2]", "memoryview(bytearray(16))[3:]", "array.array('d', [1, 2])",
           "memoryview(bytearray(12)).cast('B', (3, 4))", "memoryview(array.array('h', [1, 2, 3]))", "(ctypes.c_double * 2)(1, 2)", "bytearray(b'abc')"]


def random_object(pool):
    """The source text of a random object."""
    r = pool.random
    sizes = [0 if r.random() < 0.08 else r.randint(1, 4) for _ in range(r.randint(0, 3))]
    strides = [r.randint(0, 7) for _ in sizes] if r.random() < 0.4 else None
    odd = r.choice((0, 0, 1, 2, 4))
    kind = r.randrange(5)
    lie = r.random() < 0.5
    if kind == 0:
        return pool.pick(*BUFFERS)
    if kind == 1 and numpy:
        return pool.pick(*ARRAYS)
    if kind == 2:
        extra = ", " + (pool.pick(*INTERFACE_LIES) if r.random() < 0.7 else f"shape=({pool.pick(*FAR)}, 0)") if lie else ""
        typestr = "" if "typestr" in extra else f", {pool.pick(*TYPES)!r}"
        return pool.pick("emptied('shape')", "emptied('strides')", "emptied('data')") if r.random() < 0.1 else (
            f"Interface({sizes}{typestr}, steps={strides}, odd={odd}{extra})")
    extra = ", " + (pool.pick(*CAPSULE_LIES) if r.random() < 0.7 else f"shape=[{pool.pick(*FAR)}] * 3, ndim=3, strides={pool.pick('None', '[0, 0, -1]')}") if lie else ""
    strides = "" if "strides" in extra else f", {strides}"
    made = f"capsule({sizes}{strides}, kind={pool.pick(*KINDS)}, odd={odd}{extra})"
    if kind == 3:
        return made
    device = pool.pick("(1, 0)", "(1, 0)", "(2, 0)", "(2, -1)", "(2, 2**40)", "None", "()", "('x', 1)", "(1, 0, 0)", "(Lies(), 0)")
    return f"Exporter({pool.pick(made, made, made, 'None', 'raising', 'T([2]).__dlpack__()')}, {device})"
