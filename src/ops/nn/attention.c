// SPDX-License-Identifier: Apache-2.0
// Run functions of attention: selection of the implementation, and operands of the tiled kernel.
#include <math.h>

#include "device/core/device_impl.h"
#include "formulas.h"
#include "hidden/attention.h"
#include "ops/core/run.h"
#include "phlox/op.h"
#include "phlox/autograd.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"
#include "run_functions/attention.h"

typedef const px__scaled_dot_product_attention_args arguments;

// ---- tiled kernel

// Checks the kernel's operands. Returns the sizes of the result.
static px_status check_tiles(const px_op *op, const px_tensor *q, const px_tensor *k,
                             const px_tensor *v, const px_tensor *mask, double p,
                             int64_t sizes[4]) {
  const int64_t *qs = q->sizes, *ks = k->sizes, *vs = v->sizes;
  bool fit = q->ndim == 4 && k->ndim == 4 && v->ndim == 4 && qs[0] == ks[0] && qs[3] == ks[3] &&
             !memcmp(ks, vs, 3 * sizeof *ks) && (ks[1] ? qs[1] % ks[1] == 0 : !qs[1]);
  PX_CHECK(fit && q->dtype == k->dtype && q->dtype == v->dtype, PX_RUNTIME,
           "%s: sizes or dtypes of query, key and value do not match", op->name);
  PX_CHECK(!mask || px__has_sizes(mask, 4, (int64_t[]){qs[0], qs[1], qs[2], ks[2]}), PX_RUNTIME,
           "%s: attn_mask does not have the size of the scores", op->name);
  PX_CHECK(p >= 0 && p <= 1, PX_RUNTIME, "%s: dropout_p must be between 0 and 1, but is %g",
           op->name, p);
  memcpy(sizes, qs, 3 * sizeof *sizes);
  sizes[3] = vs[3];
  return PX_OK;
}
// Strides of the output, as PyTorch's kernels give: for float32 on devices the rows of all heads
// follow one another; else those of query if its sizes match; NULL: row-major.
static const int64_t *output_strides(int64_t buffer[4], const px_tensor *query,
                                     const int64_t *sizes) {
  int64_t width = sizes[3], row = sizes[1] * width;
  if (px_tensor_is_cuda(query) && query->dtype == PX_FLOAT32)
    return memcpy(buffer, (int64_t[]){sizes[2] * row, width, row, 1}, 4 * sizeof *buffer);
  return px__has_sizes(query, 4, sizes) ? px__preserved_strides(buffer, query) : NULL;
}
PX_RUN(tiled_attention) {
  const px_tensor *q = args->query;
  px_dtype dtype = (px_dtype)q->dtype;
  bool drops = args->dropout_p > 0;
  int64_t sizes[4], buffer[4];
  PX_TRY(check_tiles(call->op, q, args->key, args->value, args->attn_mask, args->dropout_p, sizes));
  PX_TRY(px__call_same_device(call));
  PX_TRY(px__empty_strided(&call->results[0], 4, sizes, output_strides(buffer, q, sizes), dtype,
                           call->device, false));
  PX_TRY(px__call_result(call, 1, 3, sizes, dtype == PX_FLOAT64 ? dtype : PX_FLOAT32));
  PX_TRY(px__call_result(call, 2, 1, (int64_t[]){drops ? 2 : 0}, PX_INT64));
  if (!drops) return PX_OK;
  // One thread's subsequence has a word for each weight.
  int64_t weights = call->results[1]->numel * args->key->sizes[2];
  return px__call_draws_words(call, NULL, weights > 0, (uint64_t)weights);
}
PX_RUN(tiled_attention_backward) {
  int64_t sizes[4];
  const px_tensor *seed = args->seed;
  const px_tensor *inputs[] = {args->query, args->key, args->value};
  double p = args->dropout_p;
  PX_TRY(check_tiles(call->op, args->query, args->key, args->value, args->attn_mask, p, sizes));
  PX_CHECK(px__has_sizes(args->output, 4, sizes) && px__has_sizes(args->logsumexp, 3, sizes),
           PX_RUNTIME,
           "tiled_attention_backward: output or logsumexp does not have the size of the result");
  PX_CHECK(p == 0 || (seed->dtype == PX_INT64 && seed->numel == 2), PX_RUNTIME,
           "tiled_attention_backward: seed must have two integers");
  PX_TRY(px__call_same_device(call));
  for (int i = 0; i < 3; i++)
    PX_TRY(px__empty_as(&call->results[i], inputs[i], (px_dtype)inputs[i]->dtype, call->device));
  return PX_OK;
}

// Common sizes of query, key and value before the last two. Heads may differ.
typedef struct common {
  int64_t sizes[PX_MAX_DIMS];
  int count;
  bool shared;  // GQA: the last of the sizes is query's number of heads
} common;

// Number of sizes of t before its rows, and before its heads if heads are shared.
static int lead_of(const px_tensor *t, bool shared) {
  int count = t->ndim - 2 - shared;
  return count > 0 ? count : 0;
}
// False if the sizes do not match.
static bool find_common(common *c, arguments *args) {
  const px_tensor *qkv[] = {args->query, args->key, args->value}, *q = args->query;
  const int64_t *ks = args->key->sizes + args->key->ndim, *vs = args->value->sizes;
  vs += args->value->ndim;
  c->shared = args->enable_gqa, c->count = 0;
  if (ks[-1] != q->sizes[q->ndim - 1] || ks[-2] != vs[-2]) return false;
  for (int i = 0; i < 3; i++) {
    if (c->shared && qkv[i]->ndim < 3) return false;
    int lead = lead_of(qkv[i], c->shared), longest = lead > c->count ? lead : c->count;
    int64_t joined[PX_MAX_DIMS];
    for (int d = 1; d <= longest; d++) {
      int64_t a = d <= c->count ? c->sizes[c->count - d] : 1;
      int64_t b = d <= lead ? qkv[i]->sizes[lead - d] : 1;
      if (a != b && a != 1 && b != 1) return false;
      joined[longest - d] = a == 1 ? b : a;
    }
    memcpy(c->sizes, joined, (size_t)longest * sizeof *joined);
    c->count = longest;
  }
  if (!c->shared) return true;
  int64_t heads = q->sizes[q->ndim - 3];
  c->sizes[c->count++] = heads;
  return ks[-3] && ks[-3] == vs[-3] && heads % ks[-3] == 0 && c->count <= PX_MAX_DIMS - 2;
}
// True if the mask broadcasts to the sizes of the scores.
static bool mask_fits(const common *c, arguments *args) {
  const px_tensor *m = args->attn_mask;
  int64_t last[] = {args->key->sizes[args->key->ndim - 2],
                    args->query->sizes[args->query->ndim - 2]};
  if (m->ndim > c->count + 2) return false;
  for (int d = 1; d <= m->ndim; d++) {
    int64_t size = m->sizes[m->ndim - d],
            expected = d <= 2 ? last[d - 1] : c->sizes[c->count + 2 - d];
    if (size != expected && size != 1) return false;
  }
  return true;
}

// Broadcasts and reshapes to (batch, heads, rows, columns).
static px_status broadcast(px_tensor **out, px_tensor *t, const common *c, int64_t heads,
                           int64_t rows, int64_t columns) {
  int64_t full[PX_MAX_DIMS], batch = 1, last = c->count ? heads : 1;
  for (int d = 0; d + 1 < c->count; d++) batch = px__product(batch, full[d] = c->sizes[d]);
  if (c->count) full[c->count - 1] = heads;
  full[c->count] = rows, full[c->count + 1] = columns;
  const int64_t four[] = {batch, last, rows, columns};
  if (px__has_sizes(t, 4, four)) return *out = px_retain(t), PX_OK;
  PX_SCOPED(px_tensor) all = NULL;
  PX_TRY(px_expand(&all, t, full, c->count + 2));
  return px_reshape(out, all, four, 4);
}
static int64_t heads_of(const common *c) { return c->count ? c->sizes[c->count - 1] : 1; }
static px_status broadcast_mask(px_tensor **out, px_tensor *mask, arguments *args,
                                const common *c) {
  const px_tensor *q = args->query, *k = args->key;
  return broadcast(out, mask, c, heads_of(c), q->sizes[q->ndim - 2], k->sizes[k->ndim - 2]);
}

// Operands of the kernel, each of four dimensions. mask may be NULL.
typedef struct tiles {
  px_tensor *query, *key, *value, *mask;
  bool adds_mask;  // see px_attention_call
} tiles;
static void drop_tiles(tiles *t) {
  px_release(t->query), px_release(t->key), px_release(t->value), px_release(t->mask);
  *t = (tiles){0};
}
static px_status broadcast_all(tiles *t, arguments *args, const common *c) {
  px_tensor *q = args->query, *k = args->key, *v = args->value;
  int64_t length = q->sizes[q->ndim - 2], width = q->sizes[q->ndim - 1];
  int64_t key_length = k->sizes[k->ndim - 2], value_width = v->sizes[v->ndim - 1];
  int64_t heads = heads_of(c), groups = c->shared ? k->sizes[k->ndim - 3] : heads;
  PX_TRY(broadcast(&t->query, q, c, heads, length, width));
  PX_TRY(broadcast(&t->key, k, c, groups, key_length, width));
  PX_TRY(broadcast(&t->value, v, c, groups, key_length, value_width));
  return args->attn_mask ? broadcast_mask(&t->mask, args->attn_mask, args, c) : PX_OK;
}

// Converts the mask to the form of the kernel.
static px_status make_mask(tiles *t, px_tensor **fully_masked, arguments *args, const common *c) {
  px_tensor *mask = args->attn_mask, *made[2] = {NULL};
  px_dtype dtype = (px_dtype)t->query->dtype;
  if (t->adds_mask)
    PX_TRY(px__formula_mask_bias(made, (px_value[]){PX_T(mask), PX_T(t->query)}));
  else if (mask->dtype != PX_BOOL && mask->dtype != dtype)
    PX_TRY(px_to(&made[0], mask, dtype, PX_DEVICE_NONE, false, false));
  else
    return PX_OK;
  PX_SCOPED(px_tensor) given = made[0];
  *fully_masked = made[1];
  px_release(t->mask), t->mask = NULL;
  return broadcast_mask(&t->mask, given, args, c);
}
static px_status call_tiled(px_tensor **out, tiles *t, arguments *args, const common *c,
                            double scale) {
  PX_SCOPED(px_tensor) fully_masked = NULL;
  PX_SCOPED(px_tensor) output = NULL;
  PX_SCOPED(px_tensor) shaped = NULL;
  PX_SCOPED(px_tensor) logsumexp = NULL;
  PX_SCOPED(px_tensor) seed = NULL;
  if (t->mask) PX_TRY(make_mask(t, &fully_masked, args, c));
  PX_TRY(px_tiled_attention(&output, &logsumexp, &seed, t->query, t->key, t->value, t->mask,
                            args->dropout_p, args->is_causal, scale));
  int64_t sizes[PX_MAX_DIMS];
  memcpy(sizes, c->sizes, sizeof c->sizes);
  sizes[c->count] = t->query->sizes[2], sizes[c->count + 1] = t->value->sizes[3];
  if (c->count == 2)
    shaped = PX_MOVE(output);
  else
    PX_TRY(px_reshape(&shaped, output, sizes, c->count + 2));
  if (fully_masked) return px_masked_fill(out, shaped, fully_masked, px_int(0));
  *out = PX_MOVE(shaped);
  return PX_OK;
}

// ---- selection of the implementation

// False if PyTorch draws the dropout of such operands with the stream of dropout(): always on the
// CPU, and for some operands on GPUs.
static bool draws_as_tiles(const arguments *args) {
  const px_tensor *q = args->query, *v = args->value;
  size_t width = (size_t)q->sizes[q->ndim - 1], value_width = (size_t)v->sizes[v->ndim - 1];
  if (!(args->dropout_p > 0)) return true;
  if (px__tensor_device(q).type != PX_CUDA) return false;
  return q->dtype != PX_FLOAT64 && (width | value_width) * px__item(q) % 16 == 0;
}
// Reason why the kernels do not support the arguments; NULL if they do.
static const char *unsupported(common *c, arguments *args) {
  const px_tensor *qkv[] = {args->query, args->key, args->value}, *mask = args->attn_mask;
  for (int i = 0; i < 3; i++) {
    if (!px_dtype_is_float((px_dtype)qkv[i]->dtype) || qkv[i]->dtype != qkv[0]->dtype)
      return "query, key and value must have the same floating-point dtype.";
    if (qkv[i]->ndim < 2) return "query, key and value must have at least 2 dimensions.";
  }
  if (!find_common(c, args)) return "the sizes of query, key and value do not match.";
  if (mask && !mask_fits(c, args)) return "attn_mask does not broadcast to the size of the scores.";
  if (mask && px_grad_enabled() && px__needs_grad(mask)) return "attn_mask requires grad.";
  if (!draws_as_tiles(args))
    return "with dropout, operands must be on a GPU, with last dimensions that are multiples of 16 "
           "bytes, and not float64.";
  return NULL;
}
// Like `unfit`, but also asks a real GPU's library with the operands of the kernel.
static px_status find_reason(const char **out, tiles *t, common *c, arguments *args) {
  const px_tensor *q = args->query, *k = args->key, *v = args->value;
  enum { QUERY, KEY, VALUE, MASK, OUTPUT, OPERANDS };
  px_operand of[OPERANDS];
  int64_t sizes[4], strides[4];
  if ((*out = unsupported(c, args))) return PX_OK;
  PX_TRY(broadcast_all(t, args, c));
  const px_tensor *given[] = {t->query, t->key, t->value, t->mask, t->query};
  for (int i = 0; i < OPERANDS; i++)
    if (given[i]) px__operand_of(&of[i], given[i]);
  memcpy(sizes, t->query->sizes, 3 * sizeof *sizes);
  sizes[3] = t->value->sizes[3];
  const int64_t *kept = output_strides(strides, t->query, sizes);
  if (!kept) px__row_major(4, sizes, strides);
  of[OUTPUT].data = NULL, of[OUTPUT].sizes = sizes, of[OUTPUT].strides = kept ? kept : strides;
  bool backward =
      px_grad_enabled() && (px__needs_grad(q) || px__needs_grad(k) || px__needs_grad(v));
  px_attention_call asked = {
      &of[QUERY],  &of[KEY],        &of[VALUE],      t->mask ? &of[MASK] : NULL,
      &of[OUTPUT], args->dropout_p, args->is_causal, backward,
      false};
  *out = px__attention_refusal(px__tensor_device(q), &asked);
  t->adds_mask = asked.adds_mask;
  return PX_OK;
}
const char *px_attention_unsupported(const px_tensor *query, const px_tensor *key,
                                     const px_tensor *value, const px_tensor *attn_mask,
                                     double dropout_p, bool is_causal, bool enable_gqa) {
  common c;
  tiles t = {0};
  const char *reason = NULL;
  if (!query || !key || !value) return "query, key and value must be given.";
  arguments args = {.query = (px_tensor *)query,
                    .key = (px_tensor *)key,
                    .value = (px_tensor *)value,
                    .attn_mask = (px_tensor *)attn_mask,
                    .dropout_p = dropout_p,
                    .is_causal = is_causal,
                    .enable_gqa = enable_gqa};
  if (find_reason(&reason, &t, &c, &args) != PX_OK) {
    px_error_clear();
    reason = "out of memory.";
  }
  drop_tiles(&t);
  return reason;
}
// On devices any of the fused backends' settings enables the kernel.
static bool is_enabled(const px_tensor *query) {
  bool flash = px_setting_get(PX_SETTING_SDP_FLASH);
  if (px__tensor_device(query).type != PX_CUDA) return flash;
  return flash || px_setting_get(PX_SETTING_SDP_EFFICIENT) || px_setting_get(PX_SETTING_SDP_CUDNN);
}
enum { MATH_FIRST = 2 };  // of PX_SETTING_SDP_ORDER
static px_status choose(bool *tiled, tiles *t, common *c, arguments *args) {
  bool math = px_setting_get(PX_SETTING_SDP_MATH), on = is_enabled(args->query);
  const char *reason = NULL;
  PX_CHECK(math || on, PX_RUNTIME,
           "No viable backend for scaled_dot_product_attention was found. This is likely due to "
           "turning off both the math kernel and the fused kernels.");
  *tiled = false;
  if (!on || (math && px_setting_get(PX_SETTING_SDP_ORDER) == MATH_FIRST)) return PX_OK;
  PX_TRY(find_reason(&reason, t, c, args));
  *tiled = !reason;
  if (*tiled || math) return PX_OK;
  PX_TRY(px_warn(PX_WARN_USER, "Flash attention kernel not used because: %s", reason));
  PX_FAIL(PX_RUNTIME, "No available kernel.  Aborting execution.");
}
// *done is false if the kernel does not support the arguments.
static px_status try_tiled(bool *done, px_tensor **out, arguments *args, double scale) {
  common c;
  tiles t = {0};
  px_status status = choose(done, &t, &c, args);
  if (status == PX_OK && *done) status = call_tiled(out, &t, args, &c, scale);
  drop_tiles(&t);
  return status;
}

PX_RUN(scaled_dot_product_attention) {
  bool done = false;
  int64_t width = args->query->sizes[args->query->ndim - 1];
  double scale = px__given(args->scale) ? px_value_float(args->scale) : 1 / sqrt((double)width);
  PX_TRY(try_tiled(&done, &call->results[0], args, scale));
  if (done) return PX_OK;
  return px_composed_attention(&call->results[0], args->query, args->key, args->value,
                               args->attn_mask, args->dropout_p, args->is_causal, scale,
                               args->enable_gqa, NULL);
}
