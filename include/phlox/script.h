// SPDX-License-Identifier: Apache-2.0
// TorchScript: models saved by torch.jit.save, run by an interpreter of their code.
//
//   px_script *script;
//   px_tree *args, *result;  // args: a tuple of trees (phlox/io.h)
//   PX_TRY(px_script_load(&script, "model.pt", px_cpu()));
//   PX_TRY(px_script_run(&result, script, "forward", args, NULL));
//
// The interpreter covers the serialized form of the language: functions, modules, classes, named
// tuples, enums, control flow, containers and texts. Each torch function is an op of the library or
// a function on numbers, texts and containers. Others fail with PX_UNIMPLEMENTED and their name.
// Code of an archive calls only these functions: it cannot access files, or memory outside its
// values. It may run for any time and use any amount of memory. Waiting loops poll the thread's
// interrupt check. Deflated records need zlib (libz.so.1), opened at the first use.
#pragma once
#include "phlox/io.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_script px_script;

// Loads an archive. Tensors go to `device`; PX_DEVICE_NONE: to the devices in the file.
// PX_NOT_FOUND; PX_RUNTIME for an invalid archive or a syntax error, with its file and line.
PX_CALL px_script_load(px_script **out, const char *path, px_device device);
// The same for the bytes of an archive. `name` replaces the file name in error messages.
PX_CALL px_script_load_bytes(px_script **out, const void *bytes, size_t length, px_device device,
                             const char *name);
// Calls a method of the model, "forward", or of a submodule, "encoder.forward". `args` is a tuple
// or list of positional arguments, `named` a dict of named ones; each may be NULL. Objects of
// classes cannot be arguments or results. Lists and dicts are copied, tensors are shared. Calls of
// one script are serialised. PX_ATTRIBUTE for an unknown method; PX_TYPE for arguments that do not
// match; errors raised by the code, and those of its ops.
PX_CALL px_script_run(px_tree **out, px_script *self, const char *method, const px_tree *args,
                      const px_tree *named);
// Returns the name of the i-th method of the model, or of a submodule if `module` is not NULL or
// empty. It belongs to the script; *out is NULL past the end.
PX_CALL px_script_method(const char **out, px_script *self, const char *module, int i);
// Get or set an attribute, "sample_rate" or "encoder.stride". PX_ATTRIBUTE if there is none. Every
// module has "original_name", the name of its class.
PX_CALL px_script_get(px_tree **out, px_script *self, const char *name);
PX_CALL px_script_set(px_script *self, const char *name, const px_tree *value);
// Returns the model's module, borrowed: its parameters, buffers and submodules. The code reads them
// at each call, so px_module_train, px_module_to and px_module_load_state_dict act on the model.
PX_API px_module *px_script_module(px_script *self);

#ifdef __cplusplus
}
#endif
