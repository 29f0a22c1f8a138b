// SPDX-License-Identifier: Apache-2.0
// Calls internal ops, which have no exported C function, by name.
#pragma once
#include "phlox/op.h"

enum { HIDDEN_PARAMS = 16, HIDDEN_RESULTS = 4 };

__attribute__((unused)) static px_status call_hidden(const char *name, px_call_mode mode,
                                                     px_tensor **const *results, int count,
                                                     const px_value *args) {
  void *got[HIDDEN_RESULTS] = {0};
  PX_TRY(px_op_call(px_op_find(name), mode, args, got));
  for (int i = 0; i < count; i++) *results[i] = got[i];
  for (int i = count; i < HIDDEN_RESULTS; i++) px_release(got[i]);
  return PX_OK;
}
// HIDDEN(name, (&a, &b), arguments as px_values...). Further results are released.
#define HIDDEN_LIST(...) ((px_tensor **const[]){__VA_ARGS__})
#define HIDDEN_COUNT(...) (int)(sizeof(HIDDEN_LIST(__VA_ARGS__)) / sizeof(px_tensor **))
#define HIDDEN(name, results, ...) \
  call_hidden(#name, PX_CALL_NEW, HIDDEN_LIST results, HIDDEN_COUNT results, \
              (const px_value[HIDDEN_PARAMS]){__VA_ARGS__})
#define HIDDEN_INPLACE(name, ...) \
  call_hidden(#name, PX_CALL_INPLACE, NULL, 0, (const px_value[HIDDEN_PARAMS]){__VA_ARGS__})
