// SPDX-License-Identifier: Apache-2.0
// The aliases of phlox/deprecated.h expand to the new names.
#include "phlox/phlox.h"

#include "test.h"

typedef void (*function)(void);
typedef struct alias {
  function old, renamed;
} alias;
#define SAME(old, renamed) \
  { (function) old, (function)renamed }

PX_TEST(deprecated_functions_are_aliases) {
  static const alias aliases[] = {
      SAME(px_together_begin, px_launch_batch_begin),
      SAME(px_together_end, px_launch_batch_end),
      SAME(px_event_reached, px_event_query_nolock),
      SAME(px_op_tell_operations, px_op_set_flop_callback),
      SAME(px_backward_reaches, px_backward_will_run),
      SAME(px_op_keep_calls, px_op_set_dispatch_hook),
      SAME(px_cluster_meeting, px_cluster_next_store),
      SAME(px_attention_unfit, px_attention_unsupported),
      SAME(px_layout_cut, px_layout_extract),
      SAME(px_module_each, px_module_walk),
      SAME(px_name_nearest, px_name_suggest),
      SAME(px_shard_whole, px_shard_gather),
      SAME(px_shards_is_whole, px_shards_is_unsharded),
      SAME(px_error_pass, px_error_add_frame),
      SAME(px_fault_pass, px_fault_check),
      SAME(px_op_call_each, px_op_call_batch),
      SAME(px_tensor_beneath, px_tensor_physical),
      SAME(px_shard_greatest, px_shard_max),
      SAME(px_shard_stand_in, px_shard_placeholder),
      SAME(px_comm_check_alike, px_comm_check_parameters),
      SAME(px_comm_share, px_comm_broadcast_owned),
      SAME(px_reducer_mix, px_reducer_set_mixed_precision),
      SAME(px_reducer_lower, px_reducer_cast_parameters),
      SAME(px_reducer_raise, px_reducer_restore_parameters),
      SAME(px_node_set_soon, px_node_prioritize),
      SAME(px_node_note, px_node_user),
      SAME(px_node_set_note, px_node_set_user),
      SAME(px_threads_alone, px_set_single_threaded),
      SAME(px_device_figure, px_device_metric),
  };
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
    CHECK(aliases[i].old && aliases[i].old == aliases[i].renamed);
}

// Assignments between pointers compile only if the types are the same.
#define SAME_TYPE(old, renamed) \
  do { \
    old *a = NULL; \
    renamed *b = a; \
    CHECK(!b); \
  } while (0)
PX_TEST(deprecated_types_are_aliases) {
  SAME_TYPE(px_memory_past, px_memory_trace);
  SAME_TYPE(px_recurrent_room, px_recurrent_sizes);
  SAME_TYPE(px_op_counted, px_op_flop_callback);
  SAME_TYPE(px_call_keeper, px_dispatch_hook);
  SAME_TYPE(px_engine_places, px_engine_paths);
  SAME_TYPE(px_module_visit, px_module_visitor);
  SAME_TYPE(px_lbfgs_turn, px_lbfgs_iteration);
  SAME_TYPE(px_descent, px_recording_state);
  SAME_TYPE(px_step_manner, px_step_options);
  SAME_TYPE(px_put_how, px_put_mode);
  SAME_TYPE(px_module_way, px_module_runner);
  SAME_TYPE(px_figure, px_metric);
}

PX_TEST(deprecated_constants_are_aliases) {
  CHECK_EQ(PX_PUT_GREATEST, PX_PUT_MAX);
  CHECK_EQ(PX_PUT_LEAST, PX_PUT_MIN);
  CHECK_EQ(PX_PROBE_TWICE, PX_PROBE_DUPLICATE);
  CHECK_EQ(PX_GLANCE_UNKNOWN, PX_PROBE_UNKNOWN);
  CHECK_EQ(PX_PLACED_WHOLE, PX_PLACEMENT_REPLICATE);
  CHECK_EQ(PX_PLACED_PART, PX_PLACEMENT_SHARD);
  CHECK_EQ(PX_PLACED_PARTIAL, PX_PLACEMENT_PARTIAL);
  CHECK_EQ(PX_NVTX_NOBODY, PX_NVTX_NO_TOOL);
  CHECK_EQ(PX_PROFILE_PART, PX_PROFILE_RANGE);
  CHECK_EQ(PX_OP_TENSORS_ALONE, PX_OP_TENSORS_ONLY);
  CHECK_EQ(PX_NUMBERS_LEFT_OUT, PX_NUMBERS_SKIPPED);
  CHECK_EQ(PX_NUMBERS_LINE, PX_NUMBERS_ROW);
  CHECK_EQ(PX_FIGURE_UTILIZATION, PX_METRIC_UTILIZATION);
  CHECK_EQ(PX_FIGURE_MEMORY_USAGE, PX_METRIC_MEMORY_USAGE);
  CHECK_EQ(PX_FIGURE_TEMPERATURE, PX_METRIC_TEMPERATURE);
  CHECK_EQ(PX_FIGURE_POWER, PX_METRIC_POWER);
  CHECK_EQ(PX_FIGURE_CLOCK, PX_METRIC_CLOCK);
  CHECK_EQ(PX_FIGURE_MEMORY_USED, PX_METRIC_MEMORY_USED);
  CHECK_EQ(PX_FAULT_PLACE, PX_FAULT_INDEX_RUNTIME);
  CHECK_EQ(PX_FAULT_ENDLESS_WEIGHT, PX_FAULT_INFINITE_WEIGHT);
#define XX(name, python, doc) CHECK(*(doc));
  PX_FIGURE_MAP(XX)
#undef XX
}
