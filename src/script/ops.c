// SPDX-License-Identifier: Apache-2.0
// Calls of the library's ops by the names and argument orders of PyTorch's dispatcher.
#include <stdio.h>
#include <stdlib.h>

#include "script/script_impl.h"

enum { ARGS = 24, TEMPORARIES = 24 };

// The arguments of a call, converted for one op.
typedef struct matching {
  px_value values[ARGS];
  void *arrays[TEMPORARIES];
  px_tensor *tensors[TEMPORARIES];
  int array_count, tensor_count;
} matching;
static void matching_free(matching *m) {
  for (int i = 0; i < m->array_count; i++) px_free(m->arrays[i]);
  for (int i = 0; i < m->tensor_count; i++) px_release(m->tensors[i]);
}

// ---- conversion: *fits is false if the value does not suit the parameter

static px_status new_array(void **out, matching *m, int64_t count) {
  PX_CHECK(m->array_count < TEMPORARIES && count < INT32_MAX / 8, PX_UNIMPLEMENTED,
           "a call with larger lists is not supported");
  PX_TRY(px_alloc(out, (size_t)(count + 1) * 8));
  m->arrays[m->array_count++] = *out;
  return PX_OK;
}

static px_status convert_list(px_value *out, matching *m, const px__box *list, bool tensors,
                              bool *fits) {
  void *array;
  PX_TRY(new_array(&array, m, list->count));
  for (int64_t i = 0; i < list->count && *fits; i++) {
    px__var item = list->items[i];
    *fits = item.sort == PX__INT ? !tensors : tensors && item.sort == PX__TENSOR;
    if (*fits && tensors) ((px_tensor **)array)[i] = item.v.tensor;
    if (*fits && !tensors) ((int64_t *)array)[i] = item.v.i;
  }
  *out = tensors ? PX_TS(array, list->count) : PX_IS(array, list->count);
  return PX_OK;
}

// Integers stand for enums of the dispatcher.
static const char *word_of(const px_param *param, int64_t number) {
  static const char *const reductions[] = {"none", "mean", "sum"};
  static const char *const formats[] = {"contiguous_format", "preserve_format", "channels_last",
                                        "channels_last_3d"};
  if (px__is(param->name, "reduction") && number >= 0 && number < 3) return reductions[number];
  if (px__is(param->name, "memory_format") && number >= 0 && number < 4) return formats[number];
  return NULL;
}

static px_status convert_tensor(px_value *out, matching *m, px__var v, bool *fits) {
  if (v.sort == PX__TENSOR) return *out = PX_T(v.v.tensor), PX_OK;
  if (px__is_number(v)) return *out = PX_S(px__to_scalar(v)), PX_OK;
  *fits = v.sort == PX__COMPLEX && m->tensor_count < TEMPORARIES;
  if (!*fits) return PX_OK;
  px_tensor **made = &m->tensors[m->tensor_count];
  PX_TRY(px_tensor_from_complex(made, v.v.c));
  m->tensor_count++;
  return *out = PX_T(*made), PX_OK;
}

static px_status convert_scalar(px_value *out, px__var v, bool *fits) {
  px_scalar s;
  if (px__is_number(v)) return *out = PX_S(px__to_scalar(v)), PX_OK;
  *fits = v.sort == PX__TENSOR && !px_tensor_ndim(v.v.tensor);
  if (!*fits) return PX_OK;
  PX_TRY(px_tensor_item(&s, v.v.tensor));
  return *out = PX_S(s), PX_OK;
}

static px_status convert(px_value *out, matching *m, const px_param *param, px__var v, bool *fits) {
  bool list = v.sort == PX__LIST || v.sort == PX__TUPLE;
  const char *word = v.sort == PX__INT ? word_of(param, v.v.i) : NULL;
  *fits = true;
  *out = PX_NONE();
  if (v.sort == PX__NONE) return *fits = param->optional || param->has_default, PX_OK;
  switch (param->kind) {
    case PX_ARG_TENSOR:
      return convert_tensor(out, m, v, fits);
    case PX_ARG_TENSORS:
    case PX_ARG_INTS:
      if (list) return convert_list(out, m, v.v.box, param->kind == PX_ARG_TENSORS, fits);
      *fits = v.sort == PX__INT && param->kind == PX_ARG_INTS;
      if (*fits) {
        void *one;
        PX_TRY(new_array(&one, m, 1));
        *(int64_t *)one = v.v.i;
        *out = PX_IS(one, 1);
        out->category = 'i';
      }
      return PX_OK;
    case PX_ARG_SCALAR:
      return convert_scalar(out, v, fits);
    case PX_ARG_INT:
      *fits = v.sort == PX__INT || v.sort == PX__BOOL;
      return *out = PX_I(v.v.i), PX_OK;
    case PX_ARG_FLOAT:
      *fits = px__is_number(v);
      if (*fits) *out = PX_F(px__to_float(v));
      return PX_OK;
    case PX_ARG_BOOL:
      *fits = v.sort == PX__BOOL;
      return *out = PX_B(v.v.i != 0), PX_OK;
    case PX_ARG_DTYPE:
      *fits = v.sort == PX__INT && px__dtype_of(v.v.i) != PX_DTYPE_NONE;
      if (*fits) *out = PX_DT(px__dtype_of(v.v.i));
      return PX_OK;
    case PX_ARG_DEVICE:
      *fits = v.sort == PX__DEVICE;
      if (*fits) *out = PX_DV(v.v.device);
      return PX_OK;
    case PX_ARG_TEXT:
      *fits = v.sort == PX__TEXT || word;
      if (*fits) *out = PX_TX(word ? word : v.v.box->text);
      return PX_OK;
    default:
      return *fits = false, PX_OK;
  }
}

static int parameter_index(const px_op *op, const char *name) {
  for (int i = 0; i < op->param_count; i++)
    if (px__is(op->params[i].name, name)) return i;
  return -1;
}

// Arguments without an effect here, at their usual values.
static bool is_ignored(const px__named_var *arg) {
  static const char *const names[] = {"layout",       "pin_memory", "memory_format", "implicit",
                                      "non_blocking", "generator",  "cudnn_enabled"};
  bool usual =
      arg->value.sort == PX__NONE || (px__is_number(arg->value) && !px__to_float(arg->value));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (px__is(arg->name, names[i])) return usual || px__is(names[i], "memory_format");
  return false;
}

static px_status match(matching *m, const px_op *op, const px__named_var *given, int count,
                       bool *fits) {
  bool set[ARGS] = {false};
  *fits = op->param_count <= ARGS;
  for (int i = 0; i < op->param_count && *fits; i++) m->values[i] = PX_NONE();
  for (int i = 0; i < count && *fits; i++) {
    int at = given[i].name ? parameter_index(op, given[i].name) : i;
    if (given[i].name && (px__is(given[i].name, "out") || (at < 0 && is_ignored(&given[i]))))
      continue;
    *fits = at >= 0 && at < op->param_count && !set[at];
    if (!*fits) return PX_OK;
    set[at] = true;
    PX_TRY(convert(&m->values[at], m, &op->params[at], given[i].value, fits));
  }
  for (int i = 0; i < op->param_count && *fits; i++)
    *fits = set[i] || op->params[i].has_default || op->params[i].optional;
  return PX_OK;
}

// ---- results

static px_status list_result(px__var *out, px_script *script, px_list *take) {
  PX_SCOPED(px_list) list = take;
  PX_TRY(px__box_new(out, script, PX__LIST));
  for (int64_t i = 0; i < px_list_size(list); i++)
    PX_TRY(px__push(out->v.box, (px__var){PX__TENSOR, {.tensor = px_list_get(list, i)}}));
  return PX_OK;
}

static px_status tuple_result(px__var *out, px_script *script, void **results, int count) {
  px_status status = px__box_new(out, script, PX__TUPLE);
  for (int i = 0; i < count; i++) {
    PX__SCOPED_VAR one = results[i] ? px__of_tensor(results[i]) : px__none();
    if (status == PX_OK) status = px__push(out->v.box, one);
  }
  return status;
}

static px_status run(px__var *out, px_script *script, const px_op *op, px_call_mode mode,
                     const matching *m, px_tensor *to) {
  void *results[ARGS] = {to};
  PX_CHECK(op->result_count <= ARGS, PX_UNIMPLEMENTED, "%s has too many results", op->name);
  PX_TRY(px_op_call(op, mode, m->values, results));
  if (op->flags & PX_OP_RETURNS_LIST) return list_result(out, script, results[0]);
  if (op->result_count != 1) return tuple_result(out, script, results, op->result_count);
  return *out = px__of_tensor(results[0]), PX_OK;
}

// ---- the dispatcher's names and argument orders

typedef struct order {
  const char *name, *op;
  const char *take;  // a letter for each argument of the op: 'a' is the first
} order;
static const order orders[] = {
    {"batch_norm", "batch_norm", "adebcfgh"},
    {"instance_norm", "instance_norm", "adebcfgh"},
    {"layer_norm", "layer_norm", "abcde"},
    {"group_norm", "group_norm", "abcde"},
    {"embedding", "embedding", "bac"},
    {"_convolution", "convolution", "abcdefghi"},
    {"expand", "expand", "ab"},
    {"im2col", "unfold_images", "abcde"},
    {"cross_entropy_loss", "cross_entropy", "abcedf"},
    {"nll_loss", "nll_loss", "abced"},
    {"nll_loss_nd", "nll_loss", "abced"},
};
// Names of the dispatcher, and the op or the mode of each.
typedef const char *const pair[2];
static pair pads[] = {{"constant_pad_nd", "constant"},    {"reflection_pad1d", "reflect"},
                      {"reflection_pad2d", "reflect"},    {"reflection_pad3d", "reflect"},
                      {"replication_pad1d", "replicate"}, {"replication_pad2d", "replicate"},
                      {"replication_pad3d", "replicate"}};
static pair renamed[] = {{"__and__", "bitwise_and"},
                         {"__or__", "bitwise_or"},
                         {"__xor__", "bitwise_xor"},
                         {"__lshift__", "bitwise_left_shift"},
                         {"__rshift__", "bitwise_right_shift"},
                         {"floordiv", "floor_divide"},
                         {"__not__", "logical_not"},
                         {"adaptive_max_pool1d", "adaptive_max_pool1d_with_indices"},
                         {"adaptive_max_pool2d", "adaptive_max_pool2d_with_indices"},
                         {"adaptive_max_pool3d", "adaptive_max_pool3d_with_indices"},
                         {"_softmax", "softmax"},
                         {"_log_softmax", "log_softmax"}};

static pair resizes[] = {{"upsample_nearest1d", "nearest"},
                         {"upsample_nearest2d", "nearest"},
                         {"upsample_nearest3d", "nearest"},
                         {"upsample_linear1d", "linear"},
                         {"upsample_bilinear2d", "bilinear"},
                         {"upsample_trilinear3d", "trilinear"},
                         {"upsample_bicubic2d", "bicubic"},
                         {"_upsample_nearest_exact1d", "nearest-exact"},
                         {"_upsample_nearest_exact2d", "nearest-exact"},
                         {"_upsample_nearest_exact3d", "nearest-exact"}};

#define SECOND_OF(pairs, name) second_of(pairs, sizeof(pairs) / sizeof *(pairs), name)
static const char *second_of(pair *pairs, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++)
    if (px__is(pairs[i][0], name)) return pairs[i][1];
  return NULL;
}

// upsample_MODE(input, size, [align_corners,] scales) becomes resize_images.
static px_status rewrite_resize(const char **name, px__named_var *given, int *count,
                                px_script *script, px__var *made) {
  static const char *const scales[] = {"scale_width", "scale_height", "scale_depth"};
  const char *mode = SECOND_OF(resizes, *name);
  if (!mode || *count < 2 || given[1].name) return PX_OK;
  bool aligned = *count > 2 && given[2].value.sort == PX__BOOL;
  px__var align = aligned ? given[2].value : px__of_bool(false);
  px__var factors = *count > 2 + aligned ? given[2 + aligned].value : px__none();
  bool list = factors.sort == PX__LIST && factors.v.box->count <= 3;
  if (*count > 3 + aligned || (!list && factors.sort != PX__NONE)) return PX_OK;
  PX_TRY(px__text_new(made, script, mode, strlen(mode)));
  given[2] = (px__named_var){"mode", *made};
  given[3] = (px__named_var){"align_corners", align};
  *count = 4;
  for (int64_t i = list ? factors.v.box->count - 1 : -1, k = 0; i >= 0; i--, k++)
    given[(*count)++] = (px__named_var){scales[k], factors.v.box->items[i]};
  *name = "resize_images";
  return PX_OK;
}

// Rewrites a call in place. `made` keeps a new text.
static px_status rewrite(const char **name, px__named_var *given, int *count, px_script *script,
                         px__var *made) {
  px__named_var old[ARGS];
  const char *other = SECOND_OF(renamed, *name), *padding = SECOND_OF(pads, *name);
  if (other) *name = other;
  for (int i = 0; i < *count && i < ARGS; i++) old[i] = given[i];
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    int n = (int)strlen(orders[i].take);
    if (strcmp(*name, orders[i].name) || *count < 2) continue;
    const px_op *op = px_op_find(orders[i].op);
    int used = 0;
    for (int k = 0; op && k < n && used < ARGS; k++) {  // by name: earlier ones may be missing
      int from = orders[i].take[k] - 'a';
      if (from < *count) given[used++] = (px__named_var){op->params[k].name, old[from].value};
    }
    *count = used;
    *name = orders[i].op;
    if (px__is(*name, "embedding") && used == 3 && given[2].value.v.i == -1)
      given[2].value = px__none();
    return PX_OK;
  }
  if (padding && *count >= 2) {
    PX_TRY(px__text_new(made, script, padding, strlen(padding)));
    given[2] = (px__named_var){NULL, *made};
    if (*count > 2) given[3] = old[2];
    *count = *count > 2 ? 4 : 3;
    *name = "pad";
    return PX_OK;
  }
  bool unbiased = (px__is(*name, "var") || px__is(*name, "std")) && *count > 1;
  int flag = unbiased && given[1].value.sort == PX__BOOL && !given[1].name ? 1 : 2;
  if (unbiased && *count > flag && given[flag].value.sort == PX__BOOL && !given[flag].name) {
    px__var dim = flag == 2 ? old[1].value : px__none();
    given[2] = (px__named_var){"correction", px__of_int(old[flag].value.v.i)};
    if (*count > 3) given[3] = (px__named_var){"keepdim", old[3].value};
    given[1] = (px__named_var){NULL, dim};
    *count = *count > 3 ? 4 : 3;
  }
  return PX_OK;
}

// ---- the call

// Calls an op if the arguments fit its parameters.
static px_status attempt(px__var *out, px_script *script, const px_op *op, bool inplace,
                         const px__named_var *given, int count, bool *known) {
  __attribute__((cleanup(matching_free))) matching m = {0};
  px_tensor *to = NULL;
  PX_TRY(match(&m, op, given, count, known));
  if (!*known) return PX_OK;
  for (int i = 0; i < count; i++)
    if (given[i].name && px__is(given[i].name, "out") && given[i].value.sort == PX__TENSOR)
      to = given[i].value.v.tensor;
  return run(out, script, op, inplace ? PX_CALL_INPLACE : to ? PX_CALL_OUT : PX_CALL_NEW, &m, to);
}

static bool has_name(const px_op *op, const char *name) {
  if (px__is(op->name, name) || px__is(op->python_name, name)) return true;
  size_t length = strlen(name);
  for (const char *at = op->aliases; at && (at = strstr(at, name)); at += length) {
    bool begins = at == op->aliases || at[-1] == ' ' ||
                  (at - op->aliases >= 3 && !strncmp(at - 3, "nn.", 3)) ||
                  (at - op->aliases >= 6 && !strncmp(at - 6, "torch.", 6));
    if (begins && (!at[length] || at[length] == ' ')) return true;
  }
  return false;
}

static px_status call_library(px__var *out, px_script *script, px__node *site, const char *name,
                              const px__named_var *given, int count, bool *known) {
  char plain[96];
  size_t length = strlen(name);
  bool inplace =
      length > 1 && length < sizeof plain && name[length - 1] == '_' && name[length - 2] != '_';
  snprintf(plain, sizeof plain, "%.*s", (int)(inplace ? length - 1 : length), name);
  if (site->op) {  // the op of the last call here
    PX_TRY(attempt(out, script, site->op, inplace, given, count, known));
    if (*known) return PX_OK;
  }
  for (int i = 0; i < px_op_count(); i++) {
    const px_op *op = px_op_at(i);
    if (!has_name(op, plain) || (!inplace && op->flags & PX_OP_ONLY_INPLACE)) continue;
    PX_TRY(attempt(out, script, op, inplace, given, count, known));
    if (*known) return site->op = op, PX_OK;
  }
  return PX_OK;
}

static px_status call_builtin(px__var *out, px_script *script, const char *name,
                              const px__named_var *given, int count, bool *known) {
  static px__builtin *const tables[] = {px__call_numbers, px__call_texts,   px__call_lists,
                                        px__call_dicts,   px__call_general, px__call_tensors};
  px__var values[ARGS];
  bool named = false, plain = px__is(name, "tensor") || px__is(name, "to");
  for (int i = 0; i < count; i++) {
    named |= given[i].name && !plain;
    values[i] = given[i].value;
  }
  for (size_t i = 0; i < sizeof tables / sizeof *tables && !named && !*known; i++) {
    *known = false;
    PX_TRY(tables[i](out, script, name, values, count, known));
  }
  return PX_OK;
}

// Describes a call in an error: "add(Tensor, int)".
static px_status refuse(const char *name, const px__named_var *given, int count) {
  char text[400];
  size_t used = 0;
  *text = 0;
  for (int i = 0; i < count && used < sizeof text; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s%s", i ? ", " : "",
                             given[i].name ? given[i].name : "", given[i].name ? "=" : "",
                             px__sort_name(given[i].value));
  PX_FAIL(PX_UNIMPLEMENTED, "TorchScript: the call %.100s(%s) is not supported", name, text);
}

px_status px__call_op(px__var *out, px_script *script, px__node *site, const char *name,
                      const px__named_var *given, int count) {
  px__named_var changed[ARGS + 4];
  PX__SCOPED_VAR made = {0};
  const char *op = name;
  bool known = false;
  *out = (px__var){0};
  if (count > ARGS) return refuse(name, given, count);
  PX_TRY(call_builtin(out, script, name, given, count, &known));
  if (known) return PX_OK;
  memcpy(changed, given, (size_t)count * sizeof *given);
  PX_TRY(rewrite(&op, changed, &count, script, &made));
  PX_TRY(rewrite_resize(&op, changed, &count, script, &made));
  PX_TRY(call_library(out, script, site, op, changed, count, &known));
  return known ? PX_OK : refuse(name, given, count);
}
