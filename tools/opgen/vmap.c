// SPDX-License-Identifier: Apache-2.0
// Reads the field `vmap`: the vmap rule of the op (src/call/vmap.c).
#include "opgen/opgen.h"

typedef struct word_row {
  const char *word, *rule;
  bool names;  // parameters may follow
} word_row;
static const word_row words[] = {{"decompose", "DECOMPOSE", false}, {"align", "ALIGN", false},
                                 {"shift", "SHIFT", true},          {"grow", "GROW", true},
                                 {"merge", "MERGE", true},          {"loop", "LOOP", false},
                                 {"indices", "INDICES", false}};

static const word_row *known(const char *text) {
  const char *end = og_word_end(text);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strlen(words[i].word) == (size_t)(end - text) &&
        !strncmp(text, words[i].word, (size_t)(end - text)))
      return &words[i];
  return NULL;
}

static bool begins(const char *text, const char *word) {
  return !strncmp(text, word, strlen(word)) && text[strlen(word)] == ' ';
}

static unsigned named_params(const og_op *op, const char *names) {
  unsigned mask = 0;
  char *list = strdup(names);
  for (char *one = strtok(list, " "); one; one = strtok(NULL, " ")) {
    int i = og_param_find(op, one);
    if (i < 0 || (op->params[i].type != OG_TENSOR && op->params[i].type != OG_TENSORS))
      og_die(op->vmap.location, "%s has no tensor '%s'", op->name, one);
    mask |= 1u << i;
  }
  free(list);
  return mask;
}

const char *og_vmap_formula(const og_op *op) {
  const char *text = op->vmap.text, *colon = text ? strstr(text, " : ") : NULL;
  if (!text || begins(text, "refuse") || !strchr(text, '(')) return NULL;
  return colon ? og_skip(colon + 3) : text;
}
bool og_is_vmap_rule(const og_node *n) {
  static const char *const rules[] = {"shift", "align", "loop", "loop_quietly"};
  if (n->kind == OG_CHOICE) return og_is_vmap_rule(n->items[0]);
  for (size_t i = 0; n->kind == OG_NAME && i < sizeof rules / sizeof *rules; i++)
    if (!strcmp(n->text, rules[i])) return true;
  return false;
}

static bool is_function(const char *text) {
  return !strchr(text, '(') && !known(text) && !begins(text, "as") && !begins(text, "refuse");
}
const char *og_vmap_function(const og_op *op) {
  const char *text = op->vmap.text;
  if (!text || !is_function(text)) return NULL;
  return og_copy(text, (size_t)(og_word_end(text) - text));
}

void og_write_vmap(FILE *to, const og_op *op) {
  const char *text = op->vmap.text;
  const word_row *row = text ? known(text) : NULL;
  if (!text) return;
  if (row) {
    const char *names = og_skip(og_word_end(text));
    if (*names && !row->names)
      og_die(op->vmap.location, "unexpected '%s' after `vmap %s`", names, row->word);
    fprintf(to, ".vmap_rule = PX__VMAP_%s, .vmap_mask = 0x%x, ", row->rule,
            named_params(op, names));
    if (!strcmp(row->rule, "INDICES")) fprintf(to, ".vmap_run = px__vmap_indices, ");
  } else if (begins(text, "as")) {
    if (!og_is(op, "reduce") || !og_find(text + 3))
      og_die(op->vmap.location, "`vmap as` requires a reduction and the name of another one");
    fprintf(to, ".vmap_as = \"%s\", ", text + 3);
  } else if (begins(text, "refuse")) {
    fprintf(to, ".vmap_rule = PX__VMAP_REFUSE, .vmap_text = %s, ", og_skip(text + 6));
  } else if (og_vmap_formula(op)) {
    const char *names =
        op->vmap.text == og_vmap_formula(op) ? "" : og_trimmed(text, strstr(text, " : "));
    fprintf(to, ".vmap_rule = PX__VMAP_RUN, .vmap_run = vmap_%s, .vmap_mask = 0x%x, ", op->name,
            named_params(op, names));
  } else {
    const char *name = og_vmap_function(op);
    og_use("px_status px__vmap_%s(px__vmap_call *b);", name);
    fprintf(to, ".vmap_rule = PX__VMAP_RUN, .vmap_run = px__vmap_%s, .vmap_mask = 0x%x, ", name,
            named_params(op, og_skip(og_word_end(text))));
  }
}
