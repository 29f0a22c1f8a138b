// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN without materialising the scores. cuDNN recognises the graphs built here
// (FlashAttention, Dao et al. 2022) and runs each as one fused kernel.
#include <stdlib.h>

#include "cuda/host/library/cudnn.h"

#include <string.h>

typedef px__cudnn_graph graph;
typedef const px__cudnn_tensor tensor;
typedef const px__cudnn_attention problem;

// ---- tensors

static bool is_one_of(int which, uint32_t set) { return set >> which & 1; }
#define IS(name) (1u << PX_CUDNN_##name)

void px__cudnn_attention_sizes(int64_t sizes[4], problem *p, int which) {
  bool of_keys = is_one_of(which, IS(KEY) | IS(VALUE) | IS(GRAD_KEY) | IS(GRAD_VALUE));
  bool of_values = is_one_of(which, IS(VALUE) | IS(OUTPUT) | IS(GRAD) | IS(GRAD_VALUE));
  sizes[0] = p->batch, sizes[1] = of_keys ? p->groups : p->heads;
  sizes[2] = of_keys ? p->key_length : p->length, sizes[3] = of_values ? p->value_width : p->width;
  if (is_one_of(which, IS(LOGSUMEXP) | IS(SUMS))) sizes[3] = 1;
  if (which == PX_CUDNN_BIAS) memcpy(sizes, p->bias, sizeof p->bias);
}
static tensor *external(graph *g, problem *p, int which, bool transposed) {
  enum { ALIGNMENT = 16 };
  int64_t sizes[4], strides[4];
  bool in_float = is_one_of(which, IS(LOGSUMEXP) | IS(SUMS) | IS(QUERY_SUMS));
  px__cudnn_attention_sizes(sizes, p, which);
  px__cudnn_row_major(strides, sizes);
  if (!in_float) memcpy(strides, p->strides[which], sizeof strides);
  if (transposed) {
    int64_t rows = sizes[2], stride = strides[2];
    sizes[2] = sizes[3], strides[2] = strides[3];
    sizes[3] = rows, strides[3] = stride;
  }
  return px__cudnn_external(g, which, in_float ? PX_CUDNN_FLOAT : px__cudnn_type(p->dtype), sizes,
                            strides, ALIGNMENT);
}
// Virtual tensors: scores, and one number per row.
static tensor *new_scores(graph *g, problem *p) {
  return px__cudnn_virtual(g, PX_CUDNN_FLOAT,
                           (int64_t[]){p->batch, p->heads, p->length, p->key_length});
}
static tensor *new_rows(graph *g, problem *p) {
  return px__cudnn_virtual(g, PX_CUDNN_FLOAT, (int64_t[]){p->batch, p->heads, p->length, 1});
}

// ---- graphs

static tensor *scores(graph *g, problem *p, tensor *query, tensor *transposed_key, tensor *scale) {
  tensor *products = new_scores(g, p);
  px__cudnn_matmul(g, products, query, transposed_key);
  tensor *scaled = px__cudnn_pointwise(g, PX_CUDNN_MUL, products, scale);
  if (!p->bias[0]) return scaled;
  return px__cudnn_pointwise(g, PX_CUDNN_ADD, scaled, external(g, p, PX_CUDNN_BIAS, false));
}
// Causal mask: a query sees keys up to its own index.
static tensor *mask_causal(graph *g, problem *p, tensor *of) {
  if (!p->causal) return of;
  tensor *row = px__cudnn_index(g, of, 2), *column = px__cudnn_index(g, of, 3);
  tensor *seen = px__cudnn_compare(g, PX_CUDNN_GE, row, column);
  return px__cudnn_select(g, seen, of, px__cudnn_scalar(g, PX_CUDNN_MASKED));
}
static void forward(graph *g, problem *p) {
  tensor *query = external(g, p, PX_CUDNN_QUERY, false);
  tensor *key = external(g, p, PX_CUDNN_KEY, true), *value = external(g, p, PX_CUDNN_VALUE, false);
  tensor *output = external(g, p, PX_CUDNN_OUTPUT, false);
  tensor *s = mask_causal(g, p, scores(g, p, query, key, px__cudnn_scalar(g, PX_CUDNN_SCALE)));
  tensor *maximum = new_rows(g, p), *sum = new_rows(g, p);
  px__cudnn_reduce(g, maximum, PX_CUDNN_MAX, s);
  tensor *below = px__cudnn_pointwise(g, PX_CUDNN_SUB, s, maximum);
  tensor *powers = px__cudnn_pointwise(g, PX_CUDNN_EXP, below, NULL);
  px__cudnn_reduce(g, sum, PX_CUDNN_SUM, powers);
  tensor *log = px__cudnn_pointwise(g, PX_CUDNN_LOG, sum, NULL);
  px__cudnn_pointwise_to(g, external(g, p, PX_CUDNN_LOGSUMEXP, false), PX_CUDNN_ADD, maximum, log);
  tensor *weights = px__cudnn_virtual(g, query->type, s->sizes);
  px__cudnn_pointwise_to(g, weights, PX_CUDNN_DIV, powers, sum);
  px__cudnn_matmul(g, output, weights, value);
}

// a transposed times b: the gradient of key or value, summed over the query heads sharing it.
static void gradient_of_keys(graph *g, problem *p, int which, tensor *a, tensor *b) {
  tensor *out = external(g, p, which, false), *transposed = px__cudnn_transpose(g, b->type, a);
  tensor *of_heads = out;
  if (p->heads != p->groups)
    of_heads = px__cudnn_virtual(g, b->type,
                                 (int64_t[]){p->batch, p->heads, out->sizes[2], out->sizes[3]});
  px__cudnn_matmul(g, of_heads, transposed, b);
  if (of_heads != out) px__cudnn_reduce(g, out, PX_CUDNN_SUM, of_heads);
}
// The term common to all gradients of a row: sum(grad * output).
static tensor *sums_of_rows(graph *g, problem *p, tensor *grad) {
  tensor *output = external(g, p, PX_CUDNN_OUTPUT, false), *sum = new_rows(g, p);
  tensor *products = px__cudnn_pointwise(g, PX_CUDNN_MUL, grad, output);
  px__cudnn_reduce(g, sum, PX_CUDNN_SUM, products);
  tensor *kept = external(g, p, PX_CUDNN_SUMS, false);
  px__cudnn_pointwise_to(g, kept, PX_CUDNN_MUL, sum, px__cudnn_scalar(g, PX_CUDNN_ONE));
  return kept;
}
// Partial sums are added in any order in float. In deterministic mode cuDNN accumulates in its own
// buffer.
static void gradient_of_query(graph *g, problem *p, tensor *of_scores, tensor *transposed_key) {
  tensor *key = px__cudnn_transpose(g, transposed_key->type, transposed_key);
  tensor *out = external(g, p, PX_CUDNN_GRAD_QUERY, false);
  tensor *sums = p->deterministic ? out : external(g, p, PX_CUDNN_QUERY_SUMS, false);
  px__cudnn_matmul(g, sums, of_scores, key);
  if (sums != out) px__cudnn_pointwise_to(g, out, PX_CUDNN_IDENTITY, sums, NULL);
}
static void backward(graph *g, problem *p) {
  tensor *query = external(g, p, PX_CUDNN_QUERY, false), *key = external(g, p, PX_CUDNN_KEY, true);
  tensor *value = external(g, p, PX_CUDNN_VALUE, true),
         *grad = external(g, p, PX_CUDNN_GRAD, false);
  tensor *scale = px__cudnn_scalar(g, PX_CUDNN_SCALE), *sums = sums_of_rows(g, p, grad);
  tensor *s = scores(g, p, query, key, scale);
  tensor *below =
      px__cudnn_pointwise(g, PX_CUDNN_SUB, s, external(g, p, PX_CUDNN_LOGSUMEXP, false));
  tensor *weights = px__cudnn_pointwise(g, PX_CUDNN_EXP, mask_causal(g, p, below), NULL);
  gradient_of_keys(g, p, PX_CUDNN_GRAD_VALUE, weights, grad);
  tensor *of_weights = new_scores(g, p);
  px__cudnn_matmul(g, of_weights, grad, value);
  tensor *centred = px__cudnn_pointwise(g, PX_CUDNN_SUB, of_weights, sums);
  tensor *weighted = px__cudnn_pointwise(g, PX_CUDNN_MUL, centred, weights);
  tensor *of_scores = px__cudnn_pointwise(g, PX_CUDNN_MUL, weighted, scale);
  gradient_of_keys(g, p, PX_CUDNN_GRAD_KEY, of_scores, query);
  gradient_of_query(g, p, of_scores, key);
}

// ---- plans

static px__cudnn_table plans = {.key_bytes = sizeof(px__cudnn_attention)};
static px__cudnn_table engines = {.key_bytes = sizeof(px__cudnn_attention)};
_Static_assert(sizeof(px__cudnn_attention) == 8 * (7 + PX_CUDNN_STRIDED * 4 + 4) + 8,
               "problems have no holes");

static void describe(graph *g, problem *p, void *handle) {
  memset(g, 0, sizeof *g);
  g->handle = handle;
  if (p->backward)
    backward(g, p);
  else
    forward(g, p);
  px__cudnn_graph_close(g);
}
// Returns the problem's entry. For a new one, creates its plan or checks for engines. If there is
// none, `why` receives cuDNN's error text.
static px__cudnn_entry *entry_of(px__cudnn_table *table, int device, problem *p, void *handle,
                                 char *why, size_t capacity) {
  px__cudnn_entry *e = px__cudnn_find(table, device, p);
  if (!e || e->known) return e;
  graph *g = malloc(sizeof *g);  // too large for small stacks
  if (!g) return NULL;
  describe(g, p, handle);
  e->supported = table == &engines ? px__cudnn_has_engine(g)
                                   : px__cudnn_plans(&e->plan, 1, g, 0, INT64_MAX) == 1;
  e->known = true;
  if (!e->supported) px__cudnn.cudnnGetLastErrorString(why, capacity);
  px__cudnn_graph_release(g);
  free(g);
  return e;
}

bool px__cudnn_attention_supported(int device, problem *p, char *why, size_t capacity) {
  void *handle;
  const px__cudnn_entry *e = NULL;
  *why = 0;
  if (!px__cudnn_ready() || px__cuda_use(device) != PX_OK) return false;
  px__cudnn_lock(device);
  if (px__cudnn_any_handle(&handle, device) == PX_OK)
    e = entry_of(p->backward ? &engines : &plans, device, p, handle, why, capacity);
  bool supported = e && e->supported;
  px__cudnn_unlock(device);
  return supported;
}

static px_status run(const px_launch *l, problem *p, void *const data[PX_CUDNN_ATTENTION_TENSORS]) {
  int64_t ids[PX_CUDNN_ATTENTION_TENSORS];
  void *handle, *workspace = NULL, *tensor_data[PX_CUDNN_ATTENTION_TENSORS];
  char why[512] = "";
  int count = 0;
  PX_CUDA_PASS(px__cudnn_handle(&handle, l));
  const px__cudnn_entry *e = entry_of(&plans, l->device, p, handle, why, sizeof why);
  if (!e || !e->supported)
    PX_CUDA_FAIL(PX_UNIMPLEMENTED, "%s on cuda:%d: unsupported by cuDNN%s%s", l->op, l->device,
                 *why ? ": " : "", why);
  if (e->plan.workspace) PX_CUDA_PASS(px__cuda_scratch(l, (size_t)e->plan.workspace, &workspace));
  for (int i = 0; i < PX_CUDNN_ATTENTION_TENSORS; i++)
    if (data[i]) ids[count] = i, tensor_data[count++] = data[i];
  int status = px__cudnn_plan_run(&e->plan, handle, count, ids, tensor_data, workspace);
  return status ? px__cudnn_error(status, "cudnnBackendExecute") : PX_OK;
}
px_status px__cudnn_attention_run(const px_launch *l, problem *p,
                                  void *const data[PX_CUDNN_ATTENTION_TENSORS]) {
  if (!px__cudnn_ready())
    PX_CUDA_FAIL(PX_UNIMPLEMENTED, "%s on cuda:%d: cuDNN not found", l->op, l->device);
  px__cudnn_lock(l->device);
  px_status status = run(l, p, data);
  px__cudnn_unlock(l->device);
  return status;
}
