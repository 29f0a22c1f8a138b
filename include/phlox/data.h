// SPDX-License-Identifier: Apache-2.0
// Datasets, samplers and the loader that turns them into batches, in the background if asked.
#pragma once
#include "phlox/nn.h"
#include "phlox/random.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_dataset px_dataset;
typedef struct px_sampler px_sampler;
typedef struct px_loader px_loader;
typedef struct px_loader_iter px_loader_iter;

// A dataset: a length, and a list of tensors for an index. `get` may be called from several threads
// at a time.
typedef struct px_dataset_kind {
  const char *name;
  int64_t (*length)(void *context);
  px_status (*get)(px_list **out, int64_t index, void *context);
  // A whole batch at once, collated; NULL: items are got one by one and stacked.
  px_status (*batch)(px_list **out, const int64_t *indices, int64_t count, void *context);
  void (*release)(void *context);
} px_dataset_kind;
PX_CALL px_dataset_new(px_dataset **out, const px_dataset_kind *kind, void *context);
// Rows of tensors of equal first size. PX_ASSERTION "Size mismatch between tensors".
PX_CALL px_dataset_tensors(px_dataset **out, px_tensor *const *tensors, int count);
// The items at `indices` (copied). A random split into parts of the given lengths, in the
// generator's order (NULL: default).
PX_CALL px_dataset_subset(px_dataset **out, px_dataset *dataset, const int64_t *indices,
                          int64_t count);
PX_CALL px_dataset_random_split(px_dataset **parts, px_dataset *dataset, const int64_t *lengths,
                                int count, px_generator *generator);
PX_API int64_t px_dataset_length(const px_dataset *dataset);
PX_CALL px_dataset_get(px_list **out, px_dataset *self, int64_t index);
// The indices that random_split draws: a permutation of `length` written to `out`.
PX_CALL px_random_permutation(int64_t *out, int64_t length, px_generator *generator);
// `count` numbers from 0 to length-1, in the order in which PyTorch's RandomSampler draws them:
// each once, and again when all have come, or with replacement. From a generator that the default
// one seeds (NULL), or from the given one. PX_VALUE if there is nothing to draw from.
//     int64_t order[5];
//     PX_TRY(px_random_order(order, 5, 5, false, NULL));
PX_CALL px_random_order(int64_t *out, int64_t length, int64_t count, bool replacement,
                        px_generator *generator);

// An order of indices. Drawing a random one takes its seed from the default CPU generator, as
// PyTorch's RandomSampler does.
PX_CALL px_sampler_sequential(px_sampler **out, int64_t length);
PX_CALL px_sampler_random(px_sampler **out, int64_t length, px_generator *generator);
// `count` indices of the weights, drawn as px_multinomial does from the generator itself (NULL: the
// default one).
PX_CALL px_sampler_weighted(px_sampler **out, px_tensor *weights, int64_t count, bool replacement,
                            px_generator *generator);
PX_API int64_t px_sampler_length(const px_sampler *sampler);
// Writes the next pass's indices, px_sampler_length of them.
PX_CALL px_sampler_draw(px_sampler *self, int64_t *indices);

// A seed from 0 to 2^63-1, as torch.empty((), dtype=torch.int64).random_() draws it (NULL: the
// default generator).
PX_CALL px_seed_draw(int64_t *out, px_generator *generator);

typedef struct px_loader_options {
  int64_t batch_size;  // 0 means 1
  bool shuffle, drop_last, pin_memory;
  int workers;              // threads that fetch ahead; 0: none
  int prefetch;             // batches a worker fetches ahead; 0 means 2
  px_sampler *sampler;      // instead of shuffle
  px_generator *generator;  // of the shuffle; NULL: the default
} px_loader_options;
// PX_VALUE with PyTorch's texts for options that contradict each other. NULL: all defaults.
PX_CALL px_loader_new(px_loader **out, px_dataset *dataset, const px_loader_options *options);
PX_API int64_t px_loader_length(const px_loader *loader);  // batches a pass
// Starts a pass. `next` gives a batch, a list of tensors stacked along a new first dimension;
// PX_STOP at the end, and the error of the item that could not be fetched with "Caught ... in
// DataLoader worker thread 0." before it where a worker met it.
PX_CALL px_loader_start(px_loader_iter **out, px_loader *loader);
PX_CALL px_loader_next(px_list **batch, px_loader_iter *self);

// The items at `indices`, collated.
PX_CALL px_dataset_batch(px_list **out, px_dataset *self, const int64_t *indices, int64_t count);

// Stacks the k-th tensors of all items, for each k: the default collation. PX_RUNTIME "stack
// expects each tensor to be equal size, ...".
PX_CALL px_collate(px_list **out, px_list *const *items, int64_t count);
// The same from rows of tensors: the rows of each of `n` tensors at `indices`, cut out at once.
// PX_INDEX for an index that is not there.
PX_CALL px_collate_rows(px_list **out, px_tensor *const *tensors, int64_t n, const int64_t *indices,
                        int64_t count);

#ifdef __cplusplus
}
#endif
