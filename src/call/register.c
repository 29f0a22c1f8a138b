// SPDX-License-Identifier: Apache-2.0
// Op registration: converts a definition to a descriptor like those of the op tables.
#include <dlfcn.h>
#include <stdio.h>

#include "call/registered.h"

// ---- the words of a definition's kind

typedef struct chosen {
  const char *name;  // of the op, for messages
  int kind;          // px_op_kind, or -1
  unsigned flags;
  px__promotion promotion;
  bool strided;
  const char *pointwise_word;  // a word valid for pointwise ops only, if any
  const char *kernel_word;     // a word valid for ops with kernels only, if any
} chosen;

enum word_class { KIND, PROMOTION, FORM, PYTHON, STRIDED };
static const struct {
  const char *text;
  uint8_t class;
  uint16_t value;
} words[] = {
    {"pointwise", KIND, PX_OP_POINTWISE},
    {"kernel", KIND, PX_OP_KERNEL},
    {"function", KIND, PX_OP_FUNCTION},
    {"composite", KIND, PX_OP_COMPOSITE},
    {"promote", PROMOTION, PX__PROMOTE},
    {"float", PROMOTION, PX__PROMOTE_FLOAT},
    {"compare", PROMOTION, PX__PROMOTE_COMPARE},
    {"first", PROMOTION, PX__PROMOTE_FIRST},
    {"whole", PROMOTION, PX__PROMOTE_INTEGER},
    {"inplace", FORM, PX_OP_HAS_INPLACE},
    {"out", FORM, PX_OP_HAS_OUT},
    {"strided", STRIDED, 0},
    {"method", PYTHON, PX_OP_IS_METHOD},
    {"toplevel", PYTHON, PX_OP_IS_FUNCTION},
};

static px_status choose(chosen *c, const char *text, size_t length, bool first) {
  int i = 0;
  while (i < PX_COUNT_OF(words) &&
         (strlen(words[i].text) != length || strncmp(words[i].text, text, length) != 0))
    i++;
  PX_CHECK(i < PX_COUNT_OF(words) && (words[i].class == KIND) == first, PX_VALUE,
           first ? "%s: unknown kind '%.*s'; there are pointwise, kernel, function and composite"
                 : "%s: unknown word '%.*s' after the kind",
           c->name, (int)length, text);
  if (words[i].class == KIND) c->kind = words[i].value;
  if (words[i].class == PROMOTION)
    c->promotion = (px__promotion)words[i].value, c->pointwise_word = words[i].text;
  if (words[i].class == FORM || words[i].class == PYTHON) c->flags |= words[i].value;
  if (words[i].class == FORM || words[i].class == STRIDED) c->kernel_word = words[i].text;
  c->strided |= words[i].class == STRIDED;
  return PX_OK;
}

static px_status choose_all(chosen *c, const char *text) {
  c->kind = -1;
  for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
    size_t length = strcspn(text, " ");
    PX_TRY(choose(c, text, length, c->kind < 0));
    text += length;
  }
  PX_CHECK(c->kind >= 0, PX_VALUE, "%s has no kind", c->name);
  return PX_OK;
}

// Mask of the dtypes named by a word; 0 if unknown.
static uint32_t dtypes_of(const char *word, size_t length) {
  static const struct {
    const char *name, *kinds;
  } sets[] = {
#define XX(name, kinds) {name, kinds},
      PX_DTYPE_SET_MAP(XX)
#undef XX
  };
  const char *kinds = "";
  uint32_t mask = 0;
  for (int i = 0; i < PX_COUNT_OF(sets); i++)
    if (strlen(sets[i].name) == length && !strncmp(sets[i].name, word, length))
      kinds = sets[i].kinds;
  for (int i = 0; i < PX_DTYPE_COMPUTED; i++) {
    const px_dtype_info *about = px_dtype_about((px_dtype)i);
    bool named = strlen(about->name) == length && !strncmp(about->name, word, length);
    if (named || strchr(kinds, about->kind)) mask |= UINT32_C(1) << i;
  }
  return mask;
}

static px_status choose_dtypes(uint32_t *out, const char *name, const char *text) {
  *out = 0;
  for (text = text ? text : "all"; *text; text += strspn(text, " ")) {
    size_t length = strcspn(text, " ");
    uint32_t mask = dtypes_of(text, length);
    PX_CHECK(mask, PX_VALUE,
             "%s: unknown dtype '%.*s'; there are dtypes by name, and all, numeric, float, "
             "integral, integer",
             name, (int)length, text);
    *out |= mask;
    text += length;
  }
  return PX_OK;
}

// ---- consistency of a definition

static int tensor_count(const px__schema *s) {
  int n = 0;
  for (int i = 0; i < s->param_count; i++) n += s->params[i].kind == PX_ARG_TENSOR;
  return n;
}

static px_status check_kernels(const px_op_definition *d, const px__schema *s, const chosen *c) {
  PX_CHECK(d->kernels[0].device, PX_VALUE, "%s is a %s op and has no kernels", s->name,
           c->kind == PX_OP_POINTWISE ? "pointwise" : "kernel");
  PX_CHECK(!d->run && !d->serve, PX_VALUE, "%s has kernels and a function `%s`", s->name,
           d->run ? "run" : "serve");
  PX_CHECK(
      s->param_count && s->params[PX__SELF].kind == PX_ARG_TENSOR && !s->params[PX__SELF].optional,
      PX_VALUE, "the first parameter of %s, which has kernels, must be a Tensor", s->name);
  PX_CHECK(tensor_count(s) + s->result_count <= PX_MAX_OPERANDS, PX_VALUE,
           "%s has %d tensors; a kernel can have at most %d", s->name,
           tensor_count(s) + s->result_count, PX_MAX_OPERANDS);
  for (int i = 0; i < PX_OP_KERNELS && d->kernels[i].device; i++) {
    PX_CHECK(d->kernels[i].run, PX_VALUE, "the kernel of %s for '%s' is NULL", s->name,
             d->kernels[i].device);
    for (int k = 0; k < i; k++)
      PX_CHECK(strcmp(d->kernels[i].device, d->kernels[k].device), PX_VALUE,
               "%s has two kernels for '%s'", s->name, d->kernels[i].device);
  }
  return PX_OK;
}

static px_status check_pointwise(const px_op_definition *d, const px__schema *s) {
  PX_CHECK(!d->shape, PX_VALUE, "%s is pointwise: its result's shape follows from broadcasting",
           s->name);
  PX_CHECK(s->result_count == 1, PX_VALUE, "%s is pointwise and has %d results", s->name,
           s->result_count);
  for (int i = 0; i < s->param_count; i++)
    PX_CHECK(s->params[i].kind != PX_ARG_TENSORS, PX_VALUE,
             "%s is pointwise and has a list of tensors, '%s'", s->name, s->params[i].name);
  return PX_OK;
}

static px_status check_parts(const px_op_definition *d, const px__schema *s, const chosen *c) {
  bool kernels = c->kind == PX_OP_POINTWISE || c->kind == PX_OP_KERNEL;
  PX_CHECK(c->kind == PX_OP_POINTWISE || !c->pointwise_word, PX_VALUE,
           "%s: '%s' is for pointwise ops", s->name, c->pointwise_word);
  PX_CHECK(kernels || !c->kernel_word, PX_VALUE, "%s: '%s' is for ops with kernels", s->name,
           c->kernel_word);
  bool self = s->param_count && s->params[PX__SELF].kind == PX_ARG_TENSOR;
  PX_CHECK(self || !(c->flags & PX_OP_IS_METHOD), PX_VALUE,
           "%s cannot be a method: its first parameter is not a Tensor", s->name);
  PX_CHECK(c->kind != PX_OP_COMPOSITE || (!d->gradient && !d->saves), PX_VALUE,
           "%s is composite: its gradient is that of the ops it calls", s->name);
  PX_CHECK(d->gradient || !d->saves, PX_VALUE, "%s saves '%s' and has no gradient", s->name,
           d->saves);
  PX_CHECK(s->result_count || c->kind == PX_OP_COMPOSITE, PX_VALUE,
           "%s has no result; only composite ops may have none", s->name);
  if (kernels) PX_TRY(check_kernels(d, s, c));
  if (c->kind == PX_OP_POINTWISE) return check_pointwise(d, s);
  if (kernels) return PX_OK;
  PX_CHECK(d->run || d->serve, PX_VALUE, "%s has no function `run`", s->name);
  PX_CHECK(!d->run || !d->serve, PX_VALUE, "%s has functions `run` and `serve`", s->name);
  PX_CHECK(!d->kernels[0].device && !d->shape && !d->dtypes, PX_VALUE,
           "%s computes by `run`: kernels, shape and dtypes are for other kinds", s->name);
  return PX_OK;
}

// ---- tensors saved for the gradient

// Bit of a tensor parameter (low half) or a result (high half); 0 for other names.
static uint32_t saved_bit(const px__schema *s, const char *name, size_t length) {
  for (int i = 0; i < s->param_count; i++) {
    bool tensor = s->params[i].kind == PX_ARG_TENSOR || s->params[i].kind == PX_ARG_TENSORS;
    const char *param = s->params[i].name;
    if (tensor && strlen(param) == length && !strncmp(param, name, length)) return 1u << i;
  }
  for (int i = 0; i < s->result_count; i++)
    if (strlen(s->result_names[i]) == length && !strncmp(s->result_names[i], name, length))
      return 1u << (16 + i);
  return 0;
}

static px_status choose_saves(uint32_t *out, const px__schema *s, const char *names) {
  *out = names ? 0 : (1u << (16 + s->result_count)) - 1;
  for (; names && *names; names += strspn(names, ", ")) {
    size_t length = strcspn(names, ", ");
    uint32_t bit = saved_bit(s, names, length);
    PX_CHECK(bit || !length, PX_VALUE,
             "%s saves '%.*s', which is neither a tensor parameter nor a result", s->name,
             (int)length, names);
    *out |= bit;
    names += length;
  }
  return PX_OK;
}

static px_status no_gradient(px_op_gradient *g) {
  PX_FAIL(PX_UNIMPLEMENTED, "derivative for %s is not implemented", g->op->name);
}

static px_status fill_gradient(px__registered *r, const px_op_definition *d) {
  px_op *op = &r->op;
  uint32_t saves = 0;
  if (op->kind == PX_OP_COMPOSITE) return PX_OK;
  for (int i = 0; i < op->param_count; i++)
    if (op->params[i].kind == PX_ARG_TENSOR || op->params[i].kind == PX_ARG_TENSORS)
      op->grad_mask |= 1u << i;
  op->gradient = d->gradient ? d->gradient : no_gradient;
  if (d->gradient) PX_TRY(choose_saves(&saves, &r->schema, d->saves));
  op->save_mask = saves & 0xFFFFu & op->grad_mask;
  op->shape_mask = op->grad_mask;
  op->save_result_mask = saves >> 16;
  return PX_OK;
}

// ---- the descriptor

typedef struct texts {
  char *at;
} texts;
static const char *copy(texts *t, const char *text) {
  size_t bytes = strlen(text) + 1;
  char *to = memcpy(t->at, text, bytes);
  t->at += bytes;
  return to;
}

// Gradient name: "square_plus" becomes "SquarePlusBackward0".
static const char *name_gradient(texts *t, const char *bare) {
  const char *name = t->at;
  bool first = true;
  for (; *bare; bare++) {
    bool letter = *bare >= 'a' && *bare <= 'z';
    if (*bare != '_') *t->at++ = (char)(first && letter ? *bare - 'a' + 'A' : *bare);
    first = *bare == '_';
  }
  (void)copy(t, "Backward0");
  return name;
}

static px_status copy_texts(px__registered *r, const px_op_definition *d) {
  size_t bytes = strlen(d->schema) + 1 + strlen(r->schema.bare) + sizeof "Backward0" +
                 (d->doc ? strlen(d->doc) : 0) + 1;
  for (int i = 0; i < PX_OP_KERNELS && d->kernels[i].device; i++)
    bytes += strlen(d->kernels[i].device) + 1;
  PX_TRY(px__alloc((void **)&r->texts, bytes));
  texts t = {r->texts};
  r->op.schema = copy(&t, d->schema);
  r->op.doc = copy(&t, d->doc ? d->doc : "");
  r->op.grad_name = name_gradient(&t, r->schema.bare);
  for (int i = 0; i < PX_OP_KERNELS && d->kernels[i].device; i++)
    r->kernels[i] = (px_op_kernel){copy(&t, d->kernels[i].device), d->kernels[i].run};
  return PX_OK;
}

static void fill_op(px__registered *r, const chosen *c) {
  const px__schema *s = &r->schema;
  bool unnamed = s->result_count == 1 && !strcmp(s->result_names[0], "result");
  r->op.name = r->op.python_name = s->name;
  r->op.params = s->params;
  r->op.param_count = (uint8_t)s->param_count;
  r->op.result_count = (uint8_t)s->result_count;
  r->op.result_names = unnamed ? NULL : s->result_names;
  r->op.kind = (uint8_t)c->kind;
  r->op.flags = c->flags | PX_OP_REGISTERED;
  r->op.impl = &r->impl;
}

static void fill_impl(px__registered *r, const px_op_definition *d, const chosen *c) {
  r->shape = d->shape;
  r->run = d->run;
  r->serve = d->serve;
  r->data = d->data;
  r->strided = c->strided;
  r->impl.registered = r;
  r->impl.found = r->found;
  r->impl.promotion = (uint8_t)c->promotion;
  r->impl.run = c->kind == PX_OP_POINTWISE ? (c->strided ? NULL : px__registered_pointwise)
                : c->kind == PX_OP_KERNEL  ? px__registered_kernel
                                           : px__registered_function;
  for (int i = 0; i < r->op.param_count; i++) {
    int kind = r->op.params[i].kind;
    if (kind == PX_ARG_TENSOR || kind == PX_ARG_TENSORS) r->impl.tensors = (uint8_t)(i + 1);
  }
  for (int i = 0; i < PX__MAX_RESULTS; i++) r->impl.result_dtypes[i] = PX_DTYPE_NONE;
}

static px_status fill(px__registered *r, const px_op_definition *d) {
  chosen c = {0};
  PX_TRY(px__schema_read(&r->schema, d->schema));
  c.name = r->schema.name;
  PX_CHECK(!px_op_find(c.name), PX_VALUE, "op '%s' is already registered", c.name);
  PX_TRY(choose_all(&c, d->kind));
  PX_TRY(check_parts(d, &r->schema, &c));
  PX_TRY(choose_dtypes(&r->impl.dtypes, c.name, d->dtypes));
  PX_TRY(copy_texts(r, d));
  fill_op(r, &c);
  fill_impl(r, d, &c);
  PX_TRY(fill_gradient(r, d));
  return d->gradient && d->saves ? px__registered_try_gradient(r) : PX_OK;
}

// ---- registering

static void end(px__registered *r) {
  px__schema_end(&r->schema);
  px__free(r->texts);
  px__free(r);
}

px_status px_op_register(const px_op **out, const px_op_definition *definition) {
  px__registered *r = NULL;
  PX_GIVEN(definition);
  PX_CHECK(definition->schema && definition->kind, PX_TYPE, "an op needs a schema and a kind");
  PX_TRY(PX_NEW(&r));
  px_status status = fill(r, definition);
  if (status == PX_OK) status = px__registered_add(r);
  if (status == PX_OK && out) *out = &r->op;
  if (status != PX_OK) end(r);
  return status;
}

// ---- libraries of ops

// Held while a library registers its ops. A concurrent load of the same library returns only after
// that. Recursive: a library may load others.
static pthread_mutex_t loading = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
enum { LIBRARIES = 256 };
static void *libraries[LIBRARIES];  // guarded by `loading`
static int library_count;

static px_status enter(void *handle, const char *path) {
  px_library_entry_fn entry = NULL;
  for (int i = 0; i < library_count; i++)
    if (libraries[i] == handle) return PX_OK;
  *(void **)&entry = dlsym(handle, PX_LIBRARY_ENTRY);
  PX_CHECK(entry, PX_IO, "%s has no function " PX_LIBRARY_ENTRY, path);
  PX_CHECK(library_count < LIBRARIES, PX_VALUE, "at most %d libraries can be loaded", LIBRARIES);
  PX_TRY(entry());
  libraries[library_count++] = handle;
  return PX_OK;
}

px_status px_op_load_library(const char *path) {
  PX_GIVEN(path);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) PX_FAIL(PX_IO, "%s", dlerror());
  pthread_mutex_lock(&loading);
  px_status status = enter(handle, path);
  pthread_mutex_unlock(&loading);
  return status;
}
