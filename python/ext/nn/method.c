// SPDX-License-Identifier: Apache-2.0
// Methods of layers with non-tensor parameters, and the functional form of attention.
#include "nn/nn.h"

enum { MAX_ARGS = 16 };

static void fill_spec(ext_call_spec *spec, const px_module_kind *kind, const px_module_method *m) {
  *spec = (ext_call_spec){.owner = kind->name, .method = m->name, .count = m->param_count};
  for (int i = 0; i < m->param_count; i++) {
    spec->names[i] = m->params[i].name;
    spec->optional[i] = m->params[i].has_default;
  }
}

static int convert_value(const char *owner, const px_param *param, PyObject *given, px_value *out,
                         ext_ints *ints) {
  int fits = given ? ext_to_value(given, param->kind, out, ints) : (*out = PX_NONE(), 1);
  if (fits < 0) return -1;
  bool none = out->kind == PX_ARG_NONE;
  if (none && param->has_default) *out = param->fallback;
  if (fits && (!none || param->optional || param->has_default)) return 0;
  EXT_FAIL_INT(PyExc_TypeError, "%s(): argument '%s' must be %s, not %s", owner, param->name,
               param->kind == PX_ARG_TENSOR ? "Tensor" : px_arg_name(param->kind),
               ext_type_name(given));
}

// Dispatches the library's method to overrides by an argument or a mode.
static PyObject *dispatch(PyObject *self, const px_module_method *m, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames) {
  PyObject *all[1 + MAX_ARGS] = {self};
  Py_ssize_t count = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  PyTypeObject *library = ((ext_module_object *)self)->class->library;
  EXT_OWNED *method = PyObject_GetAttrString((PyObject *)library, m->name);
  for (Py_ssize_t i = 0; i < count && i < MAX_ARGS; i++) all[1 + i] = args[i];
  return method ? ext_call_override(method, all, nargs + 1, kwnames) : NULL;
}

PyObject *ext_module_method(PyObject *self, int which, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames) {
  const px_module_kind *kind = ((ext_module_object *)self)->class->native;
  const px_module_method *m = &kind->methods[which];
  PyObject *given[MAX_ARGS] = {NULL};
  px_value values[MAX_ARGS];
  px_tensor *results[EXT_PORTS] = {NULL};
  ext_ints ints;
  ext_call_spec spec;
  char owner[128];
  if (!ext_module(self))
    EXT_FAIL(PyExc_AttributeError, "'%s' object was called before its Module.__init__()",
             ext_type_name(self));
  fill_spec(&spec, kind, m);
  if (ext_bind_names(&spec, args, nargs, kwnames, given) < 0) return NULL;
  if (ext_module_is_overridden(given, m->param_count))
    return dispatch(self, m, args, nargs, kwnames);
  snprintf(owner, sizeof owner, "%s.%s", kind->name, m->name);
  for (int i = 0; i < m->param_count; i++)
    if (convert_value(owner, &m->params[i], given[i], &values[i], &ints) < 0) return NULL;
  EXT_WAIT(m->run(results, ext_module(self), values));
  return which ? ext_wrap(results[0]) : ext_wrap_results(kind, results);
}

// Functions called by Python, one per index of the kinds' tables. Index 0 is forward, defined by
// the layer's type.
#define METHODS(XX) XX(1) XX(2) XX(3)
#define METHOD(i) \
  static PyObject *method_##i(PyObject *self, PyObject *const *args, Py_ssize_t nargs, \
                              PyObject *kwnames) { \
    return ext_module_method(self, i, args, nargs, kwnames); \
  }
METHODS(METHOD)
#define NAME(i) , method_##i
const _PyCFunctionFastWithKeywords ext_module_methods[] = {NULL METHODS(NAME)};

// ---- functional attention

EXT_FUNCTION(nn_functional, multi_head_attention_forward,
             "(query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, "
             "in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None, "
             "bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float, out_proj_weight: "
             "Tensor, out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: "
             "Tensor | None = None, need_weights: bool = True, attn_mask: Tensor | None = None, "
             "use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None, "
             "k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None, static_k: "
             "Tensor | None = None, static_v: Tensor | None = None, average_attn_weights: bool = "
             "True, is_causal: bool = False) -> tuple[Tensor, Tensor | None]",
             "Computes multi-head attention as MultiheadAttention does, with its arguments and "
             "tensors.\n\n"
             "Returns:\n"
             "    the output, and the weights, or None unless need_weights") {
  px_tensor *query, *key, *value, *in_proj_weight, *in_proj_bias, *bias_k, *bias_v,
      *out_proj_weight, *out_proj_bias, *key_padding_mask, *attn_mask, *q_proj_weight,
      *k_proj_weight, *v_proj_weight, *static_k, *static_v, *results[2];
  int64_t embed_dim_to_check, num_heads;
  double dropout_p;
  bool add_zero_attn, training, need_weights, use_separate_proj_weight, average_attn_weights,
      is_causal;
  EXT_BIND(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k,
           bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training,
           key_padding_mask, need_weights, attn_mask, use_separate_proj_weight, q_proj_weight,
           k_proj_weight, v_proj_weight, static_k, static_v, average_attn_weights, is_causal);
  const px_attention a = {.query = query,
                          .key = key,
                          .value = value,
                          .embed_dim = embed_dim_to_check,
                          .num_heads = num_heads,
                          .in_proj_weight = in_proj_weight,
                          .in_proj_bias = in_proj_bias,
                          .bias_k = bias_k,
                          .bias_v = bias_v,
                          .add_zero_attn = add_zero_attn,
                          .dropout_p = dropout_p,
                          .out_proj_weight = out_proj_weight,
                          .out_proj_bias = out_proj_bias,
                          .training = training,
                          .key_padding_mask = key_padding_mask,
                          .need_weights = need_weights,
                          .attn_mask = attn_mask,
                          .use_separate_proj_weight = use_separate_proj_weight,
                          .q_proj_weight = q_proj_weight,
                          .k_proj_weight = k_proj_weight,
                          .v_proj_weight = v_proj_weight,
                          .static_k = static_k,
                          .static_v = static_v,
                          .average_attn_weights = average_attn_weights,
                          .is_causal = is_causal};
  EXT_WAIT(px_multi_head_attention(&results[0], &results[1], &a));
  return ext_wrap_results(px_module_kind_find("MultiheadAttention"), results);
}
