# SPDX-License-Identifier: Apache-2.0
"""Submodules, classes and functions of PyTorch that Phlox lacks, by module, a data table. They are
attributes that do not exist, and their AttributeError says so; functions of torch, Tensor and
nn.functional are in missing.h."""

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
        "TupleType Type UnionType Use Value amp ao autocast classes cpu distributed distributions "
        "export fft func functional futures fx hub jit library linalg masked mps multiprocessing "
        "nested onnx overrides package profiler qscheme quantization quasirandom serialization "
        "signal sparse special testing torch_version types xpu",
    "torch.autograd":
        "DeviceType NestedIOFunction ProfilerActivity ProfilerConfig ProfilerEvent ProfilerState "
        "SavedTensor anomaly_mode forward_ad functional gradgradcheck handle_torch_function "
        "has_torch_function is_tensor_like kineto_available profiler profiler_legacy "
        "profiler_util variable",
    "torch.autograd.function":
        "BackwardCFunction FunctionMeta InplaceFunction NestedIOFunction traceable with_metaclass",
    "torch.autograd.graph": "disable_saved_tensors_hooks save_on_cpu saved_tensors_hooks",
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
        "memory_stats_as_nested_dict memory_usage nccl nvtx profiler random sparse streams "
        "tunable utilization",
    "torch.cuda.memory":
        "caching_allocator_alloc caching_allocator_delete is_initialized list_gpu_processes "
        "mem_get_info memory_stats_as_nested_dict",
    "torch.nn":
        "AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool1d AdaptiveMaxPool2d "
        "AdaptiveMaxPool3d AlphaDropout AvgPool3d Buffer CTCLoss ConstantPad3d Container Conv3d "
        "ConvTranspose3d CrossMapLRN2d Dropout3d EmbeddingBag FeatureAlphaDropout Fold "
        "FractionalMaxPool2d FractionalMaxPool3d GRU GRUCell LPPool1d LPPool2d LSTM LSTMCell "
        "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d "
        "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d "
        "LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear LocalResponseNorm MaxPool3d MaxUnpool1d "
        "MaxUnpool2d MaxUnpool3d MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss "
        "MultiheadAttention NLLLoss2d RNN RNNBase RNNCell RNNCellBase RReLU ReflectionPad3d "
        "ReplicationPad3d SyncBatchNorm Transformer TransformerDecoder TransformerDecoderLayer "
        "TransformerEncoder TransformerEncoderLayer TripletMarginWithDistanceLoss Unfold "
        "UninitializedBuffer UninitializedParameter attention common_types factory_kwargs grad "
        "intrinsic modules qat quantizable quantized",
    "torch.nn.functional": "Tensor",
    "torch.nn.init":
        "Tensor constant dirac dirac_ eye eye_ kaiming_normal kaiming_uniform normal orthogonal "
        "orthogonal_ sparse sparse_ trunc_normal_ uniform xavier_normal xavier_uniform",
    "torch.nn.parallel":
        "DistributedDataParallel DistributedDataParallelCPU comm distributed scatter_gather",
    "torch.nn.parameter":
        "UninitializedBuffer UninitializedParameter UninitializedTensorMixin is_lazy",
    "torch.nn.utils":
        "clip_grad clip_grad_norm clip_grad_value_ convert_conv2d_weight_memory_format "
        "convert_parameters fuse_conv_bn_eval fuse_conv_bn_weights fusion init memory_format "
        "parametrizations parametrize prune remove_spectral_norm remove_weight_norm rnn skip_init "
        "spectral_norm stateless weight_norm",
    "torch.optim": "Adafactor LBFGS Muon SparseAdam swa_utils",
    "torch.optim.lr_scheduler": "CyclicLR",
    "torch.random": "fork_rng",
    "torch.return_types": "pytree_register_structseq",
    "torch.storage": "Storage",
    "torch.utils":
        "ThroughputBenchmark backcompat benchmark bottleneck checkpoint collect_env cpp_backtrace "
        "cpp_extension disable_minidumps enable_minidumps enable_minidumps_on_exceptions "
        "file_baton flop_counter get_cpp_backtrace hipify mobile_optimizer model_zoo set_module "
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
