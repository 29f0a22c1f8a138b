// SPDX-License-Identifier: Apache-2.0
// Host functions of attention.cu. Operands with dense rows aligned to 16 bytes are used in place;
// others are copied.
//
// float32 is computed with the precision of float32 products, or in TF32 if allowed. fp16 and bf16
// are computed in TF32, which represents them exactly.
#include "cuda/attention_params.h"
#include "cuda/host/ops/attention.h"

enum { VECTOR = 16, MAX_WIDTH = 128, MAX_LENGTH = INT32_MAX - 256 };

// ---- supported calls

// Head width of the kernel variant to use.
static int width_of(const px_operand *query, const px_operand *value) {
  int64_t width = query->sizes[3] > value->sizes[3] ? query->sizes[3] : value->sizes[3];
  return width <= 32 ? 32 : width <= 64 ? 64 : MAX_WIDTH;
}
// Bytes of shared memory a block.
static int shared_bytes(int width, bool backward) {
  int rows = backward ? 2 * K_BACKWARD_ROWS : K_FORWARD_ROWS(width);
  int numbers = (rows + 4 * K_STREAMED) * (width + 4) + backward * 4 * K_STREAMED;
  return numbers * (int)sizeof(float);
}
static int64_t blocks_of(const px_operand *rows, int64_t heads, int each) {
  return rows->sizes[0] * heads * ((rows->sizes[2] + each - 1) / each);
}

const char *px__cuda_tiles_refusal(int device, const px_attention_call *c) {
  const px_operand *given[] = {c->query, c->key, c->value, c->output};
  int dtype = c->query->dtype;
  if (dtype != PX_FLOAT16 && dtype != PX_BFLOAT16 && dtype != PX_FLOAT32)
    return "GPUs have kernels for float16, bfloat16 and float32.";
  for (int i = 0; i < 4; i++) {
    if (given[i]->dtype != dtype) return "query, key and value must have the same dtype.";
    if (px_operand_numel(given[i]) < 1 || given[i]->sizes[2] > MAX_LENGTH)
      return "GPUs have kernels for 1 to 2147483391 queries and keys.";
    if (given[i]->sizes[3] > MAX_WIDTH) return "GPUs have kernels for heads of up to 128 elements.";
  }
  if (blocks_of(c->query, c->query->sizes[1], K_BACKWARD_ROWS) > INT32_MAX ||
      blocks_of(c->key, c->key->sizes[1], K_BACKWARD_ROWS) > INT32_MAX)
    return "too many heads for the GPU kernels.";
  if (px__cuda_devices[device].shared < shared_bytes(width_of(c->query, c->value), c->backward))
    return "the GPU has too little shared memory for heads of that many elements.";
  return NULL;
}

// ---- operands

// A call: kernel parameters, and outputs to copy back from scratch memory afterwards.
typedef struct attention_launch {
  const px_launch *launch;
  k_attention p;
  int count;
  struct {
    const px_operand *to;
    px_operand from;
    int64_t strides[4];
  } written[3];
} attention_launch;

static bool is_aligned(const px_operand *o) {
  int64_t step = VECTOR / (int64_t)px__cuda_dtype_size(o->dtype);
  if ((o->strides[3] != 1 && o->sizes[3] > 1) || (uintptr_t)o->data % VECTOR) return false;
  for (int i = 0; i < 3; i++)
    if (o->sizes[i] > 1 && o->strides[i] % step) return false;
  return true;
}
// Allocates a copy in scratch memory with rows aligned to vectors, without filling it.
static px_status make_copy(const px_launch *l, px_operand *copy, int64_t strides[4],
                           const px_operand *o) {
  size_t item = px__cuda_dtype_size(o->dtype);
  int64_t step = VECTOR / (int64_t)item, width = (o->sizes[3] + step - 1) / step * step;
  *copy = *o, copy->strides = strides;
  strides[3] = 1, strides[2] = width;
  strides[1] = o->sizes[2] * width, strides[0] = o->sizes[1] * strides[1];
  return px__cuda_scratch(l, (size_t)(o->sizes[0] * strides[0]) * item, &copy->data);
}
static void set_heads(k_heads *heads, const px_operand *o) {
  heads->at = o->data;
  memcpy(heads->strides, o->strides, sizeof heads->strides);
}
static px_status prepare_input(attention_launch *a, k_heads *heads, const px_operand *o) {
  px_operand copy;
  int64_t strides[4];
  if (is_aligned(o)) return set_heads(heads, o), PX_OK;
  PX_CUDA_PASS(make_copy(a->launch, &copy, strides, o));
  set_heads(heads, &copy);
  return px__cuda_copy_operand(a->launch, &copy, o);
}
static px_status prepare_output(attention_launch *a, k_heads *heads, const px_operand *o) {
  if (is_aligned(o)) return set_heads(heads, o), PX_OK;
  int i = a->count++;
  a->written[i].to = o;
  PX_CUDA_PASS(make_copy(a->launch, &a->written[i].from, a->written[i].strides, o));
  set_heads(heads, &a->written[i].from);
  return PX_OK;
}
static px_status copy_outputs_back(const attention_launch *a) {
  for (int i = 0; i < a->count; i++)
    PX_CUDA_PASS(px__cuda_copy_operand(a->launch, a->written[i].to, &a->written[i].from));
  return PX_OK;
}

static k_attention params_of(const px_attention_call *c, double scale) {
  double chance = c->dropout_p;
  k_attention p = {.batch = (int32_t)c->query->sizes[0],
                   .heads = (int32_t)c->query->sizes[1],
                   .groups = (int32_t)c->key->sizes[1],
                   .length = (int32_t)c->query->sizes[2],
                   .key_length = (int32_t)c->key->sizes[2],
                   .width = (int32_t)c->query->sizes[3],
                   .value_width = (int32_t)c->value->sizes[3],
                   .causal = c->is_causal,
                   .dtype = c->query->dtype,
                   .scale = (float)scale,
                   .chance = (float)chance,
                   .factor = chance < 1 ? (float)(1 / (1 - chance)) : 0};
  if (!px__operand_present(c->attn_mask)) return p;
  p.mask = c->attn_mask->data, p.mask_dtype = c->attn_mask->dtype;
  memcpy(p.mask_strides, c->attn_mask->strides, sizeof p.mask_strides);
  return p;
}
// Prepares the inputs common to both passes.
static px_status prepare_inputs(attention_launch *a, const px_attention_call *c, double scale) {
  const px_launch *l = a->launch;
  const px_operand *mask = c->attn_mask;
  bool fits =
      !px__operand_present(mask) || mask->dtype == PX_BOOL || mask->dtype == c->query->dtype;
  const char *why = fits ? px__cuda_tiles_refusal(l->device, c)
                         : "attn_mask must be bool or have the dtype of query.";
  if (why) PX_CUDA_FAIL(PX_UNIMPLEMENTED, "%s on cuda:%d: %s", l->op, l->device, why);
  a->p = params_of(c, scale);
  PX_CUDA_PASS(prepare_input(a, &a->p.query, c->query));
  PX_CUDA_PASS(prepare_input(a, &a->p.key, c->key));
  return prepare_input(a, &a->p.value, c->value);
}

// ---- kernels

// True for the few-query kernels, which have no dropout.
static bool is_short(const k_attention *p) { return p->length <= K_FEW && !(p->chance > 0); }
static px_status launch_few(attention_launch *a, const px_attention_call *c) {
  char name[16];
  snprintf(name, sizeof name, "few_%d", width_of(c->query, c->value));
  int64_t blocks = (int64_t)a->p.batch * a->p.heads * a->p.length;
  return px__cuda_by_dtype(a->launch, "attention_few", name, a->p.dtype, blocks, K_FEW_BLOCK,
                           &a->p);
}
static px_status launch(attention_launch *a, const px_attention_call *c, const char *name,
                        int64_t blocks) {
  char function[64];
  void *params[] = {&a->p};
  int width = width_of(c->query, c->value);
  bool exact = a->p.dtype == PX_FLOAT32 && !px__cuda_core->setting(PX_SETTING_MATMUL_TF32);
  snprintf(function, sizeof function, "%s_%d_%d", name, width, exact ? 3 : 1);
  return px__cuda_launch(a->launch, "attention", function, (unsigned)blocks, K_ATTENTION_BLOCK,
                         (unsigned)shared_bytes(width, c->backward), params);
}

px_status px__cuda_tiles_forward(const px_launch *l, const px__tiled_attention_kernel *args) {
  attention_launch a = {.launch = l};
  px__cuda_dense d = {.launch = l};
  const px_attention_call c = {args->query,     args->key,    args->value,
                               args->attn_mask, args->output, args->dropout_p,
                               args->is_causal, false,        false};
  PX_CUDA_PASS(prepare_inputs(&a, &c, args->scale));
  PX_CUDA_PASS(prepare_output(&a, &a.p.output, args->output));
  a.p.logsumexp = px__cuda_dense_out(&d, args->logsumexp, PX_FLOAT32);
  a.p.state = l->random, a.p.drawn_seed = l->seed, a.p.drawn_offset = l->offset;
  if (a.p.chance > 0) a.p.seed = px__cuda_dense_out(&d, args->seed, PX_INT64);
  PX_CUDA_PASS(d.status);
  int each = K_FORWARD_ROWS(width_of(args->query, args->value));
  if (is_short(&a.p))
    PX_CUDA_PASS(launch_few(&a, &c));
  else
    PX_CUDA_PASS(launch(&a, &c, "forward", blocks_of(args->query, a.p.heads, each)));
  PX_CUDA_PASS(px__cuda_dense_close(&d));
  return copy_outputs_back(&a);
}

px_status px__cuda_tiles_backward(const px_launch *l,
                                  const px__tiled_attention_backward_kernel *args) {
  attention_launch a = {.launch = l};
  px__cuda_dense d = {.launch = l};
  const px_attention_call c = {args->query,     args->key,    args->value,
                               args->attn_mask, args->output, args->dropout_p,
                               args->is_causal, true,         false};
  int64_t rows = px_operand_numel(args->logsumexp);
  void *sums = NULL;
  PX_CUDA_PASS(prepare_inputs(&a, &c, args->scale));
  PX_CUDA_PASS(prepare_input(&a, &a.p.output, args->output));
  PX_CUDA_PASS(prepare_input(&a, &a.p.grad, args->grad_output));
  PX_CUDA_PASS(prepare_output(&a, &a.p.grad_query, args->grad_query));
  PX_CUDA_PASS(prepare_output(&a, &a.p.grad_key, args->grad_key));
  PX_CUDA_PASS(prepare_output(&a, &a.p.grad_value, args->grad_value));
  a.p.logsumexp = px__cuda_dense_in(&d, args->logsumexp, PX_FLOAT32);
  if (a.p.chance > 0) a.p.seed = px__cuda_dense_in(&d, args->seed, PX_INT64);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)rows * sizeof(float), &sums));
  a.p.sums = sums;
  void *params[] = {&a.p};
  PX_CUDA_PASS(px__cuda_launch(l, "attention", "row_sums",
                               (unsigned)((rows + K_BLOCK / 32 - 1) / (K_BLOCK / 32)), K_BLOCK, 0,
                               params));
  PX_CUDA_PASS(launch(&a, &c, "backward_keys", blocks_of(args->key, a.p.groups, K_BACKWARD_ROWS)));
  PX_CUDA_PASS(
      launch(&a, &c, "backward_query", blocks_of(args->query, a.p.heads, K_BACKWARD_ROWS)));
  return copy_outputs_back(&a);
}

PX_CUDA_KERNEL(attention_dropout) {
  px__cuda_dense d = {.launch = l};
  k_kept p = {.out = px__cuda_dense_out(&d, args->out, args->out->dtype),
              .seed = px__cuda_dense_in(&d, args->seed, PX_INT64),
              .n = px__operand_size(args->out, -1),
              .chance = (float)args->dropout_p};
  p.rows = p.n ? px_operand_numel(args->out) / p.n : 0;
  PX_CUDA_PASS(d.status);
  unsigned grid = px__cuda_grid(l, p.rows * ((p.n + 3) / 4), K_BLOCK);
  PX_CUDA_PASS(px__cuda_by_dtype(l, "attention", "kept", args->out->dtype, grid, K_BLOCK, &p));
  return px__cuda_dense_close(&d);
}
