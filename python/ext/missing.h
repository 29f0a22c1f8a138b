// SPDX-License-Identifier: Apache-2.0
// Methods of PyTorch's Tensor that Phlox lacks, a data table. What else it lacks is in
// paths.h.
#pragma once

static const char tensor_names[] =
    "addbmm addbmm_ addmv addmv_ addr addr_ adjoint align_as align_to aminmax angle as_strided_ "
    "as_strided_scatter bitwise_left_shift bitwise_left_shift_ bitwise_right_shift "
    "bitwise_right_shift_ ccol_indices cdouble cfloat chalf cholesky cholesky_inverse "
    "cholesky_solve coalesce col_indices conj_physical conj_physical_ corrcoef cov cross "
    "crow_indices cumprod_ cumsum_ dense_dim dequantize det diagflat diagonal_scatter dist dsplit "
    "eig fill_diagonal_ float_power float_power_ frexp geqrf has_names histc histogram hsplit "
    "index_put index_reduce index_reduce_ indices inner int_repr inverse ipu is_distributed "
    "is_nonzero istft kron logcumsumexp logdet lstsq lu lu_solve map2_ matrix_exp matrix_power "
    "mode msort mvlgamma mvlgamma_ nanmean nanmedian nanquantile narrow_copy new_empty_strided "
    "nextafter nextafter_ orgqr ormqr pinverse put put_ q_per_channel_axis q_per_channel_scales "
    "q_per_channel_zero_points q_scale q_zero_point qr qscheme quantile refine_names reinforce "
    "rename rename_ renorm renorm_ resize resize_as resize_as_ resize_as_sparse_ rot90 row_indices "
    "scatter_reduce scatter_reduce_ select_scatter set_ sgn sgn_ slice_scatter slogdet smm solve "
    "sparse_dim sparse_mask sparse_resize_ sparse_resize_and_clear_ sspaddmm stft storage_type "
    "sum_to_size svd symeig to_dense to_mkldnn to_padded_tensor to_sparse to_sparse_bsc "
    "to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr triangular_solve unsafe_chunk "
    "unsafe_split unsafe_split_with_sizes values vdot vsplit xpu";
