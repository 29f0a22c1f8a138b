// SPDX-License-Identifier: Apache-2.0
// The interpreter: evaluates syntax trees in frames of local values.
#include <stdio.h>
#include <stdlib.h>

#include "script/script_impl.h"

typedef struct frame {
  px_script *script;
  const px__definition *function;
  px__var *locals;
  px__var result;  // set by a return statement
} frame;

static px_status evaluate(px__var *out, frame *f, px__node *node);
static px_status run(frame *f, px__node *block);

static bool is_path(const px__node *node, const char *path) {
  return node->path && px__is(node->path, path);
}

// ---- names

// Values of global names: constants of the archive, enum members, and names of numbers.
static px_status global(px__var *out, frame *f, px__node *node) {
  px_script *script = f->script;
  const char *path = node->path;
  int64_t at = -1;
  int end = 0;
  if (path && !node->definition) node->definition = px__definition_find(script, path);
  if (node->definition) return *out = (px__var){PX__CLASS, {.definition = node->definition}}, PX_OK;
  if (path && !strncmp(path, "CONSTANTS.c", 11) && sscanf(path + 11, "%9d%n", &(int){0}, &end) == 1)
    at = strtol(path + 11, NULL, 10);
  const px__box *constants = script->constants.sort >= PX__LIST ? script->constants.v.box : NULL;
  if (at >= 0 && constants && at < constants->count)
    return *out = px__var_keep(constants->items[at]), PX_OK;
  if (is_path(node, "inf")) return *out = px__of_float(__builtin_inf()), PX_OK;
  if (is_path(node, "nan")) return *out = px__of_float(__builtin_nan("")), PX_OK;
  PX_FAIL(PX_RUNTIME, "%s: line %d: the name '%s' is not defined",
          f->function ? f->function->file : "", node->line, path ? path : node->name);
}

// A member of an enum: an object with its name and value.
static px_status enum_member(px__var *out, px_script *script, px__definition *cls,
                             const char *name) {
  int at = px__attribute_index(cls, name);
  PX_CHECK(at >= 0 && cls->values[at], PX_ATTRIBUTE, "type object '%s' has no attribute '%s'",
           cls->own, name);
  PX__SCOPED_VAR value = {0}, text = {0}, made = {0};
  PX_TRY(px__constant(&value, script, cls->values[at]));
  PX_TRY(px__text_new(&text, script, name, strlen(name)));
  PX_TRY(px__box_new(&made, script, PX__TUPLE));
  PX_TRY(px__push(made.v.box, text));
  PX_TRY(px__push(made.v.box, value));
  *out = px__var_move(&made);
  return PX_OK;
}

static px_status attribute(px__var *out, frame *f, px__node *node) {
  PX__SCOPED_VAR of = {0};
  if (node->path) {
    if (px__definition_find(f->script, node->path) || !strncmp(node->path, "CONSTANTS.", 10))
      return global(out, f, node);
  }
  PX_TRY(evaluate(&of, f, node->parts[0]));
  if (of.sort == PX__CLASS) return enum_member(out, f->script, of.v.definition, node->name);
  if (of.sort == PX__OBJECT) return px__object_get(out, of, node->name);
  if (of.sort == PX__TUPLE && of.v.box->count == 2 && px__is(node->name, "name"))
    return *out = px__var_keep(of.v.box->items[0]), PX_OK;
  if (of.sort == PX__TUPLE && of.v.box->count == 2 && px__is(node->name, "value"))
    return *out = px__var_keep(of.v.box->items[1]), PX_OK;
  px__named_var arg = {NULL, of};
  return px__call_op(out, f->script, node, node->name, &arg, 1);  // x.dtype
}

// ---- calls

typedef struct arguments {
  px__named_var *items;
  int count;
} arguments;
static void arguments_free(arguments *a) {
  for (int i = 0; i < a->count; i++) px__var_free(&a->items[i].value);
  px_free(a->items);
}

// Evaluates the arguments of a call after `self`, if that is set.
static px_status evaluate_arguments(arguments *a, frame *f, const px__node *call, px__var self) {
  PX_TRY(px_alloc((void **)&a->items, (size_t)(call->count + 1) * sizeof *a->items));
  if (self.sort) a->items[a->count++].value = px__var_keep(self);
  for (int i = 1; i < call->count; i++) {
    px__node *part = call->parts[i];
    bool named = part->kind == PX__KEYWORD;
    px__var value = {0};
    PX_TRY(evaluate(&value, f, named ? part->parts[0] : part));
    a->items[a->count++] = (px__named_var){named ? part->name : NULL, value};
  }
  return PX_OK;
}

#define SCOPED_ARGUMENTS __attribute__((cleanup(arguments_free))) arguments

static px_status named_tuple(px__var made, const px__definition *cls, const arguments *args) {
  for (int i = 0; i < args->count; i++) {
    const char *name = args->items[i].name;
    if (!name && i < cls->attribute_count) name = cls->attributes[i];
    PX_CHECK(name, PX_TYPE, "%s() takes %d arguments, got %d", cls->own, cls->attribute_count,
             args->count);
    PX_TRY(px__object_set(made, name, args->items[i].value));
  }
  return PX_OK;
}

static px_status call_definition(px__var *out, frame *f, const px__node *call,
                                 px__definition *definition, px__var self) {
  SCOPED_ARGUMENTS args = {0};
  PX__SCOPED_VAR made = {0}, none = {0};
  if (!definition->is_class) {
    PX_TRY(evaluate_arguments(&args, f, call, self));
    return px__call(out, f->script, definition, args.items, args.count);
  }
  bool tuple = px__is(definition->base, "NamedTuple");
  px__definition *init = px__method_find(definition, "__init__");
  PX_CHECK(tuple || init, PX_UNIMPLEMENTED,
           "a call of the class %s, which has no __init__, is not supported", definition->name);
  PX_TRY(px__object_new(&made, f->script, definition));
  PX_TRY(evaluate_arguments(&args, f, call, tuple ? (px__var){0} : made));
  PX_TRY(tuple ? named_tuple(made, definition, &args)
               : px__call(&none, f->script, init, args.items, args.count));
  *out = px__var_move(&made);
  return PX_OK;
}

// Compiler functions: arguments that are types, and values without a computation.
static px_status call_compiler(px__var *out, frame *f, const px__node *call, bool *known) {
  const px__node *callee = call->parts[0];
  *known = true;
  if ((is_path(callee, "annotate") || is_path(callee, "unchecked_cast")) && call->count == 3)
    return evaluate(out, f, call->parts[2]);
  if (is_path(callee, "uninitialized")) return *out = px__none(), PX_OK;
  if (is_path(callee, "isinstance") && call->count == 3) {
    PX__SCOPED_VAR value = {0};
    bool is;
    PX_TRY(evaluate(&value, f, call->parts[1]));
    PX_TRY(px__is_instance(&is, f->script, value, call->parts[2]));
    return *out = px__of_bool(is), PX_OK;
  }
  *known = false;
  return PX_OK;
}

// getattr(self, "0"), C.__new__(C).
static px_status call_reflection(px__var *out, frame *f, const px__node *call, bool *known) {
  const px__node *callee = call->parts[0];
  *known = false;
  if (is_path(callee, "getattr") && call->count == 3) {
    PX__SCOPED_VAR of = {0}, name = {0};
    *known = true;
    PX_TRY(evaluate(&of, f, call->parts[1]));
    PX_TRY(evaluate(&name, f, call->parts[2]));
    PX_CHECK(of.sort == PX__OBJECT && name.sort == PX__TEXT, PX_TYPE,
             "getattr() expects an object and a text");
    return px__object_get(out, of, name.v.box->text);
  }
  if (callee->kind == PX__ATTRIBUTE && callee->name && px__is(callee->name, "__new__") &&
      call->count == 2) {
    PX__SCOPED_VAR cls = {0};
    *known = true;
    PX_TRY(evaluate(&cls, f, call->parts[1]));
    PX_CHECK(cls.sort == PX__CLASS && cls.v.definition->is_class, PX_TYPE,
             "__new__() expects a class");
    return px__object_new(out, f->script, cls.v.definition);
  }
  return PX_OK;
}

// object.method(...)
static px_status call_method(px__var *out, frame *f, const px__node *call) {
  px__node *callee = call->parts[0];
  PX__SCOPED_VAR self = {0};
  PX_TRY(evaluate(&self, f, callee->parts[0]));
  if (self.sort == PX__OBJECT) {
    px__definition *method = px__method_find(self.v.box->definition, callee->name);
    PX_CHECK(method, PX_ATTRIBUTE, "'%s' object has no attribute or method '%s'",
             px__sort_name(self), callee->name);
    return call_definition(out, f, call, method, self);
  }
  SCOPED_ARGUMENTS args = {0};
  PX_TRY(evaluate_arguments(&args, f, call, self));
  return px__call_op(out, f->script, (px__node *)call, callee->name, args.items, args.count);
}

static px_status call(px__var *out, frame *f, px__node *node) {
  static const char *const spaces[] = {"torch.", "ops.prim.", "ops.aten.", "prim.", "aten.", ""};
  px__node *callee = node->parts[0];
  bool known;
  PX_TRY(call_compiler(out, f, node, &known));
  if (!known) PX_TRY(call_reflection(out, f, node, &known));
  if (known) return PX_OK;
  if (!callee->path && callee->kind == PX__ATTRIBUTE) return call_method(out, f, node);
  if (!callee->path) {
    PX__SCOPED_VAR function = {0};
    PX_TRY(evaluate(&function, f, callee));
    PX_CHECK(function.sort == PX__CLASS, PX_TYPE, "'%s' object is not callable",
             px__sort_name(function));
    return call_definition(out, f, node, function.v.definition, (px__var){0});
  }
  if (!callee->definition) callee->definition = px__definition_find(f->script, callee->path);
  if (callee->definition) return call_definition(out, f, node, callee->definition, (px__var){0});
  SCOPED_ARGUMENTS args = {0};
  PX_TRY(evaluate_arguments(&args, f, node, (px__var){0}));
  for (int i = 0;; i++) {
    size_t length = strlen(spaces[i]);
    if (!strncmp(callee->path, spaces[i], length))
      return px__call_op(out, f->script, node, callee->path + length, args.items, args.count);
  }
}

// ---- expressions

static px_status container(px__var *out, frame *f, const px__node *node) {
  px__sort sort = node->kind == PX__TUPLE_OF  ? PX__TUPLE
                  : node->kind == PX__LIST_OF ? PX__LIST
                                              : PX__DICT;
  PX__SCOPED_VAR made = {0};
  PX_TRY(px__box_new(&made, f->script, sort));
  for (int i = 0; i < node->count; i++) {
    PX__SCOPED_VAR key = {0}, value = {0};
    PX_TRY(evaluate(&value, f, node->parts[i]));
    if (sort != PX__DICT) {
      PX_TRY(px__push(made.v.box, value));
      continue;
    }
    key = px__var_move(&value);
    PX_TRY(evaluate(&value, f, node->parts[++i]));
    PX_TRY(px__dict_set(made.v.box, key, value));
  }
  *out = px__var_move(&made);
  return PX_OK;
}

static px_status condition(bool *out, frame *f, px__node *node) {
  PX__SCOPED_VAR value = {0};
  PX_TRY(evaluate(&value, f, node));
  return px__truth(out, value);
}

static px_status choice(px__var *out, frame *f, const px__node *node) {
  bool truth;
  PX_TRY(condition(&truth, f, node->parts[0]));
  if (node->kind == PX__CHOICE) return evaluate(out, f, node->parts[truth ? 1 : 2]);
  if (truth == (node->kind == PX__AND)) PX_TRY(condition(&truth, f, node->parts[1]));
  *out = px__of_bool(truth);
  return PX_OK;
}

static px_status subscript(px__var *out, frame *f, const px__node *node) {
  PX__SCOPED_VAR of = {0}, index = {0};
  PX_TRY(evaluate(&of, f, node->parts[0]));
  PX_TRY(evaluate(&index, f, node->parts[1]));
  return px__subscript(out, f->script, of, index);
}

static px_status evaluate_here(px__var *out, frame *f, px__node *node) {
  switch (node->kind) {
    case PX__LITERAL:
      return *out = px__var_keep(node->value), PX_OK;
    case PX__NAME:
      if (node->slot < 0) return global(out, f, node);
      PX_CHECK(f->locals && f->locals[node->slot].sort, PX_RUNTIME,
               "line %d: the name '%s' has no value", node->line, node->name);
      return *out = px__var_keep(f->locals[node->slot]), PX_OK;
    case PX__ATTRIBUTE:
      return attribute(out, f, node);
    case PX__SUBSCRIPT:
      return subscript(out, f, node);
    case PX__CALL:
      return call(out, f, node);
    case PX__TUPLE_OF:
    case PX__LIST_OF:
    case PX__DICT_OF:
      return container(out, f, node);
    case PX__CHOICE:
    case PX__AND:
    case PX__OR:
      return choice(out, f, node);
    default:
      PX_FAIL(PX_RUNTIME, "line %d: expected an expression", node->line);
  }
}

static px_status evaluate(px__var *out, frame *f, px__node *node) {
  PX_CHECK(f->script->depth < PX__SCRIPT_DEPTH, PX_RUNTIME,
           "maximum recursion depth of the script exceeded");
  f->script->depth++;
  px_status status = evaluate_here(out, f, node);
  f->script->depth--;
  if (status != PX_OK) px__var_free(out);  // unfinished results
  return status;
}

// ---- statements

static px_status assign(frame *f, px__node *target, px__var value);

static px_status unpack(frame *f, const px__node *target, px__var value) {
  bool many = value.sort == PX__TUPLE || value.sort == PX__LIST ||
              (value.sort == PX__OBJECT && !value.v.box->module);
  PX_CHECK(many && value.v.box->count == target->count, PX_VALUE,
           "expected %d values to unpack, got %lld", target->count,
           many ? (long long)value.v.box->count : 1);
  for (int i = 0; i < target->count; i++)
    PX_TRY(assign(f, target->parts[i], value.v.box->items[i]));
  return PX_OK;
}

static px_status assign(frame *f, px__node *target, px__var value) {
  PX__SCOPED_VAR of = {0}, index = {0}, none = {0};
  if (target->kind == PX__NAME) {
    px__var old = f->locals[target->slot];
    f->locals[target->slot] = px__var_keep(value);
    return px__var_free(&old), PX_OK;
  }
  if (target->kind == PX__TUPLE_OF || target->kind == PX__LIST_OF) return unpack(f, target, value);
  PX_TRY(evaluate(&of, f, target->parts[0]));
  if (target->kind == PX__ATTRIBUTE) {
    PX_CHECK(of.sort == PX__OBJECT, PX_TYPE, "cannot set the attribute '%s' of a '%s' object",
             target->name, px__sort_name(of));
    return px__object_set(of, target->name, value);
  }
  PX_TRY(evaluate(&index, f, target->parts[1]));
  px__named_var args[] = {{NULL, of}, {NULL, index}, {NULL, value}};
  return px__call_op(&none, f->script, target, "_set_item", args, 3);
}

static px_status assignment(frame *f, const px__node *node) {
  PX__SCOPED_VAR value = {0};
  PX_TRY(evaluate(&value, f, node->parts[node->count - 1]));
  return assign(f, node->parts[0], value);
}

static px_status loop_while(frame *f, const px__node *node) {
  for (;;) {
    bool more;
    PX_TRY(px_interrupt_poll());
    PX_TRY(condition(&more, f, node->parts[0]));
    if (!more) return PX_OK;
    PX_TRY(run(f, node->parts[1]));
    if (f->result.sort) return PX_OK;
  }
}

static px_status loop_range(frame *f, const px__node *node, int64_t count) {
  for (int64_t i = 0; i < count && !f->result.sort; i++) {
    PX_TRY(px_interrupt_poll());
    PX_TRY(assign(f, node->parts[0], px__of_int(i)));
    PX_TRY(run(f, node->parts[2]));
  }
  return PX_OK;
}

static px_status loop_for(frame *f, const px__node *node) {
  px__node *over = node->parts[1];
  bool range = over->kind == PX__CALL && is_path(over->parts[0], "range") && over->count == 2;
  PX__SCOPED_VAR value = {0}, items = {0};
  PX_TRY(evaluate(&value, f, range ? over->parts[1] : over));
  if (range) {
    PX_CHECK(value.sort == PX__INT, PX_TYPE, "range() expects an int, got %s",
             px__sort_name(value));
    return loop_range(f, node, value.v.i);
  }
  px__named_var arg = {NULL, value};
  PX_TRY(px__call_op(&items, f->script, over, "list", &arg, 1));
  for (int64_t i = 0; i < items.v.box->count && !f->result.sort; i++) {
    PX_TRY(px_interrupt_poll());
    PX_TRY(assign(f, node->parts[0], items.v.box->items[i]));
    PX_TRY(run(f, node->parts[2]));
  }
  return PX_OK;
}

// Calls a method of a context without arguments beyond `more` Nones.
static px_status context_call(px__var *out, frame *f, px__var context, const char *name, int more) {
  PX_CHECK(context.sort == PX__OBJECT, PX_TYPE, "'%s' object is not a context manager",
           px__sort_name(context));
  px__definition *method = px__method_find(context.v.box->definition, name);
  PX_CHECK(method, PX_ATTRIBUTE, "'%s' object has no method '%s'", px__sort_name(context), name);
  px__named_var given[4] = {{NULL, context}};
  for (int i = 1; i <= more; i++) given[i].value = px__none();
  return px__call(out, f->script, method, given, 1 + more);
}

static px_status with(frame *f, const px__node *node) {
  PX__SCOPED_VAR context = {0}, entered = {0}, none = {0};
  PX_TRY(evaluate(&context, f, node->parts[0]));
  PX_TRY(context_call(&entered, f, context, "__enter__", 0));
  px_status status = node->count > 2 ? assign(f, node->parts[2], entered) : PX_OK;
  if (status == PX_OK) status = run(f, node->parts[1]);
  px_error error;
  if (status != PX_OK) px_error_take(&error);
  px_status left = context_call(&none, f, context, "__exit__", 3);
  return status != PX_OK ? px_error_give(&error) : left;
}

static px_status statement(frame *f, px__node *node) {
  PX__SCOPED_VAR value = {0};
  bool truth;
  switch (node->kind) {
    case PX__PASS:
      return PX_OK;
    case PX__VALUE:
      return evaluate(&value, f, node->parts[0]);
    case PX__ASSIGN:
      return assignment(f, node);
    case PX__DECLARE:
      return node->count > 2 ? assignment(f, node) : PX_OK;
    case PX__RETURN:
      f->result = px__none();
      if (!node->count) return PX_OK;
      f->result.sort = PX__UNSET;
      return evaluate(&f->result, f, node->parts[0]);
    case PX__IF:
      PX_TRY(condition(&truth, f, node->parts[0]));
      return truth ? run(f, node->parts[1]) : node->count > 2 ? run(f, node->parts[2]) : PX_OK;
    case PX__WHILE:
      return loop_while(f, node);
    case PX__FOR:
      return loop_for(f, node);
    case PX__WITH:
      return with(f, node);
    default:
      return run(f, node);
  }
}

static px_status run(frame *f, px__node *block) {
  PX_CHECK(f->script->depth < PX__SCRIPT_DEPTH, PX_RUNTIME,
           "maximum recursion depth of the script exceeded");
  if (block->kind != PX__BLOCK) return statement(f, block);
  f->script->depth++;
  px_status status = PX_OK;
  for (int i = 0; i < block->count && status == PX_OK && !f->result.sort; i++)
    status = statement(f, block->parts[i]);
  f->script->depth--;
  return status;
}

// ---- functions

px_status px__constant(px__var *out, px_script *script, px__node *node) {
  frame f = {.script = script};
  return evaluate(out, &f, node);
}

static int parameter_index(const px__definition *function, const char *name) {
  for (int i = 0; i < function->parameter_count; i++)
    if (px__is(function->parameters[i].name, name)) return i;
  return -1;
}

static px_status pass_arguments(frame *f, const px__named_var *args, int count) {
  const px__definition *d = f->function;
  for (int i = 0; i < count; i++) {
    int at = args[i].name ? parameter_index(d, args[i].name) : i;
    PX_CHECK(at >= 0, PX_RUNTIME, "Unknown keyword argument '%s' for operator '%s'.", args[i].name,
             d->own);
    PX_CHECK(at < d->parameter_count, PX_RUNTIME,
             "%s() expected at most %d argument(s) but received %d argument(s).", d->own,
             d->parameter_count, count);
    PX_CHECK(!f->locals[at].sort, PX_RUNTIME, "%s() received the argument '%s' twice", d->own,
             d->parameters[at].name);
    f->locals[at] = px__var_keep(args[i].value);
  }
  for (int i = 0; i < d->parameter_count; i++) {
    if (f->locals[i].sort) continue;
    PX_CHECK(d->parameters[i].fallback, PX_RUNTIME, "%s() is missing value for argument '%s'.",
             d->own, d->parameters[i].name);
    PX_TRY(px__constant(&f->locals[i], f->script, d->parameters[i].fallback));
  }
  return PX_OK;
}

// An integer argument of a float parameter becomes a float.
static px_status check_types(frame *f) {
  for (int i = 0; i < f->function->parameter_count; i++) {
    const px__node *type = f->function->parameters[i].type;
    px__var *value = &f->locals[i];
    if (!type) continue;
    if (value->sort == PX__INT && is_path(type, "float")) *value = px__of_float((double)value->v.i);
    bool fits;
    PX_TRY(px__is_instance(&fits, f->script, *value, type));
    PX_CHECK(fits, PX_RUNTIME,
             "%s() Expected a value of type '%s' for argument '%s' but instead found type '%s'.",
             f->function->own, type->path ? type->path : "another type",
             f->function->parameters[i].name, px__sort_name(*value));
  }
  return PX_OK;
}

px_status px__call(px__var *out, px_script *script, px__definition *function,
                   const px__named_var *args, int count) {
  frame f = {.script = script, .function = function};
  PX_TRY(px_alloc((void **)&f.locals, (size_t)(function->slots + 1) * sizeof *f.locals));
  px_status status = pass_arguments(&f, args, count);
  if (status == PX_OK) status = check_types(&f);
  if (status == PX_OK) status = run(&f, function->body);
  for (int i = 0; i < function->slots; i++) px__var_free(&f.locals[i]);
  px_free(f.locals);
  *out = f.result.sort && status == PX_OK ? px__var_move(&f.result) : px__none();
  px__var_free(&f.result);
  return status;
}
