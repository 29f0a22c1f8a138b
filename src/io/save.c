// SPDX-License-Identifier: Apache-2.0
// Writes the safetensors format: a JSON header, then the tensors' bytes without gaps. Each tensor
// is written in row-major order.
#include <stdio.h>
#include <string.h>

#include "io/io_impl.h"

static int64_t bytes_of(const px_tensor *t) {
  return px_tensor_numel(t) * (int64_t)px_dtype_size(px_tensor_dtype(t));
}

static px_status put_integers(px__json_writer *w, const char *name, int count,
                              const int64_t *values) {
  char number[24];
  PX_TRY(px__json_put_key(w, name));
  PX_TRY(px__json_open(w, '['));
  for (int i = 0; i < count; i++) {
    snprintf(number, sizeof number, "%lld", (long long)values[i]);
    PX_TRY(px__json_put(w, number));
  }
  return px__json_shut(w, ']');
}

static px_status put_tensor(px__json_writer *w, const px_tensor *t, int64_t begin) {
  const char *type = px__type_name(px_tensor_dtype(t));
  PX_CHECK(type, PX_UNIMPLEMENTED, "safetensors files have no dtype %s",
           px_dtype_name(px_tensor_dtype(t)));
  PX_TRY(px__json_open(w, '{'));
  PX_TRY(px__json_put_key(w, "dtype"));
  PX_TRY(px__json_put_text(w, type));
  PX_TRY(put_integers(w, "shape", px_tensor_ndim(t), px_tensor_sizes(t)));
  PX_TRY(put_integers(w, "data_offsets", 2, (int64_t[]){begin, begin + bytes_of(t)}));
  return px__json_shut(w, '}');
}

static px_status put_metadata(px__json_writer *w, const char *const *metadata) {
  PX_TRY(px__json_put_key(w, PX__METADATA));
  PX_TRY(px__json_open(w, '{'));
  for (; metadata[0]; metadata += 2) {
    PX_TRY(px__json_put_key(w, metadata[0]));
    PX_TRY(px__json_put_text(w, metadata[1]));
  }
  return px__json_shut(w, '}');
}

static px_status put_header(px__json_writer *w, const px_dict *tensors,
                            const char *const *metadata) {
  int64_t offset = 0;
  PX_TRY(px__json_open(w, '{'));
  if (metadata) PX_TRY(put_metadata(w, metadata));
  for (int64_t i = 0; i < px_dict_size(tensors); i++) {
    const px_tensor *t = px_dict_value(tensors, i);
    PX_TRY(px__json_put_key(w, px_dict_name(tensors, i)));
    PX_TRY(put_tensor(w, t, offset));
    offset += bytes_of(t);
  }
  return px__json_shut(w, '}');
}

static px_status write_tensor(px__writer *writer, const px_tensor *t) {
  void *data;
  size_t bytes = (size_t)bytes_of(t);
  PX_TRY(px_alloc(&data, bytes));
  px_status status = px_tensor_read(t, data, bytes);
  if (status == PX_OK) status = px__writer_write(writer, data, bytes);
  px_free(data);
  return status;
}

static px_status write_header(px__writer *writer, const char *text, size_t length) {
  static const char blanks[8] = "        ";
  uint64_t padded = (length + 7) / 8 * 8;
  PX_TRY(px__writer_write(writer, &padded, sizeof padded));  // little-endian, like the host
  PX_TRY(px__writer_write(writer, text, length));
  return px__writer_write(writer, blanks, padded - length);
}

static px_status write_all(px__writer *writer, const px_dict *tensors, const char *text,
                           size_t length) {
  PX_TRY(write_header(writer, text, length));
  for (int64_t i = 0; i < px_dict_size(tensors); i++)
    PX_TRY(write_tensor(writer, px_dict_value(tensors, i)));
  return px__writer_commit(writer);
}

static px_status save(px__writer *writer, const px_dict *tensors, const char *const *metadata) {
  px__writer header = px__writer_memory();
  px__json_writer json = {.to = &header, .first = true};
  header.path = writer->path;
  PX_CHECK(!px_dict_get(tensors, PX__METADATA), PX_VALUE, "expected a tensor name other than '%s'",
           PX__METADATA);
  px_status status = put_header(&json, tensors, metadata);
  px__json_writer_close(&json);
  if (status == PX_OK) status = write_all(writer, tensors, header.memory, header.length);
  px__writer_abandon(&header);
  return status;
}

px_status px_save(const char *path, const px_dict *tensors, const char *const *metadata) {
  PX_GIVEN(path);
  PX_GIVEN(tensors);
  px__writer writer;
  px_status status = px__writer_open(&writer, path);
  if (status == PX_OK) status = save(&writer, tensors, metadata);
  px__writer_abandon(&writer);
  return status;
}

static px_status save_tree(px__writer *writer, const px_tree *tree) {
  PX_SCOPED(px_dict) tensors = NULL;
  char *structure = NULL;
  PX_TRY(px_dict_new(&tensors));
  PX_TRY(px__structure_write(&structure, tensors, tree));
  const char *metadata[] = {"phlox", px_version(), PX__STRUCTURE, structure, NULL};
  px_status status = save(writer, tensors, metadata);
  px_free(structure);
  return status;
}

px_status px_save_tree(const char *path, const px_tree *tree) {
  PX_GIVEN(path);
  PX_GIVEN(tree);
  px__writer writer;
  px_status status = px__writer_open(&writer, path);
  if (status == PX_OK) status = save_tree(&writer, tree);
  px__writer_abandon(&writer);
  return status;
}

px_status px_tree_encode(void **bytes, size_t *length, const px_tree *tree) {
  PX_GIVEN(bytes);
  PX_GIVEN(length);
  PX_GIVEN(tree);
  px__writer writer = px__writer_memory();
  *bytes = NULL;
  px_status status = save_tree(&writer, tree);
  if (status == PX_OK) {
    *bytes = writer.memory;
    *length = writer.length;
    writer.memory = NULL;
  }
  px__writer_abandon(&writer);
  return status;
}
