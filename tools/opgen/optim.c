// SPDX-License-Identifier: Apache-2.0
// Optimisers: parses their entries, makes an op of each update, and writes the rows of the
// library's table (gen/optim_kinds.c).
#include "opgen/optim.h"

#include <ctype.h>

enum { LOOPS = 16 };
static optim kinds[64], loops[LOOPS];
static int kind_count, loop_count;

const optim *optim_at(int k) { return k < kind_count ? &kinds[k] : NULL; }
const optim *optim_loop_at(int k) { return k < loop_count ? &loops[k] : NULL; }

const optim_pair *optim_pair_of(const optim *o, const char *option, int *index) {
  for (int i = 0; i < o->pair_count; i++)
    for (*index = 0; *index < OPTIM_PARTS && o->pairs[i].parts[*index]; ++*index)
      if (!strcmp(o->pairs[i].parts[*index], option)) return &o->pairs[i];
  return NULL;
}

// Returns the index of an option; -1 if none.
static int option_place(const optim *o, const char *name) {
  for (int i = 0; i < o->option_count; i++)
    if (!strcmp(o->options[i]->name, name)) return i;
  return -1;
}
bool optim_has_option(const optim *o, const char *name) { return option_place(o, name) >= 0; }

// ---- names and scopes

static const optim_state *state_named(const optim *o, const char *name) {
  for (int i = 0; i < o->state_count; i++)
    if (!strcmp(o->states[i].name, name)) return &o->states[i];
  return NULL;
}

// The meaning of a name in a line, given the previous lines.
typedef enum meaning { UNKNOWN, OPTION, STATE, SCALAR, NUMBER, LOCAL, FIRST, TENSOR } meaning;
static meaning meaning_of(const optim *o, const char *name, int before) {
  const optim_state *s = state_named(o, name);
  if (optim_has_option(o, name)) return OPTION;
  if (s) return s->scalar ? SCALAR : STATE;
  if (!strcmp(name, "first")) return FIRST;
  if (!strcmp(name, "param") || !strcmp(name, "grad")) return TENSOR;
  for (int i = 0; i < before; i++)
    if (!strcmp(o->lines[i].name, name) && o->lines[i].sort == OPTIM_NUMBER) return NUMBER;
  for (int i = 0; i < before; i++)
    if (!strcmp(o->lines[i].name, name) && o->lines[i].sort == OPTIM_LET) return LOCAL;
  return UNKNOWN;
}

typedef struct scope {
  optim *o;
  int before;     // number of visible lines
  bool elements;  // elements of tensors are allowed; otherwise numbers
  bool options;   // only options are allowed
  bool others;    // a name other than an option was used
} scope;

static void add_number(optim *o, const char *name, og_location at) {
  for (int i = 0; i < o->number_count; i++)
    if (!strcmp(o->numbers[i], name)) return;
  if (o->number_count == OPTIM_NUMBERS) og_die(at, "too many numbers of %s", o->entry->name);
  o->numbers[o->number_count++] = name;
}

static void look_up(const og_node *n, void *context) {
  scope *s = context;
  meaning m = meaning_of(s->o, n->text, s->before);
  bool tensor = m == STATE || m == LOCAL || m == TENSOR;
  if (m == UNKNOWN || (s->options && m != OPTION) || (!s->elements && tensor))
    og_die(n->location, "unknown name '%s' in a line of %s", n->text, s->o->entry->name);
  if (m != OPTION) s->others = true;
  if (s->elements && !tensor) add_number(s->o, n->text, n->location);
}

static bool look_up_all(optim *o, const og_node *tree, int before, bool elements, bool options) {
  scope s = {o, before, elements, options, false};
  og_names(tree, look_up, &s);
  return s.others;
}

// ---- reading

// Parses "NAME = FORMULA if CONDITION"; FORMULA and CONDITION are optional.
static const char *take_name(const og_field *f, const char **rest) {
  const char *end = og_word_end(f->text);
  if (end == f->text) og_die(f->location, "expected a name, not '%s'", f->text);
  *rest = og_skip(end);
  return og_copy(f->text, (size_t)(end - f->text));
}

static void read_state(optim *o, const og_field *f, bool scalar) {
  const char *rest;
  if (o->state_count == OPTIM_STATES) og_die(f->location, "too many states of %s", o->entry->name);
  if (scalar && o->state_count == OPTIM_SCALARS) og_die(f->location, "too many scalars");
  if (scalar && o->state_count && !o->states[o->state_count - 1].scalar)
    og_die(f->location, "scalars come before the states that are tensors");
  optim_state *s = &o->states[o->state_count++];
  *s = (optim_state){.name = take_name(f, &rest), .scalar = scalar};
  const char *test = !strncmp(rest, "if ", 3) ? rest : strstr(rest, " if ");
  if (*rest == '=') {
    const char *end = test ? test : rest + strlen(rest);
    s->initial = og_formula(og_trimmed(rest + 1, end), f->location);
    look_up_all(o, s->initial, 0, false, true);
  }
  if (test) {
    s->needed = og_formula(og_skip(test) + 3, f->location);
    look_up_all(o, s->needed, 0, false, true);
  } else if (*rest && *rest != '=') {
    og_die(f->location, "expected `= NUMBER` or `if CONDITION`, not '%s'", rest);
  }
}

static void read_pair(optim *o, const og_field *f) {
  const char *rest;
  char parts[OPTIM_PARTS][64];
  if (o->pair_count == OPTIM_PAIRS) og_die(f->location, "too many tuples of %s", o->entry->name);
  optim_pair *p = &o->pairs[o->pair_count++];
  p->name = take_name(f, &rest);
  int count =
      sscanf(rest, "= %63[a-z0-9_], %63[a-z0-9_], %63[a-z0-9_]", parts[0], parts[1], parts[2]);
  for (int i = 0; i < count; i++) {
    if (!optim_has_option(o, parts[i])) count = 0;
    p->parts[i] = og_copy(parts[i], strlen(parts[i]));
  }
  if (count < 2) og_die(f->location, "expected `tuple NAME = OPTION, OPTION`");
}

static void read_check(optim *o, const og_field *f, optim_line *line) {
  line->check = og_check_parse(f);
  line->tree = line->check.test;
  line->name = "";
  look_up_all(o, line->tree, o->line_count, false, false);
}

static void check_target(const optim *o, const optim_line *line) {
  meaning m = meaning_of(o, line->name, o->line_count);
  bool sound = line->sort == OPTIM_NEXT  ? m == SCALAR
               : line->sort == OPTIM_SET ? m == STATE || !strcmp(line->name, "param")
                                         : m == UNKNOWN;
  if (!sound)
    og_die(line->location, "'%s' cannot be %s", line->name,
           m == UNKNOWN ? "set: it is not a state" : "set here, or is already set");
}

static void read_line(optim *o, const og_field *f, optim_sort sort) {
  const char *rest;
  if (o->line_count == OPTIM_LINES) og_die(f->location, "too many lines of %s", o->entry->name);
  optim_line *line = &o->lines[o->line_count];
  *line = (optim_line){.sort = sort, .location = f->location};
  if (sort == OPTIM_CHECK) {
    read_check(o, f, line);
  } else {
    line->name = take_name(f, &rest);
    if (*rest != '=') og_die(f->location, "expected `%s NAME = FORMULA`", f->name);
    line->tree = og_formula(og_skip(rest + 1), f->location);
    check_target(o, line);
    look_up_all(o, line->tree, o->line_count, sort >= OPTIM_LET, false);
  }
  o->line_count++;
}

static void read_options(optim *o) {
  const og_entry *e = o->entry;
  for (int i = 0; i < e->param_count; i++) {
    const og_param *p = &e->params[i];
    if (optim_is_implementation(p)) continue;
    if ((p->type != OG_FLOAT && p->type != OG_BOOL) || p->optional || !p->fallback)
      og_die(e->location, "option '%s' of %s is not a float or bool with a default", p->name,
             e->name);
    o->options[o->option_count++] = p;
  }
}

static void read_entry(optim *o, const og_entry *e) {
  static const struct {
    const char *name;
    optim_sort sort;
  } lines[] = {{"check", OPTIM_CHECK},
               {"number", OPTIM_NUMBER},
               {"next", OPTIM_NEXT},
               {"let", OPTIM_LET},
               {"set", OPTIM_SET}};
  o->entry = e;
  read_options(o);
  char *lower = og_copy(e->name, strlen(e->name));
  for (char *at = lower; *at; at++) *at = (char)tolower((unsigned char)*at);
  o->op = og_format("%s_step", lower);
  o->numbers_op = og_format("%s_numbers", lower);
  for (int i = 0; i < e->field_count; i++) {
    const og_field *f = &e->fields[i];
    if (!strcmp(f->name, "tuple")) read_pair(o, f);
    if (!strcmp(f->name, "state") || !strcmp(f->name, "scalar"))
      read_state(o, f, f->name[1] == 'c');
    for (int k = 0; k < 5; k++)
      if (!strcmp(f->name, lines[k].name)) read_line(o, f, lines[k].sort);
  }
  if (optim_has_option(o, "maximize")) add_number(o, "maximize", e->location);
}

// ---- the op

static og_op *make_kernel_op(const optim *o, const char *schema, const char *run, const char *doc) {
  og_location at = o->entry->location;
  og_op *op = og_op_begin("op", og_format("op %s", schema), at);
  const char *const fields[] = {"kind kernel hidden", "wrapper none", "dtypes float",
                                og_format("run %s", run), og_format("doc %s", doc)};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    og_op_field(op, og_copy(fields[i], strlen(fields[i])), at);
  return op;
}

// Makes the op of the update: one kernel that changes its tensors in place. Its numbers are passed
// by value, or are on the device in a row written by the op of numbers. In the second form the
// scalars are tensors on the device, which the op updates.
static void make_update(const optim *o, bool on_device) {
  const char *tensors = "Tensor param, Tensor grad", *results = "Tensor new_param", *numbers = "";
  for (int i = 0; i < o->state_count; i++) {
    const optim_state *s = &o->states[i];
    if (s->scalar && !on_device) continue;
    tensors = og_format("%s, Tensor%s %s%s", tensors, s->needed ? "?" : "",
                        s->scalar ? "scalar_" : "", s->name);
    results = og_format("%s, Tensor new_%s", results, s->name);
  }
  for (int i = 0; i < o->number_count && !on_device; i++)
    numbers = og_format("%s, float %s", numbers, o->numbers[i]);
  if (on_device) numbers = ", Tensor numbers, int line";
  const char *name = on_device ? og_format("%s_by", o->op) : o->op;
  og_op_end(make_kernel_op(o, og_format("%s(%s%s) -> (%s)", name, tensors, numbers, results),
                           on_device ? "optimizer_step_by" : "optimizer_step",
                           og_format("Performs one step of %s%s.", o->entry->name,
                                     on_device ? " with numbers on the device" : "")));
}

int optim_scalars(const optim *o) {
  int count = 0;
  for (int i = 0; i < o->state_count; i++) count += o->states[i].scalar;
  return count;
}

// Makes the op that computes the numbers of a step on the device, one row per parameter.
static void make_numbers(const optim *o) {
  const char *options = "";
  for (int i = 0; i < o->option_count; i++)
    options = og_format("%s, float %s", options, o->options[i]->name);
  og_op *op = make_kernel_op(
      o,
      og_format("%s(Tensor? rate, Tensor? found_inf, Tensor[] scalars, int each%s, float first) -> "
                "Tensor",
                o->numbers_op, options),
      "optimizer_numbers",
      og_format("Computes the numbers of a step of %s on the device, one row per parameter.",
                o->entry->name));
  og_op_field(op,
              og_format("check each == %d : RUNTIME \"%s requires %d scalars per parameter\"",
                        optim_scalars(o), o->entry->name, optim_scalars(o)),
              o->entry->location);
  og_op_end(op);
}

static void make_ops(const optim *o) {
  make_update(o, false);
  make_update(o, true);
  make_numbers(o);
}

// Reads `loop NAME(...)`. Its checks are Python and are not parsed.
static void read_loop(const og_entry *e) {
  if (loop_count == LOOPS) og_die(e->location, "too many loops");
  optim *o = &loops[loop_count++];
  o->entry = e;
  for (int i = 0; i < e->param_count; i++) o->options[o->option_count++] = &e->params[i];
  for (const og_field *f = NULL; (f = og_entry_next(e, "tuple", f));) read_pair(o, f);
}

void og_optim_read(void) {
  for (int i = 0; i < og.entry_count; i++) {
    if (!strcmp(og.entries[i]->sort, "loop")) read_loop(og.entries[i]);
    if (strcmp(og.entries[i]->sort, "optimizer")) continue;
    if (kind_count == 64) og_die(og.entries[i]->location, "too many optimizers");
    read_entry(&kinds[kind_count], og.entries[i]);
    make_ops(&kinds[kind_count++]);
  }
}

// ---- rows of the table

static const char *constant(const og_param *p) {
  return p->type == OG_BOOL ? (*p->fallback == 'T' ? "1" : "0") : p->fallback;
}

static void write_options(FILE *to, const optim *o) {
  fprintf(to, "static const px_option options_%s[] = {\n", o->entry->name);
  for (int i = 0; i < o->option_count; i++) {
    const og_param *p = o->options[i];
    int index;
    const optim_pair *pair = optim_pair_of(o, p->name, &index);
    fprintf(to, "    {\"%s\", %s, '%c', %s},\n", p->name, constant(p),
            p->type == OG_BOOL ? 'b' : 'f', pair ? og_quote(pair->name) : "NULL");
  }
  fprintf(to, "};\n");
}

// Ends a body and declares the options it mentions.
static void write_with_options(FILE *to, const optim *o, og_body *body) {
  og_body_end(body);
  for (int i = 0; i < o->option_count; i++)
    og_declare(to, body, o->options[i]->name, og_format("o[%d]", i));
  fprintf(to, "%s", body->text);
}

static void note_option(const og_node *n, void *context) {
  const char **only = context;
  if (!*only || !strcmp(*only, n->text))
    *only = n->text;
  else
    *only = "";
}
// Returns the index of the only option in a condition; -1 if there are several.
static int only_option(const optim *o, const og_node *tree) {
  const char *only = NULL;
  og_names(tree, note_option, &only);
  for (int i = 0; only && i < o->option_count; i++)
    if (!strcmp(o->options[i]->name, only)) return i;
  return -1;
}

static bool is_of_options(const optim *o, const optim_line *line) {
  return !look_up_all((optim *)o, line->tree, OPTIM_LINES, false, false);
}

static void write_checks(FILE *to, const optim *o) {
  og_body body;
  FILE *in = og_body_begin(&body);
  for (int i = 0; i < o->line_count; i++) {
    const optim_line *line = &o->lines[i];
    if (line->sort != OPTIM_CHECK || !is_of_options(o, line)) continue;
    int only = only_option(o, line->tree);
    fprintf(in, only < 0 ? "  if (k < 0)\n    " : "  if (k < 0 || k == %d)\n    ", only);
    og_write_check(in, &line->check, o->entry->params, o->entry->param_count);
  }
  fprintf(to, "static px_status check_%s(const double *o, int k) {\n", o->entry->name);
  write_with_options(to, o, &body);
  fprintf(to, "  return PX_OK;\n}\n");
}

static void write_begin(FILE *to, const optim *o) {
  og_body body;
  FILE *in = og_body_begin(&body);
  for (int i = 0; i < o->state_count; i++) {
    const optim_state *s = &o->states[i];
    if (s->initial) fprintf(in, "  if (k == %d) *value = %s;\n", i, og_arith(s->initial, OG_HOST));
    if (s->needed) fprintf(in, "  if (k == %d) return %s;\n", i, og_arith_test(s->needed, OG_HOST));
  }
  fprintf(to, "static bool begin_%s(const double *o, int k, double *value) {\n", o->entry->name);
  write_with_options(to, o, &body);
  fprintf(to, "  return true;\n}\n");
}

static void write_number_lines(FILE *to, const optim *o, bool checked) {
  for (int i = 0; i < o->state_count; i++)
    if (o->states[i].scalar) fprintf(to, "  double %s = s[%d];\n", o->states[i].name, i);
  for (int i = 0; i < o->line_count; i++) {
    const optim_line *line = &o->lines[i];
    if (checked && line->sort == OPTIM_CHECK && !is_of_options(o, line)) {
      fprintf(to, "  ");
      og_write_check(to, &line->check, o->entry->params, o->entry->param_count);
    }
    if (line->sort == OPTIM_NUMBER || line->sort == OPTIM_NEXT)
      fprintf(to, "  %s%s = %s;\n", line->sort == OPTIM_NEXT ? "" : "const double ", line->name,
              og_arith(line->tree, OG_HOST));
  }
  for (int i = 0; i < o->number_count; i++) fprintf(to, "  n[%d] = %s;\n", i, o->numbers[i]);
  for (int i = 0; i < o->state_count; i++)
    if (o->states[i].scalar) fprintf(to, "  s[%d] = %s;\n", i, o->states[i].name);
}

void optim_write_numbers(FILE *to, const optim *o, bool checked) {
  og_body body;
  write_number_lines(og_body_begin(&body), o, checked);
  write_with_options(to, o, &body);
}

static void write_numbers(FILE *to, const optim *o) {
  fprintf(to,
          "static px_status numbers_%s(const double *o, double *s, double first, double *n) {\n",
          o->entry->name);
  optim_write_numbers(to, o, true);
  fprintf(to, "  return PX_OK;\n}\n");
}

void optim_write_kind(FILE *to, const optim *o) {
  const char *name = o->entry->name;
  fprintf(to, "// ---- %s\n", name);
  write_options(to, o);
  fprintf(to, "static const px__state_row states_%s[] = {\n", name);
  for (int i = 0; i < o->state_count; i++)
    fprintf(to, "    {\"%s\", %s},\n", o->states[i].name, o->states[i].scalar ? "true" : "false");
  fprintf(to, "};\n");
  write_checks(to, o);
  write_begin(to, o);
  write_numbers(to, o);
}

static void write_row(FILE *to, const optim *o) {
  const char *name = o->entry->name;
  fprintf(to,
          "    {\"%s\", \"%s\", \"%s_by\", \"%s\", options_%s, %d, %d, %d, states_%s, %d, %d, "
          "check_%s, begin_%s, numbers_%s},\n",
          name, o->op, o->op, o->numbers_op, name, o->option_count, option_place(o, "lr"),
          option_place(o, "capturable"), name, o->state_count, o->number_count, name, name, name);
}

// ---- C constructors: named options with defaults

static const char *stem(const optim *o) { return og_copy(o->op, strlen(o->op) - 5); }
static const char *upper(const optim *o) {
  char *text = og_copy(o->op, strlen(o->op) - 5);
  for (char *at = text; *at; at++) *at = (char)toupper((unsigned char)*at);
  return text;
}

void optim_write_constructor(FILE *to, const optim *o) {
  const char *lower = stem(o), *defaults = "";
  fprintf(to, "// %s\n// %s.\n", og_entry_field(o->entry, "doc")->text,
          og_entry_field(o->entry, "paper")->text);
  for (const og_field *f = NULL; (f = og_entry_next(o->entry, "check", f));)
    fprintf(to, "//   raises: %s\n", og_check_sentence(f, "PX_"));
  for (int i = 0; i < o->state_count; i++)
    fprintf(to, "%s%s%s", i ? ", " : "//   state: ", o->states[i].name,
            i + 1 < o->state_count ? "" : "\n");
  fprintf(to, "//   px_%s_new(&optimizer, parameters, count, .lr = 0.1)\n", lower);
  fprintf(to,
          "typedef struct px_%s_args {\n  px_optimizer **out;\n"
          "  px_tensor *const *parameters;\n  int64_t count;\n",
          lower);
  for (int i = 0; i < o->option_count; i++) {
    const og_param *p = o->options[i];
    fprintf(to, "  %s %s;  // %s\n", p->type == OG_BOOL ? "bool" : "double", p->name,
            og_argument_text(o->entry, p->name));
    defaults = og_format("%s, %s", defaults, constant(p));
  }
  fprintf(to, "  char by_name;\n} px_%s_args;\n#define PX_%s_ARGS NULL, NULL, 0%s, 0\n", lower,
          upper(o), defaults);
  fprintf(to, "PX_CALL px_%s_make(const px_%s_args *args);\n", lower, lower);
  fprintf(to,
          "#define px_%s_new(...) PX_%s_NEW(__VA_ARGS__, .by_name = 0)\n"
          "#define PX_%s_NEW(out_, parameters_, count_, ...) \\\n"
          "  PX_BY_NAME(px_%s_make, px_%s_args, PX_%s_ARGS, .out = (out_), \\\n"
          "             .parameters = (parameters_), .count = (count_), .by_name = 0, "
          "__VA_ARGS__)\n\n",
          lower, upper(o), upper(o), lower, lower, upper(o));
}

static void write_make(FILE *to, const optim *o) {
  const char *lower = stem(o), *values = "";
  for (int i = 0; i < o->option_count; i++)
    values = og_format("%s%s(double)args->%s", values, i ? ", " : "", o->options[i]->name);
  fprintf(to,
          "px_status px_%s_make(const px_%s_args *args) {\n  const double values[] = {%s};\n"
          "  return px_optimizer_make(args->out, \"%s\", values, args->parameters, args->count);\n"
          "}\n",
          lower, lower, values, o->entry->name);
}

void og_optim_write_kinds(FILE *to) {
  fprintf(to,
          "#include <math.h>\n\n#include \"optim/optim_impl.h\"\n"
          "#include \"phlox/optimizers.h\"\n\n");
  for (int k = 0; k < kind_count; k++) optim_write_kind(to, &kinds[k]);
  fprintf(to, "const px_optimizer_kind px__optimizer_kinds[] = {\n");
  for (int k = 0; k < kind_count; k++) write_row(to, &kinds[k]);
  fprintf(to, "};\nconst int px__optimizer_kind_count = %d;\n\n", kind_count);
  for (int k = 0; k < kind_count; k++) write_make(to, &kinds[k]);
}

void og_optim_write_header(FILE *to) {
  fprintf(to,
          "#pragma once\n#include \"phlox/optim.h\"\n#ifdef __cplusplus\nextern \"C\" {\n"
          "#endif\n\n");
  for (int k = 0; k < kind_count; k++) optim_write_constructor(to, &kinds[k]);
  fprintf(to, "#ifdef __cplusplus\n}\n#endif\n");
}
