// SPDX-License-Identifier: Apache-2.0
// Which arguments scaled_dot_product_attention computes in tiles. Whether it may, and does so
// first, is a setting (PX_SETTING_SDP_FLASH, ..., in phlox/device.h).
#pragma once
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// Returns why arguments are not computed in tiles, as a sentence, or NULL if they can be; attn_mask
// may be NULL. The text stays until the calling thread's next question. With enable_gqa, heads of
// query may share those of key.
PX_API const char *px_attention_unfit(const px_tensor *query, const px_tensor *key,
                                      const px_tensor *value, const px_tensor *attn_mask,
                                      double dropout_p, bool is_causal, bool enable_gqa);

#ifdef __cplusplus
}
#endif
