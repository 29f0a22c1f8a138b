// SPDX-License-Identifier: Apache-2.0
// Support query for the tiled kernel of scaled_dot_product_attention. The settings
// PX_SETTING_SDP_FLASH and its neighbours (phlox/device.h) enable that kernel and set its priority.
#pragma once
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// Returns a sentence naming the first argument that the tiled kernel does not support, or NULL if
// it supports all. attn_mask may be NULL. With enable_gqa, several heads of query may share one
// head of key and value. The text is valid until the thread's next call of this function.
PX_API const char *px_attention_unsupported(const px_tensor *query, const px_tensor *key,
                                            const px_tensor *value, const px_tensor *attn_mask,
                                            double dropout_p, bool is_causal, bool enable_gqa);

#ifdef __cplusplus
}
#endif
