// SPDX-License-Identifier: Apache-2.0
// Optimisers and learning-rate schedules.
//
// An optimiser has groups of parameters. Each group has the options of the optimiser's kind (lr,
// momentum, ...), read at each step. The kinds are generated from optim/*.optim.
#pragma once
#include "phlox/nn.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_optimizer px_optimizer;

typedef struct px_option {
  const char *name;  // "lr"
  double fallback;   // default; NAN: required
  char type;         // 'f' number, 'b' bool; more for schedules, see below
  const char *pair;  // Python's tuple of this option and the next ("betas"), or NULL
} px_option;
typedef struct px_optimizer_kind px_optimizer_kind;
// The kinds of the library ("SGD", "Adam"; see the reference of optimisers): the i-th, or one by
// name; NULL if there is none.
PX_API const px_optimizer_kind *px_optimizer_kind_at(int i);
PX_API const px_optimizer_kind *px_optimizer_kind_find(const char *name);
PX_API const char *px_optimizer_kind_name(const px_optimizer_kind *kind);
PX_API const px_option *px_optimizer_kind_options(const px_optimizer_kind *kind, int *count);
// Return the name of the i-th state kept for a parameter ("momentum_buffer"; "step", "exp_avg"),
// NULL past the end; and whether it is a scalar (a 0-dim float32 tensor on the CPU) rather than a
// tensor like the parameter.
enum { PX_OPTIMIZER_STATES = 6 };  // maximum states of a kind
PX_API const char *px_optimizer_kind_state(const px_optimizer_kind *kind, int i);
PX_API bool px_optimizer_kind_scalar(const px_optimizer_kind *kind, int i);
// Checks options: all of them, in the kind's order. PX_VALUE, with PyTorch's texts, for options out
// of range or contradictory.
PX_CALL px_optimizer_kind_check(const px_optimizer_kind *kind, const double *options);
// Modes of a step. With on_device, step counts and derived numbers are computed on the parameters'
// device, so a graph can capture the step; scalar states are stored there. The option "capturable"
// requests it, and fails with PX_ASSERTION for parameters or states on the CPU.
typedef struct px_step_options {
  bool on_device;
  px_tensor *rate;       // one element: replaces the option lr; NULL: unused
  px_tensor *found_inf;  // one element: if not 0, the step changes nothing; NULL: unused
} px_step_options;
// Makes an optimiser step for parameters with a gradient, with states owned by the caller: states[i
// * PX_OPTIMIZER_STATES + k] is state k of parameter i. A missing state (NULL) is created as a new
// reference. `manner` NULL: determined by the options. The step of a parameter is one kernel. On
// failure, neither that parameter nor its states have changed, but other parameters may have made
// their step.
PX_CALL px_optimizer_kind_step(const px_optimizer_kind *kind, const double *options,
                               const px_step_options *manner, px_tensor *const *parameters,
                               px_tensor **states, int64_t count);

// Makes an optimiser with one group of parameters. `options` are all options, in the kind's order.
// The constructors in phlox/optimizers.h take them by name:
//     px_sgd_new(&optimizer, parameters, count, .lr = 0.1, .momentum = 0.9)
PX_CALL px_optimizer_make(px_optimizer **out, const char *name, const double *options,
                          px_tensor *const *parameters, int64_t count);
// Makes an optimiser without groups. `name` is the kind's.
PX_CALL px_optimizer_new(px_optimizer **out, const char *name);
// Adds a group of parameters with default options. PX_VALUE: "optimizer got an empty parameter
// list", "can't optimize a non-leaf Tensor", or a parameter is in another group already.
PX_CALL px_optimizer_add(px_optimizer *self, px_tensor *const *parameters, int64_t count);
PX_API const px_optimizer_kind *px_optimizer_kind_of(const px_optimizer *self);
// Return the number of groups, the number of parameters in a group, and its i-th parameter,
// borrowed; 0 or NULL if there is no such group or parameter.
PX_API int px_optimizer_groups(const px_optimizer *self);
PX_API int64_t px_optimizer_group_size(const px_optimizer *self, int group);
PX_API px_tensor *px_optimizer_parameter(const px_optimizer *self, int group, int64_t i);
// Bracket the use of a borrowed state if another thread may set it. A state found after
// px_optimizer_read_begin stays valid until px_optimizer_read_end, which takes its result.
PX_API int px_optimizer_read_begin(px_optimizer *self);
PX_API void px_optimizer_read_end(px_optimizer *self, int reader);
// Set or get an option of a group; setting with group -1 applies to all groups. PX_VALUE, with
// PyTorch's text ("Invalid learning rate: -1.0"); PX_KEY for an unknown option, PX_INDEX for an
// unknown group.
PX_CALL px_optimizer_set(px_optimizer *self, int group, const char *option, double value);
PX_CALL px_optimizer_get(double *out, const px_optimizer *self, int group, const char *option);
// Makes a group (-1: all) read its learning rate from a tensor of one element. A program may change
// it between steps, and between replays of a captured step. NULL: from option lr again. PX_VALUE:
// "Tensor lr must be 1-element".
PX_CALL px_optimizer_set_rate(px_optimizer *self, int group, px_tensor *rate);
// The learning rate of a group when its first schedule was made; NAN without schedule.
PX_API double px_optimizer_initial_lr(const px_optimizer *self, int group);
PX_CALL px_optimizer_set_initial_lr(px_optimizer *self, int group, double lr);
// Makes one step. Parameters without a gradient do not change.
PX_CALL px_optimizer_step(px_optimizer *self);
// Clear the gradients of an optimiser's parameters, or of the given ones: remove them, or set them
// to zero.
PX_CALL px_optimizer_zero_grad(px_optimizer *self, bool set_to_none);
PX_CALL px_clear_grads(px_tensor *const *parameters, int64_t count, bool set_to_none);
// A state of the i-th parameter of a group, by name, borrowed; NULL if not created yet. The next
// step uses values written to it, including the scalar "step".
PX_API px_tensor *px_optimizer_state(const px_optimizer *self, int group, int64_t i,
                                     const char *name);
PX_CALL px_optimizer_set_state(px_optimizer *self, int group, int64_t i, const char *name,
                               px_tensor *value);

// ---- L-BFGS, with several evaluations of the loss in a step

// A closure: clears the gradients, computes the loss, and computes its gradients.
typedef px_status (*px_loss)(double *loss, void *context);
typedef struct px_lbfgs_options {
  double lr;                                 // step length of an iteration, or the first tried
  int64_t max_iter, max_eval, history_size;  // iterations and evaluations of a step; history length
  double tolerance_grad, tolerance_change;   // stop if gradients or changes are below
  bool line_search, maximize;                // line_search: strong Wolfe conditions
} px_lbfgs_options;
// State between steps; initially all zero but `scale`, which is 1. Tensors are flat vectors over
// all parameters: for each iteration in the history, the change of the gradient and the step taken;
// `direction`, the last search direction, and `grad`, the previous gradient.
typedef struct px_lbfgs_iteration {
  px_tensor *change, *step;
  double ro;
} px_lbfgs_iteration;
typedef struct px_lbfgs_memory {
  px_lbfgs_iteration *history;
  int64_t count, capacity, calls, iterations;
  px_tensor *direction, *grad;
  double t, loss, scale;  // last step length, previous loss, initial inverse Hessian
} px_lbfgs_memory;
// Makes a step for parameters of one dtype and device: several iterations, each evaluating the loss
// again. An error of the closure ends the step, with the parameters as left by the last iteration.
PX_CALL px_lbfgs_step(px_lbfgs_memory *memory, const px_lbfgs_options *options,
                      px_tensor *const *parameters, int64_t count, px_loss closure, void *context);
// px_lbfgs_remember appends an iteration, for restoring; the oldest is dropped beyond
// `history_size`. px_lbfgs_clear releases all.
PX_CALL px_lbfgs_remember(px_lbfgs_memory *memory, px_tensor *change, px_tensor *step, double ro,
                          int64_t history_size);
PX_API void px_lbfgs_clear(px_lbfgs_memory *memory);

// ---- learning-rate schedules
//
// A schedule has a kind with options, like an optimiser, and gives a rate for each epoch, from 0:
//     px_schedule stairs = {.kind = px_scheduler_kind_find("StepLR"), .options = options};
//     PX_TRY(px_optimizer_schedule(optimizer, &stairs, epoch));
typedef struct px_scheduler_kind px_scheduler_kind;
// The kinds of the library ("StepLR"): the i-th, or one by name; NULL if there is none.
PX_API const px_scheduler_kind *px_scheduler_kind_at(int i);
PX_API const px_scheduler_kind *px_scheduler_kind_find(const char *name);
PX_API const char *px_scheduler_kind_name(const px_scheduler_kind *kind);
// Types: 'f' number, 'i' integer, 'b' bool, 'c' one of a few words (by index), 'm' milestones, 'o'
// an optional number. For the other types, a fallback of NAN means required.
PX_API const px_option *px_scheduler_kind_options(const px_scheduler_kind *kind, int *count);
// A group's point in a schedule. `base` is the group's rate when its first schedule was made. NAN:
// the group was added later; it keeps its rate unless the next rate depends on the last one only.
typedef struct px_schedule_point {
  const double *options;  // all, in the kind's order
  const int64_t *milestones;
  int milestone_count;
  double epoch, base, lr;
  double step;   // number of steps after the construction of the schedule
  bool initial;  // the rate is set by the construction
} px_schedule_point;
// For callers that keep the state of a schedule: checks options, and fills in derived ones.
// PX_VALUE for invalid options.
PX_CALL px_scheduler_kind_check(const px_scheduler_kind *kind, double *options);
// Computes the rate of a group at a point from the present rate at->lr or, with `closed`, from the
// epoch alone if the kind has a closed formula. *momentum is NAN unless the kind also changes a
// momentum. PX_VALUE for an epoch past the end; PX_TYPE for a kind that uses a metric.
PX_CALL px_scheduler_kind_rate(double *lr, double *momentum, const px_scheduler_kind *kind,
                               const px_schedule_point *at, bool closed);
// The first rate of a group, for kinds that set it (OneCycleLR); NAN for others.
PX_API double px_scheduler_kind_first(const px_scheduler_kind *kind, const double *options);
// `options` are all in the kind's order, NAN for a default, or NULL for all defaults; `milestones`
// are epochs in any order.
typedef struct px_schedule {
  const px_scheduler_kind *kind;
  const double *options;
  const int64_t *milestones;
  int milestone_count;
} px_schedule;
// Sets the rates of all groups to those of `epoch`, by the kind's closed formula; without one, by
// the rates of the epoch before. Call it for epoch 0 before the first step. The first call records
// the initial rates, unless they are set (px_optimizer_set_initial_lr). PX_VALUE for invalid
// options.
PX_CALL px_optimizer_schedule(px_optimizer *self, const px_schedule *schedule, int64_t epoch);
// The state of ReduceLROnPlateau, which depends on a metric: `best` is INFINITY at first, or
// -INFINITY to maximise. px_plateau_step is true if the rates must be reduced now; px_plateau_rate
// returns the reduced rate. Both take all options of the kind.
typedef struct px_plateau {
  double best, bad_epochs, cooling;
} px_plateau;
PX_API bool px_plateau_step(px_plateau *self, const double *options, double metric);
PX_API double px_plateau_rate(const double *options, double lr);

// Scales all gradients to a total norm of at most max_norm. *total (new reference; may be NULL) is
// the norm before, a 0-dim tensor on the first gradient's device. norm_type may be INFINITY. With
// error_if_nonfinite, waits for the norm and fails with PX_RUNTIME if it is inf or NaN; the
// gradients are then unchanged.
PX_CALL px_clip_grad_norm(px_tensor **total, px_tensor *const *parameters, int64_t count,
                          double max_norm, double norm_type, bool error_if_nonfinite);
// Its two halves: the total norm of any tensors, which a caller may reduce over processes, and
// scaling by a given norm, a 0-dim tensor.
PX_CALL px_total_norm(px_tensor **out, px_tensor *const *tensors, int64_t count, double norm_type,
                      bool error_if_nonfinite);
PX_CALL px_clip_grads_with_norm(px_tensor *const *parameters, int64_t count, double max_norm,
                                const px_tensor *total_norm);
// Clamps each element of the gradients to -clip_value ... clip_value.
PX_CALL px_clip_grad_value(px_tensor *const *parameters, int64_t count, double clip_value);

// ---- gradient scaling in mixed precision (phlox/autocast.h)

// The loss is multiplied by a scale to keep float16 gradients from underflowing. Both functions
// work on the device without waiting. px_amp_unscale multiplies gradients by inv_scale, in place,
// and sets found_inf to 1 if an element is inf or NaN: the step must then be skipped.
// px_amp_update_scale multiplies the scale by backoff_factor if found_inf is not 0, and by
// growth_factor after growth_interval consecutive calls with 0, counted in growth_tracker. scale,
// inv_scale and found_inf are float32 and growth_tracker int32, with one element, on one device.
// PX_RUNTIME for others, PX_UNIMPLEMENTED for gradients that are not floating-point.
PX_CALL px_amp_unscale(int64_t count, px_tensor *const *grads, px_tensor *found_inf,
                       px_tensor *inv_scale);
PX_CALL px_amp_update_scale(px_tensor *scale, px_tensor *growth_tracker, px_tensor *found_inf,
                            double growth_factor, double backoff_factor, int64_t growth_interval);

#ifdef __cplusplus
}
#endif
