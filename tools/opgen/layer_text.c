// SPDX-License-Identifier: Apache-2.0
// Writes the documentation of layers: docstrings with signatures, stubs, the reference page, and
// the samples of the tests.
#include "opgen/layer.h"

#include <ctype.h>

// ---- Python's forms

static const char *python_type(const og_param *p) {
  const char *type = og_types[p->type].python;
  if (p->worded) type = og_format("Union[str, %s]", type);
  if (p->owned) type = "Union[int, Sequence[Optional[int]]]";
  return p->optional ? og_format("Optional[%s]", type) : type;
}

// Returns the type in words: "str, int or tuple of ints".
static const char *type_words(const og_param *p) {
  const char *type = p->owned               ? "int or tuple of ints and None"
                     : p->type == OG_INTS   ? "int or tuple of ints"
                     : p->type == OG_DEVICE ? "device"
                                            : og_types[p->type].python;
  return og_format("%s%s%s", p->worded ? "str, " : "", type, p->optional ? " or None" : "");
}

// "in_features, out_features, bias=True"
static const char *python_params(const og_layer *l) {
  if (l->children) return l->children;
  const char *text = "";
  for (int i = 0; i < l->e->param_count; i++) {
    const og_param *p = &l->e->params[i];
    const char *fallback = p->fallback ? p->fallback : p->optional ? "None" : NULL;
    text = og_format("%s%s%s%s%s", text, i ? ", " : "", p->name, fallback ? "=" : "",
                     fallback ? fallback : "");
  }
  return text;
}

// ---- samples: `CONSTRUCTOR ; INPUTS -> (SIZES)`

typedef struct sample {
  const char *constructor, *inputs, *sizes;
} sample;

static sample read_sample(const og_layer *l, const og_field *f) {
  const char *semicolon = strchr(f->text, ';'), *arrow = strstr(f->text, "->");
  if (!semicolon || !arrow || arrow < semicolon)
    og_die(f->location, "expected `sample ARGUMENTS ; INPUTS -> (SIZES)` of %s", l->e->name);
  return (sample){og_trimmed(f->text, semicolon), og_trimmed(semicolon + 1, arrow),
                  og_trimmed(arrow + 2, arrow + strlen(arrow))};
}

void og_write_layer_samples(FILE *to, const og_layer *l) {
  for (const og_field *f = NULL; (f = og_entry_next(l->e, "sample", f));) {
    sample s = read_sample(l, f);
    fprintf(to, "PX_LAYER_SAMPLE(\"%s\", %s, %s, %s)\n", l->e->name, og_quote(s.constructor),
            og_quote(s.inputs), og_quote(s.sizes));
  }
}

// Converts f(2,3) to "torch.randn(2, 3)".
static const char *python_tensor(const og_layer *l, const char *text) {
  const char *open = strchr(text, '('), *limit = strchr(text, ';');
  const char *close = open ? strchr(open, ')') : NULL;
  if (!close) og_die(l->e->location, "the sample `%s` of %s is not a tensor", text, l->e->name);
  char *sizes = og_copy(open + 1, (size_t)((limit ? limit : close) - open - 1));
  const char *spaced = "";
  for (const char *at = sizes; *at; at++)
    spaced = og_format(*at == ',' ? "%s, " : "%s%c", spaced, *at);
  bool lone = *sizes && !strchr(sizes, ',');
  switch (*text) {
    case 'f':
      return og_format("torch.randn(%s)", spaced);
    case 's':
      return og_format("torch.randn(%s).sign()", spaced);
    case 'u':
      return og_format("torch.rand(%s)", spaced);
    case 'p':
      return og_format("torch.rand(%s) + 0.5", spaced);
    case 'i':
      return og_format("torch.randint(%d, (%s%s))", atoi(limit + 1), spaced, lone ? "," : "");
    default:
      og_die(l->e->location, "the sample `%s` of %s is not a tensor", text, l->e->name);
  }
}

static bool is_tensor(const char *text) { return strchr("fpusi", *text) && text[1] == '('; }

// Converts [2,3] to "(2, 3)"; other values are returned as is.
static const char *python_value(const char *text) {
  const char *made = "";
  if (*text != '[') return text;
  for (const char *at = text + 1; *at && *at != ']'; at++)
    made = og_format(*at == ',' ? "%s, " : "%s%c", made, *at);
  return og_format("(%s)", made);
}

// Sets the parentheses before and after the k-th tensor if it begins or ends a tuple.
static void tuple_marks(const og_layer *l, int k, const char **before, const char **after) {
  *before = *after = "";
  for (int i = 0, first = 0; i < l->input_count; first += l->inputs[i++].tensors) {
    int position = k - first, tensors = l->inputs[i].tensors;
    if (tensors == 1 || position < 0 || position >= tensors) continue;
    if (position == 0) *before = "(";
    if (position == tensors - 1) *after = ")";
  }
}

// Converts a sample to Python arguments: `3 weight=p(4)` to "3, weight=torch.rand(4) + 0.5".
static const char *python_arguments(const og_layer *l, const char *words, bool inputs) {
  const char *made = "", *before = "", *after = "";
  int k = 0;
  char *all = strdup(words);
  for (char *one = strtok(all, " "); one; one = strtok(NULL, " ")) {
    char *equals = strchr(one, '='), *value = equals ? equals + 1 : one;
    if (inputs) tuple_marks(l, k++, &before, &after);
    made = og_format("%s%s%s%.*s%s%s", made, *made ? ", " : "", before, (int)(value - one), one,
                     is_tensor(value) ? python_tensor(l, value) : python_value(value), after);
  }
  return made;
}

// Converts "(2,3)" to "2, 3".
static const char *python_sizes(const char *sizes) {
  const char *made = "";
  for (const char *at = sizes + 1; *at && *at != ')'; at++)
    made = og_format(*at == ',' ? "%s, " : "%s%c", made, *at);
  return made;
}

// ---- docstrings

static const char *docstring_params(const og_layer *l) {
  const char *text = l->e->param_count ? "\n\nArgs:" : "";
  for (int i = 0; i < l->e->param_count; i++) {
    const og_param *p = &l->e->params[i];
    const char *fallback = p->fallback ? p->fallback : p->optional ? "None" : NULL;
    text = og_format("%s\n    %s (%s): %s%s%s", text, p->name, type_words(p),
                     og_argument_text(l->e, p->name), fallback ? ". Default: " : "",
                     fallback ? fallback : "");
  }
  return text;
}

static const char *docstring_example(const og_layer *l, const og_field *f) {
  sample s = read_sample(l, f);
  if (l->lazy)
    return og_lazy_example(l, python_arguments(l, s.constructor, false),
                           python_arguments(l, s.inputs, true), python_sizes(s.sizes));
  return og_format(
      "\n    >>> layer = torch.nn.%s(%s)\n    >>> layer(%s)%s.shape\n    torch.Size([%s])",
      l->e->name, python_arguments(l, s.constructor, false), python_arguments(l, s.inputs, true),
      l->result_count > 1 ? "[0]" : "", python_sizes(s.sizes));
}

const char *og_layer_docstring(const og_layer *l) {
  const char *shape = og_layer_text(l, "shape"), *note = og_layer_text(l, "note");
  const char *text =
      og_format("%s(%s)\n--\n\n%s", l->e->name, python_params(l), og_layer_text(l, "doc"));
  if (note) text = og_format("%s %s", text, note);
  text = og_format("%s%s", text, docstring_params(l));
  if (shape) text = og_format("%s\n\nShape:\n    %s", text, shape);
  const og_field *f = NULL;
  for (int i = 0; (f = og_entry_next(l->e, "check", f)); i++)
    text = og_format("%s%s\n    %s", text, i ? "" : "\n\nRaises:", og_check_sentence(f, NULL));
  f = NULL;
  for (int i = 0; (f = og_entry_next(l->lazy ? l->lazy->e : l->e, "sample", f)); i++) {
    if (l->lazy && i) break;
    text = og_format("%s%s%s", text, i ? "" : "\n\nExample:", docstring_example(l, f));
  }
  f = og_entry_field(l->e, "example");
  if (f) text = og_format("%s\n\nExample:%s", text, og_example_lines(f));
  return og_format("%s\n", text);
}

// ---- stubs

static void write_children_stub(FILE *to, const og_layer *l) {
  if (*l->children == '*')
    fprintf(to, "    def __init__(self, *modules: Module) -> None: ...\n");
  else
    fprintf(to, "    def __init__(self, modules: Optional[%s] = ...) -> None: ...\n",
            strstr(l->e->name, "Dict") ? "Mapping[str, Module]" : "Iterable[Module]");
}

// "Tensor", "Tuple[Tensor, Tensor]", "Optional[...]".
static const char *port_type(const og_port *port, const char *tensor) {
  const char *type = port->numbers ? og_format("Union[%s, Sequence[int]]", tensor) : tensor;
  for (int i = 1; i < port->tensors; i++) type = og_format("%s, Tensor", type);
  if (port->tensors > 1) type = og_format("Tuple[%s]", type);
  return port->optional ? og_format("Optional[%s] = ...", type) : type;
}
static const char *result_type(const og_layer *l, const char *first) {
  const char *type = "";
  for (int i = 0; i < l->result_count; i++)
    type =
        og_format("%s%s%s", type, i ? ", " : "", port_type(&l->results[i], i ? "Tensor" : first));
  return l->result_count > 1 ? og_format("Tuple[%s]", type) : type;
}
static void write_call_stub(FILE *to, const og_layer *l, const char *name, const char *first) {
  fprintf(to, "    def %s(self", name);
  for (int i = 0; i < l->input_count; i++)
    fprintf(to, ", %s: %s", l->inputs[i].name, port_type(&l->inputs[i], i ? "Tensor" : first));
  fprintf(to, ") -> %s: ...\n", result_type(l, first));
}

// "(src: Tensor, src_mask: Tensor | None = None) -> Tensor"
static const char *method_params(const og_method *m) {
  const char *text = "";
  for (int i = 0; i < m->param_count; i++) {
    const og_param *p = &m->params[i];
    const char *fallback = p->fallback ? og_format(" = %s", p->fallback) : "";
    text = og_format("%s%s%s: %s%s", text, i ? ", " : "", p->name, og_option_type(p), fallback);
  }
  return text;
}
static const char *method_result(const og_layer *l, const og_method *m) {
  const char *all = "";
  if (m != &l->methods[0] || l->result_count < 2) return "Tensor";
  for (int i = 0; i < l->result_count; i++)
    all = og_format("%s%sTensor%s", all, i ? ", " : "", l->results[i].optional ? " | None" : "");
  return og_format("tuple[%s]", all);
}
const char *og_method_signature(const og_layer *l, const og_method *m) {
  return og_format("(%s) -> %s", method_params(m), method_result(l, m));
}
static void write_methods_stub(FILE *to, const og_layer *l) {
  for (int i = 0; i <= l->method_count; i++) {  // the first method is also __call__
    const og_method *m = &l->methods[i ? i - 1 : 0];
    fprintf(to, "    def %s(self, %s) -> %s: ...\n", i ? m->name : "__call__", method_params(m),
            method_result(l, m));
  }
}

// A layer with batch_sizes also accepts a packed sequence and returns one.
static void write_calls_stub(FILE *to, const og_layer *l) {
  bool packs = og_layer_input(l, "batch_sizes") >= 0;
  for (int call = 0; call < 2; call++)
    for (int packed = 0; packed <= packs; packed++) {
      if (packs) fprintf(to, "    @overload\n");
      write_call_stub(to, l, call ? "__call__" : "forward", packed ? "PackedSequence" : "Tensor");
    }
}

void og_write_layer_stub(FILE *to, const og_layer *l) {
  const char *own = og_layer_text(l, "base");
  const char *base = l->lazy ? og_format("LazyModuleMixin, %s", l->lazy->e->name)
                     : own   ? own
                             : "Module";
  fprintf(to, "class %s(%s):\n", l->e->name, base);
  for (int i = 0; i < l->e->param_count; i++)
    if (l->e->params[i].type != OG_TENSOR && !l->e->params[i].passing)
      fprintf(to, "    %s: %s\n", l->e->params[i].name, python_type(&l->e->params[i]));
  for (int i = 0; i < l->let_count; i++)
    if (l->lets[i].fixed)
      fprintf(to, "    %s: %s\n", l->lets[i].name,
              l->lets[i].value->kind == OG_NUMBER ? "int" : "str");
  for (int i = 0; i < l->own_count && !l->each_count; i++)
    fprintf(
        to,
        l->own[i].condition || l->own[i].given ? "    %s: Optional[Tensor]\n" : "    %s: Tensor\n",
        l->own[i].name);
  if (l->children) {
    write_children_stub(to, l);
  } else if (!og_layer_takes_modules(l, true)) {  // else the constructor is hand-written Python
    fprintf(to, "    def __init__(self");
    for (int i = 0; i < l->e->param_count; i++) {
      const og_param *p = &l->e->params[i];
      fprintf(to, ", %s: %s%s", p->name, python_type(p),
              p->fallback || p->optional ? " = ..." : "");
    }
    fprintf(to, ") -> None: ...\n");
  }
  if (l->method_count)
    write_methods_stub(to, l);
  else if (og_layer_forward_name(l))
    write_calls_stub(to, l);
}

// ---- the page

static void write_tensors(FILE *to, const og_layer *l) {
  for (int i = 0; i < l->own_count; i++) {
    const og_own *own = &l->own[i];
    const char *text = NULL;
    for (const og_field *f = NULL;
         !text && (f = og_entry_next(l->e, own->buffer ? "buffer" : "param", f));)
      if (!strncmp(f->text, own->name, strlen(own->name)) &&
          strchr(" ", f->text[strlen(own->name)]))
        text = f->text + strlen(own->name);
    fprintf(to, "- %s `%s`%s%s%s\n", own->buffer ? "buffer" : "parameter", own->name,
            own->given ? ": the argument" : " `", own->given ? "" : og_skip(text),
            own->given ? "" : "`");
  }
}

// Writes inputs and results that shapes do not describe.
static void write_ports(FILE *to, const og_layer *l) {
  const char *inputs = og_layer_text(l, "inputs"), *results = og_layer_text(l, "results");
  const char *each = og_layer_text(l, "each");
  if (each) fprintf(to, "- for each `%s`\n", each);
  for (int i = 0; i < l->e->field_count; i++)
    if (!strcmp(l->e->fields[i].name, "let") || !strcmp(l->e->fields[i].name, "fixed"))
      fprintf(to, "- where `%s`\n", l->e->fields[i].text);
  for (const og_field *f = NULL; (f = og_entry_next(l->e, "child", f));)
    fprintf(to, "- child `%s`\n", f->text);
  for (int i = 0; i < l->method_count; i++)
    fprintf(to, "- method `%s%s`\n", l->methods[i].name, og_method_signature(l, &l->methods[i]));
  if (!results || l->method_count) return;
  fprintf(to, "- inputs: `%s`; results: `%s` (`[2]`: two tensors; `?`: optional)\n",
          inputs ? inputs : "input", results);
}

void og_write_layer_page(FILE *to, const og_layer *l) {
  const char *shape = og_layer_text(l, "shape"), *note = og_layer_text(l, "note");
  const char *forward = og_layer_text(l, "forward"), *math = og_layer_text(l, "math");
  fprintf(to, "## %s\n\n`%s(%s)`\n\n%s%s%s\n\n", l->e->name, l->e->name, python_params(l),
          og_layer_text(l, "doc"), note ? " " : "", note ? note : "");
  if (math) fprintf(to, "```{math}\n%s\n```\n\n", math);
  for (int i = 0; i < l->e->param_count; i++)
    fprintf(to, "- `%s` (%s): %s\n", l->e->params[i].name, type_words(&l->e->params[i]),
            og_argument_text(l->e, l->e->params[i].name));
  write_tensors(to, l);
  if (forward) fprintf(to, "- returns `%s`\n", forward);
  write_ports(to, l);
  if (shape) fprintf(to, "- shapes: %s\n", shape);
  for (const og_field *f = NULL; (f = og_entry_next(l->e, "check", f));)
    fprintf(to, "- raises: %s\n", og_check_sentence(f, NULL));
  if (!l->children) fprintf(to, "- C: `px_%s_new`\n", l->cname);
  fprintf(to, "\n");
}
