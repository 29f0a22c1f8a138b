// SPDX-License-Identifier: Apache-2.0
// Methods of PyTorch's Tensor that Phlox lacks, a data table. What else it lacks is in
// paths.h.
#pragma once

static const char tensor_names[] =
    "align_as align_to angle ccol_indices cholesky "
    "cholesky_inverse cholesky_solve coalesce col_indices conj_physical conj_physical_ "
    "crow_indices dense_dim dequantize det eig geqrf has_names "
    "indices int_repr inverse ipu is_distributed logdet "
    "lstsq lu lu_solve map2_ matrix_exp matrix_power "
    "orgqr ormqr pinverse q_per_channel_axis q_per_channel_scales "
    "q_per_channel_zero_points q_scale q_zero_point qr qscheme refine_names "
    "reinforce rename rename_ resize resize_as resize_as_sparse_ row_indices "
    "set_ slogdet smm solve sparse_dim sparse_mask "
    "sparse_resize_ sparse_resize_and_clear_ sspaddmm storage_type svd "
    "symeig to_mkldnn to_padded_tensor to_sparse_bsc to_sparse_bsr "
    "to_sparse_csc triangular_solve "
    "unsafe_split_with_sizes values xpu";
