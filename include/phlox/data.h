// SPDX-License-Identifier: Apache-2.0
// Datasets, samplers, and loaders that make batches, optionally on background threads.
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

// The functions of a dataset: a length, and a list of tensors for each index. Threads may call
// `get` concurrently.
typedef struct px_dataset_kind {
  const char *name;
  int64_t (*length)(void *context);
  px_status (*get)(px_list **out, int64_t index, void *context);
  // Returns a collated batch. NULL: `get` is called for each item, and the items are stacked.
  px_status (*batch)(px_list **out, const int64_t *indices, int64_t count, void *context);
  void (*release)(void *context);
} px_dataset_kind;
PX_CALL px_dataset_new(px_dataset **out, const px_dataset_kind *kind, void *context);
// Makes a dataset whose items are the rows of tensors. PX_ASSERTION "Size mismatch between tensors"
// unless their first sizes are equal.
PX_CALL px_dataset_tensors(px_dataset **out, px_tensor *const *tensors, int count);
// px_dataset_subset makes a dataset of the items at `indices`, which are copied.
// px_dataset_random_split splits a dataset at random into parts with the given lengths; generator
// NULL: the default one.
PX_CALL px_dataset_subset(px_dataset **out, px_dataset *dataset, const int64_t *indices,
                          int64_t count);
PX_CALL px_dataset_random_split(px_dataset **parts, px_dataset *dataset, const int64_t *lengths,
                                int count, px_generator *generator);
PX_API int64_t px_dataset_length(const px_dataset *dataset);
PX_CALL px_dataset_get(px_list **out, px_dataset *self, int64_t index);
// Writes a random permutation of the numbers below `length`, as random_split draws it.
PX_CALL px_random_permutation(int64_t *out, int64_t length, px_generator *generator);
// Writes `count` integers below `length` in the order drawn by PyTorch's RandomSampler: with
// replacement, or in random permutations. generator NULL: one seeded by the default generator.
// PX_VALUE if `length` is 0 and `count` is not.
//     int64_t order[5];
//     PX_TRY(px_random_order(order, 5, 5, false, NULL));
PX_CALL px_random_order(int64_t *out, int64_t length, int64_t count, bool replacement,
                        px_generator *generator);

// Make a sampler: an order of indices for each pass. A random order takes its seed from the default
// CPU generator, as PyTorch's RandomSampler does, unless a generator is given.
PX_CALL px_sampler_sequential(px_sampler **out, int64_t length);
PX_CALL px_sampler_random(px_sampler **out, int64_t length, px_generator *generator);
// Makes a sampler of `count` indices with the probabilities `weights`. Each pass draws them as
// px_multinomial does, from the generator itself (NULL: the default one).
PX_CALL px_sampler_weighted(px_sampler **out, px_tensor *weights, int64_t count, bool replacement,
                            px_generator *generator);
PX_API int64_t px_sampler_length(const px_sampler *sampler);
// Writes the indices of the next pass, px_sampler_length of them.
PX_CALL px_sampler_draw(px_sampler *self, int64_t *indices);

// Draws a seed from 0 to 2^63-1, as torch.empty((), dtype=torch.int64).random_() does. generator
// NULL: the default one.
PX_CALL px_seed_draw(int64_t *out, px_generator *generator);

typedef struct px_loader_options {
  int64_t batch_size;  // 0 means 1
  bool shuffle, drop_last, pin_memory;
  int workers;              // threads that fetch ahead; 0: none
  int prefetch;             // batches prefetched by each worker; 0 means 2
  px_sampler *sampler;      // instead of shuffle
  px_generator *generator;  // for shuffling; NULL: the default
} px_loader_options;
// Makes a loader; `options` NULL: the defaults. PX_VALUE, with PyTorch's texts, for contradictory
// options.
PX_CALL px_loader_new(px_loader **out, px_dataset *dataset, const px_loader_options *options);
PX_API int64_t px_loader_length(const px_loader *loader);  // batches a pass
// px_loader_start starts a pass. px_loader_next returns a batch: a list of tensors, stacked along a
// new first dimension. PX_STOP at the end. If an item fails, px_loader_next returns its error,
// prefixed with "Caught ... in DataLoader worker thread 0." if a worker fetched it.
PX_CALL px_loader_start(px_loader_iter **out, px_loader *loader);
PX_CALL px_loader_next(px_list **batch, px_loader_iter *self);

// Returns the items at `indices`, collated.
PX_CALL px_dataset_batch(px_list **out, px_dataset *self, const int64_t *indices, int64_t count);

// Stacks the k-th tensors of all items, for each k: the default collation. PX_RUNTIME "stack
// expects each tensor to be equal size, ...".
PX_CALL px_collate(px_list **out, px_list *const *items, int64_t count);
// The same for items that are rows: takes the rows at `indices` of each of `n` tensors. PX_INDEX
// for an index out of range.
PX_CALL px_collate_rows(px_list **out, px_tensor *const *tensors, int64_t n, const int64_t *indices,
                        int64_t count);

#ifdef __cplusplus
}
#endif
