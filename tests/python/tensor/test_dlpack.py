# SPDX-License-Identifier: Apache-2.0
"""DLPack from Python: arguments, capsules of both forms, flags, the exchange table, and arrays of other protocols."""
import ctypes, gc, importlib, unittest, warnings

import phlox as torch
from phlox.utils.dlpack import DLDeviceType, ReadOnlyTensorWrapper

PLAIN, VERSIONED = b"dltensor", b"dltensor_versioned"
READ_ONLY, IS_COPIED = 1, 2
name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(Versioned))
ANY, HANDLE = ctypes.py_object, ctypes.POINTER(ctypes.POINTER(Versioned))
FAIL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)


class Table(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
                ("allocate", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(DLTensor), HANDLE, ctypes.c_void_p, FAIL)),
                ("export", ctypes.PYFUNCTYPE(ctypes.c_int, ANY, HANDLE)),
                ("import_", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Versioned), ctypes.POINTER(ANY))),
                ("describe", ctypes.PYFUNCTYPE(ctypes.c_int, ANY, ctypes.POINTER(DLTensor))),
                ("stream", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)))]


def table_of(cls):
    return Table.from_address(pointer_of(cls.__dlpack_c_exchange_api__, b"dlpack_exchange_api"))


def managed_of(capsule):
    return Versioned.from_address(pointer_of(capsule, VERSIONED))


def exported(tensor, cls=torch.Tensor):
    made = ctypes.POINTER(Versioned)()
    table_of(cls).export(tensor, ctypes.byref(made))
    return made


def imported(managed):
    made = ANY()
    table_of(torch.Tensor).import_(managed, ctypes.byref(made))
    return made.value


class Producer:
    """An array of another library over a tensor. accepts: the options of its __dlpack__; forwards: those it heeds."""

    def __init__(self, tensor, accepts=("stream", "max_version", "dl_device", "copy"), forwards=None):
        self.tensor, self.accepts, self.forwards, self.asked = tensor, accepts, accepts if forwards is None else forwards, []

    def __dlpack__(self, **options):
        self.asked.append(sorted(options))
        if set(options) - set(self.accepts): raise TypeError("unexpected keyword argument")
        return self.tensor.__dlpack__(**{key: value for key, value in options.items() if key in self.forwards})

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


class DeviceArray:
    """An object with __cuda_array_interface__ over a tensor; `changed` overrides entries."""

    def __init__(self, tensor, **changed):
        self.tensor, self.__cuda_array_interface__ = tensor, {**tensor.__cuda_array_interface__, **changed}


def package(name):
    try: return importlib.import_module(name)
    except ImportError: raise unittest.SkipTest(f"{name} is not installed") from None


class Export(unittest.TestCase):
    def test_max_version_selects_the_form_of_the_capsule(self):
        x = torch.ones(2)
        for given, form in ((None, PLAIN), ((0, 8), PLAIN), ((1, 0), VERSIONED), ((1, 3), VERSIONED), ([2, 0], VERSIONED)):
            self.assertEqual(name_of(x.__dlpack__(max_version=given)), form, given)
        self.assertRaisesRegex(TypeError, "not subscriptable", x.__dlpack__, max_version=1)
        self.assertRaisesRegex(TypeError, "'<' not supported", x.__dlpack__, max_version="1")

    def test_versioned_capsule_states_version_flags_and_layout(self):
        x = torch.arange(6.0).view(2, 3)
        for options, flags in (({}, 0), ({"read_only": True}, READ_ONLY), ({"copy": True}, IS_COPIED), ({"copy": False}, 0),
                               ({"copy": True, "read_only": True}, READ_ONLY | IS_COPIED), ({"dl_device": (1, 0)}, 0)):
            capsule = x.t().__dlpack__(max_version=(1, 0), **options)
            managed = managed_of(capsule)
            self.assertEqual((managed.major, managed.minor, managed.flags), (1, 3, flags), options)
            tensor = managed.tensor
            self.assertEqual(tensor.data == x.data_ptr(), not flags & IS_COPIED, options)
            self.assertEqual((tensor.shape[:2], tensor.strides[:2], tensor.code, tensor.bits), ([3, 2], [1, 3], 2, 32))

    def test_read_only_needs_a_versioned_capsule(self):
        self.assertRaisesRegex(BufferError, "read_only export requires the versioned DLPack protocol", torch.ones(1).__dlpack__, read_only=True)

    def test_stream_must_be_absent_on_the_cpu(self):
        x = torch.ones(2)
        for stream in (None, -1): x.__dlpack__(stream=stream)
        for stream in (0, 1, 2, 3, -2): self.assertRaisesRegex(AssertionError, "stream should be None on cpu.", x.__dlpack__, stream=stream)
        for stream in ("x", 1.0, True): self.assertRaisesRegex(TypeError, "stream must be ``int`` or ``none``", x.__dlpack__, stream=stream)

    def test_wrong_arguments_are_refused(self):
        x = torch.ones(2)
        for device in (1, "x"): self.assertRaisesRegex(TypeError, "argument 'dl_device' must be tuple of ints", x.__dlpack__, dl_device=device)
        self.assertRaisesRegex(RuntimeError, "dl_device must be either None or a tuple of ints", x.__dlpack__, dl_device=(1,))
        for device in ((3, 0), (99, 0)): self.assertRaisesRegex(BufferError, f"Unsupported device_type: {device[0]}", x.__dlpack__, dl_device=device)
        for copy in (0, 1, "x"): self.assertRaisesRegex(TypeError, "argument 'copy' must be bool", x.__dlpack__, copy=copy)
        self.assertRaises(TypeError, x.__dlpack__, None)

    def test_tensors_without_a_description_are_refused(self):
        for tensor, text in ((torch.ones(1, requires_grad=True), "Can't export tensors that require gradient"),
                             (torch.ones(1, dtype=torch.complex64).conj(), "conjugate bit"), (torch.ones(1, device="meta"), "Cannot pack tensors on meta")):
            for version in (None, (1, 0)): self.assertRaisesRegex(BufferError, text, tensor.__dlpack__, max_version=version)
        self.assertRaisesRegex(ValueError, "Unknown device type meta", torch.ones(1, device="meta").__dlpack_device__)
        self.assertEqual(torch.from_dlpack(torch.utils.dlpack.to_dlpack(torch.ones(1, requires_grad=True))).tolist(), [1])

    def test_device_is_a_member_of_DLDeviceType(self):
        device = torch.ones(1).__dlpack_device__()
        self.assertEqual(device, (1, 0))
        self.assertIs(device[0], DLDeviceType.kDLCPU)

    def test_read_only_wrapper_only_exports(self):
        x = torch.ones(2)
        wrapper = ReadOnlyTensorWrapper(x)
        managed = managed_of(wrapper.__dlpack__())
        self.assertEqual((managed.flags, managed.tensor.data), (READ_ONLY, x.data_ptr()))
        self.assertEqual(exported(wrapper, ReadOnlyTensorWrapper).contents.flags, READ_ONLY)
        self.assertRaisesRegex(BufferError, "requires the versioned", wrapper.__dlpack__, max_version=(0, 8))
        for use in (lambda: wrapper + 1, lambda: wrapper.data_ptr(), lambda: repr(wrapper)):
            self.assertRaisesRegex(RuntimeError, "ReadOnlyTensorWrapper only supports DLPack export", use)


class Import(unittest.TestCase):
    def test_capsule_is_consumed_once(self):
        for version, used in ((None, b"used_dltensor"), ((1, 0), b"used_dltensor_versioned")):
            x = torch.arange(3.0)
            capsule = x.__dlpack__(max_version=version)
            self.assertEqual(torch.from_dlpack(capsule).data_ptr(), x.data_ptr())
            self.assertEqual(name_of(capsule), used)
            for take in (torch.from_dlpack, torch.asarray): self.assertRaisesRegex(RuntimeError, "can be consumed only once", take, capsule)
        for other in (1, object()): self.assertRaisesRegex(RuntimeError, "received an invalid capsule", torch.from_dlpack, other)

    def test_capsule_takes_no_options(self):
        for options in ({"copy": True}, {"device": "cpu"}):
            self.assertRaisesRegex(AssertionError, "already a DLPack capsule", torch.from_dlpack, torch.ones(1).__dlpack__(), **options)

    def test_producer_is_asked_with_fewer_options_after_a_type_error(self):
        for accepts in ((), ("copy",), ("max_version",), ("max_version", "copy"), ("max_version", "copy", "dl_device")):
            x = torch.ones(2)
            for options, shares in (({}, True), ({"copy": False}, True), ({"copy": True}, False), ({"device": "cpu"}, True)):
                made = torch.from_dlpack(Producer(x, accepts), **options)
                self.assertEqual(made.data_ptr() == x.data_ptr(), shares, (accepts, options))
        asked = Producer(x)
        torch.from_dlpack(asked, device="cpu", copy=True)
        self.assertEqual(asked.asked, [["copy", "dl_device", "max_version"]])

    def test_unflagged_copy_is_copied(self):
        x = torch.ones(2)
        careless = Producer(x, forwards=("max_version",))
        self.assertNotEqual(torch.from_dlpack(careless, copy=True).data_ptr(), x.data_ptr())
        copied = x.__dlpack__(max_version=(1, 0), copy=True)
        data = managed_of(copied).tensor.data
        self.assertEqual(torch._C._take_capsule(copied, True).data_ptr(), data)

    def test_read_only_capsule_is_imported(self):
        x = torch.ones(2)
        self.assertEqual(torch.from_dlpack(ReadOnlyTensorWrapper(x)).data_ptr(), x.data_ptr())

    def test_device_argument(self):
        x = torch.ones(2)
        self.assertRaisesRegex(AssertionError, "unsupported device type", torch.from_dlpack, x, device=0)
        self.assertRaisesRegex(BufferError, "Cannot pack tensors on meta", torch.from_dlpack, x, device="meta")

    def test_capsule_of_another_major_version_is_refused_and_kept(self):
        released = []
        deleter = DELETER(lambda self: released.append(1))
        managed = Versioned(major=2, deleter=ctypes.cast(deleter, ctypes.c_void_p))
        capsule = new_capsule(ctypes.addressof(managed), VERSIONED, None)
        self.assertRaisesRegex(RuntimeError, "expected a tensor of DLPack 1, got version 2.0", torch.from_dlpack, capsule)
        self.assertEqual((name_of(capsule), released), (VERSIONED, []))

    def test_foreign_memory_is_released_once(self):
        released, shape, numbers = [], (ctypes.c_int64 * 1)(3), (ctypes.c_float * 3)(1, 2, 3)
        deleter = DELETER(lambda self: released.append(1))
        managed = Versioned(1, 0, None, ctypes.cast(deleter, ctypes.c_void_p), READ_ONLY, DLTensor(ctypes.addressof(numbers), 1, 0, 1, 2, 32, 1, shape, None, 0))
        made = torch.from_dlpack(new_capsule(ctypes.addressof(managed), VERSIONED, None))
        view = made[1:]
        self.assertEqual((made.tolist(), view.tolist()), ([1, 2, 3], [2, 3]))
        del made
        self.assertEqual(released, [])
        del view
        self.assertEqual(released, [1])

    def test_all_dtypes_round_trip_in_both_forms(self):
        for dtype in vars(torch).values():
            if not isinstance(dtype, torch.dtype): continue
            x = torch.zeros(2, 3, dtype=dtype)
            for version in (None, (1, 0)):
                back = torch.from_dlpack(x.__dlpack__(max_version=version))
                self.assertEqual((back.dtype, back.shape, back.data_ptr()), (dtype, x.shape, x.data_ptr()))


class Exchange(unittest.TestCase):
    """The table of C functions."""

    def test_table_belongs_to_the_type(self):
        table = table_of(torch.Tensor)
        self.assertEqual((table.major, table.minor, table.previous), (1, 3, None))
        for cls in (torch.nn.Parameter, type("Sub", (torch.Tensor,), {})):
            self.assertIs(cls.__dlpack_c_exchange_api__, torch.Tensor.__dlpack_c_exchange_api__)

    def test_round_trip_shares_memory(self):
        for x in (torch.ones(2, 3), torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2))):
            managed = exported(x)
            self.assertEqual((managed.contents.flags, managed.contents.tensor.data), (0, x.data_ptr()))
            back = imported(managed)
            self.assertEqual((type(back), back.data_ptr(), back.requires_grad), (torch.Tensor, x.data_ptr(), False))

    def test_description_borrows_the_tensor(self):
        x, tensor = torch.arange(6.0).view(2, 3)[:, 1:], DLTensor()
        table_of(torch.Tensor).describe(x, ctypes.byref(tensor))
        self.assertEqual((tensor.data, tensor.shape[:2], tensor.strides[:2], tensor.byte_offset), (x.data_ptr(), [2, 2], [3, 1], 0))

    def test_tensors_without_a_description_are_refused(self):
        table = table_of(torch.Tensor)
        for export in (exported, lambda x: table.describe(x, ctypes.byref(DLTensor()))):
            self.assertRaisesRegex(BufferError, "conjugate bit", export, torch.ones(1, dtype=torch.complex64).conj())
            self.assertRaisesRegex(BufferError, "meta", export, torch.ones(1, device="meta"))
            self.assertRaisesRegex(TypeError, "expected a Tensor, got int", export, 3)

    def allocated(self, **changed):
        managed = exported(torch.ones(2, 3))
        prototype, made, errors = DLTensor.from_buffer_copy(managed.contents.tensor), ctypes.POINTER(Versioned)(), []
        imported(managed)
        shape = (ctypes.c_int64 * 2)(2, 3)
        for key, value in {"data": None, "strides": None, "shape": shape, **changed}.items(): setattr(prototype, key, value)
        fail = FAIL(lambda context, kind, message: errors.append((kind, message)))
        code = table_of(torch.Tensor).allocate(ctypes.byref(prototype), ctypes.byref(made), None, fail)
        self.assertEqual(code, -len(errors))
        return errors or imported(made)

    def test_allocation_follows_the_prototype(self):
        made = self.allocated(bits=64)
        self.assertEqual((made.shape, made.dtype, made.stride(), made.device.type), ((2, 3), torch.float64, (3, 1), "cpu"))

    def test_failed_allocation_reports_through_the_callback(self):
        for changed, kind, text in (({"code": 3}, b"RuntimeError", b"Unsupported DLPack dtype"), ({"device_type": 7}, b"RuntimeError", b"device_type: 7"),
                                    ({"ndim": -1}, b"RuntimeError", b"dimensions, got -1"),
                                    ({"shape": (ctypes.c_int64 * 2)(1 << 40, 1 << 10)}, b"MemoryError", b"")):
            (got, message), = self.allocated(**changed)
            self.assertEqual(got, kind, message)
            self.assertIn(text, message)

    def test_failed_import_releases_the_memory(self):
        released = []
        deleter = DELETER(lambda self: released.append(1))
        managed = Versioned(1, 0, None, ctypes.cast(deleter, ctypes.c_void_p), 0, DLTensor(None, 7, 0, 0, 2, 32, 1, None, None, 0))
        self.assertRaisesRegex(RuntimeError, "device_type: 7", imported, ctypes.pointer(managed))
        self.assertEqual(released, [1])

    def test_cpu_has_no_stream(self):
        for device in (1, 99):
            stream = ctypes.c_void_p(7)
            self.assertEqual(table_of(torch.Tensor).stream(device, 0, ctypes.byref(stream)), 0)
            self.assertIsNone(stream.value)

    def test_exchanges_hold_no_memory(self):
        gc.disable()
        try:
            x = torch.ones(1 << 16)
            uses = (lambda: imported(exported(x)), lambda: torch.from_dlpack(x), lambda: torch.from_dlpack(Producer(x), copy=True), self.allocated,
                    lambda: x.__dlpack__(max_version=(1, 0)), lambda: torch.as_tensor(Producer(x)), lambda: torch.asarray(x.__dlpack__()))
            for use in uses: use()
            resident = self.resident()
            for use in uses:
                for _ in range(300): use()
            self.assertLess(self.resident() - resident, 8 << 20)  # 300 kept copies hold 75 MiB
        finally:
            gc.enable()

    def resident(self):
        with open("/proc/self/statm") as file: return int(file.read().split()[1]) * 4096


class Conversions(unittest.TestCase):
    """tensor, as_tensor and asarray of objects of other libraries."""

    def test_dlpack_objects_share_or_copy(self):
        x = torch.arange(3.0)
        for make, shares in ((torch.as_tensor, True), (torch.asarray, True), (lambda p: torch.asarray(p, copy=False), True),
                             (lambda p: torch.asarray(p, copy=True), False), (torch.tensor, False), (x.new_tensor, False)):
            made = make(Producer(x))
            self.assertEqual((made.tolist(), made.data_ptr() == x.data_ptr()), ([0, 1, 2], shares))
        for make in (torch.as_tensor, torch.asarray, torch.tensor):
            self.assertEqual(make(Producer(x), dtype=torch.int32).dtype, torch.int32)
        self.assertTrue(torch.asarray(Producer(x), requires_grad=True).requires_grad)

    def test_sequence_with_dlpack_is_shared(self):
        class Sequence(Producer):
            def __len__(self): return len(self.tensor)
            def __getitem__(self, index): return self.tensor[index]

        x = torch.ones(3)
        self.assertEqual(torch.as_tensor(Sequence(x)).data_ptr(), x.data_ptr())

    def test_capsules_are_taken_by_asarray_only(self):
        x = torch.ones(2)
        for version in (None, (1, 0)):
            self.assertEqual(torch.asarray(x.__dlpack__(max_version=version)).data_ptr(), x.data_ptr())
            self.assertNotEqual(torch.asarray(x.__dlpack__(max_version=version), copy=True).data_ptr(), x.data_ptr())
            for make in (torch.as_tensor, torch.tensor):
                self.assertRaisesRegex(RuntimeError, "Could not infer dtype of PyCapsule", make, x.__dlpack__(max_version=version))

    def test_asarray_without_a_copy_refuses_what_needs_one(self):
        x = torch.ones(2)
        self.assertEqual(torch.asarray(x, copy=False).data_ptr(), x.data_ptr())
        for source in (x, Producer(x), x.__dlpack__()):
            self.assertRaisesRegex(ValueError, "can't alias tensor with dtype 'Float' into dtype 'Int'", torch.asarray, source, dtype=torch.int32, copy=False)
        self.assertRaisesRegex(ValueError, "can't alias tensor from device 'cpu' to 'meta'", torch.asarray, x, device="meta", copy=False)
        for source in ([1.0], 1.0, (1, 2)):
            self.assertRaisesRegex(ValueError, "can't alias arbitrary sequence", torch.asarray, source, copy=False)


@unittest.skipIf(torch.cuda.device_count() < 1, "requires a device")
class Devices(unittest.TestCase):
    def test_streams(self):
        a = torch.ones(2, device="cuda")
        side = torch.cuda.Stream()
        capsule = a.__dlpack__(stream=side.cuda_stream)  # makes that stream wait for the current one
        with torch.cuda.stream(side):
            b = torch.from_dlpack(capsule)
            self.assertEqual((b.data_ptr(), b.tolist(), b.__dlpack_device__()), (a.data_ptr(), [1, 1], (2, 0)))
        for stream in (None, -1, 1, 2, torch.cuda.Stream().cuda_stream): a.__dlpack__(stream=stream)
        for stream in (0, -2): self.assertRaisesRegex(AssertionError, f"unsupported stream on CUDA: {stream}.", a.__dlpack__, stream=stream)
        for stream in ("1", 1.0): self.assertRaisesRegex(TypeError, "stream must be ``int`` or ``none``", a.__dlpack__, stream=stream)

    def test_other_devices_get_copies(self):
        a, b = torch.ones(2, device="cuda"), torch.full((2,), 2.0)
        for source, target, device in ((a, (1, 0), "cpu"), (b, (2, 0), "cuda:0")):
            made = torch.from_dlpack(source.__dlpack__(dl_device=target, max_version=(1, 0)))
            self.assertEqual((str(made.device), made.tolist()), (device, source.tolist()))
            self.assertRaisesRegex(ValueError, r"cannot move \(i.e. copy=False\) tensor", source.__dlpack__, dl_device=target, copy=False)
            self.assertEqual(str(torch.from_dlpack(source, device=device).device), device)
            self.assertRaisesRegex(ValueError, "cannot move DLPack tensor from device", torch.from_dlpack, source, device=device, copy=False)

    def test_pinned_memory_is_the_cpus(self):
        p = torch.ones(2).pin_memory()
        self.assertEqual(p.__dlpack_device__(), (3, 0))
        for device in ((1, 0), (3, 0)):
            self.assertEqual(torch.from_dlpack(p.__dlpack__(dl_device=device, copy=False)).data_ptr(), p.data_ptr())
        self.assertEqual(torch.from_dlpack(p, device="cpu", copy=False).data_ptr(), p.data_ptr())

    def test_exchange_uses_the_current_stream(self):
        a, side, stream = torch.ones(2, device="cuda"), torch.cuda.Stream(), ctypes.c_void_p()
        with torch.cuda.stream(side):
            table_of(torch.Tensor).stream(2, 0, ctypes.byref(stream))
            self.assertEqual(stream.value, side.cuda_stream)
            self.assertEqual(imported(exported(a)).data_ptr(), a.data_ptr())

    def test_device_arrays_share_or_copy(self):
        x = torch.arange(6.0, device="cuda").view(2, 3).t()
        for make, shares in ((torch.as_tensor, True), (torch.asarray, True), (torch.tensor, False)):
            made = make(DeviceArray(x))
            self.assertEqual((made.tolist(), made.device, made.data_ptr() == x.data_ptr()), (x.tolist(), x.device, shares))
        self.assertEqual(torch.as_tensor(DeviceArray(x), device="cpu").device.type, "cpu")
        self.assertEqual(torch.as_tensor(DeviceArray(torch.ones(0, 3, device="cuda"))).shape, (0, 3))
        self.assertEqual(torch.as_tensor(Producer(x)).device, x.device)

    @unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
    def test_device_of_an_array_is_that_of_its_memory(self):
        for device in ("cuda:1", "cuda:0"):
            x = torch.arange(3.0, device=device)
            for current in (0, 1):
                with torch.cuda.device(current): made = torch.as_tensor(DeviceArray(x[1:]))
                self.assertEqual((str(made.device), made.tolist()), (device, [1, 2]))

    def test_exporters_stream_is_waited_for(self):
        x, side = torch.zeros(1 << 16, device="cuda"), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(20): x += 1
        self.assertEqual(torch.as_tensor(DeviceArray(x, stream=side.cuda_stream)).sum().item(), 20 << 16)
        for stream in (None, 1): torch.as_tensor(DeviceArray(x, stream=stream))
        self.assertRaisesRegex(ValueError, "unsupported stream on CUDA: 0", torch.as_tensor, DeviceArray(x, stream=0))

    def test_wrong_device_arrays_are_refused(self):
        x = torch.ones(2, device="cuda")
        for key in ("shape", "typestr", "data"):
            wrong = DeviceArray(x)
            del wrong.__cuda_array_interface__[key]
            self.assertRaisesRegex(TypeError, f"attribute `{key}` must exist", torch.as_tensor, wrong)
        self.assertRaisesRegex(TypeError, "`data` must be a 2-tuple", torch.as_tensor, DeviceArray(x, data=3))
        self.assertRaisesRegex(TypeError, "the read only flag is not supported", torch.as_tensor, DeviceArray(x, data=(x.data_ptr(), True)))
        wrong.__cuda_array_interface__ = []
        self.assertRaisesRegex(TypeError, "`__cuda_array_interface__` must be a dict", torch.as_tensor, wrong)


class Libraries(unittest.TestCase):
    """Consumers and producers of other libraries, each tested if it is installed."""

    def test_numpy(self):
        numpy = package("numpy")
        a = torch.arange(4)
        view = numpy.from_dlpack(a)
        a[0] = 9
        self.assertEqual(view[0], 9)
        if numpy.lib.NumpyVersion(numpy.__version__) < "2.1.0": self.skipTest("requires NumPy 2.1")
        self.assertTrue(view.flags.writeable)
        self.assertFalse(numpy.from_dlpack(ReadOnlyTensorWrapper(a)).flags.writeable)
        self.assertFalse(numpy.shares_memory(numpy.from_dlpack(a, copy=True), view))
        self.assertTrue(numpy.shares_memory(numpy.from_dlpack(a, copy=False, device="cpu"), view))
        frozen = numpy.arange(3.0)
        frozen.flags.writeable = False
        for array in (frozen, numpy.broadcast_to(frozen, (2, 3)), numpy.asfortranarray(numpy.ones((2, 3)))):
            made = torch.from_dlpack(array)
            self.assertEqual((made.tolist(), made.data_ptr()), (array.tolist(), array.ctypes.data))
            self.assertNotEqual(torch.from_dlpack(array, copy=True).data_ptr(), array.ctypes.data)

    def test_numpy_arrays_read_only_and_broadcast(self):
        numpy = package("numpy")
        array = numpy.broadcast_to(numpy.arange(3.0), (2, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for make in (torch.from_numpy, torch.as_tensor, torch.asarray, lambda a: torch.asarray(a, copy=False)):
                made = make(array)
                self.assertEqual((made.stride(), made.data_ptr(), made.tolist()), ((0, 1), array.ctypes.data, array.tolist()))
        self.assertEqual(torch.tensor(array).stride(), (3, 1))
        self.assertRaisesRegex(RuntimeError, "can't alias NumPy scalars", torch.asarray, numpy.float32(1), copy=False)
        for make in (torch.from_numpy, torch.as_tensor, torch.asarray, torch.tensor):
            self.assertRaisesRegex(ValueError, "stride in the given numpy array is negative", make, numpy.arange(3.0)[::-1])
        self.assertRaisesRegex(RuntimeError, "Storage size calculation overflowed", torch.from_dlpack, numpy.arange(3.0)[::-1])

    def test_jax(self):
        package("jax")
        numpy = package("jax.numpy")
        a = torch.arange(6.0).view(2, 3)
        self.assertEqual(numpy.from_dlpack(a, copy=False).unsafe_buffer_pointer(), a.data_ptr())
        for tensor in (a.t(), a.bfloat16(), a > 2, a.to(torch.complex64), a.to(torch.float8_e5m2)):
            self.assertEqual(numpy.from_dlpack(tensor).astype(float).tolist(), tensor.double().tolist())
        array = numpy.arange(3.0)
        for make in (torch.from_dlpack, torch.as_tensor, torch.asarray):
            self.assertEqual(make(array).data_ptr(), array.unsafe_buffer_pointer())
        for made in (torch.tensor(array), torch.from_dlpack(array, copy=True)):
            self.assertNotEqual(made.data_ptr(), array.unsafe_buffer_pointer())

    def test_tvm_ffi(self):
        ffi = package("tvm_ffi")
        echo = ffi.get_global_func("testing.echo")
        x = torch.arange(6.0).view(2, 3)
        for tensor, stride in ((x, (3, 1)), (x.t(), (1, 3)), (torch.nn.Parameter(x), (3, 1)), (ReadOnlyTensorWrapper(x), (3, 1))):
            made = echo(tensor)
            self.assertEqual((type(made), made.data_ptr(), made.stride()), (torch.Tensor, x.data_ptr(), stride))
        for make in (torch.from_dlpack, torch.as_tensor): self.assertEqual(make(ffi.from_dlpack(x)).data_ptr(), x.data_ptr())
        self.assertRaisesRegex(BufferError, "conjugate bit", echo, x.to(torch.complex64).conj())

    def test_mlx(self):
        mlx = package("mlx.core")
        x = torch.arange(6.0).view(2, 3)
        for tensor in (x, x.t(), x.bfloat16(), x.long()): self.assertEqual(mlx.array(tensor).tolist(), tensor.tolist())
        for make in (torch.from_dlpack, torch.as_tensor, torch.asarray, torch.tensor):
            self.assertEqual(make(mlx.array([1.0, 2.0])).tolist(), [1, 2])

    def test_pytorch(self):
        pytorch = package("torch")
        if "phlox" in pytorch.__file__: self.skipTest("PyTorch is not installed")
        a = torch.ones(2, 2)
        pytorch.utils.dlpack.from_dlpack(a.__dlpack__())[0, 0] = 5
        pytorch.from_dlpack(a)[1, 1] = 7
        self.assertEqual(a.sum().item(), 14)
        b = pytorch.full((3,), 2.0)
        self.assertEqual(torch.from_dlpack(b).data_ptr(), b.data_ptr())
        self.assertNotEqual(torch.from_dlpack(b, copy=True).data_ptr(), b.data_ptr())


if __name__ == "__main__":
    unittest.main()
