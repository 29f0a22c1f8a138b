// SPDX-License-Identifier: Apache-2.0
// Adaptive softmax (Grave et al. 2017). The head has the frequent classes and one entry per cluster
// of rare classes. The layers of a cluster see only the examples that need them.
#include <math.h>
#include <stdio.h>

#include "formulas.h"
#include "layer_functions.h"
#include "nn/module/nn_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

#define LL(x) ((long long)(x))

static int64_t int_of(const px_module *self, const char *name) {
  return px_value_int(px_module_attribute(self, name));
}

// ---- construction

static px_status check_cutoffs(const px_value *cutoffs, int64_t classes) {
  int64_t before = 0;
  for (int i = 0; i < cutoffs->n; before = cutoffs->v.ints[i++])
    PX_CHECK(cutoffs->v.ints[i] > before && cutoffs->v.ints[i] < classes, PX_VALUE,
             "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
             "order, where each value is between 1 and n_classes-1");
  return PX_OK;
}

static px_status add_linear(px_module *to, const char *name, const px_module *self, int64_t in,
                            int64_t out, bool bias) {
  PX_SCOPED(px_module) layer = NULL;
  const px_value args[] = {PX_I(in), PX_I(out), PX_B(bias), px_module_attribute(self, "device"),
                           px_module_attribute(self, "dtype")};
  PX_TRY(px_module_new(&layer, px_module_kind_find("Linear"), args, NULL));
  return px_module_register_module(to, name, layer);
}

static px_status add_clusters(px_module *self, px_module *tail, const int64_t *cutoffs, int count) {
  double divisor = px__float_of(self, "div_value");
  int64_t in = int_of(self, "in_features");
  for (int i = 0; i < count; i++) {
    char name[16];
    PX_SCOPED(px_module) cluster = NULL;
    double size = floor((double)in / pow(divisor, i + 1));
    PX_CHECK(size >= 0 && size < INT32_MAX, PX_VALUE,
             "div_value %g results in an invalid size of cluster %d", divisor, i);
    snprintf(name, sizeof name, "%d", i);
    PX_TRY(px_module_new(&cluster, px_module_kind_find("Sequential"), NULL, NULL));
    PX_TRY(add_linear(cluster, "0", self, in, (int64_t)size, false));
    PX_TRY(add_linear(cluster, "1", self, (int64_t)size, cutoffs[i + 1] - cutoffs[i], false));
    PX_TRY(px_module_register_module(tail, name, cluster));
  }
  return PX_OK;
}

static px_status reset_child(const char *name, const px_module_entry *entry, px_module *owner,
                             void *self) {
  return entry->module == self ? PX_OK : px_module_reset(entry->module);
}

px_status px__adaptive_init(px_module *self) {
  PX_SCOPED(px_module) tail = NULL;
  if (self->stage == PX__STARTS) {  // cutoffs now include n_classes: undo its count
    PX_TRY(px_module_set_attribute(self, "n_clusters", PX_I(int_of(self, "n_clusters") - 1)));
    PX_TRY(px_module_set_attribute(self, "head_size", PX_I(int_of(self, "head_size") - 1)));
    return px_module_walk(self, PX_ENTRY_MODULE, "", true, false, reset_child, self);
  }
  px_value given = px_module_attribute(self, "cutoffs");
  int64_t all[PX__ATTRIBUTE_INTS];
  int count = given.n;
  PX_CHECK(count < PX__ATTRIBUTE_INTS, PX_VALUE, "%s: expected at most %d cutoffs, got %d",
           self->kind->name, PX__ATTRIBUTE_INTS - 1, count);
  PX_TRY(check_cutoffs(&given, int_of(self, "n_classes")));
  memcpy(all, given.v.ints, (size_t)count * sizeof *all);
  all[count] = int_of(self, "n_classes");
  PX_TRY(add_linear(self, "head", self, int_of(self, "in_features"), int_of(self, "head_size"),
                    int_of(self, "head_bias")));
  PX_TRY(px_module_new(&tail, px_module_kind_find("ModuleList"), NULL, NULL));
  PX_TRY(add_clusters(self, tail, all, count));
  PX_TRY(px_module_set_attribute(self, "cutoffs", PX_IS(all, count + 1)));
  return px_module_register_module(self, "tail", tail);
}

// ---- probabilities

static px_status call_softmax(px_tensor **out, px_module *layer, px_tensor *x) {
  PX_SCOPED(px_tensor) scores = NULL;
  PX_TRY(px_module_call(&scores, layer, x));
  return px_log_softmax(out, scores, -1, PX_DTYPE_NONE);
}
static px_status head_of(px_tensor **out, px_module *self, px_tensor *x) {
  px_module *head;
  PX_TRY(px__child(&head, self, "head"));
  return call_softmax(out, head, x);
}
static px_status cluster_at(px_module **out, px_module *self, int i) {
  px_module *tail;
  PX_TRY(px__child(&tail, self, "tail"));
  return px__child_at(out, tail, i);
}

static px_status add_cluster(px_tensor **all, px_module *self, px_tensor *x, const px_tensor *head,
                             int i) {
  PX_SCOPED(px_tensor) scores = NULL;
  PX_SCOPED(px_tensor) before = PX_MOVE(*all);
  PX_SCOPED(px_module) cluster = NULL;
  PX_TRY(cluster_at(&cluster, self, i));
  PX_TRY(px_module_call(&scores, cluster, x));
  return px__formula_with_cluster_scores(all,
                                         (px_value[]){PX_T(before), PX_T(scores), PX_T(head),
                                                      PX_I(int_of(self, "shortlist_size") + i)});
}
static px_status log_probabilities(px_tensor **out, px_module *self, px_tensor *x) {
  PX_SCOPED(px_tensor) head = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  PX_TRY(head_of(&head, self, x));
  PX_TRY(px_narrow(&all, head, -1, 0, int_of(self, "shortlist_size")));
  for (int i = 0; i < int_of(self, "n_clusters"); i++) PX_TRY(add_cluster(&all, self, x, head, i));
  *out = PX_MOVE(all);
  return PX_OK;
}
px_status px__adaptive_log_prob(px_tensor **out, px_module *self,
                                const px__adaptive_log_prob_args *args) {
  return log_probabilities(out, self, args->input);
}
px_status px__adaptive_predict(px_tensor **out, px_module *self,
                               const px__adaptive_predict_args *args) {
  PX_SCOPED(px_tensor) all = NULL;
  PX_TRY(log_probabilities(&all, self, args->input));
  return px_argmax(out, all, (int64_t[]){-1}, false);
}

// ---- the loss

static px_status check_shapes(const px_tensor *x, const px_tensor *target) {
  enum { TEXT_SIZE = PX_MAX_DIMS * 24 };
  char text[TEXT_SIZE];
  int ndim = px_tensor_ndim(target), expected = ndim + 1;
  PX_CHECK(ndim < 2, PX_RUNTIME, "0D or 1D target tensor expected, multi-target not supported");
  PX_CHECK(ndim == 0 || (px_tensor_ndim(x) && px_tensor_size(x, 0) == px_tensor_size(target, 0)),
           PX_RUNTIME, "Input and target should have the same size in the batch dimension.");
  PX_CHECK(px_tensor_ndim(x) == expected, PX_RUNTIME,
           "%dD target tensor expects %dD input tensors, but found inputs with size "
           "torch.Size([%s])",
           ndim, expected, px__comma_text(text, TEXT_SIZE, px_tensor_ndim(x), px_tensor_sizes(x)));
  return PX_OK;
}

// A batch, the head index of each target, and the clusters' contribution to the log-probability.
typedef struct batch {
  px_module *self;
  px_tensor *x, *target, *head_index, *added;  // places and added are owned
} batch;

static px_status visit_cluster(batch *b, int i) {
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  PX_SCOPED(px_module) cluster = NULL;
  const int64_t *cutoffs = px_module_attribute(b->self, "cutoffs").v.ints;
  PX_TRY(px__formula_rows_between(
      &rows, (px_value[]){PX_T(b->target), PX_I(cutoffs[i]), PX_I(cutoffs[i + 1])}));
  if (!px_tensor_numel(rows)) return PX_OK;
  PX_TRY(cluster_at(&cluster, b->self, i));
  PX_TRY(px_index_select(&part, b->x, 0, rows));
  PX_TRY(call_softmax(&all, cluster, part));
  PX_SCOPED(px_tensor) added = PX_MOVE(b->added);
  PX_SCOPED(px_tensor) head_index = PX_MOVE(b->head_index);
  PX_TRY(px__formula_with_cluster(&b->added, (px_value[]){PX_T(added), PX_T(all), PX_T(b->target),
                                                          PX_T(rows), PX_I(cutoffs[i])}));
  int64_t column = int_of(b->self, "shortlist_size") + i;
  return px_index_fill(&b->head_index, head_index, 0, rows, px_int(column));
}

static px_status log_likelihood(px_tensor **out, batch *b, bool batched) {
  PX_SCOPED(px_tensor) head = NULL;
  PX_TRY(head_of(&head, b->self, b->x));
  PX_TRY(px_new_zeros(&b->added, head, px_tensor_sizes(b->target), 1, PX_DTYPE_NONE, PX_DEVICE_NONE,
                      false, false));
  for (int i = 0; i < int_of(b->self, "n_clusters"); i++) PX_TRY(visit_cluster(b, i));
  return px__formula_likelihoods(
      out, (px_value[]){PX_T(head), PX_T(b->head_index), PX_T(b->added), PX_B(batched)});
}

px_status px__adaptive_forward(px_tensor **out, px_module *self,
                               const px__adaptive_forward_args *args) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) target = NULL;
  px_tensor *given = args->input_, *labels = args->target_;
  bool batched = px_tensor_ndim(labels) == 1;
  PX_TRY(check_shapes(given, labels));
  PX_TRY(px__formula_checked_targets(&target,
                                     (px_value[]){PX_T(labels), PX_I(int_of(self, "n_classes"))}));
  if (batched)
    x = px_retain(given);
  else
    PX_TRY(px_unsqueeze(&x, given, 0));
  batch b = {self, x, target, px_retain(target), NULL};
  px_status status = log_likelihood(out, &b, batched);
  px_release(b.head_index);
  px_release(b.added);
  return status == PX_OK ? PX_OK : px_error_add_frame(status, __FILE__, __LINE__, __func__);
}
