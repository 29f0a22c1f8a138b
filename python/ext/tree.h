// SPDX-License-Identifier: Apache-2.0
// Python objects as trees of values, for torch.save and torch.load.
#pragma once
#include "ext.h"
#include "phlox/io.h"

// The tree of an object; NotImplementedError for what a file cannot hold. New reference.
px_tree *ext_tree_from(PyObject *object);
// The object of a tree. `place(tensor, home, context)` gives the object of a tensor that was saved
// on `home`; a tensor that stands in several places is placed once.
typedef PyObject *(*ext_tree_tensor_fn)(px_tensor *tensor, px_device home, void *context);
PyObject *ext_tree_object(const px_tree *tree, ext_tree_tensor_fn place, void *context);
