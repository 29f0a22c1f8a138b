// SPDX-License-Identifier: Apache-2.0
// The layers: one row a kind. What a row does not say (attributes, binding, printed form) follows
// from its parameters.
#include "nn/layers.h"

#include <stdio.h>

// ---- parameters of constructors

#define REQUIRED(called, k) \
  { .name = (called), .kind = (k) }
#define OPTIONAL(called, k) \
  { .name = (called), .kind = (k), .optional = true }
#define TRUTH(called, value) \
  { \
    .name = (called), .kind = PX_ARG_BOOL, .has_default = true, .fallback = { \
      .kind = PX_ARG_BOOL, \
      .v = {.i = (value)} \
    } \
  }
#define WHOLE(called, value) \
  { \
    .name = (called), .kind = PX_ARG_INT, .has_default = true, .fallback = { \
      .kind = PX_ARG_INT, \
      .v = {.i = (value)} \
    } \
  }
#define REAL(called, value) \
  { \
    .name = (called), .kind = PX_ARG_FLOAT, .has_default = true, .fallback = { \
      .kind = PX_ARG_FLOAT, \
      .v = {.f = (value)} \
    } \
  }
#define WORD(called, value) \
  { \
    .name = (called), .kind = PX_ARG_TEXT, .has_default = true, .fallback = { \
      .kind = PX_ARG_TEXT, \
      .v = {.text = (value)} \
    } \
  }
// A size or a pair of sizes; made a pair by the kind's init.
#define PAIR(called, value) \
  { \
    .name = (called), .kind = PX_ARG_INTS, .has_default = true, .fallback = { \
      .kind = PX_ARG_INTS, \
      .n = 1, \
      .v = {.ints = (value)} \
    } \
  }
#define PLACE OPTIONAL("device", PX_ARG_DEVICE), OPTIONAL("dtype", PX_ARG_DTYPE)

static const int64_t zero = 0, one = 1;

static const px_param linear_params[] = {REQUIRED("in_features", PX_ARG_INT),
                                         REQUIRED("out_features", PX_ARG_INT), TRUTH("bias", 1),
                                         PLACE};
static const px_param conv_params[] = {REQUIRED("in_channels", PX_ARG_INT),
                                       REQUIRED("out_channels", PX_ARG_INT),
                                       REQUIRED("kernel_size", PX_ARG_INTS),
                                       PAIR("stride", &one),
                                       PAIR("padding", &zero),
                                       PAIR("dilation", &one),
                                       WHOLE("groups", 1),
                                       TRUTH("bias", 1),
                                       WORD("padding_mode", "zeros"),
                                       PLACE};
static const px_param batch_norm_params[] = {REQUIRED("num_features", PX_ARG_INT),
                                             REAL("eps", 1e-5),
                                             {.name = "momentum",
                                              .kind = PX_ARG_FLOAT,
                                              .optional = true,
                                              .has_default = true,
                                              .fallback = {.kind = PX_ARG_FLOAT, .v = {.f = 0.1}}},
                                             TRUTH("affine", 1),
                                             TRUTH("track_running_stats", 1),
                                             PLACE};
static const px_param layer_norm_params[] = {REQUIRED("normalized_shape", PX_ARG_INTS),
                                             REAL("eps", 1e-5), TRUTH("elementwise_affine", 1),
                                             TRUTH("bias", 1), PLACE};
static const px_param embedding_params[] = {REQUIRED("num_embeddings", PX_ARG_INT),
                                            REQUIRED("embedding_dim", PX_ARG_INT),
                                            OPTIONAL("padding_idx", PX_ARG_INT), PLACE};
static const px_param dropout_params[] = {REAL("p", 0.5), TRUTH("inplace", 0)};
static const px_param inplace_params[] = {TRUTH("inplace", 0)};
static const px_param gelu_params[] = {WORD("approximate", "none")};
static const px_param alpha_params[] = {REAL("alpha", 1), TRUTH("inplace", 0)};
static const px_param softplus_params[] = {REAL("beta", 1), REAL("threshold", 20)};
static const px_param adaptive_params[] = {REQUIRED("output_size", PX_ARG_INTS)};
static const px_param slope_params[] = {REAL("negative_slope", 0.01), TRUTH("inplace", 0)};
static const px_param dim_params[] = {OPTIONAL("dim", PX_ARG_INT)};
static const px_param max_pool_params[] = {REQUIRED("kernel_size", PX_ARG_INTS),
                                           OPTIONAL("stride", PX_ARG_INTS),
                                           PAIR("padding", &zero),
                                           PAIR("dilation", &one),
                                           TRUTH("return_indices", 0),
                                           TRUTH("ceil_mode", 0)};
static const px_param avg_pool_params[] = {REQUIRED("kernel_size", PX_ARG_INTS),
                                           OPTIONAL("stride", PX_ARG_INTS),
                                           PAIR("padding", &zero),
                                           TRUTH("ceil_mode", 0),
                                           TRUTH("count_include_pad", 1),
                                           OPTIONAL("divisor_override", PX_ARG_INT)};
static const px_param flatten_params[] = {WHOLE("start_dim", 1), WHOLE("end_dim", -1)};
static const px_param reduction_params[] = {WORD("reduction", "mean")};
static const px_param smooth_l1_params[] = {WORD("reduction", "mean"), REAL("beta", 1)};
static const px_param huber_params[] = {WORD("reduction", "mean"), REAL("delta", 1)};
static const px_param bce_params[] = {OPTIONAL("weight", PX_ARG_TENSOR), WORD("reduction", "mean")};
static const px_param bce_logits_params[] = {OPTIONAL("weight", PX_ARG_TENSOR),
                                             WORD("reduction", "mean"),
                                             OPTIONAL("pos_weight", PX_ARG_TENSOR)};
static const px_param cross_entropy_params[] = {
    OPTIONAL("weight", PX_ARG_TENSOR), WHOLE("ignore_index", -100), WORD("reduction", "mean"),
    REAL("label_smoothing", 0)};
static const px_param nll_params[] = {OPTIONAL("weight", PX_ARG_TENSOR),
                                      WHOLE("ignore_index", -100), WORD("reduction", "mean")};

// ---- the table

#define PARAMS(array) (array), (int)(sizeof(array) / sizeof *(array))
static const px_module_kind kinds[] = {
    {"AdaptiveAvgPool2d", PARAMS(adaptive_params), NULL, px__adaptive_pool_forward, NULL,
     px__adaptive_pool_repr, 1, NULL},
    {"AvgPool2d", PARAMS(avg_pool_params), px__pool_init, px__avg_pool_forward, NULL,
     px__avg_pool_repr, 1, NULL},
    {"BCELoss", PARAMS(bce_params), px__weight_init, px__bce_forward, NULL, NULL, 2, NULL},
    {"BCEWithLogitsLoss", PARAMS(bce_logits_params), px__two_weights_init, px__bce_logits_forward,
     NULL, NULL, 2, NULL},
    {"BatchNorm1d", PARAMS(batch_norm_params), px__batch_norm_init, px__batch_norm_forward,
     "{num_features}, eps={eps}, momentum={momentum}, affine={affine}, bias={affine}, "
     "track_running_stats={track_running_stats}",
     NULL, 1, NULL},
    {"BatchNorm2d", PARAMS(batch_norm_params), px__batch_norm_init, px__batch_norm_forward,
     "{num_features}, eps={eps}, momentum={momentum}, affine={affine}, bias={affine}, "
     "track_running_stats={track_running_stats}",
     NULL, 1, NULL},
    {"Conv2d", PARAMS(conv_params), px__conv_init, px__conv_forward, NULL, px__conv_repr, 1, NULL},
    {"CrossEntropyLoss", PARAMS(cross_entropy_params), px__weight_init, px__cross_entropy_forward,
     NULL, NULL, 2, NULL},
    {"Dropout", PARAMS(dropout_params), px__dropout_init, px__dropout_forward,
     "p={p}, inplace={inplace}", NULL, 1, NULL},
    {"ELU", PARAMS(alpha_params), NULL, px__elu_forward, NULL, px__slope_repr, 1, NULL},
    {"Embedding", PARAMS(embedding_params), px__embedding_init, px__embedding_forward, NULL,
     px__embedding_repr, 1, NULL},
    {"Flatten", PARAMS(flatten_params), NULL, px__flatten_forward,
     "start_dim={start_dim}, end_dim={end_dim}", NULL, 1, NULL},
    {"GELU", PARAMS(gelu_params), NULL, px__gelu_forward, NULL, px__gelu_repr, 1, NULL},
    {"HuberLoss", PARAMS(huber_params), NULL, px__huber_forward, NULL, NULL, 2, NULL},
    {"Identity", NULL, 0, NULL, px__identity_forward, NULL, NULL, 1, NULL},
    {"L1Loss", PARAMS(reduction_params), NULL, px__l1_forward, NULL, NULL, 2, NULL},
    {"LayerNorm", PARAMS(layer_norm_params), px__layer_norm_init, px__layer_norm_forward,
     "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}", NULL, 1, NULL},
    {"LeakyReLU", PARAMS(slope_params), NULL, px__leaky_relu_forward, NULL, px__slope_repr, 1,
     NULL},
    {"Linear", PARAMS(linear_params), px__linear_init, px__linear_forward,
     "in_features={in_features}, out_features={out_features}, bias={bias}", NULL, 1, NULL},
    {"LogSoftmax", PARAMS(dim_params), NULL, px__log_softmax_forward, "dim={dim}", NULL, 1, NULL},
    {"MSELoss", PARAMS(reduction_params), NULL, px__mse_forward, NULL, NULL, 2, NULL},
    {"MaxPool2d", PARAMS(max_pool_params), px__pool_init, px__max_pool_forward, NULL,
     px__max_pool_repr, 1, NULL},
    {"ModuleDict", NULL, 0, NULL, NULL, NULL, NULL, 1, NULL},
    {"ModuleList", NULL, 0, NULL, NULL, NULL, NULL, 1, NULL},
    {"NLLLoss", PARAMS(nll_params), px__weight_init, px__nll_forward, NULL, NULL, 2, NULL},
    {"ReLU", PARAMS(inplace_params), NULL, px__relu_forward, NULL, px__inplace_repr, 1, NULL},
    {"Sequential", NULL, 0, NULL, px__sequential_forward, NULL, NULL, 1, NULL},
    {"SiLU", PARAMS(inplace_params), NULL, px__silu_forward, NULL, px__inplace_repr, 1, NULL},
    {"Sigmoid", NULL, 0, NULL, px__sigmoid_forward, NULL, NULL, 1, NULL},
    {"SmoothL1Loss", PARAMS(smooth_l1_params), NULL, px__smooth_l1_forward, NULL, NULL, 2, NULL},
    {"Softmax", PARAMS(dim_params), NULL, px__softmax_forward, "dim={dim}", NULL, 1, NULL},
    {"Softplus", PARAMS(softplus_params), NULL, px__softplus_forward,
     "beta={beta}, threshold={threshold}", NULL, 1, NULL},
    {"Tanh", NULL, 0, NULL, px__tanh_forward, NULL, NULL, 1, NULL},
};

enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

const px_module_kind *px_module_kind_at(int i) {
  return i >= 0 && i < KIND_COUNT ? &kinds[i] : NULL;
}

const px_module_kind *px_module_kind_find(const char *name) {
  for (int i = 0; i < KIND_COUNT; i++)
    if (!strcmp(kinds[i].name, name)) return &kinds[i];
  return NULL;
}

// ---- constructors for C

static px_status make(px_module **out, const char *name, const px_value *given, int count) {
  px_value args[12] = {{0}};
  if (count) memcpy(args, given, (size_t)count * sizeof *given);
  return px_module_new(out, px_module_kind_find(name), args, NULL);
}

px_status px_linear_new(px_module **out, int64_t in_features, int64_t out_features, bool bias) {
  px_value args[] = {PX_I(in_features), PX_I(out_features), PX_B(bias)};
  return make(out, "Linear", args, 3);
}

px_status px_conv2d_new(px_module **out, int64_t in_channels, int64_t out_channels,
                        int64_t kernel_size, int64_t stride, int64_t padding) {
  px_value args[] = {PX_I(in_channels), PX_I(out_channels), PX_IS(&kernel_size, 1),
                     PX_IS(&stride, 1), PX_IS(&padding, 1)};
  return make(out, "Conv2d", args, 5);
}

px_status px_relu_new(px_module **out) { return make(out, "ReLU", NULL, 0); }

px_status px_max_pool2d_new(px_module **out, int64_t kernel_size) {
  px_value size = PX_IS(&kernel_size, 1);
  return make(out, "MaxPool2d", &size, 1);
}

px_status px_flatten_new(px_module **out) { return make(out, "Flatten", NULL, 0); }

px_status px_dropout_new(px_module **out, double p) {
  px_value chance = PX_F(p);
  return make(out, "Dropout", &chance, 1);
}

px_status px_sequential_new(px_module **out, px_module *const *children, int count) {
  PX_GIVEN_N(children, count);
  *out = NULL;
  PX_SCOPED(px_module) self = NULL;
  PX_TRY(make(&self, "Sequential", NULL, 0));
  for (int i = 0; i < count; i++) {
    char name[16];
    snprintf(name, sizeof name, "%d", i);
    PX_TRY(px_module_register_module(self, name, children[i]));
  }
  *out = PX_MOVE(self);
  return PX_OK;
}
