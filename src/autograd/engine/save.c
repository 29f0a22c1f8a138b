// SPDX-License-Identifier: Apache-2.0
// Nodes of ops: saving the inputs of gradient formulas.
//
// A node keeps a copy of the arguments. It saves the tensors read by the required formulas, with
// their versions, and outlines of tensors of which only the shape is read. A leaf that requires
// grad cannot change in place while recording and is saved itself. Other tensors are saved as
// aliases without history: after an in-place op the tensor's history would include this node, and
// the references would form a cycle.
#include "autograd/rules/backward.h"
#include "autograd/engine/graph.h"
#include "phlox/ops/view.h"

#include <stdio.h>

typedef struct px__save {
  union {  // owned
    px_tensor *tensor;
    px__packed *packed;
    void *owned;
  };
  uint64_t version;
  bool is_packed;  // by hooks; its version is not checked
  bool outline;    // its version is not checked
  bool alias;      // saved without history: that is `edge`, or for a result this node
  int16_t param;
  int16_t result;  // or -1
  int32_t item;    // index in a list, or -1
  int32_t edge;    // or -1
} px__save;

typedef struct px__op_node {
  px_node node;
  const px_op *op;
  px_value *args;
  px_tensor **results;  // borrowed from `saves`; NULL if not saved
  px__save *saves;
  int32_t save_count;
  uint32_t mask;  // parameters with edges: those with a formula, and those lacking a required one
  bool packs;     // some saves are packed
  // Some saved tensors are complex and formulas read their conjugates. A formula correct for real
  // numbers then returns PyTorch's gradient, the conjugate Wirtinger derivative.
  bool conjugates;
} px__op_node;

static void drop(px_node *node) {
  px__op_node *self = (px__op_node *)node;
  int count = self->save_count;
  self->save_count = 0;
  for (int i = 0; i < count; i++) px_release(self->saves[i].owned);
}

uint32_t px__saves_for(const px_op *op, uint32_t needs) {
  if (!op->save_for) return (op->save_mask & 0xFFFFu) | op->save_result_mask << 16;
  uint32_t mask = 0;
  for (int i = 0; i < op->param_count; i++)
    if (needs >> i & 1) mask |= op->save_for[i];
  return mask;
}

// ---- layout

static int edges_of(uint32_t mask, const px_value *args, int i) {
  if (!(mask >> i & 1)) return 0;
  return args[i].kind == PX_ARG_TENSORS ? args[i].n : 1;
}

static int tensors_of(px_value arg) {
  return arg.kind == PX_ARG_TENSOR ? 1 : arg.kind == PX_ARG_TENSORS ? arg.n : 0;
}

static size_t list_bytes(px_value arg) {
  switch (arg.kind) {
    case PX_ARG_INTS:
      return (size_t)arg.n * sizeof(int64_t);
    case PX_ARG_TENSORS:
      return (size_t)arg.n * sizeof(px_tensor *);
    case PX_ARG_TEXT:
      return (strlen(arg.v.text) + 8) / 8 * 8;
    default:
      return 0;
  }
}

typedef struct saved_layout {
  int edges, saves;
  bool keeps;  // saves a tensor, beyond outlines. PyTorch also counts the number in x * 2
  size_t lists;
} saved_layout;

static bool is_operand(const px_op *op, int i, px_value arg) {
  return i <= 1 && op->params[i].kind == PX_ARG_TENSOR && arg.kind != PX_ARG_NONE;
}

static saved_layout lay_out(const px_op *op, const px_value *args, uint32_t mask, uint32_t saved,
                            uint32_t kept, int result_count) {
  saved_layout l = {0};
  for (int i = 0; i < op->param_count; i++) {
    l.edges += edges_of(mask, args, i);
    if (kept >> i & 1) l.saves += tensors_of(args[i]);
    l.keeps |= (saved >> i & 1) && (tensors_of(args[i]) || is_operand(op, i, args[i]));
    l.lists += list_bytes(args[i]);
  }
  for (int k = 0; k < result_count; k++) l.saves += k < 16 && (saved >> (16 + k) & 1);
  l.keeps |= saved >> 16;
  return l;
}

// ---- filling

typedef struct px__filling {
  px__op_node *self;
  px_call_mode mode;
  px_tensor *changed, *original;  // in-place call: self, and its copy from before
  uint32_t saved;                 // saved as tensors; the rest of `kept` as outlines
  uint32_t kept;
  char *space;  // space for lists
} px__filling;

static bool keeps_itself(const px_tensor *t) {
  unsigned marks = px_tensor_marks(t);
  return (marks & (PX_MARK_WRAPPED | PX_MARK_ALIASED)) ||
         ((marks & PX_MARK_NEEDS_GRAD) && px__is_origin(t));
}

// Packs a saved tensor with the thread's hooks. *slot becomes NULL.
static px_status pack(px__op_node *self, px__save *save, px_tensor **slot) {
  px__packed *packed = NULL;
  bool before = px__grad_swap(false);
  px_status status = px__pack(&packed, save->tensor);
  px__grad_swap(before);
  PX_TRY(status);
  px_release(save->tensor);
  save->packed = packed;
  save->is_packed = self->packs = true;
  *slot = NULL;
  return PX_OK;
}

static px_status save_tensor(px__filling *f, px_tensor **slot, px_tensor *t, px__save save) {
  bool was_changed = false;  // by this call, which has completed: packing would see new values
  if (save.outline) {        // an in-place view op changes the geometry of self
    bool changed = f->original && t == f->changed && save.result < 0;
    PX_TRY(px_tensor_outline(&save.tensor, changed ? f->original : t));
    if (f->self->op->flags & PX_OP_REGISTERED) px_tensor_guard_outline(save.tensor);
  } else {
    PX_CHECK(!px_tensor_is_inference(t), PX_RUNTIME,
             "Inference tensors cannot be saved for backward. To work around you can make a clone "
             "to get a normal tensor and use it in autograd.");
    was_changed = f->mode == PX_CALL_INPLACE && save.result < 0 &&
                  px_tensor_storage(t) == px_tensor_storage(f->changed);
    if (was_changed && t == f->changed && f->original) {
      t = f->original;
      was_changed = false;
    }
    save.version = px_tensor_version(t) - (was_changed ? 1 : 0);
    save.alias = save.result >= 0 || !keeps_itself(t);
    if (save.alias) {
      PX_TRY(px_tensor_share(&save.tensor, t));
      if (f->self->node.fused) px_tensor_mark_saved(save.tensor);
    } else {
      save.tensor = px_retain(t);
    }
  }
  if (!save.outline && px_dtype_is_complex(px_tensor_dtype(t)))
    f->self->conjugates |= !(f->self->op->flags & PX_OP_UNCONJUGATED);
  px__save *kept = &f->self->saves[f->self->save_count++];
  *kept = save;
  *slot = save.tensor;
  bool packs = !save.outline && !was_changed && px__packs(save.tensor);
  return packs ? pack(f->self, kept, slot) : PX_OK;
}

static px_status fill_list(px__filling *f, int i, px_value *arg, int edge) {
  px_tensor **items = (px_tensor **)f->space;
  f->space += list_bytes(*arg);
  px_tensor *const *from = arg->v.tensors;
  arg->v.tensors = items;
  if (!(f->kept >> i & 1)) return PX_OK;
  for (int k = 0; k < arg->n; k++) {
    px__save save = {.outline = !(f->saved >> i & 1),
                     .param = (int16_t)i,
                     .result = -1,
                     .item = k,
                     .edge = edge < 0 ? -1 : edge + k};
    PX_TRY(save_tensor(f, &items[k], from[k], save));
  }
  return PX_OK;
}

static void copy_list(px__filling *f, px_value *arg) {
  const void *from = arg->kind == PX_ARG_TEXT ? (const void *)arg->v.text : arg->v.ints;
  size_t bytes = list_bytes(*arg);
  size_t used = arg->kind == PX_ARG_TEXT ? strlen(arg->v.text) + 1 : bytes;
  if (used) memcpy(f->space, from, used);
  if (arg->kind == PX_ARG_TEXT)
    arg->v.text = f->space;
  else
    arg->v.ints = (const int64_t *)f->space;
  f->space += bytes;
}

static px_status fill_arg(px__filling *f, int i, int edge) {
  px_value *arg = &f->self->args[i];
  switch (arg->kind) {
    case PX_ARG_TENSORS:
      return fill_list(f, i, arg, edge);
    case PX_ARG_INTS:
    case PX_ARG_TEXT:
      copy_list(f, arg);
      return PX_OK;
    case PX_ARG_GENERATOR:
      arg->v.generator = NULL;
      return PX_OK;
    case PX_ARG_TENSOR:
      break;
    default:
      return PX_OK;
  }
  px_tensor *t = arg->v.tensor;
  arg->v.tensor = NULL;
  if (!(f->kept >> i & 1)) return PX_OK;
  px__save save = {
      .outline = !(f->saved >> i & 1), .param = (int16_t)i, .result = -1, .item = -1, .edge = edge};
  return save_tensor(f, &arg->v.tensor, t, save);
}

static px_status fill_edges(px__filling *f, int i, const px_value *arg, int edge, bool required) {
  px__edge *edges = f->self->node.edges + edge;
  if (!required) return PX_OK;
  if (arg->kind == PX_ARG_TENSOR) return px__own_edge_of(edges, arg->v.tensor);
  for (int k = 0; arg->kind == PX_ARG_TENSORS && k < arg->n; k++)
    PX_TRY(px__own_edge_of(&edges[k], arg->v.tensors[k]));
  return PX_OK;
}

static px_status fill(px__filling *f, const px_value *args, uint32_t needs, int result_count,
                      px_tensor *const *results) {
  const px_op *op = f->self->op;
  int edge = 0;
  for (int i = 0; i < op->param_count; i++) {
    int count = edges_of(f->self->mask, args, i);
    if (count) PX_TRY(fill_edges(f, i, &args[i], edge, needs >> i & 1));
    PX_TRY(fill_arg(f, i, count ? edge : -1));
    edge += count;
  }
  for (int k = 0; k < result_count && k < 16; k++) {
    if (!(f->saved >> (16 + k) & 1)) continue;
    px__save save = {.param = -1, .result = (int16_t)k, .item = -1, .edge = -1};
    PX_TRY(save_tensor(f, &f->self->results[k], results[k], save));
  }
  return PX_OK;
}

static const px__kind keeping_kind, plain_kind;

px_status px__op_node_new(px_node **out, const px_op *op, px_call_mode mode, const px_value *args,
                          uint32_t needs, int result_count, px_tensor *const *results,
                          px_tensor *original) {
  uint32_t saved = px__saves_for(op, needs);
  uint32_t kept = (saved | op->shape_mask) & 0xFFFFu;
  uint32_t mask = op->grad_mask | needs;
  saved_layout l = lay_out(op, args, mask, saved, kept, result_count);
  size_t args_at = sizeof(px__op_node), results_at = args_at + op->param_count * sizeof(px_value);
  size_t saves_at = results_at + (saved >> 16 ? (size_t)result_count * sizeof(px_tensor *) : 0);
  size_t lists_at = saves_at + (size_t)l.saves * sizeof(px__save);
  PX_SCOPED(px_node) node = NULL;
  PX_TRY(px__node_new(&node, l.keeps ? &keeping_kind : &plain_kind, op->grad_name,
                      lists_at + l.lists, l.edges, result_count, results));
  px__op_node *self = (px__op_node *)node;
  char *base = (char *)node;
  self->op = op;
  self->mask = mask;
  self->args = (px_value *)(base + args_at);
  self->results = (px_tensor **)(base + results_at);
  self->saves = (px__save *)(base + saves_at);
  for (int i = 0; i < op->param_count; i++) self->args[i] = args[i];
  px_tensor *changed = mode == PX_CALL_INPLACE ? results[0] : NULL;
  px__filling f = {self, mode, changed, original, saved, kept, base + lists_at};
  PX_TRY(fill(&f, args, needs, result_count, results));
  bool function = op->kind == PX_OP_FUNCTION;  // for example copies between devices
  bool launches = mode == PX_CALL_NEW && op->kind != PX_OP_VIEW && !function;
  if (node->stream || function) px__node_sited(node, launches ? results[0] : NULL);
  *out = PX_MOVE(node);
  return PX_OK;
}

// ---- running

// Fails with "one of the variables needed for gradient computation has been modified by an inplace
// operation" and a description of the tensor.
px_status px__check_version(const px_tensor *t, uint64_t version, const char *node_name, int nr) {
  uint64_t now = px_tensor_version(t);
  if (now == version) return PX_OK;
  char type[48], sizes[400], maker[200] = "";
  size_t used = (size_t)snprintf(sizes, sizeof sizes, "[");
  for (int d = 0; d < px_tensor_ndim(t) && used < sizeof sizes; d++)
    used += (size_t)snprintf(sizes + used, sizeof sizes - used, "%s%lld", d ? ", " : "",
                             (long long)px_tensor_sizes(t)[d]);
  if (node_name) {
    const char *end = strstr(node_name, "Backward");  // the op's part of the name
    int length = (int)(end && end > node_name ? end - node_name : (ptrdiff_t)strlen(node_name));
    snprintf(maker, sizeof maker, ", which is output %d of %.*s,", nr, length, node_name);
  }
  PX_FAIL(PX_RUNTIME,
          "one of the variables needed for gradient computation has been modified by an inplace "
          "operation: [%s %s]]%s is at version %llu; expected version %llu instead. Hint: %s",
          px_tensor_type_name(t, type), sizes, maker, (unsigned long long)now,
          (unsigned long long)version,
          px_anomaly_enabled()
              ? "the backtrace further above shows the operation that failed to compute its "
                "gradient. The variable in question was changed in there or anywhere later. Good "
                "luck!"
              : "enable anomaly detection to find the operation that failed to compute its "
                "gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False).");
}

static px_status check_versions(px__op_node *self) {
  for (int i = 0; i < self->save_count; i++) {
    const px__save *save = &self->saves[i];
    if (save->outline || save->is_packed || px_tensor_version(save->tensor) == save->version)
      continue;
    px_node *maker = NULL;
    int nr = 0;
    if (save->result >= 0)
      maker = &self->node, nr = save->result;
    else if (save->edge >= 0)
      maker = self->node.edges[save->edge].node, nr = self->node.edges[save->edge].nr;
    if (px__is_accumulator(maker)) maker = NULL;
    PX_TRY(px__check_version(save->tensor, save->version, maker ? maker->name : NULL, nr));
  }
  return PX_OK;
}

// Parameters requiring gradients, and the first edge of each parameter.
static uint32_t required_params(px__op_node *self, const px__run *run, int *first) {
  uint32_t needs = 0;
  int edge = 0;
  for (int i = 0; i < self->op->param_count; i++) {
    first[i] = edge;
    int count = edges_of(self->mask, self->args, i);
    for (int k = 0; k < count; k++)
      if (run->required[edge + k]) needs |= 1u << i;
    edge += count;
  }
  return needs;
}

// Results argument if no results were saved.
static px_tensor *const no_results[PX__MAX_PARAMS_OF_OP];

// True if the gradients of a pass without create_graph will have tangents. Formulas then choose
// differentiable ops, as in grad mode. A tangent of a single level has no tangent.
static bool gets_tangents(const px__op_node *self, const px__run *run) {
  if (px_grad_enabled() || !px__forward()) return false;
  if (px__run_forward() && px_modes_get().forward == 1) return false;
  bool dual = self->node.dual;
  for (int i = 0; i < self->node.result_count && !dual; i++)
    dual = run->grads[i] && px__is_dual(run->grads[i]);
  return dual;
}
static px_status drop_reverse_history(px_tensor **t) {
  if (!*t || !px_tensor_requires_grad(*t)) return PX_OK;
  PX_SCOPED(px_tensor) recorded = *t;
  *t = NULL;
  return px__forward() && px__is_dual(recorded) ? px__alias_for(t, recorded, false)
                                                : px_tensor_share(t, recorded);
}

static px_status call(px__op_node *self, const px__run *run, const px_value *args,
                      px_tensor *const *results) {
  px_tensor *out[PX__MAX_PARAMS_OF_OP] = {0};
  px_tensor **lists[PX__MAX_PARAMS_OF_OP] = {0};
  int first[PX__MAX_PARAMS_OF_OP] = {0};
  const px_op *op = self->op;
  uint32_t needs = required_params(self, run, first);
  for (int i = 0; i < op->param_count; i++)
    if (args[i].kind == PX_ARG_TENSORS && (op->grad_mask >> i & 1)) lists[i] = run->out + first[i];
  px__backward b = {op, args, results, run->grads, self->node.result_count, needs, out, lists};
  if (!op->save_result_mask) b.results = no_results;
  PX_CHECK(op->gradient && !(needs & ~op->grad_mask), PX_UNIMPLEMENTED,
           "derivative for aten::%s is not implemented", op->name);
  bool tangents = gets_tangents(self, run);
  if (tangents) px_grad_set_enabled(true);
  px_status status = op->gradient(&b);
  if (tangents) px_grad_set_enabled(false);
  for (int i = 0; i < op->param_count; i++) {
    bool lands = out[i] && (op->grad_mask >> i & 1) && !lists[i];
    if (lands)
      run->out[first[i]] = out[i];
    else
      px_release(out[i]);
  }
  for (int i = 0; tangents && i < self->node.edge_count && status == PX_OK; i++)
    status = drop_reverse_history(&run->out[i]);
  return status;
}

// With create_graph formulas need histories: they receive aliases of the saved tensors with their
// history.
typedef struct px__opened {
  px_value args[PX__MAX_PARAMS_OF_OP];
  px_tensor **space;  // `made` owned tensors; then copies of the lists
  int made;
} px__opened;

static px_tensor **slot_of(px__opened *opened, px_tensor **results, const px__save *save) {
  if (save->result >= 0) return &results[save->result];
  px_value *arg = &opened->args[save->param];
  return save->item < 0 ? &arg->v.tensor : &((px_tensor **)arg->v.tensors)[save->item];
}

// Returns the edge of a saved tensor's history. The node is NULL if it has none, or if the tensor
// is a leaf saved as itself.
static px__edge history_of(px__op_node *self, const px__save *save) {
  if (save->result >= 0) return (px__edge){&self->node, save->result};
  if (save->edge < 0) return (px__edge){NULL, 0};
  px__edge edge = self->node.edges[save->edge];
  return px__is_accumulator(edge.node) && !save->is_packed ? (px__edge){NULL, 0} : edge;
}

static px_status open_one(px__op_node *self, px__opened *opened, px_tensor **slot,
                          const px__save *save) {
  px_tensor *t = NULL;
  if (save->is_packed) {
    PX_TRY(px__unpack(&t, save->packed));
    opened->space[opened->made++] = t;
  } else {
    t = save->tensor;
  }
  *slot = t;
  px__edge edge = history_of(self, save);
  bool seen = px_grad_enabled() || (px__forward() && edge.node && edge.node->dual);
  bool required = seen && (save->alias || save->is_packed) && edge.node;
  bool has_gradient = px_dtype_is_differentiable(px_tensor_dtype(t));  // false for indices
  if (required && has_gradient) {
    PX_TRY(px__with_history(slot, t, edge));
    opened->space[opened->made++] = *slot;
  }
  if (!self->conjugates || save->outline || !px_dtype_is_complex(px_tensor_dtype(t))) return PX_OK;
  px_tensor *conjugate = NULL;
  PX_TRY(px_conj(&conjugate, *slot));
  opened->space[opened->made++] = *slot = conjugate;
  return PX_OK;
}

static px_status open_saved(px__op_node *self, px__opened *opened, px_tensor **results) {
  for (int i = 0; i < self->save_count; i++) {
    const px__save *save = &self->saves[i];
    PX_TRY(open_one(self, opened, slot_of(opened, results, save), save));
  }
  return PX_OK;
}

static px_status open_and_call(px__op_node *self, const px__run *run) {
  // At most three tensors per save: unpacked, with history, and conjugated.
  size_t made = (size_t)self->save_count * 3;
  size_t count = made + (size_t)self->node.result_count;
  const px_op *op = self->op;
  px__opened opened = {.made = 0};
  for (int i = 0; i < op->param_count; i++) {
    opened.args[i] = self->args[i];
    if (self->args[i].kind == PX_ARG_TENSORS) count += (size_t)self->args[i].n;
  }
  PX_TRY(px_alloc((void **)&opened.space, count * sizeof(px_tensor *)));
  px_tensor **results = opened.space + made, **next = results + self->node.result_count;
  for (int i = 0; i < op->param_count; i++) {
    if (self->args[i].kind != PX_ARG_TENSORS) continue;
    size_t n = (size_t)self->args[i].n;
    if (n) memcpy(next, self->args[i].v.tensors, n * sizeof *next);
    opened.args[i].v.tensors = next;
    next += n;
  }
  px_status status = open_saved(self, &opened, results);
  if (status == PX_OK) status = call(self, run, opened.args, results);
  for (int i = 0; i < opened.made; i++) px_release(opened.space[i]);
  px_free(opened.space);
  return status;
}

static px_status apply(px_node *node, const px__run *run) {
  px__op_node *self = (px__op_node *)node;
  PX_TRY(check_versions(self));
  if (px_grad_enabled() || self->packs || self->conjugates || (px__forward() && node->dual))
    return open_and_call(self, run);
  return call(self, run, self->args, self->results);
}

// Nodes without saved tensors have nothing to release and can run again.
static const px__kind keeping_kind = {.apply = apply, .drop = drop},
                      plain_kind = {.apply = apply, .end = drop};
