// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN without materialising the scores. cuDNN recognises the graphs built here
// (FlashAttention, Dao et al. 2022) and runs each as one fused kernel.
#include "cuda/host/cudnn.h"

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
  sizes[2] = of_keys ? p->places : p->length, sizes[3] = of_values ? p->value_width : p->width;
  if (is_one_of(which, IS(LOGSUMEXP) | IS(SUMS))) sizes[3] = 1;
  if (which == PX_CUDNN_BIAS) memcpy(sizes, p->bias, sizeof p->bias);
}
static tensor *given(graph *g, problem *p, int which, bool turned) {
  enum { ALIGNMENT = 16 };
  int64_t sizes[4], strides[4];
  bool in_float = is_one_of(which, IS(LOGSUMEXP) | IS(SUMS) | IS(QUERY_SUMS));
  px__cudnn_attention_sizes(sizes, p, which);
  px__cudnn_row_major(strides, sizes);
  if (!in_float) memcpy(strides, p->strides[which], sizeof strides);
  if (turned) {
    int64_t rows = sizes[2], stride = strides[2];
    sizes[2] = sizes[3], strides[2] = strides[3];
    sizes[3] = rows, strides[3] = stride;
  }
  return px__cudnn_given(g, which, in_float ? PX_CUDNN_FLOAT : px__cudnn_type(p->dtype), sizes,
                         strides, ALIGNMENT);
}
// Virtual tensors: scores, and one number a row.
static tensor *new_scores(graph *g, problem *p) {
  return px__cudnn_between(g, PX_CUDNN_FLOAT,
                           (int64_t[]){p->batch, p->heads, p->length, p->places});
}
static tensor *new_rows(graph *g, problem *p) {
  return px__cudnn_between(g, PX_CUDNN_FLOAT, (int64_t[]){p->batch, p->heads, p->length, 1});
}

// ---- graphs

static tensor *scores(graph *g, problem *p, tensor *query, tensor *turned_key, tensor *scale) {
  tensor *products = new_scores(g, p);
  px__cudnn_matmul(g, products, query, turned_key);
  tensor *scaled = px__cudnn_pointwise(g, PX_CUDNN_MUL, products, scale);
  if (!p->bias[0]) return scaled;
  return px__cudnn_pointwise(g, PX_CUDNN_ADD, scaled, given(g, p, PX_CUDNN_BIAS, false));
}
// Causal mask: a query sees keys up to its own index.
static tensor *hide(graph *g, problem *p, tensor *of) {
  if (!p->causal) return of;
  tensor *row = px__cudnn_index(g, of, 2), *column = px__cudnn_index(g, of, 3);
  tensor *seen = px__cudnn_compare(g, PX_CUDNN_GE, row, column);
  return px__cudnn_select(g, seen, of, px__cudnn_number(g, PX_CUDNN_HIDDEN));
}
static void forward(graph *g, problem *p) {
  tensor *query = given(g, p, PX_CUDNN_QUERY, false);
  tensor *key = given(g, p, PX_CUDNN_KEY, true), *value = given(g, p, PX_CUDNN_VALUE, false);
  tensor *output = given(g, p, PX_CUDNN_OUTPUT, false);
  tensor *s = hide(g, p, scores(g, p, query, key, px__cudnn_number(g, PX_CUDNN_SCALE)));
  tensor *greatest = new_rows(g, p), *sum = new_rows(g, p);
  px__cudnn_reduce(g, greatest, PX_CUDNN_GREATEST, s);
  tensor *below = px__cudnn_pointwise(g, PX_CUDNN_SUB, s, greatest);
  tensor *powers = px__cudnn_pointwise(g, PX_CUDNN_EXP, below, NULL);
  px__cudnn_reduce(g, sum, PX_CUDNN_SUM, powers);
  tensor *log = px__cudnn_pointwise(g, PX_CUDNN_LOG, sum, NULL);
  px__cudnn_pointwise_to(g, given(g, p, PX_CUDNN_LOGSUMEXP, false), PX_CUDNN_ADD, greatest, log);
  tensor *weights = px__cudnn_between(g, query->type, s->sizes);
  px__cudnn_pointwise_to(g, weights, PX_CUDNN_DIV, powers, sum);
  px__cudnn_matmul(g, output, weights, value);
}

// a transposed times b: the gradient of key or value, summed over the query heads sharing it.
static void gradient_of_keys(graph *g, problem *p, int which, tensor *a, tensor *b) {
  tensor *out = given(g, p, which, false), *turned = px__cudnn_turned(g, b->type, a);
  tensor *of_heads = out;
  if (p->heads != p->groups)
    of_heads = px__cudnn_between(g, b->type,
                                 (int64_t[]){p->batch, p->heads, out->sizes[2], out->sizes[3]});
  px__cudnn_matmul(g, of_heads, turned, b);
  if (of_heads != out) px__cudnn_reduce(g, out, PX_CUDNN_SUM, of_heads);
}
// The term common to all gradients of a row: sum(grad * output).
static tensor *sums_of_rows(graph *g, problem *p, tensor *grad) {
  tensor *output = given(g, p, PX_CUDNN_OUTPUT, false), *sum = new_rows(g, p);
  tensor *products = px__cudnn_pointwise(g, PX_CUDNN_MUL, grad, output);
  px__cudnn_reduce(g, sum, PX_CUDNN_SUM, products);
  tensor *kept = given(g, p, PX_CUDNN_SUMS, false);
  px__cudnn_pointwise_to(g, kept, PX_CUDNN_MUL, sum, px__cudnn_number(g, PX_CUDNN_ONE));
  return kept;
}
// Partial sums are added in any order in float. In deterministic mode cuDNN accumulates in its own
// buffer.
static void gradient_of_query(graph *g, problem *p, tensor *of_scores, tensor *turned_key) {
  tensor *key = px__cudnn_turned(g, turned_key->type, turned_key);
  tensor *out = given(g, p, PX_CUDNN_GRAD_QUERY, false);
  tensor *sums = p->deterministic ? out : given(g, p, PX_CUDNN_QUERY_SUMS, false);
  px__cudnn_matmul(g, sums, of_scores, key);
  if (sums != out) px__cudnn_pointwise_to(g, out, PX_CUDNN_IDENTITY, sums, NULL);
}
static void backward(graph *g, problem *p) {
  tensor *query = given(g, p, PX_CUDNN_QUERY, false), *key = given(g, p, PX_CUDNN_KEY, true);
  tensor *value = given(g, p, PX_CUDNN_VALUE, true), *grad = given(g, p, PX_CUDNN_GRAD, false);
  tensor *scale = px__cudnn_number(g, PX_CUDNN_SCALE), *sums = sums_of_rows(g, p, grad);
  tensor *s = scores(g, p, query, key, scale);
  tensor *below = px__cudnn_pointwise(g, PX_CUDNN_SUB, s, given(g, p, PX_CUDNN_LOGSUMEXP, false));
  tensor *weights = px__cudnn_pointwise(g, PX_CUDNN_EXP, hide(g, p, below), NULL);
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
  *g = (graph){.handle = handle};
  if (p->backward)
    backward(g, p);
  else
    forward(g, p);
  px__cudnn_graph_close(g);
}
// Returns the problem's entry. For a new one, creates its plan or checks for engines. If there is
// none, `why` receives cuDNN's error text.
static px__cudnn_entry *entry_of(px__cudnn_table *table, int device, problem *p, void *handle,
                                 char *why, size_t room) {
  px__cudnn_entry *e = px__cudnn_find(table, device, p);
  if (!e || e->known) return e;
  graph g;
  describe(&g, p, handle);
  e->served = table == &engines ? px__cudnn_has_engine(&g)
                                : px__cudnn_plans(&e->plan, 1, &g, 0, INT64_MAX) == 1;
  e->known = true;
  if (!e->served) px__cudnn.cudnnGetLastErrorString(why, room);
  px__cudnn_graph_release(&g);
  return e;
}

bool px__cudnn_attends(int device, problem *p, char *why, size_t room) {
  void *handle;
  const px__cudnn_entry *e = NULL;
  *why = 0;
  if (!px__cudnn_ready() || px__cuda_use(device) != PX_OK) return false;
  px__cudnn_lock(device);
  if (px__cudnn_any_handle(&handle, device) == PX_OK)
    e = entry_of(p->backward ? &engines : &plans, device, p, handle, why, room);
  bool served = e && e->served;
  px__cudnn_unlock(device);
  return served;
}

static px_status run(const px_launch *l, problem *p, void *const data[PX_CUDNN_GIVEN]) {
  int64_t ids[PX_CUDNN_GIVEN];
  void *handle, *room = NULL, *given_data[PX_CUDNN_GIVEN];
  char why[512] = "";
  int count = 0;
  PX_CUDA_PASS(px__cudnn_handle(&handle, l));
  const px__cudnn_entry *e = entry_of(&plans, l->device, p, handle, why, sizeof why);
  if (!e || !e->served)
    PX_CUDA_FAIL(PX_UNIMPLEMENTED, "%s on cuda:%d: cuDNN does not take it%s%s", l->op, l->device,
                 *why ? ": " : "", why);
  if (e->plan.workspace) PX_CUDA_PASS(px__cuda_scratch(l, (size_t)e->plan.workspace, &room));
  for (int i = 0; i < PX_CUDNN_GIVEN; i++)
    if (data[i]) ids[count] = i, given_data[count++] = data[i];
  int status = px__cudnn_plan_run(&e->plan, handle, count, ids, given_data, room);
  return status ? px__cudnn_error(status, "cudnnBackendExecute") : PX_OK;
}
px_status px__cudnn_attend(const px_launch *l, problem *p, void *const data[PX_CUDNN_GIVEN]) {
  if (!px__cudnn_ready())
    PX_CUDA_FAIL(PX_UNIMPLEMENTED, "%s on cuda:%d: there is no cuDNN", l->op, l->device);
  px__cudnn_lock(l->device);
  px_status status = run(l, p, data);
  px__cudnn_unlock(l->device);
  return status;
}
