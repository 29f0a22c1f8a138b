// SPDX-License-Identifier: Apache-2.0
// Methods of PyTorch's Tensor and other classes that Phlox lacks, as data tables. Missing module
// attributes are in paths.h.
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
    "slogdet smm solve sparse_dim sparse_mask "
    "sparse_resize_ sparse_resize_and_clear_ sspaddmm storage_type svd "
    "symeig to_mkldnn to_padded_tensor to_sparse_bsc to_sparse_bsr "
    "to_sparse_csc triangular_solve "
    "unsafe_split_with_sizes values xpu";

// Missing methods of classes, by module and public name.
static const struct {
  const char *path, *names;
} class_names[] = {
    {"profiler.profile",
     "export_memory_timeline get_trace_id prepare_trace set_custom_trace_id_callback "
     "toggle_collection_dynamic "
     "take_pending_cuspy_export wait_for_exports"},
    {"profiler.FunctionEvent",
     "append_cpu_child append_kernel concrete_inputs event_metadata flow_id fwd_thread "
     "input_dtypes kwinputs metadata overload_name scope "
     "sequence_nr set_cpu_parent structured_input_shapes structured_input_strides"},
    {"utils.benchmark.Timer", "collect_callgrind"},
    {"utils.benchmark.Measurement", "metadata task_spec"},
    {"storage.UntypedStorage",
     "bfloat16 bool byte byteswap char clone complex_double complex_float copy_ double filename "
     "fill_ float float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz from_buffer half hpu "
     "int is_hpu is_sparse is_sparse_csr long mps new short to type"},
    {"storage.TypedStorage",
     "bfloat16 bool byte char clone complex_double complex_float copy_ double filename fill_ float "
     "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz from_buffer from_file half hpu int "
     "is_hpu is_sparse long pickle_storage_type short to type"},
    {"cuda.CUDAGraph",
     "begin_capture_to_if_node begin_capture_to_while_node capture_end_post capture_end_pre "
     "end_capture_to_conditional_node "
     "get_currently_capturing_graph get_graph_data pools register_capture_end_hook "
     "register_capture_start_hook register_destroy_callback register_post_instantiate_hook "
     "register_replay_end_hook register_replay_start_hook retain_object "
     "set_conditional_handle_for_current_node"},
};
