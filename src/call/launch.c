// SPDX-License-Identifier: Apache-2.0
// Launches of calls: kernels by op and device type, operands, memory accesses.
#include "call/call_impl.h"

const int64_t px__zero_strides[PX_MAX_DIMS];

px_kernel px__op_kernel_find(const px_op *op, px_device_type type) {
  if (px__kernels_ready(type) != PX_OK) return NULL;  // px__no_kernel returns the error
  px_kernel k = PX_LIKELY(!px__impl(op)->registered) ? px__kernel_find(type, px__kernel_name(op))
                                                     : px__registered_kernel_find(op, type);
  if (k) __atomic_store_n(&px__impl(op)->found[type], k, __ATOMIC_RELAXED);
  return k;
}

px_status px__no_kernel(const px_op *op, px_dtype dtype, px_device_type type) {
  PX_TRY(px__kernels_ready(type));
  bool known = dtype != PX_DTYPE_NONE;
  PX_FAIL(PX_UNIMPLEMENTED, "%s has no kernel for device type %s%s%s%s", op->name,
          px_device_type_name((int)type), known ? " (dtype " : "",
          known ? px_dtype_name(dtype) : "", known ? ")" : "");
}

void px__immediate(px_operand *operand, px_scalar value, px_dtype dtype, int ndim,
                   const int64_t *sizes) {
  operand->data = operand->value;
  operand->sizes = sizes;
  operand->strides = px__zero_strides;
  operand->ndim = ndim;
  operand->dtype = dtype;
  operand->immediate = true;
  px_scalar_store(value, dtype, operand->value);
}

void px__launch_count(px_launch *l, const px_call *call) {
  if (px__impl(call->op)->work) l->work = px__impl(call->op)->work(call);
  if (l->work && px__call_watched(PX__WATCH_FLOPS)) px__profile_flops(l->work);
  const px__op_impl *impl = px__impl(call->op);
  px_op_flop_callback counted = __atomic_load_n(&px__flop_counter, __ATOMIC_ACQUIRE);
  if (impl->flops && counted)
    counted(impl->flops, impl->counted(call), (px_device_type)call->device.type);
}

// A launch under construction.
typedef struct builder {
  px_device device;
  uint32_t dtypes;  // bit: the kernel supports the dtype; checked only from PX_DTYPE_COMPUTED on
  int n, uses;
  px_operand operands[PX_MAX_OPERANDS];
  px_access accesses[PX_MAX_OPERANDS];
  int64_t transposed[2][2];  // sizes and strides of the transposed operand
} builder;

// Passes a 0-dim CPU tensor by value to a launch on a device.
static px_status add_value(builder *x, const px_tensor *t) {
  px_scalar value;
  PX_TRY(px_tensor_item(&value, t));
  px__immediate(&x->operands[x->n++], value, (px_dtype)t->dtype, 0, t->sizes);
  return PX_OK;
}

// noinline: rare on the CPU, and would cost the caller saved registers.
static __attribute__((noinline)) void note(builder *x, const px_tensor *t, bool write) {
  px__note_access(x->accesses, &x->uses, x->device, t, write);
}
static inline void add_tensor(builder *x, const px_tensor *t, bool write) {
  px__operand_of(&x->operands[x->n++], t);
  if (PX_UNLIKELY(!px__access_untracked(x->device, t))) note(x, t, write);
}

// Adds an operand with the checks that `list` skips.
static __attribute__((noinline)) px_status add_checked(builder *x, const char *op,
                                                       const px_tensor *t, bool write) {
  PX_CHECK(x->n < PX_MAX_OPERANDS, PX_VALUE, "%s: a kernel can have at most %d tensors", op,
           PX_MAX_OPERANDS);
  PX_TRY(px__check_not_batched(t));
  PX_TRY(px__storage_ready(t->storage));
  PX_CHECK(t->dtype < PX_DTYPE_COMPUTED || x->dtypes >> t->dtype & 1, PX_UNIMPLEMENTED,
           "\"%s\" not implemented for '%s'", op, px_dtype_class((px_dtype)t->dtype));
  if (x->device.type != PX_CPU && px__tensor_device(t).type == PX_CPU && t->ndim == 0) {
    PX_CHECK(!write, PX_RUNTIME, "%s: a device kernel cannot write to a 0-dim CPU tensor", op);
    return add_value(x, t);
  }
  return add_tensor(x, t, write), PX_OK;
}

// Adds an operand of a kernel that is not pointwise.
static inline px_status add_operand(builder *x, const char *op, const px_tensor *t, bool write) {
  bool fits = x->n < PX_MAX_OPERANDS;
  if (!t && PX_LIKELY(fits))
    return x->operands[x->n++] = (px_operand){.dtype = PX_DTYPE_NONE}, PX_OK;
  bool simple = fits && t->dtype < PX_DTYPE_COMPUTED && !px__is_batched(t) &&
                !px__is_deferred(t->storage) && (x->device.type == PX_CPU || t->ndim > 0);
  if (PX_UNLIKELY(!simple)) return add_checked(x, op, t, write);
  return add_tensor(x, t, write), PX_OK;
}

// Transposes the last operand, a matrix.
static void transpose(builder *x) {
  px_operand *o = &x->operands[x->n - 1];
  for (int d = 0; d < 2; d++) {
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the op demands this operand
    x->transposed[0][d] = o->sizes[1 - d];
    x->transposed[1][d] = o->strides[1 - d];
  }
  o->sizes = x->transposed[0], o->strides = x->transposed[1];
}

static px_status launch_built(px_launch *l, builder *x) {
  l->operands = x->operands;
  l->operand_count = x->n;
  return px__launch(x->device, l, x->accesses, x->uses);
}

px_status px__run_kernel(px__named_kernel *kernel, px_device device, int result_count,
                         px_tensor *const *results, int input_count, px_tensor *const *inputs,
                         const px_value *params, int param_count) {
  const char *name = kernel->name;
  px_launch l = {.op = name,
                 .params = params,
                 .param_count = param_count,
                 .compute = PX_DTYPE_NONE,
                 .kernel = px__named_kernel_on(kernel, (px_device_type)device.type)};
  PX_CHECK(l.kernel, PX_UNIMPLEMENTED, "%s has no kernel for device type %s (dtype %s)", name,
           px_device_type_name(device.type),
           result_count && results[0] ? px_dtype_name((px_dtype)results[0]->dtype) : "none");
  builder x;
  x.device = device, x.dtypes = kernel->moves ? UINT32_MAX : 0, x.n = x.uses = 0;
  for (int i = 0; i < result_count; i++) PX_TRY(add_operand(&x, name, results[i], true));
  for (int i = 0; i < input_count; i++) PX_TRY(add_operand(&x, name, inputs[i], false));
  return launch_built(&l, &x);
}

static px_status add_operands(builder *x, const px_call *call) {
  const px_op *op = call->op;
  int transposed = px__impl(op)->transposed;
  x->device = call->device, x->dtypes = px__impl(op)->dtypes, x->n = x->uses = 0;
  for (int i = 0; i < op->result_count; i++)
    PX_TRY(add_operand(x, op->name, call->results[i], true));
  for (int i = 0; i < op->param_count; i++) {
    const px_value *a = &call->args[i];
    if (op->params[i].kind == PX_ARG_TENSOR) {
      PX_TRY(add_operand(x, op->name, a->kind == PX_ARG_TENSOR ? a->v.tensor : NULL, false));
      if (PX_UNLIKELY(transposed != 0 && transposed == i)) transpose(x);
    }
    for (int k = 0; a->kind == PX_ARG_TENSORS && k < a->n; k++)
      PX_TRY(add_operand(x, op->name, a->v.tensors[k], false));
  }
  return PX_OK;
}

px_status px__launch_call_as(px_call *call, px_dtype compute) {
  const px_op *op = call->op;
  px_launch l;
  px__launch_start(&l, call, compute);
  if (PX_UNLIKELY(!l.kernel))
    return px__no_kernel(op, call->results[0] ? (px_dtype)call->results[0]->dtype : PX_DTYPE_NONE,
                         (px_device_type)call->device.type);
  builder x;
  PX_TRY(add_operands(&x, call));
  if (call->uses_random) {
    l.blocks = call->blocks;
    PX_TRY(px__generator_use(&l, call->generator, call->device, call->counter));
  }
  return launch_built(&l, &x);
}

px_status px__launch_call(px_call *call) { return px__launch_call_as(call, PX_DTYPE_NONE); }

// Random numbers on devices depend on the number of blocks launched by PyTorch.
px_status px__call_draws(px_call *call, px_generator *generator, int64_t n, int64_t each) {
  enum { BLOCK = 256 };
  px_device_properties p;
  if (generator) PX_TRY(px__generator_fits(generator, call->device));
  call->generator = generator, call->uses_random = true;
  call->blocks = 1, call->counter = 0;
  if (call->device.type != PX_CUDA || n <= 0) return PX_OK;
  PX_TRY(px_device_get_properties(&p, call->device.index));
  int64_t max_blocks =
      (int64_t)p.multi_processor_count * (p.max_threads_per_multi_processor / BLOCK);
  int64_t needed = (n - 1) / BLOCK + 1;
  call->blocks = needed < max_blocks ? needed : max_blocks;
  call->counter = (uint64_t)((n - 1) / (BLOCK * call->blocks * each) + 1) * 4;
  return PX_OK;
}
px_status px__call_draws_words(px_call *call, px_generator *generator, int64_t n, uint64_t words) {
  PX_TRY(px__call_draws(call, generator, n, 1));
  if (call->counter) call->counter = (words + 3) / 4 * 4;
  return PX_OK;
}
