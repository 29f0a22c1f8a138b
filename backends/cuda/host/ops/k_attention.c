// SPDX-License-Identifier: Apache-2.0
// Host functions of attention: operands passed to cuDNN directly or as copies, and calls left to
// the backend's own kernels (k_attention_tiles.c).
#include "cuda/attention_params.h"
#include "cuda/host/ops/attention.h"
#include "cuda/host/library/cudnn.h"

#include <math.h>

// Bytes of cuDNN's vectors, bytes of an element, elements of a vector, widest head.
enum { VECTOR = 16, ITEM = 2, STEP = VECTOR / ITEM, MAX_WIDTH = 256 };
// cuDNN versions. Before 91501, gradients are correct only for multiples of TILE keys.
enum { MIN_VERSION = 91002, ANY_LENGTH_VERSION = 91501, TILE = 128 };

// A call: addresses of the tensors, and outputs to copy back from scratch memory afterwards.
typedef struct attention_launch {
  const px_launch *launch;
  px__cudnn_attention problem;
  void *data[PX_CUDNN_ATTENTION_TENSORS];
  const px_operand *written[PX_CUDNN_ATTENTION_TENSORS];
} attention_launch;

// ---- the problem

// Number of keys passed to cuDNN: padded to a multiple of TILE where gradients would be wrong
// otherwise. Padding keys are masked.
static int64_t padded_keys(const px_operand *key, bool backward) {
  int64_t keys = key->sizes[2];
  if (!backward || px__cudnn_version() >= ANY_LENGTH_VERSION) return keys;
  return (keys + TILE - 1) / TILE * TILE;
}
static px__cudnn_attention problem_of(const px_operand *query, const px_operand *key,
                                      const px_operand *value, bool is_causal, bool backward) {
  const px_core *core = px__cuda_core;
  bool in_order =
      core->setting(PX_SETTING_CUDNN_DETERMINISTIC) || core->setting(PX_SETTING_DETERMINISTIC);
  return (px__cudnn_attention){.batch = query->sizes[0],
                               .heads = query->sizes[1],
                               .groups = key->sizes[1],
                               .length = query->sizes[2],
                               .key_length = padded_keys(key, backward),
                               .width = query->sizes[3],
                               .value_width = value->sizes[3],
                               .dtype = query->dtype,
                               .causal = is_causal,
                               .backward = backward,
                               .deterministic = backward && in_order};
}
// Sets the bias's sizes; broadcast batch and heads have size 1. A bias also masks padding keys,
// unless the causal mask already does for all queries.
static void set_bias(px__cudnn_attention *p, const px_operand *mask, int64_t keys) {
  bool given = mask && px__operand_present(mask);
  if (!given && (p->key_length == keys || (p->causal && p->length <= keys))) return;
  for (int i = 0; i < 2; i++) p->bias[i] = given && mask->strides[i] ? mask->sizes[i] : 1;
  p->bias[2] = p->length, p->bias[3] = p->key_length;
  px__cudnn_row_major(p->strides[PX_CUDNN_BIAS], p->bias);
}
// True if cuDNN can use the tensor's memory: dense rows, all strides multiples of a vector,
// aligned.
static bool is_aligned(const px_operand *o) {
  if (o->strides[3] != 1 || (uintptr_t)o->data % VECTOR) return false;
  for (int i = 0; i < 3; i++)
    if (o->sizes[i] > 1 && (o->strides[i] <= 0 || o->strides[i] % STEP)) return false;
  return true;
}
// Sets the tensor's own strides, or row-major ones for a copy. Strides of dimensions of size 1 are
// normalised. Returns false if a copy is needed, such as one with padding keys.
static bool set_strides(px__cudnn_attention *p, int which, const px_operand *o) {
  int64_t sizes[4], *strides = p->strides[which];
  px__cudnn_attention_sizes(sizes, p, which);
  px__cudnn_row_major(strides, sizes);
  if (sizes[2] != o->sizes[2] || !is_aligned(o)) return false;
  for (int i = 0; i < 3; i++)
    if (sizes[i] > 1) strides[i] = o->strides[i];
  return true;
}

// ---- operands

static px_operand copy_of(const attention_launch *a, int which, const px_operand *o) {
  px_operand copy = *o;
  copy.data = a->data[which], copy.strides = a->problem.strides[which];
  return copy;
}
static px_status allocate_tensor(attention_launch *a, int which, size_t item) {
  int64_t s[4];
  px__cudnn_attention_sizes(s, &a->problem, which);
  return px__cuda_scratch(a->launch, (size_t)(s[0] * s[1] * s[2] * s[3]) * item, &a->data[which]);
}
// Fills the tensor with a number from an index along an axis to its end.
static px_status fill_from(attention_launch *a, int which, int axis, int64_t from, float value) {
  static const int64_t zero_strides[4];
  int64_t sizes[4], *strides = a->problem.strides[which];
  px__cudnn_attention_sizes(sizes, &a->problem, which);
  sizes[axis] -= from;
  px_operand tail = {.data = (char *)a->data[which] + from * strides[axis] * ITEM,
                     .sizes = sizes,
                     .strides = strides,
                     .ndim = 4,
                     .dtype = a->problem.dtype};
  px_operand number = {.sizes = sizes, .strides = zero_strides, .ndim = 4, .dtype = PX_FLOAT32};
  number.immediate = true;
  memcpy(number.value, &value, sizeof value);
  return px__cuda_copy_operand(a->launch, &tail, &number);
}
// Padding keys and values are 0, so that their products are not NaN.
static px_status prepare_input(attention_launch *a, int which, const px_operand *o) {
  a->data[which] = o->data;
  if (set_strides(&a->problem, which, o)) return PX_OK;
  PX_CUDA_PASS(allocate_tensor(a, which, ITEM));
  PX_CUDA_PASS(fill_from(a, which, 2, o->sizes[2], 0));
  px_operand copy = copy_of(a, which, o);
  return px__cuda_copy_operand(a->launch, &copy, o);
}
static px_status prepare_output(attention_launch *a, int which, const px_operand *o) {
  a->data[which] = o->data;
  if (set_strides(&a->problem, which, o)) return PX_OK;
  a->written[which] = o;
  return allocate_tensor(a, which, ITEM);
}
// A mask without padding keys may be used in place.
static px_status prepare_bias(attention_launch *a, const px_operand *mask, int64_t keys) {
  px__cudnn_attention *p = &a->problem;
  set_bias(p, mask, keys);
  if (!p->bias[3]) return PX_OK;
  px_operand once = *mask;
  int64_t sizes[4] = {p->bias[0], p->bias[1], p->bias[2], keys};
  once.sizes = sizes;
  a->data[PX_CUDNN_BIAS] = mask->data;
  bool given = px__operand_present(mask), more = p->key_length != keys;
  if (given && !more && px__operand_row_major(&once) && (uintptr_t)mask->data % VECTOR == 0)
    return PX_OK;
  PX_CUDA_PASS(allocate_tensor(a, PX_CUDNN_BIAS, ITEM));
  if (!given) PX_CUDA_PASS(fill_from(a, PX_CUDNN_BIAS, 3, 0, 0));
  PX_CUDA_PASS(fill_from(a, PX_CUDNN_BIAS, 3, keys, -INFINITY));
  px_operand copy = copy_of(a, PX_CUDNN_BIAS, &once);
  return given ? px__cuda_copy_operand(a->launch, &copy, &once) : PX_OK;
}
static px_status copy_outputs_back(const attention_launch *a) {
  for (int i = 0; i < PX_CUDNN_ATTENTION_TENSORS; i++) {
    if (!a->written[i]) continue;
    px_operand copy = copy_of(a, i, a->written[i]);
    PX_CUDA_PASS(px__cuda_copy_operand(a->launch, a->written[i], &copy));
  }
  return PX_OK;
}
static px_status attend(attention_launch *a, double scale) {
  static const float masked = -INFINITY, one = 1;
  float factor = (float)scale;
  a->data[PX_CUDNN_SCALE] = &factor;
  if (a->problem.causal) a->data[PX_CUDNN_MASKED] = (void *)&masked;
  if (a->problem.backward) a->data[PX_CUDNN_ONE] = (void *)&one;
  PX_CUDA_PASS(px__cudnn_attention_run(a->launch, &a->problem, a->data));
  return copy_outputs_back(a);
}

// ---- supported calls

// Reason for not using cuDNN, apart from the lack of a plan; NULL if there is none.
static const char *unsupported_reason(const px_attention_call *c) {
  const px_operand *given[] = {c->query, c->key, c->value, c->output};
  int dtype = c->query->dtype;
  if (!px__cudnn_ready()) return "cuDNN is not available or is disabled.";
  if (px__cudnn_version() < MIN_VERSION) return "requires cuDNN 9.10.2 or later.";
  if (dtype != PX_FLOAT16 && dtype != PX_BFLOAT16)
    return "cuDNN supports float16 and bfloat16 only.";
  for (int i = 0; i < 4; i++) {
    int64_t n = px_operand_numel(given[i]), width = given[i]->sizes[3];
    if (given[i]->dtype != dtype) return "query, key and value must have the same dtype.";
    if (n < 1 || n > INT32_MAX) return "cuDNN supports 1 to 2147483647 elements.";
    if (width % STEP || width > MAX_WIDTH)
      return "cuDNN supports head widths that are multiples of 8, up to 256.";
  }
  // Decoding with a growing key cache: creating a plan takes as long as thousands of such calls.
  if (c->query->sizes[2] <= K_FEW)
    return "for few queries cuDNN would need a plan for each number of keys.";
  if (c->dropout_p > 0) return "cuDNN's dropout uses different random numbers.";
  return NULL;
}
const char *px__cuda_attention_refusal(int device, px_attention_call *c) {
  static _Thread_local char why[256];  // short: one per thread
  const char *reason = unsupported_reason(c);
  c->adds_mask = !reason;
  if (reason) {
    const char *own = px__cuda_tiles_refusal(device, c);
    return own && c->query->dtype != PX_FLOAT32 && c->query->dtype != PX_FLOAT64 ? reason : own;
  }
  const px_operand *given[] = {c->query, c->key, c->value, c->output};
  int length = snprintf(why, sizeof why, "cuDNN has no plan. ");
  for (int backward = 0; backward <= c->backward; backward++) {
    px__cudnn_attention p = problem_of(c->query, c->key, c->value, c->is_causal, backward);
    set_bias(&p, c->attn_mask, c->key->sizes[2]);
    for (int i = 0; i < 4; i++) set_strides(&p, PX_CUDNN_QUERY + i, given[i]);
    if (backward) {
      set_strides(&p, PX_CUDNN_GRAD, c->output);
      for (int i = 0; i < 3; i++) set_strides(&p, PX_CUDNN_GRAD_QUERY + i, given[i]);
    }
    if (!px__cudnn_attention_supported(device, &p, why + length, sizeof why - (size_t)length))
      return why;
  }
  return NULL;
}

// ---- kernels

// Prepares the inputs common to both passes.
static px_status prepare_inputs(attention_launch *a, const px_attention_call *c) {
  bool is_bias = !px__operand_present(c->attn_mask) || c->attn_mask->dtype == c->query->dtype;
  const px_launch *l = a->launch;
  if (!is_bias)
    PX_CUDA_FAIL(PX_UNIMPLEMENTED, "%s on cuda:%d: attn_mask must have the dtype of query.", l->op,
                 l->device);
  a->problem = problem_of(c->query, c->key, c->value, c->is_causal, c->backward);
  PX_CUDA_PASS(prepare_input(a, PX_CUDNN_QUERY, c->query));
  PX_CUDA_PASS(prepare_input(a, PX_CUDNN_KEY, c->key));
  PX_CUDA_PASS(prepare_input(a, PX_CUDNN_VALUE, c->value));
  return prepare_bias(a, c->attn_mask, c->key->sizes[2]);
}

PX_CUDA_KERNEL(tiled_attention) {
  attention_launch a = {.launch = l};
  px__cuda_dense d = {.launch = l};
  const px_attention_call c = {args->query,     args->key,    args->value,
                               args->attn_mask, args->output, args->dropout_p,
                               args->is_causal, false,        false};
  if (px_operand_numel(args->output) == 0) return PX_OK;
  if (unsupported_reason(&c)) return px__cuda_tiles_forward(l, args);
  PX_CUDA_PASS(prepare_inputs(&a, &c));
  PX_CUDA_PASS(prepare_output(&a, PX_CUDNN_OUTPUT, args->output));
  a.data[PX_CUDNN_LOGSUMEXP] = px__cuda_dense_out(&d, args->logsumexp, PX_FLOAT32);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(attend(&a, args->scale));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(tiled_attention_backward) {
  attention_launch a = {.launch = l};
  px__cuda_dense d = {.launch = l};
  const px_attention_call c = {args->query,     args->key,    args->value,
                               args->attn_mask, args->output, args->dropout_p,
                               args->is_causal, true,         false};
  if (px_operand_numel(args->output) == 0 && px_operand_numel(args->key) == 0) return PX_OK;
  if (unsupported_reason(&c)) return px__cuda_tiles_backward(l, args);
  PX_CUDA_PASS(prepare_inputs(&a, &c));
  PX_CUDA_PASS(prepare_input(&a, PX_CUDNN_OUTPUT, args->output));
  PX_CUDA_PASS(prepare_input(&a, PX_CUDNN_GRAD, args->grad_output));
  PX_CUDA_PASS(prepare_output(&a, PX_CUDNN_GRAD_QUERY, args->grad_query));
  PX_CUDA_PASS(prepare_output(&a, PX_CUDNN_GRAD_KEY, args->grad_key));
  PX_CUDA_PASS(prepare_output(&a, PX_CUDNN_GRAD_VALUE, args->grad_value));
  a.data[PX_CUDNN_LOGSUMEXP] = px__cuda_dense_in(&d, args->logsumexp, PX_FLOAT32);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(allocate_tensor(&a, PX_CUDNN_SUMS, sizeof(float)));
  if (!a.problem.deterministic)
    PX_CUDA_PASS(allocate_tensor(&a, PX_CUDNN_QUERY_SUMS, sizeof(float)));
  return attend(&a, args->scale);
}
