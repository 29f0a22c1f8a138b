// SPDX-License-Identifier: Apache-2.0
// Ordered maps of names to tensors. Found by a walk: they hold tens of entries, and are not on a
// hot path.
#include "nn/nn_impl.h"

typedef struct row {
  char *name;
  px_tensor *value;
} row;

struct px_dict {
  px_object head;
  row *rows;
  int count, room;
};

static void dict_destroy(void *object) {
  px_dict *dict = object;
  for (int i = 0; i < dict->count; i++) {
    px_free(dict->rows[i].name);
    px_release(dict->rows[i].value);
  }
  px_free(dict->rows);
  px_object_end(dict);
  px_free(dict);
}

static const px_class dict_class = {"dict", dict_destroy};

px_status px_dict_new(px_dict **out) {
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px_object_init(*out, &dict_class);
  return PX_OK;
}

static int dict_find(const px_dict *dict, const char *name) {
  for (int i = 0; i < dict->count; i++)
    if (!strcmp(dict->rows[i].name, name)) return i;
  return -1;
}

px_status px_dict_set(px_dict *dict, const char *name, px_tensor *value) {
  PX_GIVEN(dict);
  PX_GIVEN(name);
  PX_GIVEN(value);
  int i = dict_find(dict, name);
  if (i < 0) {
    PX_TRY(px__nn_grow((void **)&dict->rows, &dict->room, dict->count, sizeof(row)));
    char *copy;
    PX_TRY(px__nn_strdup(&copy, name));
    i = dict->count++;
    dict->rows[i] = (row){copy, NULL};
  }
  px_tensor *old = dict->rows[i].value;
  dict->rows[i].value = px_retain(value);
  px_release(old);
  return PX_OK;
}

px_tensor *px_dict_get(const px_dict *dict, const char *name) {
  int i = dict_find(dict, name);
  return i < 0 ? NULL : dict->rows[i].value;
}

int64_t px_dict_size(const px_dict *dict) { return dict->count; }
const char *px_dict_name(const px_dict *dict, int64_t i) {
  return i >= 0 && i < dict->count ? dict->rows[i].name : NULL;
}
px_tensor *px_dict_value(const px_dict *dict, int64_t i) {
  return i >= 0 && i < dict->count ? dict->rows[i].value : NULL;
}
