// SPDX-License-Identifier: Apache-2.0
// Methods of PyTorch's Tensor that Phlox lacks, a data table. What else it lacks is in
// paths.h.
#pragma once

static const char tensor_names[] =
    "addbmm addbmm_ addmv addmv_ addr addr_ adjoint align_as align_to aminmax angle as_strided_ "
    "as_strided_scatter bitwise_left_shift bitwise_left_shift_ bitwise_right_shift "
    "bitwise_right_shift_ cauchy_ ccol_indices cdouble cfloat chalf cholesky cholesky_inverse "
    "cholesky_solve coalesce col_indices conj_physical conj_physical_ copysign copysign_ "
    "corrcoef cov cross crow_indices cumprod_ cumsum_ deg2rad deg2rad_ dense_dim "
    "dequantize det diagflat diagonal_scatter digamma digamma_ dist dsplit eig erfinv "
    "erfinv_ fill_diagonal_ float_power float_power_ fmax fmin frexp gcd gcd_ geometric_ geqrf "
    "has_names heaviside heaviside_ histc histogram hsplit i0 i0_ igamma igamma_ igammac "
    "igammac_ index_put index_reduce index_reduce_ indices inner int_repr inverse ipu "
    "is_distributed is_nonzero isneginf isposinf isreal istft kron lcm lcm_ ldexp ldexp_ lgamma "
    "lgamma_ log_normal_ logaddexp2 logcumsumexp logdet logit logit_ lstsq lu lu_solve map2_ "
    "matrix_exp matrix_power mode msort mvlgamma mvlgamma_ nanmean nanmedian nanquantile "
    "narrow_copy new_empty_strided nextafter nextafter_ orgqr ormqr pinverse polygamma "
    "polygamma_ positive put put_ q_per_channel_axis q_per_channel_scales "
    "q_per_channel_zero_points q_scale q_zero_point qr qscheme quantile rad2deg rad2deg_ "
    "refine_names reinforce rename rename_ renorm renorm_ resize resize_as resize_as_ "
    "resize_as_sparse_ rot90 row_indices scatter_reduce scatter_reduce_ select_scatter set_ sgn "
    "sgn_ signbit sinc sinc_ slice_scatter slogdet smm solve sparse_dim sparse_mask "
    "sparse_resize_ sparse_resize_and_clear_ sspaddmm stft storage_type sum_to_size "
    "svd symeig to_dense to_mkldnn to_padded_tensor "
    "to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr "
    "triangular_solve unsafe_chunk unsafe_split unsafe_split_with_sizes values vdot "
    "vsplit xpu";
