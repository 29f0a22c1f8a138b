// SPDX-License-Identifier: Apache-2.0
// Old names of the API, as aliases of the new ones. Deprecated in 0.11, removed in 0.12.
#pragma once

// Functions.
#define px_together_begin px_launch_batch_begin
#define px_together_end px_launch_batch_end
#define px_event_reached px_event_query_nolock
#define px_op_tell_operations px_op_set_flop_callback
#define px_backward_reaches px_backward_will_run
#define px_op_keep_calls px_op_set_dispatch_hook
#define px_cluster_meeting px_cluster_next_store
#define px_attention_unfit px_attention_unsupported
#define px_layout_cut px_layout_extract
#define px_module_each px_module_walk
#define px_name_nearest px_name_suggest
#define px_shard_whole px_shard_gather
#define px_shards_is_whole px_shards_is_unsharded
#define px_error_pass px_error_add_frame
#define px_fault_pass px_fault_check
#define px_op_call_each px_op_call_batch
#define px_tensor_beneath px_tensor_physical
#define px_shard_greatest px_shard_max
#define px_shard_stand_in px_shard_placeholder
#define px_comm_check_alike px_comm_check_parameters
#define px_comm_share px_comm_broadcast_owned
#define px_reducer_mix px_reducer_set_mixed_precision
#define px_reducer_lower px_reducer_cast_parameters
#define px_reducer_raise px_reducer_restore_parameters
#define px_node_set_soon px_node_prioritize
#define px_node_note px_node_user
#define px_node_set_note px_node_set_user
#define px_threads_alone px_set_single_threaded
#define px_device_figure px_device_metric

// Types.
#define px_memory_past px_memory_trace
#define px_recurrent_room px_recurrent_sizes
#define px_op_counted px_op_flop_callback
#define px_call_keeper px_dispatch_hook
#define px_engine_places px_engine_paths
#define px_module_visit px_module_visitor
#define px_lbfgs_turn px_lbfgs_iteration
#define px_descent px_recording_state
#define px_step_manner px_step_options
#define px_put_how px_put_mode
#define px_module_way px_module_runner
#define px_figure px_metric

// Constants.
#define PX_PUT_GREATEST PX_PUT_MAX
#define PX_PUT_LEAST PX_PUT_MIN
#define PX_PROBE_TWICE PX_PROBE_DUPLICATE
#define PX_GLANCE_UNKNOWN PX_PROBE_UNKNOWN
#define PX_PLACED_WHOLE PX_PLACEMENT_REPLICATE
#define PX_PLACED_PART PX_PLACEMENT_SHARD
#define PX_PLACED_PARTIAL PX_PLACEMENT_PARTIAL
#define PX_NVTX_NOBODY PX_NVTX_NO_TOOL
#define PX_PROFILE_PART PX_PROFILE_RANGE
#define PX_OP_TENSORS_ALONE PX_OP_TENSORS_ONLY
#define PX_NUMBERS_LEFT_OUT PX_NUMBERS_SKIPPED
#define PX_NUMBERS_LINE PX_NUMBERS_ROW
#define PX_FIGURE_MAP PX_METRIC_MAP
#define PX_FIGURE_UTILIZATION PX_METRIC_UTILIZATION
#define PX_FIGURE_MEMORY_USAGE PX_METRIC_MEMORY_USAGE
#define PX_FIGURE_TEMPERATURE PX_METRIC_TEMPERATURE
#define PX_FIGURE_POWER PX_METRIC_POWER
#define PX_FIGURE_CLOCK PX_METRIC_CLOCK
#define PX_FIGURE_MEMORY_USED PX_METRIC_MEMORY_USED
#define PX_FAULT_PLACE PX_FAULT_INDEX_RUNTIME
#define PX_FAULT_ENDLESS_WEIGHT PX_FAULT_INFINITE_WEIGHT
