// SPDX-License-Identifier: Apache-2.0
// Copies between tensors, and from tensors to the host.
//
// On one device, a copy moves bytes if both sides are row-major with one dtype; otherwise the
// kernel "copy" converts and broadcasts. Between devices only bytes are transferred: the source
// device converts and packs them before, the destination device unpacks them after.
#include "tensor/in_use.h"

// Strides of `from` broadcast to the sizes of `to`.
static px_status broadcast_strides(int64_t *strides, const px_tensor *to, const px_tensor *from) {
  int64_t sizes[PX_MAX_DIMS];
  int ndim, lead = to->ndim - from->ndim;
  PX_TRY(px__broadcast(&ndim, sizes, to->ndim, to->sizes, from->ndim, from->sizes));
  char a[256], b[256];
  PX_CHECK(px__has_sizes(to, ndim, sizes), PX_RUNTIME,
           "output with shape %s doesn't match the broadcast shape %s",
           px__sizes_text(a, sizeof a, to->ndim, to->sizes),
           px__sizes_text(b, sizeof b, ndim, sizes));
  for (int d = 0; d < ndim; d++)
    strides[d] = d < lead || from->sizes[d - lead] == 1 ? 0 : from->strides[d - lead];
  return PX_OK;
}

static px_status check_destination(const px_tensor *to) {
  for (int d = 0; d < to->ndim; d++)
    PX_CHECK(to->strides[d] != 0 || to->sizes[d] <= 1, PX_RUNTIME,
             "unsupported operation: more than one element of the written-to tensor refers to a "
             "single memory location. Please clone() the tensor before performing the operation.");
  return PX_OK;
}

static px_status run_copy_kernel(const px_tensor *to, const px_tensor *from,
                                 const int64_t *strides) {
  static px__named_kernel copy = {.name = "copy"};
  px_device device = px__tensor_device(to);
  px_kernel kernel = px__named_kernel_on(&copy, (px_device_type)device.type);
  PX_CHECK(kernel, PX_UNIMPLEMENTED, "copy is not implemented for device type '%s'",
           px_device_type_name(device.type));
  enum { TO, FROM, OPERANDS };
  px_operand operands[OPERANDS] = {0}, *source = &operands[FROM];
  px__operand_of(&operands[TO], to);
  px__operand_of(source, from);
  source->sizes = to->sizes, source->strides = strides, source->ndim = to->ndim;
  px_access accesses[2] = {px__access_of(to, true), px__access_of(from, false)};
  px_launch launch = {.op = "copy_",
                      .kernel = kernel,
                      .operand_count = 2,
                      .operands = operands,
                      .compute = PX_DTYPE_NONE};
  PX_TRY(px__launch(device, &launch, accesses, 2));
  return PX_OK;
}

// Copies between any allocations. Within a capture, memory of the host must be pinned.
static px_status copy_between(px_allocation *to, size_t to_offset, px_allocation *from,
                              size_t from_offset, size_t bytes, bool non_blocking) {
  bool down = to->device.type == PX_CPU;
  const px_allocation *host = down ? to : from;
  PX_CHECK(
      to->device.type == from->device.type || !px__capturing() || host->device.type != PX_CPU ||
          px__allocation_is_pinned(host, down ? to_offset : from_offset, bytes),
      PX_RUNTIME,
      "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor "
      "is pinned. Please use tensor.pin_memory() or allocate the tensor with pin_memory=True.");
  return px__copy_bytes(to, to_offset, from, from_offset, bytes, non_blocking);
}
static px_status copy_bytes(px_tensor *to, const px_tensor *from, bool non_blocking) {
  size_t item = px__item(to);
  return copy_between(to->storage->allocation, (size_t)to->offset * item, from->storage->allocation,
                      (size_t)from->offset * item, (size_t)to->numel * item, non_blocking);
}

static bool is_plain(const px_tensor *to, const px_tensor *from) {
  return to->dtype == from->dtype && to->contiguous && from->contiguous &&
         px__has_sizes(to, from->ndim, from->sizes);
}

// True if a byte copy is fastest. While launches are batched, a kernel is better: a device may
// merge several.
static bool prefers_byte_copy(const px_tensor *to, const px_tensor *from) {
  enum { BYTE_COPY_LIMIT = 1 << 18 };  // bytes; larger copies are threaded by the kernel
  if (!is_plain(to, from)) return false;
  return px__tensor_device(to).type == PX_CPU ? (size_t)to->numel * px__item(to) < BYTE_COPY_LIMIT
                                              : !px__launch_batch_active();
}

bool px__overlap(const px_tensor *a, const px_tensor *b) {
  if (a->storage->allocation != b->storage->allocation) return false;
  px_access x = px__access_of(a, true), y = px__access_of(b, false);
  return x.begin < y.end && y.begin < x.end;
}

static bool same_elements(const px_tensor *a, const px_tensor *b) {
  return a->offset == b->offset && a->dtype == b->dtype && px__has_sizes(a, b->ndim, b->sizes) &&
         !memcmp(a->strides, b->strides, sizeof *a->strides * (size_t)a->ndim);
}

// Negates the elements of an operand in place.
static px_status negate(px_operand *operand, px_device device, const px_access *access) {
  static px__named_kernel neg = {.name = "neg"};
  px_kernel kernel = px__named_kernel_on(&neg, (px_device_type)device.type);
  PX_CHECK(kernel, PX_UNIMPLEMENTED, "neg is not implemented for device type '%s'",
           px_device_type_name(device.type));
  px_operand operands[2] = {*operand, *operand};
  px_launch launch = {.op = "neg",
                      .kernel = kernel,
                      .operand_count = 2,
                      .operands = operands,
                      .compute = (px_dtype)operand->dtype};
  PX_TRY(px__launch(device, &launch, access, 1));
  return PX_OK;
}

// Resolves the lazy flags of a tensor in memory: conj negates the imaginary parts, neg all parts,
// both together the real parts.
static px_status resolve_lazy(const px_tensor *t, unsigned flags) {
  // Strides of an empty tensor may overflow when doubled.
  if (!t->numel) return PX_OK;
  px_dtype part = px_dtype_to_real((px_dtype)t->dtype);
  bool complex = part != (px_dtype)t->dtype;
  int64_t strides[PX_MAX_DIMS];
  px_access access = px__access_of(t, true);
  px_operand operand;
  px__operand_of(&operand, t);
  operand.dtype = (int)part;
  operand.strides = strides;
  for (int d = 0; d < t->ndim; d++) strides[d] = t->strides[d] * (complex ? 2 : 1);
  bool conj = complex && (flags & PX_TENSOR_CONJ), neg = flags & PX_TENSOR_NEG;
  if (neg) PX_TRY(negate(&operand, px__tensor_device(t), &access));
  if (complex) operand.data = (char *)operand.data + px_dtype_size(part);
  return conj != (neg && complex) ? negate(&operand, px__tensor_device(t), &access) : PX_OK;
}

// Returns a new row-major tensor on self's device with self's elements converted to `dtype`.
static px_status packed(px_tensor **out, const px_tensor *self, px_dtype dtype) {
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_tensor_empty(&made, self->ndim, self->sizes, dtype, px__tensor_device(self)));
  if (prefers_byte_copy(made, self))
    PX_TRY(copy_bytes(made, self, true));
  else if (self->numel)
    PX_TRY(run_copy_kernel(made, self, self->strides));
  if (PX_UNLIKELY(px__flags(self) & PX_TENSOR_CONJ_NEG))
    PX_TRY(resolve_lazy(made, px__flags(self)));
  *out = PX_MOVE(made);
  return PX_OK;
}

static px_status copy_here(px_tensor *to, const px_tensor *from) {
  int64_t strides[PX_MAX_DIMS];
  PX_TRY(broadcast_strides(strides, to, from));
  if (to->numel == 0) return PX_OK;
  PX_TRY(check_destination(to));
  PX_SCOPED(px_tensor) copied = NULL;
  if (PX_UNLIKELY(px__overlap(to, from))) {
    if (same_elements(to, from)) return PX_OK;
    PX_TRY(packed(&copied, from, (px_dtype)from->dtype));
    from = copied;
    PX_TRY(broadcast_strides(strides, to, from));
  }
  if (prefers_byte_copy(to, from))
    PX_TRY(copy_bytes(to, from, true));
  else
    PX_TRY(run_copy_kernel(to, from, strides));
  return PX_OK;
}

static px_status copy_across(px_tensor *to, const px_tensor *from, bool non_blocking) {
  int64_t strides[PX_MAX_DIMS];
  PX_SCOPED(px_tensor) ready = NULL;
  PX_SCOPED(px_tensor) received = NULL;
  PX_TRY(broadcast_strides(strides, to, from));
  if (to->numel == 0) return PX_OK;
  PX_TRY(check_destination(to));
  if (!from->contiguous || from->dtype != to->dtype) {
    PX_TRY(packed(&ready, from, (px_dtype)to->dtype));
    from = ready;
  }
  if (is_plain(to, from)) {
    PX_TRY(copy_bytes(to, from, non_blocking));
    return PX_OK;
  }
  PX_TRY(px_tensor_empty(&received, from->ndim, from->sizes, (px_dtype)to->dtype,
                         px__tensor_device(to)));
  PX_TRY(copy_bytes(received, from, non_blocking));
  PX_TRY(copy_here(to, received));
  return PX_OK;
}

// Returns the elements to store in the memory of a conjugate or negative view, such that the view
// has the values of `from`.
static px_status stored_for(px_tensor **out, const px_tensor *to, const px_tensor *from) {
  PX_TRY(packed(out, from, (px_dtype)to->dtype));
  return resolve_lazy(*out, px__flags(to));
}

px_status px__tensor_copy(px_tensor *to, const px_tensor *from, bool non_blocking) {
  PX_TRY(px__check_not_batched(to));
  PX_TRY(px__check_not_batched(from));
  PX_TRY(px__storage_ready(to->storage));
  PX_TRY(px__storage_ready(from->storage));
  PX_SCOPED(px_tensor) resolved = NULL;
  PX_SCOPED(px_tensor) stored = NULL;
  if (PX_UNLIKELY(px__flags(from) & PX_TENSOR_CONJ_NEG)) {
    PX_TRY(packed(&resolved, from, (px_dtype)from->dtype));
    from = resolved;
  }
  if (PX_UNLIKELY(px__flags(to) & PX_TENSOR_CONJ_NEG)) {
    PX_TRY(stored_for(&stored, to, from));
    from = stored;
  }
  if (px_device_equal(px__tensor_device(to), px__tensor_device(from)))
    PX_TRY(copy_here(to, from));
  else
    PX_TRY(copy_across(to, from, non_blocking));
  return PX_OK;
}

px_status px__tensor_contiguous(px_tensor **out, const px_tensor *self) {
  *out = NULL;
  PX_TRY(px__check_not_batched(self));
  PX_TRY(px__storage_ready(self->storage));
  if (self->contiguous && !(px__flags(self) & PX_TENSOR_CONJ_NEG))
    *out = px_retain(self);
  else
    PX_TRY(packed(out, self, (px_dtype)self->dtype));
  return PX_OK;
}

// Copies the bytes of a row-major tensor on any device to the host.
static px_status read_bytes(const px_tensor *self, void *to, size_t bytes) {
  px_allocation *from = self->storage->allocation, *host = NULL;
  if (from->device.type == PX_CPU) {
    px_access access = px__access_of(self, false);
    PX_TRY(px__allocation_host_access("read", &access));
    return px__copy_interruptible(to, px__tensor_at(self), bytes);
  }
  PX_TRY(px__allocation_wrap(&host, to, bytes, px_cpu(), NULL, NULL));
  px_status status =
      px__copy_bytes(host, 0, from, (size_t)self->offset * px__item(self), bytes, false);
  px__allocation_free(host);
  return status == PX_OK ? PX_OK : px_error_add_frame(status, __FILE__, __LINE__, __func__);
}

// Fails for tensors without values. Called before values are read, also by ops with data-dependent
// result sizes.
static px_status check_values(const px_tensor *self) {
  if (PX_LIKELY(px__tensor_device(self).type != PX_META)) return PX_OK;
  PX_CHECK(!px__caller(), PX_UNIMPLEMENTED, "%s needs values, but meta tensors have none",
           px__caller());
  PX_FAIL(PX_RUNTIME, "Tensor.item() cannot be called on meta tensors");
}

px_status px_tensor_read(const px_tensor *self, void *to, size_t bytes) {
  PX_GIVEN(self);
  PX_GIVEN_N(to, bytes);
  PX__USES(self);
  size_t wanted = (size_t)self->numel * px__item(self);
  PX_CHECK(bytes == wanted, PX_VALUE, "expected a buffer of %zu bytes, got %zu", wanted, bytes);
  if (bytes == 0) return PX_OK;
  PX_SCOPED(px_tensor) row = NULL;
  PX_TRY(px__tensor_contiguous(&row, self));
  PX_TRY(read_bytes(row, to, bytes));
  return PX_OK;
}

// Returns the address of the single element: in the tensor's memory if the host can read it now,
// else a copy in `buffer`.
static px_status read_one(const void **out, void *buffer, const px_tensor *self) {
  PX_CHECK(self->numel == 1, PX_RUNTIME,
           "a Tensor with %lld elements cannot be converted to Scalar", (long long)self->numel);
  PX_CHECK(
      !px__is_batched(self), PX_RUNTIME,
      "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
      "calling .item() on a Tensor, please try to rewrite what you're doing with other "
      "operations. If error is occurring somewhere inside PyTorch internals, please file a bug "
      "report.");
  PX_TRY(px__storage_ready(self->storage));
  const px_allocation *allocation = self->storage->allocation;
  PX_SCOPED(px_tensor) resolved = NULL;
  if (PX_UNLIKELY(px__flags(self) & PX_TENSOR_CONJ_NEG)) {
    PX_TRY(px__tensor_contiguous(&resolved, self));
    PX_TRY(read_bytes(resolved, buffer, px__item(self)));
    *out = buffer;
    return PX_OK;
  }
  if (PX_LIKELY(allocation->device.type == PX_CPU && allocation->data &&
                !__atomic_load_n(&allocation->pending, __ATOMIC_ACQUIRE))) {
    *out = px__tensor_at(self);
    return PX_OK;
  }
  PX_TRY(check_values(self));
  PX_TRY(px__allocation_check_bounds(allocation, px__access_of(self, false).end));
  PX_CHECK(allocation->data, PX_RUNTIME, "the tensor has no memory to read");
  PX_TRY(read_bytes(self, buffer, px__item(self)));
  *out = buffer;
  return PX_OK;
}

px_status px_tensor_item_complex(px_complex *out, const px_tensor *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  double buffer[2];
  const void *at;
  PX__USES(self);
  PX_TRY(read_one(&at, buffer, self));
  *out = px_complex_load((px_dtype)self->dtype, at);
  return PX_OK;
}

px_status px_tensor_item(px_scalar *out, const px_tensor *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  double buffer[2];
  const void *at;
  PX__USES(self);
  px_dtype dtype = (px_dtype)self->dtype;
  PX_TRY(read_one(&at, buffer, self));
  PX_CHECK(PX_LIKELY(!px_dtype_is_complex(dtype)) || px_complex_load(dtype, at).imag == 0,
           PX_RUNTIME, "value cannot be converted to type double without overflow");
  *out = px_scalar_load(dtype, at);
  return PX_OK;
}

px_status px_tensor_from_data(px_tensor **out, const void *data, int ndim, const int64_t *sizes,
                              px_dtype dtype, px_device device) {
  PX_GIVEN(out);
  PX_GIVEN_N(sizes, ndim);
  PX_SCOPED(px_tensor) made = NULL;
  *out = NULL;
  PX_TRY(px_tensor_empty(&made, ndim, sizes, dtype, device));
  size_t bytes = (size_t)made->numel * px__item(made);
  PX_CHECK(data || !bytes, PX_VALUE, "a tensor of %zu bytes needs data, but got NULL", bytes);
  if (bytes && px__tensor_device(made).type == PX_CPU) {
    PX_TRY(px__copy_interruptible(px__tensor_at(made), data, bytes));
  } else if (bytes) {
    // The copy only reads the caller's memory. It is pageable, so the copy has read it on return.
    px_allocation *host = NULL;
    PX_TRY(px__allocation_wrap(&host, (void *)data, bytes, px_cpu(), NULL, NULL));
    px_status status = copy_between(made->storage->allocation, 0, host, 0, bytes, false);
    px__allocation_free(host);
    PX_TRY(status);
  }
  *out = PX_MOVE(made);
  return PX_OK;
}
