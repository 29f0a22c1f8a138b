// SPDX-License-Identifier: Apache-2.0
// The printed form of tensors, identical to PyTorch's.
//
// First the visible part is copied to the host as one dense array: the whole tensor, or the edges
// of each dimension. The number format is chosen from this part, and the text is written from it.
// The cost of printing is independent of the tensor's size.
#include "tensor/in_use.h"
#include "tensor/print_impl.h"

#include <limits.h>
#include <stdio.h>

void (*px__print_suffix)(const px_tensor *t, char *text, size_t room);

static pthread_mutex_t options_lock = PTHREAD_MUTEX_INITIALIZER;
static px_print_options the_options = {4, 1000, 3, 80, -1};

px_print_options px_print_options_get(void) {
  pthread_mutex_lock(&options_lock);
  px_print_options options = the_options;
  pthread_mutex_unlock(&options_lock);
  return options;
}

void px_print_options_set(px_print_options options) {
  pthread_mutex_lock(&options_lock);
  the_options = options;
  pthread_mutex_unlock(&options_lock);
}

void px_free(void *memory) { px__free(memory); }

typedef struct printer {
  px_print_options options;
  px__text text;
  px__format format, imaginary;
  px_dtype dtype, part;  // part: dtype of the real and imaginary parts
  int ndim;
  int64_t shown[PX_MAX_DIMS];  // sizes of `values`
  bool cut[PX_MAX_DIMS];       // the middle of the dimension is elided
  char *values;                // dense
} printer;

// ---- the visible part

// Copies one corner of `self`, selected by the bits of `far`: if bit d is set, the far edge of
// dimension d, else the near one.
static px_status copy_corner(const printer *p, px_tensor *shown, const px_tensor *self,
                             unsigned far) {
  int64_t sizes[PX_MAX_DIMS], from = self->offset, to = 0;
  for (int d = 0; d < p->ndim; d++) {
    sizes[d] = p->cut[d] ? p->options.edgeitems : p->shown[d];
    if (!(far >> d & 1)) continue;
    from += (self->sizes[d] - sizes[d]) * self->strides[d];
    to += sizes[d] * shown->strides[d];
  }
  PX_SCOPED(px_tensor) source = NULL;
  PX_SCOPED(px_tensor) target = NULL;
  PX_TRY(px__tensor_new(&source, self->storage, p->dtype, p->ndim, sizes, self->strides, from));
  PX_TRY(px__tensor_new(&target, shown->storage, p->dtype, p->ndim, sizes, shown->strides, to));
  PX_TRY(px__tensor_copy(target, source, true));
  return PX_OK;
}

static px_status gather_edges(px_tensor **out, const printer *p, const px_tensor *self) {
  unsigned cuts = 0;
  for (int d = 0; d < p->ndim; d++) cuts |= (unsigned)p->cut[d] << d;
  PX_SCOPED(px_tensor) shown = NULL;
  PX_TRY(px_tensor_empty(&shown, p->ndim, p->shown, p->dtype, px__tensor_device(self)));
  // All subsets of `cuts`, the empty one last.
  for (unsigned far = cuts;; far = (far - 1) & cuts) {
    PX_TRY(copy_corner(p, shown, self, far));
    if (far == 0) break;
  }
  *out = PX_MOVE(shown);
  return PX_OK;
}

static px_status fetch(printer *p, const px_tensor *self) {
  bool whole = true;
  bool summarise = p->options.threshold != INT_MAX && self->numel > p->options.threshold;
  int64_t edge = p->options.edgeitems;
  for (int d = 0; d < p->ndim; d++) {
    p->cut[d] = summarise && self->sizes[d] > 2 * edge;
    p->shown[d] = p->cut[d] ? 2 * edge : self->sizes[d];
    whole &= !p->cut[d];
  }
  PX_SCOPED(px_tensor) shown = NULL;
  if (whole)
    shown = px_retain(self);
  else
    PX_TRY(gather_edges(&shown, p, self));
  size_t bytes = (size_t)shown->numel * px__item(shown);
  PX_TRY(px__alloc((void **)&p->values, bytes));
  PX_TRY(px_tensor_read(shown, p->values, bytes));
  size_t item = px__item(shown), half = px_dtype_size(p->part);
  p->format = px__format_choose(&p->options, p->part, p->values, shown->numel, item);
  if (p->part != p->dtype)
    p->imaginary = px__format_choose(&p->options, p->part, p->values + half, shown->numel, item);
  return PX_OK;
}

// ---- the numbers

static void add_value(printer *p, int64_t i) {
  const void *element = p->values + (size_t)i * px_dtype_size(p->dtype);
  px__format_add(&p->text, &p->format, px_scalar_load(p->part, element));
  if (p->part != p->dtype)
    px__format_add_imaginary(&p->text, &p->imaginary, px_complex_load(p->dtype, element).imag);
}

static void add_break(printer *p, int lines, int indent) {
  px__text_add(&p->text, ",");
  for (int i = 0; i < lines; i++) px__text_add(&p->text, "\n");
  px__text_add(&p->text, "%*s", indent, "");
}

// The ellipsis counts as an element when lines are filled.
static void add_vector(printer *p, int64_t at, int indent) {
  int64_t size = p->shown[p->ndim - 1], edge = p->options.edgeitems;
  bool cut = p->cut[p->ndim - 1];
  int width = p->format.width + (p->part != p->dtype ? p->imaginary.width + 3 : 2);
  int64_t count = size + cut, per_line = (p->options.linewidth - indent) / width;
  if (per_line < 1) per_line = 1;
  px__text_add(&p->text, "[");
  for (int64_t i = 0; i < count; i++) {
    if (i && i % per_line == 0)
      add_break(p, 1, indent + 1);
    else if (i)
      px__text_add(&p->text, ", ");
    if (cut && i == edge)
      px__text_add(&p->text, " ...");
    else
      add_value(p, at + (cut && i > edge ? i - 1 : i));
  }
  px__text_add(&p->text, "]");
}

// Writes the slice at depth `dim`: `part` values starting at index `at`.
static void add_part(printer *p, int dim, int64_t at, int64_t part, int indent) {
  if (dim == p->ndim - 1) {
    add_vector(p, at, indent);
    return;
  }
  int64_t size = p->shown[dim], step = part / size;
  px__text_add(&p->text, "[");
  for (int64_t i = 0; i < size; i++) {
    if (i) add_break(p, p->ndim - 1 - dim, indent + 1);
    if (p->cut[dim] && i == p->options.edgeitems) {
      px__text_add(&p->text, "...");
      add_break(p, p->ndim - 1 - dim, indent + 1);
    }
    add_part(p, dim + 1, at + i * step, step, indent + 1);
  }
  px__text_add(&p->text, "]");
}

static px_status add_contents(printer *p, const px_tensor *self, int indent) {
  if (self->numel == 0) {
    px__text_add(&p->text, "[]");
    return PX_OK;
  }
  if (!self->storage->allocation->data) {  // an outline
    px__text_add(&p->text, "...");
    return PX_OK;
  }
  PX_TRY(fetch(p, self));
  int64_t count = 1;
  for (int d = 0; d < p->ndim; d++) count *= p->shown[d];
  if (p->ndim == 0)
    add_value(p, 0);
  else
    add_part(p, 0, 0, count, indent);
  return PX_OK;
}

// ---- suffixes

enum { SUFFIX_TEXT = 512 };

// Tensors on the device of the default tensor type print without device: the CPU, or the current
// device for "cuda". A default device set otherwise does not suppress it.
static void device_suffix(char *text, const px_tensor *self) {
  char name[PX_DEVICE_TEXT];
  px_device device = px__tensor_device(self), home = px_device_home();
  bool cuda_home = home.type == PX_CUDA && home.index < 0;
  bool bare = device.type == PX_CPU ? !cuda_home : cuda_home && device.index == px_device_peek();
  text[0] = 0;
  if (!bare) snprintf(text, SUFFIX_TEXT, "device='%s'", px_device_format(device, name));
}

static void size_suffix(char *text, const px_tensor *self) {
  bool empty = self->numel == 0, outline = !empty && !self->storage->allocation->data;
  text[0] = 0;
  if (!outline && !(empty && self->ndim != 1)) return;
  char list[SUFFIX_TEXT / 2];
  px__sizes_text(list, sizeof list, self->ndim, self->sizes);
  snprintf(text, SUFFIX_TEXT, "size=(%.*s%s)", (int)strlen(list) - 2, list + 1,
           self->ndim == 1 ? "," : "");
}

static void dtype_suffix(char *text, const px_tensor *self) {
  px_dtype dtype = (px_dtype)self->dtype;
  bool shown = self->numel && self->storage->allocation->data;
  bool plain = shown && (dtype == PX_INT64 || dtype == PX_BOOL ||
                         dtype == px_dtype_to_complex(px_dtype_default()));
  text[0] = 0;
  if (dtype != px_dtype_default() && !plain)
    snprintf(text, SUFFIX_TEXT, "dtype=torch.%s", px_dtype_name(dtype));
}

static void history_suffix(char *text, const px_tensor *self) {
  char said[SUFFIX_TEXT] = "";
  if (px__print_suffix) px__print_suffix(self, said, sizeof said);
  snprintf(text, SUFFIX_TEXT, "%s", strncmp(said, ", ", 2) ? said : said + 2);
}

static size_t last_line_length(const px__text *text) {
  size_t start = text->length;
  while (start > 0 && text->at[start - 1] != '\n') start--;
  return text->length - start;
}

// A suffix starts a new line if it would make the last line too long.
static void add_suffixes(printer *p, const px_tensor *self, int indent) {
  static void (*const suffixes[])(char *, const px_tensor *) = {device_suffix, size_suffix,
                                                                dtype_suffix, history_suffix};
  size_t line = last_line_length(&p->text) + 2;
  for (int i = 0; i < PX_COUNT_OF(suffixes); i++) {
    char suffix[SUFFIX_TEXT];
    suffixes[i](suffix, self);
    size_t length = strlen(suffix);
    if (length == 0) continue;
    if ((int64_t)(line + length + 2) > p->options.linewidth) {
      add_break(p, 1, indent);
      line = (size_t)indent + length;
    } else {
      px__text_add(&p->text, ", ");
      line += length + 2;
    }
    px__text_add(&p->text, "%s", suffix);
  }
}

// A batched tensor is printed with its physical tensor, indented by four columns.
static px_status batched_text(char **out, const px_tensor *self) {
  char *inner = NULL;
  px__text text = {0};
  PX_TRY(px_tensor_text(&inner, self->physical, NULL));
  px__text_add(&text, "BatchedTensor(lvl=%d, bdim=0, value=\n", self->level);
  for (const char *line = inner; *line;) {
    int length = (int)strcspn(line, "\n");
    px__text_add(&text, "    %.*s\n", length, line);
    line += length + (line[length] == '\n');
  }
  px__text_add(&text, ")");
  px__free(inner);
  if (!text.failed) {
    *out = text.at;
    return PX_OK;
  }
  px__free(text.at);
  PX_FAIL(PX_NOMEM, "out of memory while printing a tensor");
}

px_status px_tensor_text(char **out, const px_tensor *self, const char *prefix) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX__USES(self);
  if (px__is_batched(self)) return batched_text(out, self);
  if (!prefix) prefix = "tensor(";
  *out = NULL;
  printer p = {
      .options = px_print_options_get(), .dtype = (px_dtype)self->dtype, .ndim = self->ndim};
  if (p.options.edgeitems < 0) p.options.edgeitems = 0;
  p.part = px_dtype_to_real(p.dtype);
  int indent = (int)strlen(prefix);
  px__text_add(&p.text, "%s", prefix);
  px_status status = px__storage_ready(self->storage);
  if (status == PX_OK) status = add_contents(&p, self, indent);
  if (status == PX_OK) {
    add_suffixes(&p, self, indent);
    px__text_add(&p.text, ")");
  }
  px__free(p.values);
  if (status == PX_OK && !p.text.failed) {
    *out = p.text.at;
    return PX_OK;
  }
  px__free(p.text.at);
  PX_TRY(status);
  PX_FAIL(PX_NOMEM, "out of memory while printing a tensor");
}
