// SPDX-License-Identifier: Apache-2.0
// Attention and Transformers in C programs: calls by name, stacks, replaced children, hooks, and
// failed allocations. Python tests their values against formulas.
#include "devices.h"
#include "ops_help.h"
#include "phlox/layers.h"

static px_tensor *randn(px_device device, int64_t a, int64_t b, int64_t c) {
  px_tensor *t = NULL;
  OK(px_randn(&t, (int64_t[]){a, b, c}, 3, NULL, PX_DTYPE_NONE, device, false, false));
  return t;
}
static bool close_to(const px_tensor *a, const px_tensor *b) { return max_difference(a, b) < 1e-5; }
static void on_each_device(void (*test)(px_device device)) {
  test(px_cpu());
  simulate(1);
  test(px_cuda(0));
}
static px_named_value unnamed(px_tensor *t) { return (px_named_value){NULL, PX_T(t)}; }

PX_TEST(attention_is_called_by_name) {
  PX_SCOPED(px_module) m = NULL;
  PX_SCOPED(px_tensor) x = randn(px_cpu(), 3, 2, 4);
  px_tensor *bare[2], *shown[2];
  OK(px_multihead_attention_new(&m, 4, 2, .batch_first = true));
  const px_named_value args[] = {unnamed(x), unnamed(x), unnamed(x), {"need_weights", PX_B(false)}};
  OK(px_module_invoke(bare, 2, m, "forward", args, 4));
  CHECK(!bare[1]);
  OK(px_module_forward_all(shown, 2, m, (px_tensor *[]){x, x, x}, 3));
  CHECK(close_to(bare[0], shown[0]));
  CHECK_EQ(px_tensor_ndim(shown[1]), 3);
  for (int i = 0; i < 2; i++) px_release(bare[i]), px_release(shown[i]);
}

PX_TEST(invalid_arguments_are_refused) {
  PX_SCOPED(px_module) m = NULL;
  PX_SCOPED(px_tensor) x = randn(px_cpu(), 3, 2, 4);
  px_tensor *out;
  OK(px_transformer_encoder_layer_new(&m, 4, 2, .dim_feedforward = 8, .dropout = 0));
  px_named_value args[] = {unnamed(x), {"mask", PX_T(x)}};
  FAILS(px_module_invoke(&out, 1, m, "forward", args, 2), PX_TYPE,
        "TransformerEncoderLayer.forward() got an unexpected keyword argument 'mask'");
  args[1].name = "src";
  FAILS(px_module_invoke(&out, 1, m, "forward", args, 2), PX_TYPE, "multiple values for argument");
  args[1] = (px_named_value){"src_mask", PX_I(3)};
  FAILS(px_module_invoke(&out, 1, m, "forward", args, 2), PX_TYPE,
        "argument 'src_mask' must be Tensor, not int");
  FAILS(px_module_invoke(&out, 1, m, "forward", args, 0), PX_TYPE,
        "missing 1 required positional argument: 'src'");
  FAILS(px_module_invoke(&out, 1, m, "backward", args, 1), PX_ATTRIBUTE,
        "'TransformerEncoderLayer' object has no attribute 'backward'");
  FAILS(px_module_invoke(&out, 9, m, "forward", args, 1), PX_VALUE, "too many results (9)");
  px_module *none;
  FAILS(px_transformer_encoder_layer_new(&none, 4, 2, .activation = "tanh"), PX_RUNTIME,
        "activation should be relu/gelu, not tanh");
}

static px_module *stack(bool decodes) {
  PX_SCOPED(px_module) layer = NULL;
  PX_SCOPED(px_module) norm = NULL;
  px_module *made = NULL;
  if (decodes)
    OK(px_transformer_decoder_layer_new(&layer, 4, 2, .dim_feedforward = 8, .dropout = 0));
  else
    OK(px_transformer_encoder_layer_new(&layer, 4, 2, .dim_feedforward = 8, .dropout = 0,
                                        .activation = "gelu"));
  OK(px_layer_norm_new(&norm, PX_SIZES(4)));
  OK(decodes ? px_transformer_decoder_new(&made, layer, 2, norm)
             : px_transformer_encoder_new(&made, layer, 2, norm));
  return made;
}

PX_TEST(a_stack_copies_layers_with_separate_parameters) {
  PX_SCOPED(px_module) encoder = stack(false);
  PX_SCOPED(px_list) parameters = NULL;
  PX_SCOPED(px_module) layer = NULL;
  px_module *none = NULL;
  char *text = NULL;
  OK(px_module_parameters(&parameters, encoder));
  CHECK_EQ(px_list_size(parameters), 2 * 12 + 2);
  OK(px_module_text(&text, encoder));
  CHECK(strstr(text, "(0-1): 2 x TransformerEncoderLayer("));
  px_free(text);
  OK(px_transformer_encoder_layer_new(&layer, 4, 2));
  FAILS(px_transformer_encoder_new(&none, layer, 0, NULL), PX_VALUE, "at least one layer");
  FAILS(px_transformer_encoder_new(&none, NULL, 1, NULL), PX_TYPE, "`layer` is NULL");
}

static px_status small_transformer(px_module **out, px_device device) {
  PX_TRY(px_transformer_new(out, .d_model = 4, .nhead = 2, .num_encoder_layers = 1,
                            .num_decoder_layers = 1, .dim_feedforward = 8, .dropout = 0));
  return px_module_to(*out, PX_DTYPE_NONE, device, false);
}
// Encoder and decoder in sequence give the result of their Transformer.
static void compare_with_stacks(px_device device) {
  PX_SCOPED(px_module) m = NULL;
  PX_SCOPED(px_tensor) src = randn(device, 5, 2, 4);
  PX_SCOPED(px_tensor) tgt = randn(device, 3, 2, 4);
  PX_SCOPED(px_tensor) memory = NULL;
  PX_SCOPED(px_tensor) wanted = NULL;
  PX_SCOPED(px_tensor) out = NULL;
  px_module_entry encoder, decoder;
  OK(small_transformer(&m, device));
  CHECK(px_module_entry_find(m, "encoder", &encoder) &&
        px_module_entry_find(m, "decoder", &decoder));
  OK(px_module_call(&memory, encoder.module, src));
  OK(px_module_forward(&wanted, decoder.module, (px_tensor *[]){tgt, memory}, 2));
  OK(px_module_forward(&out, m, (px_tensor *[]){src, tgt}, 2));
  CHECK(close_to(out, wanted));
}
PX_TEST(a_transformer_equals_its_stacks) { on_each_device(compare_with_stacks); }

static px_status doubled(px_tensor **replacement, px_module *self, px_tensor *const *inputs,
                         int count, px_tensor *result, void *context) {
  ++*(int *)context;
  return px_mul_scalar(replacement, result ? result : inputs[0], px_float(2));
}

PX_TEST(hooks_and_replaced_children_are_called) {
  PX_SCOPED(px_module) m = NULL;
  PX_SCOPED(px_module) identity = NULL;
  PX_SCOPED(px_tensor) x = randn(px_cpu(), 3, 2, 4);
  PX_SCOPED(px_tensor) out = NULL;
  PX_SCOPED(px_tensor) wanted = NULL;
  PX_SCOPED(px_tensor) block = NULL;
  px_module_entry attention;
  int64_t id;
  int calls = 0;
  OK(px_transformer_encoder_layer_new(&m, 4, 2, .dim_feedforward = 8, .dropout = 0));
  const px_named_value args[] = {unnamed(x), {NULL, PX_NONE()}, {NULL, PX_NONE()}};
  OK(px_module_invoke(&wanted, 1, m, "_sa_block", args, 3));
  CHECK(px_module_entry_find(m, "self_attn", &attention));
  OK(px_module_add_hook(&id, attention.module, false, doubled, &calls, NULL));
  OK(px_module_invoke(&block, 1, m, "_sa_block", args, 3));
  PX_SCOPED(px_tensor) twice = NULL;
  OK(px_mul_scalar(&twice, wanted, px_float(2)));
  CHECK(close_to(block, twice) && calls == 1);
  px_module_remove_hook(attention.module, id);
  OK(px_module_add_hook(&id, attention.module, true, doubled, &calls, NULL));
  OK(px_module_forward(&out, m, &x, 1));
  CHECK_EQ(calls, 2);
  OK(px_identity_new(&identity));
  OK(px_module_register_module(m, "self_attn", identity));
  px_tensor *none;
  FAILS(px_module_forward(&none, m, &x, 1), PX_TYPE, "accepts tensors only");
}

// Fails each allocation of the construction and call of a Transformer. Nothing leaks.
static void fail_each_allocation(px_device device) {
  PX_SCOPED(px_tensor) x = randn(device, 3, 2, 4);
  bool failed = true;
  for (int64_t n = 1; failed; n += n < 40 ? 1 : 17) {
    px_module *m = NULL;
    px_tensor *out = NULL;
    int64_t before = px_live_objects(NULL);
    OK(px_fault_arm("alloc", n, false));
    px_status status = small_transformer(&m, device);
    if (status == PX_OK) status = px_module_forward(&out, m, (px_tensor *[]){x, x}, 2);
    failed = status != PX_OK;
    px_fault_disarm_all();
    px_release(out);
    px_release(m);
    CHECK_EQ(px_live_objects(NULL), before);
  }
  px_error_clear();
}
PX_TEST(failed_allocations_leak_nothing) { on_each_device(fail_each_allocation); }
