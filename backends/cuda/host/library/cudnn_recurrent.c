// SPDX-License-Identifier: Apache-2.0
// Recurrent nets by cuDNN: descriptors of nets and offsets of their weights.
//
// A net's descriptor does not depend on the sequences and is slow to create. Each device therefore
// caches descriptors together with the parameters' offsets, guarded by its cuDNN lock. Rows are
// always packed: rows of one time step are contiguous, as everywhere here, even for sequences of
// equal length.
#include "cuda/host/library/cudnn.h"

#include <stdlib.h>
#include <string.h>

// Constants of cuDNN's header.
enum { STANDARD = 0, INFERENCE = 0, TRAINING = 1, LINEAR_INPUT = 0, PACKED_ROWS = 1 };
enum { NO_BIAS = 0, DOUBLE_BIAS = 2, ONE_WAY = 0, BOTH_WAYS = 1 };
enum { DEFAULT_MATH = 0, TENSOR_CORE_MATH = 1, FMA_MATH = 3, FLOAT = 0, DOUBLE = 1 };
static const struct {
  const char *mode;
  int cell, gates;
} cells[] = {{"rnn_relu", 0, 1}, {"rnn_tanh", 1, 1}, {"lstm", 2, 4}, {"gru", 3, 3}};
static const int8_t types[PX_DTYPE_COUNT] = {
    [PX_FLOAT32] = 0 + 1, [PX_FLOAT64] = 1 + 1, [PX_FLOAT16] = 2 + 1, [PX_BFLOAT16] = 9 + 1};

// The full key of a descriptor. Compared as bytes, so it has no padding holes.
typedef struct key {
  int64_t input, hidden, width;
  int32_t cell, dtype, layers, directions, math;
  bool has_biases, projected, unused[2];
} key;
_Static_assert(sizeof(key) == 3 * 8 + 5 * 4 + 4, "keys have no holes");

typedef struct entry {
  key key;
  void *net, *dropout;
  size_t weights;    // in bytes
  int64_t *offsets;  // offsets of the parameters, in elements
  bool known;
} entry;
enum { ENTRIES = 64 };
static struct table {
  entry entries[ENTRIES];
  unsigned next;             // index of the entry to replace
} tables[PX__CUDA_DEVICES];  // guarded by the device's lock

#define RNN px__cudnn_recurrent

// ---- offsets of parameters

static int gates_of(int cell) {
  for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
    if (cells[i].cell == cell) return cells[i].gates;
  return 0;
}

static int params_of(const key *k) { return 2 + 2 * k->has_biases + k->projected; }

// Byte offsets of a layer's matrix and bias in cuDNN's weights; SIZE_MAX: absent.
typedef struct param_offsets {
  size_t matrix, bias;
} param_offsets;

static bool find_params(param_offsets *out, const entry *e, void *handle, void *const tensors[2],
                        int layer, int part) {
  // An arbitrary base address, never dereferenced; offsets are relative to it.
  enum { BASE = 1 << 20 };
  void *matrix = NULL, *bias = NULL;
  if (RNN.cudnnGetRNNWeightParams(handle, e->net, layer, e->weights, (void *)(uintptr_t)BASE, part,
                                  tensors[0], &matrix, tensors[1], &bias))
    return false;
  out->matrix = matrix ? (size_t)((uintptr_t)matrix - BASE) : SIZE_MAX;
  out->bias = bias ? (size_t)((uintptr_t)bias - BASE) : SIZE_MAX;
  return true;
}

// A matrix's gates are one tensor here, so cuDNN must store them contiguously.
static bool locate_gates(const entry *e, int64_t *matrix, int64_t *bias, void *handle,
                         void *const tensors[2], int layer, int first, int64_t columns) {
  int gates = gates_of(e->key.cell);
  size_t item = px__cuda_dtype_size(e->key.dtype), step = (size_t)e->key.hidden * item;
  param_offsets begin, at;
  if (!find_params(&begin, e, handle, tensors, layer, first)) return false;
  for (int g = 0; g < gates; g++) {
    if (!find_params(&at, e, handle, tensors, layer, first + g) || at.matrix == SIZE_MAX ||
        at.matrix != begin.matrix + (size_t)g * step * (size_t)columns)
      return false;
    if (bias && (at.bias == SIZE_MAX || at.bias != begin.bias + (size_t)g * step)) return false;
  }
  *matrix = (int64_t)(begin.matrix / item);
  if (bias) *bias = (int64_t)(begin.bias / item);
  return begin.matrix % item == 0;
}

static bool locate_layer(const entry *e, int64_t *offsets, void *handle, void *const tensors[2],
                         int layer) {
  const key *k = &e->key;
  int gates = gates_of(k->cell);
  int64_t input = layer < k->directions ? k->input : k->directions * k->width;
  bool biases = k->has_biases;
  param_offsets at;
  if (!locate_gates(e, &offsets[0], biases ? &offsets[2] : NULL, handle, tensors, layer, 0,
                    input) ||
      !locate_gates(e, &offsets[1], biases ? &offsets[3] : NULL, handle, tensors, layer, gates,
                    k->width))
    return false;
  if (!k->projected) return true;
  if (!find_params(&at, e, handle, tensors, layer, 2 * gates) || at.matrix == SIZE_MAX)
    return false;
  offsets[params_of(k) - 1] = (int64_t)(at.matrix / px__cuda_dtype_size(k->dtype));
  return true;
}

static bool locate_params(entry *e, void *handle) {
  void *tensors[2] = {NULL, NULL};
  int layers = e->key.layers * e->key.directions, each = params_of(&e->key);
  e->offsets = calloc((size_t)(layers * each), sizeof *e->offsets);
  bool good = e->offsets && !RNN.cudnnCreateTensorDescriptor(&tensors[0]) &&
              !RNN.cudnnCreateTensorDescriptor(&tensors[1]);
  for (int i = 0; good && i < layers; i++)
    good = locate_layer(e, e->offsets + i * each, handle, tensors, i);
  for (int i = 0; i < 2; i++)
    if (tensors[i]) RNN.cudnnDestroyTensorDescriptor(tensors[i]);
  return good;
}

// ---- the table

static void reset_entry(entry *e) {
  if (e->net) RNN.cudnnDestroyRNNDescriptor(e->net);
  if (e->dropout) RNN.cudnnDestroyDropoutDescriptor(e->dropout);
  free(e->offsets);
  *e = (entry){.key = e->key};
}

static bool describe(entry *e, void *handle) {
  const key *k = &e->key;
  int dtype = types[k->dtype] - 1;
  return !RNN.cudnnCreateDropoutDescriptor(&e->dropout) &&
         !RNN.cudnnSetDropoutDescriptor(e->dropout, handle, 0, NULL, 0, 0) &&
         !RNN.cudnnCreateRNNDescriptor(&e->net) &&
         !RNN.cudnnSetRNNDescriptor_v8(
             e->net, STANDARD, k->cell, k->has_biases ? DOUBLE_BIAS : NO_BIAS,
             k->directions == 2 ? BOTH_WAYS : ONE_WAY, LINEAR_INPUT, dtype,
             k->dtype == PX_FLOAT64 ? DOUBLE : FLOAT, k->math, (int32_t)k->input,
             (int32_t)k->hidden, (int32_t)k->width, k->layers, e->dropout, 0) &&
         !RNN.cudnnGetRNNWeightSpaceSize(handle, e->net, &e->weights);
}

// Returns the net's entry, without `net` if cuDNN does not support it. Lock held.
static entry *entry_of(int device, void *handle, const key *k) {
  struct table *t = &tables[device];
  for (int i = 0; i < ENTRIES; i++)
    if (t->entries[i].known && !memcmp(&t->entries[i].key, k, sizeof *k)) return &t->entries[i];
  entry *e = &t->entries[t->next++ % ENTRIES];
  reset_entry(e);
  *e = (entry){.key = *k};
  if (!describe(e, handle) || !locate_params(e, handle)) reset_entry(e);
  e->known = true;
  return e;
}

static bool make_key(key *k, const px_recurrent_net *net) {
  const int8_t *type = net->dtype >= 0 && net->dtype < PX_DTYPE_COUNT ? &types[net->dtype] : NULL;
  bool half = net->dtype == PX_FLOAT16 || net->dtype == PX_BFLOAT16;
  memset(k, 0, sizeof *k);
  k->cell = -1;
  for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
    if (!strcmp(cells[i].mode, net->mode)) k->cell = cells[i].cell;
  k->dtype = net->dtype, k->layers = net->layers, k->directions = net->directions;
  k->input = net->input, k->hidden = net->hidden, k->width = net->width;
  k->has_biases = net->has_biases, k->projected = net->projected;
  k->math = half                                     ? TENSOR_CORE_MATH
            : net->dtype == PX_FLOAT32 && !net->tf32 ? FMA_MATH
                                                     : DEFAULT_MATH;
  return type && *type && k->cell >= 0;
}

// ---- sequences

// Length of each sequence in descending order. The caller frees it; NULL without memory.
static int *lengths_of(const px_recurrent_net *net) {
  int *lengths = malloc((size_t)net->batch * sizeof *lengths);
  int64_t times = net->times;
  for (int64_t b = 0; lengths && b < net->batch; b++) {
    while (net->counts && times && net->counts[times - 1] <= b) times--;
    lengths[b] = (int)times;
  }
  return lengths;
}

static int describe_rows(void **out, const px_recurrent_net *net, int64_t size,
                         const int *lengths) {
  int status = RNN.cudnnCreateRNNDataDescriptor(out);
  if (status) return *out = NULL, status;
  return RNN.cudnnSetRNNDataDescriptor(*out, types[net->dtype] - 1, PACKED_ROWS, (int)net->times,
                                       (int)net->batch, (int)size, lengths, NULL);
}

static int describe_state(void **out, const px_recurrent_net *net, int64_t size) {
  int sizes[] = {net->layers * net->directions, (int)net->batch, (int)size};
  int strides[] = {sizes[1] * sizes[2], sizes[2], 1};
  int status = RNN.cudnnCreateTensorDescriptor(out);
  if (status) return *out = NULL, status;
  return RNN.cudnnSetTensorNdDescriptor(*out, types[net->dtype] - 1, 3, sizes, strides);
}

// cuDNN's status of the failing call, named in *call; or NO_MEMORY.
enum { NO_MEMORY = -1 };
static int describe_all(px__cudnn_net *n, const px_recurrent_net *net, bool training,
                        const char **call) {
  int *lengths = lengths_of(net);
  if (!lengths) return NO_MEMORY;
  *call = "cudnnSetRNNDataDescriptor";
  int status = describe_rows(&n->x_rows, net, net->input, lengths);
  if (!status) status = describe_rows(&n->y_rows, net, net->directions * net->width, lengths);
  free(lengths);
  if (status) return status;
  *call = "cudnnSetTensorNdDescriptor";
  status = describe_state(&n->h, net, net->width);
  if (!status) status = describe_state(&n->c, net, net->hidden);
  if (status) return status;
  *call = "cudnnGetRNNTempSpaceSizes";
  return RNN.cudnnGetRNNTempSpaceSizes(n->handle, n->net, training ? TRAINING : INFERENCE,
                                       n->x_rows, &n->workspace, &n->kept);
}

static void drop_descriptors(px__cudnn_net *n) {
  if (n->x_rows) RNN.cudnnDestroyRNNDataDescriptor(n->x_rows);
  if (n->y_rows) RNN.cudnnDestroyRNNDataDescriptor(n->y_rows);
  if (n->h) RNN.cudnnDestroyTensorDescriptor(n->h);
  if (n->c) RNN.cudnnDestroyTensorDescriptor(n->c);
  n->x_rows = n->y_rows = n->h = n->c = NULL;
}

// ---- plans and launches

static bool plan_locked(int device, const key *k, const px_recurrent_net *net,
                        px_recurrent_sizes *sizes, int64_t *offsets) {
  px__cudnn_net n = {0};
  const char *call;
  if (px__cudnn_any_handle(&n.handle, device) != PX_OK) return false;
  const entry *e = entry_of(device, n.handle, k);
  if (!e->net || !sizes) return e->net != NULL;
  n.net = e->net;
  bool good = !describe_all(&n, net, true, &call);
  drop_descriptors(&n);
  *sizes = (px_recurrent_sizes){e->weights, n.kept};
  memcpy(offsets, e->offsets, (size_t)(k->layers * k->directions * params_of(k)) * sizeof *offsets);
  return good;
}

bool px__cudnn_recurrent_plan(int device, const px_recurrent_net *net, px_recurrent_sizes *sizes,
                              int64_t *offsets) {
  key k;
  if (!make_key(&k, net) || !px__cudnn_recurrent_available() || px__cuda_use(device) != PX_OK)
    return false;
  px__cudnn_lock(device);
  bool planned = plan_locked(device, &k, net, sizes, offsets);
  px__cudnn_unlock(device);
  return planned;
}

static px_status open_locked(px__cudnn_net *n, const px_launch *l, const px_recurrent_net *net,
                             bool training) {
  key k;
  const char *call;
  if (!make_key(&k, net) || !px__cudnn_recurrent_available())
    PX_CUDA_FAIL(PX_UNIMPLEMENTED, "%s on cuda:%d: cuDNN does not support this net", l->op,
                 l->device);
  PX_CUDA_PASS(px__cudnn_handle(&n->handle, l));
  const entry *e = entry_of(l->device, n->handle, &k);
  if (!e->net)
    PX_CUDA_FAIL(PX_UNIMPLEMENTED, "%s on cuda:%d: cuDNN does not support this net", l->op,
                 l->device);
  n->net = e->net, n->weights = e->weights;
  int status = describe_all(n, net, training, &call);
  if (status == NO_MEMORY)
    PX_CUDA_FAIL(PX_NOMEM, "could not allocate the lengths of %lld sequences",
                 (long long)net->batch);
  if (status) return px__cudnn_error(status, call);
  return n->workspace ? px__cuda_scratch(l, n->workspace, &n->scratch) : PX_OK;
}

px_status px__cudnn_net_open(px__cudnn_net *n, const px_launch *l, const px_recurrent_net *net,
                             bool training) {
  *n = (px__cudnn_net){.device = l->device};
  px__cudnn_lock(l->device);
  return open_locked(n, l, net, training);
}

void px__cudnn_net_close(px__cudnn_net *n) {
  drop_descriptors(n);
  px__cudnn_unlock(n->device);
}
