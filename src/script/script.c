// SPDX-License-Identifier: Apache-2.0
// Scripts: loading, and the public functions.
#include <locale.h>
#include <stdio.h>

#include "script/script_impl.h"

// ---- calls from outside

// A call holds the lock, and uses the plain locale: texts of numbers have points.
typedef struct entry {
  px_script *script;
  locale_t before;
} entry;
static entry enter(px_script *script) {
  static locale_t plain;
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  if (!plain) plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  pthread_mutex_unlock(&lock);
  pthread_mutex_lock(&script->lock);
  return (entry){script, plain ? uselocale(plain) : (locale_t)0};
}
static void leave(entry *e) {
  if (e->before) uselocale(e->before);
  pthread_mutex_unlock(&e->script->lock);
}
#define ENTER(script) __attribute__((cleanup(leave), unused)) entry entered = enter(script)

// Finds the object of "a.b" in "a.b.name"; *last is "name".
static px_status object_of(px__var *out, px_script *self, const char *path, const char **last) {
  PX__SCOPED_VAR object = px__var_keep(self->root);
  for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
    PX__SCOPED_VAR next = {0};
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)(dot - path < 255 ? dot - path : 255), path);
    PX_TRY(px__object_get(&next, object, name));
    PX_CHECK(next.sort == PX__OBJECT, PX_ATTRIBUTE, "the attribute '%s' is not a module", name);
    px__var_free(&object);
    object = px__var_move(&next);
  }
  *last = path;
  *out = px__var_move(&object);
  return PX_OK;
}

typedef struct call_arguments {
  px__named_var *items;
  int count;
} call_arguments;
static void call_arguments_free(call_arguments *a) {
  for (int i = 0; i < a->count; i++) px__var_free(&a->items[i].value);
  px_free(a->items);
}

static px_status take_arguments(call_arguments *to, px_script *self, px__var object,
                                const px_tree *args, const px_tree *named) {
  int64_t count = args ? px_tree_size(args) : 0, names = named ? px_tree_size(named) : 0;
  PX_TRY(px_alloc((void **)&to->items, (size_t)(count + names + 1) * sizeof *to->items));
  to->items[to->count++].value = px__var_keep(object);
  for (int64_t i = 0; i < count + names; i++) {
    const px_tree *value = i < count ? px_tree_at(args, i) : px_tree_at(named, i - count);
    px__named_var *item = &to->items[to->count];
    item->name = i < count ? NULL : px_tree_get_text(px_tree_key(named, i - count));
    PX_CHECK(i < count || item->name, PX_TYPE, "expected names of arguments as texts");
    PX_TRY(px__from_tree(&item->value, self, value, 0));
    to->count++;
  }
  return PX_OK;
}

px_status px_script_run(px_tree **out, px_script *self, const char *method, const px_tree *args,
                        const px_tree *named) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_GIVEN(method);
  ENTER(self);
  const char *name;
  PX__SCOPED_VAR object = {0}, result = {0};
  __attribute__((cleanup(call_arguments_free))) call_arguments all = {0};
  PX_TRY(object_of(&object, self, method, &name));
  px__definition *found = px__method_find(object.v.box->definition, name);
  PX_CHECK(found, PX_ATTRIBUTE, "'%s' object has no attribute or method '%s'",
           object.v.box->definition->own, name);
  PX_TRY(take_arguments(&all, self, object, args, named));
  PX_TRY(px__call(&result, self, found, all.items, all.count));
  return px__to_tree(out, result, 0);
}

px_status px_script_method(const char **out, px_script *self, const char *module, int i) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  ENTER(self);
  PX__SCOPED_VAR object = {0};
  char path[512];
  const char *name;
  snprintf(path, sizeof path, "%s%s", module ? module : "", module && *module ? "." : "");
  PX_TRY(object_of(&object, self, path, &name));
  const px__definition *method = object.v.box->definition->methods;
  for (; method && i > 0; i--) method = method->next_method;
  *out = method && i == 0 ? method->own : NULL;
  return PX_OK;
}

px_status px_script_get(px_tree **out, px_script *self, const char *name) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_GIVEN(name);
  ENTER(self);
  const char *last;
  PX__SCOPED_VAR object = {0}, value = {0};
  PX_TRY(object_of(&object, self, name, &last));
  if (px__is(last, "original_name")) return px_tree_text(out, object.v.box->definition->own);
  PX_TRY(px__object_get(&value, object, last));
  return px__to_tree(out, value, 0);
}

px_status px_script_set(px_script *self, const char *name, const px_tree *value) {
  PX_GIVEN(self);
  PX_GIVEN(name);
  PX_GIVEN(value);
  ENTER(self);
  const char *last;
  bool fits;
  PX__SCOPED_VAR object = {0}, made = {0};
  PX_TRY(object_of(&object, self, name, &last));
  PX_TRY(px__from_tree(&made, self, value, 0));
  const px__definition *cls = object.v.box->definition;
  int at = px__attribute_index(cls, last);
  PX_CHECK(at >= 0, PX_ATTRIBUTE, "'%s' object has no attribute '%s'", cls->own, last);
  PX_CHECK(cls->kinds[at] != 'f', PX_RUNTIME, "Can't set constant '%s' which has value", last);
  PX_TRY(px__is_instance(&fits, self, made, cls->types[at]));
  PX_CHECK(fits, PX_RUNTIME, "the attribute '%s' cannot have a value of type '%s'", last,
           px__sort_name(made));
  return px__object_set(object, last, made);
}

px_module *px_script_module(px_script *self) { return self->root.v.box->module; }

// ---- loading

static px_status parse_code(px_script *self) {
  for (int i = 0; i < self->archive.count; i++) {
    const px__record *record = &self->archive.records[i];
    size_t length = record->name_length;
    const char *file;
    if (length < 9 || memcmp(record->name, "code/", 5) ||
        memcmp(record->name + length - 3, ".py", 3))
      continue;
    char *text, *qualifier;
    PX_TRY(px__arena_text(&file, self, record->name, length));
    PX_TRY(px__arena_text((const char **)&qualifier, self, file + 5, length - 8));
    for (char *c = qualifier; *c; c++)
      if (*c == '/') *c = '.';
    PX_TRY(px__archive_read(&text, &self->archive, record));
    px_status status = px__parse_file(self, file, qualifier, text);
    px_free(text);
    PX_TRY(status);
  }
  return PX_OK;
}

// TensorExpr and other records of the archive are not needed.
static px_status load(px_script *self) {
  ENTER(self);
  PX_CHECK(px__archive_find(&self->archive, "data.pkl") &&
               px__archive_find(&self->archive, "constants.pkl"),
           PX_RUNTIME,
           "'%s' is not a TorchScript archive: it has no data.pkl and constants.pkl; torch.load "
           "reads files of torch.save",
           self->path);
  PX_TRY(px__unpickle(&self->constants, self, "constants"));
  PX_TRY(parse_code(self));
  PX_TRY(px__unpickle(&self->root, self, "data"));
  PX_CHECK(self->root.sort == PX__OBJECT && self->root.v.box->module, PX_RUNTIME,
           "'%s' has no module", self->path);
  px__archive_close(&self->archive);
  return PX_OK;
}

static void destroy(void *object) {
  px_script *self = object;
  px__archive_close(&self->archive);
  px__var_free(&self->root);
  px__var_free(&self->constants);
  for (px__box *box = self->boxes; box; box = box->next) box->refs++;
  for (px__box *box = self->boxes; box; box = box->next) px__box_empty(box);
  while (self->boxes) {
    px__box *box = self->boxes;
    self->boxes = box->next;
    px_free(box->text);
    px_free(box);
  }
  px__arena_free(self);
  px_free(self->path);
  pthread_mutex_destroy(&self->lock);
  px_object_end(self);
  px_free(self);
}

static px_status script_new(px_script **out, px_device device, const char *name) {
  static const px_class cls = {"script", destroy};
  pthread_mutexattr_t recursive;
  px_script *self;
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  PX_SCOPED(px_script) made = self;
  px_object_init(self, &cls);
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&self->lock, &recursive);
  pthread_mutexattr_destroy(&recursive);
  self->device = device;
  self->constant = px__constant;
  PX_TRY(px_strdup(&self->path, name));
  *out = PX_MOVE(made);
  return PX_OK;
}

px_status px_script_load(px_script **out, const char *path, px_device device) {
  PX_SCOPED(px_script) made = NULL;
  PX_GIVEN(out);
  PX_GIVEN(path);
  PX_TRY(script_new(&made, device, path));
  PX_TRY(px__archive_open(&made->archive, path));
  PX_TRY(load(made));
  *out = PX_MOVE(made);
  return PX_OK;
}

px_status px_script_load_bytes(px_script **out, const void *bytes, size_t length, px_device device,
                               const char *name) {
  PX_SCOPED(px_script) made = NULL;
  PX_GIVEN(out);
  PX_GIVEN_N(bytes, length);
  PX_GIVEN(name);
  PX_TRY(script_new(&made, device, name));
  PX_TRY(px__archive_copy(&made->archive, bytes, length));
  PX_TRY(load(made));
  *out = PX_MOVE(made);
  return PX_OK;
}
