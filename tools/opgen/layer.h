// SPDX-License-Identifier: Apache-2.0
// A parsed entry of layers/*.layer.
#pragma once
#include "opgen/opgen.h"

enum { OG_MAX_INPUTS = 8, OG_MAX_OWN = 8, OG_MAX_LOOPS = 2, OG_MAX_METHODS = 4 };

// An input or a result: one tensor, or several (a tuple in Python).
typedef struct og_port {
  const char *name;
  int tensors;
  bool optional;
  bool numbers;  // Python accepts a tuple or list of numbers
} og_port;

// `method NAME(PARAMETERS) = FN`.
typedef struct og_method {
  const char *name, *run;
  og_param params[OG_MAX_PARAMS];
  int param_count;
  og_location location;
} og_method;

// A name and its value: `let NAME = VALUE`, `fixed NAME = VALUE` or `each NAME < COUNT`.
typedef struct og_named {
  const char *name;
  og_node *value;
  bool fixed;
} og_named;

// A parameter or buffer, in the order of the entry.
typedef struct og_own {
  const char *name, *dtype;  // dtype NULL: the dtype of the layer
  bool buffer;
  bool given;      // the constructor's argument of this name
  bool each;       // one per combination of the numbers of `each`, which are part of its name
  const char *id;  // its C name
  og_node *sizes, *start, *condition;
  og_location location;
} og_own;

typedef struct og_layer {
  const og_entry *e;
  const char *cname;  // "conv2d"
  og_port inputs[OG_MAX_INPUTS], results[OG_MAX_INPUTS];
  int input_count, result_count;
  og_named each[OG_MAX_LOOPS], lets[OG_MAX_LETS];
  int each_count, let_count;
  og_own own[OG_MAX_OWN];
  int own_count;
  og_method methods[OG_MAX_METHODS];  // the first is forward
  int method_count;
  og_node *forward;
  const char *run, *run_arguments;  // the arguments of `run FN(...)`
  og_node *pair, *pair_if;          // `forward_pair FORMULA if CONDITION`: two results
  const char *children;             // containers: the arguments of the Python constructor
  const struct og_layer *lazy;      // the layer created by the first call, or NULL
} og_layer;

const char *og_layer_text(const og_layer *l, const char *field);  // NULL: not given
int og_layer_own(const og_layer *l, const char *name);            // -1: none
int og_layer_input(const og_layer *l, const char *name);
int og_layer_param(const og_layer *l, const char *name);
int og_port_tensors(const og_port *ports, int count);  // sum over all ports
og_value og_layer_param_value(const og_param *p);
bool og_layer_takes_modules(const og_layer *l,
                            bool optional_too);  // true if the constructor takes modules
const char *og_layer_absent(const og_param *p);  // the C value of an absent argument

// ---- layer_init.c, layer_forward.c: C functions init_NAME and forward_NAME
void og_write_layer_init(FILE *to, const og_layer *l);
void og_write_layer_forward(FILE *to, const og_layer *l);
bool og_layer_has_init(const og_layer *l);
const char *og_layer_forward_name(const og_layer *l);  // NULL: not callable
// Declares a local for an argument if the nodes mention it.
void og_write_layer_argument(FILE *to, const og_layer *l, int param, const og_node *const *nodes,
                             int count);

// ---- layer_args.c: views of the arguments of functions named by entries
void og_write_layer_views(FILE *to, og_layer *const *layers, int count);
void og_write_layer_calls(FILE *to, const og_layer *l);

// ---- lazy.c
og_layer *og_lazy_layer(const og_layer *of);  // NULL if there is none
void og_write_lazy_init(FILE *to, const og_layer *l);
const char *og_lazy_example(const og_layer *l, const char *arguments, const char *inputs,
                            const char *sizes);

// ---- layer_api.c: phlox/layers.h and its functions
void og_write_layer_header(FILE *to, const og_layer *l);
void og_write_layer_maker(FILE *to, const og_layer *l);

const char *og_layer_docstring(const og_layer *l);
const char *og_method_signature(const og_layer *l, const og_method *m);
void og_write_layer_stub(FILE *to, const og_layer *l);
void og_write_layer_page(FILE *to, const og_layer *l);
void og_write_layer_samples(FILE *to, const og_layer *l);
