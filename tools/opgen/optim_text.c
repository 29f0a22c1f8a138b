// SPDX-License-Identifier: Apache-2.0
// Writes the Python class of an optimiser, the reference page, and the update as Python formulas,
// used by recorded steps and by the tests of the kernels.
#include "opgen/optim.h"

static const char *text_of(const optim *o, const char *field) {
  const og_field *f = og_entry_field(o->entry, field);
  return f ? f->text : NULL;
}

// Calls `each` for all parameters of the Python signature; a tuple takes the position of its first
// part.
typedef struct python_param {
  const char *name, *type, *fallback;
  bool keyword;
} python_param;
typedef void (*param_writer)(FILE *to, const python_param *p);
// Appends a part to a tuple.
static void join(const optim *o, const char *part, python_param *p) {
  for (int k = 0; k < o->entry->param_count; k++) {
    const og_param *option = &o->entry->params[k];
    if (strcmp(option->name, part)) continue;
    p->type = og_format("%s, %s", p->type, og_option_type(option));
    p->fallback = og_format("%s, %s", p->fallback, option->fallback);
  }
}
static void each_param(FILE *to, const optim *o, param_writer write) {
  for (int i = 0; i < o->entry->param_count; i++) {
    const og_param *p = &o->entry->params[i];
    int index;
    const optim_pair *pair = optim_pair_of(o, p->name, &index);
    if (pair && index) continue;
    python_param q = {p->name, og_option_type(p), p->fallback, p->keyword};
    for (int k = 1; pair && k < OPTIM_PARTS && pair->parts[k]; k++) join(o, pair->parts[k], &q);
    if (pair) {
      q.name = pair->name;
      q.type = og_format("tuple[%s]", q.type);
      q.fallback = og_format("(%s)", q.fallback);
    }
    write(to, &q);
  }
}

static bool starred;
static void write_signature(FILE *to, const python_param *p) {
  if (p->keyword && !starred) fprintf(to, ", *"), starred = true;
  fprintf(to, ",\n                 %s: %s = %s", p->name, p->type, p->fallback);
}
static void write_pass(FILE *to, const python_param *p) {
  fprintf(to, "\"%s\": %s, ", p->name, p->name);
}

static const char *states_text(const optim *o) {
  const char *text = "";
  for (int i = 0; i < o->state_count; i++)
    text = og_format("%s%s%s", text, *text ? ", " : "", o->states[i].name);
  return text;
}

// ---- the Python class

static const og_entry *documented;  // entry of the arguments being written
static void write_argument(FILE *to, const python_param *p) {
  fprintf(to, "        %s (%s): %s. Default: %s\n", p->name, p->type,
          og_argument_text(documented, p->name), p->fallback);
}

static void write_doc(FILE *to, const optim *o) {
  fprintf(
      to,
      "    \"\"\"%s\n\n    %s.\n\n    Args:\n        params: iterable of tensors to optimize, or "
      "of dicts defining parameter groups\n",
      text_of(o, "doc"), text_of(o, "paper"));
  documented = o->entry;
  each_param(to, o, write_argument);
  fprintf(to, "\n    Raises:\n        ValueError: if an option is out of range\n");
  if (o->state_count) fprintf(to, "\n    State per parameter: %s.\n", states_text(o));
  const char *example = text_of(o, "example");
  fprintf(to,
          "\n    Example:\n        >>> weight = torch.ones(%s, requires_grad=True)\n"
          "        >>> optimizer = torch.optim.%s([weight], %s)\n        >>> %s\n    \"\"\"\n\n",
          example ? "2, 2" : "2", o->entry->name, text_of(o, "sample"),
          example ? example : "weight.sum().backward()\n        >>> optimizer.step()");
}

// Parses "extends NAME, OPTION=VALUE": returns the base; `more` is the additional option of groups.
static const char *base_of(const optim *o, const char **more) {
  const char *text = text_of(o, "extends"), *comma = text ? strchr(text, ',') : NULL;
  *more = "";
  if (!text) return "KindOptimizer";
  const char *equals = comma ? strchr(comma, '=') : NULL;
  if (!equals)
    og_die(og_entry_field(o->entry, "extends")->location, "expected `NAME, OPTION=VALUE`");
  *more = og_format("\"%s\": %s, ", og_trimmed(og_skip(comma + 1), equals), equals + 1);
  return og_trimmed(text, comma);
}

// Writes the constructor up to its body.
static void write_init(FILE *to, const optim *o) {
  fprintf(to, "    def __init__(self, params: Params");
  starred = false;
  each_param(to, o, write_signature);
  fprintf(to, ") -> None:\n");
}
// Writes the options in the order of parameter groups: that of the signature, or of the field
// `order`, which must list all of them.
static const char *ordered;  // " lr betas eps "
static int unlisted;
static void count_unlisted(FILE *to, const python_param *p) {
  (void)to;
  unlisted += !strstr(ordered, og_format(" %s ", p->name));
}
static void write_passed(FILE *to, const optim *o) {
  const og_field *field = og_entry_field(o->entry, "order");
  if (!field) {
    each_param(to, o, write_pass);
    return;
  }
  unlisted = 0, ordered = og_format(" %s ", field->text);
  each_param(to, o, count_unlisted);
  if (unlisted) og_die(field->location, "order of %s must list every option", o->entry->name);
  for (const char *at = field->text; *at;) {
    int length = (int)strcspn(at, " ");
    fprintf(to, "\"%.*s\": %.*s, ", length, at, length, at);
    at = og_skip(at + length);
  }
}
static void write_super(FILE *to, const optim *o, const char *base, const char *more) {
  fprintf(to, "        %s.__init__(self, params, {", base);
  write_passed(to, o);
  fprintf(to, "%s})\n", more);
}

void optim_write_python(FILE *to, const optim *o) {
  const char *more;
  fprintf(to, "\n\nclass %s(%s):\n", o->entry->name, base_of(o, &more));
  write_doc(to, o);
  fprintf(to, "    _kind = \"%s\"\n    _numbers = (", o->entry->name);
  for (int i = 0; i < o->state_count; i++)
    if (o->states[i].scalar) fprintf(to, "\"%s\", ", o->states[i].name);
  fprintf(to, ")\n\n");
  write_init(to, o);
  write_super(to, o, "KindOptimizer", more);
}

// Writes the class of a loop. Its base, of the same name in _loops.py, implements the step. Checks
// are Python.
void optim_write_loop(FILE *to, const optim *o) {
  const char *name = o->entry->name;
  fprintf(to, "\n\nclass %s(_loops.%s):\n", name, name);
  write_doc(to, o);
  write_init(to, o);
  for (int i = 0; i < o->pair_count; i++) {
    fprintf(to, "        ");
    for (int k = 0; k < OPTIM_PARTS && o->pairs[i].parts[k]; k++)
      fprintf(to, "%s%s", k ? ", " : "", o->pairs[i].parts[k]);
    fprintf(to, " = %s\n", o->pairs[i].name);
  }
  for (const og_field *f = NULL; (f = og_entry_next(o->entry, "check", f));) {
    const char *colon = strstr(f->text, " : VALUE ");
    if (!colon) og_die(f->location, "expected `check CONDITION : VALUE \"text\"`");
    fprintf(to, "        if not (%.*s):\n            raise ValueError(f%s)\n",
            (int)(colon - f->text), f->text, colon + strlen(" : VALUE "));
  }
  write_super(to, o, og_format("_loops.%s", name), "");
}

// ---- the update in Python

static void write_number(FILE *to, const char *name) {
  fprintf(to, "    %s = number(options[\"%s\"])\n", name, name);
}

static void write_options(FILE *to, const optim *o) {
  for (int i = 0; i < o->option_count; i++)
    if (!optim_pair_of(o, o->options[i]->name, &(int){0})) write_number(to, o->options[i]->name);
  for (int i = 0; i < o->pair_count; i++)
    fprintf(to, "    %s, %s = map(number, options[\"%s\"])\n", o->pairs[i].parts[0],
            o->pairs[i].parts[1], o->pairs[i].name);
}

// `first` is true if the tensor states do not exist yet; they begin together.
static void write_begin(FILE *to, const optim *o) {
  const char *first = "False";
  for (int i = 0; i < o->state_count; i++) {
    const optim_state *s = &o->states[i];
    const char *begin = s->initial ? og_arith(s->initial, OG_PYTHON) : "0.0";
    const char *get = og_format("state.get(\"%s\", %s)", s->name, begin);
    fprintf(to, s->scalar ? "    %s = number(%s)\n" : "    %s = %s\n", s->name, get);
    if (!s->scalar && !strcmp(first, "False")) first = og_format("\"%s\" not in state", s->name);
  }
  fprintf(to, "    first = %s\n", first);
}

static void write_end(FILE *to, const optim *o) {
  fprintf(to, "    new = {");
  for (int i = 0; i < o->state_count; i++)
    if (!o->states[i].needed) fprintf(to, "\"%s\": %s, ", o->states[i].name, o->states[i].name);
  fprintf(to, "}\n");
  for (int i = 0; i < o->state_count; i++)
    if (o->states[i].needed)
      fprintf(to, "    if %s:\n        new[\"%s\"] = %s\n",
              og_arith_test(o->states[i].needed, OG_PYTHON), o->states[i].name, o->states[i].name);
  fprintf(to, "    return param, new\n");
}

void optim_write_formula(FILE *to, const optim *o) {
  fprintf(to, "\n\ndef %s(options, state, param, grad):\n", o->entry->name);
  write_options(to, o);
  write_begin(to, o);
  if (optim_has_option(o, "maximize")) fprintf(to, "    grad = -grad if maximize else grad\n");
  for (int i = 0; i < o->line_count; i++)
    if (o->lines[i].sort != OPTIM_CHECK)
      fprintf(to, "    %s = %s\n", o->lines[i].name, og_arith(o->lines[i].tree, OG_PYTHON));
  write_end(to, o);
}

static void write_samples(FILE *to, const optim *o) {
  for (const og_field *f = NULL; (f = og_entry_next(o->entry, "sample", f));)
    fprintf(to, "SAMPLES += [(\"%s\", dict(%s))]\n", o->entry->name, f->text);
}

// ---- the page

// Replaces bars, which would end a table cell.
static const char *without_bars(const char *type) {
  const char *bar = strstr(type, " | ");
  return bar ? og_format("%.*s or %s", (int)(bar - type), type, without_bars(bar + 3)) : type;
}
static void write_row(FILE *to, const python_param *p) {
  fprintf(to, "| `%s` | %s | `%s` | %s |\n", p->name, without_bars(p->type), p->fallback,
          og_argument_text(documented, p->name));
}

static void write_states(FILE *to, const optim *o) {
  for (int i = 0; i < o->state_count; i++) {
    const optim_state *s = &o->states[i];
    fprintf(to, "%s`%s`", i ? ", " : "", s->name);
    if (s->scalar) fprintf(to, " (a number)");
    if (s->initial && strcmp(og_arith(s->initial, OG_PYTHON), "0"))
      fprintf(to, " initialized to %s", og_arith(s->initial, OG_PYTHON));
    if (s->needed) fprintf(to, " if `%s`", og_arith_test(s->needed, OG_PYTHON));
  }
}

static void write_section(FILE *to, const optim *o) {
  documented = o->entry;
  fprintf(to, "\n## %s\n\n%s %s.\n\n| option | type | default | |\n|---|---|---|---|\n",
          o->entry->name, text_of(o, "doc"), text_of(o, "paper"));
  each_param(to, o, write_row);
}
static void write_lines(FILE *to, const optim *o) {
  fprintf(to, "\n\n```\n");
  for (const og_field *f = NULL; (f = og_entry_next(o->entry, "check", f));)
    fprintf(to, "requires: %.*s\n", (int)(strstr(f->text, " : ") - f->text), f->text);
  for (int i = 0; i < o->entry->field_count; i++) {
    const og_field *f = &o->entry->fields[i];
    bool line = !strcmp(f->name, "number") || !strcmp(f->name, "next") || !strcmp(f->name, "let") ||
                !strcmp(f->name, "set");
    if (line) fprintf(to, "%s\n", f->text);
  }
  fprintf(to, "```\n");
}

void optim_write_page(FILE *to, const optim *o) {
  write_section(to, o);
  fprintf(to, "\nState: ");
  write_states(to, o);
  fprintf(to, "%s", o->state_count ? "" : "none");
  write_lines(to, o);
}
static void write_loop_page(FILE *to, const optim *o) {
  write_section(to, o);
  fprintf(to, "\nImplemented in Python.");
  write_lines(to, o);
}

// ---- files

void og_optim_write_texts(const char *folder) {
  FILE *to = og_create(folder, "_kinds.py");
  fprintf(to,
          "# Generated by tools/opgen from optim/*.optim. Do not edit.\n"
          "\"\"\"The optimisers of the library.\"\"\"\nfrom __future__ import annotations\n\n"
          "from . import _loops\nfrom .optimizer import KindOptimizer, Params\n\n__all__ = [");
  for (int k = 0; optim_at(k); k++) fprintf(to, "\"%s\", ", optim_at(k)->entry->name);
  for (int k = 0; optim_loop_at(k); k++) fprintf(to, "\"%s\", ", optim_loop_at(k)->entry->name);
  fprintf(to, "]\n");
  for (int k = 0; optim_at(k); k++) optim_write_python(to, optim_at(k));
  for (int k = 0; optim_loop_at(k); k++) optim_write_loop(to, optim_loop_at(k));
  og_finish(to);
  to = og_create(folder, "_formulas.py");
  fprintf(to,
          "# Generated by tools/opgen from optim/*.optim. Do not edit.\n"
          "\"\"\"The updates of the optimisers: of tensors, or of one element.\"\"\"\n"
          "from ._differentiable import (\n"
          "    abs, choose, cos, exp, floor, log, max, min, number, sign, sqrt)\n");
  for (int k = 0; optim_at(k); k++) optim_write_formula(to, optim_at(k));
  og_finish(to);
  to = og_create(folder, "optim_samples.py");
  fprintf(to,
          "# Generated by tools/opgen from optim/*.optim. Do not edit.\n"
          "\"\"\"Options of the optimisers for the tests.\"\"\"\nSAMPLES = []\n");
  for (int k = 0; optim_at(k); k++) write_samples(to, optim_at(k));
  og_finish(to);
  to = og_create(folder, "optim.md");
  fprintf(to,
          "# Optimisers\n\nGenerated from `optim/*.optim`. A step of a parameter is "
          "one kernel; a failed step changes nothing. In the formulas g is the gradient, negated "
          "with `maximize`.\n\n"
          "Steps that are not element-wise formulas are implemented in Python "
          "(`python/phlox/optim/_loops.py`). Available in Python only: the schedules `LambdaLR`, "
          "`MultiplicativeLR`, `SequentialLR` and `ChainedScheduler`, and weight averaging, "
          "`torch.optim.swa_utils`.\n");
  og_optim_write_page(to);
  fprintf(to,
          "\n# Schedules\n\n`epoch` counts from 0; `base` is the rate of a group at the "
          "construction of its first schedule; `initial` is true at the construction. In C, "
          "`px_optimizer_schedule` sets the rates of an epoch by a kind, "
          "`px_scheduler_kind_find(\"StepLR\")`.\n");
  og_schedule_write_page(to);
  og_finish(to);
}

void og_optim_write_page(FILE *to) {
  for (int k = 0; optim_at(k); k++) optim_write_page(to, optim_at(k));
  for (int k = 0; optim_loop_at(k); k++) write_loop_page(to, optim_loop_at(k));
}
