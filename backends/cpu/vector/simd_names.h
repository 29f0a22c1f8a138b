// SPDX-License-Identifier: Apache-2.0
// Width-independent names of float vectors and their operations, for a file included once per
// width: the width of simd.h, or of simd_avx512.h if WIDE_NAMES is defined. TARGET holds the
// required function attributes; NAME(x) appends a suffix. simd_names_end.h undefines all of them.
#if defined(WIDE_NAMES)
#define V wf
#define L WF
#define LOAD wf_load
#define STORE wf_store
#define SET wf_set
#define FMA wf_fma
#define LOAD_FIRST wf_load_first
#define STORE_FIRST wf_store_first
#define LOW wf_interleave_low
#define HIGH wf_interleave_high
#define EVEN wf_even
#define ODD wf_odd
#define NAME(x) x##_wf
#define TARGET WIDE
#else
#define V vf
#define L VF
#define LOAD vf_load
#define STORE vf_store
#define SET vf_set
#define FMA vf_fma
#define LOAD_FIRST vf_load_first
#define STORE_FIRST vf_store_first
#define LOW vf_interleave_low
#define HIGH vf_interleave_high
#define EVEN vf_even
#define ODD vf_odd
#define NAME(x) x##_vf
#define TARGET
#endif
