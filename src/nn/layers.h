// SPDX-License-Identifier: Apache-2.0
// The functions that the rows of layers.c name: initialisation in layer_init.c, forward in
// layer_forward.c.
#pragma once
#include "nn/nn_impl.h"

// Of kinds whose detail says it: the dimensions of signals (1), images (2) or volumes (3).
int px__dims_of(const px_module *self);

px_status px__linear_init(px_module *self);
px_status px__conv_init(px_module *self);
px_status px__batch_norm_init(px_module *self);
px_status px__layer_norm_init(px_module *self);
px_status px__embedding_init(px_module *self);
px_status px__dropout_init(px_module *self);
px_status px__pool_init(px_module *self);
px_status px__weight_init(px_module *self);
px_status px__two_weights_init(px_module *self);
px_status px__reduction_init(px_module *self);

px_status px__conv_transpose_init(px_module *self);
px_status px__adaptive_init(px_module *self);
px_status px__avg_pool1d_init(px_module *self);
px_status px__upsample_init(px_module *self);
px_status px__group_norm_init(px_module *self);
px_status px__rms_norm_init(px_module *self);
px_status px__prelu_init(px_module *self);
px_status px__pad_init(px_module *self);

px_status px__linear_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__conv_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__max_pool_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                               int count);
px_status px__avg_pool_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                               int count);
px_status px__batch_norm_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                 int count);
px_status px__layer_norm_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                 int count);
px_status px__embedding_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                int count);
px_status px__dropout_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                              int count);
px_status px__relu_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__leaky_relu_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                 int count);
px_status px__gelu_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__silu_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__tanh_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__sigmoid_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                              int count);
px_status px__softmax_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                              int count);
px_status px__log_softmax_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                  int count);
px_status px__flatten_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                              int count);
px_status px__identity_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                               int count);
px_status px__sequential_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                 int count);
px_status px__elu_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__softplus_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                               int count);
px_status px__bce_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__bce_logits_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                 int count);
px_status px__smooth_l1_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                int count);
px_status px__huber_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__mse_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__l1_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__cross_entropy_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                    int count);
px_status px__nll_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
// Calls the op that the kind names: the inputs come first, the other arguments are the attributes
// and the tensors of the same names.
px_status px__op_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__instance_norm_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                    int count);
px_status px__conv1d_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__softmin_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                              int count);
px_status px__pad_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
px_status px__upsample_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                               int count);
px_status px__unflatten_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                int count);

void px__conv_repr(const px_module *self, char *text, size_t room);
void px__embedding_repr(const px_module *self, char *text, size_t room);
void px__gelu_repr(const px_module *self, char *text, size_t room);
void px__inplace_repr(const px_module *self, char *text, size_t room);
void px__slope_repr(const px_module *self, char *text, size_t room);
void px__upsample_repr(const px_module *self, char *text, size_t room);
void px__threshold_repr(const px_module *self, char *text, size_t room);
void px__hardtanh_repr(const px_module *self, char *text, size_t room);
