// SPDX-License-Identifier: Apache-2.0
// Data parallelism in one process: a batch is cut along a dimension, each device runs a replica on
// its part, results are gathered.
//
// All pieces are differentiable: gradients of replicas add up in the original module's parameters.
#pragma once
#include "phlox/nn.h"
#ifdef __cplusplus
extern "C" {
#endif

// Copies of `tensor` on each device: results[d], new references. Gradients are summed on the
// tensor's device.
PX_CALL px_broadcast(px_tensor **results, px_tensor *tensor, const px_device *devices,
                     int device_count);
// Cuts `tensor` along dim as `chunk` does: *count parts (at most device_count), the i-th on
// devices[i]. PX_RUNTIME "chunk expects at least a 1-dimensional tensor".
PX_CALL px_scatter_parts(px_tensor **results, int *count, px_tensor *tensor,
                         const px_device *devices, int device_count, int dim);
// ... into parts of the given sizes.
PX_CALL px_scatter_sizes(px_tensor **results, px_tensor *tensor, const px_device *devices,
                         const int64_t *sizes, int device_count, int dim);
// Joins tensors along dim on `destination`; 0-dim ones become a vector, with PyTorch's warning.
PX_CALL px_gather_parts(px_tensor **out, px_tensor *const *tensors, int count,
                        px_device destination, int dim);
// The sum of tensors of equal shape on different devices, on `destination` (PX_DEVICE_NONE: the
// first's).
PX_CALL px_reduce_add(px_tensor **out, px_tensor *const *tensors, int count, px_device destination);

// Copies of a module with broadcast parameters, for a forward pass. Replica 0 shares the buffers.
PX_CALL px_replicate(px_module **replicas, px_module *module, const px_device *devices,
                     int device_count);
// Runs work(i) for i in [0, count), each on a thread of its own with devices[i] current and the
// caller's grad mode (a single one on the calling thread). The first error, by i, is returned, as
// "Caught X in replica i on device d." and its text.
typedef px_status (*px_parallel_work)(int i, void *context);
PX_CALL px_parallel_apply(int count, const px_device *devices, px_parallel_work work,
                          void *context);

// PX_RUNTIME "module must have its parameters and buffers on device cuda:0 (device_ids[0]) but
// found one of them on device: cpu".
PX_CALL px_data_parallel_check(px_module *module, px_device first);
// One forward pass of module on parts of `input`; the result on `output_device` (PX_DEVICE_NONE:
// the first).
PX_CALL px_data_parallel(px_tensor **out, px_module *module, px_tensor *input,
                         const px_device *devices, int device_count, px_device output_device,
                         int dim);

#ifdef __cplusplus
}
#endif
