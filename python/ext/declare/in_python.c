// SPDX-License-Identifier: Apache-2.0
// Table of names implemented in Python: for each module and type created in C, the Python files and
// the names they define. phlox/__init__.py imports a file on first access of a name.
#include "bind/ext.h"

// A file is relative to its module unless it begins with "phlox.". A file listing its own name is a
// submodule. Names of a type are methods of the class of the same name in the file.
static const struct {
  const char *owner, *file, *names;
} in_python[] = {
    {"", "_files", "from_file frombuffer"},
    {"", "_lowrank", "chain_matmul lu pca_lowrank svd_lowrank"},
    {"", "phlox.amp.grad_scaler", "GradScaler"},
    {"", "serialization", "load save serialization"},
    {"", "_samples", "gradient histogram histogramdd"},
    {"", "sparse", "sparse sparse_coo_tensor sparse_csr_tensor spmm"},
    {"", "random",
     "get_rng_state initial_seed manual_seed random seed set_rng_state thread_safe_generator"},
    {"", "foreach", "foreach"},
    {"", "futures", "futures"},
    {"", "hub", "hub"},
    {"compiler", "phlox._optimized", "OptimizedModule"},
    {"", "_limits", "finfo iinfo"},
    {"", "_legacy",
     "set_default_tensor_type BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor "
     "FloatTensor HalfTensor IntTensor LongTensor ShortTensor"},
    {"", "optim", "optim"},
    {"", "profiler", "profiler"},
    {"", "distributions", "distributions"},
    {"", "overrides", "overrides"},
    {"", "multiprocessing", "multiprocessing"},
    {"", "backends", "backends get_float32_matmul_precision set_float32_matmul_precision"},
    {"", "phlox.utils.dlpack", "from_dlpack to_dlpack"},
    {"", "_utils", "_utils"},
    {"", "testing", "testing"},
    {"", "types", "types"},
    {"", "version", "version"},
    {"", "phlox.func._vmap", "vmap"},
    {"amp", "grad_scaler", "GradScaler grad_scaler"},
    {"cpu.amp", "grad_scaler", "GradScaler grad_scaler"},
    {"cuda.amp", "grad_scaler", "GradScaler grad_scaler"},
    {"autograd", "_check", "gradcheck gradgradcheck"},
    {"autograd", "forward_ad", "forward_ad"},
    {"autograd", "functional", "functional"},
    {"autograd", "variable", "Variable variable"},
    {"autograd.graph", "phlox.autograd._saved",
     "allow_mutation_on_saved_tensors disable_saved_tensors_hooks save_on_cpu "
     "saved_tensors_hooks"},
    {"autograd.graph", "phlox.autograd._edges",
     "GradientEdge get_gradient_edge register_multi_grad_hook"},
    {"autograd.profiler", "phlox.autograd._marks", "emit_nvtx record_function"},
    {"autograd.profiler", "phlox.autograd._profile", "profile"},
    {"distributed", "_groups",
     "Backend BuiltinCommHookType DistBackendError DistError DistNetworkError DistStoreError "
     "FileStore GroupMember "
     "HashStore P2POp PrefixStore QueueEmptyError RedOpType ReduceOp Store TCPStore Work "
     "all_gather_object batch_isend_irecv broadcast_object_list default_pg_nccl_timeout "
     "default_pg_timeout gather_object get_node_local_rank group init_process_group is_available "
     "is_backend_available is_gloo_available is_mpi_available is_nccl_available "
     "is_torchelastic_launched new_group "
     "new_subgroups new_subgroups_by_enumeration recv_object_list reduce_op scatter_object_list "
     "send_object_list simulate split_group"},
    {"distributed.algorithms", "join", "join"},
    {"cuda", "_types",
     "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor "
     "IntTensor LongTensor ShortTensor"},
    {"accelerator", "phlox.cuda._accelerator_graph", "Graph"},
    {"cuda", "_cudart", "CudaError check_error cudart"},
    {"cuda", "comm", "comm"},
    {"cuda", "graphs", "graphs make_graphed_callables"},
    {"cuda", "jiterator", "jiterator"},
    {"cuda", "memory",
     "memory caching_allocator_alloc caching_allocator_delete caching_allocator_disabled "
     "caching_allocator_enable max_memory_cached memory_cached memory_snapshot "
     "host_memory_stats_as_nested_dict list_gpu_processes memory_stats_as_nested_dict "
     "memory_summary reset_max_memory_allocated "
     "reset_max_memory_cached use_mem_pool"},
    {"cuda", "_properties", "get_device_properties get_sync_debug_mode set_sync_debug_mode"},
    {"cuda.nvtx", "phlox.autograd._marks", "range"},
    {"cuda.profiler", "phlox.autograd._marks", "init profile"},
    {"cuda", "random",
     "default_generators get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all "
     "random seed "
     "seed_all set_rng_state set_rng_state_all"},
    {"func", "phlox.func._forward", "hessian jacfwd jacrev jvp linearize"},
    {"func", "phlox.func._models", "replace_all_batch_norm_modules_ stack_module_state"},
    {"func", "phlox.func._rearrange", "rearrange"},
    {"func", "phlox.func._reverse", "grad grad_and_value vjp"},
    {"func", "phlox.func._vmap", "vmap"},
    {"library", "phlox._schemas", "custom_op infer_schema"},
    {"masked", "maskedtensor",
     "MaskedTensor as_masked_tensor is_masked_tensor maskedtensor masked_tensor"},
    {"nn.functional", "phlox.nn._losses", "triplet_margin_with_distance_loss"},
    {"nn.init", "phlox.nn._older",
     "constant dirac eye kaiming_normal kaiming_uniform normal orthogonal sparse uniform "
     "xavier_normal xavier_uniform"},
    {"nn.parameter", "phlox.nn._lazy", "UninitializedBuffer UninitializedParameter is_lazy"},
    {"nn.parameter", "phlox.nn.parameters", "Buffer"},
    {"nn.utils", "memory_format",
     "convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format memory_format"},
    {"nn.utils", "parametrizations", "parametrizations"},
    {"nn.utils", "parametrize", "parametrize"},
    {"nn.utils", "prune", "prune"},
    {"nn.utils", "phlox.nn.utils.spectral_norm", "remove_spectral_norm spectral_norm"},
    {"nn.utils", "phlox.nn.utils.weight_norm", "remove_weight_norm weight_norm"},
    {"nn.utils", "rnn", "rnn"},
    {"nn", "attention", "attention"},
    {"nn", "_lazy", "UninitializedBuffer UninitializedParameter"},
    {"nn", "_losses",
     "FractionalMaxPool2d FractionalMaxPool3d LinearCrossEntropyLoss "
     "TripletMarginWithDistanceLoss"},
    {"nn", "parallel", "parallel DataParallel"},
    {"nn", "parameters", "Buffer ParameterDict ParameterList"},
    {"utils", "_pytree", "_pytree"},
    {"utils", "benchmark", "benchmark"},
    {"utils", "checkpoint", "checkpoint"},
    {"utils", "collect_env", "collect_env"},
    {"signal.windows", "phlox._windows",
     "bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann "
     "kaiser nuttall"},
    {"utils", "data", "data"},
    {"utils", "deterministic", "deterministic"},
    {"utils", "dlpack", "dlpack"},
    // ---- types
    {"Tensor", "phlox._tensor",
     "__copy__ __deepcopy__ __format__ __rdiv__ __reduce_ex__ __setstate__ apply_ lu map_ "
     "new new_tensor set_ to_dense to_sparse to_sparse_coo to_sparse_csr type"},
    {"Tensor", "phlox._samples", "histogram"},
    {"nn.Module", "phlox.nn._module",
     "_register_load_state_dict_pre_hook _register_state_dict_hook "
     "register_backward_hook register_full_backward_hook register_full_backward_pre_hook "
     "register_load_state_dict_post_hook register_load_state_dict_pre_hook "
     "register_state_dict_post_hook register_state_dict_pre_hook share_memory "
     "to_empty"},
    {"nn.LazyModuleMixin", "phlox.nn._lazy",
     "__init__ _infer_parameters _lazy_load_hook _save_to_state_dict has_uninitialized_params "
     "initialize_parameters"},
    {"nn.Embedding", "phlox.nn._losses", "from_pretrained"},
    {"nn.EmbeddingBag", "phlox.nn._losses", "from_pretrained"},
    {"nn.SyncBatchNorm", "phlox.nn._losses", "convert_sync_batchnorm"},
    {"nn.MultiheadAttention", "phlox.nn._losses", "merge_masks"},
    {"nn.Sequential", "phlox.nn._containers",
     "__add__ __iadd__ __imul__ __mul__ __reversed__ __rmul__"},
    {"nn.ModuleList", "phlox.nn._containers", "__add__ __iadd__ __reversed__"},
    {"nn.Transformer", "phlox.nn._losses", "__init__ generate_square_subsequent_mask"},
    {"nn.TransformerDecoder", "phlox.nn._losses", "__init__"},
    {"nn.TransformerEncoder", "phlox.nn._losses", "__init__"},
    {"nn.RNNBase", "phlox.nn._recurrent",
     "_all_weights _flat_weights _flat_weights_names all_weights flatten_parameters "
     "permute_hidden"},
};

EXT_FUNCTION0(torch, _in_python, "list[tuple[str, str, str]]",
              "Returns the table of names implemented in Python: module or type, file, names.") {
  EXT_OWNED *rows = PyList_New(0);
  for (int i = 0; rows && i < EXT_LENGTH(in_python); i++) {
    EXT_OWNED *row =
        Py_BuildValue("(sss)", in_python[i].owner, in_python[i].file, in_python[i].names);
    if (!row || PyList_Append(rows, row) < 0) return NULL;
  }
  return ext_moved(&rows);
}
