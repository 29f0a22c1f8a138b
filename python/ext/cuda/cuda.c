// SPDX-License-Identifier: Apache-2.0
// torch.cuda: device selection, properties and synchronization. Also torch.accelerator, the same
// under generic names. The scopes (torch.cuda.device) are in stream.c.
#include "bind/ext.h"

#include <time.h>

#include "phlox/profile.h"

EXT_MODULE(cuda, "cuda", "Devices of type cuda: selection, properties, streams, memory.");
EXT_MODULE(accelerator, "accelerator", "Device functions independent of the accelerator type.");

EXT_RETURNS(cuda, is_available, "bool", (bool)(px_device_count(PX_CUDA) > 0),
            "Returns True if a CUDA device is available.");
EXT_RETURNS(cuda, device_count, "int", px_device_count(PX_CUDA),
            "Returns the number of visible CUDA devices.");
EXT_METHOD0(cuda, current_device, "int", "Returns the index of this thread's current device.") {
  int index;
  EXT_TRY(px_device_current(&index));
  return PyLong_FromLong(index);
}
EXT_RETURNS(cuda, is_initialized, "bool", px_device_initialized(),
            "Returns True if the devices have been initialized, which happens at first use.");
EXT_RETURNS_NONE(cuda, init, px_device_init(),
                 "Initializes the devices now instead of at first use.");
EXT_ALIASES(cuda, cuda_init, _lazy_init);

EXT_FUNCTION(cuda, set_device, "(device: Device) -> None",
             "Sets the current device of this thread.\n\n"
             "Args:\n"
             "    device (torch.device, str or int): the selected device, with an index\n") {
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
             "Waits for all work on a device to complete; default: the current device.") {
  EXT_ARGS(ext_cuda, device);
  return ext_none(EXT_NOGIL(px_device_synchronize(device.index)));
}

static px_status time_of(int64_t *out, px_stream *stream, int device) {
  return stream ? px_time_stream(out, stream) : px_time_device(out, px_cuda(device));
}
EXT_FUNCTION(
    cuda, virtual_time, "(of: Stream | Device | None = None) -> int",
    "Returns the virtual time of simulated devices (PHLOX_SIM_MODE=schedule) in "
    "nanoseconds: of\nthe host, or the completion time of a stream or device, after waiting "
    "for it.\nRuntimeError if time is real. Not in PyTorch.\n\n"
    "Args:\n"
    "    of (torch.cuda.Stream, torch.device, str or int): default: the host\n") {
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

EXT_FUNCTION(
    cuda, _index_of, "(device: Device | None) -> int",
    "Returns the index of a device: negative without an index, the current one for None.") {
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
  return ext_str(text);
}

EXT_FUNCTION(cuda, _device_properties, "(device: Device | None) -> tuple",
             "Returns the properties of a device, in the order of get_device_properties.") {
  px_device_properties p;
  EXT_ARGS(ext_cuda, device);
  EXT_TRY(px_device_get_properties(&p, device.index));
  return Py_BuildValue("(siiniNiiiniO)", p.name, p.major, p.minor, (Py_ssize_t)p.total_memory,
                       p.multi_processor_count, uuid_text(p.uuid), p.pci_bus_id, p.pci_device_id,
                       p.pci_domain_id, (Py_ssize_t)p.l2_cache_size,
                       p.max_threads_per_multi_processor, p.simulated ? Py_True : Py_False);
}
EXT_FUNCTION(cuda, get_device_name, "(device: Device | None = None) -> str",
             "Returns the model name of a device; default: the current device.") {
  px_device_properties p;
  EXT_ARGS(ext_cuda, device);
  EXT_TRY(px_device_get_properties(&p, device.index));
  return ext_str(p.name);
}
EXT_FUNCTION(cuda, get_device_capability, "(device: Device | None = None) -> tuple[int, int]",
             "Returns the major and minor capability of a device; default: the current device.") {
  px_device_properties p;
  EXT_ARGS(ext_cuda, device);
  EXT_TRY(px_device_get_properties(&p, device.index));
  return Py_BuildValue("(ii)", p.major, p.minor);
}
EXT_FUNCTION(cuda, can_device_access_peer, "(device: Device, peer_device: Device) -> bool",
             "Returns True if kernels on `device` can access memory of `peer_device`.") {
  bool can;
  EXT_ARGS(ext_cuda, device, peer_device);
  EXT_TRY(px_device_can_access_peer(&can, device.index, peer_device.index));
  return PyBool_FromLong(can);
}
EXT_FUNCTION(
    cuda, enable_peer_access, "(device: Device, peer_device: Device) -> None",
    "Enables access to memory of `peer_device` from kernels on `device`. With access in both "
    "directions, an op can have operands on both devices: their current streams wait for "
    "it. Not in PyTorch.") {
  EXT_ARGS(ext_cuda, device, peer_device);
  return ext_none(EXT_NOGIL(px_device_enable_peer(device.index, peer_device.index)));
}
EXT_FUNCTION(cuda, mem_get_info, "(device: Device | None = None) -> tuple[int, int]",
             "Returns the free and total memory of a device in bytes.") {
  size_t free_bytes, total;
  EXT_ARGS(ext_cuda, device);
  EXT_TRY(px_device_memory(&free_bytes, &total, device.index));
  return Py_BuildValue("(nn)", (Py_ssize_t)free_bytes, (Py_ssize_t)total);
}
EXT_FUNCTION(cuda, _fft_plans, "(device: Device | None) -> tuple[int, int]",
             "Returns the number of cached FFT plans of a device and its limit.") {
  int64_t count, most;
  EXT_ARGS(ext_cuda, device);
  EXT_TRY(px_device_fft_plans(&count, &most, device.index));
  return Py_BuildValue("(LL)", (long long)count, (long long)most);
}
EXT_FUNCTION(cuda, _keep_fft_plans, "(device: Device | None, most: int) -> None",
             "Sets the limit of cached FFT plans of a device.") {
  ext_cuda device;
  int64_t most;
  EXT_BIND(device, most);
  return ext_none(EXT_NOGIL(px_device_set_fft_plans(device.index, most)));
}
EXT_FUNCTION(cuda, _clear_fft_plans, "(device: Device | None) -> None",
             "Clears the FFT plan cache of a device.") {
  EXT_ARGS(ext_cuda, device);
  return ext_none(EXT_NOGIL(px_device_clear_fft_plans(device.index)));
}
// utilization, temperature, ...: values shown by nvidia-smi.
#define XX(figure, python, text) \
  EXT_FUNCTION(cuda, python, "(device: Device | None = None) -> int", text) { \
    int64_t value; \
    EXT_ARGS(ext_cuda, device); \
    EXT_TRY(px_device_metric(&value, device.index, PX_METRIC_##figure)); \
    return PyLong_FromLongLong(value); \
  }
PX_METRIC_MAP(XX)
#undef XX
EXT_FUNCTION(cuda, is_bf16_supported, "(including_emulation: bool = True) -> bool",
             "Returns True if bfloat16 is supported, as on every device.") {
  EXT_ARGS(bool, including_emulation);
  return PyBool_FromLong(px_device_count(PX_CUDA) > 0);
}

// ---- others

static void sleep_callback(void *nanoseconds) {
  int64_t left = (int64_t)(intptr_t)nanoseconds;
  struct timespec span = {left / 1000000000, left % 1000000000};
  nanosleep(&span, NULL);
}
EXT_FUNCTION(cuda, _sleep, "(cycles: int) -> None",
             "Keeps the current stream busy for a number of cycles at 1 GHz, for tests.") {
  EXT_ARGS(int64_t, cycles);
  px_stream *stream;
  if (cycles < 0) EXT_FAIL(PyExc_ValueError, "cycles must not be negative, but got %lld", cycles);
  EXT_TRY(px_stream_current(&stream, px_cuda(-1)));
  return ext_none(EXT_NOGIL(px_stream_host_call(stream, sleep_callback, (void *)(intptr_t)cycles)));
}
EXT_FUNCTION(
    cuda, _sync_debug_mode, "(mode: int | None) -> int",
    "Returns the debug mode of synchronizing calls, after setting it unless mode is None.") {
  EXT_ARGS(int64_t, mode);
  EXT_TRY(px_device_init());
  if (mode != EXT_NO_INT)
    EXT_TRY(px_sync_debug_set(mode < 0 || mode > 2 ? (px_sync_debug)3 : (px_sync_debug)mode));
  return PyLong_FromLong(px_sync_debug_get());
}
EXT_METHOD0(
    cuda, ipc_collect, "None",
    "Frees memory kept for other processes that have released it. Also happens occasionally "
    "when tensors\nare sent, and before out-of-memory errors.") {
  int64_t left;
  return ext_none(EXT_NOGIL(px_storage_ipc_collect(&left)));
}
EXT_RETURNS(cuda, get_arch_list, "list[str]", PyList_New(0),
            "Returns an empty list: kernels are compiled for the device when they are loaded.");
EXT_RETURNS(cuda, _backend_name, "str", px_device_backend(),
            "Returns the name of the backend of device type cuda.");

// ---- torch.accelerator
EXT_FUNCTION(accelerator, current_accelerator, "(check_available: bool = False) -> device | None",
             "Returns device('cuda') if there is one, else None.") {
  EXT_ARGS(bool, check_available);
  if (px_device_count(PX_CUDA) == 0) Py_RETURN_NONE;
  return ext_device(px_cuda(-1));
}
EXT_SAME_MEMBERS(accelerator, cuda, is_available, device_count, synchronize);
EXT_ALIASES(accelerator, cuda_current_device, current_device_index, current_device_idx);
EXT_ALIASES(accelerator, cuda_set_device, set_device_index, set_device_idx);
