// SPDX-License-Identifier: Apache-2.0
// Conversion of Python objects to trees of values, for torch.save and torch.load.
#pragma once
#include "bind/ext.h"
#include "phlox/io.h"

// Tree of an object; NotImplementedError for unsupported types. New reference.
px_tree *ext_tree_from(PyObject *object);
// Object of a tree. `place(tensor, home, context)` returns the object of a tensor saved on device
// `home`; it is called once for a tensor with several occurrences.
typedef PyObject *(*ext_tree_tensor_fn)(px_tensor *tensor, px_device home, void *context);
PyObject *ext_tree_object(const px_tree *tree, ext_tree_tensor_fn place, void *context);
