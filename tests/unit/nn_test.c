// SPDX-License-Identifier: Apache-2.0
// Modules: entries, initialisation (values of PyTorch 1.13.1 for its seeds), moving, saving,
// copying and printing.
#include "devices.h"
#include "nn/module/nn_impl.h"

static px_module *linear(int64_t in, int64_t out) {
  px_module *made = NULL;
  OK(px_linear_new(&made, in, out));
  return made;
}

static px_module *of_kind(const char *kind, px_value first) {
  px_module *made = NULL;
  OK(px_module_new(&made, px_module_kind_find(kind), (px_value[16]){first}, NULL));
  return made;
}

static px_tensor *entry(px_module *m, const char *name) {
  px_module_entry found;
  CHECK(px_module_entry_find(m, name, &found));
  return found.tensor;
}

static void check_values(const px_tensor *t, const double *wanted, double tolerance) {
  float values[64];
  CHECK(t && px_tensor_numel(t) <= 64);
  OK(px_tensor_read(t, values, (size_t)px_tensor_numel(t) * sizeof *values));
  for (int64_t i = 0; i < px_tensor_numel(t); i++) CHECK_NEAR(values[i], wanted[i], tolerance);
}
#define CHECK_VALUES(t, ...) check_values(t, (const double[]){__VA_ARGS__}, 2e-7)

static px_tensor *floats(int ndim, const int64_t *sizes, const float *values) {
  px_tensor *t = NULL;
  OK(px_tensor_from_data(&t, values, ndim, sizes, PX_FLOAT32, px_cpu()));
  return t;
}
#define ROW(...) \
  floats(2, (int64_t[]){1, (int64_t)(sizeof((float[]){__VA_ARGS__}) / sizeof(float))}, \
         (float[]){__VA_ARGS__})

static px_module *small_net(void) {
  PX_SCOPED(px_module) conv = NULL;
  PX_SCOPED(px_module) relu = NULL;
  PX_SCOPED(px_module) pool = NULL;
  PX_SCOPED(px_module) flat = NULL;
  PX_SCOPED(px_module) last = linear(3, 2);
  PX_SCOPED(px_module) drop = NULL;
  PX_SCOPED(px_module) inner = NULL;
  px_module *net = NULL;
  OK(px_conv2d_new(&conv, 1, 2, 3, .padding = 1));
  OK(px_relu_new(&relu));
  OK(px_max_pool2d_new(&pool, 2));
  OK(px_flatten_new(&flat));
  OK(px_dropout_new(&drop, .p = 0.5));
  OK(px_sequential_new(&inner, (px_module *[]){last, drop}, 2));
  OK(px_sequential_new(&net, (px_module *[]){conv, relu, pool, flat, inner}, 5));
  return net;
}

PX_TEST(a_sequential_refuses_missing_modules) {
  PX_SCOPED(px_module) only = linear(1, 1);
  px_module *net = NULL;
  FAILS(px_sequential_new(&net, (px_module *[]){only, NULL}, 2), PX_TYPE,
        "module 1 of a Sequential is missing");
  FAILS(px_sequential_new(NULL, &only, 1), PX_TYPE, "`out` is NULL");
  CHECK(!net);
}

// ---- values

PX_TEST(linear_initialises_like_pytorch) {
  px_manual_seed(0);
  PX_SCOPED(px_module) m = linear(3, 2);
  PX_SCOPED(px_tensor) x = ROW(1, 2, 3);
  PX_SCOPED(px_tensor) y = NULL;
  CHECK_VALUES(entry(m, "weight"), -0.00432251766, 0.309715837, -0.475185335, -0.424894601,
               -0.222368971, 0.154820725);
  CHECK_VALUES(entry(m, "bias"), -0.0114391446, 0.457774937);
  OK(px_module_call(&y, m, x));
  CHECK_VALUES(y, -0.821886003, 0.0526045561);
}

PX_TEST(conv2d_initialises_like_pytorch) {
  px_module *made = NULL;
  px_manual_seed(0);
  OK(px_conv2d_new(&made, 1, 2, 2));
  PX_SCOPED(px_module) m = made;
  CHECK_VALUES(entry(m, "weight"), -0.00374341011, 0.268221796, -0.411522567, -0.367969513,
               -0.192577183, 0.134078681, -0.00990658998, 0.396444738);
  CHECK_VALUES(entry(m, "bias"), -0.0443720222, 0.132306278);
}

PX_TEST(embedding_initialises_like_pytorch) {
  px_module *made = NULL;
  px_manual_seed(0);
  OK(px_module_new(&made, px_module_kind_find("Embedding"), (px_value[16]){PX_I(2), PX_I(3)},
                   NULL));
  PX_SCOPED(px_module) m = made;
  check_values(
      entry(m, "weight"),
      (double[]){1.54099607, -0.293428898, -2.17878938, 0.568431258, -1.08452237, -1.39859545},
      1e-6);
}

PX_TEST(initialisers_draw_like_pytorch) {
  static const double wanted[4][6] = {
      {-0.00820140075, 0.587644517, -0.901600778, -0.806180835, -0.421915472, 0.293751687},
      {0.974611521, -0.18558073, -1.37798738, 0.359507501, -0.685912132, -0.884549379},
      {-0.0105879623, 0.758645773, -1.16396153, -1.04077494, -0.54469049, 0.379231781},
      {1.25821805, -0.239583701, -1.77897406, 0.464122206, -0.885508776, -1.14194834}};
  PX_SCOPED(px_tensor) w = NULL;
  OK(px_tensor_empty(&w, 2, (int64_t[]){2, 3}, PX_FLOAT32, px_cpu()));
  for (int i = 0; i < 4; i++) {
    px_manual_seed(0);
    if (i == 0) OK(px_init_xavier_uniform(w, 1, NULL));
    if (i == 1) OK(px_init_xavier_normal(w, 1, NULL));
    if (i == 2) OK(px_init_kaiming_uniform(w, 0, false, "leaky_relu", NULL));
    if (i == 3) OK(px_init_kaiming_normal(w, 0, false, "leaky_relu", NULL));
    check_values(w, wanted[i], 1e-6);
  }
}

PX_TEST(gains_match_pytorch) {
  static const struct {
    const char *name;
    double parameter, gain;
  } rows[] = {{"linear", 0, 1},
              {"conv2d", 0, 1},
              {"sigmoid", 0, 1},
              {"tanh", 0, 5.0 / 3},
              {"relu", 0, 1.4142135623730951},
              {"leaky_relu", 0.2, 1.3867504905630728},
              {"selu", 0, 0.75}};
  double gain;
  for (int i = 0; i < 7; i++) {
    OK(px_init_gain(&gain, rows[i].name, rows[i].parameter));
    CHECK_NEAR(gain, rows[i].gain, 1e-15);
  }
  FAILS(px_init_gain(&gain, "swish", 0), PX_VALUE, "swish");
}

PX_TEST(batch_norm_keeps_running_statistics) {
  PX_SCOPED(px_module) m = of_kind("BatchNorm1d", PX_I(2));
  PX_SCOPED(px_tensor) x = floats(2, (int64_t[]){3, 2}, (float[]){1, 2, 3, 6, 5, 4});
  PX_SCOPED(px_tensor) trained = NULL;
  PX_SCOPED(px_tensor) tested = NULL;
  OK(px_module_call(&trained, m, x));
  check_values(trained, (double[]){-1.22474265, -1.22474253, 0, 1.22474253, 1.22474241, 0}, 1e-6);
  CHECK_VALUES(entry(m, "running_mean"), 0.300000012, 0.400000006);
  CHECK_VALUES(entry(m, "running_var"), 1.29999995, 1.29999995);
  OK(px_module_train(m, false));
  OK(px_module_call(&tested, m, x));
  check_values(tested,
               (double[]){0.613938272, 1.40328753, 2.36804771, 4.91150618, 4.12215710, 3.15739679},
               2e-6);
}

PX_TEST(dropout_applies_only_in_training) {
  PX_SCOPED(px_module) m = of_kind("Dropout", PX_F(1));
  PX_SCOPED(px_tensor) x = ROW(1, 2);
  PX_SCOPED(px_tensor) trained = NULL;
  PX_SCOPED(px_tensor) tested = NULL;
  OK(px_module_call(&trained, m, x));
  CHECK_VALUES(trained, 0, 0);
  OK(px_module_train(m, false));
  OK(px_module_call(&tested, m, x));
  CHECK_VALUES(tested, 1, 2);
}

// ---- texts

PX_TEST(a_module_prints_like_pytorch) {
  PX_SCOPED(px_module) net = small_net();
  char *text = NULL;
  OK(px_module_text(&text, net));
  CHECK_TEXT(text,
             "Sequential(\n"
             "  (0): Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))\n"
             "  (1): ReLU()\n"
             "  (2): MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)\n"
             "  (3): Flatten(start_dim=1, end_dim=-1)\n"
             "  (4): Sequential(\n"
             "    (0): Linear(in_features=3, out_features=2, bias=True)\n"
             "    (1): Dropout(p=0.5, inplace=False)\n"
             "  )\n"
             ")");
  px_free(text);
}

PX_TEST(every_kind_can_be_found_and_printed) {
  for (int i = 0; px_module_kind_at(i); i++) {
    const px_module_kind *kind = px_module_kind_at(i);
    CHECK(px_module_kind_find(kind->name) == kind);
    CHECK(!i || strcmp(px_module_kind_at(i - 1)->name, kind->name) < 0);
    CHECK_EQ(kind->params != NULL, kind->param_count > 0);
  }
  CHECK(!px_module_kind_find("Perceptron"));
}

PX_TEST(an_unknown_kind_is_named_with_the_nearest) {
  px_module *none = NULL;
  FAILS(px_module_new(&none, px_module_kind_find("linear"), NULL, NULL), PX_ATTRIBUTE,
        "there is no module kind 'linear': the nearest name is Linear");
  CHECK(!none);
}

PX_TEST(shared_children_are_visited_once) {
  enum { N = 3000 };
  PX_SCOPED(px_module) child = NULL;
  PX_SCOPED(px_module) many = NULL;
  PX_SCOPED(px_list) parameters = NULL;
  px_module *children[N];
  OK(px_linear_new(&child, 2, 2));
  for (int i = 0; i < N; i++) children[i] = NULL;
  for (int i = 0; i < N; i += 2) children[i] = px_retain(child);
  for (int i = 1; i < N; i += 2) OK(px_linear_new(&children[i], 1, 1));
  OK(px_sequential_new(&many, children, N));
  OK(px_module_parameters(&parameters, many));
  CHECK_EQ(px_list_size(parameters), 2 * (N / 2 + 1));
  for (int i = 0; i < N; i++) px_release(children[i]);
}

PX_TEST(a_missing_argument_is_named) {
  px_module *none = NULL;
  int64_t objects = px_live_objects(NULL);
  FAILS(px_module_new(&none, px_module_kind_find("Linear"), (px_value[8]){PX_I(2)}, NULL), PX_TYPE,
        "missing 1 required positional argument: 'out_features'");
  CHECK(!none);
  CHECK_EQ(px_live_objects(NULL), objects);
}

// ---- entries

typedef struct names {
  char text[512];
} names;

static px_status add_name(const char *name, const px_module_entry *found, px_module *owner,
                          void *context) {
  names *all = context;
  size_t used = strlen(all->text);
  snprintf(all->text + used, sizeof all->text - used, "%s ", name);
  return PX_OK;
}

PX_TEST(entries_are_visited_in_depth) {
  PX_SCOPED(px_module) net = small_net();
  names all = {""};
  OK(px_module_walk(net, PX_ENTRY_PARAMETER, "", true, false, add_name, &all));
  CHECK_TEXT(all.text, "0.weight 0.bias 4.0.weight 4.0.bias ");
  all.text[0] = 0;
  OK(px_module_walk(net, PX_ENTRY_MODULE, "net", true, false, add_name, &all));
  CHECK_TEXT(all.text, "net net.0 net.1 net.2 net.3 net.4 net.4.0 net.4.1 ");
}

PX_TEST(shared_entries_are_visited_once) {
  PX_SCOPED(px_module) m = linear(2, 2);
  PX_SCOPED(px_module) twice = NULL;
  PX_SCOPED(px_list) parameters = NULL;
  names all = {""};
  OK(px_sequential_new(&twice, (px_module *[]){m, m}, 2));
  OK(px_module_walk(twice, PX_ENTRY_PARAMETER, "", true, false, add_name, &all));
  CHECK_TEXT(all.text, "0.weight 0.bias ");
  all.text[0] = 0;
  OK(px_module_walk(twice, PX_ENTRY_PARAMETER, "", true, true, add_name, &all));
  CHECK_TEXT(all.text, "0.weight 0.bias 1.weight 1.bias ");
  OK(px_module_parameters(&parameters, twice));
  CHECK_EQ(px_list_size(parameters), 2);
}

PX_TEST(entries_are_registered_and_removed) {
  PX_SCOPED(px_module) m = linear(2, 2);
  PX_SCOPED(px_tensor) t = ROW(1);
  px_module_entry found;
  OK(px_module_register_buffer(m, "mean", t, true));
  CHECK(px_module_entry_find(m, "mean", &found) && found.sort == PX_ENTRY_BUFFER);
  FAILS(px_module_register_module(m, "mean", m), PX_KEY, "attribute 'mean' already exists");
  OK(px_module_remove(m, "mean"));
  CHECK(!px_module_entry_find(m, "mean", &found));
  FAILS(px_module_remove(m, "mean"), PX_ATTRIBUTE, "mean");
  OK(px_module_register_parameter(m, "bias", NULL));  // the name keeps its position
  CHECK(px_module_entry_find(m, "bias", &found) && !found.tensor);
}

PX_TEST(parameters_are_leaves_requiring_gradients) {
  PX_SCOPED(px_module) m = linear(2, 2);
  px_tensor *w = entry(m, "weight");
  CHECK(px_tensor_is_parameter(w) && px_tensor_is_leaf(w) && px_tensor_requires_grad(w));
  OK(px_module_requires_grad(m, false));
  CHECK(!px_tensor_requires_grad(w));
}

// ---- norms fused into the previous layer

PX_TEST(a_norm_is_fused_into_the_previous_weights) {
  PX_SCOPED(px_tensor) w = floats(2, (int64_t[]){2, 1}, (float[]){1, 2});
  PX_SCOPED(px_tensor) mean = floats(1, (int64_t[]){2}, (float[]){1, 2});
  PX_SCOPED(px_tensor) var = floats(1, (int64_t[]){2}, (float[]){4, 0.25f});
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) bias = NULL;
  OK(px_tensor_set_requires_grad(w, true));
  OK(px_fuse_norm(&weight, &bias, w, NULL, &(px_channel_norm){mean, var, mean, var, 0}, false));
  CHECK_VALUES(weight, 0.5, 8);
  CHECK_VALUES(bias, -0.5 + 4, -8 + 0.25);
  CHECK(!px_tensor_requires_grad(weight) && px_grad_enabled());
}

PX_TEST(fusing_into_a_transposed_weight_scales_the_second_dimension) {
  PX_SCOPED(px_tensor) w = floats(3, (int64_t[]){1, 2, 1}, (float[]){1, 2});
  PX_SCOPED(px_tensor) half = floats(1, (int64_t[]){2}, (float[]){0.25f, 4});
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) bias = NULL;
  px_channel_norm norm = {half, half, NULL, NULL, 0};
  OK(px_fuse_norm(&weight, &bias, w, half, &norm, true));
  CHECK_VALUES(weight, 2, 1);
  CHECK_VALUES(bias, 0, 0);
}

PX_TEST(a_mismatched_norm_is_refused) {
  PX_SCOPED(px_tensor) w = floats(2, (int64_t[]){2, 1}, (float[]){1, 2});
  PX_SCOPED(px_tensor) three = floats(1, (int64_t[]){3}, (float[]){1, 1, 1});
  px_tensor *weight = NULL, *bias = NULL;
  px_channel_norm norm = {three, three, NULL, NULL, 0};
  FAILS(px_fuse_norm(&weight, &bias, w, NULL, &norm, false), PX_RUNTIME, "size");
  norm.var = NULL;
  FAILS(px_fuse_norm(&weight, &bias, w, NULL, &norm, false), PX_VALUE, "running statistics");
  CHECK(!weight && !bias);
}

// ---- pruning masks

PX_TEST(a_prune_mask_removes_the_smallest_elements) {
  PX_SCOPED(px_tensor) w = floats(2, (int64_t[]){2, 3}, (float[]){1, -5, 3, -2, 4, 6});
  PX_SCOPED(px_tensor) all = floats(2, (int64_t[]){2, 3}, (float[]){1, 1, 1, 1, 1, 1});
  PX_SCOPED(px_tensor) elements = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) columns = NULL;
  OK(px_prune_mask(&elements, w, all, &(px_prune){.amount = 0.5, .share = true}));
  CHECK_VALUES(elements, 0, 1, 0, 0, 1, 1);
  OK(px_prune_mask(&rows, w, elements, &(px_prune){.amount = 1, .channels = true, .p = 2}));
  CHECK_VALUES(rows, 0, 0, 0, 0, 1, 1);
  OK(px_prune_mask(&columns, w, all,
                   &(px_prune){.amount = 1, .channels = true, .dim = -1, .random = true}));
  CHECK_VALUES(all, 1, 1, 1, 1, 1, 1);
}

PX_TEST(an_invalid_prune_amount_is_refused) {
  PX_SCOPED(px_tensor) w = floats(2, (int64_t[]){1, 2}, (float[]){1, 2});
  PX_SCOPED(px_tensor) row = floats(1, (int64_t[]){2}, (float[]){1, 2});
  px_tensor *mask = NULL;
  FAILS(px_prune_mask(&mask, w, w, &(px_prune){.amount = 3}), PX_VALUE,
        "amount=3 should be smaller than the number of parameters to prune=2");
  FAILS(px_prune_mask(&mask, w, w, &(px_prune){.amount = 1.5, .share = true}), PX_VALUE, "[0, 1]");
  FAILS(px_prune_mask(&mask, w, w, &(px_prune){.channels = true, .dim = 2}), PX_INDEX,
        "Invalid index 2 for tensor of size torch.Size([1, 2])");
  FAILS(px_prune_mask(&mask, row, row, &(px_prune){.channels = true}), PX_VALUE,
        "Structured pruning can only be applied to multidimensional tensors");
  CHECK(!mask);
}

// ---- state

PX_TEST(a_state_loads_into_another_module) {
  PX_SCOPED(px_module) from = small_net();
  PX_SCOPED(px_module) to = small_net();
  PX_SCOPED(px_dict) state = NULL;
  PX_SCOPED(px_tensor) same = NULL;
  px_scalar truth;
  OK(px_module_state_dict(&state, from, ""));
  CHECK_EQ(px_dict_size(state), 4);
  CHECK_TEXT(px_dict_name(state, 2), "4.0.weight");
  CHECK(!px_tensor_requires_grad(px_dict_value(state, 2)));
  OK(px_module_load_state_dict(to, state, true));
  PX_SCOPED(px_dict) loaded = NULL;
  OK(px_module_state_dict(&loaded, to, ""));
  OK(px_eq(&same, px_dict_get(state, "0.weight"), px_dict_get(loaded, "0.weight")));
  PX_SCOPED(px_tensor) all = NULL;
  OK(px_all(&all, same, NULL, 0, false));
  OK(px_tensor_item(&truth, all));
  CHECK(truth.v.b);
}

PX_TEST(a_mismatched_state_changes_nothing) {
  PX_SCOPED(px_module) m = linear(2, 2);
  PX_SCOPED(px_dict) state = NULL;
  PX_SCOPED(px_tensor) wide = floats(2, (int64_t[]){3, 2}, (float[6]){9, 9, 9, 9, 9, 9});
  PX_SCOPED(px_tensor) bias = floats(1, (int64_t[]){2}, (float[]){7, 7});
  double before[2];
  float values[2];
  OK(px_tensor_read(entry(m, "bias"), values, sizeof values));
  before[0] = values[0], before[1] = values[1];
  OK(px_dict_new(&state));
  OK(px_dict_set(state, "weight", wide));
  FAILS(px_module_load_state_dict(m, state, true), PX_RUNTIME,
        "Error(s) in loading state_dict for Linear:\n\tMissing key(s) in state_dict: \"bias\". "
        "\n\tsize mismatch for weight: copying a param with shape torch.Size([3, 2]) from "
        "checkpoint, the shape in current model is torch.Size([2, 2]).");
  OK(px_dict_set(state, "bias", bias));
  OK(px_dict_set(state, "extra", bias));
  FAILS(px_module_load_state_dict(m, state, true), PX_RUNTIME,
        "\n\tUnexpected key(s) in state_dict: \"extra\". \n\tsize mismatch for weight");
  FAILS(px_module_load_state_dict(m, state, false), PX_RUNTIME, "size mismatch for weight");
  check_values(entry(m, "bias"), before, 0);
}

PX_TEST(unknown_names_are_ignored_without_strict) {
  PX_SCOPED(px_module) m = linear(2, 2);
  PX_SCOPED(px_dict) state = NULL;
  PX_SCOPED(px_tensor) bias = floats(1, (int64_t[]){2}, (float[]){7, 8});
  OK(px_dict_new(&state));
  OK(px_dict_set(state, "bias", bias));
  OK(px_dict_set(state, "extra", bias));
  OK(px_module_load_state_dict(m, state, false));
  CHECK_VALUES(entry(m, "bias"), 7, 8);
}

PX_TEST(non_persistent_buffers_are_not_saved) {
  PX_SCOPED(px_module) m = linear(2, 2);
  PX_SCOPED(px_tensor) t = ROW(1);
  PX_SCOPED(px_dict) state = NULL;
  OK(px_module_register_buffer(m, "kept", t, true));
  OK(px_module_register_buffer(m, "scratch", t, false));
  OK(px_module_state_dict(&state, m, "m"));
  CHECK_EQ(px_dict_size(state), 3);
  CHECK(px_dict_get(state, "m.kept") && !px_dict_get(state, "m.scratch"));
}

// ---- moving

PX_TEST(moving_keeps_the_parameter_objects) {
  simulate(2);
  PX_SCOPED(px_module) m = linear(2, 2);
  PX_SCOPED(px_tensor) x = ROW(1, 2);
  PX_SCOPED(px_tensor) y = NULL;
  px_tensor *w = entry(m, "weight");
  OK(px_module_call(&y, m, x));
  OK(px_backward(1, &y, (px_tensor *[]){x}, false, false));
  px_tensor *grad = px_tensor_grad(w);
  OK(px_module_to(m, PX_DTYPE_NONE, px_cuda(1), false));
  CHECK(entry(m, "weight") == w && px_tensor_grad(w) == grad);
  CHECK(px_device_equal(px_tensor_device(w), px_cuda(1)));
  CHECK(px_device_equal(px_tensor_device(grad), px_cuda(1)));
  CHECK(px_tensor_is_leaf(w) && px_tensor_requires_grad(w));
}

PX_TEST(a_dtype_conversion_skips_integers) {
  PX_SCOPED(px_module) m = of_kind("BatchNorm1d", PX_I(2));
  OK(px_module_to(m, PX_FLOAT64, PX_DEVICE_NONE, false));
  CHECK_EQ(px_tensor_dtype(entry(m, "running_mean")), PX_FLOAT64);
  CHECK_EQ(px_tensor_dtype(entry(m, "num_batches_tracked")), PX_INT64);
  FAILS(px_module_to(m, PX_INT32, PX_DEVICE_NONE, false), PX_TYPE,
        "nn.Module.to only accepts floating point or complex dtypes, but got desired "
        "dtype=torch.int32");
}

PX_TEST(a_cast_of_floats_skips_complex_parameters) {
  PX_SCOPED(px_module) m = of_kind("BatchNorm1d", PX_I(2));
  OK(px_module_to(m, PX_COMPLEX64, PX_DEVICE_NONE, false));
  OK(px_module_cast(m, PX_FLOAT64));
  CHECK_EQ(px_tensor_dtype(entry(m, "weight")), PX_COMPLEX64);
  OK(px_module_to(m, PX_FLOAT32, PX_DEVICE_NONE, false));
  OK(px_module_cast(m, PX_FLOAT64));
  CHECK_EQ(px_tensor_dtype(entry(m, "weight")), PX_FLOAT64);
  CHECK_EQ(px_tensor_dtype(entry(m, "num_batches_tracked")), PX_INT64);
  FAILS(px_module_cast(m, PX_COMPLEX64), PX_TYPE, "floating point dtype, got torch.complex64");
}

PX_TEST(a_moved_module_can_be_trained_further) {
  simulate(1);
  for (int step = 0; step < 2; step++) {
    static px_module *m;
    if (!m) {
      m = linear(2, 2);
      OK(px_module_to(m, PX_DTYPE_NONE, px_cuda(0), false));
    }
    PX_SCOPED(px_tensor) host = ROW(1, 2);
    PX_SCOPED(px_tensor) x = NULL;
    PX_SCOPED(px_tensor) y = NULL;
    OK(px_to(&x, host, PX_DTYPE_NONE, px_cuda(0), false, false));
    OK(px_tensor_set_requires_grad(x, true));
    OK(px_module_call(&y, m, x));
    OK(px_backward(1, &y, (px_tensor *[]){x}, false, false));
    px_grad_set_enabled(false);
    OK(px_add_(entry(m, "weight"), px_tensor_grad(entry(m, "weight")), px_float(-0.5)));
    px_grad_set_enabled(true);
    if (step == 1) px_release(m);
  }
}

// ---- hooks, copies

static px_status twice(px_tensor **replacement, px_module *self, px_tensor *const *inputs,
                       int count, px_tensor *result, void *context) {
  ++*(int *)context;
  return px_mul_scalar(replacement, result ? result : inputs[0], px_int(2));
}

PX_TEST(hooks_run_before_and_after_forward) {
  PX_SCOPED(px_module) m = of_kind("Identity", (px_value){0});
  PX_SCOPED(px_tensor) x = ROW(1, 2);
  PX_SCOPED(px_tensor) hooked = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  int64_t before, after;
  int calls = 0;
  OK(px_module_add_hook(&before, m, true, twice, &calls, NULL));
  OK(px_module_add_hook(&after, m, false, twice, &calls, NULL));
  OK(px_module_call(&hooked, m, x));
  CHECK_VALUES(hooked, 4, 8);
  CHECK_EQ(calls, 2);
  px_module_remove_hook(m, before);
  px_module_remove_hook(m, after);
  OK(px_module_call(&plain, m, x));
  CHECK_VALUES(plain, 1, 2);
}

static void count_down(void *context) { --*(int *)context; }

PX_TEST(hooks_release_their_contexts) {
  px_module *m = of_kind("Identity", (px_value){0});
  int64_t first, second;
  int kept = 2;
  px_hook_entry hook;
  OK(px_module_add_hook(&first, m, true, twice, &kept, count_down));
  OK(px_module_add_hook(&second, m, false, twice, &kept, count_down));
  CHECK(px_module_hook_at(m, 1, &hook) && hook.id == second && !hook.before);
  CHECK(!px_module_hook_at(m, 2, &hook) && !px_module_hook_at(m, -1, &hook));
  px_module_remove_hook(m, first);
  CHECK_EQ(kept, 1);
  px_release(m);
  CHECK_EQ(kept, 0);
}

typedef struct removed_hook {
  int64_t id;
  int kept;
} removed_hook;
static px_status remove_itself(px_tensor **replacement, px_module *self, px_tensor *const *inputs,
                               int count, px_tensor *result, void *context) {
  px_module_remove_hook(self, ((removed_hook *)context)->id);
  CHECK_EQ(((removed_hook *)context)->kept, 1);
  return PX_OK;
}
static void count_down_hook(void *context) { --((removed_hook *)context)->kept; }

PX_TEST(the_context_of_a_removed_hook_lives_during_its_call) {
  PX_SCOPED(px_module) m = of_kind("Identity", (px_value){0});
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) out = NULL;
  removed_hook hook = {.kept = 1};
  OK(px_ones(&x, (int64_t[]){2}, 1, PX_FLOAT32, px_cpu(), false, false));
  OK(px_module_add_hook(&hook.id, m, true, remove_itself, &hook, count_down_hook));
  OK(px_module_call(&out, m, x));
  CHECK_EQ(hook.kept, 0);
  CHECK(!px_module_has_hooks(m));
}

PX_TEST(removed_entries_live_until_the_reader_ends) {
  PX_SCOPED(px_module) m = of_kind("Identity", (px_value){0});
  px_tensor *buffer;
  px_module_entry entry;
  int64_t before = px_live_objects("tensor");
  OK(px_ones(&buffer, (int64_t[]){2}, 1, PX_FLOAT32, px_cpu(), false, false));
  OK(px_module_register_buffer(m, "buffer", buffer, true));
  px_release(buffer);
  int reader = px_module_read_begin(m);
  CHECK(px_module_entry_find(m, "buffer", &entry));
  OK(px_module_remove(m, "buffer"));
  CHECK(!px_module_entry_find(m, "buffer", &(px_module_entry){0}));
  CHECK_VALUES(entry.tensor, 1, 1);
  px_module_read_end(m, reader);
  CHECK_EQ(px_live_objects("tensor"), before);
}

// A user-defined call path: `call` counts the steps.
static px_status count_hook(px_module *self, const px_hook_entry *hook, void *call) {
  *(int *)call += hook->before ? 1 : 100;
  return PX_OK;
}
static px_status count_forward(px_module *self, void *call) {
  *(int *)call *= 10;
  return PX_OK;
}
static px_status count_child(px_module *child, void *value) {
  *(int *)value += child ? 1 : 10;
  return PX_OK;
}

PX_TEST(another_language_can_replace_the_call_path) {
  static const px_module_runner way = {count_hook, count_forward};
  PX_SCOPED(px_module) net = small_net();
  int64_t id;
  int steps = 0, children = 0;
  OK(px_module_add_hook(&id, net, false, twice, NULL, NULL));
  OK(px_module_add_hook(&id, net, true, twice, NULL, NULL));
  OK(px_module_run(net, &way, &steps));
  CHECK_EQ(steps, 110);
  OK(px_module_register_module(net, "5", NULL));
  OK(px_module_chain(net, count_child, &children));
  CHECK_EQ(children, 15);
}

static px_status doubled(px_tensor **out, px_tensor *tensor, px_entry_sort sort, void *context) {
  return px_mul_scalar(out, tensor, px_int(2));
}

PX_TEST(a_copy_has_its_own_tensors) {
  PX_SCOPED(px_module) net = small_net();
  PX_SCOPED(px_module) copy = NULL;
  char *ours = NULL, *theirs = NULL;
  OK(px_module_copy(&copy, net, doubled, NULL));
  OK(px_module_text(&ours, net));
  OK(px_module_text(&theirs, copy));
  CHECK_TEXT(theirs, ours);
  px_module_entry a, b;
  CHECK(px_module_entry_find(net, "0", &a) && px_module_entry_find(copy, "0", &b));
  CHECK(a.module != b.module && entry(a.module, "weight") != entry(b.module, "weight"));
  px_free(ours), px_free(theirs);
}

PX_TEST(training_mode_applies_to_all_children) {
  PX_SCOPED(px_module) net = small_net();
  px_module_entry inner, drop;
  CHECK(px_module_training(net));
  OK(px_module_train(net, false));
  CHECK(px_module_entry_find(net, "4", &inner) && px_module_entry_find(inner.module, "1", &drop));
  CHECK(!px_module_training(net) && !px_module_training(drop.module));
  px_module_set_training(net, true);
  CHECK(px_module_training(net) && !px_module_training(drop.module));
}

// Sequentials nested `depth` levels deep.
static px_module *nested_sequential(int depth) {
  px_module *net = of_kind("Identity", (px_value){0}), *outer;
  for (; depth; depth--, net = outer) {
    OK(px_sequential_new(&outer, &net, 1));
    px_release(net);
  }
  return net;
}

static px_status keep_tensor(px_tensor **out, px_tensor *tensor, px_entry_sort sort,
                             void *context) {
  return PX_OK;
}

PX_TEST(calls_nested_too_deeply_fail_and_walks_have_no_limit) {
  PX_SCOPED(px_module) net = nested_sequential(100000);
  PX_SCOPED(px_module) shallow = nested_sequential(500);
  PX_SCOPED(px_tensor) x = ROW(1);
  px_tensor *y = NULL;
  px_module *copy;
  PX_SCOPED(px_dict) state = NULL;
  char *text;
  const char *says = "Sequential: modules are nested deeper than 1000";
  FAILS(px_module_call(&y, net, x), PX_RECURSION, says);
  FAILS(px_module_text(&text, net), PX_RECURSION, says);
  OK(px_module_state_dict(&state, net, ""));
  OK(px_module_to(net, PX_FLOAT64, px_cpu(), false));
  FAILS(px_module_copy(&copy, net, keep_tensor, NULL), PX_RECURSION, says);
  OK(px_module_call(&y, shallow, x));
  px_release(y);
}

static px_status add_seven(px_tensor **out, px_module *self, px_tensor *const *inputs, int count) {
  return px_add_scalar(out, inputs[count - 1], px_int(7), px_int(1));
}

PX_TEST(a_custom_forward_replaces_the_kinds) {
  PX_SCOPED(px_module) layer = linear(2, 1);
  PX_SCOPED(px_tensor) x = ROW(1, 2);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  px_module_set_forward(layer, add_seven);
  OK(px_module_forward(&y, layer, (px_tensor *[]){x, x}, 2));
  CHECK_VALUES(y, 8, 9);
  px_module_set_forward(layer, NULL);
  FAILS(px_module_forward(&z, layer, (px_tensor *[]){x, x}, 2), PX_TYPE, "takes 2 positional");
}

PX_TEST(a_module_without_forward_is_an_error) {
  PX_SCOPED(px_module) list = of_kind("ModuleList", (px_value){0});
  PX_SCOPED(px_tensor) x = ROW(1);
  px_tensor *y = NULL;
  FAILS(px_module_call(&y, list, x), PX_UNIMPLEMENTED,
        "Module [ModuleList] is missing the required \"forward\" function");
}

PX_TEST(gradients_of_a_module_are_cleared) {
  PX_SCOPED(px_module) m = linear(2, 1);
  PX_SCOPED(px_tensor) x = ROW(1, 2);
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_module_call(&y, m, x));
  OK(px_backward(1, &y, NULL, false, false));
  CHECK_VALUES(px_tensor_grad(entry(m, "weight")), 1, 2);
  OK(px_module_zero_grad(m));
  CHECK(!px_tensor_grad(entry(m, "weight")));
}

PX_TEST(a_loss_takes_two_inputs) {
  PX_SCOPED(px_module) loss = NULL;
  PX_SCOPED(px_tensor) weight = floats(1, (int64_t[]){2}, (float[]){1, 3});
  PX_SCOPED(px_tensor) input = floats(2, (int64_t[]){4, 2}, (float[]){1, 2, 0, 1, 2, 0, 1, 1});
  PX_SCOPED(px_tensor) target = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  px_scalar number;
  int64_t classes[] = {1, 0, 0, 1};
  OK(px_tensor_from_data(&target, classes, 1, (int64_t[]){4}, PX_INT64, px_cpu()));
  px_value arg = {.kind = PX_ARG_TENSOR, .v = {.tensor = weight}};
  OK(px_module_new(&loss, px_module_kind_find("CrossEntropyLoss"), (px_value[8]){arg}, NULL));
  CHECK(entry(loss, "weight") == weight);  // a buffer
  OK(px_module_forward(&result, loss, (px_tensor *[]){input, target}, 2));
  OK(px_tensor_item(&number, result));
  CHECK_NEAR(px_scalar_float(number), 0.5574, 5e-5);
}

PX_TEST(invalid_attributes_and_hooks_are_refused) {
  PX_SCOPED(px_module) m = linear(2, 2);
  PX_SCOPED(px_tensor) w = NULL;
  int64_t id, one = 1;
  OK(px_ones(&w, (int64_t[]){2, 2}, 2, PX_FLOAT32, px_cpu(), false, false));
  FAILS(px_module_set_attribute(m, "t", PX_T(w)), PX_TYPE, "cannot be a Tensor");
  FAILS(px_module_set_attribute(m, "n", PX_IS(&one, -1)), PX_VALUE, "at most 8 integers");
  FAILS(px_module_add_hook(&id, m, true, NULL, NULL, NULL), PX_TYPE,
        "expected a hook function, got NULL");
}

PX_TEST(kaiming_defaults_to_leaky_relu) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  px_scalar same;
  OK(px_empty(&a, (int64_t[]){3, 4}, 2, PX_FLOAT32, px_cpu(), false, false, NULL));
  OK(px_empty(&b, (int64_t[]){3, 4}, 2, PX_FLOAT32, px_cpu(), false, false, NULL));
  px_manual_seed(3);
  OK(px_init_kaiming_uniform(a, 0.3, false, NULL, NULL));
  px_manual_seed(3);
  OK(px_init_kaiming_uniform(b, 0.3, false, "leaky_relu", NULL));
  PX_SCOPED(px_tensor) equal = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  OK(px_eq(&equal, a, b));
  OK(px_all(&all, equal, NULL, 0, false));
  OK(px_tensor_item(&same, all));
  CHECK(px_scalar_int(same));
}

PX_TEST(weights_of_a_loss_are_its_buffers) {
  PX_SCOPED(px_tensor) weight = ROW(1, 2);
  PX_SCOPED(px_tensor) x = ROW(0, 0);
  PX_SCOPED(px_tensor) y = ROW(1, 1);
  PX_SCOPED(px_tensor) loss = NULL;
  PX_SCOPED(px_module) made = NULL;
  OK(px_bce_with_logits_loss_new(&made, .reduction = "sum", .pos_weight = weight));
  CHECK(entry(made, "pos_weight") == weight && !entry(made, "weight"));
  OK(px_module_forward(&loss, made, (px_tensor *[]){x, y}, 2));
  CHECK_VALUES(loss, 3 * 0.69314718);
}

static px_status scale(px_tensor **out, px_module *self, px_tensor *const *inputs, int count) {
  return px_mul_scalar(out, inputs[0], px_float(*(double *)px_module_context(self)));
}
static void forget(void *context) { *(double *)context = 0; }

PX_TEST(a_user_defined_kind_has_a_context) {
  static const px_module_kind kind = {
      .name = "Scale", .forward = scale, .input_count = 1, .release = forget};
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  px_module *module;
  double factor = 2.5;
  px_scalar item;
  OK(px_full(&x, NULL, 0, px_float(4), PX_FLOAT32, px_cpu(), false, false));
  OK(px_module_new(&module, &kind, NULL, &factor));
  OK(px_module_forward(&y, module, &x, 1));
  OK(px_tensor_item(&item, y));
  CHECK_NEAR(px_scalar_float(item), 10, 0);
  px_release(module);
  CHECK_NEAR(factor, 0, 0);
}

PX_TEST(fans_include_the_receptive_field) {
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) bias = NULL;
  int64_t in, out;
  OK(px_zeros(&weight, (int64_t[]){8, 3, 5, 5}, 4, PX_FLOAT32, px_cpu(), false, false));
  OK(px_init_fans(&in, &out, weight));
  CHECK(in == 75 && out == 200);
  OK(px_zeros(&bias, (int64_t[]){8}, 1, PX_FLOAT32, px_cpu(), false, false));
  FAILS(px_init_fans(&in, &out, bias), PX_VALUE,
        "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions");
}

// Loops over the sizes would not end, and their products overflow.
PX_TEST(weights_without_elements_are_filled_at_once) {
  const int64_t large = INT64_C(1) << 62, none = 0, still[4] = {0};
  int64_t in, out;
  PX_SCOPED(px_tensor) nothing = NULL;
  PX_SCOPED(px_tensor) kernel = NULL;
  PX_SCOPED(px_tensor) matrix = NULL;
  OK(px_zeros(&nothing, &none, 1, PX_FLOAT32, px_cpu(), false, false));
  OK(px_tensor_as_strided(&kernel, nothing, 4, (int64_t[]){large, 0, 4, 4}, still, 0));
  OK(px_tensor_as_strided(&matrix, nothing, 2, (int64_t[]){0, large}, still, 0));
  OK(px_init_fans(&in, &out, kernel));
  CHECK(in == 0 && out == INT64_MAX);
  OK(px_init_dirac(kernel, large));
  OK(px_init_sparse(matrix, 0.5, 0.1, NULL));
}

PX_TEST(an_entry_replaces_any_other_of_its_name) {
  PX_SCOPED(px_module) m = linear(2, 1);
  PX_SCOPED(px_tensor) x = ROW(1);
  px_module_entry put = {"weight", PX_ENTRY_BUFFER, true, x, NULL}, found;
  OK(px_module_put(m, &put));
  CHECK(px_module_entry_find(m, "weight", &found) && found.sort == PX_ENTRY_BUFFER);
  CHECK(found.tensor == x && px_module_entry_at(m, PX_ENTRY_BUFFER, 0, &found));
  CHECK(px_module_entry_at(m, PX_ENTRY_PARAMETER, 0, &found) && !strcmp(found.name, "bias"));
  put = (px_module_entry){"a.b", PX_ENTRY_PARAMETER, true, NULL, NULL};
  OK(px_module_put(m, &put));
  CHECK(px_module_entry_find(m, "a.b", &found) && !found.tensor);
}

PX_TEST(a_module_released_after_counting_is_not_reported) {
  PX_SCOPED(px_module) counted = linear(2, 1);
  PX_SCOPED(px_flop_counter) counter = NULL;
  PX_SCOPED(px_tensor) x = ROW(1, 2);
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_flop_counter_new(&counter));
  OK(px_flop_counter_begin(counter));
  OK(px_module_call(&y, counted, x));
  px_release(linear(2, 1));  // not among the counted modules
  CHECK(px__nn_ended);
  px_flop_counter_end(counter);
  px_release(linear(2, 1));
  CHECK(!px__nn_ended);
}
