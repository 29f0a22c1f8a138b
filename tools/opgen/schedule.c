// SPDX-License-Identifier: Apache-2.0
// Learning rate schedules: writes the rows of the library's table (gen/schedule_kinds.c) and the
// Python classes. A rate is a formula of the epoch, the group's initial rate `base`, its current
// rate `lr` and the options.
#include "opgen/opgen.h"

static const char *text_of(const og_entry *e, const char *field) {
  const og_field *f = og_entry_field(e, field);
  return f ? f->text : NULL;
}

static void each(FILE *to, void (*write)(FILE *, const og_entry *)) {
  for (int i = 0; i < og.entry_count; i++)
    if (!strcmp(og.entries[i]->sort, "schedule")) write(to, og.entries[i]);
}

// ---- C

static char letter(const og_param *p) {
  switch (p->type) {
    case OG_INT:
      return p->optional ? 'o' : 'i';
    case OG_BOOL:
      return 'b';
    case OG_TEXT:
      return 'c';
    case OG_FLOAT:
      return p->optional ? 'o' : 'f';
    case OG_INTS:
      return 'm';
    default:
      return 'f';
  }
}

static const char *constant(const og_param *p) {
  if (!p->fallback || !strcmp(p->fallback, "None")) return "NAN";
  if (p->type == OG_BOOL) return *p->fallback == 'T' ? "1" : "0";
  return p->type == OG_TEXT ? "0" : p->fallback;  // index of the first word
}

// Checks the names in a formula: fields of the schedule point, or options. `base`: reads the
// initial rate.
typedef struct scope {
  const og_entry *entry;
  bool base;
} scope;
// Names of a schedule point, and their C expressions.
static const char *const point_names[][2] = {{"epoch", "at->epoch"},
                                             {"base", "at->base"},
                                             {"lr", "at->lr"},
                                             {"initial", "at->initial"},
                                             {"pi", "M_PI"}};
enum { POINT_NAMES = sizeof point_names / sizeof *point_names };

static void look_up(const og_node *n, void *context) {
  scope *s = context;
  bool known = og_param_named(s->entry->params, s->entry->param_count, n->text) >= 0;
  for (int i = 0; i < POINT_NAMES; i++) known |= !strcmp(n->text, point_names[i][0]);
  if (!known) og_die(n->location, "unknown name '%s' in a formula of %s", n->text, s->entry->name);
  s->base |= !strcmp(n->text, "base");
}

// Ends a body and declares the names of the schedule point and the options it mentions.
static void write_with_names(FILE *to, const og_entry *e, og_body *body, const char *options) {
  og_body_end(body);
  for (int i = 0; i < POINT_NAMES; i++) og_declare(to, body, point_names[i][0], point_names[i][1]);
  for (int i = 0; i < e->param_count; i++)
    og_declare(to, body, e->params[i].name, og_format("%s[%d]", options, i));
  fprintf(to, "%s", body->text);
}

static void write_rate(FILE *to, const og_entry *e, const char *form) {
  const og_field *f = og_entry_field(e, form);
  if (!f) return;
  scope s = {e, false};
  og_body body;
  og_node *tree = og_formula(f->text, f->location);
  FILE *in = og_body_begin(&body);
  og_names(tree, look_up, &s);
  // A group added after the construction of the schedule has no initial rate.
  if (s.base) fprintf(in, "  if (isnan(base)) return lr;\n");
  fprintf(in, "  return %s;\n", og_arith(tree, OG_HOST));
  fprintf(to, "static double %s_%s(const px_schedule_point *at) {\n", form, e->name);
  write_with_names(to, e, &body, "at->options");
  fprintf(to, "}\n");
}

// Returns the C function of a part of `run NAME PARTS`, or NULL.
static const char *part_of(const og_entry *e, const char *part) {
  const char *run = text_of(e, "run");
  if (!run || !strstr(run, og_format(" %s", part))) return NULL;
  return og_format("px__%s_%s", og_copy(run, (size_t)(og_word_end(run) - run)), part);
}

static void write_check(FILE *to, const og_entry *e) {
  og_body body;
  FILE *in = og_body_begin(&body);
  const char *prepare = part_of(e, "prepare");
  for (const og_field *f = NULL; (f = og_entry_next(e, "check", f));) {
    og_check c = og_check_parse(f);
    scope s = {e, false};
    og_names(c.test, look_up, &s);
    fprintf(in, "  ");
    og_write_check(in, &c, e->params, e->param_count);
  }
  fprintf(in, "  return %s;\n", prepare ? og_format("%s(options)", prepare) : "PX_OK");
  fprintf(to, "static px_status check_%s(double *options) {\n", e->name);
  write_with_names(to, e, &body, "options");
  fprintf(to, "}\n");
}

static void write_kind(FILE *to, const og_entry *e) {
  fprintf(to, "// ---- %s\nstatic const px_option options_%s[] = {\n", e->name, e->name);
  for (int i = 0; i < e->param_count; i++)
    fprintf(to, "    {\"%s\", %s, '%c', NULL},\n", e->params[i].name, constant(&e->params[i]),
            letter(&e->params[i]));
  fprintf(to, "};\n");
  write_check(to, e);
  write_rate(to, e, "next");
  write_rate(to, e, "at");
}

static const char *function(const og_entry *e, const char *form) {
  return og_entry_field(e, form) ? og_format("%s_%s", form, e->name) : "NULL";
}

static void write_row(FILE *to, const og_entry *e) {
  const char *rate = part_of(e, "rate"), *momentum = part_of(e, "momentum");
  const char *first = part_of(e, "first");
  fprintf(to, "    {\"%s\", options_%s, %d, check_%s, %s, %s, %s, %s},\n", e->name, e->name,
          e->param_count, e->name, function(e, "next"), rate ? rate : function(e, "at"),
          momentum ? momentum : "NULL", first ? first : "NULL");
}

static void write_kinds(FILE *to) {
  fprintf(to, "#include <math.h>\n\n#include \"optim/optim_impl.h\"\n\n");
  each(to, write_kind);
  fprintf(to, "const px_scheduler_kind px__scheduler_kinds[] = {\n");
  each(to, write_row);
  fprintf(to,
          "};\nconst int px__scheduler_kind_count =\n"
          "    sizeof px__scheduler_kinds / sizeof *px__scheduler_kinds;\n");
}

// ---- Python

static bool by_metric(const og_entry *e) {
  return !text_of(e, "next") && !text_of(e, "at") && !text_of(e, "run");
}

static void write_words(FILE *to, const og_entry *e) {
  fprintf(to, "    _words = {");
  for (const og_field *f = NULL; (f = og_entry_next(e, "words", f));) {
    char name[64], words[3][64];
    const char *text = strstr(f->text, " : \"");
    int count = sscanf(f->text, "%63[a-z_] = %63[a-z0-9_], %63[a-z0-9_], %63[a-z0-9_]", name,
                       words[0], words[1], words[2]);
    if (count < 3 || !text)
      og_die(f->location, "expected `words NAME = WORD, WORD : \"text with {}\"`");
    fprintf(to, "\"%s\": ((", name);
    for (int i = 0; i < count - 1; i++) fprintf(to, "\"%s\", ", words[i]);
    fprintf(to, "), %s), ", text + 3);
  }
  fprintf(to, "}\n");
}

// True for options that may be lists with one value per group.
static bool is_of_groups(const char *name) {
  static const char *const names[] = {"base_lr", "max_lr",        "swa_lr",
                                      "min_lr",  "base_momentum", "max_momentum"};
  for (int i = 0; i < 6; i++)
    if (!strcmp(name, names[i])) return true;
  return false;
}
static const char *type_of(const og_param *p) {
  if (is_of_groups(p->name)) return "float | list[float]";
  if (!strcmp(p->name, "scale_fn")) return "Callable[[float], float] | None";
  return og_option_type(p);
}

static void write_class_doc(FILE *to, const og_entry *e) {
  fprintf(to, "    \"\"\"%s\n\n", text_of(e, "doc"));
  if (text_of(e, "paper")) fprintf(to, "    %s.\n\n", text_of(e, "paper"));
  fprintf(
      to,
      "    Args:\n        optimizer (Optimizer): the optimizer; its rates are set at once and by "
      "every step()\n");
  for (int i = 0; i < e->param_count; i++) {
    const og_param *p = &e->params[i];
    fprintf(to, "        %s (%s): %s%s%s\n", p->name, type_of(p), og_argument_text(e, p->name),
            p->fallback ? ". Default: " : "", p->fallback ? p->fallback : "");
  }
  if (!by_metric(e))
    fprintf(to, "        last_epoch (int): the epoch to resume from; -1: the start. Default: -1\n");
  fprintf(to, "\n    Raises:\n        ValueError: if an option is out of range\n");
  if (by_metric(e))
    fprintf(to,
            "\n    Example:\n"
            "        >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1)\n"
            "        >>> schedule = torch.optim.lr_scheduler.%s(optimizer)\n"
            "        >>> optimizer.step()\n        >>> schedule.step(0.25)\n",
            e->name);
  else if (text_of(e, "sample"))
    fprintf(to,
            "\n    Example:\n"
            "        >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1)\n"
            "        >>> schedule = torch.optim.lr_scheduler.%s(optimizer, %s)\n"
            "        >>> optimizer.step()\n        >>> schedule.step()\n",
            e->name, text_of(e, "sample"));
  fprintf(to, "    \"\"\"\n\n");
}

static void write_class(FILE *to, const og_entry *e) {
  fprintf(to, "\n\nclass %s(%s):\n", e->name, by_metric(e) ? "PlateauLR" : "KindLR");
  write_class_doc(to, e);
  fprintf(to, "    _kind = \"%s\"\n    _options = (", e->name);
  for (int i = 0; i < e->param_count; i++) fprintf(to, "\"%s\", ", e->params[i].name);
  fprintf(to, ")\n    _by_epoch = %s\n", og_entry_field(e, "next") ? "False" : "True");
  write_words(to, e);
  fprintf(to, "\n    def __init__(self, optimizer: Optimizer");
  for (int i = 0; i < e->param_count; i++) {
    const og_param *p = &e->params[i];
    fprintf(to, ",\n                 %s: %s%s%s", p->name, type_of(p), p->fallback ? " = " : "",
            p->fallback ? p->fallback : "");
  }
  fprintf(to, "%s) -> None:\n        self._make(optimizer, %s",
          by_metric(e) ? "" : ",\n                 last_epoch: int = -1",
          by_metric(e) ? "-1" : "last_epoch");
  for (int i = 0; i < e->param_count; i++) fprintf(to, ", %s", e->params[i].name);
  fprintf(to, ")\n");
}

// ---- the page

static void write_section(FILE *to, const og_entry *e) {
  fprintf(to, "\n## %s\n\n`%s`\n\n%s%s%s%s\n\n", e->name, e->schema, text_of(e, "doc"),
          text_of(e, "paper") ? " " : "", text_of(e, "paper") ? text_of(e, "paper") : "",
          text_of(e, "paper") ? "." : "");
  for (int i = 0; i < e->param_count; i++)
    fprintf(to, "- `%s`: %s\n", e->params[i].name, og_argument_text(e, e->params[i].name));
  if (text_of(e, "at") || text_of(e, "next")) fprintf(to, "\n```\n");
  if (text_of(e, "next")) fprintf(to, "next(lr, epoch) = %s\n", text_of(e, "next"));
  if (text_of(e, "at")) fprintf(to, "rate(epoch) = %s\n", text_of(e, "at"));
  if (text_of(e, "at") || text_of(e, "next")) fprintf(to, "```\n");
}

// ---- one entry, and the dry run

static const struct {
  const char *title;
  void (*write)(FILE *to, const og_entry *e);
} parts[] = {
    {"schedule_kinds.c", write_kind}, {"_schedules.py", write_class}, {"optim.md", write_section}};
enum { PARTS = sizeof parts / sizeof *parts };

bool og_show_schedule(const char *name) {
  for (int i = 0; i < og.entry_count; i++) {
    if (strcmp(og.entries[i]->sort, "schedule") || strcmp(og.entries[i]->name, name)) continue;
    for (int k = 0; k < PARTS; k++) {
      printf("---- %s\n", parts[k].title);
      parts[k].write(stdout, og.entries[i]);
    }
    return true;
  }
  return false;
}

void og_schedule_dry_run(FILE *sink) {
  for (int k = 0; k < PARTS; k++) each(sink, parts[k].write);
}

// ---- files

void og_schedule_write(const char *folder) {
  FILE *to = og_create(folder, "schedule_kinds.c");
  fprintf(to,
          "// SPDX-License-Identifier: Apache-2.0\n"
          "// Generated by tools/opgen from optim/*.optim. Do not edit.\n");
  write_kinds(to);
  og_finish(to);
  to = og_create(folder, "_schedules.py");
  fprintf(to,
          "# Generated by tools/opgen from optim/*.optim. Do not edit.\n"
          "\"\"\"Learning rate schedules.\"\"\"\n"
          "from __future__ import annotations\n\n"
          "from .lr_scheduler import KindLR, PlateauLR\nfrom .optimizer import Optimizer\n\n"
          "TYPE_CHECKING = False  # type checkers know the name\n"
          "if TYPE_CHECKING:\n    from collections.abc import Callable\n\n"
          "__all__ = [");
  for (int i = 0; i < og.entry_count; i++)
    if (!strcmp(og.entries[i]->sort, "schedule")) fprintf(to, "\"%s\", ", og.entries[i]->name);
  fprintf(to, "]\n");
  each(to, write_class);
  og_finish(to);
}

void og_schedule_write_page(FILE *to) { each(to, write_section); }
