// SPDX-License-Identifier: Apache-2.0
// Launches of the elementwise ops of the tables.
//
// Each generated kernel is for one dtype. An operand of another dtype is converted by the copy
// kernel through scratch memory, before the launch or, for the result, after it.
#include <stdlib.h>

#include "cuda/host/ops/kernel.h"

static void read_complex(k_loop *p, const px_operand *o, int i) {
  double parts[2] = {0, 0};
  if (o->dtype == PX_COMPLEX128) {
    memcpy(parts, o->value, sizeof parts);
  } else if (o->dtype == PX_COMPLEX64) {
    float narrow[2];
    memcpy(narrow, o->value, sizeof narrow);
    parts[0] = narrow[0], parts[1] = narrow[1];
  } else {
    k_number real;
    px__cuda_read(&real, o, true);
    parts[0] = real.f;
  }
  p->value[i].f = parts[0];
  memcpy(&p->data[i], &parts[1], sizeof p->data[i]);
}

void px__cuda_read_numbers(const px_launch *l, const px__cuda_pointwise *op, k_number *numbers,
                           uint32_t *has, uint32_t *truth) {
  bool real = l->compute >= PX_FLOAT16;  // scalars combined with complex operands are real
  *has = 0, *truth = 0;
  for (int i = 0; i < l->param_count; i++)
    if (l->params[i].kind != PX_ARG_NONE) *has |= 1u << i;
  for (int i = 0; i < op->number_count; i++) {
    if (op->numbers[i] < 0) continue;
    const px_value *v = &l->params[op->numbers[i]];
    if (real)
      numbers[i].f = px_value_float(*v);
    else if (l->compute == PX_BOOL)
      numbers[i].i = px_value_float(*v) != 0;
    else
      numbers[i].i = px_value_int(*v);
  }
  if (op->test_text) {
    const px_value *v = &l->params[op->test_param];
    *truth = v->kind == PX_ARG_TEXT && !strcmp(v->v.text, op->test_text);
  }
}

// Layout of a scratch copy in another dtype: dense over the operand's distinct elements.
typedef struct scratch_copy {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS], repeated[PX_MAX_DIMS];
} scratch_copy;
static px_status convert(const px_launch *l, px_operand *o, int dtype, scratch_copy *s, bool read) {
  px_operand to = *o, from = *o;
  int64_t n = 1;
  for (int d = o->ndim - 1; d >= 0; d--) {
    bool is_broadcast = o->strides[d] == 0;
    s->sizes[d] = is_broadcast ? 1 : o->sizes[d];
    s->strides[d] = n;
    s->repeated[d] = is_broadcast ? 0 : n;
    n *= s->sizes[d];
  }
  to.dtype = dtype, to.sizes = from.sizes = s->sizes, to.strides = s->strides;
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)n * px__cuda_dtype_size(dtype), &to.data));
  if (read) PX_CUDA_PASS(px__cuda_copy_operand(l, &to, &from));
  o->data = to.data, o->dtype = dtype, o->strides = s->repeated;
  return PX_OK;
}

static void free_copies(scratch_copy **copies) { free(*copies); }

px_status px__cuda_pointwise_run(const px_launch *l, const px__cuda_pointwise *op) {
  if (px__cuda_asked(l, op)) return PX_OK;
  px_operand o[K_OPERANDS], result = l->operands[0];
  __attribute__((cleanup(free_copies))) scratch_copy *copies = NULL;  // allocated if needed
  int compute = l->compute;
  const char *function = compute >= 0 ? op->functions[compute] : NULL;
  if (!function) return px__cuda_missing(l, compute);
  if (px_operand_numel(&result) == 0) return PX_OK;
  PX_CUDA_PASS(px__cuda_fits(&result, 2));
  int each = 16 / (int)px__cuda_dtype_size(compute);
  bool converted = false, complex = compute >= PX_DTYPE_COMPUTED;
  const char *module = complex ? "kernels_cuda_complex" : op->module;
  k_loop p;
  memcpy(o, l->operands, (size_t)op->operands * sizeof *o);
  for (int i = 0; i < op->operands; i++) {
    int want = op->bools >> i & 1u   ? PX_BOOL
               : i == 0 && op->parts ? px__cuda_real_of(compute)
                                     : compute;
    if (px__cuda_absent(&o[i]) || o[i].dtype == want) continue;
    if (!copies && !(copies = malloc(K_OPERANDS * sizeof *copies)))
      PX_CUDA_FAIL(PX_NOMEM, "%s: out of memory", l->op);
    PX_CUDA_PASS(convert(l, &o[i], want, &copies[i], i > 0));
    converted = true;
  }
  px__cuda_walk(&p, o, op->operands);
  for (int i = 1; i < op->operands; i++) {
    if (!o[i].immediate) continue;
    if (complex)
      read_complex(&p, &o[i], i);
    else
      px__cuda_read(&p.value[i], &o[i], px__cuda_is_float(compute));
  }
  px__cuda_read_numbers(l, op, p.numbers, &p.has, &p.truth);
  p.where = px__cuda_where(l);
  bool batched = false;
  // Operands converted before or after the launch cannot be batched.
  if (px__cuda_loops_batch && !converted && !complex)
    PX_CUDA_PASS(px__cuda_loops_add(&batched, l, module, function, each, op->operands,
                                    op->number_count, &p));
  if (batched) return PX_OK;
  px__cuda_vectors(&p, op->operands, 16 / each);
  PX_CUDA_PASS(px__cuda_each(l, module, function, each, &p));
  if (o[0].data == result.data) return PX_OK;
  return px__cuda_copy_operand(l, &result, &o[0]);
}
