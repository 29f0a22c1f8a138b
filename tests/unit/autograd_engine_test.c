// SPDX-License-Identifier: Apache-2.0
// The engine: depth, order, hooks, custom functions, nested and concurrent calls.
#include <pthread.h>
#include <time.h>

#include "autograd_helpers.h"
#include "phlox/extend.h"

// CPU time, so that other programs on the machine do not matter.
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- custom functions

typedef struct twice {
  int calls, released, dropped;
} twice;

static px_status double_it(px_tensor **in, int in_count, px_tensor *const *out, int out_count,
                           void *context) {
  ((twice *)context)->calls++;
  return in_count && out[0] ? px_mul_scalar(&in[0], out[0], px_float(2)) : PX_OK;
}
static void count_release(void *context) { ((twice *)context)->released++; }
static void count_drop(void *context) { ((twice *)context)->dropped++; }
static const px_function doubling = {"TwiceBackward", double_it, count_release, NULL};

// Returns a tensor with the value of x, and a gradient for x that is doubled.
static px_tensor *apply_twice(const px_function *function, twice *context, px_tensor *x) {
  px_tensor *y = NULL;
  OK(px_tensor_detach(&y, x));
  OK(px_function_record(function, context, 1, &x, 1, &y));
  return y;
}

PX_TEST(custom_functions_compute_gradients) {
  twice t = {0};
  PX_SCOPED(px_tensor) x = LEAF(3), *y = apply_twice(&doubling, &t, x);
  CHECK_TEXT(maker(y), "TwiceBackward");
  back(y);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 2, 0);
  CHECK_EQ(t.calls, 1);
  CHECK_EQ(t.released, 0);
  px_release(PX_MOVE(y));
  CHECK_EQ(t.released, 1);
}

static int64_t sequence;
static px_status note_order(px_tensor **in, int in_count, px_tensor *const *out, int out_count,
                            void *context) {
  *(int64_t *)context = ++sequence;
  in[0] = px_retain(out[0]);
  return PX_OK;
}

PX_TEST(a_prioritised_node_runs_before_later_ready_nodes) {
  static const px_function noting = {"NotingBackward", note_order, NULL, NULL};
  int64_t orders[2] = {0};
  PX_SCOPED(px_tensor) x = LEAF(3), *sum = NULL;
  px_tensor *y[2] = {NULL};
  for (int i = 0; i < 2; i++) {
    OK(px_tensor_detach(&y[i], x));
    OK(px_function_record(&noting, &orders[i], 1, &x, 1, &y[i]));
  }
  OK(px_add(&sum, y[0], y[1], px_int(1)));
  OK(px_backward(1, &sum, NULL, true, false));
  CHECK(orders[1] < orders[0]);  // the later one
  px_node *first = NULL;
  OK(px_tensor_grad_fn(&first, y[0]));
  px_node_prioritize(first);
  OK(px_backward(1, &sum, NULL, false, false));
  CHECK(orders[0] < orders[1]);
  for (int i = 0; i < 2; i++) px_release(y[i]);
}

PX_TEST(an_unrecorded_function_is_released) {
  twice t = {0};
  PX_SCOPED(px_tensor) x = VECTOR(3), *y = apply_twice(&doubling, &t, x);
  CHECK_EQ(t.released, 1);
  CHECK(!px_tensor_requires_grad(y));
}

PX_TEST(a_function_drops_its_saved_tensors) {
  const px_function saving = {"SavingBackward", double_it, count_release, count_drop};
  twice t = {0};
  PX_SCOPED(px_tensor) x = LEAF(3), *y = apply_twice(&saving, &t, x);
  OK(px_backward(1, &y, NULL, true, false));
  CHECK_EQ(t.dropped, 0);
  OK(px_backward(1, &y, NULL, false, false));
  CHECK_EQ(t.dropped, 1);
  FAILS(px_backward(1, &y, NULL, false, false), PX_RUNTIME, "a second time");
}

static px_status wrong_shape(px_tensor **in, int in_count, px_tensor *const *out, int out_count,
                             void *context) {
  in[0] = VECTOR(1, 2, 3);
  return PX_OK;
}

PX_TEST(a_gradient_of_a_wrong_shape_is_refused) {
  const px_function wrong = {"WrongBackward", wrong_shape, NULL, NULL};
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *y = apply_twice(&wrong, NULL, x), *g = VECTOR(1, 1);
  FAILS(px_backward(1, &y, &g, false, false), PX_RUNTIME,
        "Function WrongBackward returned an invalid gradient at index 0 - got [3] but expected "
        "shape compatible with [2]");
}

static px_status failing(px_tensor **in, int in_count, px_tensor *const *out, int out_count,
                         void *context) {
  PX_FAIL(PX_VALUE, "no gradient today");
}

PX_TEST(an_error_in_backward_is_returned_to_the_caller) {
  const px_function bad = {"BadBackward", failing, NULL, NULL};
  PX_SCOPED(px_tensor) x = LEAF(1), *y = apply_twice(&bad, NULL, x);
  FAILS(px_backward(1, &y, NULL, false, false), PX_VALUE, "no gradient today");
  CHECK(!px_tensor_grad(x));
}

PX_TEST(saved_tensors_of_functions_are_checked) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *y = NULL, *again = NULL;
  OK(px_exp(&y, x));
  PX_SCOPED(px_saved) saved = NULL;
  OK(px_saved_new(&saved, y, false));
  OK(px_saved_unpack(&again, saved, NULL));
  CHECK_NEAR(at(again, 0), exp(1), 1e-6);
  OK(px_zero_(y));
  px_release(PX_MOVE(again));
  FAILS(px_saved_unpack(&again, saved, NULL), PX_RUNTIME,
        "[torch.FloatTensor [2]], which is output 0 of Exp, is at version 1; expected "
        "version 0 instead.");
}

// ---- hooks for saved tensors: they pack the negative and count calls
typedef struct packing {
  int packed, unpacked, left, released;
  bool changes_shape;  // unpacks to another shape
} packing;
typedef struct packed_tensor {
  packing *of;
  px_tensor *negative;
} packed_tensor;

static px_status pack_negative(void **out, px_tensor *t, void *context) {
  packed_tensor *made = NULL;
  PX_TRY(px_alloc((void **)&made, sizeof *made));
  made->of = context;
  px_status status = px_neg(&made->negative, t);
  if (status != PX_OK) {
    px_free(made);
    return status;
  }
  made->of->packed++;
  made->of->left++;
  *out = made;
  return PX_OK;
}

static px_status unpack_negative(px_tensor **out, void *packed, void *context) {
  packing *p = context;
  p->unpacked++;
  if (p->changes_shape) return px_unsqueeze(out, ((packed_tensor *)packed)->negative, 0);
  return px_neg(out, ((packed_tensor *)packed)->negative);
}

static void release_packed(void *packed) {
  packed_tensor *p = packed;
  p->of->left--;
  px_release(p->negative);
  px_free(p);
}

static void end_packing(void *context) { ((packing *)context)->released++; }

static const px_saved_hooks negatives = {pack_negative, unpack_negative, release_packed,
                                         end_packing};

PX_TEST(saved_tensor_hooks_pack_and_unpack) {
  packing p = {0}, inner = {0};
  PX_SCOPED(px_tensor) x = LEAF(2, 3), *y = NULL, *z = NULL, *g = VECTOR(1, 1);
  OK(px_saved_hooks_push(&negatives, &p));
  OK(px_mul(&y, x, x));
  OK(px_saved_hooks_push(&negatives, &inner));
  OK(px_exp(&z, y));
  px_saved_hooks_pop();
  px_saved_hooks_pop();
  px_saved_hooks_pop();  // no hooks are left
  CHECK_EQ(p.packed, 2);
  CHECK_EQ(inner.packed, 1);
  OK(px_backward(1, &z, &g, true, false));
  CHECK_EQ(p.unpacked, 2);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 4 * exp(4), 1e-3);
  OK(px_backward(1, &z, &g, false, false));
  CHECK_EQ(p.unpacked, 4);
  CHECK_EQ(p.left + inner.left, 0);
  px_release(PX_MOVE(y));
  px_release(PX_MOVE(z));
  CHECK_EQ(p.released + inner.released, 2);
}

PX_TEST(packed_tensors_keep_their_graph_for_second_derivatives) {
  packing p = {0};
  PX_SCOPED(px_tensor) x = LEAF(3), *y = NULL, *z = NULL, *first = NULL, *second = NULL;
  OK(px_saved_hooks_push(&negatives, &p));
  OK(px_mul(&y, x, x));
  OK(px_mul(&z, y, x));
  px_saved_hooks_pop();
  OK(px_grad(&first, 1, &z, NULL, 1, &x, true, true, false));
  OK(px_grad(&second, 1, &first, NULL, 1, &x, false, false, false));
  CHECK_NEAR(at(first, 0), 27, 1e-4);
  CHECK_NEAR(at(second, 0), 18, 1e-4);
}

PX_TEST(unpacked_tensors_must_match_the_packed_shape) {
  packing p = {.changes_shape = true};
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *y = NULL, *g = VECTOR(1, 1), *again = NULL;
  PX_SCOPED(px_saved) saved = NULL;
  OK(px_saved_hooks_push(&negatives, &p));
  OK(px_exp(&y, x));
  OK(px_saved_new(&saved, x, false));
  px_saved_hooks_pop();
  FAILS(px_backward(1, &y, &g, false, false), PX_RUNTIME, "expected a tensor with the shape");
  FAILS(px_saved_unpack(&again, saved, NULL), PX_RUNTIME, "expected a tensor with the shape");
  p.changes_shape = false;
  OK(px_saved_unpack(&again, saved, NULL));
  CHECK_NEAR(at(again, 1), 2, 0);
  FAILS(px_saved_hooks_push(&(px_saved_hooks){0}, NULL), PX_VALUE, "need pack, unpack");
}

static px_status refuse_write(px_tensor *written, void *context) {
  PX_CHECK(written != context, PX_RUNTIME, "not this one");
  return PX_OK;
}

PX_TEST(a_write_watch_runs_before_the_write) {
  PX_SCOPED(px_tensor) x = VECTOR(1, 2), *y = VECTOR(1, 3);
  const px_write_watch watch = {refuse_write, x};
  OK(px_op_watch_writes(&watch));
  FAILS(px_exp_(x), PX_RUNTIME, "not this one");
  OK(px_exp_(y));
  OK(px_op_watch_writes(NULL));
  CHECK_NEAR(at(x, 0), 1, 0);
  OK(px_exp_(x));
}

// Records the result of the first call of an op and returns it in place of the second call.
typedef struct cached_call {
  const char *name;
  px_tensor *result;
  int seen, given;
} cached_call;
static px_status recall_result(const px_op *op, const px_value *args, px_tensor **results,
                               bool *recalled, void *context) {
  cached_call *k = context;
  *recalled = k->result && !strcmp(op->name, k->name);
  k->given += *recalled;
  return *recalled ? px_tensor_detach(&results[0], k->result) : PX_OK;
}
static px_status record_result(const px_op *op, px_call_mode mode, const px_value *args, int count,
                               px_tensor *const *results, bool whole, void *context) {
  cached_call *k = context;
  k->seen++;
  PX_CHECK(count == 1, PX_RUNTIME, "%d results", count);
  if (k->result || strcmp(op->name, k->name)) return PX_OK;
  CHECK(whole && mode == PX_CALL_NEW);
  return px_exp(&k->result, results[0]);  // the hook's own call does not reach hooks
}

PX_TEST(a_dispatch_hook_records_calls_and_may_replace_them) {
  cached_call k = {"mul", NULL, 0, 0};
  const px_dispatch_hook keeper = {recall_result, record_result, &k}, *before = NULL;
  PX_SCOPED(px_tensor) x = LEAF(3), *y = NULL, *z = NULL;
  OK(px_op_set_dispatch_hook(&keeper, &before));
  CHECK(!before);
  OK(px_mul(&y, x, x));
  OK(px_mul(&z, y, x));
  OK(px_op_set_dispatch_hook(NULL, &before));
  CHECK(before == &keeper);
  CHECK_EQ(k.seen, 2);
  CHECK_EQ(k.given, 1);
  CHECK_NEAR(at(z, 0), exp(9), 1e-2);
  back(z);  // recorded as the replaced op: y + 2 x x
  CHECK_NEAR(at(px_tensor_grad(x), 0), 27, 1e-4);
  px_release(k.result);
}

// ---- depth and width

#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
enum { DEEP = 100000 };  // a sanitizer's stack would overflow from recursion of this depth
#else
enum { DEEP = 1000000 };
#endif

// ---- hooks of nodes

typedef struct node_hook_seen {
  int runs, inputs, outputs, released;
  double scale;
  uint64_t number;
} node_hook_seen;
static px_status scale_all(px_tensor **grads, int count, px_tensor *const *others, int other_count,
                           void *context) {
  node_hook_seen *s = context;
  s->runs++, s->inputs = count, s->outputs = other_count, s->number = px_backward_number();
  if (s->scale == 0) PX_FAIL(PX_RUNTIME, "a hook of a node");
  for (int i = 0; i < count; i++) {
    px_tensor *scaled = NULL;
    if (!grads[i]) continue;
    PX_TRY(px_mul_scalar(&scaled, grads[i], px_float(s->scale)));
    px_release(grads[i]);
    grads[i] = scaled;
  }
  return PX_OK;
}
static void count_node_release(void *context) { ((node_hook_seen *)context)->released++; }

PX_TEST(node_hooks_run_before_and_after_the_node) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2);
  PX_SCOPED(px_tensor) k = VECTOR(3, 4);
  node_hook_seen before = {.scale = 10}, after = {.scale = 2};
  px_hook *first = NULL, *second = NULL;
  px_node *fn = NULL;
  {
    PX_SCOPED(px_tensor) y = NULL;
    OK(px_mul(&y, x, k));
    OK(px_tensor_grad_fn(&fn, y));
    OK(px_node_add_hook(&first, fn, false, scale_all, &before, count_node_release));
    OK(px_node_add_hook(&second, fn, true, scale_all, &after, count_node_release));
    CHECK(!px_backward_will_run(fn));
    back(y);
  }
  CHECK(at(px_tensor_grad(x), 0) == 60 && at(px_tensor_grad(x), 1) == 80);
  CHECK(before.runs == 1 && before.inputs == 1 && before.outputs == 0 && before.number > 0);
  CHECK(after.runs == 1 && after.inputs == 2 && after.outputs == 1);
  CHECK(before.released == 1 && after.released == 1);  // with the node
  px_release(first), px_release(second);
  CHECK_EQ(px_backward_number(), 0);
}

PX_TEST(node_hooks_may_fail_or_be_removed) {
  PX_SCOPED(px_tensor) x = LEAF(1);
  PX_SCOPED(px_tensor) y = NULL;
  node_hook_seen s = {0}, note = {0};
  px_hook *hook = NULL;
  px_node *fn = NULL;
  OK(px_exp(&y, x));
  OK(px_tensor_grad_fn(&fn, y));
  OK(px_node_add_hook(&hook, fn, true, scale_all, &s, count_node_release));
  FAILS(px_backward(1, &y, NULL, true, false), PX_RUNTIME, "a hook of a node");
  CHECK(!px_tensor_grad(x));
  px_hook_remove(hook);
  CHECK_EQ(s.released, 1);
  OK(px_backward(1, &y, NULL, true, false));
  CHECK(s.runs == 1 && px_tensor_grad(x));
  px_release(hook);
  FAILS(px_node_add_hook(&hook, fn, true, NULL, &s, NULL), PX_TYPE, "function");
  CHECK(!px_node_user(fn));
  OK(px_node_set_user(fn, &note, count_node_release));
  CHECK(px_node_user(fn) == &note);
  FAILS(px_node_set_user(fn, &note, count_node_release), PX_VALUE, "already has a note");
}

PX_TEST(results_of_a_node_are_available_as_tensors) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2);
  PX_SCOPED(px_tensor) result_tensor = NULL;
  PX_SCOPED(px_tensor) leaf = NULL;
  PX_SCOPED(px_tensor) ones = VECTOR(1, 1);
  px_node *fn = NULL;
  {
    PX_SCOPED(px_tensor) y = NULL;
    OK(px_mul(&y, x, x));
    OK(px_tensor_grad_fn(&fn, y));
    OK(px_node_result(&result_tensor, fn, 0));
    FAILS(px_node_result(&leaf, fn, 1), PX_INDEX, "MulBackward0 has no result 1");
    int nr;
    OK(px_node_result(&leaf, px_node_edge(fn, 0, &nr), 0));
  }
  CHECK(leaf == x);
  CHECK_EQ(px_tensor_numel(result_tensor), 2);
  px_tensor *grad = NULL;
  OK(px_grad(&grad, 1, &result_tensor, &ones, 1, &x, true, false, false));
  CHECK(at(grad, 0) == 2 && at(grad, 1) == 4);
  px_release(grad);
}

PX_TEST(graphs_may_be_a_million_nodes_deep) {
  PX_SCOPED(px_tensor) x = LEAF(1), *y = px_retain(x), *next = NULL;
  double start = now();
  for (int i = 0; i < DEEP; i++) {
    OK(px_add_scalar(&next, y, px_float(1), px_int(1)));
    px_release(PX_MOVE(y));
    y = PX_MOVE(next);
  }
  double built = now();
  OK(px_backward(1, &y, NULL, false, false));
  double walked = now();
  px_release(PX_MOVE(y));
  double ended = now();
  CHECK_NEAR(at(px_tensor_grad(x), 0), 1, 0);
  printf("build %.2f s, backward %.2f s, free %.2f s\n", built - start, walked - built,
         ended - walked);
  double limit = 3 + (built - start);  // sanitizers slow all three phases alike
  CHECK(walked - built < limit && ended - walked < limit);
}

PX_TEST(every_path_is_summed_once) {
  PX_SCOPED(px_tensor) x = LEAF(1), *y = px_retain(x), *next = NULL;
  for (int i = 0; i < 20; i++) {  // 2^20 paths, 20 nodes
    OK(px_add(&next, y, y, px_int(1)));
    px_release(PX_MOVE(y));
    y = PX_MOVE(next);
  }
  OK(px_backward(1, &y, NULL, false, false));
  CHECK_NEAR(at(px_tensor_grad(x), 0), 1 << 20, 0);
}

PX_TEST(one_root_may_depend_on_another) {
  PX_SCOPED(px_tensor) x = LEAF(2), *y = NULL, *z = NULL;
  OK(px_mul(&y, x, x));
  OK(px_mul(&z, y, y));
  OK(px_backward(2, (px_tensor *[]){y, z}, NULL, false, false));
  CHECK_NEAR(at(px_tensor_grad(x), 0), 4 + 32, 0);
}

// ---- hooks

static px_status triple(px_tensor **out, px_tensor *grad, void *context) {
  ++*(int *)context;
  return px_mul_scalar(out, grad, px_float(3));
}

PX_TEST(hooks_change_gradients_until_removed) {
  int calls = 0;
  int64_t on_leaf, on_middle;
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL;
  OK(px_mul_scalar(&y, x, px_float(1)));
  OK(px_tensor_add_hook(&on_leaf, x, triple, &calls, NULL));
  OK(px_tensor_add_hook(&on_middle, y, triple, &calls, NULL));
  OK(px_backward(1, &y, NULL, true, false));
  CHECK_NEAR(at(px_tensor_grad(x), 0), 9, 0);
  px_tensor_remove_hook(y, on_middle);
  px_tensor_remove_hook(x, on_leaf);
  OK(px_backward(1, &y, NULL, true, false));
  CHECK_NEAR(at(px_tensor_grad(x), 0), 10, 0);
  CHECK_EQ(calls, 2);
}

static void ended(void *context) { *(int *)context += 100; }

PX_TEST(a_hook_is_removed_after_its_tensor_and_keeps_no_context) {
  int calls = 0;
  int64_t id;
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL, *z = NULL;
  OK(px_mul_scalar(&y, x, px_float(1)));
  OK(px_mul_scalar(&z, y, px_float(1)));
  OK(px_tensor_add_hook(&id, y, triple, &calls, ended));
  CHECK(!px_tensor_hook(y, id + 1));
  PX_SCOPED(px_hook) hook = px_retain(px_tensor_hook(y, id));
  px_release(PX_MOVE(y));
  OK(px_backward(1, &z, NULL, true, false));
  CHECK_EQ(calls, 1);
  px_hook_remove(hook);
  CHECK_EQ(calls, 101);
  OK(px_backward(1, &z, NULL, true, false));
  CHECK_EQ(calls, 101);
  OK(px_tensor_add_hook(&id, x, triple, &calls, ended));
  PX_SCOPED(px_hook) last = px_retain(px_tensor_hook(x, id));
  px_release(PX_MOVE(z));
  px_release(PX_MOVE(x));
  CHECK_EQ(calls, 201);
  px_hook_remove(last);
  CHECK_EQ(calls, 201);
}

static px_status remove_self(px_tensor **out, px_tensor *grad, void *context) {
  px_hook_remove(*(px_hook **)context);
  return px_mul_scalar(out, grad, px_float(7));
}

PX_TEST(a_hook_may_remove_itself) {
  px_hook *hook = NULL;
  int64_t id;
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL;
  OK(px_mul_scalar(&y, x, px_float(1)));
  OK(px_tensor_add_hook(&id, x, remove_self, &hook, NULL));
  hook = px_tensor_hook(x, id);
  OK(px_backward(1, &y, NULL, true, false));
  OK(px_backward(1, &y, NULL, true, false));
  CHECK_NEAR(at(px_tensor_grad(x), 0), 8, 0);
  CHECK(!px_tensor_hook(x, id));
}

PX_TEST(hook_contexts_are_visible_only_for_a_sole_owner) {
  int calls = 0;
  int64_t on_leaf, on_result;
  px_context found;
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL, *z = NULL;
  CHECK(px_tensor_is_sole(x, 1) && !px_tensor_is_sole(x, 2));
  CHECK(!px_tensor_context_next(x, &(int){0}, &found));
  OK(px_tensor_add_hook(&on_leaf, x, triple, &calls, ended));
  CHECK(px_tensor_context_next(x, &(int){0}, &found));
  CHECK(found.context == &calls && found.release == ended && found.hook == on_leaf);
  CHECK(!px_tensor_context_next(x, &(int){2}, &found));
  OK(px_mul_scalar(&y, x, px_float(1)));
  CHECK(!px_tensor_is_sole(x, 1));  // the graph holds it
  OK(px_tensor_add_hook(&on_result, y, triple, &calls, NULL));
  CHECK(px_tensor_is_sole(y, 1) && px_tensor_context_next(y, &(int){0}, &found));
  OK(px_mul_scalar(&z, y, px_float(1)));
  CHECK(!px_tensor_is_sole(y, 1));
  OK(px_mul_scalar_(y, px_float(2)));  // the hook stays with the node used by z
  CHECK(px_tensor_is_sole(y, 1) && !px_tensor_context_next(y, &(int){0}, &found));
}

PX_TEST(a_hook_requires_requires_grad) {
  int64_t id;
  PX_SCOPED(px_tensor) x = VECTOR(1);
  FAILS(px_tensor_add_hook(&id, x, triple, NULL, NULL), PX_RUNTIME,
        "cannot register a hook on a tensor that doesn't require gradient");
}

PX_TEST(retained_gradients_are_taken_after_hooks) {
  int calls = 0;
  int64_t id;
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL, *z = NULL;
  OK(px_mul_scalar(&y, x, px_float(2)));
  OK(px_tensor_retain_grad(y));
  OK(px_tensor_add_hook(&id, y, triple, &calls, NULL));
  OK(px_mul_scalar(&z, y, px_float(5)));
  back(z);
  CHECK(px_tensor_retains_grad(y));
  CHECK_NEAR(at(px_tensor_grad(y), 0), 15, 0);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 30, 0);
}

PX_TEST(retained_gradients_follow_inplace_changes) {
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL, *five = VECTOR(5);
  OK(px_mul_scalar(&y, x, px_float(2)));
  OK(px_tensor_retain_grad(y));
  OK(px_mul_(y, five));
  back(y);
  CHECK_NEAR(at(px_tensor_grad(y), 0), 1, 0);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 10, 0);
}

PX_TEST(retained_gradients_accumulate) {
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL, *z = NULL, *first = NULL, *dx = NULL;
  OK(px_mul_scalar(&y, x, px_float(2)));
  OK(px_tensor_retain_grad(y));
  OK(px_mul_scalar(&z, y, px_float(3)));
  OK(px_backward(1, &z, NULL, true, false));
  first = px_retain(px_tensor_grad(y));
  OK(px_backward(1, &z, NULL, true, false));
  CHECK_NEAR(at(px_tensor_grad(y), 0), 6, 0);
  CHECK_NEAR(at(first, 0), 3, 0);  // not modified in place
  OK(px_grad(&dx, 1, &z, NULL, 1, &x, true, false, false));
  CHECK_NEAR(at(px_tensor_grad(y), 0), 9, 0);
  OK(px_tensor_set_grad(y, NULL));
  back(z);
  CHECK_NEAR(at(px_tensor_grad(y), 0), 3, 0);
}

static void retain_with_create_graph(void) {
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL, *z = NULL, *dx = NULL;
  OK(px_mul_scalar(&y, x, px_float(2)));
  OK(px_tensor_retain_grad(y));
  OK(px_tanh(&z, y));
  OK(px_grad(&dx, 1, &z, NULL, 1, &x, true, true, false));
  CHECK(px_tensor_requires_grad(px_tensor_grad(y)));
}

PX_TEST(a_retained_gradient_with_a_graph_does_not_leak) {
  int64_t objects = px_live_objects(NULL);
  retain_with_create_graph();
  CHECK_EQ(px_live_objects(NULL), objects);
}

PX_TEST(no_gradient_is_retained_for_a_released_tensor) {
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL, *z = NULL;
  OK(px_mul_scalar(&y, x, px_float(2)));
  OK(px_tensor_retain_grad(y));
  OK(px_mul_scalar(&z, y, px_float(3)));
  px_release(PX_MOVE(y));
  back(z);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 6, 0);
}

static px_status note_grad(px_tensor *self, void *context) {
  *(double *)context = at(px_tensor_grad(self), 0);
  return PX_OK;
}

PX_TEST(hooks_run_after_accumulation) {
  double seen = 0;
  int64_t id;
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL;
  OK(px_tensor_add_accumulated_hook(&id, x, note_grad, &seen, NULL));
  OK(px_mul_scalar(&y, x, px_float(4)));
  back(y);
  CHECK_NEAR(seen, 4, 0);
}

// ---- nested and concurrent calls

static px_status inner_backward(px_tensor **out, px_tensor *grad, void *context) {
  px_tensor *x = context, *y = NULL;
  bool before = px_grad_enabled();
  px_grad_set_enabled(true);
  OK(px_mul(&y, x, x));
  back(y);
  px_grad_set_enabled(before);
  px_release(y);
  return PX_OK;
}

PX_TEST(backward_inside_backward) {
  int64_t id;
  PX_SCOPED(px_tensor) x = LEAF(3), *inner = LEAF(4), *y = NULL;
  OK(px_mul(&y, x, x));
  OK(px_tensor_add_hook(&id, y, inner_backward, inner, NULL));
  back(y);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 6, 0);
  CHECK_NEAR(at(px_tensor_grad(inner), 0), 8, 0);
}

static void *many_backwards(void *leaf) {
  for (int i = 0; i < 200; i++) {
    px_tensor *y = NULL;
    OK(px_mul_scalar(&y, leaf, px_float(1)));
    back(y);
    px_release(y);
  }
  return NULL;
}

PX_TEST(threads_share_a_leaf) {
  PX_SCOPED(px_tensor) x = LEAF(1);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, many_backwards, x);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 800, 0);
}

static void *many_retaining(void *root) {
  px_tensor *y = root;
  for (int i = 0; i < 200; i++) OK(px_backward(1, &y, NULL, true, false));
  return NULL;
}

PX_TEST(threads_share_a_graph) {
  PX_SCOPED(px_tensor) x = LEAF(2), *y = NULL;
  OK(px_mul(&y, x, x));
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, many_retaining, y);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 3200, 0);
}

// ---- gradcheck

static px_status cube(px_tensor **out, px_tensor *const *in, void *context) {
  PX_SCOPED(px_tensor) square = NULL;
  PX_TRY(px_mul(&square, in[0], in[0]));
  return px_mul(out, square, in[0]);
}
static px_status wrong_cube(px_tensor **out, px_tensor *const *in, void *context) {
  twice *t = context;
  PX_TRY(px_tensor_detach(out, in[0]));
  return px_function_record(&doubling, t, 1, in, 1, out);
}

PX_TEST(gradcheck_accepts_right_and_rejects_wrong_gradients) {
  double values[] = {0.3, -1.2, 2};
  PX_SCOPED(px_tensor) x = NULL;
  twice t = {0};
  OK(px_tensor_from_data(&x, values, 1, (int64_t[]){3}, PX_FLOAT64, px_cpu()));
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_gradcheck(cube, NULL, 1, &x, 1e-6, 1e-5, 1e-3));
  OK(px_gradgradcheck(cube, NULL, 1, &x, 1e-6, 1e-5, 1e-3));
  FAILS(px_gradcheck(wrong_cube, &t, 1, &x, 1e-6, 1e-5, 1e-3), PX_RUNTIME,
        "Jacobian mismatch for output 0 with respect to input 0");
}

// ---- failures

static px_status forward_and_back(px_tensor *x, px_tensor *w) {
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_TRY(px_mul(&y, x, w));
  PX_TRY(px_select(&part, y, 0, 0));
  PX_TRY(px_exp_(part));
  PX_TRY(px_tensor_retain_grad(y));
  PX_TRY(px_sum(&total, y, NULL, 0, false, PX_DTYPE_NONE));
  return px_backward(1, &total, NULL, false, true);
}

PX_TEST(every_failed_allocation_is_an_error) {
  int64_t nodes = px_live_objects("node");
  int64_t n = 1;
  for (bool failed = true; failed; n++) {
    PX_SCOPED(px_tensor) x = LEAF(1, 2), *w = LEAF(3, 4);
    OK(px_fault_arm("alloc", n, false));
    failed = forward_and_back(x, w) != PX_OK;
    px_fault_disarm_all();
    if (failed) CHECK_EQ(px_error_last()->code, PX_NOMEM);
    px_error_clear();
    OK(px_tensor_set_grad(x, NULL));  // with create_graph, gradients hold the graph
    OK(px_tensor_set_grad(w, NULL));
    px_release(PX_MOVE(x)), px_release(PX_MOVE(w));
    CHECK_EQ(px_live_objects("node"), nodes);
  }
  CHECK(n > 10);
}
