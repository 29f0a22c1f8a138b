// SPDX-License-Identifier: Apache-2.0
// Second names of functions and methods, a data table; the first names are the core's.
#pragma once

static const struct {
  char space, from;
  const char *alias, *name;
} op_aliases[] = {
#define BOTH(alias, name) \
  {'f', 'f', alias, name}, { 'm', 'm', alias, name }
    BOTH("absolute", "abs"),
    BOTH("absolute_", "abs_"),
    BOTH("negative", "neg"),
    BOTH("negative_", "neg_"),
    BOTH("multiply", "mul"),
    BOTH("multiply_", "mul_"),
    BOTH("subtract", "sub"),
    BOTH("subtract_", "sub_"),
    BOTH("divide", "div"),
    BOTH("divide_", "div_"),
    BOTH("true_divide", "div"),
    BOTH("true_divide_", "div_"),
    BOTH("greater", "gt"),
    BOTH("greater_equal", "ge"),
    BOTH("less", "lt"),
    BOTH("less_equal", "le"),
    BOTH("not_equal", "ne"),
    BOTH("clip", "clamp"),
    BOTH("clip_", "clamp_"),
    BOTH("fix", "trunc"),
    BOTH("arccos", "acos"),
    BOTH("arcsin", "asin"),
    BOTH("arctan", "atan"),
    BOTH("arctan2", "atan2"),
    BOTH("arccosh", "acosh"),
    BOTH("arcsinh", "asinh"),
    BOTH("arctanh", "atanh"),
    BOTH("swapaxes", "transpose"),
    BOTH("swapdims", "transpose"),
    BOTH("moveaxis", "movedim"),
    BOTH("ger", "outer"),
    {'f', 'f', "concat", "cat"},
    {'f', 'f', "concatenate", "cat"},
    {'f', 'f', "row_stack", "vstack"},
    {'f', 'm', "fill_", "fill_"},
    {'f', 'm', "zero_", "zero_"},
    {'n', 'f', "relu", "relu"},
    {'n', 'f', "relu_", "relu_"},
    {'n', 'f', "sigmoid", "sigmoid"},
    {'n', 'f', "tanh", "tanh"},
    {'n', 'f', "softmax", "softmax"},
    {'n', 'f', "log_softmax", "log_softmax"},
    {'n', 'f', "dropout", "dropout"},
    {'n', 'f', "layer_norm", "layer_norm"},
    {'n', 'f', "conv1d", "conv1d"},
    {'n', 'f', "conv2d", "conv2d"},
    {'n', 'f', "logsigmoid", "log_sigmoid"},
    {'n', 'n', "logsigmoid", "log_sigmoid"},
    {'n', 'f', "one_hot", "one_hot"},
    {'n', 'f', "cosine_similarity", "cosine_similarity"},
#undef BOTH
};
