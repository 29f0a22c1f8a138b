// SPDX-License-Identifier: Apache-2.0
// torch.cuda: devices. Selection, properties, synchronisation; torch.accelerator, which is the same
// under the names for any accelerator. The scopes (torch.cuda.device) are in stream.c.
#include "bind/ext.h"

#include <time.h>

#include "phlox/profile.h"

EXT_MODULE(cuda, "cuda", "Devices of type cuda: selection, properties, streams, memory.");
EXT_MODULE(accelerator, "accelerator", "What torch.cuda has, for whatever accelerator there is.");

EXT_GIVES(cuda, is_available, "bool", (bool)(px_device_count(PX_CUDA) > 0),
          "Whether there is a device of type cuda.");
EXT_GIVES(cuda, device_count, "int", px_device_count(PX_CUDA),
          "Number of devices of type cuda that are visible.");
EXT_METHOD0(cuda, current_device, "int", "The index of this thread's current device.") {
  int index;
  EXT_TRY(px_device_current(&index));
  return PyLong_FromLong(index);
}
EXT_GIVES(cuda, is_initialized, "bool", px_device_initialized(),
          "Whether the devices were used: they open at their first use.");
EXT_DOES(cuda, init, px_device_init(), "Opens the devices now, rather than at their first use.");
EXT_ALSO(cuda, cuda_init, _lazy_init);

EXT_FUNCTION(cuda, set_device, "(device: Device) -> None",
             "Makes a device current for this thread.\n\n"
             "Args:\n"
             "    device (torch.device, str or int): with an index\n") {
  int index = -1;
  EXT_ARGS(PyObject *, device);
  bool number = PyLong_Check(device);
  bool named = PyUnicode_Check(device) || ext_is_device(device);
  if ((number || named) && ext_to_scope_index(device, &index) < 0) return NULL;
  if (!number && index < 0)
    EXT_FAIL(PyExc_ValueError,
             "Expected a torch.device with a specified index or an integer, but got:%S", device);
  return ext_none(px_device_set(index));
}
EXT_FUNCTION(cuda, synchronize, "(device: Device | None = None) -> None",
             "Waits for all work of a device, the current one by default.") {
  EXT_ARGS(ext_cuda, device);
  return ext_none(EXT_NOGIL(px_device_synchronize(device.index)));
}

static px_status time_of(int64_t *out, px_stream *stream, int device) {
  return stream ? px_time_stream(out, stream) : px_time_device(out, px_cuda(device));
}
EXT_FUNCTION(cuda, virtual_time, "(of: Stream | Device | None = None) -> int",
             "The virtual time of simulated devices with PHLOX_SIM_MODE=schedule, in nanoseconds: "
             "of the\nhost, or when a stream or a device has done what it was given, for which it "
             "waits.\nRuntimeError where time is real. Not in PyTorch.\n\n"
             "Args:\n"
             "    of (torch.cuda.Stream, torch.device, str or int): the host's by default\n") {
  int64_t time;
  int device = -1;
  px_stream *stream = NULL;
  EXT_ARGS(PyObject *, of);
  bool host = ext_is_none(of), queue = !host && PyObject_TypeCheck(of, &ext_StreamType);
  if (queue && ext_to_stream(of, &stream) < 0) return NULL;
  if (!host && !queue && ext_to_scope_index(of, &device) < 0) return NULL;
  if (host)
    EXT_TRY(px_time_host(&time));
  else
    EXT_WAIT(time_of(&time, stream, device));
  return PyLong_FromLongLong(time);
}

EXT_FUNCTION(cuda, _index_of, "(device: Device | None) -> int",
             "The index of a device, negative for what names none; of the current one for None.") {
  EXT_ARGS(PyObject *, device);
  int index = px_device_peek();
  return device && ext_to_scope_index(device, &index) < 0 ? NULL : PyLong_FromLong(index);
}

// ---- properties

static PyObject *uuid_text(const unsigned char *u) {
  char text[40];
  snprintf(text, sizeof text,
           "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
           u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
  return PyUnicode_FromString(text);
}

EXT_FUNCTION(cuda, _device_properties, "(device: Device | None) -> tuple",
             "What a device is, in the order of get_device_properties.") {
  px_device_properties p;
  EXT_ARGS(ext_cuda, device);
  EXT_TRY(px_device_get_properties(&p, device.index));
  return Py_BuildValue("(siiniNiiiniO)", p.name, p.major, p.minor, (Py_ssize_t)p.total_memory,
                       p.multi_processor_count, uuid_text(p.uuid), p.pci_bus_id, p.pci_device_id,
                       p.pci_domain_id, (Py_ssize_t)p.l2_cache_size,
                       p.max_threads_per_multi_processor, p.simulated ? Py_True : Py_False);
}
EXT_FUNCTION(cuda, get_device_name, "(device: Device | None = None) -> str",
             "The name of a device's model; the current device by default.") {
  px_device_properties p;
  EXT_ARGS(ext_cuda, device);
  EXT_TRY(px_device_get_properties(&p, device.index));
  return PyUnicode_FromString(p.name);
}
EXT_FUNCTION(cuda, get_device_capability, "(device: Device | None = None) -> tuple[int, int]",
             "Major and minor number of a device's capability; the current device by default.") {
  px_device_properties p;
  EXT_ARGS(ext_cuda, device);
  EXT_TRY(px_device_get_properties(&p, device.index));
  return Py_BuildValue("(ii)", p.major, p.minor);
}
EXT_FUNCTION(cuda, can_device_access_peer, "(device: Device, peer_device: Device) -> bool",
             "Whether kernels on `device` can use memory of `peer_device`.") {
  bool can;
  EXT_ARGS(ext_cuda, device, peer_device);
  EXT_TRY(px_device_can_access_peer(&can, device.index, peer_device.index));
  return PyBool_FromLong(can);
}
EXT_FUNCTION(cuda, enable_peer_access, "(device: Device, peer_device: Device) -> None",
             "Lets kernels on `device` use memory of `peer_device`. With both directions, an op "
             "may have operands on both: the current streams of both devices wait for it. Not "
             "in PyTorch.") {
  EXT_ARGS(ext_cuda, device, peer_device);
  return ext_none(EXT_NOGIL(px_device_enable_peer(device.index, peer_device.index)));
}
EXT_FUNCTION(cuda, mem_get_info, "(device: Device | None = None) -> tuple[int, int]",
             "The bytes of a device that are free, and all.") {
  size_t free_bytes, total;
  EXT_ARGS(ext_cuda, device);
  EXT_TRY(px_device_memory(&free_bytes, &total, device.index));
  return Py_BuildValue("(nn)", (Py_ssize_t)free_bytes, (Py_ssize_t)total);
}
EXT_FUNCTION(cuda, _fft_plans, "(device: Device | None) -> tuple[int, int]",
             "How many plans of Fourier transforms a device keeps, and how many it may.") {
  int64_t count, most;
  EXT_ARGS(ext_cuda, device);
  EXT_TRY(px_device_fft_plans(&count, &most, device.index));
  return Py_BuildValue("(LL)", (long long)count, (long long)most);
}
EXT_FUNCTION(cuda, _keep_fft_plans, "(device: Device | None, most: int) -> None",
             "Lets a device keep so many plans of Fourier transforms, and no more.") {
  ext_cuda device;
  int64_t most;
  EXT_BIND(device, most);
  return ext_none(EXT_NOGIL(px_device_set_fft_plans(device.index, most)));
}
EXT_FUNCTION(cuda, _clear_fft_plans, "(device: Device | None) -> None",
             "Lets go of the plans of Fourier transforms that a device keeps.") {
  EXT_ARGS(ext_cuda, device);
  return ext_none(EXT_NOGIL(px_device_clear_fft_plans(device.index)));
}
// utilization, temperature, ...: what nvidia-smi shows.
#define XX(figure, python, text) \
  EXT_FUNCTION(cuda, python, "(device: Device | None = None) -> int", text) { \
    int64_t value; \
    EXT_ARGS(ext_cuda, device); \
    EXT_TRY(px_device_figure(&value, device.index, PX_FIGURE_##figure)); \
    return PyLong_FromLongLong(value); \
  }
PX_FIGURE_MAP(XX)
#undef XX
EXT_FUNCTION(cuda, is_bf16_supported, "(including_emulation: bool = True) -> bool",
             "Whether bfloat16 works on the devices: it does wherever there is one.") {
  EXT_ARGS(bool, including_emulation);
  return PyBool_FromLong(px_device_count(PX_CUDA) > 0);
}

// ---- others

static void nap(void *nanoseconds) {
  int64_t left = (int64_t)(intptr_t)nanoseconds;
  struct timespec span = {left / 1000000000, left % 1000000000};
  nanosleep(&span, NULL);
}
EXT_FUNCTION(cuda, _sleep, "(cycles: int) -> None",
             "Keeps the current stream busy, for tests: for so many cycles of a clock of 1 GHz.") {
  EXT_ARGS(int64_t, cycles);
  px_stream *stream;
  if (cycles < 0) EXT_FAIL(PyExc_ValueError, "cycles must not be negative, but got %lld", cycles);
  EXT_TRY(px_stream_current(&stream, px_cuda(-1)));
  return ext_none(EXT_NOGIL(px_stream_host_call(stream, nap, (void *)(intptr_t)cycles)));
}
EXT_FUNCTION(cuda, _sync_debug_mode, "(mode: int | None) -> int",
             "What calls that wait for a device do; set before where a mode is given.") {
  EXT_ARGS(int64_t, mode);
  EXT_TRY(px_device_init());
  if (mode != EXT_NO_INT)
    EXT_TRY(px_sync_debug_set(mode < 0 || mode > 2 ? (px_sync_debug)3 : (px_sync_debug)mode));
  return PyLong_FromLong(px_sync_debug_get());
}
EXT_METHOD0(cuda, ipc_collect, "None",
            "Frees memory that this process kept for others, and that they have let go of. That "
            "also happens now\nand then when tensors are sent, and before memory runs out.") {
  int64_t left;
  return ext_none(EXT_NOGIL(px_storage_ipc_collect(&left)));
}
EXT_GIVES(cuda, get_arch_list, "list[str]", PyList_New(0),
          "Empty: kernels are compiled for the device when they are loaded.");
EXT_GIVES(cuda, _backend_name, "str", px_device_backend(), "The backend that serves type cuda.");

// ---- torch.accelerator
EXT_FUNCTION(accelerator, current_accelerator, "(check_available: bool = False) -> device | None",
             "device('cuda') where there is one, or None.") {
  EXT_ARGS(bool, check_available);
  if (px_device_count(PX_CUDA) == 0) Py_RETURN_NONE;
  return ext_device(px_cuda(-1));
}
EXT_SHARES(accelerator, cuda, is_available, device_count, synchronize);
EXT_ALSO(accelerator, cuda_current_device, current_device_index, current_device_idx);
EXT_ALSO(accelerator, cuda_set_device, set_device_index, set_device_idx);
