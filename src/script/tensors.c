// SPDX-License-Identifier: Apache-2.0
// Functions of tensors that are not ops of the library, or have other arguments there.
#include <stdio.h>

#include "phlox/autograd.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"
#include "script/script_impl.h"

// ---- properties

static px_status sizes(px__var *out, px_script *script, const int64_t *from, int count) {
  PX_TRY(px__box_new(out, script, PX__LIST));
  for (int i = 0; i < count; i++) PX_TRY(px__push(out->v.box, px__of_int(from[i])));
  return PX_OK;
}

static px_status size_at(px__var *out, const px_tensor *t, const int64_t *from, int64_t dim) {
  int ndim = px_tensor_ndim(t);
  PX_CHECK(dim >= -ndim && dim < ndim, PX_INDEX,
           "Dimension out of range (expected to be in range of [%d, %d], but got %lld)", -ndim,
           ndim - 1, (long long)dim);
  return *out = px__of_int(from[dim < 0 ? dim + ndim : dim]), PX_OK;
}

static px_status item(px__var *out, const char *name, const px_tensor *t) {
  px_scalar s;
  if (px_dtype_is_complex(px_tensor_dtype(t))) {
    *out = (px__var){.sort = PX__COMPLEX};
    return px_tensor_item_complex(&out->v.c, t);
  }
  PX_TRY(px_tensor_item(&s, t));
  *out = s.kind == 'f'   ? px__of_float(s.v.f)
         : s.kind == 'b' ? px__of_bool(s.v.i != 0)
                         : px__of_int(s.v.i);
  if (*name == 'I' || *name == 'i') {
    bool integer = px__is(name, "item");
    if (!integer) *out = px__of_int(px_scalar_int(s));
  }
  if (*name == 'F' || *name == 'f') *out = px__of_float(px_scalar_float(s));
  if (*name == 'B' || *name == 'b') *out = px__of_bool(px_scalar_float(s) != 0);
  return PX_OK;
}

static bool is_item(const char *name) {
  static const char *const names[] = {"item",          "Int",           "int",  "Float",
                                      "float",         "Bool",          "bool", "IntImplicit",
                                      "FloatImplicit", "ScalarImplicit"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (px__is(name, names[i])) return true;
  return false;
}

static px_status property(px__var *out, px_script *script, const char *name, px_tensor *t,
                          bool *known) {
  int ndim = px_tensor_ndim(t);
  px_dtype dtype = px_tensor_dtype(t);
  if (is_item(name)) return item(out, px__is(name, "ScalarImplicit") ? "item" : name, t);
  if (px__is(name, "size") || px__is(name, "shape"))
    return sizes(out, script, px_tensor_sizes(t), ndim);
  if (px__is(name, "stride")) return sizes(out, script, px_tensor_strides(t), ndim);
  if (px__is(name, "dim") || px__is(name, "ndim") || px__is(name, "ndimension"))
    return *out = px__of_int(ndim), PX_OK;
  if (px__is(name, "numel")) return *out = px__of_int(px_tensor_numel(t)), PX_OK;
  if (px__is(name, "dtype")) return *out = px__of_int(px__dtype_number(dtype)), PX_OK;
  if (px__is(name, "layout")) return *out = px__of_int(0), PX_OK;
  if (px__is(name, "device"))
    return *out = (px__var){PX__DEVICE, {.device = px_tensor_device(t)}}, PX_OK;
  if (px__is(name, "is_cuda")) return *out = px__of_bool(px_tensor_is_cuda(t)), PX_OK;
  if (px__is(name, "requires_grad")) return *out = px__of_bool(px_tensor_requires_grad(t)), PX_OK;
  if (px__is(name, "is_contiguous")) return *out = px__of_bool(px_tensor_is_contiguous(t)), PX_OK;
  if (px__is(name, "is_floating_point")) return *out = px__of_bool(px_dtype_is_float(dtype)), PX_OK;
  if (px__is(name, "is_complex")) return *out = px__of_bool(px_dtype_is_complex(dtype)), PX_OK;
  if (px__is(name, "element_size")) return *out = px__of_int((int64_t)px_dtype_size(dtype)), PX_OK;
  if (px__is(name, "storage_offset")) return *out = px__of_int(px_tensor_offset(t)), PX_OK;
  bool never = px__is(name, "is_sparse") || px__is(name, "is_quantized") ||
               px__is(name, "is_mkldnn") || px__is(name, "is_nested") || px__is(name, "is_meta");
  if (never) return *out = px__of_bool(false), PX_OK;
  if (px__is(name, "len")) {
    PX_CHECK(ndim, PX_TYPE, "len() of a 0-d tensor");
    return *out = px__of_int(px_tensor_size(t, 0)), PX_OK;
  }
  if (px__is(name, "list")) {  // of a loop
    PX_TRY(px__box_new(out, script, PX__LIST));
    for (int64_t i = 0; ndim && i < px_tensor_size(t, 0); i++) {
      PX__SCOPED_VAR row = {PX__TENSOR, {.tensor = NULL}};
      PX_TRY(px_select(&row.v.tensor, t, 0, i));
      PX_TRY(px__push(out->v.box, row));
    }
    return PX_OK;
  }
  *known = false;
  return PX_OK;
}

static px_status derived(px__var *out, const char *name, px_tensor *t, bool *known) {
  px_tensor *made = NULL;
  if (px__is(name, "data"))
    PX_TRY(px_tensor_alias(&made, t));
  else if (px__is(name, "detach"))
    PX_TRY(px_tensor_detach(&made, t));
  else if (px__is(name, "cpu"))
    PX_TRY(px_to(&made, t, PX_DTYPE_NONE, px_cpu(), false, false));
  else if (px__is(name, "detach_") || px__is(name, "alias") || px__is(name, "lift_fresh"))
    made = px_retain(t);
  else
    return *known = false, PX_OK;
  return *out = px__of_tensor(made), PX_OK;
}

// ---- indices

typedef struct indices {
  px_tensor *tensors[PX_MAX_DIMS];
  int64_t dims[PX_MAX_DIMS];
  int64_t count;
} indices;

// [i, None, j]: None keeps a dimension; a mask takes all of its own.
static px_status read_indices(indices *to, const px__box *list) {
  int64_t dim = 0;
  *to = (indices){.count = 0};
  for (int64_t i = 0; i < list->count; i++) {
    px__var index = list->items[i];
    PX_CHECK((index.sort == PX__TENSOR || index.sort == PX__NONE) && to->count < PX_MAX_DIMS,
             PX_INDEX, "expected a list of tensors as indices");
    if (index.sort == PX__NONE) {
      dim++;
      continue;
    }
    to->tensors[to->count] = index.v.tensor;
    to->dims[to->count++] = dim;
    px_dtype dtype = px_tensor_dtype(index.v.tensor);
    dim += dtype == PX_BOOL || dtype == PX_UINT8 ? px_tensor_ndim(index.v.tensor) : 1;
  }
  return PX_OK;
}

static px_status call_index(px__var *out, const char *name, px_tensor *t, const px__var *given,
                            int count) {
  indices at;
  px_tensor *made = NULL;
  PX_TRY(read_indices(&at, given[1].v.box));
  if (px__is(name, "index")) {
    PX_TRY(px_index(&made, t, at.tensors, at.count, at.dims, at.count));
    return *out = px__of_tensor(made), PX_OK;
  }
  PX_CHECK(count > 2 && given[2].sort == PX__TENSOR, PX_TYPE,
           "index_put() expects a tensor of values");
  bool accumulate = count > 3 && given[3].sort == PX__BOOL && given[3].v.i;
  if (px__is(name, "index_put")) {
    PX_TRY(px_index_put(&made, t, at.tensors, at.count, at.dims, at.count, given[2].v.tensor,
                        accumulate));
  } else {
    PX_TRY(
        px_index_put_(t, at.tensors, at.count, at.dims, at.count, given[2].v.tensor, accumulate));
    made = px_retain(t);
  }
  return *out = px__of_tensor(made), PX_OK;
}

// ---- new tensors

typedef struct nested {
  int ndim;
  int64_t sizes[PX_MAX_DIMS], count;
  px__sort sort;
  px__string elements;  // px__var
} nested;

static px_status gather(nested *n, px__var value, int depth) {
  if (value.sort != PX__LIST) {
    bool number = px__is_number(value) || value.sort == PX__COMPLEX;
    PX_CHECK(number && depth == n->ndim, PX_VALUE,
             "tensor() expects numbers in lists of equal length");
    if (value.sort > n->sort) n->sort = value.sort;
    n->count++;
    return px__string_add(&n->elements, (const char *)&value, sizeof value);
  }
  PX_CHECK(depth < PX_MAX_DIMS, PX_VALUE, "too many dimensions");
  if (depth == n->ndim && !n->count) n->sizes[n->ndim++] = value.v.box->count;
  PX_CHECK(depth < n->ndim && n->sizes[depth] == value.v.box->count, PX_VALUE,
           "tensor() expects numbers in lists of equal length");
  for (int64_t i = 0; i < value.v.box->count; i++)
    PX_TRY(gather(n, value.v.box->items[i], depth + 1));
  return PX_OK;
}

static px_status fill(px_tensor **out, const nested *n, px_dtype dtype, px_device device) {
  size_t size = px_dtype_size(dtype);
  char *data;
  PX_TRY(px_alloc((void **)&data, (size_t)n->count * size + 1));
  for (int64_t i = 0; i < n->count; i++) {
    px__var v;
    memcpy(&v, n->elements.text + (size_t)i * sizeof v, sizeof v);
    px_complex c = v.sort == PX__COMPLEX ? v.v.c : (px_complex){px__to_float(v), 0};
    if (px_dtype_is_complex(dtype))
      px_complex_store(c, dtype, data + (size_t)i * size);
    else
      px_scalar_store(v.sort == PX__COMPLEX ? px_float(c.real) : px__to_scalar(v), dtype,
                      data + (size_t)i * size);
  }
  px_status status = px_tensor_from_data(out, data, n->ndim, n->sizes, dtype, device);
  px_free(data);
  return status;
}

// tensor(value, dtype, device, requires_grad)
static px_status new_tensor(px__var *out, const px__var *given, int count) {
  nested n = {.sort = PX__UNSET};
  px_tensor *made = NULL;
  px_status status = gather(&n, given[0], 0);
  px_dtype dtype = n.sort == PX__BOOL      ? PX_BOOL
                   : n.sort == PX__INT     ? PX_INT64
                   : n.sort == PX__COMPLEX ? px_dtype_to_complex(px_dtype_default())
                                           : px_dtype_default();
  if (count > 1 && given[1].sort == PX__INT) dtype = px__dtype_of(given[1].v.i);
  px_device device = count > 2 && given[2].sort == PX__DEVICE ? given[2].v.device : px_cpu();
  if (status == PX_OK && dtype == PX_DTYPE_NONE)
    status = px_error_set(PX_TYPE, 0, __FILE__, __LINE__, __func__, "tensor(): unknown dtype %lld",
                          (long long)given[1].v.i);
  if (status == PX_OK) status = fill(&made, &n, dtype, device);
  px__string_free(&n.elements);
  PX_TRY(status);
  *out = px__of_tensor(made);
  bool grad = count > 3 && given[3].sort == PX__BOOL && given[3].v.i;
  return grad ? px_tensor_set_requires_grad(made, true) : PX_OK;
}

// to(x, dtype or device or other, ...): the types of the arguments select the form.
static px_status convert(px__var *out, px_tensor *t, const px__var *given, int count) {
  px_dtype dtype = PX_DTYPE_NONE;
  px_device device = PX_DEVICE_NONE;
  bool flags[2] = {false, false};
  int flag = 0;
  px_tensor *made;
  for (int i = 1; i < count; i++) {
    if (given[i].sort == PX__DEVICE) device = given[i].v.device;
    if (given[i].sort == PX__TEXT) PX_TRY(px_device_parse(&device, given[i].v.box->text));
    if (given[i].sort == PX__BOOL && flag < 2) flags[flag++] = given[i].v.i;
    if (given[i].sort == PX__INT && dtype == PX_DTYPE_NONE && !flag) {
      dtype = px__dtype_of(given[i].v.i);
      PX_CHECK(dtype != PX_DTYPE_NONE, PX_TYPE, "to(): unknown dtype %lld",
               (long long)given[i].v.i);
    }
    if (given[i].sort == PX__TENSOR) {
      dtype = px_tensor_dtype(given[i].v.tensor);
      device = px_tensor_device(given[i].v.tensor);
    }
  }
  PX_TRY(px_to(&made, t, dtype, device, flags[0], flags[1]));
  return *out = px__of_tensor(made), PX_OK;
}

px_status px__call_tensors(px__var *out, px_script *script, const char *name, const px__var *given,
                           int count, bool *known) {
  if (!count) return PX_OK;
  *known = true;
  bool value = px__is_number(given[0]) || given[0].sort == PX__COMPLEX || given[0].sort == PX__LIST;
  if (px__is(name, "tensor") && value) return new_tensor(out, given, count);
  if (px__is(name, "NumToTensor") && value) return new_tensor(out, given, 1);
  if (px__is(name, "ScalarImplicit") || px__is(name, "IntImplicit") ||
      px__is(name, "FloatImplicit"))
    if (px__is_number(given[0])) return *out = given[0], PX_OK;
  *known = false;
  if (given[0].sort != PX__TENSOR) return PX_OK;
  px_tensor *t = given[0].v.tensor;
  *known = true;
  if (count == 1) {
    PX_TRY(property(out, script, name, t, known));
    if (*known) return PX_OK;
    *known = true;
    return derived(out, name, t, known);
  }
  if (px__is(name, "tensor")) return convert(out, t, given, count);
  if (px__is(name, "to")) return convert(out, t, given, count);
  if (px__is(name, "size") && count == 2 && given[1].sort == PX__INT)
    return size_at(out, t, px_tensor_sizes(t), given[1].v.i);
  if (px__is(name, "stride") && count == 2 && given[1].sort == PX__INT)
    return size_at(out, t, px_tensor_strides(t), given[1].v.i);
  bool indexes = px__is(name, "index") || px__is(name, "index_put") || px__is(name, "index_put_");
  if (indexes && given[1].sort == PX__LIST) return call_index(out, name, t, given, count);
  if (px__is(name, "requires_grad_") && given[1].sort == PX__BOOL) {
    PX_TRY(px_tensor_set_requires_grad(t, given[1].v.i));
    return *out = px__var_keep(given[0]), PX_OK;
  }
  if (px__is(name, "__getitem__")) return px__subscript(out, script, given[0], given[1]);
  *known = false;
  return PX_OK;
}
