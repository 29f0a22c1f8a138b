// SPDX-License-Identifier: Apache-2.0
// Reads the tables: splits lines into entries and fields, and parses the parameters of schema
// lines. `sorts` lists the fields of each sort of entry. Fields are interpreted by parse.c (ops),
// layer.c (layers), optim.c and schedule.c.
#include "opgen/opgen.h"

#include <ctype.h>

const og_type_row og_types[OG_TYPE_COUNT] = {
    [OG_TENSOR] = {"Tensor", "PX_ARG_TENSOR", "const px_tensor *", "const px_tensor *", "PX_T",
                   "Tensor"},
    [OG_TENSORS] = {"Tensor[]", "PX_ARG_TENSORS", "px_tensor *const *", "px_tensor *const *",
                    "PX_TS", "Sequence[Tensor]"},
    [OG_SCALAR] = {"Scalar", "PX_ARG_SCALAR", "px_scalar ", "px_scalar ", "PX_S", "Number"},
    [OG_INT] = {"int", "PX_ARG_INT", "int64_t ", "const int64_t *", "PX_I", "int"},
    [OG_FLOAT] = {"float", "PX_ARG_FLOAT", "double ", "const double *", "PX_F", "float"},
    [OG_BOOL] = {"bool", "PX_ARG_BOOL", "bool ", "const bool *", "PX_B", "bool"},
    [OG_INTS] = {"int[]", "PX_ARG_INTS", "const int64_t *", "const int64_t *", "PX_IS",
                 "Union[int, Sequence[int]]"},
    [OG_DTYPE] = {"Dtype", "PX_ARG_DTYPE", "px_dtype ", "px_dtype ", "PX_DT", "dtype"},
    [OG_DEVICE] = {"Device", "PX_ARG_DEVICE", "px_device ", "px_device ", "PX_DV",
                   "Union[str, int, device]"},
    [OG_TEXT] = {"str", "PX_ARG_TEXT", "const char *", "const char *", "PX_TX", "str"},
    [OG_GENERATOR] = {"Generator", "PX_ARG_GENERATOR", "px_generator *", "px_generator *", "PX_G",
                      "Generator"},
    [OG_MODULE] = {"Module", "PX_ARG_NONE", "px_module *", "px_module *", "PX_NONE", "Module"},
};

const char *og_skip(const char *at) {
  while (*at == ' ' || *at == '\t') at++;
  return at;
}
const char *og_word_end(const char *at) {
  while (isalnum((unsigned char)*at) || *at == '_') at++;
  return at;
}
char *og_trimmed(const char *from, const char *to) {
  while (from < to && isspace((unsigned char)*from)) from++;
  while (to > from && isspace((unsigned char)to[-1])) to--;
  return og_copy(from, (size_t)(to - from));
}

// ---- parameters

// Returns the end of a parameter: a comma or parenthesis outside brackets and quotes.
static const char *param_end(const char *at, og_location location) {
  int depth = 0;
  bool quoted = false;
  for (; *at; at++) {
    if (*at == '\'') quoted = !quoted;
    if (quoted) continue;
    if (*at == '[' || *at == '(') depth++;
    if (*at == ']' || (*at == ')' && depth > 0)) {
      depth--;
      continue;
    }
    if (depth == 0 && (*at == ',' || *at == ')')) return at;
  }
  og_die(location, "the schema has no closing parenthesis");
}

static void parse_type(og_param *p, char *text, og_location at) {
  size_t n = strlen(text);
  if (n && text[n - 1] == '?') p->optional = true, text[--n] = 0;
  if (!strncmp(text, "str|", 4)) p->worded = true, text += 4;
  char *digits = strchr(text, '[');  // int[2] is int[] with a size
  if (digits && isdigit((unsigned char)digits[1])) {
    p->size = atoi(digits + 1);
    strcpy(digits, "[]");
  }
  for (int i = 0; i < OG_TYPE_COUNT; i++)
    if (!strcmp(text, og_types[i].schema)) {
      p->type = (og_type)i;
      return;
    }
  og_die(at, "unknown type '%s'", text);
}

static og_param parse_param(char *text, og_location at) {
  og_param p = {0};
  char *space = strchr(text, ' ');
  if (!space) og_die(at, "parameter '%s' has no name", text);
  *space = 0;
  char *name = og_trimmed(space + 1, space + 1 + strlen(space + 1));
  char *equals = strchr(name, '=');
  if (equals) {
    *equals = 0;
    p.fallback = og_trimmed(equals + 1, equals + 1 + strlen(equals + 1));
    name = og_trimmed(name, equals);
  }
  parse_type(&p, text, at);
  if (*og_word_end(name) || !*name) og_die(at, "bad parameter name '%s'", name);
  p.name = name;
  return p;
}

int og_param_named(const og_param *params, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (!strcmp(params[i].name, name)) return i;
  return -1;
}

const char *og_option_type(const og_param *p) {
  const char *type = p->type == OG_INTS ? "list[int]" : og_types[p->type].python;
  return p->optional ? og_format("%s | None", type) : type;
}

const char *og_read_params(const char *at, og_location location, const char *owner,
                           og_param *params, int *count) {
  bool keyword = false;
  at = og_skip(at);
  while (*at != ')') {
    const char *end = param_end(at, location);
    char *text = og_trimmed(at, end);
    if (!strcmp(text, "*")) {
      keyword = true;
    } else {
      if (*count == OG_MAX_PARAMS) og_die(location, "%s has too many parameters", owner);
      og_param p = parse_param(text, location);
      p.keyword = keyword;
      if (og_param_named(params, *count, p.name) >= 0)
        og_die(location, "parameter '%s' is given twice", p.name);
      params[(*count)++] = p;
    }
    at = *end == ',' ? og_skip(end + 1) : end;
  }
  return at + 1;
}

// ---- entries other than ops

// Fields of each sort of entry. `!`: required; `*`: may be repeated.
static const struct {
  const char *sort, *fields;
} sorts[] = {
    {"layer",
     "like base cname inputs results children argument* lazy check* fixed* set* let* each param* "
     "buffer* child* init method* math tuple_name init_only callable strict input_sized forward "
     "forward_pair "
     "run "
     "run_sized repr "
     "shape sample* example note doc!"},
    {"optimizer",
     "extends order argument* tuple* check* state* scalar* number* next* let* set* sample* paper! "
     "note doc!"},
    {"loop", "argument* tuple* check* sample! example! paper! doc!"},
    {"schedule", "argument* check* words* next at run sample paper doc!"}};
enum { SORTS = sizeof sorts / sizeof *sorts };

static const char *fields_of(const char *sort) {
  for (int i = 0; i < SORTS; i++)
    if (!strcmp(sorts[i].sort, sort)) return sorts[i].fields;
  return NULL;
}

// Returns the i-th field of a sort, or NULL past the end, and its mark, 0 for none.
static char *listed(const char *sort, int i, char *mark) {
  const char *at = fields_of(sort), *end = og_word_end(at);
  for (; *at && i > 0; i--) {
    at = og_skip(end + strspn(end, "!*"));
    end = og_word_end(at);
  }
  *mark = *end == ' ' ? 0 : *end;
  return *at ? og_copy(at, (size_t)(end - at)) : NULL;
}

const og_field *og_entry_next(const og_entry *e, const char *name, const og_field *after) {
  int i = 0;
  if (after)
    while (&e->fields[i++] != after) continue;
  for (; i < e->field_count; i++)
    if (!strcmp(e->fields[i].name, name)) return &e->fields[i];
  return NULL;
}
const og_field *og_entry_field(const og_entry *e, const char *name) {
  return og_entry_next(e, name, NULL);
}

static og_entry *entry_begin(const char *sort, const char *text, og_location at) {
  og_entry *e = calloc(1, sizeof *e);
  if (!e) exit(1);
  const char *name = og_skip(text + strlen(sort)), *end = og_word_end(name);
  if (end == name || *end != '(') og_die(at, "expected `%s NAME(PARAMETERS)`", sort);
  e->sort = sort, e->location = at;
  e->name = og_copy(name, (size_t)(end - name));
  e->schema = og_trimmed(name, name + strlen(name));
  const char *rest = og_skip(og_read_params(end + 1, at, e->name, e->params, &e->param_count));
  if (*rest) og_die(at, "unexpected '%s' after the parameters of %s", rest, e->name);
  if (og.entry_count == OG_MAX_OPS) og_die(at, "too many entries");
  return og.entries[og.entry_count++] = e;
}

static void entry_field(og_entry *e, const char *line, og_location at) {
  const char *end = og_word_end(line), *known = NULL;
  og_field f = {og_trimmed(end, end + strlen(end)), og_advance(at, line, og_skip(end)),
                og_copy(line, (size_t)(end - line))};
  char mark = 0;
  for (int i = 0; (known = listed(e->sort, i, &mark)) && strcmp(known, f.name);) i++;
  if (!known) og_die(at, "unknown field '%s' of %s", f.name, e->name);
  if (!*f.text) og_die(at, "field '%s' of %s is empty", f.name, e->name);
  const og_field *first = og_entry_field(e, f.name);
  if (first && mark != '*')
    og_die(at, "%s of %s is already given at line %d", f.name, e->name, first->location.line);
  if (e->field_count == OG_MAX_FIELDS) og_die(at, "too many fields of %s", e->name);
  e->fields[e->field_count++] = f;
}

// True if field a overrides field b: same field name and, for `argument`, `let` and `fixed`, the
// same first word.
static bool overrides(const og_field *a, const og_field *b) {
  size_t word = (size_t)(og_word_end(a->text) - a->text);
  if (strcmp(a->name, b->name)) return false;
  if (strcmp(a->name, "argument") && strcmp(a->name, "let") && strcmp(a->name, "fixed"))
    return true;
  return !strncmp(a->text, b->text, word) && og_word_end(b->text) == b->text + word;
}

// Implements `like NAME`: adds the fields of the other entry not overridden in this one.
static void inherit(og_entry *e, const og_entry *other) {
  int own = e->field_count;
  for (int i = 0; i < other->field_count; i++) {
    bool overridden = !strcmp(other->fields[i].name, "like");
    for (int k = 0; k < own; k++) overridden |= overrides(&e->fields[k], &other->fields[i]);
    if (overridden) continue;
    if (e->field_count == OG_MAX_FIELDS) og_die(e->location, "too many fields of %s", e->name);
    e->fields[e->field_count++] = other->fields[i];
  }
}

static void inherit_like(og_entry *e, int first) {
  const og_field *like = og_entry_field(e, "like");
  for (int i = first; like && i < og.entry_count; i++)
    if (og.entries[i] != e && !strcmp(og.entries[i]->name, like->text)) {
      inherit(e, og.entries[i]);
      return;
    }
  if (like) og_die(like->location, "no entry '%s' in this file for %s", like->text, e->name);
}

static void entry_end(const og_entry *e) {
  char mark, *name;
  for (int i = 0; (name = listed(e->sort, i, &mark)); i++)
    if (mark == '!' && !og_entry_field(e, name))
      og_die(e->location, "%s %s has no %s", e->sort, e->name, name);
}

// ---- lines

typedef struct reader {
  og_op *op;        // the current entry: an op,
  og_entry *entry;  // or an entry of another sort
  char *field;      // the current field; more deeply indented lines continue it
  og_location field_at;
  int field_indent;
} reader;

static const char *sort_of(const char *line) {
  char *word = og_copy(line, (size_t)(og_word_end(line) - line));
  for (int i = 0; i < SORTS; i++)
    if (!strcmp(word, sorts[i].sort)) return sorts[i].sort;
  static const char *const schemas[] = {"op", "formula", "kernel", "library", "helper", "argument"};
  for (int i = 0; i < 6; i++)
    if (!strcmp(word, schemas[i])) return schemas[i];
  return NULL;
}

// "NAME TEXT"
static og_field argument_line(const char *text, og_location at) {
  const char *end = og_word_end(text);
  if (end == text || !*og_skip(end)) og_die(at, "expected `argument NAME TEXT`");
  return (og_field){og_skip(end), at, og_copy(text, (size_t)(end - text))};
}

// True if two tables are in the same folder: shared `argument` lines apply to one folder.
static bool same_folder(const char *a, const char *b) {
  const char *end = strrchr(a, '/'), *other = strrchr(b, '/');
  size_t n = end ? (size_t)(end - a) : 0, m = other ? (size_t)(other - b) : 0;
  return n == m && !strncmp(a, b, n);
}

const char *og_argument_text(const og_entry *e, const char *name) {
  for (const og_field *f = NULL; (f = og_entry_next(e, "argument", f));) {
    og_field own = argument_line(f->text, f->location);
    if (!strcmp(own.name, name)) return own.text;
  }
  for (int i = 0; i < og.argument_count; i++)
    if (!strcmp(og.arguments[i].name, name) &&
        same_folder(og.arguments[i].location.file, e->location.file))
      return og.arguments[i].text;
  og_die(e->location, "no description of argument '%s' of %s", name, e->name);
}

static void begin_entry(reader *r) {
  const char *sort = sort_of(r->field);
  r->op = NULL, r->entry = NULL;
  if (!strcmp(sort, "argument")) {
    if (og.argument_count == OG_MAX_ARGUMENTS) og_die(r->field_at, "too many arguments");
    og.arguments[og.argument_count++] = argument_line(og_skip(r->field + 8), r->field_at);
    return;
  }
  if (fields_of(sort)) {
    r->entry = entry_begin(sort, r->field, r->field_at);
    return;
  }
  og_op *op = og_op_begin(sort, r->field, r->field_at);
  bool fields = !strcmp(sort, "op") || !strcmp(sort, "formula");  // the others have none
  if (fields) r->op = op;
}

static void end_field(reader *r) {
  if (!r->field) return;
  if (r->field_indent == 0)
    begin_entry(r);
  else if (r->op)
    og_op_field(r->op, r->field, r->field_at);
  else
    entry_field(r->entry, r->field, r->field_at);
  r->field = NULL;
}

// Fields of formulas keep their lines, for the locations of errors. The lines of other fields are
// joined.
static bool keeps_lines(const char *field) {
  static const char *const names[] = {"let",     "do",       "body",   "grad",
                                      "complex", "unsigned", "forward"};
  char *word = og_copy(field, (size_t)(og_word_end(field) - field));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(word, names[i])) return true;
  return false;
}

static void take_line(reader *r, char *line, og_location at) {
  int indent = (int)(og_skip(line) - line);
  char *text = og_trimmed(line, line + strlen(line));
  bool lines = r->field && r->field_indent > 0 && keeps_lines(r->field);
  if (!*text || *text == '#') {
    if (lines) r->field = og_format("%s\n", r->field);
    return;
  }
  if (r->field && indent > r->field_indent && r->field_indent > 0) {
    r->field = lines ? og_format("%s\n%s", r->field, line) : og_format("%s %s", r->field, text);
    return;
  }
  if (r->field && r->field_indent == 0 && indent > 4) {  // a long schema
    r->field = og_format("%s %s", r->field, text);
    return;
  }
  end_field(r);
  if (indent == 0 && !sort_of(text))
    og_die(at, "expected `op`, `formula`, `kernel`, `helper` or `layer`, not '%s'", text);
  if (indent > 0 && !r->op && !r->entry) og_die(at, "a field outside of an entry");
  r->field = text, r->field_at = at, r->field_indent = indent;
  if (indent > 0 && keeps_lines(text)) r->field_at.column = indent + 1;
}

void og_read(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) {
    perror(path);
    exit(1);
  }
  reader r = {0};
  char *line = NULL;
  size_t capacity = 0;
  og_location at = {.file = path};
  int first_op = og.count, first_entry = og.entry_count;
  while (getline(&line, &capacity, file) >= 0) {
    at.line++;
    line[strcspn(line, "\r\n")] = 0;
    take_line(&r, og_copy(line, strlen(line)), at);
  }
  end_field(&r);
  fclose(file);
  for (int i = first_op; i < og.count; i++) og_op_end(og.ops[i]);
  for (int i = first_entry; i < og.entry_count; i++) inherit_like(og.entries[i], first_entry);
  for (int i = first_entry; i < og.entry_count; i++) entry_end(og.entries[i]);
}
