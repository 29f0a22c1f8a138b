// SPDX-License-Identifier: Apache-2.0
// Pickles of TorchScript archives. The bytes are untrusted: the only callables are those written by
// PyTorch's pickler, and classes of the archive's code.
#include <stdio.h>

#include "phlox/ops/copy.h"
#include "script/script_impl.h"

typedef struct unpickler {
  px_script *script;
  const char *folder;  // of the tensors' data
  const unsigned char *at, *end;
  px__var stack, memo;  // lists
  px__box *storages;    // a dict: key to storage
  bool done;
} unpickler;

#define FAIL_PICKLE(...) PX_FAIL(PX_RUNTIME, "the pickle of the archive is invalid: " __VA_ARGS__)

// ---- the stack

static px__box *stack_of(const unpickler *u) { return u->stack.v.box; }

static px_status push_take(unpickler *u, px__var value_take) {
  PX__SCOPED_VAR value = value_take;
  return px__push(stack_of(u), value);
}
static px_status pop(px__var *out, unpickler *u) {
  px__box *stack = stack_of(u);
  if (!stack->count) FAIL_PICKLE("its stack is empty");
  *out = stack->items[--stack->count];
  return PX_OK;
}
static px_status top(px__var *out, const unpickler *u, px__sort sort) {
  const px__box *stack = stack_of(u);
  if (!stack->count || (sort && stack->items[stack->count - 1].sort != sort))
    FAIL_PICKLE("its stack has another value");
  *out = stack->items[stack->count - 1];
  return PX_OK;
}
// Position after the last mark.
static px_status mark_of(int64_t *out, const unpickler *u) {
  const px__box *stack = stack_of(u);
  for (*out = stack->count; *out > 0; --*out)
    if (stack->items[*out - 1].sort == PX__MARKER) return PX_OK;
  FAIL_PICKLE("it has no mark");
}

// ---- operands

static px_status take(const unsigned char **out, unpickler *u, size_t bytes) {
  if ((size_t)(u->end - u->at) < bytes) FAIL_PICKLE("it ended early");
  *out = u->at;
  u->at += bytes;
  return PX_OK;
}
static px_status take_number(uint64_t *out, unpickler *u, int bytes) {
  const unsigned char *at;
  PX_TRY(take(&at, u, (size_t)bytes));
  *out = 0;
  for (int i = bytes - 1; i >= 0; i--) *out = *out << 8 | at[i];
  return PX_OK;
}
static px_status take_line(const char **out, size_t *length, unpickler *u) {
  const unsigned char *end = memchr(u->at, '\n', (size_t)(u->end - u->at));
  if (!end) FAIL_PICKLE("it ended early");
  *out = (const char *)u->at;
  *length = (size_t)(end - u->at);
  u->at = end + 1;
  return PX_OK;
}

// ---- opcodes

static px_status push_int(unpickler *u, int bytes, bool is_signed) {
  uint64_t n;
  PX_TRY(take_number(&n, u, bytes));
  return push_take(u, px__of_int(is_signed ? (int32_t)n : (int64_t)n));
}

static px_status push_long(unpickler *u) {
  uint64_t length, n = 0;
  PX_TRY(take_number(&length, u, 1));
  if (length > 8) FAIL_PICKLE("it has an integer beyond int64");
  PX_TRY(take_number(&n, u, (int)length));
  if (length && length < 8 && n >> (8 * length - 1)) n |= ~(uint64_t)0 << (8 * length);
  return push_take(u, px__of_int((int64_t)n));
}

static px_status push_float(unpickler *u) {
  const unsigned char *at;
  uint64_t bits = 0;
  double number;
  PX_TRY(take(&at, u, 8));
  for (int i = 0; i < 8; i++) bits = bits << 8 | at[i];
  memcpy(&number, &bits, 8);
  return push_take(u, px__of_float(number));
}

static px_status push_text(unpickler *u, int length_bytes) {
  uint64_t length;
  const unsigned char *at;
  PX__SCOPED_VAR made = {0};
  PX_TRY(take_number(&length, u, length_bytes));
  PX_TRY(take(&at, u, length));
  PX_TRY(px__text_new(&made, u->script, (const char *)at, length));
  return px__push(stack_of(u), made);
}

static px_status push_empty(unpickler *u, px__sort sort) {
  PX__SCOPED_VAR made = {0};
  PX_TRY(px__box_new(&made, u->script, sort));
  return px__push(stack_of(u), made);
}

static px_status push_tuple(unpickler *u, int64_t from) {
  px__box *stack = stack_of(u);
  PX__SCOPED_VAR made = {0};
  if (from < 0) FAIL_PICKLE("its stack is empty");
  PX_TRY(px__box_new(&made, u->script, PX__TUPLE));
  for (int64_t i = from; i < stack->count; i++) {
    if (stack->items[i].sort == PX__MARKER) FAIL_PICKLE("a mark is inside of a tuple");
    PX_TRY(px__push(made.v.box, stack->items[i]));
  }
  px__erase(stack, from, stack->count - from);
  return px__push(stack, made);
}

static px_status push_marked_tuple(unpickler *u) {
  px__box *stack = stack_of(u);
  PX__SCOPED_VAR tuple = {0};
  int64_t from;
  PX_TRY(mark_of(&from, u));
  PX_TRY(push_tuple(u, from));
  PX_TRY(pop(&tuple, u));
  stack->count--;  // the mark
  return px__push(stack, tuple);
}

// Moves the items from a position to the list, or the dict, below it.
static px_status append(unpickler *u, int64_t from, bool marked, bool dict) {
  px__box *stack = stack_of(u);
  int64_t at = from - marked - 1;
  if (at < 0 || stack->items[at].sort != (dict ? PX__DICT : PX__LIST) ||
      (dict && (stack->count - from) % 2))
    FAIL_PICKLE("it adds items to another value");
  px__box *to = stack->items[at].v.box;
  for (int64_t i = from; i < stack->count; i += dict ? 2 : 1)
    PX_TRY(dict ? px__dict_set(to, stack->items[i], stack->items[i + 1])
                : px__push(to, stack->items[i]));
  px__erase(stack, from - marked, stack->count - from + marked);
  return PX_OK;
}
static px_status append_marked(unpickler *u, bool dict) {
  int64_t from;
  PX_TRY(mark_of(&from, u));
  return append(u, from, true, dict);
}

static px_status memo_put(unpickler *u, int bytes) {
  uint64_t at;
  px__var value;
  px__box *memo = u->memo.v.box;
  PX_TRY(take_number(&at, u, bytes));
  PX_TRY(top(&value, u, 0));
  if (at > (uint64_t)memo->count) FAIL_PICKLE("its memo has a gap");
  if (at == (uint64_t)memo->count) return px__push(memo, value);
  px__var old = memo->items[at];
  memo->items[at] = px__var_keep(value);
  px__var_free(&old);
  return PX_OK;
}
static px_status memo_get(unpickler *u, int bytes) {
  uint64_t at;
  PX_TRY(take_number(&at, u, bytes));
  if (at >= (uint64_t)u->memo.v.box->count) FAIL_PICKLE("it reads an unset entry of its memo");
  return px__push(stack_of(u), u->memo.v.box->items[at]);
}

static px_status push_global(unpickler *u) {
  const char *module = NULL, *name = NULL, *path;
  size_t lengths[2] = {0};
  char text[512];
  PX_TRY(take_line(&module, &lengths[0], u));
  PX_TRY(take_line(&name, &lengths[1], u));
  if (lengths[0] + lengths[1] + 2 > sizeof text) FAIL_PICKLE("a name is too long");
  snprintf(text, sizeof text, "%.*s.%.*s", (int)lengths[0], module, (int)lengths[1], name);
  px__definition *found = px__definition_find(u->script, text);
  if (found) return push_take(u, (px__var){PX__CLASS, {.definition = found}});
  if (!strncmp(text, "__torch__", 9)) FAIL_PICKLE("its code has no class %.200s", text);
  PX_TRY(px__arena_text(&path, u->script, text, strlen(text)));
  return push_take(u, (px__var){PX__GLOBAL, {.name = path}});
}

// ---- tensors

// "torch.FloatStorage"
static px_status storage_dtype(px_dtype *out, const char *name) {
  for (int d = 0; d < PX_DTYPE_COUNT; d++) {
    char known[64];
    bool stored = d < PX_DTYPE_COMPUTED || d == PX_COMPLEX64 || d == PX_COMPLEX128;
    snprintf(known, sizeof known, "torch.%sStorage", px_dtype_class((px_dtype)d));
    if (stored && px__is(name, known)) return *out = (px_dtype)d, PX_OK;
  }
  PX_FAIL(PX_UNIMPLEMENTED, "storages of type %s are not supported", name);
}

static px_status read_storage(px__var *out, unpickler *u, const px__box *id, px_dtype dtype) {
  px_script *script = u->script;
  char name[300], *bytes;
  PX__SCOPED_VAR made = {0};
  PX_SCOPED(px_tensor) host = NULL;
  snprintf(name, sizeof name, "%s/%.200s", u->folder, id->items[2].v.box->text);
  const px__record *record = px__archive_find(&script->archive, name);
  PX_CHECK(record, PX_RUNTIME, "PytorchStreamReader failed locating file %s: file not found", name);
  int64_t size = (int64_t)px_dtype_size(dtype), count = id->items[4].v.i;
  if (count < 0 || count > INT64_MAX / size || (uint64_t)(count * size) > record->size)
    FAIL_PICKLE("the record %s is too small", name);
  PX_TRY(px__archive_read(&bytes, &script->archive, record));
  px_status status = px_tensor_from_data(&host, bytes, 1, &count, dtype, px_cpu());
  px_free(bytes);
  PX_TRY(status);
  px_device device = script->device;
  if (device.type < 0) PX_TRY(px_device_parse(&device, id->items[3].v.box->text));
  PX_SCOPED(px_tensor) there = NULL;
  PX_TRY(px_to(&there, host, dtype, device, false, false));
  PX_TRY(px__box_new(&made, script, PX__STORAGE));
  made.v.box->dtype = dtype;
  PX_TRY(px__push(made.v.box, (px__var){PX__TENSOR, {.tensor = there}}));
  *out = px__var_move(&made);
  return PX_OK;
}

// ("storage", type, key, device, count)
static px_status push_persistent(unpickler *u) {
  PX__SCOPED_VAR id = {0}, storage = {0};
  px_dtype dtype = PX_DTYPE_NONE;
  PX_TRY(pop(&id, u));
  const px__var *items = id.sort == PX__TUPLE ? id.v.box->items : NULL;
  if (!items || id.v.box->count != 5 || items[1].sort != PX__GLOBAL || items[2].sort != PX__TEXT ||
      items[3].sort != PX__TEXT || items[4].sort != PX__INT)
    FAIL_PICKLE("it has a persistent id of another form");
  PX_TRY(storage_dtype(&dtype, items[1].v.name));
  int64_t known = px__dict_find(u->storages, items[2]);
  if (known >= 0) return px__push(stack_of(u), u->storages->items[known + 1]);
  PX_TRY(read_storage(&storage, u, id.v.box, dtype));
  PX_TRY(px__dict_set(u->storages, items[2], storage));
  return px__push(stack_of(u), storage);
}

static bool read_sizes(int64_t *to, px__var from, int64_t *count) {
  if (from.sort != PX__TUPLE || from.v.box->count > PX_MAX_DIMS) return false;
  *count = from.v.box->count;
  for (int64_t i = 0; i < *count; i++) {
    if (from.v.box->items[i].sort != PX__INT) return false;
    to[i] = from.v.box->items[i].v.i;
  }
  return true;
}

// (storage, offset, sizes, strides, requires_grad, hooks)
static px_status rebuild_tensor(px__var *out, const px__box *args) {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS], ndim, other;
  const px__var *a = args->items;
  if (args->count < 5 || a[0].sort != PX__STORAGE || a[1].sort != PX__INT ||
      !read_sizes(sizes, a[2], &ndim) || !read_sizes(strides, a[3], &other) || ndim != other ||
      a[4].sort != PX__BOOL)
    FAIL_PICKLE("it has a tensor of another form");
  px_tensor *whole = a[0].v.box->items[0].v.tensor, *made;
  PX_TRY(px_tensor_from_storage(&made, px_tensor_storage(whole), a[0].v.box->dtype, (int)ndim,
                                sizes, strides, a[1].v.i));
  *out = px__of_tensor(made);
  return a[4].v.i ? px_tensor_set_requires_grad(made, true) : PX_OK;
}

// ---- calls

static px_status build_device(px__var *out, const px__box *args) {
  PX_CHECK(args->count == 1 && args->items[0].sort == PX__TEXT, PX_RUNTIME,
           "the pickle of the archive is invalid: it has a device of another form");
  *out = (px__var){.sort = PX__DEVICE};
  return px_device_parse(&out->v.device, args->items[0].v.box->text);
}

static px_status build_complex(px__var *out, const px__box *args) {
  if (args->count != 2 || !px__is_number(args->items[0]) || !px__is_number(args->items[1]))
    FAIL_PICKLE("it has a complex number of another form");
  *out =
      (px__var){PX__COMPLEX, {.c = {px__to_float(args->items[0]), px__to_float(args->items[1])}}};
  return PX_OK;
}

// Finds the member of an enum by its value.
static px_status build_enum(px__var *out, px_script *script, const px__definition *cls,
                            const px__box *args) {
  for (int i = 0; args->count == 1 && i < cls->attribute_count; i++) {
    PX__SCOPED_VAR value = {0}, name = {0}, made = {0};
    if (!cls->values[i]) continue;
    PX_TRY(px__constant(&value, script, cls->values[i]));
    if (!px__same(value, args->items[0])) continue;
    PX_TRY(px__text_new(&name, script, cls->attributes[i], strlen(cls->attributes[i])));
    PX_TRY(px__box_new(&made, script, PX__TUPLE));
    PX_TRY(px__push(made.v.box, name));
    PX_TRY(px__push(made.v.box, value));
    return *out = px__var_move(&made), PX_OK;
  }
  FAIL_PICKLE("%s has no such member", cls->name);
}

static px_status call_global(px__var *out, unpickler *u, const char *name, const px__box *args) {
  if (px__is(name, "torch._utils._rebuild_tensor_v2")) return rebuild_tensor(out, args);
  if (px__is(name, "torch.device")) return build_device(out, args);
  if (px__is(name, "builtins.complex")) return build_complex(out, args);
  if (px__is(name, "collections.OrderedDict") && !args->count)
    return px__box_new(out, u->script, PX__DICT);
  if (!strncmp(name, "torch.jit._pickle.", 18) && args->count >= 1 &&
      args->items[0].sort == PX__LIST)  // build_intlist, restore_type_tag and others
    return *out = px__var_keep(args->items[0]), PX_OK;
  if (px__is(name, "torch.jit._pickle.restore_type_tag") && args->count >= 1)
    return *out = px__var_keep(args->items[0]), PX_OK;
  PX_FAIL(PX_UNIMPLEMENTED, "TorchScript archives with values of %s are not supported", name);
}

static px_status reduce(unpickler *u) {
  PX__SCOPED_VAR args = {0}, callee = {0}, made = {0};
  PX_TRY(pop(&args, u));
  PX_TRY(pop(&callee, u));
  bool enumerated = callee.sort == PX__CLASS && px__is(callee.v.definition->base, "Enum");
  if (args.sort != PX__TUPLE || (callee.sort != PX__GLOBAL && !enumerated))
    FAIL_PICKLE("it calls another value");
  PX_TRY(enumerated ? build_enum(&made, u->script, callee.v.definition, args.v.box)
                    : call_global(&made, u, callee.v.name, args.v.box));
  return px__push(stack_of(u), made);
}

static px_status new_object(unpickler *u) {
  PX__SCOPED_VAR args = {0}, cls = {0}, made = {0};
  PX_TRY(pop(&args, u));
  PX_TRY(pop(&cls, u));
  if (cls.sort != PX__CLASS || !cls.v.definition->is_class) FAIL_PICKLE("it makes another object");
  PX_TRY(px__object_new(&made, u->script, cls.v.definition));
  return px__push(stack_of(u), made);
}

// Sets the attributes of an object, or calls its __setstate__.
static px_status build(unpickler *u) {
  PX__SCOPED_VAR state = {0}, none = {0};
  px__var object;
  PX_TRY(pop(&state, u));
  PX_TRY(top(&object, u, PX__OBJECT));
  px__definition *setter = px__method_find(object.v.box->definition, "__setstate__");
  if (setter) {
    px__named_var args[] = {{NULL, object}, {NULL, state}};
    PX_TRY(px__call(&none, u->script, setter, args, 2));
    object.v.box->built = true;
    return PX_OK;
  }
  if (state.sort != PX__DICT) FAIL_PICKLE("the state of an object is no dict");
  for (int64_t i = 0; i < state.v.box->count; i += 2) {
    px__var name = state.v.box->items[i];
    if (name.sort != PX__TEXT) FAIL_PICKLE("the name of an attribute is no text");
    PX_TRY(px__object_set(object, name.v.box->text, state.v.box->items[i + 1]));
  }
  object.v.box->built = true;
  return PX_OK;
}

static px_status step_values(unpickler *u, unsigned char code, bool *known) {
  switch (code) {
    case 'N':
      return push_take(u, px__none());
    case 0x88:
    case 0x89:
      return push_take(u, px__of_bool(code == 0x88));
    case 'J':
      return push_int(u, 4, true);
    case 'K':
      return push_int(u, 1, false);
    case 'M':
      return push_int(u, 2, false);
    case 0x8a:
      return push_long(u);
    case 'G':
      return push_float(u);
    case 'X':
      return push_text(u, 4);
    case 0x8c:
      return push_text(u, 1);
    case ')':
      return push_empty(u, PX__TUPLE);
    case ']':
      return push_empty(u, PX__LIST);
    case '}':
      return push_empty(u, PX__DICT);
    default:
      *known = false;
      return PX_OK;
  }
}

static px_status step(unpickler *u, unsigned char code) {
  bool known = true;
  int64_t count = stack_of(u)->count;
  PX_TRY(step_values(u, code, &known));
  if (known) return PX_OK;
  switch (code) {
    case '(':
      return push_take(u, (px__var){.sort = PX__MARKER});
    case 't':
      return push_marked_tuple(u);
    case 0x85:
    case 0x86:
    case 0x87:
      return push_tuple(u, count - (code - 0x84));
    case 'a':
      return append(u, count - 1, false, false);
    case 'e':
      return append_marked(u, false);
    case 's':
      return append(u, count - 2, false, true);
    case 'u':
      return append_marked(u, true);
    case 'q':
      return memo_put(u, 1);
    case 'r':
      return memo_put(u, 4);
    case 'h':
      return memo_get(u, 1);
    case 'j':
      return memo_get(u, 4);
    case 'c':
      return push_global(u);
    case 'Q':
      return push_persistent(u);
    case 'R':
      return reduce(u);
    case 0x81:
      return new_object(u);
    case 'b':
      return build(u);
    case '.':
      return u->done = true, PX_OK;
    default:
      FAIL_PICKLE("unknown opcode %d", code);
  }
}

static px_status run(px__var *out, unpickler *u) {
  const unsigned char *at;
  PX__SCOPED_VAR storages = {0};
  PX_TRY(px__box_new(&u->stack, u->script, PX__LIST));
  PX_TRY(px__box_new(&u->memo, u->script, PX__LIST));
  PX_TRY(px__box_new(&storages, u->script, PX__DICT));
  u->storages = storages.v.box;
  PX_TRY(take(&at, u, 2));
  if (at[0] != 0x80 || at[1] != 2) FAIL_PICKLE("its protocol is not 2");
  while (!u->done) {
    PX_TRY(take(&at, u, 1));
    PX_TRY(step(u, *at));
  }
  return pop(out, u);
}

px_status px__unpickle(px__var *out, px_script *script, const char *name) {
  char file[64], *bytes;
  snprintf(file, sizeof file, "%s.pkl", name);
  const px__record *record = px__archive_find(&script->archive, file);
  PX_CHECK(record, PX_RUNTIME, "PytorchStreamReader failed locating file %s: file not found", file);
  PX_TRY(px__archive_read(&bytes, &script->archive, record));
  unpickler u = {.script = script,
                 .folder = name,
                 .at = (unsigned char *)bytes,
                 .end = (unsigned char *)bytes + record->size};
  px_status status = run(out, &u);
  px__var_free(&u.stack);
  px__var_free(&u.memo);
  px_free(bytes);
  return status;
}
