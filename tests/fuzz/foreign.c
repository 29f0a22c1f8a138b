// SPDX-License-Identifier: Apache-2.0
// Foreign memory: px_tensor_wrap and px_dlpack_import_take over buffers of exact size, with any
// strides, unaligned or read-only, and invalid DLPack structures. A successful call releases the
// memory to the exporter exactly once. A failed call never does.
#include "fuzz.h"

#include "devices.h"
#include "phlox/dlpack.h"

#include <sys/mman.h>

enum { DIMS = 5, MAX_BYTES = 4096 };

// An exported tensor: the struct, and memory that ends after its last element.
typedef struct export {
  px_dl_managed managed;
  int64_t sizes[DIMS], strides[DIMS];
  px_dtype dtype;
  size_t bytes;       // from the first element to the end of the last
  char *memory, *at;  // the allocation, and the first element
  size_t mapped;      // nonzero: read-only pages of this size
  int returned;
}
export;

static void count_return(px_dl_managed *managed) { ((export *)managed->manager_ctx)->returned++; }

static void prepare(void) {
  static bool done;
  if (!done) simulate(2);
  done = true;
}

// ---- valid exports

static int64_t random_geometry(export *l, int *ndim) {
  int64_t last = 0, step = 1;
  bool empty = false, rows = fuzz_one_in(3);
  *ndim = (int)fuzz_below(DIMS);
  for (int d = *ndim - 1; d >= 0; d--) {
    l->sizes[d] = fuzz_one_in(12) ? 0 : 1 + fuzz_below(4);
    l->strides[d] = rows ? step : fuzz_below(9);
    if (l->sizes[d] < 2 && !rows && fuzz_one_in(4)) l->strides[d] = INT64_MAX;
    empty |= l->sizes[d] == 0;
    if (l->sizes[d] > 1) last += (l->sizes[d] - 1) * l->strides[d];
    step *= l->sizes[d] > 1 ? l->sizes[d] : 1;
  }
  return empty ? 0 : last + 1;
}

// Allocates `bytes` bytes after `before` others. A sanitizer catches accesses past either end.
static void random_memory(export *l, size_t before) {
  size_t all = before + l->bytes;
  l->mapped = fuzz_one_in(6) ? all / 4096 * 4096 + 4096 : 0;
  if (l->mapped) {
    l->memory = mmap(NULL, l->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(l->memory != MAP_FAILED);
    l->at = l->memory + l->mapped - all;
  } else {
    l->memory = malloc(all ? all : 1);
    l->at = l->memory + before;
  }
  for (size_t i = 0; i < l->bytes; i++) l->at[i] = (char)fuzz_bits();
  if (l->mapped) CHECK_EQ(mprotect(l->memory, l->mapped, PROT_READ), 0);
}

static void make_export(export *l) {
  *l = (export){.dtype = (px_dtype)fuzz_below(PX_DTYPE_COUNT)};
  const px_dtype_info *about = px_dtype_about(l->dtype);
  int ndim;
  int64_t count = random_geometry(l, &ndim);
  size_t odd = fuzz_one_in(3) ? (size_t)fuzz_below(8) : 0;
  l->bytes = (size_t)count * px_dtype_size(l->dtype);
  random_memory(l, odd);
  size_t offset = fuzz_one_in(2) ? (size_t)(l->at - l->memory) : 0;
  l->managed =
      (px_dl_managed){.dl_tensor = {.data = l->at - offset,
                                    .device = {fuzz_one_in(5) ? 3 : 1, 0},
                                    .ndim = ndim,
                                    .dtype = {about->dlpack, (uint8_t)(8 * about->size), 1},
                                    .shape = l->sizes,
                                    .strides = l->strides,
                                    .byte_offset = offset},
                      .manager_ctx = l,
                      .deleter = count_return};
}

static void free_export(export *l) {
  if (l->mapped)
    munmap(l->memory, l->mapped);
  else
    free(l->memory);
}

// ---- expected elements, computed from strides only

// Returns the byte offset of element i in row-major order.
static size_t element_offset(const export *l, int ndim, int64_t i) {
  int64_t at = 0;
  for (int d = ndim - 1; d >= 0; d--) {
    if (l->sizes[d] > 1) at += i % l->sizes[d] * l->strides[d];
    i /= l->sizes[d];
  }
  return (size_t)at * px_dtype_size(l->dtype);
}

static int64_t numel_of(const export *l, int ndim) {
  int64_t numel = 1;
  for (int d = 0; d < ndim; d++) numel *= l->sizes[d];
  return numel;
}

static void same_elements(const export *l, int ndim, const px_tensor *t) {
  static char got[MAX_BYTES * 16];
  size_t size = px_dtype_size(l->dtype);
  int64_t numel = numel_of(l, ndim);
  CHECK_EQ(px_tensor_numel(t), numel);
  CHECK((size_t)numel * size <= sizeof got);
  OK(px_tensor_read(t, got, (size_t)numel * size));
  for (int64_t i = 0; i < numel; i++) {
    const char *mine = l->at + element_offset(l, ndim, i);
    CHECK(l->dtype == PX_BOOL ? !*mine == !got[i] : !memcmp(mine, got + (size_t)i * size, size));
  }
}

// ---- use

// Views, copies and results have the expected elements, also on devices.
static void read_it(const export *l, px_tensor *t) {
  PX_SCOPED(px_tensor) copy = NULL;
  PX_SCOPED(px_tensor) on_device = NULL;
  PX_SCOPED(px_tensor) back = NULL;
  int ndim = px_tensor_ndim(t);
  same_elements(l, ndim, t);
  OK(px_clone(&copy, t, NULL));
  same_elements(l, ndim, copy);
  if (!fuzz_one_in(4)) return;
  OK(px_to(&on_device, t, PX_DTYPE_NONE, px_cuda((int)fuzz_below(2)), fuzz_one_in(2), false));
  OK(px_to(&back, on_device, PX_DTYPE_NONE, px_cpu(), false, false));
  same_elements(l, ndim, back);
}

// Writes zeros to the elements and to no other byte.
static void write_it(export *l, px_tensor *t) {
  static bool element[MAX_BYTES * 16];
  static char before[MAX_BYTES * 16];
  int ndim = px_tensor_ndim(t);
  CHECK(l->bytes <= sizeof before);
  memset(element, 0, l->bytes);
  memcpy(before, l->at, l->bytes);
  for (int64_t i = 0; i < numel_of(l, ndim); i++)
    memset(element + element_offset(l, ndim, i), 1, px_dtype_size(l->dtype));
  if (!fuzz_fine(px_zero_(t))) return;
  for (size_t i = 0; i < l->bytes; i++) CHECK_EQ(l->at[i], element[i] ? 0 : before[i]);
}

static void compute(px_tensor *t) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  char *text = NULL;
  fuzz_fine(px_add(&a, t, t, px_int(1)));
  fuzz_fine(px_sum_all(&b, t, PX_DTYPE_NONE));
  fuzz_fine(px_contiguous(&c, t));
  if (fuzz_fine(px_tensor_text(&text, t, "tensor("))) px_free(text);
}

// Exports the tensor again and imports that. The first export ends after the last import.
static void export_again(px_tensor **t) {
  px_dl_managed *managed;
  px_dl_versioned *versioned;
  px_tensor *again = NULL;
  if (fuzz_one_in(2)) {
    if (!fuzz_fine(px_dlpack_export_versioned(&versioned, *t, NULL, PX_DL_READ_ONLY))) return;
    OK(px_dlpack_import_versioned_take(&again, versioned));
  } else {
    if (!fuzz_fine(px_dlpack_export(&managed, *t, NULL))) return;
    OK(px_dlpack_import_take(&again, managed));
  }
  px_release(*t);
  *t = again;
}

static void use(export *l, px_tensor **t) {
  if (fuzz_one_in(4)) export_again(t);
  read_it(l, *t);
  compute(*t);
  if (!l->mapped) write_it(l, *t);
}

FUZZ(dlpack_imports) {
  export l;
  px_tensor *t = NULL;
  prepare();
  make_export(&l);
  OK(px_dlpack_import_take(&t, &l.managed));
  use(&l, &t);
  CHECK_EQ(l.returned, 0);
  px_release(t);
  CHECK_EQ(l.returned, 1);
  free_export(&l);
}

static void wrap_back(void *context) { ((export *)context)->returned++; }

// Bounds checks of sizes and strides against the bytes are exact.
FUZZ(wrapped_memory) {
  export l;
  px_tensor *t = NULL;
  prepare();
  make_export(&l);
  int ndim = l.managed.dl_tensor.ndim;
  size_t claimed_bytes = l.bytes && fuzz_one_in(3) ? (size_t)fuzz_below((int64_t)l.bytes) : l.bytes;
  bool good = fuzz_fine(px_tensor_wrap(&t, l.at, claimed_bytes, ndim, l.sizes, l.strides, l.dtype,
                                       px_cpu(), wrap_back, &l));
  CHECK_EQ(good, claimed_bytes == l.bytes);
  if (good) use(&l, &t);
  px_release(t);
  CHECK_EQ(l.returned, good);
  free_export(&l);
}

// ---- invalid structures

static int64_t any_size(void) {
  static const int64_t sizes[] = {-1,        INT64_MIN,        INT64_MAX,        INT32_MAX,
                                  INT32_MIN, (int64_t)1 << 62, (int64_t)1 << 32, 0};
  return sizes[fuzz_below(sizeof sizes / sizeof *sizes)];
}

static void make_invalid(export *l) {
  px_dl_tensor *t = &l->managed.dl_tensor;
  int64_t d = t->ndim > 0 && t->ndim <= DIMS ? fuzz_below(t->ndim) : 0;
  switch (fuzz_below(9)) {
    case 0:
      t->ndim = (int32_t[]){-1, 65, INT32_MAX, INT32_MIN, 66}[fuzz_below(5)];
      break;
    case 1:
      t->shape = NULL;
      break;
    case 2:
      l->sizes[d] = any_size();
      break;
    case 3:
      l->strides[d] = any_size();
      break;
    case 4:
      t->dtype =
          (px_dl_dtype){(uint8_t)fuzz_below(9), (uint8_t)fuzz_bits(), (uint16_t)fuzz_below(3)};
      break;
    case 5:
      t->device.device_type = (int32_t)fuzz_int();
      if (t->device.device_type == 2) t->device.device_id = (int32_t)any_size();
      break;
    case 6:
      t->byte_offset = (uint64_t)any_size();
      break;
    case 7:
      t->data = NULL;
      break;
    default:
      l->managed.deleter = NULL;
  }
}

// Sizes and strides may be plausible but wrong, which no check can detect. Therefore the test reads
// metadata and no elements.
static void read_metadata(const px_tensor *t) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  fuzz_fine(px_transpose(&a, t, fuzz_int(), fuzz_int()));
  fuzz_fine(px_select(&b, t, fuzz_int(), fuzz_int()));
  int64_t begin = fuzz_int(), end = fuzz_int();
  fuzz_fine(px_slice(&c, t, fuzz_int(), &begin, &end, fuzz_int()));
}

FUZZ(invalid_structures) {
  export l;
  px_tensor *t = NULL;
  prepare();
  make_export(&l);
  for (int64_t n = fuzz_below(3); n >= 0; n--) make_invalid(&l);
  bool good = fuzz_fine(px_dlpack_import_take(&t, &l.managed));
  CHECK(good == (t != NULL) && l.returned == 0);
  if (good) read_metadata(t);
  if (good && px_tensor_numel(t) == 0) compute(t);
  px_release(t);
  CHECK_EQ(l.returned, good && l.managed.deleter);
  free_export(&l);
}
