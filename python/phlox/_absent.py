# SPDX-License-Identifier: Apache-2.0
"""Submodules, classes and functions of PyTorch that Phlox lacks, by module, a data table. They are
attributes that do not exist, and their AttributeError says so; methods of Tensor are in
missing.h."""

NAMES = {f"{module}.{name}" for module, names in {
    "torch":
        "AggregationType AliasDb AnyType Argument ArgumentSpec BFloat16Storage BenchmarkConfig "
        "BenchmarkExecutionStats Block BoolStorage BoolType BufferDict ByteStorage CallStack "
        "Capsule CharStorage ClassType Code CompilationUnit CompleteArgumentSpec "
        "ComplexDoubleStorage ComplexFloatStorage ComplexType ConcreteModuleType "
        "ConcreteModuleTypeBuilder DeepCopyMemoTable DeserializationStorageContext DeviceObjType "
        "DictType DispatchKey DispatchKeySet DoubleStorage EnumType ErrorReport "
        "ExcludeDispatchKeyGuard ExecutionPlan FatalError FileCheck FloatStorage FloatType "
        "FunctionSchema Future FutureType Gradient Graph GraphExecutorState HalfStorage "
        "IODescriptor InferredType IntStorage IntType InterfaceType JITException ListType "
        "LiteScriptModule LockingLogger LongStorage MobileOptimizerType ModuleDict Node NoneType "
        "NoopLogger NumberType OperatorInfo OptionalType ParameterDict PyObjectType "
        "PyTorchFileReader PyTorchFileWriter QInt32Storage QInt8Storage QUInt2x4Storage "
        "QUInt4x2Storage QUInt8Storage RRefType ScriptClass ScriptClassFunction ScriptDict "
        "ScriptDictIterator ScriptDictKeyIterator ScriptFunction ScriptList ScriptListIterator "
        "ScriptMethod ScriptModule ScriptModuleSerializer ScriptObject ScriptObjectProperty "
        "SerializationStorageContext ShortStorage StaticModule Storage StreamObjType StringType "
        "SymFloatNode SymIntNode SymIntType Tag TensorType ThroughputBenchmark TracingState "
        "TupleType Type UnionType Use Value adaptive_max_pool1d addbmm addmv addmv_ addr adjoint "
        "affine_grid_generator alias_copy align_tensors alpha_dropout alpha_dropout_ aminmax amp "
        "angle as_strided_ as_strided_copy "
        "as_strided_scatter atleast_1d atleast_2d atleast_3d autocast autocast_decrement_nesting "
        "autocast_increment_nesting bartlett_window batch_norm_backward_elemt "
        "batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats "
        "batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats bilinear "
        "binomial bitwise_left_shift bitwise_right_shift blackman_window block_diag bucketize "
        "cartesian_prod ccol_indices_copy cdist celu_ chain_matmul channel_shuffle cholesky "
        "cholesky_inverse cholesky_solve choose_qparams_optimized classes clear_autocast_cache "
        "col_indices_copy column_stack combinations compiled_with_cxx11_abi complex conj "
        "conj_physical conj_physical_ conv3d conv_tbc conv_transpose3d convolution copysign "
        "corrcoef cov cpu cross crow_indices_copy ctc_loss cudnn_affine_grid_generator "
        "cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu "
        "cudnn_convolution_transpose cudnn_grid_sampler cudnn_is_acceptable "
        "cumulative_trapezoid deg2rad deg2rad_ dequantize det detach_ detach_copy diagflat "
        "diagonal_copy diagonal_scatter diff digamma dist distributions dropout_ dsmm "
        "dsplit dstack eig embedding embedding_bag embedding_renorm_ empty_quantized "
        "erfinv expand_copy fake_quantize_per_channel_affine "
        "fake_quantize_per_tensor_affine fbgemm_linear_fp16_weight "
        "fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight "
        "fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight "
        "fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix feature_alpha_dropout "
        "feature_alpha_dropout_ feature_dropout feature_dropout_ fft float_power fmax fmin fork "
        "frexp frobenius_norm from_file func fused_moving_avg_obs_fake_quant "
        "gcd gcd_ geqrf get_autocast_cpu_dtype get_autocast_gpu_dtype "
        "get_device get_file_path gradient grid_sampler "
        "grid_sampler_2d grid_sampler_3d hamming_window hann_window hash_tensor "
        "heaviside histc histogram histogramdd hsmm hsplit hspmm i0 i0_ igamma igammac imag "
        "import_ir_module import_ir_module_from_buffer index_put index_put_ index_reduce "
        "indices_copy init_num_threads inner int_repr inverse is_autocast_cache_enabled "
        "is_autocast_cpu_enabled is_autocast_enabled is_conj "
        "is_distributed is_inference is_neg "
        "is_same_size is_signed is_vulkan_available is_warn_always_enabled isin isneginf isposinf "
        "isreal istft kaiser_window kron lcm lcm_ ldexp ldexp_ lgamma linalg lobpcg "
        "logaddexp2 logcumsumexp logdet logit logit_ logspace lstsq lu lu_solve "
        "lu_unpack masked matrix_exp matrix_power matrix_rank max_pool1d_with_indices max_pool3d "
        "merge_type_from_type_comment miopen_batch_norm miopen_convolution "
        "miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose "
        "miopen_depthwise_convolution miopen_rnn mkldnn_adaptive_avg_pool2d mkldnn_convolution "
        "mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d mode mps msort "
        "mvlgamma nanmean nanmedian nanquantile narrow_copy native_batch_norm "
        "native_channel_shuffle native_dropout native_group_norm native_norm nested nextafter "
        "norm_except_dim nuclear_norm orgqr ormqr parse_ir parse_schema "
        "parse_type_comment pca_lowrank pdist permute_copy pinverse poisson polar polygamma "
        "positive prepare_multiprocessing_environment put q_per_channel_axis "
        "q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qr qscheme quantile "
        "quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic "
        "quantized_batch_norm quantized_gru quantized_gru_cell quantized_lstm quantized_lstm_cell "
        "quantized_max_pool1d quantized_max_pool2d quantized_rnn_relu_cell "
        "quantized_rnn_tanh_cell quasirandom rad2deg rad2deg_ range read_vitals real renorm "
        "resize_as_ resize_as_sparse_ resolve_conj resolve_neg "
        "rot90 row_indices_copy rrelu rrelu_ saddmm scatter_reduce searchsorted "
        "segment_reduce select_copy select_scatter selu_ set_anomaly_enabled "
        "set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled "
        "set_autocast_enabled set_autocast_gpu_dtype "
        "set_flush_denormal set_num_interop_threads set_vital set_warn_always sgn signal signbit "
        "sinc sinc_ slice_copy slice_scatter slogdet smm solve sparse sparse_bsc_tensor "
        "sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor "
        "sparse_csr_tensor special split_copy split_with_sizes_copy spmm squeeze_copy sspaddmm "
        "std_mean stft svd svd_lowrank symeig t_copy take_along_dim tensordot testing threshold_ "
        "torch_version transpose_copy trapezoid trapz triangular_solve unbind_copy "
        "unfold_copy unify_type_list unsafe_chunk unsafe_split unsafe_split_with_sizes "
        "unsqueeze_copy values_copy vander var_mean vdot "
        "view_as_complex view_as_complex_copy view_as_real view_as_real_copy view_copy "
        "vitals_enabled vmap vsplit wait while_loop xpu",
    "torch.autograd":
        "DeviceType NestedIOFunction ProfilerActivity ProfilerConfig ProfilerEvent ProfilerState "
        "SavedTensor forward_ad functional gradgradcheck handle_torch_function "
        "has_torch_function is_tensor_like kineto_available profiler_legacy "
        "profiler_util",
    "torch.autograd.function":
        "BackwardCFunction FunctionMeta InplaceFunction NestedIOFunction traceable with_metaclass",
    "torch.autograd.graph": "disable_saved_tensors_hooks",
    "torch.backends":
        "ContextProp PropModule disable_global_flags flags_frozen mkl openmp opt_einsum quantized",
    "torch.backends.cuda":
        "cuBLASModule cuFFTPlanCache cuFFTPlanCacheAttrContextProp cuFFTPlanCacheManager "
        "enable_flash_sdp enable_math_sdp flash_sdp_enabled math_sdp_enabled "
        "preferred_linalg_library sdp_kernel",
    "torch.cuda":
        "BFloat16Storage BoolStorage ByteStorage CUDAGraph CharStorage ComplexDoubleStorage "
        "ComplexFloatStorage CudaError DeferredCudaCallError DoubleStorage ExternalStream "
        "FloatStorage HalfStorage IntStorage LongStorage MemPool ShortStorage amp "
        "caching_allocator_alloc caching_allocator_delete check_error classproperty cudaStatus "
        "cudart current_blas_handle gds get_gencode_flags graph graph_pool_handle graphs "
        "is_current_stream_capturing jiterator list_gpu_processes make_graphed_callables "
        "memory_stats_as_nested_dict memory_usage nccl "
        "tunable utilization",
    "torch.cuda.memory":
        "caching_allocator_alloc caching_allocator_delete is_initialized list_gpu_processes "
        "mem_get_info memory_stats_as_nested_dict",
    "torch.nn":
        "AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool1d AdaptiveMaxPool2d "
        "AdaptiveMaxPool3d AlphaDropout AvgPool3d CTCLoss ConstantPad3d Container Conv3d "
        "ConvTranspose3d CrossMapLRN2d Dropout3d EmbeddingBag FeatureAlphaDropout Fold "
        "FractionalMaxPool2d FractionalMaxPool3d GRU GRUCell LPPool1d LPPool2d LSTM LSTMCell "
        "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d "
        "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d "
        "LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear LocalResponseNorm MaxPool3d MaxUnpool1d "
        "MaxUnpool2d MaxUnpool3d MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss "
        "MultiheadAttention NLLLoss2d RNN RNNBase RNNCell RNNCellBase RReLU ReflectionPad3d "
        "ReplicationPad3d SyncBatchNorm Transformer TransformerDecoder TransformerDecoderLayer "
        "TransformerEncoder TransformerEncoderLayer TripletMarginWithDistanceLoss Unfold "
        "UninitializedBuffer UninitializedParameter attention factory_kwargs grad "
        "intrinsic qat quantizable quantized",
    "torch.nn.functional":
        "Tensor adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool1d_with_indices "
        "adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_max_pool3d "
        "adaptive_max_pool3d_with_indices affine_grid alpha_dropout avg_pool3d bilinear celu_ "
        "channel_shuffle conv3d conv_tbc conv_transpose3d ctc_loss dropout3d embedding_bag "
        "feature_alpha_dropout fold fractional_max_pool2d fractional_max_pool2d_with_indices "
        "fractional_max_pool3d fractional_max_pool3d_with_indices grid_sample gumbel_softmax "
        "local_response_norm lp_pool1d lp_pool2d max_pool1d_with_indices max_pool3d "
        "max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d "
        "multi_head_attention_forward multi_margin_loss multilabel_margin_loss "
        "multilabel_soft_margin_loss native_channel_shuffle pdist rrelu rrelu_ selu_ "
        "triplet_margin_with_distance_loss unfold upsample_bilinear upsample_nearest",
    "torch.nn.init":
        "Tensor constant dirac dirac_ eye eye_ kaiming_normal kaiming_uniform normal orthogonal "
        "orthogonal_ sparse sparse_ trunc_normal_ uniform xavier_normal xavier_uniform",
    "torch.nn.parallel":
        "DistributedDataParallelCPU",
    "torch.nn.parameter":
        "UninitializedBuffer UninitializedParameter UninitializedTensorMixin is_lazy",
    "torch.nn.utils":
        "convert_conv2d_weight_memory_format fuse_conv_bn_eval fuse_conv_bn_weights "
        "parametrizations parametrize prune remove_spectral_norm remove_weight_norm rnn skip_init "
        "spectral_norm stateless weight_norm",
    "torch.optim": "Adafactor LBFGS Muon SparseAdam swa_utils",
    "torch.optim.lr_scheduler": "CyclicLR",
    "torch.return_types": "pytree_register_structseq",
    "torch.storage": "Storage",
    "torch.utils":
        "ThroughputBenchmark backcompat benchmark bottleneck collect_env cpp_backtrace "
        "disable_minidumps enable_minidumps enable_minidumps_on_exceptions "
        "file_baton flop_counter get_cpp_backtrace hipify set_module "
        "tensorboard throughput_benchmark",
    "torch.utils.data":
        "ChainDataset DFIterDataPipe DataChunk DataLoader2 DistributedSampler IterDataPipe "
        "MapDataPipe argument_validation backward_compatibility communication "
        "dataloader_experimental datapipes distributed functional_datapipe graph graph_settings "
        "guaranteed_datapipes_determinism non_deterministic runtime_validation "
        "runtime_validation_disabled",
    "torch.utils.dlpack": "DLDeviceType",
    "torch.utils.hooks": "BackwardHook unserializable_hook warn_if_has_hooks",
}.items() for name in names.split()}
