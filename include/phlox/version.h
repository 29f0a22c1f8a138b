// SPDX-License-Identifier: Apache-2.0
// The version of these headers. Before 1.0 a minor version may change them.
#pragma once

#define PX_VERSION_MAJOR 0
#define PX_VERSION_MINOR 13
#define PX_VERSION_PATCH 0
#define PX_VERSION "0.13.0"
// For comparisons by the preprocessor: `#if PX_VERSION_NUMBER >= PX_VERSION_OF(0, 13, 0)`.
#define PX_VERSION_OF(major, minor, patch) (((major)*1000 + (minor)) * 1000 + (patch))
#define PX_VERSION_NUMBER PX_VERSION_OF(PX_VERSION_MAJOR, PX_VERSION_MINOR, PX_VERSION_PATCH)
