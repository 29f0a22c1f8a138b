// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al. 2019), trained from scratch on the bytes of a text. The default model has
// 124 million parameters; bytes use 256 of its words. examples/gpt2.py is the same program in
// Python: same options, weights, batches and losses. Usage: gpt2 TEXT [--autocast] [--steps N]
// [--batch N] [--length N] [--size N] [--heads N]
//        [--layers N] [--words N]
#include <math.h>
#include <phlox/phlox.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
  const char *text;
  bool autocast;  // weights in float32, computation in bfloat16; otherwise all in bfloat16
  int64_t steps, batch, length, size, heads, layers, words;
} options;

typedef struct job {
  options o;
  px_device device;
  unsigned char *text;
  int64_t bytes;
  px_module *net;
  px_list *parameters;
  px_optimizer *optimizer;
} job;

// ---- the network: module kinds of this program; submodules are named as in Python

static const px_module_port one_tensor = {.name = "input", .tensors = 1};

static px_module *child(const px_module *self, const char *name) {
  px_module_entry entry;
  return px_module_entry_find(self, name, &entry) ? entry.module : NULL;
}

static px_status call(px_tensor **out, px_module *self, const char *name, px_tensor *input) {
  return px_module_call(out, child(self, name), input);
}

// Splits a third of qkv into heads: (batch, heads, length, size / heads).
static px_status heads_of(px_tensor **out, const px_tensor *x, int64_t heads) {
  PX_SCOPED(px_tensor) split = NULL;
  const int64_t *sizes = px_tensor_sizes(x);
  PX_TRY(px_view(&split, x, (int64_t[]){sizes[0], sizes[1], heads, -1}, 4));
  return px_transpose(out, split, 1, 2);
}

static px_status attend(px_tensor **out, px_module *self, px_tensor *x) {
  const options *o = px_module_context(self);
  PX_SCOPED(px_tensor) qkv = NULL;
  PX_SCOPED(px_tensor) q = NULL;
  PX_SCOPED(px_tensor) k = NULL;
  PX_SCOPED(px_tensor) v = NULL;
  PX_SCOPED(px_tensor) seen = NULL;
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_SCOPED(px_tensor) joined = NULL;
  PX_SCOPED(px_list) thirds = NULL;
  PX_TRY(call(&qkv, self, "qkv", x));
  PX_TRY(px_split(&thirds, qkv, o->size, 2));
  PX_TRY(heads_of(&q, px_list_get(thirds, 0), o->heads));
  PX_TRY(heads_of(&k, px_list_get(thirds, 1), o->heads));
  PX_TRY(heads_of(&v, px_list_get(thirds, 2), o->heads));
  PX_TRY(px_scaled_dot_product_attention(&seen, q, k, v, NULL, 0, true, NULL, false));
  PX_TRY(px_transpose(&transposed, seen, 1, 2));
  PX_TRY(px_reshape(&joined, transposed, px_tensor_sizes(x), 3));
  return call(out, self, "proj", joined);
}

static px_status widen(px_tensor **out, px_module *self, px_tensor *x) {
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) bent = NULL;
  PX_TRY(call(&wide, self, "wide", x));
  PX_TRY(px_gelu(&bent, wide, "tanh"));
  return call(out, self, "back", bent);
}

static px_status block_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                               int count) {
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) attended = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) second = NULL;
  PX_SCOPED(px_tensor) widened = NULL;
  PX_TRY(call(&first, self, "ln_1", inputs[0]));
  PX_TRY(attend(&attended, self, first));
  PX_TRY(px_add(&x, inputs[0], attended, px_int(1)));
  PX_TRY(call(&second, self, "ln_2", x));
  PX_TRY(widen(&widened, self, second));
  return px_add(out, x, widened, px_int(1));
}
static const px_module_kind block_kind = {
    .name = "Block", .forward = block_forward, .inputs = &one_tensor, .input_count = 1};

// Returns the logits of the words at each position: (batch, length, words).
static px_status gpt2_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                              int count) {
  PX_SCOPED(px_tensor) at = NULL;
  PX_SCOPED(px_tensor) words = NULL;
  PX_SCOPED(px_tensor) positions = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) normed = NULL;
  px_module_entry weight;
  PX_TRY(px_arange(&at, px_int(0), px_int(px_tensor_sizes(inputs[0])[1]), px_int(1), PX_INT64,
                   px_tensor_device(inputs[0]), false, false));
  PX_TRY(call(&words, self, "words", inputs[0]));
  PX_TRY(call(&positions, self, "positions", at));
  PX_TRY(px_add(&x, words, positions, px_int(1)));
  PX_TRY(call(&y, self, "blocks", x));
  PX_TRY(call(&normed, self, "ln", y));
  PX_CHECK(px_module_entry_find(child(self, "words"), "weight", &weight), PX_KEY,
           "the words have no weight");
  return px_linear(out, normed, weight.tensor, NULL);
}
static const px_module_kind gpt2_kind = {
    .name = "GPT2", .forward = gpt2_forward, .inputs = &one_tensor, .input_count = 1};

// ---- construction

// Registers a new submodule and takes ownership of it.
static px_status add_module(px_module *owner, const char *name, px_status made,
                            px_module *part_take) {
  PX_SCOPED(px_module) part = part_take;
  PX_TRY(made);
  return px_module_register_module(owner, name, part);
}

static px_status add_norm(px_module *owner, const char *name, int64_t size) {
  px_module *part = NULL;
  px_status made = px_layer_norm_new(&part, PX_SIZES(size));
  return add_module(owner, name, made, part);
}
static px_status add_linear(px_module *owner, const char *name, int64_t in, int64_t out) {
  px_module *part = NULL;
  px_status made = px_linear_new(&part, in, out);
  return add_module(owner, name, made, part);
}
static px_status add_embedding(px_module *owner, const char *name, int64_t count, int64_t size) {
  px_module *part = NULL;
  px_status made = px_embedding_new(&part, count, size);
  return add_module(owner, name, made, part);
}

static px_status make_block(px_module **out, options *o) {
  PX_SCOPED(px_module) self = NULL;
  PX_TRY(px_module_new(&self, &block_kind, NULL, o));
  PX_TRY(add_norm(self, "ln_1", o->size));
  PX_TRY(add_norm(self, "ln_2", o->size));
  PX_TRY(add_linear(self, "qkv", o->size, 3 * o->size));
  PX_TRY(add_linear(self, "proj", o->size, o->size));
  PX_TRY(add_linear(self, "wide", o->size, 4 * o->size));
  PX_TRY(add_linear(self, "back", 4 * o->size, o->size));
  *out = PX_MOVE(self);
  return PX_OK;
}

static px_status add_blocks(px_module *owner, options *o) {
  px_module **blocks, *all = NULL;
  px_status status = PX_OK;
  int made = 0;
  PX_TRY(px_alloc((void **)&blocks, (size_t)o->layers * sizeof *blocks));
  while (made < o->layers && status == PX_OK) {
    status = make_block(&blocks[made], o);
    made += status == PX_OK;
  }
  if (status == PX_OK) status = px_sequential_new(&all, blocks, made);
  while (made) px_release(blocks[--made]);
  px_free(blocks);
  return add_module(owner, "blocks", status, all);
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), suffix_length = strlen(end);
  return length >= suffix_length && !strcmp(text + length - suffix_length, end);
}

// Initializes weights. Output projections of residual branches are scaled down by the number of
// layers.
static px_status start(const char *name, const px_module_entry *entry, px_module *owner,
                       void *context) {
  const options *o = context;
  bool adds = ends_with(name, "proj.weight") || ends_with(name, "back.weight");
  double layers = 2 * (double)o->layers;
  if (px_tensor_ndim(entry->tensor) > 1)
    return px_init_normal(entry->tensor, 0, 0.02 / (adds ? sqrt(layers) : 1), NULL);
  return ends_with(name, "bias") ? px_init_constant(entry->tensor, 0) : PX_OK;
}

static px_status make_net(px_module **out, options *o) {
  PX_SCOPED(px_module) self = NULL;
  PX_TRY(px_module_new(&self, &gpt2_kind, NULL, o));
  PX_TRY(add_embedding(self, "words", o->words, o->size));
  PX_TRY(add_embedding(self, "positions", o->length, o->size));
  PX_TRY(add_blocks(self, o));
  PX_TRY(add_norm(self, "ln", o->size));
  PX_TRY(px_module_walk(self, PX_ENTRY_PARAMETER, "", true, false, start, o));
  *out = PX_MOVE(self);
  return PX_OK;
}

// ---- training

static px_status read_text(job *j) {
  FILE *file = fopen(j->o.text, "rb");
  PX_CHECK(file, PX_NOT_FOUND, "cannot open '%s'", j->o.text);
  bool fine = fseek(file, 0, SEEK_END) == 0 && (j->bytes = ftell(file)) >= 0;
  px_status status = fine ? px_alloc((void **)&j->text, (size_t)j->bytes + 1) : PX_OK;
  rewind(file);
  fine = fine && status == PX_OK && fread(j->text, 1, (size_t)j->bytes, file) == (size_t)j->bytes;
  fclose(file);
  PX_TRY(status);
  PX_CHECK(fine, PX_IO, "cannot read '%s'", j->o.text);
  PX_CHECK(j->bytes > j->o.length, PX_VALUE, "'%s' has %lld bytes, but a line takes %lld",
           j->o.text, (long long)j->bytes, (long long)j->o.length + 1);
  return PX_OK;
}

// Draws lines at random offsets of the text: (batch, length + 1).
static px_status draw_lines(px_tensor **out, const job *j) {
  PX_SCOPED(px_tensor) starts = NULL;
  PX_SCOPED(px_tensor) host = NULL;
  const options *o = &j->o;
  void *begin, *data;
  PX_TRY(px_randint(&starts, 0, j->bytes - o->length, &o->batch, 1, NULL, PX_INT64, px_cpu(), false,
                    false));
  PX_TRY(px_tensor_empty(&host, 2, (int64_t[]){o->batch, o->length + 1}, PX_INT64, px_cpu()));
  PX_TRY(px_tensor_host_data(&begin, starts));
  PX_TRY(px_tensor_host_data(&data, host));
  int64_t *word = data;
  for (int64_t i = 0; i < o->batch; i++)
    for (int64_t k = 0; k <= o->length; k++) *word++ = j->text[((int64_t *)begin)[i] + k];
  return px_to(out, host, PX_DTYPE_NONE, j->device, false, false);
}

static px_status compute_loss(px_tensor **out, const job *j, const px_tensor *lines) {
  PX_SCOPED(px_tensor) words = NULL;
  PX_SCOPED(px_tensor) next = NULL;
  PX_SCOPED(px_tensor) wanted = NULL;
  PX_SCOPED(px_tensor) scores = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_TRY(px_narrow(&words, lines, 1, 0, j->o.length));
  PX_TRY(px_narrow(&next, lines, 1, 1, j->o.length));
  PX_TRY(px_reshape(&wanted, next, (int64_t[]){-1}, 1));
  PX_TRY(px_module_call(&scores, j->net, words));
  PX_TRY(px_view(&rows, scores, (int64_t[]){-1, j->o.words}, 2));
  return px_cross_entropy(out, rows, wanted, NULL, -100, "mean", 0);
}

static px_status forward(px_tensor **loss, const job *j) {
  PX_SCOPED(px_tensor) lines = NULL;
  px_autocast before;
  PX_TRY(draw_lines(&lines, j));
  PX_TRY(px_autocast_enter(&before, j->device.type, PX_BFLOAT16, j->o.autocast));
  px_status status = compute_loss(loss, j, lines);
  px_autocast_exit(before);
  return status;
}

static px_status train_step(const job *j, int64_t step) {
  PX_SCOPED(px_tensor) loss = NULL;
  px_scalar value;
  PX_TRY(forward(&loss, j));
  PX_TRY(px_optimizer_zero_grad(j->optimizer, true));
  PX_TRY(px_backward(1, &loss, NULL, false, false));
  PX_TRY(px_clip_grad_norm(NULL, px_list_items(j->parameters), px_list_size(j->parameters), 1, 2,
                           false));
  PX_TRY(px_optimizer_step(j->optimizer));
  if (step % 10 != 0 && step + 1 != j->o.steps) return PX_OK;
  PX_TRY(px_tensor_item(&value, loss));
  printf("step %4lld: loss %.3f\n", (long long)step, px_scalar_float(value));
  fflush(stdout);
  return PX_OK;
}

static px_status run(job *j) {
  px_dtype dtype = j->o.autocast ? PX_FLOAT32 : PX_BFLOAT16;
  j->device = px_device_count(PX_CUDA) ? px_cuda(0) : px_cpu();
  px_manual_seed(1);
  PX_TRY(read_text(j));
  PX_TRY(make_net(&j->net, &j->o));
  PX_TRY(px_module_to(j->net, dtype, j->device, false));
  PX_TRY(px_module_parameters(&j->parameters, j->net));
  PX_TRY(px_adamw_new(&j->optimizer, px_list_items(j->parameters), px_list_size(j->parameters),
                      .lr = 3e-4, .beta2 = 0.95, .weight_decay = 0.1));
  for (int64_t step = 0; step < j->o.steps; step++) PX_TRY(train_step(j, step));
  return PX_OK;
}

// ---- the command line

static bool read_number(options *o, const char *name, const char *text) {
  const struct {
    const char *name;
    int64_t *number;
  } rows[] = {{"--steps", &o->steps}, {"--batch", &o->batch}, {"--length", &o->length},
              {"--size", &o->size},   {"--heads", &o->heads}, {"--layers", &o->layers},
              {"--words", &o->words}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i].name, name)) continue;
    char *end;
    *rows[i].number = text ? strtoll(text, &end, 10) : 0;
    return *rows[i].number > 0 && *rows[i].number < INT32_MAX && !*end;
  }
  return false;
}

static bool read_options(options *o, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--autocast")) {
      o->autocast = true;
    } else if (*argv[i] == '-') {
      if (!read_number(o, argv[i], argv[i + 1])) return false;
      i++;
    } else {
      o->text = argv[i];
    }
  }
  return o->text != NULL;
}

int main(int argc, char **argv) {
  job j = {.o = {.steps = 100,
                 .batch = 16,
                 .length = 1024,
                 .size = 768,
                 .heads = 12,
                 .layers = 12,
                 .words = 50304}};
  if (!read_options(&j.o, argc, argv)) {
    fprintf(stderr,
            "usage: %s TEXT [--autocast] [--steps N] [--batch N] [--length N] [--size N] "
            "[--heads N] [--layers N] [--words N]\n",
            argv[0]);
    return 2;
  }
  px_status status = run(&j);
  if (status != PX_OK) px_error_print();
  px_release(j.optimizer);
  px_release(j.parameters);
  px_release(j.net);
  px_free(j.text);
  return status != PX_OK;
}
