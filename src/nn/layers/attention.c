// SPDX-License-Identifier: Apache-2.0
// Multi-head attention: PyTorch's checks with its texts, masks, projections, and the layer.
#include <math.h>

#include "conditions.h"
#include "formulas.h"
#include "layer_functions.h"
#include "nn/module/nn_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

#define LL(x) ((long long)(x))
enum { TEXT = PX_MAX_DIMS * 24 };

static const char *shape_text(const px_tensor *t, char *text) {
  return px__comma_text(text, TEXT, px_tensor_ndim(t), px_tensor_sizes(t));
}
// Replaces a tensor, releasing the old one.
static void replace(px_tensor **at, px_tensor *take) {
  px_release(*at);
  *at = take;
}

// ---- masks

px_status px__canonical_mask(px_tensor **out, px_tensor *mask, const char *name,
                             const px_tensor *other, const char *other_name, px_dtype dtype) {
  PX_SCOPED(px_tensor) zeros = NULL;
  *out = NULL;
  if (!mask) return PX_OK;
  px_dtype own = px_tensor_dtype(mask);
  PX_CHECK(own == PX_BOOL || px_dtype_is_float(own), PX_ASSERTION,
           "only bool and floating types of %s are supported", name);
  if (other && px_tensor_dtype(other) != own)
    PX_TRY(px_warn(PX_WARN_USER,
                   "Support for mismatched %s and %s is deprecated. Use same type for both "
                   "instead.",
                   name, other_name));
  if (own != PX_BOOL) return *out = px_retain(mask), PX_OK;
  PX_TRY(px_zeros(&zeros, px_tensor_sizes(mask), px_tensor_ndim(mask), dtype,
                  px_tensor_device(mask), false, false));
  return px_masked_fill(out, zeros, mask, px_float(-INFINITY));
}

// ---- checks

static px_status check_dims(const px_attention *a, bool batched) {
  int expected = batched ? 3 : 2, padding = expected - 1;
  const char *word = batched ? "batched" : "unbatched";
  int key = px_tensor_ndim(a->key), value = px_tensor_ndim(a->value);
  PX_CHECK(key == expected && value == expected, PX_ASSERTION,
           "For %s (%d-D) `query`, expected `key` and `value` to be %d-D but found %d-D and %d-D "
           "tensors respectively",
           word, expected, expected, key, value);
  PX_CHECK(!a->key_padding_mask || px_tensor_ndim(a->key_padding_mask) == padding, PX_ASSERTION,
           "For %s (%d-D) `query`, expected `key_padding_mask` to be `None` or %d-D but found %d-D "
           "tensor instead",
           word, expected, padding, px_tensor_ndim(a->key_padding_mask));
  int mask = a->attn_mask ? px_tensor_ndim(a->attn_mask) : 2;
  PX_CHECK(mask == 2 || mask == 3, PX_ASSERTION,
           "For %s (%d-D) `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found %d-D "
           "tensor instead",
           word, expected, mask);
  return PX_OK;
}

static px_status check_shapes(const px_attention *a, bool *batched) {
  char text[TEXT];
  int ndim = px_tensor_ndim(a->query);
  *batched = ndim == 3;
  PX_CHECK(ndim == 2 || ndim == 3, PX_ASSERTION,
           "query should be unbatched 2D or batched 3D tensor but received %d-D query tensor",
           ndim);
  PX_TRY(check_dims(a, *batched));
  if (*batched || !a->attn_mask || px_tensor_ndim(a->attn_mask) != 3) return PX_OK;
  int64_t sizes[] = {a->num_heads, px_tensor_size(a->query, 0), px_tensor_size(a->key, 0)};
  PX_CHECK(px_tensor_has_sizes(a->attn_mask, 3, sizes), PX_ASSERTION,
           "Expected `attn_mask` shape to be (%lld, %lld, %lld) but got torch.Size([%s])",
           LL(sizes[0]), LL(sizes[1]), LL(sizes[2]), shape_text(a->attn_mask, text));
  return PX_OK;
}

static px_status check_sizes(const px_attention *a, const px_tensor *query) {
  char left[TEXT], right[TEXT];
  int64_t size = px_tensor_size(query, 2);
  PX_CHECK(size == a->embed_dim, PX_ASSERTION,
           "was expecting embedding dimension of %lld, but got %lld", LL(a->embed_dim), LL(size));
  PX_CHECK(a->num_heads > 0 && size % a->num_heads == 0, PX_ASSERTION,
           "embed_dim %lld not divisible by num_heads %lld", LL(size), LL(a->num_heads));
  const int64_t *key = px_tensor_sizes(a->key), *value = px_tensor_sizes(a->value);
  int lead = px_tensor_ndim(a->key) - 1;
  if (a->use_separate_proj_weight)
    PX_CHECK(!memcmp(key, value, (size_t)lead * sizeof *key), PX_ASSERTION,
             "key's sequence and batch dims torch.Size([%s]) do not match value's torch.Size([%s])",
             px__comma_text(left, TEXT, lead, key), px__comma_text(right, TEXT, lead, value));
  else
    PX_CHECK(px_tensor_same_sizes(a->key, a->value), PX_ASSERTION,
             "key shape torch.Size([%s]) does not match value shape torch.Size([%s])",
             shape_text(a->key, left), shape_text(a->value, right));
  return PX_OK;
}

// ---- state of a call; call_end releases it

enum { QUERY, KEY, VALUE, PARTS };
typedef struct call {
  const px_attention *a;
  px_tensor *parts[PARTS];  // in turn: inputs, projections, heads
  px_tensor *mask, *padding;
  int64_t length, batch, width;  // of the query; width of a head
  bool batched, causal;
} call;

// Heads of the whole batch.
static int64_t all_heads(const call *c) { return px__product(c->batch, c->a->num_heads); }

static void call_end(call *c) {
  for (int i = 0; i < PARTS; i++) px_release(c->parts[i]);
  px_release(c->mask);
  px_release(c->padding);
}

static px_status add_dim(px_tensor **at, int64_t dim) {
  px_tensor *more;
  PX_TRY(px_unsqueeze(&more, *at, dim));
  replace(at, more);
  return PX_OK;
}

static px_status open_masks(call *c) {
  const px_attention *a = c->a;
  px_dtype dtype = px_tensor_dtype(a->query);
  PX_TRY(px__canonical_mask(&c->padding, a->key_padding_mask, "key_padding_mask", a->attn_mask,
                            "attn_mask", dtype));
  if (c->padding && !c->batched) PX_TRY(add_dim(&c->padding, 0));
  PX_CHECK(!a->is_causal || a->attn_mask, PX_RUNTIME,
           "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
           "method `generate_square_subsequent_mask` to create this mask.");
  c->causal = a->is_causal && !c->padding;
  if (c->causal && !a->need_weights) return PX_OK;  // is_causal replaces the mask
  return px__canonical_mask(&c->mask, a->attn_mask, "attn_mask", NULL, "", dtype);
}

static px_status open_call(call *c) {
  const px_attention *a = c->a;
  PX_TRY(check_shapes(a, &c->batched));
  px_tensor *given[PARTS] = {a->query, a->key, a->value};
  for (int i = 0; i < PARTS; i++) {
    c->parts[i] = px_retain(given[i]);
    if (!c->batched) PX_TRY(add_dim(&c->parts[i], 1));
  }
  PX_TRY(open_masks(c));
  PX_TRY(check_sizes(a, c->parts[QUERY]));
  c->length = px_tensor_size(c->parts[QUERY], 0);
  c->batch = px_tensor_size(c->parts[QUERY], 1);
  c->width = a->embed_dim / a->num_heads;
  return PX_OK;
}

// ---- projections

// Projects parts with the same input by one product and splits the result, so their gradient is one
// tensor.
static px_status project_group(call *c, int part, int count) {
  const px_attention *a = c->a;
  PX_SCOPED(px_tensor) all = NULL;
  PX_SCOPED(px_list) cut = NULL;
  int64_t size = a->embed_dim;
  PX_TRY(px__formula_projected(
      &all, (px_value[]){PX_T(c->parts[part]), PX_T(a->in_proj_weight), PX_T(a->in_proj_bias),
                         PX_I(part), PX_I(count), PX_I(size)}));
  PX_TRY(px_split(&cut, all, size, 2));
  for (int i = 0; i < count; i++) replace(&c->parts[part + i], px_retain(px_list_get(cut, i)));
  return PX_OK;
}

static px_status project_packed(call *c) {
  const px_attention *a = c->a;
  PX_CHECK(a->in_proj_weight, PX_ASSERTION,
           "use_separate_proj_weight is False but in_proj_weight is None");
  int same = a->key != a->value   ? 0
             : a->query == a->key ? 2
                                  : 1;  // parts equal to the previous one
  if (same == 2) return project_group(c, QUERY, PARTS);
  PX_TRY(project_group(c, QUERY, 1));
  if (same == 1) return project_group(c, KEY, 2);
  PX_TRY(project_group(c, KEY, 1));
  return project_group(c, VALUE, 1);
}

static px_status project_separately(call *c) {
  static const char *const words[] = {"query", "key", "value"}, letters[] = {'q', 'k', 'v'};
  const px_attention *a = c->a;
  px_tensor *weights[] = {a->q_proj_weight, a->k_proj_weight, a->v_proj_weight};
  char text[TEXT];
  for (int i = 0; i < PARTS; i++)
    PX_CHECK(weights[i], PX_ASSERTION,
             "use_separate_proj_weight is True but %c_proj_weight is None", letters[i]);
  for (int i = 0; i < PARTS; i++) {
    int64_t sizes[] = {a->embed_dim, px_tensor_size(c->parts[i], 2)};
    PX_CHECK(px_tensor_has_sizes(weights[i], 2, sizes), PX_ASSERTION,
             "expecting %s weights shape of (%lld, %lld), but got torch.Size([%s])", words[i],
             LL(sizes[0]), LL(sizes[1]), shape_text(weights[i], text));
  }
  for (int i = 0; i < PARTS; i++) {
    PX_SCOPED(px_tensor) bias = NULL;
    px_tensor *projected;
    PX_TRY(px__formula_rows_of_part(
        &bias, (px_value[]){PX_T(a->in_proj_bias), PX_I(i), PX_I(1), PX_I(a->embed_dim)}));
    PX_TRY(px_linear(&projected, c->parts[i], weights[i], bias));
    replace(&c->parts[i], projected);
  }
  return PX_OK;
}

// ---- heads, and additional keys

static px_status check_mask(const call *c) {
  char text[TEXT];
  int64_t source = px_tensor_size(c->parts[KEY], 0);
  if (!c->mask) return PX_OK;
  int64_t two[] = {c->length, source}, three[] = {all_heads(c), c->length, source};
  if (px_tensor_ndim(c->mask) == 2)
    PX_CHECK(px_tensor_has_sizes(c->mask, 2, two), PX_RUNTIME,
             "The shape of the 2D attn_mask is torch.Size([%s]), but should be (%lld, %lld).",
             shape_text(c->mask, text), LL(two[0]), LL(two[1]));
  else
    PX_CHECK(px_tensor_has_sizes(c->mask, 3, three), PX_RUNTIME,
             "The shape of the 3D attn_mask is torch.Size([%s]), but should be (%lld, %lld, %lld).",
             shape_text(c->mask, text), LL(three[0]), LL(three[1]), LL(three[2]));
  return PX_OK;
}

// Appends a key and a value along a dimension. Masks do not hide them.
static px_status append(call *c, px_tensor *key, px_tensor *value, int64_t dim) {
  px_tensor *added[] = {key, value}, *next;
  for (int i = 0; i < 2; i++) {
    px_tensor *pair[] = {c->parts[KEY + i], added[i]};
    PX_TRY(px_cat(&next, pair, 2, dim));
    replace(&c->parts[KEY + i], next);
  }
  px_tensor **masks[] = {&c->mask, &c->padding};
  for (int i = 0; i < 2; i++) {
    if (!*masks[i]) continue;
    PX_TRY(px_constant_pad_nd(&next, *masks[i], (int64_t[]){0, 1}, 2, px_float(0)));
    replace(masks[i], next);
  }
  return PX_OK;
}

static px_status append_biases(call *c) {
  const px_attention *a = c->a;
  PX_SCOPED(px_tensor) key = NULL;
  PX_SCOPED(px_tensor) value = NULL;
  PX_CHECK(!a->bias_k || a->bias_v, PX_ASSERTION, "bias_k is set but bias_v is None");
  PX_CHECK(!a->bias_v || a->bias_k, PX_ASSERTION, "bias_v is set but bias_k is None");
  if (!a->bias_k) return PX_OK;
  PX_CHECK(!a->static_k, PX_ASSERTION, "bias cannot be added to static key.");
  PX_CHECK(!a->static_v, PX_ASSERTION, "bias cannot be added to static value.");
  PX_TRY(px_repeat(&key, a->bias_k, (int64_t[]){1, c->batch, 1}, 3));
  PX_TRY(px_repeat(&value, a->bias_v, (int64_t[]){1, c->batch, 1}, 3));
  return append(c, key, value, 0);
}

static px_status append_zeros(call *c) {
  PX_SCOPED(px_tensor) zeros = NULL;
  int64_t sizes[] = {all_heads(c), 1, c->width};
  const px_tensor *key = c->parts[KEY];
  if (!c->a->add_zero_attn) return PX_OK;
  PX_TRY(px_zeros(&zeros, sizes, 3, px_tensor_dtype(key), px_tensor_device(key), false, false));
  return append(c, zeros, zeros, 1);
}

static px_status take_static(call *c, int part, px_tensor *given, const char *name) {
  int64_t heads = all_heads(c);
  PX_CHECK(px_tensor_ndim(given) == 3 && px_tensor_size(given, 0) == heads, PX_ASSERTION,
           "expecting %s.size(0) of %lld, but got %lld", name, LL(heads),
           LL(px_tensor_ndim(given) ? px_tensor_size(given, 0) : 0));
  PX_CHECK(px_tensor_size(given, 2) == c->width, PX_ASSERTION,
           "expecting %s.size(2) of %lld, but got %lld", name, LL(c->width),
           LL(px_tensor_size(given, 2)));
  replace(&c->parts[part], px_retain(given));
  return PX_OK;
}

// Reshapes (length, batch, size) to (batch heads, length, width).
static px_status split_heads(call *c) {
  for (int i = 0; i < PARTS; i++) {
    px_tensor *given = i == KEY ? c->a->static_k : i == VALUE ? c->a->static_v : NULL, *transposed;
    if (given) {
      PX_TRY(take_static(c, i, given, i == KEY ? "static_k" : "static_v"));
      continue;
    }
    PX_SCOPED(px_tensor) split = NULL;
    int64_t sizes[] = {px_tensor_size(c->parts[i], 0), all_heads(c), c->width};
    PX_TRY(px_reshape(&split, c->parts[i], sizes, 3));
    PX_TRY(px_transpose(&transposed, split, 0, 1));
    replace(&c->parts[i], transposed);
  }
  return PX_OK;
}

// Expands the key padding mask to all heads and merges it into the mask.
static px_status merge_padding(call *c) {
  int64_t keys = px_tensor_size(c->parts[KEY], 1), heads = c->a->num_heads;
  if (!c->padding) return PX_OK;
  for (int d = 0; d < 2; d++) {
    int64_t expected = d ? keys : c->batch, got = px_tensor_size(c->padding, d);
    PX_CHECK(expected == got, PX_ASSERTION,
             "Expected key_padded_mask.shape[%d] to be %lld, but got %lld", d, LL(expected),
             LL(got));
  }
  px_tensor *merged;
  PX_TRY(px__formula_padding_of_heads(&merged,
                                      (px_value[]){PX_T(c->padding), PX_I(c->batch), PX_I(heads)}));
  replace(&c->padding, merged);
  if (!c->mask) return c->mask = PX_MOVE(c->padding), PX_OK;
  PX_TRY(px_add(&merged, c->mask, c->padding, px_int(1)));
  replace(&c->mask, merged);
  return PX_OK;
}

// ---- attention weights and their application

// Explicit weights of shape (batch heads, queries, keys), for need_weights.
static px_status weighted_attention(px_tensor **out, px_tensor **weights, const call *c) {
  double p = c->a->training ? c->a->dropout_p : 0;
  PX_TRY(px__formula_attention_weights(
      weights, (px_value[]){PX_T(c->parts[QUERY]), PX_T(c->parts[KEY]), PX_T(c->mask),
                            PX_F(sqrt(1.0 / (double)c->width)), PX_F(p)}));
  return px_bmm(out, *weights, c->parts[VALUE]);
}
static px_status attend(px_tensor **out, const call *c) {
  const px_attention *a = c->a;
  return px__formula_attended(
      out, (px_value[]){PX_T(c->parts[QUERY]), PX_T(c->parts[KEY]), PX_T(c->parts[VALUE]),
                        PX_T(c->mask), PX_I(c->batch), PX_I(a->num_heads),
                        PX_F(a->training ? a->dropout_p : 0), PX_B(c->causal)});
}
// Removes the batch dimension of an unbatched call.
static px_status unbatched(px_tensor **out, const call *c, px_tensor *made_take, int64_t dim) {
  PX_SCOPED(px_tensor) made = made_take;
  if (c->batched) return *out = PX_MOVE(made), PX_OK;
  return px_squeeze_dim(out, made, &dim, 1);
}
static px_status join_heads(px_tensor **out, const call *c, const px_tensor *heads) {
  px_tensor *made = NULL;
  PX_TRY(px__formula_heads_projected(
      &made, (px_value[]){PX_T(heads), PX_I(c->batch), PX_T(c->a->out_proj_weight),
                          PX_T(c->a->out_proj_bias)}));
  return unbatched(out, c, made, 1);
}
static px_status show_weights(px_tensor **out, const call *c, const px_tensor *weights) {
  px_tensor *shown = NULL;
  PX_TRY(px__formula_weights_of_heads(
      &shown, (px_value[]){PX_T(weights), PX_I(c->batch), PX_I(c->a->num_heads),
                           PX_B(c->a->average_attn_weights)}));
  return unbatched(out, c, shown, 0);
}

static px_status run(px_tensor **output, px_tensor **weights, call *c) {
  PX_SCOPED(px_tensor) heads = NULL;
  PX_SCOPED(px_tensor) own = NULL;
  PX_TRY(open_call(c));
  PX_TRY(check_mask(c));
  PX_TRY(c->a->use_separate_proj_weight ? project_separately(c) : project_packed(c));
  if (c->mask && px_tensor_ndim(c->mask) == 2) PX_TRY(add_dim(&c->mask, 0));
  PX_TRY(append_biases(c));
  PX_TRY(split_heads(c));
  PX_TRY(append_zeros(c));
  PX_TRY(merge_padding(c));
  PX_TRY(c->a->need_weights ? weighted_attention(&heads, &own, c) : attend(&heads, c));
  PX_TRY(join_heads(output, c, heads));
  return own ? show_weights(weights, c, own) : PX_OK;
}

px_status px_multi_head_attention(px_tensor **output, px_tensor **weights,
                                  const px_attention *args) {
  PX_GIVEN(output);
  PX_GIVEN(weights);
  PX_GIVEN(args);
  PX_CHECK(args->query && args->key && args->value && args->out_proj_weight, PX_TYPE,
           "multi_head_attention_forward() requires query, key, value and out_proj_weight");
  call c = {.a = args};
  *output = *weights = NULL;
  px_status status = run(output, weights, &c);
  call_end(&c);
  if (status != PX_OK) px_release(*output), *output = NULL;
  return status;
}

// ---- the layer

px_status px__attention_init(px_module *self) {
  static const char *const matrices[] = {"in_proj_weight", "q_proj_weight", "k_proj_weight",
                                         "v_proj_weight"},
                           *const biases[] = {"bias_k", "bias_v"};
  px_module *out;
  for (int i = 0; i < 4; i++) {
    px_tensor *matrix = px__tensor_of(self, matrices[i]);
    if (matrix) PX_TRY(px_init_xavier_uniform(matrix, 1, NULL));
  }
  PX_TRY(px__child(&out, self, "out_proj"));
  px_tensor *bias = px__tensor_of(out, "bias");
  if (bias && px__tensor_of(self, "in_proj_bias")) PX_TRY(px_init_constant(bias, 0));
  for (int i = 0; i < 2; i++) {
    bias = px__tensor_of(self, biases[i]);
    if (bias) PX_TRY(px_init_xavier_normal(bias, 1, NULL));
  }
  return PX_OK;
}

static int64_t int_of(const px_module *self, const char *name) {
  px_value value = px_module_attribute(self, name);
  return value.kind == PX_ARG_NONE ? 0 : px_value_int(value);
}

static px_status swap_batch(px_tensor **out, px_tensor *t) { return px_transpose(out, t, 1, 0); }

// Swaps batch and length of batch-first inputs. Shared tensors stay shared.
static px_status swap_inputs(px_tensor *swapped[PARTS], px_attention *a) {
  PX_TRY(swap_batch(&swapped[QUERY], a->query));
  if (a->key == a->query)
    swapped[KEY] = px_retain(swapped[QUERY]);
  else
    PX_TRY(swap_batch(&swapped[KEY], a->key));
  if (a->value == a->key)
    swapped[VALUE] = px_retain(swapped[KEY]);
  else
    PX_TRY(swap_batch(&swapped[VALUE], a->value));
  a->query = swapped[QUERY], a->key = swapped[KEY], a->value = swapped[VALUE];
  return PX_OK;
}

static px_status call_attention(px_tensor **out, px_attention *a, bool batch_first) {
  px_tensor *swapped[PARTS] = {NULL}, *made = NULL;
  bool swaps = batch_first && px_tensor_ndim(a->query) == 3 && px_tensor_ndim(a->key) == 3 &&
               px_tensor_ndim(a->value) == 3;
  px_status status = swaps ? swap_inputs(swapped, a) : PX_OK;
  if (status == PX_OK) status = px_multi_head_attention(&made, &out[1], a);
  if (status == PX_OK && swaps)
    status = swap_batch(&out[0], made);
  else
    out[0] = PX_MOVE(made);
  for (int i = 0; i < PARTS; i++) px_release(swapped[i]);
  px_release(made);
  return status;
}

static px_status call_with_masks(px_tensor **out, px_attention *a, bool batch_first) {
  PX_SCOPED(px_tensor) padding = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  px_dtype dtype = px_tensor_dtype(a->query);
  PX_TRY(px__canonical_mask(&padding, a->key_padding_mask, "key_padding_mask", a->attn_mask,
                            "attn_mask", dtype));
  PX_TRY(px__canonical_mask(&mask, a->attn_mask, "attn_mask", NULL, "", dtype));
  a->key_padding_mask = padding, a->attn_mask = mask;
  return call_attention(out, a, batch_first);
}

px_status px__attention_forward(px_tensor **out, px_module *self,
                                const px__attention_forward_args *args) {
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) bias = NULL;
  PX_TRY(px__child_tensor(&weight, self, "out_proj", "weight"));
  PX_TRY(px__child_tensor(&bias, self, "out_proj", "bias"));
  px_attention a = {.query = args->query,
                    .key = args->key,
                    .value = args->value,
                    .embed_dim = int_of(self, "embed_dim"),
                    .num_heads = int_of(self, "num_heads"),
                    .in_proj_weight = px__tensor_of(self, "in_proj_weight"),
                    .in_proj_bias = px__tensor_of(self, "in_proj_bias"),
                    .bias_k = px__tensor_of(self, "bias_k"),
                    .bias_v = px__tensor_of(self, "bias_v"),
                    .add_zero_attn = int_of(self, "add_zero_attn"),
                    .dropout_p = px__float_of(self, "dropout"),
                    .out_proj_weight = weight,
                    .out_proj_bias = bias,
                    .training = px__training(self),
                    .key_padding_mask = args->key_padding_mask,
                    .attn_mask = args->attn_mask,
                    .need_weights = args->need_weights,
                    .average_attn_weights = args->average_attn_weights,
                    .use_separate_proj_weight = !int_of(self, "_qkv_same_embed_dim"),
                    .q_proj_weight = px__tensor_of(self, "q_proj_weight"),
                    .k_proj_weight = px__tensor_of(self, "k_proj_weight"),
                    .v_proj_weight = px__tensor_of(self, "v_proj_weight"),
                    .is_causal = args->is_causal};
  return call_with_masks(out, &a, int_of(self, "batch_first"));
}
