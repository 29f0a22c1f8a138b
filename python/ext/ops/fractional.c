// SPDX-License-Identifier: Apache-2.0
// Fractional pooling of nn.functional: argument processing of PyTorch's functions. The op itself
// takes a size and samples.
#include "bind/ext.h"
#include "phlox/ops/random.h"
#include "phlox/ops/volume.h"

enum { DIMS = 3 };

// The given sizes, or the input's sizes times the ratios.
static int sizes_of(ext_ints *out, int dims, const px_tensor *x, PyObject *size, PyObject *ratio) {
  bool sized = !ext_is_none(size), single = !ext_is_none(ratio) && !PySequence_Check(ratio);
  if (!sized && ext_is_none(ratio))
    EXT_FAIL_INT(PyExc_ValueError,
                 "fractional_max_pool%dd requires specifying either an output_size or an "
                 "output_ratio",
                 dims);
  if (sized) return ext_to_ints(size, out);
  EXT_OWNED *ratios = single ? PyTuple_Pack(1, ratio) : PySequence_Tuple(ratio);
  if (!ratios) return -1;
  if (!single && PyTuple_GET_SIZE(ratios) != dims)
    EXT_FAIL_INT(PyExc_ValueError,
                 "fractional_max_pool%dd requires output_ratio to either be a single Int or tuple "
                 "of Ints.",
                 dims);
  out->count = dims;
  for (int k = 0; k < dims; k++) {
    double part;
    if (ext_to_double(PyTuple_GET_ITEM(ratios, single ? 0 : k), &part) < 0) return -1;
    out->items[k] = (int64_t)((double)px_tensor_size(x, k - dims) * part);
  }
  return 0;
}

// Samples per plane, drawn unless given; a new reference.
static px_status samples_of(px_tensor **out, int dims, const px_tensor *x, px_tensor *given) {
  int64_t sizes[] = {px_tensor_ndim(x) == dims + 1 ? 1 : px_tensor_size(x, 0),
                     px_tensor_size(x, -1 - dims), dims};
  if (given) return *out = px_retain(given), PX_OK;
  return px_rand(out, sizes, 3, NULL, px_tensor_dtype(x), px_tensor_device(x), false, false);
}

static PyObject *fractional(int dims, px_tensor *x, const ext_ints *kernel, PyObject *size,
                            PyObject *ratio, px_tensor *given, bool both) {
  PX_SCOPED(px_tensor) samples = NULL;
  px_tensor *output, *indices;
  ext_ints sizes;
  int ndim = px_tensor_ndim(x);
  if (ndim != dims + 1 && ndim != dims + 2)
    EXT_FAIL(PyExc_IndexError,
             "fractional_max_pool%dd(): expected %dD or %dD input, but got %d dimensions", dims,
             dims + 1, dims + 2, ndim);
  if (sizes_of(&sizes, dims, x, size, ratio) < 0) return NULL;
  EXT_TRY(samples_of(&samples, dims, x, given));
  EXT_WAIT((dims == 2 ? px_fractional_max_pool2d : px_fractional_max_pool3d)(
      &output, &indices, x, kernel->items, kernel->count, sizes.items, sizes.count, samples));
  EXT_OWNED *first = ext_wrap(output);
  EXT_OWNED *second = ext_wrap(indices);
  return !first || !second ? NULL : both ? PyTuple_Pack(2, first, second) : ext_moved(&first);
}

#define SIGNATURE \
  "(input: Tensor, kernel_size: int | tuple[int, ...], output_size: int | tuple[int, ...] | None " \
  "= None, output_ratio: float | tuple[float, ...] | None = None, return_indices: bool = False, " \
  "_random_samples: Tensor | None = None) -> "
#define POOL(function, dims, always, result, text) \
  EXT_FUNCTION(nn_functional, function, SIGNATURE result, text) { \
    px_tensor *input, *_random_samples; \
    ext_ints kernel_size; \
    PyObject *output_size, *output_ratio; \
    bool return_indices; \
    EXT_BIND(input, kernel_size, output_size, output_ratio, return_indices, _random_samples); \
    return fractional(dims, input, &kernel_size, output_size, output_ratio, _random_samples, \
                      always || return_indices); \
  }
#define TEXT \
  "Applies fractional max pooling over an input (Graham 2015); with return_indices also returns " \
  "indices.\n\n" \
  "Args:\n" \
  "    output_size, output_ratio: the target output size, absolute or as a fraction of the " \
  "input size\n" \
  "    _random_samples: samples determining the windows; None: drawn\n"
POOL(fractional_max_pool2d, 2, false, "Tensor | tuple[Tensor, Tensor]",
     TEXT
     "\n>>> torch.nn.functional.fractional_max_pool2d(torch.randn(2, 3, 8, 9), 2, (4, 5)).shape\n"
     "torch.Size([2, 3, 4, 5])\n")
POOL(fractional_max_pool3d, 3, false, "Tensor | tuple[Tensor, Tensor]", TEXT)
POOL(fractional_max_pool2d_with_indices, 2, true, "tuple[Tensor, Tensor]", TEXT)
POOL(fractional_max_pool3d_with_indices, 3, true, "tuple[Tensor, Tensor]", TEXT)
