// SPDX-License-Identifier: Apache-2.0
// Modules of PyTorch that are no files of Phlox, a data table: what phlox/_paths.py makes when a
// program imports one. A row's names follow the module that Phlox has them in, and a colon; "torch"
// is the root, "*" means all names. Names behind "!:" can be imported and derived from, and refuse
// to be called; functions behind "no:" answer False, those behind "nothing:" None, and those behind
// "same:" give back what they get. PyTorch has the names behind "-:", and Phlox lacks them, as it
// lacks those that the other module has not. A module that is there, of C or a file, gets a row's
// names beside its own.
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
     "nn: Module; nn._module: register_module_backward_hook "
     "register_module_buffer_registration_hook register_module_forward_hook "
     "register_module_forward_pre_hook register_module_full_backward_hook "
     "register_module_full_backward_pre_hook register_module_module_registration_hook "
     "register_module_parameter_registration_hook _global_backward_hooks "
     "_global_backward_pre_hooks _global_forward_hooks _global_forward_hooks_always_called "
     "_global_forward_hooks_with_kwargs _global_forward_pre_hooks _IncompatibleKeys; "
     "utils.hooks: RemovableHandle BackwardHook"},
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
    {"nn.parallel", "!: DistributedDataParallel"},
    {"nn.parallel.data_parallel", "nn.parallel: DataParallel data_parallel"},
    {"nn.parallel.distributed", "nn.parallel: DistributedDataParallel"},
    {"nn.parallel.parallel_apply", "nn.parallel: get_a_var parallel_apply"},
    {"nn.parallel.replicate", "nn.parallel: replicate"},
    {"nn.parallel.scatter_gather", "nn.parallel: gather is_namedtuple scatter scatter_kwargs"},
    {"nn.parallel.comm",
     "cuda.comm: broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter"},
    {"nn.utils.clip_grad", "nn.utils: clip_grad_norm clip_grad_norm_ clip_grad_value_"},
    {"nn.utils.convert_parameters", "nn.utils: parameters_to_vector vector_to_parameters"},
    {"nn.utils.fusion",
     "nn.utils: fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval "
     "fuse_linear_bn_weights"},
    {"nn.utils.init", "nn.utils: skip_init"},
    {"nn.utils.memory_format",
     "nn.utils: convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format"},
    // ---- torch.optim
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
    // ---- torch.utils
    {"utils.data._utils", ""},
    {"utils.data._utils.collate",
     "utils.data: default_collate default_convert; utils.data._collate: collate "
     "default_collate_fn_map; -: collate_float_fn collate_int_fn collate_numpy_array_fn "
     "collate_numpy_scalar_fn collate_str_fn collate_tensor_fn"},
    {"utils.data._utils.worker",
     "utils.data: get_worker_info; utils.data._workers: WorkerInfo; -: ManagerWatchdog"},
    {"utils.data._utils.pin_memory", "utils.data._collate: pin_memory"},
    {"utils.data._utils.fetch", ""},
    {"utils.data._utils.signal_handling", ""},
    {"utils.data.distributed", "utils.data: DistributedSampler"},
    {"utils.model_zoo", "hub: load_url"},
    {"futures", "!: Future collect_all wait_all"},
    {"utils.cpp_extension",
     "!: BuildExtension CUDAExtension CppExtension SyclExtension check_compiler_is_gcc "
     "check_compiler_ok_for_platform get_compiler_abi_compatibility_and_version "
     "get_cxx_compiler get_default_build_root include_paths is_ninja_available library_paths "
     "load load_inline remove_extension_h_precompiler_headers verify_ninja_availability"},
    {"utils.mobile_optimizer", "!: optimize_for_mobile generate_mobile_module_lints; -: LintCode"},
    // ---- compilers, exporters and tracers, which can be imported
    {"compiler",
     "same: allow_in_graph assume_constant_result disable; no: is_compiling is_dynamo_compiling "
     "is_exporting; nothing: reset cudagraph_mark_step_begin; torch: compile; !: "
     "PrecompileError cudagraph_mark_warmup_incomplete get_default_backend "
     "keep_portable_guards_unsafe keep_tensor_guards_unsafe list_backends load_cache_artifacts "
     "load_compiled_function nested_compile_region nonstrict_trace save_cache_artifacts "
     "set_default_backend set_enable_guard_collectives set_stance skip_all_guards_unsafe "
     "skip_guard_on_all_nn_modules_unsafe skip_guard_on_globals_unsafe "
     "skip_guard_on_inbuilt_nn_modules_unsafe substitute_in_graph wrap_numpy"},
    {"_dynamo",
     "same: allow_in_graph assume_constant_result disable disallow_in_graph forbid_in_graph "
     "skip; no: is_compiling is_dynamo_supported; nothing: reset graph_break mark_dynamic "
     "maybe_mark_dynamic mark_static mark_static_address; !: explain export list_backends "
     "lookup_backend optimize optimize_assert register_backend run OptimizedModule; -: "
     "get_recursion_limit reset_code_caches set_recursion_limit"},
    {"_dynamo.config", "-: default_debug_dir_root"},
    {"_dynamo.eval_frame",
     "_dynamo: OptimizedModule; -: DisableContext DynamoStance DynamoTLS ExportResult "
     "FlattenInputOutputSignature OptimizeContext RunOnlyContext TorchPatcher Unset "
     "add_skip_reason always_false argument_names check_for_incompatible_configs "
     "check_if_dynamo_supported check_if_inductor_supported check_signature_rewritable "
     "check_user_input_output clear_dynamo_tls explain export get_compiler_fn "
     "get_example_inputs get_skip_reasons guard_collectives_hook innermost_backend innermost_fn "
     "is_dynamo_supported is_inductor_supported make_set_enable_dynamic nothing optimize "
     "optimize_assert remove_from_cache reset_skip_reasons rewrite_signature set_enable_dynamic "
     "skip_code"},
    {"jit",
     "_jit: script trace trace_module freeze optimize_for_inference annotate Attribute "
     "ScriptModule Final; same: export unused ignore script_method script_if_tracing interface "
     "_overload _overload_method _script_if_tracing; no: is_scripting is_tracing "
     "onednn_fusion_enabled; futures: Future; !: CompilationUnit Error RecursiveScriptModule "
     "ScriptFunction ScriptWarning TopLevelTracedModule TracedModule TracerWarning "
     "enable_onednn_fusion export_opnames fork fuser isinstance load optimized_execution save "
     "set_fusion_strategy strict_fusion wait"},
    {"_jit_internal",
     "jit: annotate export ignore is_scripting unused Final _overload _overload_method; -: "
     "BroadcastingListCls FunctionModifiers HasGetattr SourceLoader boolean_dispatch "
     "can_compile_class check_args_exist check_empty_containers container_checker "
     "copy_torchscript_modifier createResolutionCallbackForClassMethods "
     "createResolutionCallbackFromClosure createResolutionCallbackFromEnv "
     "createResolutionCallbackFromFrame get_annotation_str get_callable_argument_names "
     "get_class_name_lineno get_closure get_overload_no_implementation_error_message "
     "get_static_fn get_torchscript_modifier get_type_hint_captures is_await is_dict is_final "
     "is_future is_ignored_fn is_list is_optional is_rref is_rref_instance is_static_fn "
     "is_tuple is_union module_has_exports raise_error_container_parameter_missing should_drop"},
    {"jit.annotations",
     "jit: Final; -: EvalEnv Module ann_to_type check_fn get_enum_value_type get_param_names "
     "get_signature get_type_line is_function_or_method is_tensor is_vararg parse_type_line "
     "split_type_line try_ann_to_type try_real_annotations"},
    {"jit._script",
     "jit: script ScriptModule ScriptFunction RecursiveScriptModule; -: Attribute ConstMap "
     "OrderedDictWrapper OrderedModuleDict RecursiveScriptClass ScriptMeta ScriptWarning "
     "call_prepare_scriptable_func call_prepare_scriptable_func_impl create_script_dict "
     "create_script_list interface method_template pad script_method unpackage_script_module"},
    {"jit._trace",
     "jit: trace is_tracing TracedModule TopLevelTracedModule; -: ONNXTracedModule "
     "TracerWarning TracingCheckError analyze_ts_result_with_export_result indent make_module "
     "make_tuple trace_module verify wrap_check_inputs"},
    {"fx",
     "same: wrap; !: Graph GraphModule Interpreter Node Proxy Tracer Transformer "
     "has_side_effect map_arg replace_pattern symbolic_trace ProxyableClassMeta CodeGen"},
    {"fx.graph_module",
     "fx: GraphModule; !: reduce_graph_module reduce_package_graph_module _CodeOnlyModule "
     "_copy_attr _assign_attr"},
    {"fx.node", "fx: Node has_side_effect map_arg; !: map_aggregate"},
    {"fx.proxy",
     "fx: Proxy; !: Attribute GraphAppendingTracer MetaProxy ParameterProxy Scope "
     "ScopeContextManager TraceError TracerBase assert_fn"},
    {"fx.graph", "fx: CodeGen Graph; !: PythonCode"},
    {"fx.interpreter", "fx: Interpreter Transformer"},
    {"fx._symbolic_trace",
     "fx: ProxyableClassMeta Tracer symbolic_trace wrap; !: PHBase PHWithMeta; no: "
     "is_fx_tracing is_fx_symbolic_tracing; -: is_fx_tracing_warning"},
    {"fx.passes", ""},
    {"fx.experimental", ""},
    {"fx.experimental.proxy_tensor",
     "!: make_fx get_proxy_mode; -: DecompositionInterpreter PreDispatchTorchFunctionMode "
     "ProxyTorchDispatchMode PythonKeyTracer TorchFunctionMetadataMode decompose "
     "disable_autocast_cache disable_proxy_modes_tracing dispatch_trace extract_val "
     "fake_signature fetch_object_proxy fetch_sym_proxy get_innermost_proxy_mode "
     "get_isolated_graphmodule get_proxy_slot get_torch_dispatch_modes handle_sym_dispatch "
     "has_proxy_slot is_sym_node maybe_disable_thunkify maybe_enable_thunkify "
     "maybe_handle_decomp proxy_call selective_decompose set_meta set_original_aten_op "
     "set_proxy_slot snapshot_fake thunkify track_tensor track_tensor_tree wrap_key "
     "wrapper_and_args_for_make_fx"},
    {"onnx",
     "no: is_in_onnx_export; !: ExportableModule InputObserver ONNXProgram OnnxExporterError "
     "export OperatorExportTypes TensorProtoDataType TrainingMode JitScalarType "
     "register_custom_op_symbolic select_model_mode_for_export unregister_custom_op_symbolic "
     "dynamo_export"},
    {"onnx.utils",
     "onnx: export register_custom_op_symbolic unregister_custom_op_symbolic "
     "select_model_mode_for_export; !: model_signature"},
    {"onnx.operators", "!: shape_as_tensor reshape_from_tensor_shape"},
    {"onnx.symbolic_helper",
     "!: parse_args quantized_args check_training_mode _get_tensor_sizes _unimplemented "
     "_is_constant _maybe_get_const"},
    {"onnx.errors",
     "onnx: OnnxExporterError; !: OnnxExporterWarning UnsupportedOperatorError "
     "SymbolicValueError"},
    {"export",
     "!: AdditionalInputs Constraint CustomDecompTable Dim ExportBackwardSignature "
     "ExportGraphSignature ExportedProgram FlatArgsAdapter ModuleCallEntry ModuleCallSignature "
     "ShapesCollection UnflattenedModule default_decompositions dims draft_export export load "
     "register_dataclass save unflatten"},
    {"package",
     "!: PackageExporter PackageImporter Importer OrderedImporter sys_importer is_from_package "
     "EmptyMatchError PackagingError ObjMismatchError ObjNotFoundError GlobGroup Directory"},
    {"library",
     "!: Library custom_op define fallthrough_kernel get_ctx get_kernel impl impl_abstract "
     "infer_schema opcheck register_autocast register_autograd register_fake register_kernel "
     "register_torch_dispatch register_vmap triton_op wrap_triton"},
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
    // ---- several processes
    {"distributed",
     "no: is_available is_initialized is_nccl_available is_gloo_available is_mpi_available "
     "is_ucc_available is_xccl_available is_torchelastic_launched is_backend_available; !: "
     "AllToAllOptions AllreduceCoalescedOptions AllreduceOptions Backend BackendConfig "
     "BarrierOptions BroadcastOptions BuiltinCommHookType DebugLevel DeviceMesh "
     "DistBackendError DistError DistNetworkError DistStoreError FileStore GatherOptions "
     "GradBucket GroupMember GroupName HashStore P2POp PrefixStore ProcessGroup "
     "ProcessGroupGloo ProcessGroupNCCL ProcessGroupNCCL2 ProcessGroupNCCLLazy QueueEmptyError "
     "ReduceOp ReduceOptions ReduceScatterOptions Reducer ScatterOptions Store TCPStore Work "
     "all_gather all_gather_coalesced all_gather_into_tensor all_gather_object "
     "all_gather_single all_reduce all_reduce_coalesced all_to_all all_to_all_single barrier "
     "batch_isend_irecv broadcast broadcast_object_list destroy_process_group gather "
     "gather_into_tensor gather_object gather_single get_backend get_backend_config "
     "get_backend_impl get_debug_level get_default_backend_for_device get_global_rank "
     "get_group_rank get_node_local_rank get_pg_count get_process_group_ranks get_rank "
     "get_world_size group init_device_mesh init_process_group irecv isend monitored_barrier "
     "new_group new_subgroups new_subgroups_by_enumeration record_comm recv recv_object_list "
     "reduce reduce_op reduce_scatter reduce_scatter_single reduce_scatter_tensor "
     "register_rendezvous_handler rendezvous scatter scatter_object_list send send_object_list "
     "set_debug_level set_debug_level_from_env set_timeout shrink_group split_group "
     "supports_complex; -: breakpoint"},
    {"distributed.distributed_c10d", "distributed: *"},
    {"distributed.algorithms", ""},
    {"distributed.algorithms.join", "!: Join Joinable JoinHook"},
    {"distributed.optim", "!: ZeroRedundancyOptimizer DistributedOptimizer PostLocalSGDOptimizer"},
    {"distributed.fsdp",
     "!: FullyShardedDataParallel MixedPrecision CPUOffload BackwardPrefetch ShardingStrategy "
     "StateDictType FullStateDictConfig ShardedStateDictConfig LocalStateDictConfig "
     "FullOptimStateDictConfig fully_shard MixedPrecisionPolicy CPUOffloadPolicy OffloadPolicy "
     "FSDPModule register_fsdp_forward_method; -: DataParallelMeshDims GradientReductionHandle "
     "UnshardHandle share_comm_ctx"},
    {"distributed.rpc", "no: is_available; !: init_rpc shutdown rpc_sync rpc_async remote RRef"},
    {"distributed.device_mesh", "distributed: DeviceMesh init_device_mesh"},
    {"distributed.tensor",
     "!: DTensor Shard Replicate Partial Placement distribute_tensor distribute_module; -: "
     "empty full linspace logspace ones rand randn zeros"},
    {"distributed.elastic", ""},
    {"distributed.elastic.multiprocessing", "-: start_processes"},
    {"distributed.elastic.multiprocessing.errors", "!: record ChildFailedError; -: ProcessFailure"},
    // ---- torch.cuda and torch.profiler
    {"cuda.streams", "cuda: Event Stream ExternalStream"},
    {"cuda.sparse",
     "cuda: ByteTensor DoubleTensor FloatTensor IntTensor LongTensor ShortTensor CharTensor "
     "HalfTensor BFloat16Tensor"},
    {"cuda._utils", "_utils: _get_device_index"},
    {"cuda.nvtx", "!: mark range range_end range_pop range_push range_start"},
    {"cuda.profiler", "!: profile start stop"},
    {"profiler",
     "!: CuspyConfig DeviceType ExecutionTraceObserver PerformanceMetricsConfig ProfilerAction "
     "ProfilerActivity ProfilerActivityConfig profile record_function schedule "
     "supported_activities tensorboard_trace_handler"},
    {"autograd.profiler",
     "profiler: ProfilerActivity; !: EnforceUnique EventList FunctionEvent KinetoStepTracker "
     "MemRecordsAcc emit_itt emit_nvtx load_nvprof parse_nvprof_trace profile record_function"},
    // ---- inner names that libraries use
    {"", "nothing: _log_api_usage_once _get_tracing_state"},
    {"autograd.gradcheck",
     "autograd: gradcheck gradgradcheck; -: GradcheckError get_analytical_jacobian "
     "get_numerical_jacobian get_numerical_jacobian_wrt_specific_input"},
    {"autograd.anomaly_mode", "autograd: detect_anomaly set_detect_anomaly"},
    {"functional",
     "torch: atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors "
     "cartesian_prod cdist chain_matmul einsum istft lu meshgrid norm pca_lowrank split stft "
     "svd_lowrank tensordot unique unique_consecutive unravel_index"},
    {"_tensor", "torch: Tensor"},
    {"_tensor_str",
     "torch: set_printoptions; -: get_printoptions get_summarized_data printoptions "
     "tensor_totype"},
};
