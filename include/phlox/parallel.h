// SPDX-License-Identifier: Apache-2.0
// Data parallelism in one process: splits a batch along a dimension, runs a replica of the module
// on each device, and gathers the results.
//
// All parts are differentiable: the gradients of the replicas are summed into the module's
// parameters.
#pragma once
#include "phlox/nn.h"
#ifdef __cplusplus
extern "C" {
#endif

// Copies `tensor` to each device: results[i] on devices[i], new references. Gradients are summed on
// the tensor's device.
PX_CALL px_broadcast(px_tensor **results, px_tensor *tensor, const px_device *devices,
                     int device_count);
// Splits `tensor` along dim, as `chunk` does, into *count parts (at most device_count), the i-th on
// devices[i]. PX_RUNTIME "chunk expects at least a 1-dimensional tensor".
PX_CALL px_scatter_parts(px_tensor **results, int *count, px_tensor *tensor,
                         const px_device *devices, int device_count, int dim);
// The same, into parts of the sizes given.
PX_CALL px_scatter_sizes(px_tensor **results, px_tensor *tensor, const px_device *devices,
                         const int64_t *sizes, int device_count, int dim);
// Concatenates tensors along dim on `destination`. 0-dim tensors become a vector, with PyTorch's
// warning.
PX_CALL px_gather_parts(px_tensor **out, px_tensor *const *tensors, int count,
                        px_device destination, int dim);
// Sums tensors of equal shape on different devices, on `destination` (PX_DEVICE_NONE: the device of
// the first tensor).
PX_CALL px_reduce_add(px_tensor **out, px_tensor *const *tensors, int count, px_device destination);

// Makes replicas of a module, with broadcast parameters, for one forward pass. Replica 0 shares the
// module's buffers.
PX_CALL px_replicate(px_module **replicas, px_module *module, const px_device *devices,
                     int device_count);
// Calls work(i, context) for each i below count, on one thread each (a single one on the calling
// thread), with devices[i] as the current device and the caller's grad mode. Of several errors it
// returns that of the lowest i, as "Caught X in replica i on device d." and its text.
typedef px_status (*px_parallel_work)(int i, void *context);
PX_CALL px_parallel_apply(int count, const px_device *devices, px_parallel_work work,
                          void *context);

// Checks the devices of a module's tensors. PX_RUNTIME "module must have its parameters and buffers
// on device cuda:0 (device_ids[0]) but found one of them on device: cpu".
PX_CALL px_data_parallel_check(px_module *module, px_device first);
// Runs one forward pass: splits `input` along dim over the devices, runs a replica of the module on
// each part, and gathers the outputs on `output_device` (PX_DEVICE_NONE: the first device).
PX_CALL px_data_parallel(px_tensor **out, px_module *module, px_tensor *input,
                         const px_device *devices, int device_count, px_device output_device,
                         int dim);

#ifdef __cplusplus
}
#endif
