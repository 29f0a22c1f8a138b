// SPDX-License-Identifier: Apache-2.0
// Functions of values of any type.
#include <stdio.h>
#include <stdlib.h>

#include "phlox/autocast.h"
#include "phlox/autograd.h"
#include "script/script_impl.h"

static px_status raise(const px__var *given, int count) {
  PX__SCOPED_STRING text = {0};
  PX_TRY(px__string_value(&text, given[0], false, 0));
  const char *cls = count > 1 && given[1].sort == PX__TEXT ? given[1].v.box->text : "";
  const char *dot = strrchr(cls, '.');
  px_status status = PX_RUNTIME;
  for (int i = 1; i < PX_STATUS_COUNT; i++)
    if (px__is(dot ? dot + 1 : cls, px_status_exception((px_status)i))) status = (px_status)i;
  PX_FAIL(status, "%s", text.text ? text.text : "");
}

static px_status to_text(px__var *out, px_script *script, px__var value, bool repr) {
  PX__SCOPED_STRING text = {0};
  PX_TRY(px__string_value(&text, value, repr, 0));
  return px__text_new(out, script, text.text, text.length);
}

// ops.prim.rangelist(3): [0, 1, 2]
static px_status range_list(px__var *out, px_script *script, int64_t count) {
  PX_TRY(px__box_new(out, script, PX__LIST));
  for (int64_t i = 0; i < count; i++) {
    if (i % 4096 == 0) PX_TRY(px_interrupt_poll());
    PX_TRY(px__push(out->v.box, px__of_int(i)));
  }
  return PX_OK;
}

static px_status enumerate(px__var *out, px_script *script, const px__box *list, int64_t start) {
  PX_TRY(px__box_new(out, script, PX__LIST));
  for (int64_t i = 0; i < list->count; i++) {
    PX__SCOPED_VAR pair = {0};
    PX_TRY(px__box_new(&pair, script, PX__TUPLE));
    PX_TRY(px__push(pair.v.box, px__of_int(start + i)));
    PX_TRY(px__push(pair.v.box, list->items[i]));
    PX_TRY(px__push(out->v.box, pair));
  }
  return PX_OK;
}

static px_status one(px__var *out, px_script *script, const char *name, px__var a, bool *known) {
  if (px__is(name, "str") || px__is(name, "repr"))
    return to_text(out, script, a, px__is(name, "repr"));
  if (px__is(name, "__not__") || px__is(name, "bool") || px__is(name, "Bool")) {
    bool truth;
    if (a.sort == PX__TENSOR && !px__is(name, "__not__")) return *known = false, PX_OK;
    PX_TRY(px__truth(&truth, a));
    return *out = px__of_bool(px__is(name, "__not__") ? !truth : truth), PX_OK;
  }
  if (px__is(name, "chr") && a.sort == PX__INT && a.v.i >= 0 && a.v.i < 256)
    return px__text_new(out, script, (const char[]){(char)a.v.i}, 1);
  if (px__is(name, "hex") && a.sort == PX__INT) {
    char text[32];
    snprintf(text, sizeof text, "%s0x%llx", a.v.i < 0 ? "-" : "",
             a.v.i < 0 ? -(unsigned long long)a.v.i : (unsigned long long)a.v.i);
    return px__text_new(out, script, text, strlen(text));
  }
  if (px__is(name, "rangelist") && a.sort == PX__INT) return range_list(out, script, a.v.i);
  if (px__is(name, "set_grad_enabled") && a.sort == PX__BOOL)
    return px_grad_set_enabled(a.v.i), *out = px__none(), PX_OK;
  if (px__is(name, "type") && a.sort == PX__DEVICE)
    return px__text_new(out, script, px_device_type_name(a.v.device.type),
                        strlen(px_device_type_name(a.v.device.type)));
  if (px__is(name, "index") && a.sort == PX__DEVICE)
    return *out = a.v.device.index < 0 ? px__none() : px__of_int(a.v.device.index), PX_OK;
  if (px__is(name, "unchecked_unwrap_optional") || px__is(name, "_unwrap_optional")) {
    PX_CHECK(a.sort != PX__NONE, PX_RUNTIME, "Unwrapping null optional");
    return *out = px__var_keep(a), PX_OK;
  }
  if (px__is(name, "device") && a.sort == PX__DEVICE) return *out = a, PX_OK;
  *known = false;
  return PX_OK;
}

px_status px__call_general(px__var *out, px_script *script, const char *name, const px__var *given,
                           int count, bool *known) {
  bool tensors = count == 2 && (given[0].sort == PX__TENSOR || given[1].sort == PX__TENSOR);
  *known = true;
  if (px__is(name, "print") || px__is(name, "warn")) {
    PX__SCOPED_STRING text = {0};
    for (int i = 0; i < count && (i == 0 || px__is(name, "print")); i++) {
      if (i) PX_TRY(px__string_add(&text, " ", 1));
      PX_TRY(px__string_value(&text, given[i], false, 0));
    }
    *out = px__none();
    return px_warn(PX_WARN_USER, "%s", text.text ? text.text : "");
  }
  if (px__is(name, "RaiseException") && count) return raise(given, count);
  if (px__is(name, "is_grad_enabled") && !count)
    return *out = px__of_bool(px_grad_enabled()), PX_OK;
  if (px__is(name, "is_autocast_enabled") || px__is(name, "is_autocast_cpu_enabled"))
    return *out = px__of_bool(
               px_autocast_get().enabled[px__is(name, "is_autocast_enabled") ? PX_CUDA : PX_CPU]),
           PX_OK;
  if (px__is(name, "is_scripting") && !count) return *out = px__of_bool(true), PX_OK;
  if (px__is(name, "is_tracing") && !count) return *out = px__of_bool(false), PX_OK;
  if (px__is(name, "__is__") && count == 2)
    return *out = px__of_bool(given[0].sort == given[1].sort && px__same(given[0], given[1])),
           PX_OK;
  if (px__is(name, "__isnot__") && count == 2)
    return *out = px__of_bool(given[0].sort != given[1].sort || !px__same(given[0], given[1])),
           PX_OK;
  if (px__is(name, "eq") && count == 2 && !tensors)
    return *out = px__of_bool(px__same(given[0], given[1])), PX_OK;
  if (px__is(name, "ne") && count == 2 && !tensors)
    return *out = px__of_bool(!px__same(given[0], given[1])), PX_OK;
  if (px__is(name, "enumerate") && count && given[0].sort == PX__LIST)
    return enumerate(out, script, given[0].v.box,
                     count > 1 && given[1].sort == PX__INT ? given[1].v.i : 0);
  if (px__is(name, "complex") && count == 2 && px__is_number(given[0]) && px__is_number(given[1]))
    return *out = (px__var){PX__COMPLEX, {.c = {px__to_float(given[0]), px__to_float(given[1])}}},
           PX_OK;
  if (count == 1) return one(out, script, name, given[0], known);
  *known = false;
  return PX_OK;
}
