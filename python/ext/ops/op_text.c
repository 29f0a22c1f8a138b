// SPDX-License-Identifier: Apache-2.0
// Python signatures of ops with types, in stub syntax, and docstrings. Both are generated from the
// core's descriptors on access; calls do not use them.
#include "ops/ops.h"

#include "declare/declare.h"

#include <string.h>

void ext_append(PyObject **text, const char *format, ...) {
  va_list list;
  va_start(list, format);
  PyObject *more = PyUnicode_FromFormatV(format, list);
  va_end(list);
  PyUnicode_AppendAndDel(text, more);
}

// ---- types
static bool is_named(const px_param *param, const char *name) { return !strcmp(param->name, name); }

// Annotation of an argument without "| None"; for *sizes, that of one size.
static const char *type_of(const ext_signature *s, int i) {
  static const char *const plain[] = {[PX_ARG_TENSOR] = "Tensor",
                                      [PX_ARG_TENSORS] = "Sequence[Tensor]",
                                      [PX_ARG_SCALAR] = "Number",
                                      [PX_ARG_INT] = "int",
                                      [PX_ARG_FLOAT] = "float",
                                      [PX_ARG_BOOL] = "bool",
                                      [PX_ARG_INTS] = "int | Sequence[int]",
                                      [PX_ARG_DTYPE] = "dtype",
                                      [PX_ARG_DEVICE] = "Device",
                                      [PX_ARG_TEXT] = "str",
                                      [PX_ARG_GENERATOR] = "Generator"};
  const px_param *param = &s->op->params[i];
  if (is_named(param, "memory_format")) return "memory_format";
  if (param->accepts_word) return "str | int | Sequence[int]";
  if (ext_accepts_number(s->op, i)) return "Tensor | Number";
  return param->kind < EXT_LENGTH(plain) && plain[param->kind] ? plain[param->kind] : "object";
}

static void append_result(PyObject **text, const ext_signature *s) {
  const px_op *op = s->op;
  bool tuple = s->mode == PX_CALL_NEW && op->result_count > 1;
  if (op->flags & PX_OP_RETURNS_LIST)
    ext_append(text, " -> tuple[Tensor, ...]");
  else if (tuple && s->result)
    ext_append(text, " -> %s", s->result->tp_name + strlen("torch."));
  else if (tuple)
    ext_append(text, " -> tuple[Tensor, ...]");
  else
    ext_append(text, op->result_count ? " -> Tensor" : " -> None");
}

// ---- signatures
static bool has_param(const px_op *op, const char *name) {
  for (int i = 0; i < op->param_count; i++)
    if (is_named(&op->params[i], name)) return true;
  return false;
}

// Arguments of calls that are not parameters of the op.
static const struct {
  const char *name, *text;
} factory_options[] = {{"layout", "layout: layout | None = None"},
                       {"requires_grad", "requires_grad: bool = False"},
                       {"pin_memory", "pin_memory: bool = False"}};

static void append_extras(PyObject **text, const ext_signature *s, bool starred) {
  const px_op *op = s->op;
  bool out = op->flags & PX_OP_HAS_OUT && s->mode == PX_CALL_NEW && !s->method;
  const char *star = starred ? "" : "*, ";
  if (out)
    ext_append(text, ", %sout: %s | None = None", star,
               op->result_count > 1 ? "tuple[Tensor, ...]" : "Tensor");
  if (out) star = "";
  for (int i = 0; ext_is_factory(op) && i < EXT_LENGTH(factory_options); i++) {
    if (has_param(op, factory_options[i].name)) continue;
    ext_append(text, ", %s%s", star, factory_options[i].text);
    star = "";
  }
}

static void append_param(PyObject **text, const ext_signature *s, int i, bool rest) {
  const px_param *param = &s->op->params[i];
  bool input = !s->method && is_named(param, "self"), reserved = is_named(param, "from");
  ext_append(text, "%s%s%s: %s%s", rest ? "*" : "", input ? "input" : param->name,
             reserved ? "_" : "", type_of(s, i), ext_accepts_none(s, i) && !rest ? " | None" : "");
  if (param->has_default && !rest)
    ext_append(text, " = %s", param->fallback_text ? param->fallback_text : "None");
  if (reserved) ext_append(text, ", /");  // a Python keyword: positional only
}

PyObject *ext_op_signature(const ext_signature *s, bool rest) {
  PyObject *text = PyUnicode_FromString("(");
  bool starred = false;
  const char *flag = s->indexed ? "return_indices" : ext_accepts_inplace(s) ? "inplace" : NULL;
  for (int i = s->method; i < s->op->param_count; i++) {
    bool keyword = i >= s->positional;
    if (keyword && flag) ext_append(&text, ", %s: bool = False", flag), flag = NULL;
    if (i > s->method) ext_append(&text, ", ");
    if (keyword && !starred) ext_append(&text, "*, "), starred = true;
    append_param(&text, s, i, rest && i == s->varargs);
    starred |= rest && i == s->varargs;
  }
  if (flag) ext_append(&text, ", %s: bool = False", flag);
  append_extras(&text, s, starred);
  ext_append(&text, ")");
  append_result(&text, s);
  return text;
}

// inspect shows the signature with the fewest required arguments.
static const ext_signature *shortest_signature(const ext_callable *self) {
  int fewest = EXT_OP_PARAMS + 1;
  const ext_signature *found = NULL;
  for (int i = 0; i < self->count; i++) {
    const ext_signature *s = &self->signatures[i];
    if (s->needed < fewest) fewest = s->needed, found = s;
  }
  return found;
}

PyObject *ext_op_text_signature(const ext_callable *self) {
  const ext_signature *s = shortest_signature(self);
  EXT_OWNED *full = ext_op_signature(s, s->varargs >= 0);
  const char *given = full ? PyUnicode_AsUTF8(full) : NULL;
  char *text = given ? ext_text_signature("", given, NULL, self->method ? "$self" : NULL) : NULL;
  char *end = text ? strstr(text, "\n--\n") : NULL;
  PyObject *made = end ? PyUnicode_FromStringAndSize(text, end - text) : NULL;
  PyMem_Free(text);
  return made;
}

// ---- docstrings
// The signatures, then the descriptions of their ops.
PyObject *ext_op_doc(const ext_callable *self) {
  PyObject *text = PyUnicode_FromString("");
  for (int i = 0; i < self->count; i++) {
    const ext_signature *s = &self->signatures[i];
    EXT_OWNED *signature = ext_op_signature(s, s->varargs >= 0);
    if (signature) ext_append(&text, "%U%U\n", self->name, signature);
  }
  for (int i = 0; i < self->count; i++) {
    const px_op *op = self->signatures[i].op;
    ext_append(&text, "\n%s\n", op->doc ? op->doc : "");
    if (op->remarks && *op->remarks) ext_append(&text, "\n%s", op->remarks);
  }
  return text;
}
