// SPDX-License-Identifier: Apache-2.0
// PyTorch modules without a file in Phlox, a data table. phlox/_paths.py creates one when it is
// imported. A row lists sources and names:
// - "module: names" re-exports names of a Phlox module; "torch" is the root and "*" all names.
// - "a=b" exports b under the name a.
// - "!:" names can be imported and subclassed but refuse calls.
// - "no:" functions return False, "nothing:" None and "same:" their argument.
// - "marks:" names are decorators taking a name.
// Names missing in the Phlox module are missing here, too. For an existing module, the names of its
// row are added.
#pragma once

static const struct {
  const char *path, *names;
} paths[] = {
    // ---- torch.nn
    {"nn.modules", "nn: *"},
    {"nn.modules.activation",
     "nn: CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid "
     "LogSoftmax Mish MultiheadAttention PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax "
     "Softmax2d Softmin Softplus Softshrink Softsign Tanh Tanhshrink Threshold"},
    {"nn.modules.adaptive", "nn: AdaptiveLogSoftmaxWithLoss"},
    {"nn.modules.batchnorm",
     "nn: BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d "
     "SyncBatchNorm _BatchNorm _NormBase"},
    {"nn.modules.channelshuffle", "nn: ChannelShuffle"},
    {"nn.modules.container",
     "nn: Container ModuleDict ModuleList ParameterDict ParameterList Sequential"},
    {"nn.modules.conv",
     "nn: Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d "
     "LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d _ConvNd "
     "_ConvTransposeNd"},
    {"nn.modules.distance", "nn: CosineSimilarity PairwiseDistance"},
    {"nn.modules.dropout",
     "nn: AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout _DropoutNd"},
    {"nn.modules.flatten", "nn: Flatten Unflatten"},
    {"nn.modules.fold", "nn: Fold Unfold"},
    {"nn.modules.instancenorm",
     "nn: InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d "
     "LazyInstanceNorm3d _InstanceNorm"},
    {"nn.modules.lazy", "nn: LazyModuleMixin; nn._lazy: is_lazy"},
    {"nn.modules.linear",
     "nn: Bilinear Identity LazyLinear Linear NonDynamicallyQuantizableLinear"},
    {"nn.modules.loss",
     "nn: BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss "
     "GaussianNLLLoss HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss LinearCrossEntropyLoss "
     "MSELoss MarginRankingLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss "
     "NLLLoss NLLLoss2d PoissonNLLLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss "
     "TripletMarginWithDistanceLoss _Loss _WeightedLoss"},
    {"nn.modules.module",
     "nn: Module _IncompatibleKeys; nn._module: _EXTRA_STATE_KEY_SUFFIX "
     "register_module_backward_hook "
     "register_module_buffer_registration_hook register_module_forward_hook "
     "register_module_forward_pre_hook register_module_full_backward_hook "
     "register_module_full_backward_pre_hook register_module_module_registration_hook "
     "register_module_parameter_registration_hook _global_backward_hooks "
     "_global_backward_pre_hooks _global_forward_hooks _global_forward_hooks_always_called "
     "_global_forward_hooks_with_kwargs _global_forward_pre_hooks; utils.hooks: RemovableHandle "
     "BackwardHook"},
    {"nn.modules.normalization", "nn: CrossMapLRN2d GroupNorm LayerNorm LocalResponseNorm RMSNorm"},
    {"nn.modules.padding",
     "nn: CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d "
     "ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d "
     "ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d _ConstantPadNd _ReflectionPadNd "
     "_ReplicationPadNd _CircularPadNd"},
    {"nn.modules.pixelshuffle", "nn: PixelShuffle PixelUnshuffle"},
    {"nn.modules.pooling",
     "nn: AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d "
     "AdaptiveMaxPool2d AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d "
     "FractionalMaxPool3d LPPool1d LPPool2d LPPool3d MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d "
     "MaxUnpool2d MaxUnpool3d _MaxPoolNd _MaxUnpoolNd _AvgPoolNd _LPPoolNd _AdaptiveMaxPoolNd "
     "_AdaptiveAvgPoolNd"},
    {"nn.modules.rnn",
     "nn: GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase apply_permutation"},
    {"nn.modules.sparse", "nn: Embedding EmbeddingBag"},
    {"nn.modules.transformer",
     "nn: Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder "
     "TransformerEncoderLayer"},
    {"nn.modules.upsampling", "nn: Upsample UpsamplingBilinear2d UpsamplingNearest2d"},
    {"nn.modules.utils",
     "nn._tuples: _ntuple _single _pair _triple _quadruple _reverse_repeat_tuple "
     "consume_prefix_in_state_dict_if_present"},
    {"_nn", "torch: _parse_to"},
    {"multiprocessing.pool", "multiprocessing: Pool"},
    {"multiprocessing.queue", "multiprocessing: Queue SimpleQueue"},
    {"nn.parallel._functions",
     "nn._transfers: Broadcast Gather ReduceAddCoalesced Scatter _get_stream"},
    {"nn.parallel.data_parallel", "nn.parallel: DataParallel data_parallel"},
    {"nn.parallel.distributed",
     "nn.parallel: DistributedDataParallel _BufferCommHookLocation _MixedPrecision"},
    {"nn.parallel.parallel_apply", "nn.parallel: get_a_var parallel_apply"},
    {"nn.parallel.replicate", "nn.parallel: replicate"},
    {"nn.parallel.scatter_gather", "nn.parallel: gather is_namedtuple scatter scatter_kwargs"},
    {"nn.parallel.comm",
     "cuda.comm: broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter"},
    {"nn.utils.clip_grad",
     "nn.utils: clip_grad_norm clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ "
     "get_total_norm"},
    {"nn.utils.convert_parameters", "nn.utils: parameters_to_vector vector_to_parameters"},
    {"nn.utils.fusion",
     "nn.utils: fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval "
     "fuse_linear_bn_weights"},
    {"nn.utils.init", "nn.utils: skip_init"},
    {"nn.utils.memory_format",
     "nn.utils: convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format"},
    // ---- torch.optim
    {"optim._adafactor", "optim: Adafactor"},
    {"optim._muon", "optim: Muon"},
    {"optim.adadelta", "optim: Adadelta adadelta"},
    {"optim.adagrad", "optim: Adagrad adagrad"},
    {"optim.adam", "optim: Adam adam"},
    {"optim.adamw", "optim: AdamW adamw"},
    {"optim.adamax", "optim: Adamax adamax"},
    {"optim.asgd", "optim: ASGD asgd"},
    {"optim.lbfgs", "optim: LBFGS"},
    {"optim.nadam", "optim: NAdam nadam"},
    {"optim.radam", "optim: RAdam radam"},
    {"optim.rmsprop", "optim: RMSprop rmsprop"},
    {"optim.rprop", "optim: Rprop rprop"},
    {"optim.sgd", "optim: SGD sgd"},
    {"optim.sparse_adam", "optim: SparseAdam"},
    {"optim._functional",
     "optim: adadelta adagrad adam adamax adamw asgd nadam radam rmsprop rprop sgd sparse_adam"},
    // ---- torch.distributions
    {"distributions.bernoulli", "distributions: Bernoulli"},
    {"distributions.beta", "distributions: Beta"},
    {"distributions.binomial", "distributions: Binomial"},
    {"distributions.categorical", "distributions: Categorical"},
    {"distributions.cauchy", "distributions: Cauchy"},
    {"distributions.chi2", "distributions: Chi2"},
    {"distributions.continuous_bernoulli", "distributions: ContinuousBernoulli"},
    {"distributions.dirichlet", "distributions: Dirichlet"},
    {"distributions.exp_family", "distributions: ExponentialFamily"},
    {"distributions.exponential", "distributions: Exponential"},
    {"distributions.fishersnedecor", "distributions: FisherSnedecor"},
    {"distributions.gamma", "distributions: Gamma"},
    {"distributions.generalized_pareto", "distributions: GeneralizedPareto"},
    {"distributions.geometric", "distributions: Geometric"},
    {"distributions.gumbel", "distributions: Gumbel"},
    {"distributions.half_cauchy", "distributions: HalfCauchy"},
    {"distributions.half_normal", "distributions: HalfNormal"},
    {"distributions.inverse_gamma", "distributions: InverseGamma"},
    {"distributions.kumaraswamy", "distributions: Kumaraswamy"},
    {"distributions.laplace", "distributions: Laplace"},
    {"distributions.lkj_cholesky", "distributions: LKJCholesky"},
    {"distributions.log_normal", "distributions: LogNormal"},
    {"distributions.logistic_normal", "distributions: LogisticNormal"},
    {"distributions.lowrank_multivariate_normal", "distributions: LowRankMultivariateNormal"},
    {"distributions.multinomial", "distributions: Multinomial"},
    {"distributions.multivariate_normal", "distributions: MultivariateNormal"},
    {"distributions.negative_binomial", "distributions: NegativeBinomial"},
    {"distributions.normal", "distributions: Normal"},
    {"distributions.one_hot_categorical",
     "distributions: OneHotCategorical OneHotCategoricalStraightThrough"},
    {"distributions.pareto", "distributions: Pareto"},
    {"distributions.poisson", "distributions: Poisson"},
    {"distributions.relaxed_bernoulli",
     "distributions: RelaxedBernoulli; distributions._transformed: LogitRelaxedBernoulli"},
    {"distributions.relaxed_categorical",
     "distributions: RelaxedOneHotCategorical; distributions._transformed: ExpRelaxedCategorical"},
    {"distributions.studentT", "distributions: StudentT"},
    {"distributions.uniform", "distributions: Uniform"},
    {"distributions.von_mises", "distributions: VonMises"},
    {"distributions.weibull", "distributions: Weibull"},
    {"distributions.wishart", "distributions: Wishart"},
    // ---- torch.utils
    {"utils.data._utils", ""},
    {"utils.data._utils.collate",
     "utils.data: default_collate default_convert; utils.data._collate: collate "
     "collate_float_fn collate_int_fn collate_numpy_array_fn collate_numpy_scalar_fn "
     "collate_str_fn collate_tensor_fn default_collate_err_msg_format default_collate_fn_map "
     "np_str_obj_array_pattern"},
    {"utils.data._utils.worker", "utils.data: get_worker_info; utils.data._workers: WorkerInfo"},
    {"utils.data._utils.pin_memory", "utils.data._collate: pin_memory"},
    {"utils.data._utils.fetch", ""},
    {"utils.data._utils.signal_handling", ""},
    {"utils.data.distributed", "utils.data: DistributedSampler"},
    {"utils.data.dataloader", "utils.data._workers: _MultiProcessingDataLoaderIter"},
    {"utils.benchmark",
     "!: CallgrindStats Compare CopyIfCallgrind FunctionCount FunctionCounts FuzzedParameter "
     "FuzzedSparseTensor FuzzedTensor Fuzzer Language ParameterAlias TaskSpec"},
    {"utils.model_zoo", "hub: load_url tqdm"},
    {"utils._pytree",
     "utils._pytree: _dict_flatten=_of_dict _dict_unflatten=_to_dict; !: "
     "_dict_flatten_with_keys MappingKey SequenceKey GetAttrKey KeyEntry tree_flatten_with_path "
     "tree_map_with_path keystr treespec_dumps treespec_loads treespec_pprint register_constant "
     "register_dataclass"},
    {"utils.cpp_extension",
     "!: BuildExtension CUDAExtension CppExtension SyclExtension check_compiler_is_gcc "
     "check_compiler_ok_for_platform get_compiler_abi_compatibility_and_version "
     "get_cxx_compiler get_default_build_root include_paths is_ninja_available library_paths "
     "load load_inline remove_extension_h_precompiler_headers verify_ninja_availability"},
    {"utils.mobile_optimizer", "!: optimize_for_mobile generate_mobile_module_lints"},
    {"utils.flop_counter", "utils._flops: FlopCounterMode; !: register_flop_formula"},
    // ---- compilers, exporters and tracers, which can be imported
    {"compiler",
     "same: allow_in_graph assume_constant_result nested_compile_region; no: is_exporting; "
     "nothing: reset cudagraph_mark_step_begin; torch: compile; !: PrecompileError "
     "cudagraph_mark_warmup_incomplete get_default_backend "
     "keep_portable_guards_unsafe keep_tensor_guards_unsafe load_cache_artifacts "
     "load_compiled_function nonstrict_trace save_cache_artifacts "
     "set_default_backend set_enable_guard_collectives skip_all_guards_unsafe "
     "skip_guard_on_all_nn_modules_unsafe skip_guard_on_globals_unsafe "
     "skip_guard_on_inbuilt_nn_modules_unsafe substitute_in_graph wrap_numpy"},
    {"_dynamo",
     "compiler: OptimizedModule allow_in_graph assume_constant_result disable is_compiling "
     "list_backends reset; same: disallow_in_graph forbid_in_graph "
     "skip; no: is_dynamo_supported; nothing: graph_break mark_dynamic "
     "maybe_mark_dynamic mark_static mark_static_address; !: explain export "
     "lookup_backend optimize optimize_assert register_backend run"},
    {"_dynamo.exc", "compiler: InvalidBackend TorchDynamoException Unsupported"},
    {"_dynamo._trace_wrapped_higher_order_op", "!: TransformGetItemToIndex"},
    {"_dynamo.config", ""},
    {"_dynamo.utils", "no: is_compile_supported"},
    {"_dynamo.eval_frame", "_dynamo: OptimizedModule"},
    {"jit",
     "_jit: script trace trace_module freeze optimize_for_inference annotate Attribute load "
     "RecursiveScriptModule ScriptModule Final; same: export unused ignore script_method "
     "script_if_tracing interface "
     "_overload _overload_method _script_if_tracing; no: is_scripting is_tracing "
     "onednn_fusion_enabled; futures: Future; !: CompilationUnit Error "
     "ScriptFunction ScriptWarning TopLevelTracedModule TracedModule TracerWarning "
     "enable_onednn_fusion export_opnames fork fuser isinstance optimized_execution save "
     "set_fusion_strategy strict_fusion wait"},
    {"_jit_internal",
     "jit: annotate export ignore is_scripting unused Final _overload _overload_method"},
    {"jit.annotations",
     "_jit: Final BroadcastingList1 BroadcastingList2 BroadcastingList3 BroadcastingList4 List "
     "Dict Optional Tuple Union Any Callable"},
    {"jit._script", "jit: script ScriptModule ScriptFunction RecursiveScriptModule"},
    {"jit._trace", "jit: trace is_tracing TracedModule TopLevelTracedModule"},
    {"fx",
     "same: wrap; !: Graph GraphModule Interpreter Node Proxy Tracer Transformer "
     "has_side_effect map_arg replace_pattern symbolic_trace ProxyableClassMeta CodeGen"},
    {"fx.graph_module",
     "fx: GraphModule; _jit: _USER_PRESERVED_ATTRIBUTES_KEY; !: reduce_graph_module "
     "reduce_package_graph_module _CodeOnlyModule _copy_attr _assign_attr"},
    {"fx.node", "fx: Node has_side_effect map_arg; !: map_aggregate Target Argument"},
    {"fx.proxy",
     "fx: Proxy; !: Attribute GraphAppendingTracer MetaProxy ParameterProxy Scope "
     "ScopeContextManager TraceError TracerBase assert_fn"},
    {"fx.graph", "fx: CodeGen Graph; !: PythonCode"},
    {"fx.interpreter", "fx: Interpreter Transformer"},
    {"fx._symbolic_trace",
     "fx: ProxyableClassMeta Tracer symbolic_trace wrap; !: PHBase PHWithMeta; no: "
     "is_fx_tracing is_fx_symbolic_tracing"},
    {"fx.passes", ""},
    {"fx.experimental", ""},
    {"fx.experimental.proxy_tensor", "!: make_fx get_proxy_mode"},
    {"onnx",
     "no: is_in_onnx_export; nothing: register_custom_op_symbolic "
     "unregister_custom_op_symbolic; !: ExportableModule InputObserver ONNXProgram "
     "OnnxExporterError export OperatorExportTypes TensorProtoDataType TrainingMode "
     "JitScalarType select_model_mode_for_export dynamo_export"},
    {"onnx.utils",
     "onnx: export register_custom_op_symbolic unregister_custom_op_symbolic "
     "select_model_mode_for_export; !: model_signature"},
    {"onnx.operators", "!: shape_as_tensor reshape_from_tensor_shape"},
    {"onnx.symbolic_helper",
     "marks: parse_args quantized_args; !: check_training_mode _get_tensor_sizes _unimplemented "
     "_is_constant _maybe_get_const"},
    {"onnx.symbolic_opset18", ""},
    {"onnx.symbolic_opset17", ""},
    {"onnx.symbolic_opset16", ""},
    {"onnx.symbolic_opset15", ""},
    {"onnx.symbolic_opset14", ""},
    {"onnx.symbolic_opset13", ""},
    {"onnx.symbolic_opset12", ""},
    {"onnx.symbolic_opset11", ""},
    {"onnx.symbolic_opset10", ""},
    {"onnx.symbolic_opset9", ""},
    {"onnx.errors",
     "onnx: OnnxExporterError; !: OnnxExporterWarning UnsupportedOperatorError "
     "SymbolicValueError"},
    {"export",
     "!: AdditionalInputs Constraint CustomDecompTable Dim ExportBackwardSignature "
     "ExportGraphSignature ExportedProgram FlatArgsAdapter ModuleCallEntry ModuleCallSignature "
     "ShapesCollection UnflattenedModule default_decompositions dims draft_export export load "
     "register_dataclass save unflatten"},
    {"testing._comparison", "testing: assert_close"},
    {"testing._creation", "testing: make_tensor"},
    {"package",
     "!: PackageExporter PackageImporter Importer OrderedImporter sys_importer is_from_package "
     "EmptyMatchError PackagingError ObjMismatchError ObjNotFoundError GlobGroup Directory"},
    {"hub", "!: tqdm"},
    {"library",
     "library: impl_abstract=register_fake; !: fallthrough_kernel get_ctx get_kernel opcheck "
     "register_autocast "
     "register_torch_dispatch register_vmap triton_op wrap_triton"},
    {"_library", ""},
    {"_ops", "torch: OpOverload=_OpOverload OpOverloadPacket=_OpOverloadPacket"},
    {"_library.custom_ops", "torch: CustomOpDef=_CustomOpDef; library: custom_op"},
    {"_custom_ops",
     "library: impl_abstract=register_fake; !: custom_op impl impl_backward "
     "impl_save_for_backward"},
    {"_subclasses", "!: FakeTensor FakeTensorMode"},
    {"_subclasses.fake_tensor", "_subclasses: FakeTensor FakeTensorMode; no: is_fake"},
    {"ao", ""},
    {"ao.quantization",
     "!: AffineQuantizedObserverBase DeQuantStub FakeQuantize FakeQuantizeBase "
     "FixedQParamsFakeQuantize FixedQParamsObserver FusedMovingAvgObsFakeQuantize Granularity "
     "HistogramObserver MappingType MatchAllNode MinMaxObserver MovingAverageMinMaxObserver "
     "MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase ObserverOrFakeQuantize "
     "Pattern PerAxis PerBlock PerChannelMinMaxObserver PerGroup PerRow PerTensor PerToken "
     "PlaceholderObserver QConfig QConfigAny QConfigDynamic QConfigMapping QuantStub QuantType "
     "QuantWrapper RecordingObserver ReuseInputObserver TorchAODType "
     "UniformQuantizationObserverBase ZeroPointDomain add_quant_dequant convert "
     "convert_dynamic_jit convert_jit default_affine_fixed_qparams_fake_quant "
     "default_affine_fixed_qparams_observer default_debug_observer default_dynamic_fake_quant "
     "default_dynamic_quant_observer default_embedding_fake_quant "
     "default_embedding_fake_quant_4bit default_eval_fn default_fake_quant "
     "default_fixed_qparams_range_0to1_fake_quant default_fixed_qparams_range_0to1_observer "
     "default_fixed_qparams_range_neg1to1_fake_quant "
     "default_fixed_qparams_range_neg1to1_observer default_float_qparams_observer "
     "default_float_qparams_observer_4bit default_fused_act_fake_quant "
     "default_fused_per_channel_wt_fake_quant default_fused_wt_fake_quant "
     "default_histogram_fake_quant default_histogram_observer default_observer "
     "default_per_channel_weight_fake_quant default_per_channel_weight_observer "
     "default_placeholder_observer default_reuse_input_observer "
     "default_symmetric_fixed_qparams_fake_quant default_symmetric_fixed_qparams_observer "
     "default_weight_fake_quant default_weight_observer disable_fake_quant disable_observer "
     "enable_fake_quant enable_observer fuse_conv_bn fuse_conv_bn_jit fuse_conv_bn_relu "
     "fuse_convtranspose_bn fuse_linear_bn fuse_modules fuse_modules_qat "
     "fused_per_channel_wt_fake_quant_range_neg_127_to_127 "
     "fused_wt_fake_quant_range_neg_127_to_127 get_block_size get_combined_dict "
     "get_default_compare_output_module_list get_default_custom_config_dict "
     "get_default_dynamic_quant_module_mappings "
     "get_default_dynamic_sparse_quant_module_mappings "
     "get_default_float_to_quantized_operator_mappings get_default_qat_module_mappings "
     "get_default_qat_qconfig get_default_qat_qconfig_dict get_default_qat_qconfig_mapping "
     "get_default_qconfig get_default_qconfig_dict get_default_qconfig_mapping "
     "get_default_qconfig_propagation_list get_default_static_quant_module_mappings "
     "get_default_static_quant_reference_module_mappings "
     "get_default_static_sparse_quant_module_mappings get_dynamic_quant_module_class "
     "get_embedding_qat_module_mappings get_embedding_static_quant_module_mappings "
     "get_fuser_method get_fuser_method_new get_observer_state_dict get_quantized_operator "
     "get_static_quant_module_class load_observer_state_dict no_observer_set "
     "per_channel_weight_observer_range_neg_127_to_127 prepare prepare_dynamic_jit prepare_jit "
     "prepare_qat propagate_qconfig_ qconfig_equals quantize quantize_dynamic "
     "quantize_dynamic_jit quantize_jit quantize_qat script_qconfig script_qconfig_dict "
     "swap_module weight_observer_range_neg_127_to_127"},
    {"ao.nn", ""},
    {"quantization",
     "ao.quantization: DeQuantStub HistogramObserver ObserverBase QConfig QuantStub QuantType "
     "QuantWrapper add_quant_dequant convert default_eval_fn default_fake_quant "
     "default_fixed_qparams_range_0to1_fake_quant "
     "default_fixed_qparams_range_neg1to1_fake_quant default_histogram_fake_quant "
     "default_observer default_per_channel_weight_fake_quant "
     "default_per_channel_weight_observer default_placeholder_observer "
     "default_weight_fake_quant default_weight_observer fuse_modules "
     "get_default_compare_output_module_list get_default_dynamic_quant_module_mappings "
     "get_default_qat_module_mappings get_default_qconfig_propagation_list "
     "get_default_static_quant_module_mappings get_fuser_method get_quantized_operator "
     "get_static_quant_module_class prepare prepare_qat propagate_qconfig_ quantize "
     "quantize_dynamic quantize_dynamic_jit quantize_jit quantize_qat swap_module"},
    // ---- distributed training
    {"distributed",
     "no: is_ucc_available is_xccl_available; !: AllToAllOptions "
     "AllreduceCoalescedOptions AllreduceOptions BackendConfig BarrierOptions "
     "BroadcastOptions DebugLevel GatherOptions GroupName "
     "ProcessGroupGloo ProcessGroupNCCL ProcessGroupNCCL2 ProcessGroupNCCLLazy ReduceOptions "
     "ReduceScatterOptions Reducer ScatterOptions all_gather_single gather_into_tensor "
     "gather_single get_backend_impl get_debug_level record_comm reduce_scatter_single "
     "register_rendezvous_handler rendezvous set_debug_level set_debug_level_from_env "
     "set_timeout shrink_group"},
    {"distributed.distributed_c10d", "distributed: *"},
    {"distributed.algorithms", ""},
    {"distributed.algorithms.ddp_comm_hooks", "!: DDPCommHookType register_ddp_comm_hook"},
    {"distributed.algorithms.ddp_comm_hooks.powerSGD_hook",
     "!: PowerSGDState batched_powerSGD_hook powerSGD_hook"},
    {"distributed.algorithms.ddp_comm_hooks.post_localSGD_hook",
     "!: PostLocalSGDState post_localSGD_hook"},
    {"distributed.algorithms.ddp_comm_hooks.quantization_hooks",
     "!: quantization_perchannel_hook quantization_pertensor_hook"},
    {"distributed.algorithms.ddp_comm_hooks.ddp_zero_hook",
     "!: hook_with_zero_step hook_with_zero_step_interleaved"},
    {"distributed.optim",
     "distributed._zero: ZeroRedundancyOptimizer; !: DistributedOptimizer PostLocalSGDOptimizer"},
    {"distributed.fsdp",
     "!: FullyShardedDataParallel MixedPrecision CPUOffload BackwardPrefetch ShardingStrategy "
     "StateDictType FullStateDictConfig ShardedStateDictConfig LocalStateDictConfig "
     "FullOptimStateDictConfig ShardedOptimStateDictConfig LocalOptimStateDictConfig "
     "StateDictConfig OptimStateDictConfig StateDictSettings OptimStateKeyType; "
     "distributed._fsdp: fully_shard MixedPrecisionPolicy CPUOffloadPolicy OffloadPolicy "
     "FSDPModule UnshardHandle register_fsdp_forward_method"},
    {"distributed.fsdp.fully_sharded_data_parallel",
     "distributed.fsdp: FullyShardedDataParallel OptimStateKeyType MixedPrecision CPUOffload "
     "BackwardPrefetch ShardingStrategy StateDictType FullStateDictConfig ShardedStateDictConfig "
     "LocalStateDictConfig FullOptimStateDictConfig ShardedOptimStateDictConfig "
     "LocalOptimStateDictConfig StateDictConfig OptimStateDictConfig StateDictSettings"},
    {"distributed.fsdp.api",
     "distributed.fsdp: MixedPrecision CPUOffload BackwardPrefetch ShardingStrategy "
     "StateDictType FullStateDictConfig ShardedStateDictConfig LocalStateDictConfig "
     "FullOptimStateDictConfig ShardedOptimStateDictConfig LocalOptimStateDictConfig "
     "StateDictConfig OptimStateDictConfig StateDictSettings"},
    {"distributed.fsdp.wrap",
     "!: CustomPolicy ModuleWrapPolicy always_wrap_policy enable_wrap lambda_auto_wrap_policy "
     "size_based_auto_wrap_policy transformer_auto_wrap_policy wrap"},
    {"distributed.fsdp.sharded_grad_scaler", "!: ShardedGradScaler"},
    {"distributed._functional_collectives",
     "!: AsyncCollectiveTensor all_gather_tensor all_gather_tensor_autograd all_reduce "
     "all_reduce_coalesced all_to_all_single all_to_all_single_autograd broadcast permute_tensor "
     "reduce_scatter_tensor reduce_scatter_tensor_autograd wait_tensor"},
    {"distributed._composable", ""},
    {"distributed._composable.fsdp",
     "distributed.fsdp: fully_shard FSDPModule MixedPrecisionPolicy CPUOffloadPolicy "
     "OffloadPolicy register_fsdp_forward_method"},
    {"distributed.tensor._utils",
     "!: compute_global_tensor_shape compute_local_shape_and_global_offset compute_local_stride "
     "compute_local_tensor_info normalize_to_torch_size try_find_mesh_from_args"},
    {"distributed.tensor.placement_types",
     "distributed._placements: Partial Placement Replicate Shard _StridedShard"},
    {"distributed.tensor.parallel",
     "!: ColwiseParallel ParallelStyle PrepareModuleInput PrepareModuleInputOutput "
     "PrepareModuleOutput RowwiseParallel SequenceParallel loss_parallel parallelize_module"},
    {"distributed.tensor.experimental",
     "!: context_parallel implicit_replication local_map register_sharding"},
    {"distributed.tensor.device_mesh", "distributed: DeviceMesh init_device_mesh"},
    {"distributed._tensor",
     "distributed.tensor: DTensor Shard Replicate Partial Placement distribute_tensor "
     "distribute_module; distributed: DeviceMesh init_device_mesh"},
    {"distributed._tensor.experimental",
     "distributed.tensor.experimental: context_parallel implicit_replication local_map "
     "register_sharding"},
    {"distributed.constants", "distributed: default_pg_timeout default_pg_nccl_timeout"},
    {"distributed.nn", "distributed.nn.functional: *"},
    {"distributed.nn.functional",
     "!: all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce "
     "reduce_scatter scatter"},
    {"distributed.utils", "!: _sync_module_states"},
    {"distributed.pipelining",
     "!: Pipe PipelineStage Schedule1F1B ScheduleDualPipeV ScheduleGPipe ScheduleInterleaved1F1B "
     "ScheduleInterleavedZeroBubble ScheduleLoopedBFS ScheduleZBVZeroBubble SplitPoint "
     "build_stage pipe_split pipeline"},
    {"distributed.algorithms._checkpoint", ""},
    {"distributed.algorithms._checkpoint.checkpoint_wrapper",
     "!: CheckpointImpl CheckpointWrapper OffloadWrapper apply_activation_checkpointing "
     "checkpoint_wrapper offload_wrapper"},
    {"distributed.algorithms.model_averaging", ""},
    {"distributed.algorithms.model_averaging.averagers", "!: ModelAverager PeriodicModelAverager"},
    {"distributed.checkpoint",
     "distributed._checkpoint: async_save save load FileSystemReader FileSystemWriter; !: "
     "save_state_dict load_state_dict DefaultLoadPlanner DefaultSavePlanner LoadPlan LoadPlanner "
     "ReadItem SavePlan SavePlanner WriteItem BytesStorageMetadata ChunkStorageMetadata Metadata "
     "TensorStorageMetadata StorageReader StorageWriter; distributed.checkpoint.optimizer: "
     "load_sharded_optimizer_state_dict"},
    {"distributed.checkpoint.state_dict",
     "distributed._checkpoint: StateDictOptions _init_optim_state get_model_state_dict "
     "get_optimizer_state_dict get_state_dict set_model_state_dict set_optimizer_state_dict "
     "set_state_dict"},
    {"distributed.checkpoint.state_dict_loader",
     "distributed.checkpoint: load load_state_dict; !: _load_state_dict"},
    {"distributed.checkpoint.state_dict_saver",
     "distributed.checkpoint: async_save save save_state_dict"},
    {"distributed.checkpoint.optimizer", "!: load_sharded_optimizer_state_dict"},
    {"distributed.checkpoint.format_utils",
     "!: BroadcastingTorchSaveReader DynamicMetaLoadPlanner _EmptyStateDictLoadPlanner "
     "dcp_to_torch_save torch_save_to_dcp"},
    {"distributed.checkpoint.default_planner",
     "distributed.checkpoint: DefaultLoadPlanner DefaultSavePlanner; !: "
     "create_default_global_load_plan create_default_global_save_plan "
     "create_default_local_load_plan create_default_local_save_plan"},
    {"distributed.checkpoint.planner",
     "distributed.checkpoint: LoadPlan LoadPlanner ReadItem SavePlan SavePlanner WriteItem; !: "
     "LoadItemType WriteItemType"},
    {"distributed.checkpoint.metadata",
     "distributed.checkpoint: BytesStorageMetadata ChunkStorageMetadata Metadata "
     "TensorStorageMetadata; !: MetadataIndex StorageMeta TensorProperties"},
    {"distributed.checkpoint.filesystem",
     "distributed.checkpoint: FileSystemReader FileSystemWriter"},
    {"distributed.checkpoint.hf_storage", "!: HuggingFaceStorageReader HuggingFaceStorageWriter"},
    {"distributed.checkpoint.storage",
     "distributed.checkpoint: StorageReader StorageWriter; !: WriteResult"},
    {"distributed.rpc", "no: is_available; !: init_rpc shutdown rpc_sync rpc_async remote RRef"},
    {"distributed.tensor",
     "distributed._placements: Shard Replicate Partial Placement; distributed._dtensor: DTensor "
     "distribute_tensor distribute_module"},
    {"distributed.elastic", ""},
    {"distributed.elastic.multiprocessing", ""},
    // ---- torch.cuda and torch.profiler
    {"cuda.streams", "cuda: Event Stream ExternalStream"},
    {"cuda.sparse",
     "cuda: ByteTensor DoubleTensor FloatTensor IntTensor LongTensor ShortTensor CharTensor "
     "HalfTensor BFloat16Tensor"},
    {"cuda._utils", "_utils: _get_device_index"},
    {"amp.autocast_mode", "amp: autocast custom_bwd custom_fwd is_autocast_available"},
    {"cuda.amp.autocast_mode", "cuda.amp: autocast custom_bwd custom_fwd"},
    {"cpu.amp.autocast_mode", "cpu.amp: autocast"},
    {"accelerator",
     "cuda: empty_cache max_memory_allocated max_memory_reserved memory_allocated "
     "memory_reserved memory_stats reset_accumulated_memory_stats reset_peak_memory_stats "
     "get_memory_info=mem_get_info empty_host_cache=_empty_host_cache device_index=device "
     "get_device_capability=get_device_capability"},
    {"accelerator.memory",
     "accelerator: empty_cache max_memory_allocated max_memory_reserved memory_allocated "
     "memory_reserved memory_stats reset_accumulated_memory_stats reset_peak_memory_stats "
     "get_memory_info empty_host_cache"},
    {"autograd", "no: kineto_available"},
    {"autograd.profiler", "no: kineto_available"},
    {"profiler",
     "no: kineto_available; !: CuspyConfig ExecutionTraceObserver PerformanceMetricsConfig "
     "ProfilerActivityConfig _ExperimentalConfig"},
    {"profiler.profiler",
     "profiler: ProfilerAction profile record_function schedule supported_activities "
     "tensorboard_trace_handler"},
    {"autograd.profiler_util",
     "profiler: DeviceType EventList FunctionEvent FunctionEventAvg; autograd._profile: Interval "
     "Kernel"},
    {"profiler.itt", "no: is_available; !: mark range_pop range_push"},
    {"_C._profiler", "!: _ExperimentalConfig"},
    {"autograd.profiler",
     "profiler: EventList FunctionEvent FunctionEventAvg ProfilerActivity; "
     "!: EnforceUnique KinetoStepTracker MemRecordsAcc emit_itt load_nvprof parse_nvprof_trace"},
    // ---- torch.backends
    {"backends.cusparselt", "no: is_available"},
    {"backends.kleidiai", "no: is_available"},
    {"backends.miopen", "no: is_available"},
    {"backends.mkl", "no: is_available"},
    {"backends.openmp", "no: is_available"},
    {"backends.opt_einsum", "no: is_available"},
    {"backends.cpu", "torch: get_cpu_capability=_cpu_capability"},
    {"backends.mha", "no: get_fastpath_enabled; !: set_fastpath_enabled"},
    {"backends.quantized", ""},
    {"backends.xnnpack", ""},
    // ---- internal names used by libraries
    {"",
     "nothing: _log_api_usage_once _get_tracing_state; _dispatch: DispatchKey DispatchKeySet; "
     "_checks: _assert _check _check_index _check_value _check_type _check_not_implemented "
     "_TensorMeta; !: SymInt SymFloat SymBool PyTorchFileReader PyTorchFileWriter "
     "ScriptFunction ScriptModule"},
    {"autograd.gradcheck", "autograd: gradcheck gradgradcheck; autograd._check: GradcheckError"},
    {"autograd.anomaly_mode", "autograd: detect_anomaly set_detect_anomaly"},
    {"functional",
     "torch: atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors "
     "cartesian_prod cdist chain_matmul einsum istft lu meshgrid norm pca_lowrank split stft "
     "svd_lowrank tensordot unique unique_consecutive unravel_index"},
    {"_tensor", "torch: Tensor"},
    {"_tensor_str", "torch: set_printoptions"},
    {"nn.init", "nn._tuples: _calculate_fan_in_and_fan_out _calculate_correct_fan"},
    {"cuda", "_utils: _get_device_index"},
    {"cuda.nccl",
     "no: is_available; !: all_gather all_reduce broadcast init_rank reduce reduce_scatter "
     "unique_id version"},
    {"__config__", "_config: show parallel_info"},
    {"__future__",
     "no: get_overwrite_module_params_on_conversion get_swap_module_params_on_conversion; !: "
     "set_overwrite_module_params_on_conversion set_swap_module_params_on_conversion"},
    {"serialization", "types: MAP_LOCATION FileLike"},
    {"_VF", "torch: *"},
};

// Attributes of PyTorch modules that Phlox lacks. Access raises an AttributeError saying so.
static const struct {
  const char *path, *names;
} lacking[] = {
    {"",
     "AggregationType AliasDb AnyType Argument ArgumentSpec BFloat16Storage BenchmarkConfig "
     "BenchmarkExecutionStats Block BoolStorage BoolType BufferDict ByteStorage CallStack "
     "Capsule CharStorage ClassType Code CompilationUnit CompleteArgumentSpec "
     "ComplexDoubleStorage ComplexFloatStorage ComplexType ConcreteModuleType "
     "ConcreteModuleTypeBuilder DeepCopyMemoTable DeserializationStorageContext "
     "DeviceObjType DictType DoubleStorage EnumType ErrorReport ExcludeDispatchKeyGuard "
     "ExecutionPlan FatalError FileCheck FloatStorage FloatType FunctionSchema Future "
     "FutureType Gradient Graph GraphExecutorState HalfStorage IODescriptor InferredType "
     "IntStorage IntType InterfaceType JITException ListType LiteScriptModule LockingLogger "
     "LongStorage MobileOptimizerType ModuleDict Node NoneType NoopLogger NumberType "
     "OperatorInfo OptionalType ParameterDict PyObjectType QInt32Storage QInt8Storage "
     "QUInt2x4Storage QUInt4x2Storage QUInt8Storage RRefType ScriptClass "
     "ScriptClassFunction ScriptDict ScriptDictIterator ScriptDictKeyIterator ScriptList "
     "ScriptListIterator ScriptMethod ScriptModuleSerializer ScriptObject "
     "ScriptObjectProperty SerializationStorageContext ShortStorage StaticModule Storage "
     "StreamObjType StringType SymFloatNode SymIntNode SymIntType Tag TensorType "
     "ThroughputBenchmark TracingState TupleType Type UnionType Use Value "
     "affine_grid_generator align_tensors alpha_dropout_ "
     "batch_norm_backward_elemt "
     "batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats "
     "batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats "
     "ccol_indices_copy cholesky "
     "choose_qparams_optimized classes col_indices_copy compiled_with_cxx11_abi "
     "crow_indices_copy ctc_loss "
     "cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution "
     "cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose "
     "cudnn_grid_sampler cudnn_is_acceptable dequantize detach_ detach_copy "
     "dropout_ dsmm eig embedding embedding_bag empty_quantized "
     "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine "
     "fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation "
     "fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation "
     "fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16 "
     "fbgemm_pack_quantized_matrix feature_alpha_dropout_ feature_dropout feature_dropout_ "
     "fork frobenius_norm from_file fused_moving_avg_obs_fake_quant get_device "
     "get_file_path grid_sampler "
     "hsmm hspmm import_ir_module import_ir_module_from_buffer "
     "index_put_ indices_copy init_num_threads int_repr "
     "is_distributed is_inference is_vulkan_available "
     "lobpcg lstsq masked "
     "matrix_rank merge_type_from_type_comment miopen_batch_norm miopen_convolution "
     "miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose "
     "miopen_depthwise_convolution miopen_rnn mkldnn_adaptive_avg_pool2d mkldnn_convolution "
     "mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d mps "
     "bcomplex32 native_dropout native_norm nested "
     "norm_except_dim nuclear_norm parse_ir parse_schema parse_type_comment "
     "polar prepare_multiprocessing_environment "
     "q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale "
     "q_zero_point qr qscheme quantize_per_channel quantize_per_tensor "
     "quantize_per_tensor_dynamic quantized_batch_norm quantized_gru quantized_gru_cell "
     "quantized_lstm quantized_lstm_cell quantized_max_pool1d quantized_max_pool2d "
     "quantized_rnn_relu_cell quantized_rnn_tanh_cell quasirandom range read_vitals real "
     "resize_as_sparse_ row_indices_copy saddmm "
     "select_copy set_anomaly_enabled set_flush_denormal "
     "set_num_interop_threads set_vital slice_copy smm solve "
     "sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor "
     "sparse_csc_tensor split_copy "
     "sspaddmm symeig torch_version "
     "unify_type_list "
     "unsafe_split_with_sizes values_copy view_as_complex_copy "
     "view_as_real_copy vitals_enabled vmap wait while_loop xpu"},
    {"_dynamo", "get_recursion_limit reset_code_caches set_recursion_limit"},
    {"_dynamo.config", "default_debug_dir_root"},
    {"_dynamo.eval_frame",
     "DisableContext DynamoStance DynamoTLS ExportResult FlattenInputOutputSignature "
     "OptimizeContext RunOnlyContext TorchPatcher Unset add_skip_reason always_false "
     "argument_names check_for_incompatible_configs check_if_dynamo_supported "
     "check_if_inductor_supported check_signature_rewritable check_user_input_output "
     "clear_dynamo_tls explain export get_compiler_fn get_example_inputs get_skip_reasons "
     "guard_collectives_hook innermost_backend innermost_fn is_dynamo_supported "
     "is_inductor_supported make_set_enable_dynamic nothing optimize optimize_assert "
     "remove_from_cache reset_skip_reasons rewrite_signature set_enable_dynamic skip_code"},
    {"_jit_internal",
     "BroadcastingListCls FunctionModifiers HasGetattr SourceLoader boolean_dispatch "
     "can_compile_class check_args_exist check_empty_containers container_checker "
     "copy_torchscript_modifier createResolutionCallbackForClassMethods "
     "createResolutionCallbackFromClosure createResolutionCallbackFromEnv "
     "createResolutionCallbackFromFrame get_annotation_str get_callable_argument_names "
     "get_class_name_lineno get_closure get_overload_no_implementation_error_message "
     "get_static_fn get_torchscript_modifier get_type_hint_captures is_await is_dict is_final "
     "is_future is_ignored_fn is_list is_optional is_rref is_rref_instance is_static_fn "
     "is_tuple is_union module_has_exports raise_error_container_parameter_missing should_drop"},
    {"_tensor_str", "get_printoptions get_summarized_data printoptions tensor_totype"},
    {"autograd",
     "DeviceType NestedIOFunction ProfilerActivity ProfilerConfig ProfilerEvent ProfilerState "
     "SavedTensor handle_torch_function has_torch_function "
     "is_tensor_like profiler_legacy"},
    {"autograd.function",
     "BackwardCFunction FunctionMeta InplaceFunction NestedIOFunction traceable with_metaclass"},
    {"autograd.gradcheck",
     "get_analytical_jacobian get_numerical_jacobian "
     "get_numerical_jacobian_wrt_specific_input"},
    {"autograd.graph",
     "node_creation_hook queue_callback region_activation_memory_budget "
     "set_override_stale_capture_stream "
     "set_warn_on_accumulate_grad_stream_mismatch"},
    {"backends", "ContextProp PropModule disable_global_flags flags_frozen"},
    {"backends.cuda",
     "allow_fp16_bf16_reduction_math_sdp blas_workspace_size cuBLASModule "
     "cuFFTPlanCacheAttrContextProp cublas_workspace_size "
     "cublaslt_workspace_size fp16_bf16_reduction_math_sdp_allowed is_ck_sdpa_available "
     "is_flash_attention_available preferred_blas_library preferred_linalg_library "
     "preferred_rocm_fa_library sdp_kernel"},
    {"cuda",
     "BFloat16Storage BoolStorage ByteStorage CharStorage "
     "ComplexDoubleStorage ComplexFloatStorage "
     "DeferredCudaCallError DoubleStorage "
     "FloatStorage GreenContext HalfStorage IntStorage LongStorage ShortStorage "
     "classproperty "
     "cudaStatus current_blas_handle current_solver_handle export_dot "
     "export_graph_data gds get_gencode_flags graph_annotations green_contexts has_half has_magma "
     "is_tf32_supported tunable"},
    {"cpu", "Event Stream StreamContext current_stream get_capabilities set_device stream"},
    {"cuda.amp", "amp_definitely_not_available common"},
    {"cuda.memory",
     "is_initialized _annotate_tensor _get_current_allocator _get_memory_metadata "
     "_memory_metadata_supported _save_memory_usage _save_segment_usage _set_memory_metadata "
     "_use_uvm"},
    {"cuda.graphs",
     "export_dot export_graph_data register_graph_capture_end_hook "
     "register_graph_capture_start_hook register_graph_destroy_hook "
     "register_graph_instantiate_hook register_graph_replay_end_hook "
     "register_graph_replay_start_hook"},
    {"utils.benchmark",
     "Colorize ordered_unique select_unit set_torch_threads trim_sigfig unit_to_english"},
    {"profiler", "_KinetoProfile"},
    {"autograd.profiler_util", "EventMetadata FormattedTimesMixin MemRecordsAcc StringTable"},
    {"distributed", "breakpoint"},
    {"distributed.checkpoint.filesystem", "FileSystem FileSystemBase SerializationFormat"},
    {"distributed.checkpoint.planner", "BytesIOWriteData TensorWriteData"},
    {"distributed.checkpoint.state_dict_saver", "AsyncCheckpointerType AsyncSaveResponse"},
    {"distributed.elastic.multiprocessing", "start_processes"},
    {"distributed.elastic.multiprocessing.errors", "ProcessFailure"},
    {"distributed.fsdp",
     "DataParallelMeshDims GradientReductionHandle UnshardHandle share_comm_ctx"},
    {"distributed.tensor", "empty full linspace logspace ones rand randn zeros"},
    {"fx._symbolic_trace", "is_fx_tracing_warning"},
    {"fx.experimental.proxy_tensor",
     "DecompositionInterpreter PreDispatchTorchFunctionMode ProxyTorchDispatchMode "
     "PythonKeyTracer TorchFunctionMetadataMode decompose disable_autocast_cache "
     "disable_proxy_modes_tracing dispatch_trace extract_val fake_signature fetch_object_proxy "
     "fetch_sym_proxy get_innermost_proxy_mode get_isolated_graphmodule get_proxy_slot "
     "get_torch_dispatch_modes handle_sym_dispatch has_proxy_slot is_sym_node "
     "maybe_disable_thunkify maybe_enable_thunkify maybe_handle_decomp proxy_call "
     "selective_decompose set_meta set_original_aten_op set_proxy_slot snapshot_fake thunkify "
     "track_tensor track_tensor_tree wrap_key wrapper_and_args_for_make_fx"},
    {"jit._script",
     "Attribute ConstMap OrderedDictWrapper OrderedModuleDict RecursiveScriptClass ScriptMeta "
     "ScriptWarning call_prepare_scriptable_func call_prepare_scriptable_func_impl "
     "create_script_dict create_script_list interface method_template pad script_method "
     "unpackage_script_module"},
    {"jit._trace",
     "ONNXTracedModule TracerWarning TracingCheckError analyze_ts_result_with_export_result "
     "indent make_module make_tuple trace_module verify wrap_check_inputs"},
    {"jit.annotations",
     "EvalEnv Module ann_to_type check_fn get_enum_value_type get_param_names get_signature "
     "get_type_line is_function_or_method is_tensor is_vararg parse_type_line split_type_line "
     "try_ann_to_type try_real_annotations"},
    {"nn",
     "Container LinearCrossEntropyOptions factory_kwargs grad intrinsic qat quantizable quantized"},
    {"nn.attention",
     "activate_flash_attention_impl current_flash_attention_impl list_flash_attention_impls "
     "register_flash_attention_impl restore_flash_attention_impl"},
    {"nn.attention.flex_attention", "FlexKernelOptions"},
    {"nn.functional",
     "ScalingType SwizzleType Tensor assert_int_or_pair grouped_mm scaled_addmm scaled_addmm_ "
     "scaled_grouped_mm scaled_mm"},
    {"nn.init", "Tensor"},
    {"nn.parallel", "DistributedDataParallelCPU"},
    {"nn.parameter", "UninitializedTensorMixin"},
    {"func",
     "debug_unwrap functionalize grad grad_and_value hessian jacfwd jacrev jvp linearize "
     "replace_all_batch_norm_modules_ stack_module_state vjp vmap"},
    {"nn.utils.spectral_norm", "SpectralNormLoadStateDictPreHook SpectralNormStateDictHook"},
    {"sparse",
     "BFloat16Tensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor "
     "LongTensor ShortTensor SparseSemiStructuredTensor SparseSemiStructuredTensorCUSPARSELT "
     "SparseSemiStructuredTensorCUTLASS as_sparse_gradcheck check_sparse_tensor_invariants "
     "log_softmax sampled_addmm semi_structured softmax spdiags spsolve "
     "to_sparse_semi_structured"},
    {"return_types",
     "aminmax_out cummax_out cummin_out frexp frexp_out geqrf_out "
     "histogram_out histogramdd kthvalue_out linalg_cholesky_ex_out "
     "linalg_eig linalg_eig_out linalg_eigh_out linalg_inv_ex_out "
     "linalg_ldl_factor_ex_out linalg_ldl_factor_out "
     "linalg_lstsq_out "
     "linalg_lu_factor_ex_out linalg_lu_factor_out linalg_lu_out linalg_polar "
     "linalg_polar_out linalg_qr_out linalg_slogdet_out "
     "linalg_solve_ex_out linalg_svd_out lu_unpack_out "
     "max_out median_out min_out mode_out nanmedian_out pytree_register_structseq "
     "slogdet_out sort_out svd_out topk_out triangular_solve_out"},
    {"storage", "Storage"},
    {"utils",
     "ThroughputBenchmark backcompat bottleneck cpp_backtrace "
     "disable_minidumps enable_minidumps enable_minidumps_on_exceptions file_baton "
     "get_cpp_backtrace hipify set_module throughput_benchmark"},
    {"utils.data",
     "DFIterDataPipe DataChunk DataLoader2 IterDataPipe MapDataPipe argument_validation "
     "backward_compatibility communication dataloader_experimental datapipes "
     "functional_datapipe graph graph_settings guaranteed_datapipes_determinism "
     "non_deterministic runtime_validation runtime_validation_disabled"},
    {"utils.data._utils.worker", "ManagerWatchdog"},
    {"utils.tensorboard", "RecordWriter"},
    {"utils.tensorboard.SummaryWriter",
     "add_audio add_custom_scalars add_custom_scalars_marginchart "
     "add_custom_scalars_multilinechart add_embedding add_graph add_histogram_raw "
     "add_image_with_boxes add_mesh add_onnx_graph add_pr_curve add_pr_curve_raw add_tensor "
     "add_video"},
    {"utils.tensorboard.summary",
     "audio compute_curve custom_scalars draw_boxes histogram_raw image_boxes make_histogram "
     "make_image make_video mesh pr_curve pr_curve_raw tensor_proto video"},
    {"utils.hooks", "BackwardHook unserializable_hook warn_if_has_hooks"},
    {"utils.checkpoint", "GraphExecGroup set_checkpoint_debug_enabled"},
    {"utils.mobile_optimizer", "LintCode"},
    {"serialization",
     "SourceChangeWarning StorageType check_module_version_greater_or_equal "
     "mkdtemp normalize_storage_type storage_to_tensor_type "
     "validate_cuda_device validate_hpu_device"},
    {"backends.mkl", "verbose"},
    {"backends.cusparselt", "get_max_alg_id version"},
    {"accelerator.memory", "empty_host_cache"},
    {"multiprocessing.queue", "ConnectionWrapper"},
    {"multiprocessing.pool", "clean_worker"},
    {"amp.autocast_mode", "autocast_decorator"},
    {"utils.flop_counter",
     "addmm_flop baddbmm_flop bmm_flop conv_backward_flop conv_flop conv_flop_count "
     "convert_num_with_suffix convert_to_percent_str get_shape get_suffix_str mm_flop "
     "normalize_tuple sdpa_backward_flop sdpa_backward_flop_count sdpa_flop sdpa_flop_count "
     "shape_wrapper"},
};
