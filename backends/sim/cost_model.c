// SPDX-License-Identifier: Apache-2.0
// Cost model of mode `schedule`: virtual times of kernels, copies and links.
//
// A kernel takes a fixed start-up time plus the longer of its memory time and its compute time.
// Memory time counts each operand element once. Operation counts come from the op's entry.
// Convolutions pay for layout conversion of images unsupported by tensor cores. Work on one stream
// does not slow down another. The parameters are read once, with the environment, and are constant
// afterwards.
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

// Parses a number >= 0 with an optional decimal suffix K, M, G or T.
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
                 "%s:%d: expected `name = number` (optional suffix K, M, G or T), got '%.60s'",
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

// ---- cost model

// Nanoseconds for `units` at `rate` units/s; a rate of 0 costs nothing.
static double at_rate(double units, double rate) { return rate > 0 ? units / rate * 1e9 : 0; }

// Bytes of an operand's distinct elements; broadcast elements count once.
static double bytes_of(const px_operand *o) {
  if (o->immediate || o->dtype < 0 || o->dtype >= PX_DTYPE_COUNT) return 0;
  double bytes = (double)px__dtypes[o->dtype].size;
  for (int i = 0; i < o->ndim; i++)
    if (o->strides[i] || !o->sizes[i]) bytes *= (double)o->sizes[i];
  return bytes;
}

static bool is_convolution(const px_launch *l) { return l->op && !strncmp(l->op, "conv", 4); }

static bool is_attention(const px_launch *l) { return l->op && strstr(l->op, "attention"); }

// Products in float32 may be allowed TF32, but not those inside attention.
static px__sim_figure_name float32_rate(const px_launch *l) {
  if (is_attention(l)) return PX__SIM_float32;
  px_setting setting = is_convolution(l) ? PX_SETTING_CUDNN_TF32 : PX_SETTING_MATMUL_TF32;
  return px__sim.core->setting(setting) ? PX__SIM_tfloat32 : PX__SIM_float32;
}

// Rate of the output's dtype. Pointwise ops may compute in another dtype, but are bound by memory.
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

// Bytes of layout conversion: tensor cores require channels-last images, so other layouts are read
// and written once more.
static double conversion_bytes(const px_launch *l) {
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
  double memory_ns = at_rate(bytes, figures[PX__SIM_memory]);
  double share = is_convolution(launch) ? figures[PX__SIM_convolution] : 1, compute_ns = 0;
  if (launch->work) compute_ns = at_rate((double)launch->work, figures[rate_of(launch)] * share);
  return (int64_t)(figures[PX__SIM_kernel_ns] + (memory_ns > compute_ns ? memory_ns : compute_ns) +
                   at_rate(conversion_bytes(launch), figures[PX__SIM_memory]));
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
