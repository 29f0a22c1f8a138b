// SPDX-License-Identifier: Apache-2.0
// Writes views: structs through which hand-written C reads the arguments of an op by name.
//
// A view belongs to a C function named by the tables: a run function, a gradient function or a
// kernel. If several entries name one function, its view has the parameters common to all: equal in
// position, name and type. Inserting a parameter into a schema therefore moves the reads, and
// removing one breaks the build.
#include "opgen/opgen.h"

// The entries naming one function.
typedef struct view {
  const char *stem;
  const og_op *ops[64];
  int count;
} view;
typedef const char *(*name_of)(const og_op *op);  // the function's name without prefix, or NULL

// ---- which entries share a function

static const char *run_stem(const og_op *op) { return og_run(op); }
static const char *grad_stem(const og_op *op) { return op->grad_all.text; }

static int gather(view *views, og_op *const *ops, int count, name_of stem, int n) {
  for (int i = 0; i < count; i++) {
    const char *name = stem(ops[i]);
    int at = 0;
    if (!name) continue;
    while (at < n && strcmp(views[at].stem, name)) at++;
    if (at == n) views[n++] = (view){.stem = name};
    if (views[at].count == 64) og_die(ops[i]->location, "too many entries name %s", name);
    views[at].ops[views[at].count++] = ops[i];
  }
  return n;
}

static bool agreed_param(const view *v, int i) {
  const og_param *p = &v->ops[0]->params[i];
  for (int k = 1; k < v->count; k++) {
    const og_param *q = &v->ops[k]->params[i];
    if (i >= v->ops[k]->param_count || strcmp(p->name, q->name) || p->type != q->type ||
        p->optional != q->optional ||
        og_is(v->ops[0], "pointwise") != og_is(v->ops[k], "pointwise"))
      return false;
  }
  return true;
}

const char *og_result_name(const og_op *op, int r) {
  const char *name = op->result_names[r] ? op->result_names[r] : "out";
  return og_param_find(op, name) < 0 ? name : og_format("out_%s", name);
}
static bool agreed_result(const view *v, int r) {
  for (int k = 1; k < v->count; k++)
    if (r >= v->ops[k]->result_count ||
        strcmp(og_result_name(v->ops[0], r), og_result_name(v->ops[k], r)))
      return false;
  return true;
}

// ---- fields

// A type in a view: the field of a required parameter, the expression reading it from the px_value
// `%s`, and the same for an optional parameter (NULL: a px_value).
typedef struct field_row {
  const char *c, *read, *c_maybe, *read_maybe;
} field_row;
static const field_row fields[OG_TYPE_COUNT] = {
    [OG_TENSOR] = {"px_tensor *", "%s.v.tensor", "px_tensor *", "%s.v.tensor"},
    [OG_SCALAR] = {"px_scalar ", "px_value_scalar(%s)", NULL, NULL},
    [OG_INT] = {"int64_t ", "px_value_int(%s)", NULL, NULL},
    [OG_FLOAT] = {"double ", "px_value_float(%s)", NULL, NULL},
    [OG_BOOL] = {"bool ", "px_value_int(%s) != 0", NULL, NULL},
    [OG_DTYPE] = {"px_dtype ", "(px_dtype)%s.v.i", "px_dtype ",
                  "%s.kind == PX_ARG_NONE ? PX_DTYPE_NONE : (px_dtype)%s.v.i"},
    [OG_DEVICE] = {"px_device ", "%s.v.device", "px_device ",
                   "%s.kind == PX_ARG_NONE ? PX_DEVICE_NONE : %s.v.device"},
    [OG_TEXT] = {"const char *", "%s.v.text", "const char *", "%s.v.text"},
    [OG_GENERATOR] = {"px_generator *", "%s.v.generator", "px_generator *", "%s.v.generator"},
};

// Pointwise ops accept a number in place of a tensor, so the px_value is passed as is.
static bool is_raw(const og_op *op, const og_param *p) {
  if (p->type == OG_TENSOR && og_is(op, "pointwise")) return true;
  return p->optional ? !fields[p->type].c_maybe : !fields[p->type].c;
}
static const char *field_type(const og_op *op, const og_param *p) {
  if (is_raw(op, p)) return "px_value ";
  return p->optional ? fields[p->type].c_maybe : fields[p->type].c;
}
static const char *field_value(const og_op *op, const og_param *p, const char *value) {
  if (is_raw(op, p)) return value;
  const char *how = p->optional ? fields[p->type].read_maybe : fields[p->type].read, *text = "";
  for (const char *mark; (mark = strstr(how, "%s")); how = mark + 2)
    text = og_format("%s%.*s%s", text, (int)(mark - how), how, value);
  return og_format("%s%s", text, how);
}

// For functions other than ops: a Tensor parameter is always a tensor.
static const og_op no_op = {.kind = "function"};
const char *og_field_type(const og_param *p) { return field_type(&no_op, p); }
const char *og_field_value(const og_param *p, const char *value) {
  return field_value(&no_op, p, value);
}

// True for parameters in a kernel's view besides its operands. The generator comes with the launch.
static bool is_number(const og_param *p) {
  return p->type != OG_TENSOR && p->type != OG_TENSORS && p->type != OG_GENERATOR;
}

static void write_fields(FILE *to, const view *v, bool tensors) {
  const og_op *op = v->ops[0];
  for (int i = 0; i < op->param_count; i++)
    if (agreed_param(v, i) && (tensors || is_number(&op->params[i])))
      fprintf(to, "  %s%s;\n", field_type(op, &op->params[i]), op->params[i].name);
}
// A launch of an op has all its arguments; a launch of a `kernel` line only the numbers.
static void write_values(FILE *to, const view *v, const char *list, bool tensors) {
  const og_op *op = v->ops[0];
  for (int i = 0, numbers = 0; i < op->param_count; i++) {
    const og_param *p = &op->params[i];
    if (agreed_param(v, i) && (tensors || is_number(p)))
      fprintf(to, "      .%s = %s,\n", p->name,
              field_value(op, p, og_format("%s[%d]", list, *op->kind ? i : numbers)));
    numbers += is_number(p);
  }
}

// ---- the kinds of views

// A view is the struct px__NAME_WORD and the function px__NAME_WORD_of that fills it from the
// px_values in `list`. `own` writes fields from other sources, or their values.
typedef struct view_kind {
  const char *word, *given, *before, *list;
  bool tensors;                  // tensor arguments are fields, too
  const char *function, *takes;  // prefix and parameter of the function to declare
  void (*own)(FILE *to, const view *v, bool values);
} view_kind;

static void write_view(FILE *to, const view *v, const view_kind *kind) {
  const char *name = og_format("px__%s_%s", v->stem, kind->word);
  fprintf(to, "// ");
  for (int k = 0; k < v->count; k++) fprintf(to, "%s%s", k ? ", " : "", v->ops[k]->name);
  fprintf(to, "\ntypedef struct %s {\n", name);
  if (kind->own) kind->own(to, v, false);
  write_fields(to, v, kind->tensors);
  fprintf(to, "} %s;\nstatic inline %s %s_of(%s) {\n%s  return (%s){\n", name, name, name,
          kind->given, kind->before, name);
  if (kind->own) kind->own(to, v, true);
  write_values(to, v, kind->list, kind->tensors);
  fprintf(to, "  };\n}\n");
  if (kind->function)
    fprintf(to, "px_status px__%s_%s(%s);\n", kind->function, v->stem, kind->takes);
  fprintf(to, "\n");
}

static const view_kind run_view = {.word = "args",
                                   .given = "const px_value *args",
                                   .before = "",
                                   .list = "args",
                                   .tensors = true,
                                   .function = "run",
                                   .takes = "px_call *call"};

static const view_kind vmap_view = {.word = "vmap_args",
                                    .given = "const px_value *args",
                                    .before = "",
                                    .list = "args",
                                    .tensors = true,
                                    .function = "vmap",
                                    .takes = "px__vmap_call *b"};

// ---- kernels: operands, and the list of tensors

static void write_operand(FILE *to, bool values, const char *name, bool optional, int n) {
  if (values)
    fprintf(to, "      .%s = &o[%d],\n", name, n);
  else
    fprintf(to, "  const px_operand *%s;%s\n", name, optional ? "  // no dtype if absent" : "");
}
static bool has_list(const og_op *op) {
  for (int i = 0; i < op->param_count; i++)
    if (op->params[i].type == OG_TENSORS) return true;
  return false;
}
static void write_operands(FILE *to, const view *v, bool values) {
  const og_op *op = v->ops[0];
  int n = 0;
  for (int r = 0; r < op->result_count; r++, n++)
    if (agreed_result(v, r)) write_operand(to, values, og_result_name(op, r), false, n);
  for (int i = 0; i < op->param_count && op->params[i].type != OG_TENSORS; i++)
    if (op->params[i].type == OG_TENSOR && agreed_param(v, i))
      write_operand(to, values, op->params[i].name, op->params[i].optional, n++);
    else if (op->params[i].type == OG_TENSOR)
      break;
  if (!has_list(op)) return;
  if (values)
    fprintf(to, "      .list = o + %d, .list_n = l->operand_count - %d,\n", n, n);
  else
    fprintf(to,
            "  const px_operand *list;  // the tensors of a list and later operands\n"
            "  int list_n;\n");
}

static const view_kind kernel_view = {
    .word = "kernel",
    .given = "const px_launch *l",
    .before = "  const px_operand *o = l->operands;\n  (void)o;\n",
    .list = "l->params",
    .own = write_operands};

// ---- gradient functions: results, their gradients, and the requested gradients

static void write_grad_results(FILE *to, const og_op *op, bool values) {
  for (int r = 0; r < op->result_count && !op->result_list; r++) {
    const char *name = op->result_names[r], *saved = name ? name : "result",
               *grad = name ? og_format("grad_%s", name) : "grad";
    if (name && og_param_find(op, name) >= 0) saved = og_format("result_%s", name);
    if (og_param_find(op, grad) >= 0) grad = og_format("grad_of_%s", grad);
    if (values)
      fprintf(to, "      .%s = b->results[%d],\n      .%s = b->grads[%d],\n", saved, r, grad, r);
    else
      fprintf(to, "  px_tensor *%s, *%s;\n", saved, grad);
  }
}

static void write_grad_wanted(FILE *to, const view *v, bool values) {
  const og_op *op = v->ops[0];
  for (int i = 0; i < op->param_count; i++) {
    const og_param *p = &op->params[i];
    if (!(op->grad_mask >> i & 1u) || !agreed_param(v, i)) continue;
    if (!values)
      fprintf(to, "  px_tensor **d_%s;\n", p->name);
    else
      fprintf(to, "      .d_%s = b->needs >> %d & 1u ? %s%d] : NULL,\n", p->name, i,
              p->type == OG_TENSORS ? "b->out_lists[" : "&b->out[", i);
  }
}
static void write_grad(FILE *to, const view *v, bool values) {
  write_grad_results(to, v->ops[0], values);
  write_grad_wanted(to, v, values);
}

static const view_kind grad_view = {.word = "grad",
                                    .given = "px__backward *b",
                                    .before = "",
                                    .list = "b->args",
                                    .tensors = true,
                                    .function = "grad",
                                    .takes = "px__backward *b",
                                    .own = write_grad};

// ---- helpers of formulas: C functions with typed parameters

const char *og_helper_argument(const og_op *helper, int i, const char *value) {
  return field_value(helper, &helper->params[i], value);
}
const char *og_helper_prototype(const og_op *helper) {
  const char *text = og_format("px_status px__grad_%s(px_tensor **out", helper->name);
  for (int i = 0; i < helper->param_count; i++)
    text =
        og_format("%s, %s%s", text, field_type(helper, &helper->params[i]), helper->params[i].name);
  return og_format("%s);", text);
}

// ---- the files

static view views[OG_MAX_OPS];

void og_write_grad_views(FILE *to) {
  memset(views, 0, sizeof views);
  int n = gather(views, og.ops, og.count, grad_stem, 0);
  for (int i = 0; i < og.helper_count; i++) fprintf(to, "%s\n", og_helper_prototype(og.helpers[i]));
  fprintf(to, "\n");
  for (int i = 0; i < n; i++) write_view(to, &views[i], &grad_view);
}

static const char *extra_name(const og_op *op) { return op->name; }
static const char *hand_kernel(const og_op *op) {
  return og_has_generated_kernel(op) ? NULL : og_hand_kernel(op);
}
bool og_write_views(FILE *to, og_view kind, const char *file) {
  static const struct {
    name_of stem;
    const view_kind *view;
  } kinds[] = {{run_stem, &run_view}, {hand_kernel, &kernel_view}, {og_vmap_function, &vmap_view}};
  bool any = false;
  memset(views, 0, sizeof views);
  int n = kind == OG_KERNEL_VIEW ? gather(views, og.kernels, og.kernel_count, extra_name, 0) : 0;
  n = gather(views, og.ops, og.count, kinds[kind].stem, n);
  for (int i = 0; i < n; i++) {
    if (strcmp(views[i].ops[0]->location.file, file)) continue;
    any = true;
    if (to) write_view(to, &views[i], kinds[kind].view);
  }
  return any;
}
