// SPDX-License-Identifier: Apache-2.0
// Selection of devices.
#pragma once
#include "device/core/state.h"

// ---- visible devices
// Lists the devices that CUDA_VISIBLE_DEVICES selects among `present`, in its order. Returns their
// number, or -1 if one is named twice. `glance`: match UUIDs with the backend's match_forksafe.
int px__visible(const char *text, int present, const px_backend *backend, bool glance,
                int physical[PX__DEVICES]);
