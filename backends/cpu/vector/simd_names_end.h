// SPDX-License-Identifier: Apache-2.0
// Undefines the names of simd_names.h.
#undef V
#undef L
#undef LOAD
#undef STORE
#undef SET
#undef FMA
#undef LOAD_FIRST
#undef STORE_FIRST
#undef LOW
#undef HIGH
#undef EVEN
#undef ODD
#undef NAME
#undef TARGET
#undef WIDE_NAMES
