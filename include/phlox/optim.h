// SPDX-License-Identifier: Apache-2.0
// Optimisers and learning-rate schedules.
//
// An optimiser has groups of parameters. Each group has the options of the optimiser's kind (lr,
// momentum, ...), which are read at each step. The kinds are generated from optim/*.optim.
#pragma once
#include "phlox/nn.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_optimizer px_optimizer;
typedef struct px_scheduler px_scheduler;

typedef struct px_option {
  const char *name;  // "lr"
  double fallback;   // NAN: must be given
  char type;         // 'f' number, 'b' truth; of schedules more, see below
  const char *pair;  // the tuple that Python has in its place and the next one's ("betas"), or NULL
} px_option;
typedef struct px_optimizer_kind px_optimizer_kind;
// The kinds of the library ("SGD", "Adam"; docs/optim.md lists them): the i-th, or one by name;
// NULL if there is none.
PX_API const px_optimizer_kind *px_optimizer_kind_at(int i);
PX_API const px_optimizer_kind *px_optimizer_kind_find(const char *name);
PX_API const char *px_optimizer_kind_name(const px_optimizer_kind *kind);
PX_API const px_option *px_optimizer_kind_options(const px_optimizer_kind *kind, int *count);
// The names of the states that the kind keeps for a parameter ("momentum_buffer"; "step",
// "exp_avg"); NULL past the end. And whether a state is a number, a 0-dim float32 tensor on the
// CPU, and not a tensor like the parameter.
enum { PX_OPTIMIZER_STATES = 6 };  // the most of a kind
PX_API const char *px_optimizer_kind_state(const px_optimizer_kind *kind, int i);
PX_API bool px_optimizer_kind_scalar(const px_optimizer_kind *kind, int i);
// Checks options: all of them, in the kind's order. PX_VALUE, with PyTorch's texts, for options
// that are out of range or contradict each other.
PX_CALL px_optimizer_kind_check(const px_optimizer_kind *kind, const double *options);
// How a step is made. On the device, steps are counted and the numbers of a step made where the
// parameters are, so that a graph may capture it; states that are numbers lie there. This is what
// the option "capturable" asks for, where PX_ASSERTION refuses parameters and states on the CPU.
typedef struct px_step_manner {
  bool on_device;
  px_tensor *rate;       // of one element: is read in the place of option lr; NULL: is not
  px_tensor *found_inf;  // of one element: if it is not 0 nothing changes; NULL: all does
} px_step_manner;
// Makes an optimiser's step for parameters that have a gradient, with states that the caller holds:
// states[i * PX_OPTIMIZER_STATES + k] is the k-th state of parameter i. One that is NULL and needed
// is made, a new reference. `manner` NULL: as the options say. The step of a parameter is one
// kernel: if it fails, neither the parameter nor its states have changed; others may have made
// their step.
PX_CALL px_optimizer_kind_step(const px_optimizer_kind *kind, const double *options,
                               const px_step_manner *manner, px_tensor *const *parameters,
                               px_tensor **states, int64_t count);

// Makes an optimiser with one group of parameters; `options` are all, in the kind's order. The
// constructors in phlox/optimizers.h take them by name:
//     px_sgd_new(&optimizer, parameters, count, .lr = 0.1, .momentum = 0.9)
PX_CALL px_optimizer_make(px_optimizer **out, const char *name, const double *options,
                          px_tensor *const *parameters, int64_t count);
// Makes an optimiser without groups. `name` is the kind's.
PX_CALL px_optimizer_new(px_optimizer **out, const char *name);
// Adds a group of parameters, with default options. PX_VALUE: "optimizer got an empty parameter
// list", "can't optimize a non-leaf Tensor", or a parameter is in another group already.
PX_CALL px_optimizer_add(px_optimizer *self, px_tensor *const *parameters, int64_t count);
PX_API const px_optimizer_kind *px_optimizer_kind_of(const px_optimizer *self);
// The number of groups, the number of parameters in a group, and the i-th of them, borrowed; 0 or
// NULL if there is no such group or parameter.
PX_API int px_optimizer_groups(const px_optimizer *self);
PX_API int64_t px_optimizer_group_size(const px_optimizer *self, int group);
PX_API px_tensor *px_optimizer_parameter(const px_optimizer *self, int group, int64_t i);
// Sets or gets an option of a group; setting with group -1 means all groups. PX_VALUE, with
// PyTorch's text ("Invalid learning rate: -1.0"); PX_KEY if there is no such option, PX_INDEX no
// such group.
PX_CALL px_optimizer_set(px_optimizer *self, int group, const char *option, double value);
PX_CALL px_optimizer_get(double *out, const px_optimizer *self, int group, const char *option);
// Lets a group (-1: all) take its rate from a tensor of one element, which a program may change
// between steps, and between replays of a step that was captured. NULL: from option lr again.
// PX_VALUE: "Tensor lr must be 1-element".
PX_CALL px_optimizer_set_rate(px_optimizer *self, int group, px_tensor *rate);
// The learning rate that a group had when its first schedule was made; NAN if there was none.
PX_API double px_optimizer_initial_lr(const px_optimizer *self, int group);
PX_CALL px_optimizer_set_initial_lr(px_optimizer *self, int group, double lr);
// Makes one step. Parameters without a gradient do not change.
PX_CALL px_optimizer_step(px_optimizer *self);
// Clears the gradients of an optimiser's parameters, or of those given: removes them, or sets them
// to zero.
PX_CALL px_optimizer_zero_grad(px_optimizer *self, bool set_to_none);
PX_CALL px_clear_grads(px_tensor *const *parameters, int64_t count, bool set_to_none);
// A state of the i-th parameter of a group, by name, borrowed; NULL if there is none yet. The next
// step uses what is written to it, also to the number "step".
PX_API px_tensor *px_optimizer_state(const px_optimizer *self, int group, int64_t i,
                                     const char *name);
PX_CALL px_optimizer_set_state(px_optimizer *self, int group, int64_t i, const char *name,
                               px_tensor *value);

// ---- L-BFGS, which looks at the loss at several points in a step

// Clears the gradients, computes the loss, and the gradients of it.
typedef px_status (*px_loss)(double *loss, void *context);
typedef struct px_lbfgs_options {
  double lr;                                 // the length of a turn, or the first that is tried
  int64_t max_iter, max_eval, history_size;  // turns and calls of a step; turns that are remembered
  double tolerance_grad, tolerance_change;   // what ends a step: gradients below, or changes
  bool line_search, maximize;                // line_search: by the strong Wolfe conditions
} px_lbfgs_options;
// What is remembered from step to step; all zero but `scale`, 1, at the start. The tensors are
// vectors of all parameters: how the gradient changed and the parameters moved in each turn, the
// last way, and the gradient before it.
typedef struct px_lbfgs_turn {
  px_tensor *change, *step;
  double ro;
} px_lbfgs_turn;
typedef struct px_lbfgs_memory {
  px_lbfgs_turn *turns;
  int64_t count, room, calls, turns_made;
  px_tensor *way, *grad;
  double t, loss, scale;  // the last turn's length, and the loss before it
} px_lbfgs_memory;
// Makes a step of parameters of one dtype and device: turns, each with the loss anew. What the
// closure fails with ends it; the parameters are then where the last turn has left them.
PX_CALL px_lbfgs_step(px_lbfgs_memory *memory, const px_lbfgs_options *options,
                      px_tensor *const *parameters, int64_t count, px_loss closure, void *context);
// Adds a turn, for restoring; the oldest goes if there are `most`. And releases all.
PX_CALL px_lbfgs_remember(px_lbfgs_memory *memory, px_tensor *change, px_tensor *step, double ro,
                          int64_t most);
PX_API void px_lbfgs_clear(px_lbfgs_memory *memory);

// ---- schedules of learning rates
//
// A schedule has a kind with options, as an optimiser has. It counts epochs: making it sets the
// rates of epoch last_epoch + 1 (last_epoch is -1 at the start), and each step those of the next
// epoch.
typedef struct px_scheduler_kind px_scheduler_kind;
// The kinds of the library ("StepLR"): the i-th, or one by name; NULL if there is none.
PX_API const px_scheduler_kind *px_scheduler_kind_at(int i);
PX_API const px_scheduler_kind *px_scheduler_kind_find(const char *name);
PX_API const char *px_scheduler_kind_name(const px_scheduler_kind *kind);
// Types: 'f' number, 'i' whole number, 'b' truth, 'c' one of a few words (by number), 'm'
// milestones, 'o' a number that may be left out; otherwise a fallback of NAN means that it must be
// given.
PX_API const px_option *px_scheduler_kind_options(const px_scheduler_kind *kind, int *count);
// Where in a schedule a group is. `base` is the rate that the group had when its first schedule was
// made. NAN: the group was added later; it keeps its rate unless the next rate follows from the
// last one alone.
typedef struct px_schedule_point {
  const double *options;  // all, in the kind's order
  const int64_t *milestones;
  int milestone_count;
  double epoch, base, lr;
} px_schedule_point;
// For callers that keep the state of a schedule themselves. Checks options, and fills in those that
// follow from others. PX_VALUE for options that make no schedule.
PX_CALL px_scheduler_kind_check(const px_scheduler_kind *kind, double *options);
// Gives the rate of a group at a point, from the present rate at->lr; with `closed`, from the epoch
// alone, if the kind has a formula for that. *momentum is NAN unless the kind changes a momentum
// too. PX_VALUE for an epoch past the end; PX_TYPE for a kind that follows a metric.
PX_CALL px_scheduler_kind_rate(double *lr, double *momentum, const px_scheduler_kind *kind,
                               const px_schedule_point *at, bool closed);
// The first rate of a group, for kinds that set it (OneCycleLR); NAN for others.
PX_API double px_scheduler_kind_first(const px_scheduler_kind *kind, const double *options);
// What ReduceLROnPlateau remembers of its metric. px_plateau_step returns whether the rates fall
// now, px_plateau_rate to what.
typedef struct px_plateau {
  double best, bad_epochs, cooling;
} px_plateau;
PX_API bool px_plateau_step(px_plateau *self, const double *options, double metric);
PX_API double px_plateau_rate(const double *options, double lr);
// Makes a schedule: `options` in the order of the kind's, NAN for a default, and NULL for all;
// `milestones` are epochs in any order. PX_VALUE for options that make no schedule; PX_KEY to go on
// from an epoch with a group whose first rate is not known (px_optimizer_set_initial_lr).
PX_CALL px_scheduler_new(px_scheduler **out, const px_scheduler_kind *kind, px_optimizer *optimizer,
                         const double *options, const int64_t *milestones, int count,
                         int64_t last_epoch);
// Makes a schedule whose rates a function computes: it gets the present rates of the groups in
// `rates` and replaces them. The caller makes the first step, to epoch last_epoch + 1.
typedef px_status (*px_rates)(double *rates, int groups, const px_scheduler *self, void *context);
PX_CALL px_scheduler_custom(px_scheduler **out, px_optimizer *optimizer, px_rates rates,
                            void *context, int64_t last_epoch);
// StepLR multiplies lr by gamma every step_size steps; CosineAnnealingLR anneals it to eta_min
// along a cosine over t_max steps.
PX_CALL px_scheduler_step_lr(px_scheduler **out, px_optimizer *optimizer, int64_t step_size,
                             double gamma);
PX_CALL px_scheduler_cosine(px_scheduler **out, px_optimizer *optimizer, int64_t t_max,
                            double eta_min);
PX_CALL px_scheduler_step(px_scheduler *self);
// Goes to any epoch, by the kind's closed formula if it has one. PX_VALUE if `epoch` is not finite.
PX_CALL px_scheduler_step_to(px_scheduler *self, double epoch);
// Makes a step of ReduceLROnPlateau: the rates fall if `metric` has not improved for `patience`
// steps.
PX_CALL px_scheduler_step_metric(px_scheduler *self, double metric);
// Options, and what ReduceLROnPlateau remembers ("best", "num_bad_epochs", "cooldown_counter"), by
// name; PX_KEY if there is none.
PX_CALL px_scheduler_get(double *out, const px_scheduler *self, const char *option);
PX_CALL px_scheduler_set(px_scheduler *self, const char *option, double value);
PX_API double px_scheduler_last_lr(const px_scheduler *self, int group);
PX_API int64_t px_scheduler_epoch(const px_scheduler *self);
// The first rate of a group; for restoring it may be set.
PX_CALL px_scheduler_set_base_lr(px_scheduler *self, int group, double lr);
PX_API double px_scheduler_base_lr(const px_scheduler *self, int group);

// Scales all gradients so that their common norm is at most max_norm; *total (new reference, may be
// NULL) is the norm before, a 0-dim tensor on the first gradient's device. norm_type may be
// INFINITY. With error_if_nonfinite the norm is waited for, and one that is not finite is
// PX_RUNTIME; the gradients stay as they were.
PX_CALL px_clip_grad_norm(px_tensor **total, px_tensor *const *parameters, int64_t count,
                          double max_norm, double norm_type, bool error_if_nonfinite);
// Its halves: the common norm of any tensors, which a caller may add up over processes; and the
// scaling by a norm that is given, a 0-dim tensor.
PX_CALL px_total_norm(px_tensor **out, px_tensor *const *tensors, int64_t count, double norm_type,
                      bool error_if_nonfinite);
PX_CALL px_clip_grads_with_norm(px_tensor *const *parameters, int64_t count, double max_norm,
                                const px_tensor *total_norm);
// Brings each element of the gradients into -clip_value ... clip_value.
PX_CALL px_clip_grad_value(px_tensor *const *parameters, int64_t count, double clip_value);

// ---- the scale of gradients in mixed precision (phlox/autocast.h)

// A loss is multiplied by a scale, so that gradients of float16 do not vanish. Both work on the
// device and wait for nothing. px_amp_unscale multiplies gradients by inv_scale, in place, and sets
// found_inf to 1 if one of their elements is infinite or NaN: then the step is left out.
// px_amp_update_scale multiplies the scale by backoff_factor if found_inf is not 0, and by
// growth_factor after growth_interval calls in a row where it was; growth_tracker counts them.
// scale, inv_scale and found_inf are float32 and growth_tracker int32, of one element, on one
// device. PX_RUNTIME for others, PX_UNIMPLEMENTED for gradients that are not floating-point.
PX_CALL px_amp_unscale(int64_t count, px_tensor *const *grads, px_tensor *found_inf,
                       px_tensor *inv_scale);
PX_CALL px_amp_update_scale(px_tensor *scale, px_tensor *growth_tracker, px_tensor *found_inf,
                            double growth_factor, double backoff_factor, int64_t growth_interval);

#ifdef __cplusplus
}
#endif
