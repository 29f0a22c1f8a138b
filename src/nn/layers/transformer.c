// SPDX-License-Identifier: Apache-2.0
// Transformer layers, stacks, and the whole model. Children are called by name as a program would,
// so a binding's modules and methods can replace any of them.
#include <math.h>
#include <stdio.h>

#include "formulas.h"
#include "layer_functions.h"
#include "nn/module/nn_impl.h"
#include "phlox/layers.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"

static px_named_value positional(px_value value) { return (px_named_value){NULL, value}; }

// Calls a child with one tensor.
static px_status call_child(px_tensor **out, px_module *self, const char *child, px_tensor *x) {
  px_module *of;
  PX_TRY(px__child(&of, self, child));
  return px_module_call(out, of, x);
}

// ---- blocks

typedef struct masks {
  px_tensor *of_scores, *of_keys;
  bool causal;
} masks;

static px_status attend(px_tensor **out, px_module *self, const char *child, px_tensor *x,
                        px_tensor *memory, masks m, const char *dropout) {
  px_tensor *made[2];
  px_module *attention;
  const px_named_value args[] = {positional(PX_T(x)),
                                 positional(PX_T(memory)),
                                 positional(PX_T(memory)),
                                 {"attn_mask", PX_T(m.of_scores)},
                                 {"key_padding_mask", PX_T(m.of_keys)},
                                 {"need_weights", PX_B(false)},
                                 {"is_causal", PX_B(m.causal)}};
  PX_TRY(px__child(&attention, self, child));
  PX_TRY(px_module_invoke(made, 2, attention, "forward", args, 7));
  px_status status = call_child(out, self, dropout, made[0]);
  for (int i = 0; i < 2; i++) px_release(made[i]);
  return status;
}
px_status px__self_attention_block(px_tensor **out, px_module *self,
                                   const px__self_attention_block_args *args) {
  masks m = {args->attn_mask, args->key_padding_mask, args->is_causal};
  return attend(out, self, "self_attn", args->x, args->x, m, "dropout1");
}
px_status px__memory_block(px_tensor **out, px_module *self, const px__memory_block_args *args) {
  masks m = {args->attn_mask, args->key_padding_mask, args->is_causal};
  return attend(out, self, "multihead_attn", args->x, args->mem, m, "dropout2");
}

// Applies the activation: a child module, the binding's attribute, or the constructor's argument.
static px_status activate(px_tensor **out, px_module *self, px_tensor *x) {
  px_module_entry entry;
  const px_named_value arg = positional(PX_T(x));
  if (px_module_entry_find(self, "activation", &entry) && entry.module)
    return px_module_call(out, entry.module, x);
  if (self->invoke) return px_module_invoke(out, 1, self, "activation", &arg, 1);
  px_value name = px_module_attribute(self, "activation");
  PX_CHECK(name.kind == PX_ARG_TEXT, PX_RUNTIME, "the activation of %s is a function of a binding",
           self->kind->name);
  return strcmp(name.v.text, "gelu") ? px_relu(out, x) : px_gelu(out, x, "none");
}
static px_status feed_forward(px_tensor **out, px_module *self, px_tensor *x, const char *dropout) {
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) active = NULL;
  PX_SCOPED(px_tensor) kept = NULL;
  PX_SCOPED(px_tensor) narrow = NULL;
  PX_TRY(call_child(&wide, self, "linear1", x));
  PX_TRY(activate(&active, self, wide));
  PX_TRY(call_child(&kept, self, "dropout", active));
  PX_TRY(call_child(&narrow, self, "linear2", kept));
  return call_child(out, self, dropout, narrow);
}
px_status px__encoder_feed_forward(px_tensor **out, px_module *self,
                                   const px__encoder_feed_forward_args *args) {
  return feed_forward(out, self, args->x, "dropout2");
}
px_status px__decoder_feed_forward(px_tensor **out, px_module *self,
                                   const px__decoder_feed_forward_args *args) {
  return feed_forward(out, self, args->x, "dropout3");
}

// ---- layers

// A residual block: a method called with x and further arguments. Its result is added to x.
typedef struct block {
  const char *norm, *method;
  px_named_value rest[4];
  int rest_count;
} block;

static px_status add_block(px_tensor **out, px_module *self, const block *b, px_tensor *x,
                           px_tensor *given) {
  px_named_value args[1 + 4] = {positional(PX_T(given))};
  PX_SCOPED(px_tensor) made = NULL;
  memcpy(args + 1, b->rest, sizeof b->rest);
  PX_TRY(px_module_invoke(&made, 1, self, b->method, args, 1 + b->rest_count));
  return px_add(out, x, made, px_int(1));
}
// Applies the norm before the block, or after the sum.
static px_status add_and_norm(px_tensor **x, px_module *self, const block *b) {
  PX_SCOPED(px_tensor) first = NULL;
  px_tensor *next;
  if (px_value_int(px_module_attribute(self, "norm_first"))) {
    PX_TRY(call_child(&first, self, b->norm, *x));
    PX_TRY(add_block(&next, self, b, *x, first));
  } else {
    PX_TRY(add_block(&first, self, b, *x, *x));
    PX_TRY(call_child(&next, self, b->norm, first));
  }
  px_release(*x);
  *x = next;
  return PX_OK;
}
static px_status run_blocks(px_tensor **out, px_module *self, px_tensor *x, const block *blocks,
                            int count) {
  PX_SCOPED(px_tensor) now = px_retain(x);
  for (int i = 0; i < count; i++) PX_TRY(add_and_norm(&now, self, &blocks[i]));
  *out = PX_MOVE(now);
  return PX_OK;
}

// Converts both masks of a source to additive ones. The caller releases them with close_masks.
static px_status open_masks(masks *m, px_tensor *mask, px_tensor *padding, const px_tensor *src,
                            const char *mask_name) {
  px_dtype dtype = px_tensor_dtype(src);
  PX_TRY(px__canonical_mask(&m->of_keys, padding, "src_key_padding_mask", mask, mask_name, dtype));
  px_status status = px__canonical_mask(&m->of_scores, mask, mask_name, NULL, "", dtype);
  if (status != PX_OK) px_release(m->of_keys);
  return status;
}
static void close_masks(masks *m) {
  px_release(m->of_scores);
  px_release(m->of_keys);
}

px_status px__encoder_layer_forward(px_tensor **out, px_module *self,
                                    const px__encoder_layer_forward_args *args) {
  masks m = {0};
  PX_TRY(open_masks(&m, args->src_mask, args->src_key_padding_mask, args->src, "src_mask"));
  const block blocks[] = {{"norm1",
                           "_sa_block",
                           {positional(PX_T(m.of_scores)),
                            positional(PX_T(m.of_keys)),
                            {"is_causal", PX_B(args->is_causal)}},
                           3},
                          {"norm2", "_ff_block", {{0}}, 0}};
  px_status status = run_blocks(out, self, args->src, blocks, 2);
  close_masks(&m);
  return status;
}

px_status px__decoder_layer_forward(px_tensor **out, px_module *self,
                                    const px__decoder_layer_forward_args *args) {
  const block blocks[] = {
      {"norm1",
       "_sa_block",
       {positional(PX_T(args->tgt_mask)), positional(PX_T(args->tgt_key_padding_mask)),
        positional(PX_B(args->tgt_is_causal))},
       3},
      {"norm2",
       "_mha_block",
       {positional(PX_T(args->memory)), positional(PX_T(args->memory_mask)),
        positional(PX_T(args->memory_key_padding_mask)), positional(PX_B(args->memory_is_causal))},
       4},
      {"norm3", "_ff_block", {{0}}, 0}};
  return run_blocks(out, self, args->tgt, blocks, 3);
}

// ---- stacks

// True if a mask is declared, or detected, to be exactly causal.
static px_status detect_causal(bool *out, const px_tensor *mask, px_value declared, int64_t size) {
  PX_SCOPED(px_tensor) equal = NULL;
  px_scalar truth;
  *out = declared.kind != PX_ARG_NONE && px_value_int(declared);
  if (declared.kind != PX_ARG_NONE || !mask || px_tensor_ndim(mask) != 2) return PX_OK;
  if (px_tensor_size(mask, 0) != size || px_tensor_size(mask, 1) != size) return PX_OK;
  PX_TRY(px__formula_equals_causal(&equal, (px_value[]){PX_T(mask)}));
  PX_TRY(px_tensor_item(&truth, equal));
  *out = px_scalar_int(truth) != 0;
  return PX_OK;
}

// Sequence length. The first layer's batch_first gives the position of the batch dimension.
static px_status length_of(int64_t *out, px_module *self, const px_tensor *x) {
  PX_SCOPED(px_module) layer = NULL;
  px_module *layers, *attention;
  PX_TRY(px__child(&layers, self, "layers"));
  PX_TRY(px__child_at(&layer, layers, 0));
  PX__READS(layer);
  PX_TRY(px__child(&attention, layer, "self_attn"));
  px_value batch_first = px_module_attribute(attention, "batch_first");
  bool second =
      px_tensor_ndim(x) != 2 && batch_first.kind != PX_ARG_NONE && px_value_int(batch_first);
  *out = px_tensor_size(x, second);
  return PX_OK;
}

// Calls the layers in order with the same further arguments, then the norm.
typedef struct layer_stack {
  px_tensor *now;  // owned
  const px_named_value *rest;
  int count;
} layer_stack;

static px_status call_layer(px_module *layer, void *value) {
  enum { MAX_REST = 7 };
  layer_stack *s = value;
  px_tensor *next;
  PX_CHECK(layer, PX_TYPE, "a layer of the stack is missing");
  px_named_value args[1 + MAX_REST] = {positional(PX_T(s->now))};
  memcpy(args + 1, s->rest, (size_t)s->count * sizeof *s->rest);
  PX_TRY(px_module_invoke(&next, 1, layer, "forward", args, 1 + s->count));
  px_release(s->now);
  s->now = next;
  return PX_OK;
}

static px_status run_stack(px_tensor **out, px_module *self, px_tensor *x,
                           const px_named_value *rest, int count) {
  layer_stack s = {px_retain(x), rest, count};
  px_module *layers;
  px_module_entry norm;
  px_status status = px__child(&layers, self, "layers");
  if (status == PX_OK) status = px_module_chain(layers, call_layer, &s);
  PX_SCOPED(px_tensor) now = s.now;
  PX_TRY(status);
  if (px_module_entry_find(self, "norm", &norm) && norm.module)
    return px_module_call(out, norm.module, now);
  *out = PX_MOVE(now);
  return PX_OK;
}

static px_status encode(px_tensor **out, px_module *self, px_tensor *src, const masks *m,
                        px_value declared) {
  int64_t length;
  bool causal;
  PX_TRY(length_of(&length, self, src));
  PX_TRY(detect_causal(&causal, m->of_scores, declared, length));
  const px_named_value rest[] = {{"src_mask", PX_T(m->of_scores)},
                                 {"is_causal", PX_B(causal)},
                                 {"src_key_padding_mask", PX_T(m->of_keys)}};
  return run_stack(out, self, src, rest, 3);
}
px_status px__encoder_forward(px_tensor **out, px_module *self,
                              const px__encoder_forward_args *args) {
  masks m = {0};
  PX_TRY(open_masks(&m, args->mask, args->src_key_padding_mask, args->src, "mask"));
  px_status status = encode(out, self, args->src, &m, args->is_causal);
  close_masks(&m);
  return status;
}

px_status px__decoder_forward(px_tensor **out, px_module *self,
                              const px__decoder_forward_args *args) {
  int64_t length;
  bool causal;
  PX_TRY(length_of(&length, self, args->tgt));
  PX_TRY(detect_causal(&causal, args->tgt_mask, args->tgt_is_causal, length));
  const px_named_value rest[] = {positional(PX_T(args->memory)),
                                 {"tgt_mask", PX_T(args->tgt_mask)},
                                 {"memory_mask", PX_T(args->memory_mask)},
                                 {"tgt_key_padding_mask", PX_T(args->tgt_key_padding_mask)},
                                 {"memory_key_padding_mask", PX_T(args->memory_key_padding_mask)},
                                 {"tgt_is_causal", PX_B(causal)},
                                 {"memory_is_causal", PX_B(args->memory_is_causal)}};
  return run_stack(out, self, args->tgt, rest, 7);
}

// ---- the whole model

static px_status check_inputs(const px_module *self, const px_tensor *src, const px_tensor *tgt) {
  int batch = !px_value_int(px_module_attribute(self, "batch_first"));
  int64_t size = px_value_int(px_module_attribute(self, "d_model"));
  bool batched = px_tensor_ndim(src) == 3 && px_tensor_ndim(tgt) > batch;
  PX_CHECK(!batched || px_tensor_size(src, batch) == px_tensor_size(tgt, batch), PX_RUNTIME,
           "the batch number of src and tgt must be equal");
  PX_CHECK(px_tensor_ndim(src) && px_tensor_size(src, -1) == size && px_tensor_ndim(tgt) &&
               px_tensor_size(tgt, -1) == size,
           PX_RUNTIME, "the feature number of src and tgt must be equal to d_model");
  return PX_OK;
}

px_status px__transformer_forward(px_tensor **out, px_module *self,
                                  const px__transformer_forward_args *args) {
  PX_SCOPED(px_tensor) memory = NULL;
  px_module *encoder, *decoder;
  PX_TRY(check_inputs(self, args->src, args->tgt));
  PX_TRY(px__child(&encoder, self, "encoder"));
  PX_TRY(px__child(&decoder, self, "decoder"));
  const px_named_value in[] = {positional(PX_T(args->src)),
                               {"mask", PX_T(args->src_mask)},
                               {"src_key_padding_mask", PX_T(args->src_key_padding_mask)},
                               {"is_causal", args->src_is_causal}};
  PX_TRY(px_module_invoke(&memory, 1, encoder, "forward", in, 4));
  const px_named_value back[] = {positional(PX_T(args->tgt)),
                                 positional(PX_T(memory)),
                                 {"tgt_mask", PX_T(args->tgt_mask)},
                                 {"memory_mask", PX_T(args->memory_mask)},
                                 {"tgt_key_padding_mask", PX_T(args->tgt_key_padding_mask)},
                                 {"memory_key_padding_mask", PX_T(args->memory_key_padding_mask)},
                                 {"tgt_is_causal", args->tgt_is_causal},
                                 {"memory_is_causal", PX_B(args->memory_is_causal)}};
  return px_module_invoke(out, 1, decoder, "forward", back, 8);
}

// ---- constructors

static px_status own_memory(px_tensor **out, px_tensor *tensor, px_entry_sort sort, void *nothing) {
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_tensor_detach(&plain, tensor));
  PX_TRY(px_clone(&made, plain, NULL));
  PX_TRY(px_tensor_set_requires_grad(made, px_tensor_requires_grad(tensor)));
  px_tensor_set_parameter(made, sort == PX_ENTRY_PARAMETER);
  *out = PX_MOVE(made);
  return PX_OK;
}

static px_status stack_new(px_module **out, const char *kind, px_module *layer, int64_t count,
                           px_module *norm) {
  PX_GIVEN(out);
  PX_GIVEN(layer);
  PX_SCOPED(px_module) self = NULL;
  PX_SCOPED(px_module) layers = NULL;
  const px_value values[] = {PX_NONE(), PX_I(count), PX_NONE(), PX_NONE(), PX_NONE()};
  *out = NULL;
  PX_CHECK(count >= 1, PX_VALUE, "%s: expected at least one layer, got %lld", kind,
           (long long)count);
  PX_TRY(px_module_new(&self, px_module_kind_find(kind), values, NULL));
  PX_TRY(px_module_new(&layers, px_module_kind_find("ModuleList"), NULL, NULL));
  for (int64_t i = 0; i < count; i++) {
    char name[24];
    PX_SCOPED(px_module) copy = NULL;
    snprintf(name, sizeof name, "%lld", (long long)i);
    PX_TRY(px_module_copy(&copy, layer, own_memory, NULL));
    PX_TRY(px_module_register_module(layers, name, copy));
  }
  PX_TRY(px_module_register_module(self, "layers", layers));
  if (norm) PX_TRY(px_module_register_module(self, "norm", norm));
  *out = PX_MOVE(self);
  return PX_OK;
}
px_status px_transformer_encoder_new(px_module **out, px_module *layer, int64_t count,
                                     px_module *norm) {
  return stack_new(out, "TransformerEncoder", layer, count, norm);
}
px_status px_transformer_decoder_new(px_module **out, px_module *layer, int64_t count,
                                     px_module *norm) {
  return stack_new(out, "TransformerDecoder", layer, count, norm);
}

// Constructs a layer with the Transformer's arguments. After the first two they have the same
// order.
static px_status layer_of(px_module **out, const px_module *self, const char *kind) {
  static const char *const names[] = {"d_model",     "nhead",      "dim_feedforward",
                                      "dropout",     "activation", "layer_norm_eps",
                                      "batch_first", "norm_first", "bias",
                                      "device",      "dtype"};
  px_value values[11];
  for (int i = 0; i < 11; i++) values[i] = px_module_attribute(self, names[i]);
  return px_module_new(out, px_module_kind_find(kind), values, NULL);
}
static px_status norm_of(px_module **out, const px_module *self) {
  const px_value values[] = {px_module_attribute(self, "d_model"),
                             px_module_attribute(self, "layer_norm_eps"),
                             PX_B(true),
                             px_module_attribute(self, "bias"),
                             px_module_attribute(self, "device"),
                             px_module_attribute(self, "dtype")};
  return px_module_new(out, px_module_kind_find("LayerNorm"), values, NULL);
}

static px_status start_matrix(const char *name, const px_module_entry *entry, px_module *owner,
                              void *nothing) {
  return px_tensor_ndim(entry->tensor) > 1 ? px_init_xavier_uniform(entry->tensor, 1, NULL) : PX_OK;
}

px_status px__transformer_init(px_module *self) {
  for (int i = 0; i < 2 && self->stage == PX__MADE; i++) {
    PX_SCOPED(px_module) layer = NULL;
    PX_SCOPED(px_module) norm = NULL;
    PX_SCOPED(px_module) stack = NULL;
    const char *number = i ? "num_decoder_layers" : "num_encoder_layers";
    PX_TRY(layer_of(&layer, self, i ? "TransformerDecoderLayer" : "TransformerEncoderLayer"));
    PX_TRY(norm_of(&norm, self));
    PX_TRY(stack_new(&stack, i ? "TransformerDecoder" : "TransformerEncoder", layer,
                     px_value_int(px_module_attribute(self, number)), norm));
    PX_TRY(px_module_register_module(self, i ? "decoder" : "encoder", stack));
  }
  return px_module_walk(self, PX_ENTRY_PARAMETER, "", true, false, start_matrix, NULL);
}
