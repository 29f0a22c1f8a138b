// SPDX-License-Identifier: Apache-2.0
// Writes the C functions of formulas, first their lets, then their results: backward functions, run
// functions, `formula` entries, forward functions of layers and rules of vmap.
#include "opgen/compose.h"

// ---- lets
//
// A let is written before its readers, under the condition of its use: of a choice's branch, or of
// a wanted gradient. A guard is that condition in C; "" is always, NULL never.

static const char *both(const char *test, const char *guard) {
  return !guard || !*guard ? guard ? test : NULL : og_format("%s && %s", test, guard);
}
static const char *either(const char *a, const char *b) {
  if (!a || !b) return a ? a : b;
  if (!*a || !*b || !strcmp(a, b)) return *b ? a : b;
  size_t n = strlen(a), m = strlen(b);  // "x && b" or "b"
  if (n > m + 4 && !strcmp(a + n - m, b) && !strncmp(a + n - m - 4, " && ", 4)) return b;
  return og_format("((%s) || (%s))", a, b);
}

static bool mentions_let(const og_node *n, const og_let *let) {
  for (int i = 0; i < let->count; i++)
    if (og_mentions(n, let->names[i])) return true;
  return false;
}

// Returns the guard of a let in a formula. Other lets count where they are read.
static const char *guard_of(context *x, const og_node *n, const og_let *let) {
  int which;
  const og_let *read = n->kind == OG_NAME ? og_let_find(x->op, n->text, &which) : NULL;
  if (read) return read == let ? "" : guard_of(x, read->node, let);
  const char *guard = NULL;
  if (n->kind == OG_LOOP && mentions_let(n->items[0], let)) return "";
  if (n->kind == OG_CHOICE && (og_reads_elements(n) || og_sort_of(x->op, n) == IS_TENSOR)) {
    const char *then = guard_of(x, n->items[0], let), *otherwise = guard_of(x, n->items[2], let);
    guard = guard_of(x, n->items[1], let);
    if (guard || (!then && !otherwise)) return guard;
    if (then && otherwise && !strcmp(then, otherwise)) return then;
    const char *test = og_shared_test(x, n->items[1]);
    guard = either(both(test, then), both(og_format("!%s", test), otherwise));
    return guard;
  }
  for (int i = 0; i < n->count; i++) guard = either(guard, guard_of(x, n->items[i], let));
  return guard;
}

static void write_number_let(context *x, const og_let *let, og_value *to) {
  static const char *const types[OG_TYPE_COUNT] = {
      [OG_INT] = "int64_t", [OG_FLOAT] = "double", [OG_BOOL] = "bool", [OG_TEXT] = "char *"};
  og_scope names = og_names_of(x);
  og_value v = og_number(let->node, og_resolve, &names);
  if (v.type == OG_TYPE_COUNT || !types[v.type])
    og_die(let->node->location, "the let '%s' is not a number", let->names[0]);
  fprintf(x->to, "%sconst %s n%d = %s;\n", x->indent, types[v.type], ++x->steps, v.c);
  *to = (og_value){.type = v.type, .c = og_format("n%d", x->steps)};
}

// Begins the block of a let, executed under its guard.
static void begin_block(context *x, const og_let *let, const char *guard) {
  fprintf(x->to, "%s", x->indent);
  if (*guard) fprintf(x->to, "if (%s) ", guard);
  fprintf(x->to, "{  // %s\n", let->names[0]);
}

static void write_tensor_let(context *x, const og_let *let, og_value *to, const char *guard) {
  const char *place[OG_OP_RESULTS];
  int first = x->temporary_count;
  for (int i = 0; i < let->count; i++) {
    int made = og_new_temporary(x);
    place[i] = og_format("t[%d]", made);
    to[i] = (og_value){.type = OG_TENSOR, .c = og_format("PX_T(%s)", place[i])};
    x->held[let - x->op->lets][i] = made + 1;
  }
  begin_block(x, let, guard);
  og_write_branch(x, let->node, place, let->count);
  fprintf(x->to, "%s}\n", x->indent);
  x->temporary_count = first;
}

// `let NAME = some(x)` or `some(x) if CONDITION else NUMBER`: a number read from the elements of x.
static void write_read_let(context *x, const og_let *let, og_value *to, const char *guard) {
  const char *indent = x->indent;
  const og_node *n = let->node;
  const char *otherwise = og_reads[og_read_of(n->kind == OG_CHOICE ? n->items[0] : n)].initial;
  og_scope names = og_names_of(x);
  if (n->kind == OG_CHOICE) {
    guard = both(og_test_of(x, n->items[1]), guard);
    otherwise = og_number(n->items[2], og_resolve, &names).c;
    n = n->items[0];
  }
  int first = x->temporary_count, made = ++x->steps, read = og_read_of(n);
  fprintf(x->to, "%s%s n%d = %s;\n", indent, og_reads[read].type, made, otherwise);
  begin_block(x, let, guard);
  x->indent = og_format("%s  ", indent);
  og_use("px_status %s(%s *out, const px_tensor *t);", og_reads[read].c, og_reads[read].type);
  const char *c = og_write_node(x, n->items[0]).c;
  fprintf(x->to, "%sPX_F_TRY(%s(&n%d, (%s).v.tensor));\n%s}\n", x->indent, og_reads[read].c, made,
          c, indent);
  x->indent = indent, x->temporary_count = first;
  *to = (og_value){.type = og_reads[read].of, .c = og_format("n%d", made)};
}

static void write_let(context *x, const og_let *let, const char *guard) {
  og_value *to = x->lets[let - x->op->lets];
  if (og_reads_elements(let->node)) {
    write_read_let(x, let, to, guard);
    return;
  }
  sort sort = let->count > 1 ? IS_TENSOR : og_sort_of(x->op, let->node);
  if (sort == IS_TENSOR) {
    write_tensor_let(x, let, to, guard);
    return;
  }
  if (!og_is_list(let->node)) {
    write_number_let(x, let, to);
    return;
  }
  to->type = OG_TENSOR;  // a px_value
  to->c = og_write_list(x, let->node, OG_INTS);
}

// Releases the lets that no formula still to be written reads: lets from `next` on, and `nodes`, of
// which some may be NULL.
static void release_unread(context *x, int next, const og_node *const *nodes, int count) {
  for (int k = 0; k < x->op->let_count; k++)
    for (int i = 0; i < x->op->lets[k].count; i++) {
      const char *name = x->op->lets[k].names[i];
      bool read = !x->held[k][i] || og_mentioned(nodes, count, name);
      for (int later = next; later < x->op->let_count; later++)
        read |= og_mentions(x->op->lets[later].node, name);
      if (read) continue;
      fprintf(x->to, "%spx__f_release(&t[%d]);\n", x->indent, x->held[k][i] - 1);
      x->held[k][i] = 0;
    }
}

// Returns the mask of gradients named by a formula, or only of those that it tests for None.
static unsigned grads_named(const og_op *op, const og_node *n, bool tested) {
  unsigned mask = 0;
  int which, r = 0;
  if (n->kind == OG_NAME && og_param_find(op, n->text) < 0) {
    const og_let *let = og_let_find(op, n->text, &which);
    if (let) return grads_named(op, let->node, tested);
    if (!tested && (r = og_grad_find(op, n->text)) >= 0) mask = 1u << r;
  }
  if (n->kind == OG_COMPARE && !strncmp(n->text, "is", 2)) tested = false;
  for (int i = 0; i < n->count; i++) mask |= grads_named(op, n->items[i], tested);
  return mask;
}

static bool is_zero(const og_node *n) { return n->kind == OG_NUMBER && strtod(n->text, NULL) == 0; }

// Defined zeros: a leaf upstream gets a gradient, as in PyTorch.
static void write_zeros(FILE *to, const og_node *n, int i) {
  const og_op *zeros = og_find("zeros_like");
  if (!zeros) og_die(n->location, "the gradient 0 requires the op zeros_like");
  og_use("%s", og_prototype(zeros));
  fprintf(to,
          "  if (b->needs & %uu)\n"
          "    PX_TRY(px_zeros_like(&b->out[%d], b->grads[0], PX_DTYPE_NONE, PX_DEVICE_NONE,\n"
          "                         false, false, NULL));\n",
          1u << i, i);
}

// The condition on which gradient i is computed: those it reads are defined. One of those it
// tests for None is enough.
static const char *wanted(const og_op *op, int i) {
  const char *c = og_format("(b->needs & %uu)", 1u << i), *any = "";
  unsigned named = grads_named(op, op->grad_nodes[i], false);
  unsigned tested = grads_named(op, op->grad_nodes[i], true);
  for (int r = 0; r < op->result_count && op->result_count > 1; r++) {
    if (tested >> r & 1u)
      any = og_format("%s%sb->grads[%d]", any, *any ? " || " : "", r);
    else if (named >> r & 1u)
      c = og_format("%s && b->grads[%d]", c, r);
  }
  return *any ? og_format("%s && (%s)", c, any) : c;
}

static void write_gradient(context *x, int i) {
  const og_op *op = x->op;
  const og_node *n = op->grad_nodes[i];
  if (is_zero(n)) {
    write_zeros(x->to, n, i);
    return;
  }
  fprintf(x->to, "  if (%s) {  // %s = %s\n", wanted(op, i), op->params[i].name,
          og_one_line(op->grads[i].text));
  x->indent = "    ";
  og_write_into(x, og_format("b->out[%d]", i), n);
  fprintf(x->to, "  }\n");
  x->indent = "  ", x->temporary_count = 0;
}

// Writes the statements of a function after the declaration of its tensors.
static void begin(context *x, og_body *b) { x->to = og_body_begin(b); }
static void end(context *x, og_body *b, FILE *to) {
  og_body_end(b);
  if (x->tensors) fprintf(to, "  PX_F_TENSORS(%d);\n", x->tensors);
  fprintf(to, "%s  return PX_OK;\n}\n\n", b->text);
}

bool og_has_backward(const og_op *op) { return op->grad_mask && !op->grad_all.text; }

// Results named in `nograd`: the derivative by their gradients is missing.
static void write_missing(context *x) {
  const og_op *op = x->op;
  char *names = strdup(op->nograd.text ? op->nograd.text : "");
  for (char *name = strtok(names, ", "); name; name = strtok(NULL, ", ")) {
    int r = og_result_find(op, name);
    if (r < 0) og_die(op->nograd.location, "%s has no result '%s'", op->name, name);
    fprintf(
        x->to,
        "  PX_CHECK(!b->grads[%d], PX_UNIMPLEMENTED, \"the gradient of %s with respect to its %s "
        "is not implemented\");\n",
        r, op->name, name);
  }
  free(names);
}

void og_write_backward(FILE *to, const og_op *op) {
  if (!og_has_backward(op)) return;
  context x = {.op = op, .indent = "  "};
  // Compiled for size: the time is spent in the called ops.
  fprintf(to,
          "__attribute__((cold)) static px_status backward_%s(px_op_gradient *b) {\n"
          "  const px_value *a = b->args;\n  (void)a;\n",
          op->name);
  og_body b;
  begin(&x, &b);
  write_missing(&x);
  for (int k = 0; k < op->let_count; k++) {
    const char *guard = NULL;
    for (int i = 0; i < op->param_count; i++)
      if (op->grad_nodes[i])
        guard = either(guard, both(wanted(op, i), guard_of(&x, op->grad_nodes[i], &op->lets[k])));
    if (guard) write_let(&x, &op->lets[k], guard);
    release_unread(&x, k + 1, (const og_node *const *)op->grad_nodes, op->param_count);
  }
  for (int i = 0; i < op->param_count; i++)
    if (op->grad_nodes[i]) write_gradient(&x, i);
  end(&x, &b, to);
}

// Writes the lets of a body, each with the checks that read it. Lets that checks read are computed
// always.
static void write_body_lets(context *x, const og_op *op, const og_node *node) {
  const og_node *nodes[OG_MAX_CHECKS + OG_MAX_LETS + 1] = {node};
  int after[OG_MAX_CHECKS + OG_MAX_LETS + 1] = {OG_MAX_LETS}, count = 1;
  bool body = node == op->body_node;
  for (int i = 0; i < op->check_count && body; i++) {
    after[count] = og_check_let(op, &op->checks[i]);
    if (after[count] >= 0) nodes[count++] = og_check_parse(&op->checks[i]).test;
  }
  for (int k = 0; k < op->let_count && body; k++)
    if (op->lets[k].acts) after[count] = k, nodes[count++] = op->lets[k].node;
  for (int k = 0; k < op->let_count; k++) {
    const char *guard = body && op->lets[k].acts ? "" : NULL;
    og_scope names = og_names_of(x);
    for (int i = 0; i < count; i++)
      if (nodes[i]) guard = either(guard, guard_of(x, nodes[i], &op->lets[k]));
    if (guard) write_let(x, &op->lets[k], guard);
    if (body) og_write_let_checks(x->to, &names, k);
    for (int i = 1; i < count; i++)
      if (after[i] == k) nodes[i] = NULL;
    release_unread(x, k + 1, nodes, count);
  }
}

// Writes the statements of a body: lets, then the results.
static void write_results(context *x, const og_op *op, const og_node *node) {
  const char *place[OG_OP_RESULTS];
  write_body_lets(x, op, node);
  if (op->result_list) {
    if (node->kind != OG_LIST) {
      og_write_list_call(x, node);
      return;
    }
    const char *list = og_write_list(x, node, OG_TENSORS);
    fprintf(x->to, "  const px_value list = %s;\n", list);
    fprintf(x->to, "  PX_TRY(px_list_new(&call->list, list.v.tensors, list.n));\n");
    return;
  }
  if (op->result_count == 1) {
    og_write_into(x, "results[0]", node);
    return;
  }
  if (node->kind == OG_LIST && node->count != op->result_count)
    og_die(node->location, "the body of %s has %d results", op->name, node->count);
  // The results are stored when nothing can fail any more.
  for (int r = 0; r < op->result_count; r++) place[r] = og_format("t[%d]", og_new_temporary(x));
  if (node->kind != OG_LIST) og_write_many(x, node, place, op->result_count);
  for (int r = 0; r < op->result_count && node->kind == OG_LIST; r++)
    if (node->items[r]->kind != OG_NAME) og_write_many(x, node->items[r], &place[r], 1);
  for (int r = 0; r < op->result_count; r++)
    if (node->kind == OG_LIST && node->items[r]->kind == OG_NAME)
      og_write_into(x, og_format("results[%d]", r), node->items[r]);
    else
      fprintf(x->to, "  results[%d] = PX_MOVE(%s);\n", r, place[r]);
}

// Writes the run function of an op given as a formula.
static void write_composed(FILE *to, const og_op *op, const char *role, const og_field *field,
                           const og_node *node) {
  if (!node) return;
  context x = {.op = op, .indent = "  ", .body = true};
  fprintf(to,
          "// %s\nstatic px_status %s_%s(px_call *call) {\n  const px_value *a = call->args;\n"
          "%s  (void)a;\n",
          og_one_line(field->text), role, op->name,
          op->result_list ? "" : "  px_tensor **results = call->results;\n");
  if (op->run.text && node == op->body_node)
    fprintf(to, "  PX_TRY(%s(call));\n", og_run_function(op));
  og_body b;
  begin(&x, &b);
  write_results(&x, op, node);
  end(&x, &b, to);
}

void og_write_body(FILE *to, const og_op *op) {
  write_composed(to, op, "body", &op->body, op->body_node);
  write_composed(to, op, "complex", &op->complex, op->complex_node);
  write_composed(to, op, "unsigned", &op->of_unsigned, op->unsigned_node);
}

void og_write_formula(FILE *to, const og_op *formula) {
  context x = {.op = formula, .indent = "  ", .body = true};
  if (!formula->body_node) og_die(formula->location, "formula %s has no body", formula->name);
  (void)og_formula_function(formula->name);
  fprintf(to, "__attribute__((cold)) %s {\n  (void)a;\n", og_formula_prototype(formula->name));
  og_write_formula_checks(to, formula);
  og_body b;
  begin(&x, &b);
  write_results(&x, formula, formula->body_node);
  end(&x, &b, to);
}

// ---- forward functions of layers: formulas over the values `a`, with the results in `results`

void og_write_forward(FILE *to, const og_op *formula) {
  context x = {.op = formula, .indent = "  ", .body = true};
  og_body b;
  begin(&x, &b);
  write_results(&x, formula, formula->body_node);
  end(&x, &b, to);
}

void og_write_forward_inplace(FILE *to, const og_op *formula) {
  context x = {.op = formula, .to = to, .indent = "    ", .body = true};
  const og_node *call = formula->body_node;
  const og_op *op = call->kind == OG_CALL ? og_find(call->text) : NULL;
  bool wide;
  if (!op || !call->count || call->items[0]->kind != OG_NAME ||
      og_param_find(formula, call->items[0]->text) != 0)
    og_die(call->location, "%s has `inplace`: its forward is one op, and begins with its input",
           formula->name);
  fprintf(to, "  if (px_value_int(a[%d])) {\n", og_param_find(formula, "inplace"));
  int arguments = og_write_arguments(&x, call, op, &wide);
  fprintf(to, "    return px__forward_inplace(results, \"%s\", a%d);\n  }\n", op->name, arguments);
}

// ---- vmap's rules: formulas over the arguments `a` of the call `b`

static void write_other_rule(context *x, const og_node *n) {
  if (n->kind == OG_CHOICE) {
    fprintf(x->to, "    if (%s) ", og_test_of(x, n->items[1]));
    write_other_rule(x, n->items[0]);
    write_other_rule(x, n->items[2]);
    return;
  }
  if (strncmp(n->text, "loop", 4))
    fprintf(x->to, "    return px__vmap_%s(b);\n", n->text);
  else
    fprintf(x->to, "    return px__vmap_loop(b, %s);\n", n->text[4] ? "true" : "false");
}
void og_write_vmap_rule(FILE *to, const og_op *op) {
  const og_node *node = op->vmap_node;
  context x = {.op = op, .indent = "  ", .body = true};
  if (!node) return;
  og_in_vmap = true;
  og_use("px_status px__vmap_set_results(px__vmap_call *b, px_tensor **made_take);");
  fprintf(to,
          "// %s\nstatic px_status vmap_%s(px__vmap_call *b) {\n"
          "  const px_value *a = b->call->args;\n  px_tensor *results[%d] = {NULL};\n",
          og_one_line(op->vmap.text), op->name, op->result_count);
  og_body b;
  begin(&x, &b);
  if (node->kind == OG_CHOICE && og_is_vmap_rule(node->items[2])) {
    fprintf(x.to, "  if (!(%s)) {\n", og_test_of(&x, node->items[1]));
    write_other_rule(&x, node->items[2]);
    fprintf(x.to, "  }\n");
    node = node->items[0];
  }
  write_results(&x, op, node);
  og_body_end(&b);
  if (x.tensors) fprintf(to, "  PX_F_TENSORS(%d);\n", x.tensors);
  fprintf(to, "%s  return px__vmap_set_results(b, results);\n}\n\n", b.text);
  og_in_vmap = false;
}
