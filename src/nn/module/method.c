// SPDX-License-Identifier: Apache-2.0
// Methods of modules: calls by name with arguments of any kind. A method is implemented by the
// library or by a binding, which may override any of them.
#include "nn/module/nn_impl.h"

#include <stdio.h>

enum { ARGUMENTS = 16 };

static const px_module_method *method_of(const px_module_kind *kind, const char *name) {
  for (int i = 0; i < kind->method_count; i++)
    if (!strcmp(kind->methods[i].name, name)) return &kind->methods[i];
  return NULL;
}

// ---- arguments

static int index_of(const px_module_method *method, const px_named_value *arg, int position) {
  int at = 0;
  if (!arg->name) return position;
  while (at < method->param_count && strcmp(method->params[at].name, arg->name)) at++;
  return at;
}

static px_status check_value(const px_module *self, const px_module_method *method, int at,
                             px_value value) {
  const px_param *param = &method->params[at];
  bool none = value.kind == PX_ARG_NONE;
  PX_CHECK(!none || param->optional, PX_TYPE,
           "%s.%s() missing 1 required positional argument: '%s'", self->kind->name, method->name,
           param->name);
  PX_CHECK(none || value.kind == param->kind, PX_TYPE, "%s.%s(): argument '%s' must be %s, not %s",
           self->kind->name, method->name, param->name, px_arg_name(param->kind),
           px_arg_name(value.kind));
  return PX_OK;
}

static px_status bind(px_value *out, const px_module *self, const px_module_method *method,
                      const px_named_value *args, int count) {
  const char *kind = self->kind->name;
  bool given[ARGUMENTS] = {false};
  PX_CHECK(method->param_count <= ARGUMENTS, PX_BUG, "%s has too many parameters", method->name);
  for (int i = 0; i < count; i++) {
    int at = index_of(method, &args[i], i);
    PX_CHECK(at < method->param_count || args[i].name, PX_TYPE,
             "%s.%s() takes %d positional arguments but %d were given", kind, method->name,
             method->param_count + 1, count + 1);
    PX_CHECK(at < method->param_count, PX_TYPE, "%s.%s() got an unexpected keyword argument '%s'",
             kind, method->name, args[i].name);
    PX_CHECK(!given[at], PX_TYPE, "%s.%s() got multiple values for argument '%s'", kind,
             method->name, args[i].name);
    out[at] = args[i].value, given[at] = true;
  }
  for (int at = 0; at < method->param_count; at++) {
    if (!given[at]) out[at] = PX_NONE();
    if (out[at].kind == PX_ARG_NONE && method->params[at].has_default)
      out[at] = method->params[at].fallback;
    PX_TRY(check_value(self, method, at, out[at]));
  }
  return PX_OK;
}

static px_status run(px_tensor **out, px_module *self, const px_module_method *method,
                     const px_named_value *args, int count) {
  px_value values[ARGUMENTS];
  PX_TRY(bind(values, self, method, args, count));
  PX__READS(self);
  return method->run(out, self, values);
}

// ---- forward with tensors

px_status px__method_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                             int count) {
  px_named_value args[PX__INPUTS];
  int given = 0;
  for (int i = 0; i < count; i++)
    if (inputs[i]) args[given++] = (px_named_value){self->kind->inputs[i].name, PX_T(inputs[i])};
  return run(out, self, &self->kind->methods[0], args, given);
}

// ---- calls

typedef struct invocation {
  const char *method;
  px_named_value args[ARGUMENTS];
  int count, wanted;
  px_tensor **results;     // PX__RESULTS items, owned
  px_tensor *replacement;  // of the first input, by a pre-hook; owned
} invocation;

// Collects the tensors among the arguments, in order.
static int tensors_of(px_tensor **out, const invocation *call) {
  int count = 0;
  for (int i = 0; i < call->count && count < PX__INPUTS; i++)
    if (call->args[i].value.kind == PX_ARG_TENSOR) out[count++] = call->args[i].value.v.tensor;
  return count;
}

static px_status invoke_bare(px_module *self, void *with) {
  invocation *call = with;
  const px_module_method *method = method_of(self->kind, call->method);
  px_tensor *inputs[PX__INPUTS];
  if (self->invoke)
    return self->invoke(call->results, call->wanted, self, call->method, call->args, call->count);
  if (method) return run(call->results, self, method, call->args, call->count);
  PX_CHECK(!strcmp(call->method, "forward"), PX_ATTRIBUTE, "'%s' object has no attribute '%s'",
           self->kind->name, call->method);
  PX_CHECK(self->kind->forward, PX_UNIMPLEMENTED,
           "Module [%s] is missing the required \"forward\" function", self->kind->name);
  int count = tensors_of(inputs, call);
  PX_CHECK(count == call->count && count >= 1, PX_TYPE, "%s.forward() accepts tensors only",
           self->kind->name);
  return px__forward_bare(call->results, self, inputs, count);
}

static px_status invoke_hook(px_module *self, const px_hook_entry *hook, void *with) {
  invocation *call = with;
  px_tensor *inputs[PX__INPUTS] = {NULL}, *replacement = NULL;
  int count = tensors_of(inputs, call);
  PX_TRY(hook->run(&replacement, self, inputs, count, call->results[0], hook->context));
  if (!replacement) return PX_OK;
  px_tensor **at = hook->before ? &call->replacement : &call->results[0];
  px_release(*at);
  *at = replacement;
  if (hook->before) call->args->value = PX_T(replacement);
  return PX_OK;
}

px_status px_module_invoke(px_tensor **results, int result_count, px_module *self,
                           const char *method, const px_named_value *args, int count) {
  PX_GIVEN_N(results, result_count);
  PX_GIVEN(self);
  PX_GIVEN(method);
  PX_GIVEN_N(args, count);
  static const px_module_runner way = {invoke_hook, invoke_bare};
  px_tensor *all[PX__RESULTS] = {NULL};
  invocation call = {.method = method, .count = count, .wanted = result_count, .results = all};
  PX_CHECK(result_count >= 1 && result_count <= PX__RESULTS && count >= 0 && count <= ARGUMENTS,
           PX_VALUE, "px_module_invoke(): too many results (%d) or arguments (%d)", result_count,
           count);
  for (int i = 0; i < result_count; i++) results[i] = NULL;
  if (count) memcpy(call.args, args, (size_t)count * sizeof *args);
  bool counted;
  PX_TRY(px__nn_call(&counted, self));
  bool hooked = px_module_has_hooks(self) && !strcmp(method, "forward");
  px_status status = hooked ? px_module_run(self, &way, &call) : invoke_bare(self, &call);
  px__nn_called(counted);
  px_release(call.replacement);
  for (int i = 0; i < PX__RESULTS; i++)
    if (status == PX_OK && i < result_count)
      results[i] = all[i];
    else
      px_release(all[i]);
  return status;
}

// ---- children

px_status px__child(px_module **out, const px_module *self, const char *name) {
  px_module_entry entry;
  bool found = px_module_entry_find(self, name, &entry) && entry.module;
  PX_CHECK(found, PX_ATTRIBUTE, "'%s' object has no attribute '%s'", self->kind->name, name);
  *out = entry.module;
  return PX_OK;
}

px_status px__child_at(px_module **out, px_module *self, int i) {
  px_module_entry entry;
  PX__READS(self);
  bool found = px_module_entry_at(self, PX_ENTRY_MODULE, i, &entry) && entry.module;
  PX_CHECK(found, PX_INDEX, "index %d is out of range", i);
  *out = px_retain(entry.module);
  return PX_OK;
}

px_status px__child_tensor(px_tensor **out, px_module *self, const char *child, const char *name) {
  px_module *of = NULL;
  px_module_entry entry;
  PX_TRY(px__child(&of, self, child));
  PX__READS(of);
  bool found = px_module_entry_find(of, name, &entry);
  if (!found && of->invoke) return px_module_invoke(out, 1, of, name, NULL, 0);
  *out = found ? px_retain(entry.tensor) : NULL;
  return PX_OK;
}
