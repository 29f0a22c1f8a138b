// SPDX-License-Identifier: Apache-2.0
// Packs a launch and all it points to into one buffer, for backends that queue it.
//
// The same traversal first measures, then writes.
#include "device/work/work.h"

typedef struct packer {
  char *at;  // NULL: only measure
  size_t used;
} packer;

static void *put(packer *p, const void *from, size_t bytes) {
  void *to = p->at ? p->at + p->used : NULL;
  if (to && bytes && from) memcpy(to, from, bytes);
  p->used += (bytes + 15) & ~(size_t)15;
  return to;
}

static void put_operand(packer *p, px_operand *copy, const px_operand *o) {
  size_t bytes = (size_t)o->ndim * sizeof(int64_t);
  const void *sizes = put(p, o->sizes, bytes), *strides = put(p, o->strides, bytes);
  if (!copy) return;
  copy->sizes = sizes, copy->strides = strides;
  if (o->immediate) copy->data = copy->value;
}

static void put_param(packer *p, px_value *copy, const px_value *v) {
  const void *to = NULL;
  if (v->kind == PX_ARG_INTS)
    to = put(p, v->v.ints, (size_t)v->n * sizeof(int64_t));
  else if (v->kind == PX_ARG_TEXT)
    to = put(p, v->v.text, strlen(v->v.text) + 1);
  else if (v->kind != PX_ARG_TENSOR && v->kind != PX_ARG_TENSORS && v->kind != PX_ARG_GENERATOR)
    return;
  if (copy) copy->v.ints = to;
}

static void put_launch(packer *p, const px_launch *l) {
  px_launch *copy = put(p, l, sizeof *l);
  px_operand *operands = put(p, l->operands, (size_t)l->operand_count * sizeof *l->operands);
  px_value *params = put(p, l->params, (size_t)l->param_count * sizeof *l->params);
  for (int i = 0; i < l->operand_count; i++)
    put_operand(p, operands ? operands + i : NULL, &l->operands[i]);
  for (int i = 0; i < l->param_count; i++) put_param(p, params ? params + i : NULL, &l->params[i]);
  if (copy) copy->operands = operands, copy->params = params;
}

size_t px__launch_pack(const px_launch *launch, void *to, size_t capacity) {
  packer measure = {0};
  put_launch(&measure, launch);
  if (measure.used > capacity || !to) return measure.used;
  packer write = {.at = to};
  put_launch(&write, launch);
  return write.used;
}
