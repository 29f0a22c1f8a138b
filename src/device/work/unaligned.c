// SPDX-License-Identifier: Apache-2.0
// CPU launches with misaligned operands, in memory of another library. Kernels require elements at
// multiples of their size. They run on aligned copies; results are copied back element by element,
// so that bytes between the elements stay unchanged.
#include "device/work/work.h"

typedef struct misaligned {
  char *original, *copy;
  size_t bytes;  // 0: the operand is aligned
  bool write;
} misaligned;

// Computes the bytes of a misaligned operand from the launch's accesses. An operand both read and
// written has two accesses. Operands at one address share a copy.
static misaligned find_misaligned(const px_operand *o, const px_access *accesses, int count) {
  misaligned s = {.original = o->data};
  bool odd = o->dtype != PX_DTYPE_NONE && !o->immediate &&
             (uintptr_t)o->data % px_dtype_size((px_dtype)o->dtype);
  for (int i = 0; i < count && odd; i++) {
    const px_access *a = &accesses[i];
    if (!a->allocation || (char *)a->allocation->data + a->begin != s.original) continue;
    if (a->end - a->begin > s.bytes) s.bytes = a->end - a->begin;
    s.write |= a->write;
  }
  return s;
}

// Copies the elements of dimensions `dim` and up.
static void copy_out(const px_operand *o, int dim, char *to, const char *from) {
  size_t item = px_dtype_size((px_dtype)o->dtype);
  if (dim == o->ndim) {
    memcpy(to, from, item);
    return;
  }
  for (int64_t i = 0; i < o->sizes[dim]; i++) {
    int64_t step = i * o->strides[dim] * (int64_t)item;
    copy_out(o, dim + 1, to + step, from + step);
  }
}

// Shares the copy of an earlier operand at the same address, or creates one.
static px_status copy_in(misaligned *list, int i) {
  for (int k = 0; k < i; k++)
    if (list[k].bytes && list[k].original == list[i].original)
      return list[i].copy = list[k].copy, list[i].write = false, PX_OK;
  PX_TRY(px__alloc((void **)&list[i].copy, list[i].bytes));
  memcpy(list[i].copy, list[i].original, list[i].bytes);
  return PX_OK;
}

static void drop(const misaligned *list, int count) {
  for (int i = 0; i < count; i++) {
    bool shared = false;
    for (int k = 0; k < i; k++) shared |= list[k].copy == list[i].copy;
    if (!shared) px__free(list[i].copy);
  }
}

px_status px__launch_aligned(const px_launch *launch, const px_access *accesses, int count) {
  misaligned list[PX_MAX_OPERANDS] = {0};
  px_operand operands[PX_MAX_OPERANDS];
  px_launch with = *launch;
  px_status status = PX_OK;
  int n = launch->operand_count;
  memcpy(operands, launch->operands, (size_t)n * sizeof *operands);
  with.operands = operands;
  for (int i = 0; i < n && status == PX_OK; i++) {
    list[i] = find_misaligned(&operands[i], accesses, count);
    if (list[i].bytes) status = copy_in(list, i);
    if (list[i].bytes) operands[i].data = list[i].copy;
  }
  if (status == PX_OK) status = launch->kernel(&with);
  for (int i = 0; i < n; i++)
    if (list[i].copy && list[i].write) copy_out(&operands[i], 0, list[i].original, list[i].copy);
  drop(list, n);
  return status;
}
