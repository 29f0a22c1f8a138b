// SPDX-License-Identifier: Apache-2.0
// torchrun's options: from arguments, with PET_NAME in the environment as default.
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/launch_impl.h"
#include "phlox/device.h"

enum { NAME = 64 };
typedef enum takes { VALUE, FLAG, REFUSED } takes;
static const struct option {
  const char *name;
  char letter;
  takes takes;  // kind of value
  const char *default_value, *help;
  size_t field;  // offset in px__launch_plan
} table[] = {
#define XX(name, letter, takes, default_value, help) \
  {#name, letter, takes, default_value, help, offsetof(px__launch_plan, name)},
    PX__LAUNCH_MAP(XX)
#undef XX
};
enum { OPTIONS = sizeof table / sizeof *table };

static const char **value_of(px__launch_plan *plan, int i) {
  return (const char **)((char *)plan + table[i].field);
}

const char *px_job_usage(void) {
  static char text[8192];
  int at = snprintf(text, sizeof text, "usage: phlox-run [OPTION...] PROGRAM [ARGUMENT...]\n");
  for (int i = 0; i < OPTIONS; i++) {
    if (!table[i].help) continue;
    char name[NAME];
    snprintf(name, sizeof name, "%s", table[i].name);
    for (char *c = name; *c; c++) *c = *c == '_' ? '-' : *c;
    at += snprintf(text + at, sizeof text - (size_t)at, "  --%-26s %s\n", name, table[i].help);
  }
  return text;
}

const char *px__launch_variable(const px_job_options *given, const char *name) {
  size_t length = strlen(name);
  for (const char *const *at = given->environment; at && *at; at++)
    if (!strncmp(*at, name, length) && (*at)[length] == '=') return *at + length + 1;
  return NULL;
}

static const char *name_at(const void *names, int i) {
  (void)names;
  return i < OPTIONS ? table[i].name : NULL;
}

// Returns the index of an argument's option, or -1. *value is the text after '=' or the letter, or
// NULL.
static int find(const char *argument, const char **value) {
  char name[NAME] = "";
  *value = NULL;
  if (argument[1] != '-') {
    for (int i = 0; i < OPTIONS; i++)
      if (table[i].letter && argument[1] == table[i].letter)
        return *value = argument[2] ? argument + 2 : NULL, i;
    return -1;
  }
  const char *end = strchr(argument, '=');
  snprintf(name, sizeof name, "%.*s", end ? (int)(end - argument - 2) : (int)sizeof name - 1,
           argument + 2);
  for (char *c = name; *c; c++) *c = *c == '-' ? '_' : *c;
  if (end) *value = end + 1;
  for (int i = 0; i < OPTIONS; i++)
    if (!strcmp(name, table[i].name)) return i;
  return -1;
}

static px_status defaults(px__launch_plan *plan) {
  for (int i = 0; i < OPTIONS; i++) {
    char name[NAME] = "PET_";
    for (int k = 0; table[i].name[k]; k++)
      name[4 + k] = (char)toupper((unsigned char)table[i].name[k]);
    const char *set = px__launch_variable(plan->given, name);
    PX_CHECK(!set || table[i].takes != REFUSED, PX_UNIMPLEMENTED,
             "torchrun's %s is not implemented in Phlox", name);
    bool flag = table[i].takes == FLAG;
    *value_of(plan, i) = !set ? table[i].default_value : flag && !strcmp(set, "0") ? "" : set;
  }
  return PX_OK;
}

static px_status read_arguments(px__launch_plan *plan) {
  const px_job_options *given = plan->given;
  int at = 0;
  for (; at < given->count && given->arguments[at][0] == '-'; at++) {
    const char *argument = given->arguments[at], *value;
    if (!strcmp(argument, "--"))
      return at++, plan->program = given->arguments + at, plan->program_count = given->count - at,
                   PX_OK;
    int i = find(argument, &value);
    PX_CHECK(i >= 0, PX_VALUE, "unrecognized arguments: %s (the nearest option is --%s)", argument,
             px_name_suggest(argument, name_at, NULL));
    PX_CHECK(table[i].takes != REFUSED, PX_UNIMPLEMENTED,
             "torchrun's option %s is not implemented in Phlox", argument);
    if (table[i].takes == FLAG) {
      PX_CHECK(!value, PX_VALUE, "argument %s: takes no value", argument);
      value = "1";
    } else if (!value) {
      PX_CHECK(at + 1 < given->count, PX_VALUE, "argument %s: expected one argument", argument);
      value = given->arguments[++at];
    }
    *value_of(plan, i) = value;
  }
  plan->program = given->arguments + at;
  plan->program_count = given->count - at;
  return PX_OK;
}

// ---- values

static px_status number(int *out, const char *text, const char *name, int min, int max) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  PX_CHECK(*text && !*end && !errno && value >= min && value <= max, PX_VALUE,
           "argument --%s: expected an integer in [%d, %d], got '%s'", name, min, max, text);
  *out = (int)value;
  return PX_OK;
}

static px_status milliseconds(int *out, const char *text, const char *name) {
  char *end;
  double value = strtod(text, &end);
  bool decimal = !text[strspn(text, "+-.0123456789eE")];
  PX_CHECK(*text && !*end && decimal && value >= 0 && value <= 1e6, PX_VALUE,
           "argument --%s: invalid float value: '%s'", name, text);
  *out = (int)(value * 1000);
  return PX_OK;
}

static px_status local_size(px__launch_plan *plan) {
  const char *requested = plan->nproc_per_node;
  int devices = px_device_count(PX_CUDA), cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  PX_CHECK(strcmp(requested, "gpu") || devices > 0, PX_VALUE, "Cuda is not available.");
  if (!strcmp(requested, "gpu") || (!strcmp(requested, "auto") && devices > 0))
    return plan->local = devices, PX_OK;
  if (!strcmp(requested, "cpu") || !strcmp(requested, "auto")) return plan->local = cores, PX_OK;
  PX_CHECK(isdigit((unsigned char)*requested), PX_VALUE, "Unsupported nproc_per_node value: %s",
           requested);
  return number(&plan->local, requested, "nproc-per-node", 1, 4096);
}

static px_status node_count(px__launch_plan *plan) {
  const char *colon = strchr(plan->nnodes, ':');
  int min = 1, max;
  char first[16];
  PX_TRY(number(&max, colon ? colon + 1 : plan->nnodes, "nnodes", 1, 65536));
  snprintf(first, sizeof first, "%.*s", colon ? (int)(colon - plan->nnodes) : 0, plan->nnodes);
  if (colon) PX_TRY(number(&min, first, "nnodes", 1, 65536));
  PX_CHECK(!colon || min == max, PX_UNIMPLEMENTED,
           "torchrun's --nnodes MIN:MAX with MIN < MAX (%s) is not implemented in Phlox",
           plan->nnodes);
  plan->nodes = max;
  return PX_OK;
}

// Splits host:port.
static px_status endpoint(px__launch_plan *plan, const char *text, int port) {
  const char *colon = strrchr(text, ':');
  int length = colon ? (int)(colon - text) : (int)strlen(text);
  PX_CHECK(length > 0 && length < PX__HOST, PX_VALUE,
           "argument --rdzv-endpoint: expected host:port, got '%s'", text);
  if (text[0] == '[' && text[length - 1] == ']') text++, length -= 2;
  snprintf(plan->host, sizeof plan->host, "%.*s", length, text);
  plan->port = port;
  return colon ? number(&plan->port, colon + 1, "rdzv-endpoint", 0, 65535) : PX_OK;
}

static px_status rendezvous(px__launch_plan *plan) {
  const char *conf = strstr(plan->rdzv_conf, "join_timeout=");
  bool by_number = !strcmp(plan->rdzv_backend, "static");
  plan->join_ms = 600000;
  PX_CHECK(!*plan->rdzv_conf || (conf == plan->rdzv_conf && !strchr(conf, ',')), PX_UNIMPLEMENTED,
           "torchrun's --rdzv-conf %s is not implemented in Phlox, except join_timeout alone",
           plan->rdzv_conf);
  if (conf) PX_TRY(milliseconds(&plan->join_ms, conf + 13, "rdzv-conf"));
  PX_CHECK(by_number || !strcmp(plan->rdzv_backend, "c10d"), PX_UNIMPLEMENTED,
           "torchrun's --rdzv-backend %s is not implemented in Phlox: expected static or c10d",
           plan->rdzv_backend);
  if (*plan->standalone) {
    plan->nodes = 1, plan->node = 0;
    return endpoint(plan, "127.0.0.1", 0);
  }
  plan->node = -1;
  if (by_number) PX_TRY(number(&plan->node, plan->node_rank, "node-rank", 0, plan->nodes - 1));
  if (*plan->rdzv_endpoint) return endpoint(plan, plan->rdzv_endpoint, by_number ? 29500 : 29400);
  if (!by_number) return endpoint(plan, "localhost", 29400);
  PX_TRY(endpoint(plan, plan->master_addr, plan->nodes > 1 ? 29500 : 0));
  return *plan->master_port ? number(&plan->port, plan->master_port, "master-port", 0, 65535)
                            : PX_OK;
}

static px_status signals(px__launch_plan *plan) {
  for (const char *at = plan->signals_to_handle; *at;) {
    size_t length = strcspn(at, ",");
    int signal = px__signal_number(at, length);
    PX_CHECK(signal && plan->signal_count < PX__SIGNALS, PX_VALUE,
             "argument --signals-to-handle: '%.*s' is not a signal that can be handled",
             (int)length, at);
    plan->signals[plan->signal_count++] = signal;
    at += length + (at[length] == ',');
  }
  return PX_OK;
}

int px__launch_streams(const char *text, int local_rank) {
  if (!strchr(text, ':')) return atoi(text) & 3;
  for (const char *at = text; at; at = strchr(at, ',')) {
    at += *at == ',';
    const char *colon = strchr(at, ':');
    if (colon && atoi(at) == local_rank) return atoi(colon + 1) & 3;
  }
  return 0;
}

static px_status streams(const char *text, const char *name) {
  const char *at = text;
  bool map = strchr(text, ':') != NULL, fine;
  do {
    at += at != text;  // the comma
    size_t digits = strspn(at, "0123456789");
    if (map && digits && at[digits] == ':')
      at += digits + 1, digits = strspn(at, "0123456789");
    else if (map)
      digits = 0;
    fine = digits == 1 && *at <= '3' && (at[1] == 0 || (map && at[1] == ','));
    at++;
  } while (fine && *at);
  PX_CHECK(fine, PX_VALUE, "argument --%s: expected 0, 1, 2, 3, or RANK:NUMBER,..., got '%s'", name,
           text);
  return PX_OK;
}

bool px__launch_shown(const px__launch_plan *plan, int local_rank) {
  const char *at = plan->local_ranks_filter;
  if (!*at) return true;
  for (; at; at = strchr(at, ',')) {
    at += *at == ',';
    if (atoi(at) == local_rank) return true;
  }
  return false;
}

px_status px__launch_parse(px__launch_plan *out, const px_job_options *given) {
  px__launch_plan plan = {.given = given};
  PX_TRY(defaults(&plan));
  PX_TRY(read_arguments(&plan));
  PX_CHECK(plan.program_count > 0, PX_VALUE,
           "the following arguments are required: training_script, training_script_args");
  PX_CHECK(!*plan.no_python || !*plan.module, PX_VALUE,
           "Don't use both the '--no-python' flag and the '--module' flag at the same time.");
  PX_CHECK(!strcmp(plan.start_method, "spawn"), PX_UNIMPLEMENTED,
           "torchrun's --start-method %s is not implemented in Phlox: ranks are separate programs",
           plan.start_method);
  PX_CHECK(!strcmp(plan.event_log_handler, "null"), PX_UNIMPLEMENTED,
           "torchrun's --event-log-handler %s is not implemented in Phlox", plan.event_log_handler);
  PX_CHECK(!plan.local_ranks_filter[strspn(plan.local_ranks_filter, "0123456789,")], PX_VALUE,
           "--local_ranks_filter must be a comma-separated list of integers e.g. "
           "--local_ranks_filter=0,1,2");
  PX_TRY(node_count(&plan));
  PX_TRY(local_size(&plan));
  PX_TRY(rendezvous(&plan));
  PX_TRY(number(&plan.restarts, plan.max_restarts, "max-restarts", 0, 1000000));
  PX_TRY(milliseconds(&plan.interval_ms, plan.monitor_interval, "monitor-interval"));
  PX_TRY(milliseconds(&plan.shutdown_ms, plan.shutdown_timeout, "shutdown-timeout"));
  PX_TRY(streams(plan.redirects, "redirects"));
  PX_TRY(streams(plan.tee, "tee"));
  PX_TRY(signals(&plan));
  *out = plan;
  return PX_OK;
}
