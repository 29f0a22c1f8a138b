// SPDX-License-Identifier: Apache-2.0
// The machine whose time mode `schedule` tells: figures for kernels, copies and links, and what
// they make of a launch or a copy.
//
// A kernel takes as long as its bytes or its operations, whichever takes longer, behind a fixed
// beginning. Its bytes are those of its operands, each element once; its operations are told by the
// op's entry. Images are laid out anew for a convolution where tensor cores cannot take them. Work
// on one stream does not slow down that on another. The figures are read once, with the
// environment, and do not change after that.
#include "sim/cost_model.h"

#include "operands.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double figures[PX__SIM_FIGURE_COUNT] = {
#define XX(name, value) value,
    PX__SIM_FIGURES(XX)
#undef XX
};
static const char *const names[] = {
#define XX(name, value) #name,
    PX__SIM_FIGURES(XX)
#undef XX
};

double px__sim_figure(px__sim_figure_name name) { return figures[name]; }

// ---- a file of figures

static char *trimmed(char *text) {
  char *end = text + strlen(text);
  while (end > text && isspace((unsigned char)end[-1])) *--end = 0;
  while (isspace((unsigned char)*text)) text++;
  return text;
}

// A number above 0, or 0, with a suffix K, M, G or T of powers of a thousand.
static bool read_number(const char *text, double *out) {
  static const char suffixes[] = "KMGT";
  char *end;
  *out = strtod(text, &end);
  const char *suffix = *end ? strchr(suffixes, *end) : NULL;
  for (const char *at = suffixes; suffix && at <= suffix; at++) *out *= 1e3;
  return end != text && !end[suffix != NULL] && *out >= 0 && *out < 1e18;
}

static px_status read_line(const char *path, int number, char *line) {
  line[strcspn(line, "#")] = 0;
  line = trimmed(line);
  if (!*line) return PX_OK;
  char *equals = strchr(line, '=');
  double value;
  if (!equals || !read_number(trimmed(equals + 1), &value))
    PX__SIM_FAIL(PX_VALUE, 0,
                 "%s:%d: expected `name = number`, with K, M, G or T perhaps, but it is '%.60s'",
                 path, number, line);
  *equals = 0;
  line = trimmed(line);
  int i = 0;
  while (i < PX__SIM_FIGURE_COUNT && strcmp(names[i], line)) i++;
  if (i == PX__SIM_FIGURE_COUNT)
    PX__SIM_FAIL(PX_VALUE, 0, "%s:%d: a machine has no figure '%.60s'", path, number, line);
  figures[i] = value;
  return PX_OK;
}

px_status px__sim_machine_read(const char *path) {
  if (!*path) return PX_OK;
  FILE *file = fopen(path, "r");
  if (!file)
    PX__SIM_FAIL(PX_VALUE, 0, "PHLOX_SIM_MACHINE must be a file of figures, but %.200s: %s", path,
                 strerror(errno));
  char line[256];
  px_status status = PX_OK;
  for (int number = 1; status == PX_OK && fgets(line, sizeof line, file); number++)
    status = read_line(path, number, line);
  fclose(file);
  return status;
}

// ---- what it makes of work

// `units` at so many a second, in nanoseconds; a rate of 0 costs nothing.
static double at_rate(double units, double rate) { return rate > 0 ? units / rate * 1e9 : 0; }

// The bytes of an operand's elements; those that it repeats count once.
static double bytes_of(const px_operand *o) {
  if (o->immediate || o->dtype < 0 || o->dtype >= PX_DTYPE_COUNT) return 0;
  double bytes = (double)px__dtypes[o->dtype].size;
  for (int i = 0; i < o->ndim; i++)
    if (o->strides[i] || !o->sizes[i]) bytes *= (double)o->sizes[i];
  return bytes;
}

static bool is_convolution(const px_launch *l) { return l->op && !strncmp(l->op, "conv", 4); }

static bool is_attention(const px_launch *l) { return l->op && strstr(l->op, "attention"); }

// float32 has two rates: products may be told to use fewer digits, but for those within attention.
static px__sim_figure_name float32_rate(const px_launch *l) {
  if (is_attention(l)) return PX__SIM_float32;
  px_setting setting = is_convolution(l) ? PX_SETTING_CUDNN_TF32 : PX_SETTING_MATMUL_TF32;
  return px__sim.core->setting(setting) ? PX__SIM_tfloat32 : PX__SIM_float32;
}

// Of the dtype of what is written; a pointwise op computes in another, but is bound by its bytes.
static px__sim_figure_name rate_of(const px_launch *l) {
  static const struct {
    int dtype;
    px__sim_figure_name figure;
  } rates[] = {{PX_FLOAT64, PX__SIM_float64},      {PX_COMPLEX128, PX__SIM_float64},
               {PX_FLOAT16, PX__SIM_float16},      {PX_BFLOAT16, PX__SIM_bfloat16},
               {PX_FLOAT8_E4M3FN, PX__SIM_float8}, {PX_FLOAT8_E5M2, PX__SIM_float8}};
  int dtype = l->operand_count ? l->operands[0].dtype : PX_FLOAT32;
  for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
    if (rates[i].dtype == dtype) return rates[i].figure;
  return float32_rate(l);
}

// Tensor cores take images whose channels lie side by side; others are laid out anew, one read and
// one written, before and after.
static double laid_out(const px_launch *l) {
  double bytes = 0;
  if (!is_convolution(l)) return 0;
  px__sim_figure_name rate = rate_of(l);
  if (rate == PX__SIM_float32 || rate == PX__SIM_float64) return 0;
  for (int i = 0; i < l->operand_count; i++) {
    const px_operand *o = &l->operands[i];
    if (o->ndim > 2 && o->strides[1] != 1 && o->sizes[1] > 1) bytes += 2 * bytes_of(o);
  }
  return bytes;
}

int64_t px__sim_launch_cost(const px_launch *launch) {
  double bytes = 0;
  for (int i = 0; i < launch->operand_count; i++) bytes += bytes_of(&launch->operands[i]);
  double moving = at_rate(bytes, figures[PX__SIM_memory]);
  double share = is_convolution(launch) ? figures[PX__SIM_convolution] : 1, working = 0;
  if (launch->work) working = at_rate((double)launch->work, figures[rate_of(launch)] * share);
  return (int64_t)(figures[PX__SIM_kernel_ns] + (moving > working ? moving : working) +
                   at_rate(laid_out(launch), figures[PX__SIM_memory]));
}

int64_t px__sim_host_cost(const px_launch *launch) {
  double plan = launch && is_convolution(launch) ? figures[PX__SIM_plan_ns] : 0;
  return (int64_t)(figures[PX__SIM_issue_ns] + plan);
}

int64_t px__sim_copy_cost(const px_copy *copy, bool detour) {
  static const px__sim_figure_name rates[] = {[PX_COPY_HOST_TO_DEVICE] = PX__SIM_to_device,
                                              [PX_COPY_DEVICE_TO_HOST] = PX__SIM_to_host,
                                              [PX_COPY_DEVICE_TO_DEVICE] = PX__SIM_memory,
                                              [PX_COPY_PEER] = PX__SIM_peer};
  double bytes = (double)copy->bytes * (copy->kind == PX_COPY_DEVICE_TO_DEVICE ? 2 : 1);
  double rate = figures[detour ? PX__SIM_detour : rates[copy->kind]];
  return (int64_t)(figures[PX__SIM_copy_ns] + at_rate(bytes, rate));
}

int64_t px__sim_fill_cost(size_t bytes) {
  return (int64_t)(figures[PX__SIM_kernel_ns] + at_rate((double)bytes, figures[PX__SIM_memory]));
}

int64_t px__sim_wait_cost(int device, int other) {
  bool apart = other >= 0 && other != device;
  return (int64_t)figures[apart ? PX__SIM_peer_wait_ns : PX__SIM_wait_ns];
}
