// SPDX-License-Identifier: Apache-2.0
// Launches on the CPU over a stranger's memory whose elements lie at odd addresses. Kernels want
// them at multiples of their size: they get copies, and what they write is brought back, element by
// element, so that bytes between the elements stay as they are.
#include "device/state.h"

typedef struct stand_in {
  char *theirs, *ours;
  size_t bytes;  // 0: the operand lies well
  bool write;
} stand_in;

// The bytes behind an operand, which the launch's accesses tell. An operand that is read and
// written has two accesses, and two operands at one address share a copy.
static stand_in stand_in_for(const px_operand *o, const px_access *accesses, int count) {
  stand_in s = {.theirs = o->data};
  bool odd = o->dtype != PX_DTYPE_NONE && !o->immediate &&
             (uintptr_t)o->data % px_dtype_size((px_dtype)o->dtype);
  for (int i = 0; i < count && odd; i++) {
    const px_access *a = &accesses[i];
    if (!a->allocation || (char *)a->allocation->data + a->begin != s.theirs) continue;
    if (a->end - a->begin > s.bytes) s.bytes = a->end - a->begin;
    s.write |= a->write;
  }
  return s;
}

// The elements of dimensions from `dim` on.
static void bring_back(const px_operand *o, int dim, char *to, const char *from) {
  size_t item = px_dtype_size((px_dtype)o->dtype);
  if (dim == o->ndim) {
    memcpy(to, from, item);
    return;
  }
  for (int64_t i = 0; i < o->sizes[dim]; i++) {
    int64_t step = i * o->strides[dim] * (int64_t)item;
    bring_back(o, dim + 1, to + step, from + step);
  }
}

// The copy of an earlier operand at the same address, or a new one.
static px_status copy_in(stand_in *list, int i) {
  for (int k = 0; k < i; k++)
    if (list[k].bytes && list[k].theirs == list[i].theirs)
      return list[i].ours = list[k].ours, list[i].write = false, PX_OK;
  PX_TRY(px__alloc((void **)&list[i].ours, list[i].bytes));
  memcpy(list[i].ours, list[i].theirs, list[i].bytes);
  return PX_OK;
}

static void drop(const stand_in *list, int count) {
  for (int i = 0; i < count; i++) {
    bool shared = false;
    for (int k = 0; k < i; k++) shared |= list[k].ours == list[i].ours;
    if (!shared) px__free(list[i].ours);
  }
}

px_status px__launch_aligned(const px_launch *launch, const px_access *accesses, int count) {
  stand_in list[PX_MAX_OPERANDS] = {0};
  px_operand operands[PX_MAX_OPERANDS];
  px_launch with = *launch;
  px_status status = PX_OK;
  int n = launch->operand_count;
  memcpy(operands, launch->operands, (size_t)n * sizeof *operands);
  with.operands = operands;
  for (int i = 0; i < n && status == PX_OK; i++) {
    list[i] = stand_in_for(&operands[i], accesses, count);
    if (list[i].bytes) status = copy_in(list, i);
    if (list[i].bytes) operands[i].data = list[i].ours;
  }
  if (status == PX_OK) status = launch->kernel(&with);
  for (int i = 0; i < n; i++)
    if (list[i].ours && list[i].write) bring_back(&operands[i], 0, list[i].theirs, list[i].ours);
  drop(list, n);
  return status;
}
