// SPDX-License-Identifier: Apache-2.0
// torch.utils.data: what dataset.c, sampler.c, collate.c and loader.c share.
#pragma once
#include "ext.h"
#include "phlox/data.h"

extern PyTypeObject ext_DatasetType, ext_IterableDatasetType, ext_TensorDatasetType, ext_SubsetType;
extern PyTypeObject ext_SamplerType, ext_SequentialSamplerType, ext_RandomSamplerType,
    ext_BatchSamplerType;

// The default collation of a list of items; pinning of a batch, recursively.
PyObject *ext_collate(PyObject *items);
PyObject *ext_pin_batch(PyObject *batch);
// A whole batch of a TensorDataset, or of Subsets of one, collated at once; NULL without an
// exception for other datasets.
PyObject *ext_dataset_batch(PyObject *dataset, PyObject *indices);
int ext_init_dataset(PyObject *data);
int ext_init_sampler(PyObject *data);
int ext_init_collate(PyObject *data);
int ext_init_loader(PyObject *data);
