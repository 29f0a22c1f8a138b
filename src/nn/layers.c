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
static const px_param conv_transpose_params[] = {REQUIRED("in_channels", PX_ARG_INT),
                                                 REQUIRED("out_channels", PX_ARG_INT),
                                                 REQUIRED("kernel_size", PX_ARG_INTS),
                                                 PAIR("stride", &one),
                                                 PAIR("padding", &zero),
                                                 PAIR("output_padding", &zero),
                                                 WHOLE("groups", 1),
                                                 TRUTH("bias", 1),
                                                 PAIR("dilation", &one),
                                                 WORD("padding_mode", "zeros"),
                                                 PLACE};
static const px_param avg_pool1d_params[] = {
    REQUIRED("kernel_size", PX_ARG_INTS), OPTIONAL("stride", PX_ARG_INTS), PAIR("padding", &zero),
    TRUTH("ceil_mode", 0), TRUTH("count_include_pad", 1)};
static const px_param instance_norm_params[] = {REQUIRED("num_features", PX_ARG_INT),
                                                REAL("eps", 1e-5),
                                                REAL("momentum", 0.1),
                                                TRUTH("affine", 0),
                                                TRUTH("track_running_stats", 0),
                                                PLACE};
static const px_param group_norm_params[] = {REQUIRED("num_groups", PX_ARG_INT),
                                             REQUIRED("num_channels", PX_ARG_INT),
                                             REAL("eps", 1e-5),
                                             TRUTH("affine", 1),
                                             PLACE,
                                             TRUTH("bias", 1)};
static const px_param rms_norm_params[] = {REQUIRED("normalized_shape", PX_ARG_INTS),
                                           OPTIONAL("eps", PX_ARG_FLOAT),
                                           TRUTH("elementwise_affine", 1), PLACE};
static const px_param prelu_params[] = {WHOLE("num_parameters", 1), REAL("init", 0.25), PLACE};
static const px_param lambd_params[] = {REAL("lambd", 0.5)};
static const px_param hardtanh_params[] = {REAL("min_val", -1), REAL("max_val", 1),
                                           TRUTH("inplace", 0)};
static const px_param threshold_params[] = {REQUIRED("threshold", PX_ARG_FLOAT),
                                            REQUIRED("value", PX_ARG_FLOAT), TRUTH("inplace", 0)};
static const px_param last_dim_params[] = {WHOLE("dim", -1)};
static const px_param shuffle_params[] = {REQUIRED("upscale_factor", PX_ARG_INT)};
static const px_param unshuffle_params[] = {REQUIRED("downscale_factor", PX_ARG_INT)};
static const px_param unflatten_params[] = {REQUIRED("dim", PX_ARG_INT),
                                            REQUIRED("unflattened_size", PX_ARG_INTS)};
static const px_param pad_params[] = {REQUIRED("padding", PX_ARG_INTS)};
static const px_param constant_pad_params[] = {REQUIRED("padding", PX_ARG_INTS),
                                               REQUIRED("value", PX_ARG_FLOAT)};
static const px_param upsample_params[] = {
    OPTIONAL("size", PX_ARG_INTS), OPTIONAL("scale_factor", PX_ARG_FLOAT), WORD("mode", "nearest"),
    OPTIONAL("align_corners", PX_ARG_BOOL)};
static const px_param similarity_params[] = {WHOLE("dim", 1), REAL("eps", 1e-8)};
static const px_param distance_params[] = {REAL("p", 2), REAL("eps", 1e-6), TRUTH("keepdim", 0)};
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
// PyTorch's size_average and reduce, which it has given up, stand before the reduction.
static const px_param kl_div_params[] = {OPTIONAL("size_average", PX_ARG_BOOL),
                                         OPTIONAL("reduce", PX_ARG_BOOL), WORD("reduction", "mean"),
                                         TRUTH("log_target", 0)};
static const px_param margin_params[] = {REAL("margin", 0), OPTIONAL("size_average", PX_ARG_BOOL),
                                         OPTIONAL("reduce", PX_ARG_BOOL),
                                         WORD("reduction", "mean")};
static const px_param hinge_params[] = {REAL("margin", 1), OPTIONAL("size_average", PX_ARG_BOOL),
                                        OPTIONAL("reduce", PX_ARG_BOOL), WORD("reduction", "mean")};
static const px_param triplet_params[] = {REAL("margin", 1),
                                          REAL("p", 2),
                                          REAL("eps", 1e-6),
                                          TRUTH("swap", 0),
                                          OPTIONAL("size_average", PX_ARG_BOOL),
                                          OPTIONAL("reduce", PX_ARG_BOOL),
                                          WORD("reduction", "mean")};
static const px_param poisson_params[] = {TRUTH("log_input", 1),
                                          TRUTH("full", 0),
                                          OPTIONAL("size_average", PX_ARG_BOOL),
                                          REAL("eps", 1e-8),
                                          OPTIONAL("reduce", PX_ARG_BOOL),
                                          WORD("reduction", "mean")};
static const px_param gaussian_params[] = {TRUTH("full", 0), REAL("eps", 1e-6),
                                           WORD("reduction", "mean")};
static const px_param nll_params[] = {OPTIONAL("weight", PX_ARG_TENSOR),
                                      WHOLE("ignore_index", -100), WORD("reduction", "mean")};

// ---- the table

#define PARAMS(array) (array), (int)(sizeof(array) / sizeof *(array))
static const px_module_kind kinds[] = {
    {"AdaptiveAvgPool1d", PARAMS(adaptive_params), px__adaptive_init, px__op_forward,
     "output_size={output_size}", NULL, 1, NULL, "adaptive_avg_pool1d"},
    {"AdaptiveAvgPool2d", PARAMS(adaptive_params), px__adaptive_init, px__op_forward,
     "output_size={output_size}", NULL, 1, NULL, "adaptive_avg_pool2d"},
    {"AvgPool1d", PARAMS(avg_pool1d_params), px__avg_pool1d_init, px__op_forward,
     "kernel_size={kernel_size}, stride={stride}, padding={padding}", NULL, 1, NULL, "avg_pool1d"},
    {"AvgPool2d", PARAMS(avg_pool_params), px__pool_init, px__avg_pool_forward,
     "kernel_size={kernel_size}, stride={stride}, padding={padding}", NULL, 1, NULL, NULL},
    {"BCELoss", PARAMS(bce_params), px__weight_init, px__bce_forward, NULL, NULL, 2, NULL, NULL},
    {"BCEWithLogitsLoss", PARAMS(bce_logits_params), px__two_weights_init, px__bce_logits_forward,
     NULL, NULL, 2, NULL, NULL},
    {"BatchNorm1d", PARAMS(batch_norm_params), px__batch_norm_init, px__batch_norm_forward,
     "{num_features}, eps={eps}, momentum={momentum}, affine={affine}, bias={affine}, "
     "track_running_stats={track_running_stats}",
     NULL, 1, NULL, "1"},
    {"BatchNorm2d", PARAMS(batch_norm_params), px__batch_norm_init, px__batch_norm_forward,
     "{num_features}, eps={eps}, momentum={momentum}, affine={affine}, bias={affine}, "
     "track_running_stats={track_running_stats}",
     NULL, 1, NULL, "2"},
    {"BatchNorm3d", PARAMS(batch_norm_params), px__batch_norm_init, px__batch_norm_forward,
     "{num_features}, eps={eps}, momentum={momentum}, affine={affine}, bias={affine}, "
     "track_running_stats={track_running_stats}",
     NULL, 1, NULL, "3"},
    {"CELU", PARAMS(alpha_params), NULL, px__op_forward, NULL, px__slope_repr, 1, NULL, "celu"},
    {"CircularPad1d", PARAMS(pad_params), px__pad_init, px__pad_forward, "{padding}", NULL, 1, NULL,
     "1 circular"},
    {"CircularPad2d", PARAMS(pad_params), px__pad_init, px__pad_forward, "{padding}", NULL, 1, NULL,
     "2 circular"},
    {"ConstantPad1d", PARAMS(constant_pad_params), px__pad_init, px__pad_forward,
     "padding={padding}, value={value}", NULL, 1, NULL, "1 constant"},
    {"ConstantPad2d", PARAMS(constant_pad_params), px__pad_init, px__pad_forward,
     "padding={padding}, value={value}", NULL, 1, NULL, "2 constant"},
    {"Conv1d", PARAMS(conv_params), px__conv_init, px__conv1d_forward, NULL, px__conv_repr, 1, NULL,
     "conv1d_mode"},
    {"Conv2d", PARAMS(conv_params), px__conv_init, px__conv_forward, NULL, px__conv_repr, 1, NULL,
     "conv2d_mode"},
    {"ConvTranspose1d", PARAMS(conv_transpose_params), px__conv_transpose_init, px__op_forward,
     NULL, px__conv_repr, 1, NULL, "conv_transpose1d"},
    {"ConvTranspose2d", PARAMS(conv_transpose_params), px__conv_transpose_init, px__op_forward,
     NULL, px__conv_repr, 1, NULL, "conv_transpose2d"},
    {"CosineEmbeddingLoss", PARAMS(margin_params), px__reduction_init, px__op_forward, NULL, NULL,
     3, NULL, "cosine_embedding_loss"},
    {"CosineSimilarity", PARAMS(similarity_params), NULL, px__op_forward, NULL, NULL, 2, NULL,
     "cosine_similarity"},
    {"CrossEntropyLoss", PARAMS(cross_entropy_params), px__weight_init, px__cross_entropy_forward,
     NULL, NULL, 2, NULL, NULL},
    {"Dropout", PARAMS(dropout_params), px__dropout_init, px__dropout_forward,
     "p={p}, inplace={inplace}", NULL, 1, NULL, NULL},
    {"Dropout1d", PARAMS(dropout_params), px__dropout_init, px__op_forward,
     "p={p}, inplace={inplace}", NULL, 1, NULL, "dropout1d"},
    {"Dropout2d", PARAMS(dropout_params), px__dropout_init, px__op_forward,
     "p={p}, inplace={inplace}", NULL, 1, NULL, "dropout2d"},
    {"ELU", PARAMS(alpha_params), NULL, px__elu_forward, NULL, px__slope_repr, 1, NULL, NULL},
    {"Embedding", PARAMS(embedding_params), px__embedding_init, px__embedding_forward, NULL,
     px__embedding_repr, 1, NULL, NULL},
    {"Flatten", PARAMS(flatten_params), NULL, px__flatten_forward,
     "start_dim={start_dim}, end_dim={end_dim}", NULL, 1, NULL, NULL},
    {"GELU", PARAMS(gelu_params), NULL, px__gelu_forward, NULL, px__gelu_repr, 1, NULL, NULL},
    {"GLU", PARAMS(last_dim_params), NULL, px__op_forward, "dim={dim}", NULL, 1, NULL, "glu"},
    {"GaussianNLLLoss", PARAMS(gaussian_params), NULL, px__op_forward, NULL, NULL, 3, NULL,
     "gaussian_nll_loss"},
    {"GroupNorm", PARAMS(group_norm_params), px__group_norm_init, px__op_forward,
     "{num_groups}, {num_channels}, eps={eps}, affine={affine}, bias={bias}", NULL, 1, NULL,
     "group_norm"},
    {"Hardshrink", PARAMS(lambd_params), NULL, px__op_forward, "{lambd}", NULL, 1, NULL,
     "hardshrink"},
    {"Hardsigmoid", PARAMS(inplace_params), NULL, px__op_forward, NULL, px__inplace_repr, 1, NULL,
     "hardsigmoid"},
    {"Hardswish", PARAMS(inplace_params), NULL, px__op_forward, NULL, px__inplace_repr, 1, NULL,
     "hardswish"},
    {"Hardtanh", PARAMS(hardtanh_params), NULL, px__op_forward, NULL, px__hardtanh_repr, 1, NULL,
     "hardtanh"},
    {"HingeEmbeddingLoss", PARAMS(hinge_params), px__reduction_init, px__op_forward, NULL, NULL, 2,
     NULL, "hinge_embedding_loss"},
    {"HuberLoss", PARAMS(huber_params), NULL, px__huber_forward, NULL, NULL, 2, NULL, NULL},
    {"Identity", NULL, 0, NULL, px__identity_forward, NULL, NULL, 1, NULL, NULL},
    {"InstanceNorm1d", PARAMS(instance_norm_params), px__batch_norm_init, px__instance_norm_forward,
     "{num_features}, eps={eps}, momentum={momentum}, affine={affine}, bias={affine}, "
     "track_running_stats={track_running_stats}",
     NULL, 1, NULL, "1"},
    {"InstanceNorm2d", PARAMS(instance_norm_params), px__batch_norm_init, px__instance_norm_forward,
     "{num_features}, eps={eps}, momentum={momentum}, affine={affine}, bias={affine}, "
     "track_running_stats={track_running_stats}",
     NULL, 1, NULL, "2"},
    {"KLDivLoss", PARAMS(kl_div_params), px__reduction_init, px__op_forward, NULL, NULL, 2, NULL,
     "kl_div"},
    {"L1Loss", PARAMS(reduction_params), NULL, px__l1_forward, NULL, NULL, 2, NULL, NULL},
    {"LayerNorm", PARAMS(layer_norm_params), px__layer_norm_init, px__layer_norm_forward,
     "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}", NULL, 1, NULL, NULL},
    {"LeakyReLU", PARAMS(slope_params), NULL, px__leaky_relu_forward, NULL, px__slope_repr, 1, NULL,
     NULL},
    {"Linear", PARAMS(linear_params), px__linear_init, px__linear_forward,
     "in_features={in_features}, out_features={out_features}, bias={bias}", NULL, 1, NULL, NULL},
    {"LogSigmoid", NULL, 0, NULL, px__op_forward, NULL, NULL, 1, NULL, "log_sigmoid"},
    {"LogSoftmax", PARAMS(dim_params), NULL, px__log_softmax_forward, "dim={dim}", NULL, 1, NULL,
     NULL},
    {"MSELoss", PARAMS(reduction_params), NULL, px__mse_forward, NULL, NULL, 2, NULL, NULL},
    {"MarginRankingLoss", PARAMS(margin_params), px__reduction_init, px__op_forward, NULL, NULL, 3,
     NULL, "margin_ranking_loss"},
    {"MaxPool1d", PARAMS(max_pool_params), px__pool_init, px__op_forward,
     "kernel_size={kernel_size}, stride={stride}, padding={padding}, dilation={dilation}, "
     "ceil_mode={ceil_mode}",
     NULL, 1, NULL, "max_pool1d"},
    {"MaxPool2d", PARAMS(max_pool_params), px__pool_init, px__max_pool_forward,
     "kernel_size={kernel_size}, stride={stride}, padding={padding}, dilation={dilation}, "
     "ceil_mode={ceil_mode}",
     NULL, 1, NULL, NULL},
    {"Mish", PARAMS(inplace_params), NULL, px__op_forward, NULL, px__inplace_repr, 1, NULL, "mish"},
    {"ModuleDict", NULL, 0, NULL, NULL, NULL, NULL, 1, NULL, NULL},
    {"ModuleList", NULL, 0, NULL, NULL, NULL, NULL, 1, NULL, NULL},
    {"NLLLoss", PARAMS(nll_params), px__weight_init, px__nll_forward, NULL, NULL, 2, NULL, NULL},
    {"PReLU", PARAMS(prelu_params), px__prelu_init, px__op_forward,
     "num_parameters={num_parameters}", NULL, 1, NULL, "prelu"},
    {"PairwiseDistance", PARAMS(distance_params), NULL, px__op_forward, NULL, NULL, 2, NULL,
     "pairwise_distance"},
    {"PixelShuffle", PARAMS(shuffle_params), NULL, px__op_forward,
     "upscale_factor={upscale_factor}", NULL, 1, NULL, "pixel_shuffle"},
    {"PixelUnshuffle", PARAMS(unshuffle_params), NULL, px__op_forward,
     "downscale_factor={downscale_factor}", NULL, 1, NULL, "pixel_unshuffle"},
    {"PoissonNLLLoss", PARAMS(poisson_params), px__reduction_init, px__op_forward, NULL, NULL, 2,
     NULL, "poisson_nll_loss"},
    {"RMSNorm", PARAMS(rms_norm_params), px__rms_norm_init, px__op_forward,
     "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}", NULL, 1, NULL,
     "rms_norm"},
    {"ReLU", PARAMS(inplace_params), NULL, px__relu_forward, NULL, px__inplace_repr, 1, NULL, NULL},
    {"ReLU6", PARAMS(inplace_params), NULL, px__op_forward, NULL, px__inplace_repr, 1, NULL,
     "relu6"},
    {"ReflectionPad1d", PARAMS(pad_params), px__pad_init, px__pad_forward, "{padding}", NULL, 1,
     NULL, "1 reflect"},
    {"ReflectionPad2d", PARAMS(pad_params), px__pad_init, px__pad_forward, "{padding}", NULL, 1,
     NULL, "2 reflect"},
    {"ReplicationPad1d", PARAMS(pad_params), px__pad_init, px__pad_forward, "{padding}", NULL, 1,
     NULL, "1 replicate"},
    {"ReplicationPad2d", PARAMS(pad_params), px__pad_init, px__pad_forward, "{padding}", NULL, 1,
     NULL, "2 replicate"},
    {"SELU", PARAMS(inplace_params), NULL, px__op_forward, NULL, px__inplace_repr, 1, NULL, "selu"},
    {"Sequential", NULL, 0, NULL, px__sequential_forward, NULL, NULL, 1, NULL, NULL},
    {"SiLU", PARAMS(inplace_params), NULL, px__silu_forward, NULL, px__inplace_repr, 1, NULL, NULL},
    {"Sigmoid", NULL, 0, NULL, px__sigmoid_forward, NULL, NULL, 1, NULL, NULL},
    {"SmoothL1Loss", PARAMS(smooth_l1_params), NULL, px__smooth_l1_forward, NULL, NULL, 2, NULL,
     NULL},
    {"SoftMarginLoss", PARAMS(reduction_params), NULL, px__op_forward, NULL, NULL, 2, NULL,
     "soft_margin_loss"},
    {"Softmax", PARAMS(dim_params), NULL, px__softmax_forward, "dim={dim}", NULL, 1, NULL, NULL},
    {"Softmin", PARAMS(dim_params), NULL, px__softmin_forward, "dim={dim}", NULL, 1, NULL,
     "softmin"},
    {"Softplus", PARAMS(softplus_params), NULL, px__softplus_forward,
     "beta={beta}, threshold={threshold}", NULL, 1, NULL, NULL},
    {"Softshrink", PARAMS(lambd_params), NULL, px__op_forward, "{lambd}", NULL, 1, NULL,
     "softshrink"},
    {"Softsign", NULL, 0, NULL, px__op_forward, NULL, NULL, 1, NULL, "softsign"},
    {"Tanh", NULL, 0, NULL, px__tanh_forward, NULL, NULL, 1, NULL, NULL},
    {"Tanhshrink", NULL, 0, NULL, px__op_forward, NULL, NULL, 1, NULL, "tanhshrink"},
    {"Threshold", PARAMS(threshold_params), NULL, px__op_forward, NULL, px__threshold_repr, 1, NULL,
     "threshold"},
    {"TripletMarginLoss", PARAMS(triplet_params), px__reduction_init, px__op_forward, NULL, NULL, 3,
     NULL, "triplet_margin_loss"},
    {"Unflatten", PARAMS(unflatten_params), NULL, px__unflatten_forward,
     "dim={dim}, unflattened_size={unflattened_size}", NULL, 1, NULL, "unflatten"},
    {"Upsample", PARAMS(upsample_params), px__upsample_init, px__upsample_forward, NULL,
     px__upsample_repr, 1, NULL, "resize_images"},
    {"ZeroPad1d", PARAMS(pad_params), px__pad_init, px__pad_forward, "{padding}", NULL, 1, NULL,
     "1 constant"},
    {"ZeroPad2d", PARAMS(pad_params), px__pad_init, px__pad_forward, "{padding}", NULL, 1, NULL,
     "2 constant"},
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
