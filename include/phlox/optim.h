// SPDX-License-Identifier: Apache-2.0
// Optimisers and learning-rate schedules.
//
// An optimiser holds groups of parameters; each group has the options of its kind (lr, momentum,
// ...), read at every step.
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
  char type;         // 'f' number, 'b' truth, 'p' a pair: this and the next row ("betas")
} px_option;
typedef struct px_optimizer_kind px_optimizer_kind;
// The kinds of the library ("SGD", "Adam", "AdamW", "Adadelta"); NULL past the end, or if there is
// none of that name.
PX_API const px_optimizer_kind *px_optimizer_kind_at(int i);
PX_API const px_optimizer_kind *px_optimizer_kind_find(const char *name);
PX_API const char *px_optimizer_kind_name(const px_optimizer_kind *kind);
PX_API const px_option *px_optimizer_kind_options(const px_optimizer_kind *kind, int *count);
// The names of a parameter's state ("momentum_buffer"; "exp_avg", "exp_avg_sq", "max_exp_avg_sq");
// NULL past the end.
PX_API const char *px_optimizer_kind_state(const px_optimizer_kind *kind, int i);

// Makes an optimiser without groups. `name` is the kind's.
PX_CALL px_optimizer_new(px_optimizer **out, const char *name);
// Adds a group. PX_VALUE "optimizer got an empty parameter list", "can't optimize a non-leaf
// Tensor", or for a parameter that is in another group. Options start at their defaults.
PX_CALL px_optimizer_add(px_optimizer *self, px_tensor *const *parameters, int64_t count);
PX_API const px_optimizer_kind *px_optimizer_kind_of(const px_optimizer *self);
// How many groups there are; what they hold. Where there is no such group or parameter: 0, NULL, or
// PX_INDEX of what can fail.
PX_API int px_optimizer_groups(const px_optimizer *self);
PX_API int64_t px_optimizer_group_size(const px_optimizer *self, int group);
PX_API px_tensor *px_optimizer_parameter(const px_optimizer *self, int group, int64_t i);
// Options by name. PX_VALUE with PyTorch's text ("Invalid learning rate: -1.0"), PX_KEY if there is
// none. group -1: all groups.
PX_CALL px_optimizer_set(px_optimizer *self, int group, const char *option, double value);
PX_CALL px_optimizer_get(double *out, const px_optimizer *self, int group, const char *option);
// The rate that a group had when its first schedule was made; NAN: none was.
PX_API double px_optimizer_initial_lr(const px_optimizer *self, int group);
PX_CALL px_optimizer_set_initial_lr(px_optimizer *self, int group, double lr);
// What a step would refuse: PX_VALUE for options that are missing or do not go together.
PX_CALL px_optimizer_check(const px_optimizer *self);
// One step: parameters without a gradient are left alone.
PX_CALL px_optimizer_step(px_optimizer *self);
// Clears gradients: to none, or to zeros.
PX_CALL px_optimizer_zero_grad(px_optimizer *self, bool set_to_none);
// A parameter's state: the tensor of that name (borrowed, NULL if there is none yet), and how many
// steps it has made.
PX_API px_tensor *px_optimizer_state(const px_optimizer *self, int group, int64_t i,
                                     const char *name);
PX_CALL px_optimizer_set_state(px_optimizer *self, int group, int64_t i, const char *name,
                               px_tensor *value);
PX_API int64_t px_optimizer_steps(const px_optimizer *self, int group, int64_t i);
PX_CALL px_optimizer_set_steps(px_optimizer *self, int group, int64_t i, int64_t steps);
// The steps as a 0-dim float32 tensor that counts on; what is written to it holds. *out NULL: no
// step has been made.
PX_CALL px_optimizer_count(px_tensor **out, px_optimizer *self, int group, int64_t i);

// ---- schedules of learning rates
//
// A schedule is of a kind with options, as an optimiser is. It goes by epochs: making it sets the
// rates of epoch last_epoch + 1 (-1: from the start), each step those of the next.
typedef struct px_scheduler_kind px_scheduler_kind;
// The kinds of the library ("StepLR"); NULL past the end, or if there is none of that name.
PX_API const px_scheduler_kind *px_scheduler_kind_at(int i);
PX_API const px_scheduler_kind *px_scheduler_kind_find(const char *name);
PX_API const char *px_scheduler_kind_name(const px_scheduler_kind *kind);
// Types: 'f' number, 'i' whole number, 'b' truth, 'c' one of two words (0 or 1), 'm' milestones,
// 'o' a whole number that may be left out; otherwise a fallback of NAN means that it must be given.
PX_API const px_option *px_scheduler_kind_options(const px_scheduler_kind *kind, int *count);
// Makes a schedule: `options` in the order of the kind's, NAN for a default, and NULL for all;
// `milestones` are epochs in any order. PX_VALUE for options that make no schedule; PX_KEY to go on
// from an epoch with a group whose first rate is not known (px_optimizer_set_initial_lr).
PX_CALL px_scheduler_new(px_scheduler **out, const px_scheduler_kind *kind, px_optimizer *optimizer,
                         const double *options, const int64_t *milestones, int count,
                         int64_t last_epoch);
// Rates by a function, which finds the groups' rates in `rates` and puts the next ones there. The
// first step, to epoch last_epoch + 1, is the caller's.
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
// To any epoch, by the kind's closed form; PX_VALUE if it is not finite.
PX_CALL px_scheduler_step_to(px_scheduler *self, double epoch);
// ReduceLROnPlateau: the rates fall when `metric` has not improved for `patience` steps.
PX_CALL px_scheduler_step_metric(px_scheduler *self, double metric);
PX_API const px_scheduler_kind *px_scheduler_kind_of(const px_scheduler *self);  // NULL: custom
// Options, and what ReduceLROnPlateau remembers ("best", "num_bad_epochs", "cooldown_counter"), by
// name; PX_KEY if there is none.
PX_CALL px_scheduler_get(double *out, const px_scheduler *self, const char *option);
PX_CALL px_scheduler_set(px_scheduler *self, const char *option, double value);
PX_API const int64_t *px_scheduler_milestones(const px_scheduler *self, int *count);
PX_API double px_scheduler_last_lr(const px_scheduler *self, int group);
PX_API int64_t px_scheduler_epoch(const px_scheduler *self);
// For restoring: epoch and base lr of a group.
PX_CALL px_scheduler_set_base_lr(px_scheduler *self, int group, double lr);
PX_API void px_scheduler_restore(px_scheduler *self, int64_t epoch);
PX_API double px_scheduler_base_lr(const px_scheduler *self, int group);

// Scales all gradients so that their common norm is at most max_norm; *total (new reference, may be
// NULL) is the norm before, a 0-dim tensor on the first gradient's device. norm_type may be
// INFINITY. With error_if_nonfinite the norm is waited for, and one that is not finite is
// PX_RUNTIME; the gradients stay as they were.
PX_CALL px_clip_grad_norm(px_tensor **total, px_tensor *const *parameters, int64_t count,
                          double max_norm, double norm_type, bool error_if_nonfinite);

#ifdef __cplusplus
}
#endif
