// SPDX-License-Identifier: Apache-2.0
// Pictures of memory, as SVG: per device the live memory by owner, and the reserved memory.
//
// All figures are integers until drawn, so the same history gives the same text.
#include <stdio.h>
#include <string.h>

#include "device/profile/memory_history.h"
#include "device/profile/report_impl.h"
#include "device/cache/cache.h"

enum { HEIGHT = 260, LEFT = 80, TOP = 40, LEGEND = 330, ROW = 18, BYTES = 32 };
enum { WIDTH = LEFT + PX__COLUMNS + LEGEND, KEYS = LEFT + PX__COLUMNS + 16 };

static const char *const colors[] = {
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5",
    "#9c6b4e", "#7f7f7f", "#1f77b4", "#bcbd22", "#17becf", "#d62728", "#8c564b", "#e377c2"};

typedef struct drawing {
  px__text *to;
  const px_memory_trace *past;
  px__usage_history read;
  double scale;                                    // pixels per byte
  int64_t below[PX__COLUMNS], above[PX__COLUMNS];  // edges of the current band, in bytes
} drawing;

// ---- texts
static const char *bytes_text(char text[BYTES], double count) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
  int unit = 0;
  for (; count >= 1024 && unit < 3; unit++) count /= 1024;
  snprintf(text, BYTES, "%.4g %s", count, units[unit]);
  return text;
}

// Adds the time of a column's first event; past the last column, of the last event.
static void add_time(const drawing *d, int column) {
  const px_memory_trace *p = d->past;
  int64_t event = column * p->event_count / PX__COLUMNS;
  if (event == p->event_count) event--;
  double us = (double)p->events[event].time - (double)p->events[0].time;
  px__text_add(d->to, "event %lld, %.4g ms", (long long)event, us / 1000);
}

// ---- curves
// Computes the corners of a step curve, at most 2 * PX__COLUMNS + 1. Returns their number.
typedef struct corner {
  int x;
  double y;
} corner;
static int find_corners(corner *out, const int64_t *values, double scale) {
  int count = 0, last = PX__COLUMNS - 1;
  for (int i = 0; i <= last; i++) {
    if (i > 0 && i < last && values[i] == values[i - 1]) continue;
    for (int at = i ? i - 1 : 0, n = 0; n < 2; n++, at = i)
      out[count++] = (corner){LEFT + i, TOP + HEIGHT - (double)values[at] * scale};
  }
  out[count++] = (corner){LEFT + PX__COLUMNS, TOP + HEIGHT - (double)values[last] * scale};
  return count;
}

// Adds an edge from left to right, or back.
static void add_edge(const drawing *d, const int64_t *values, bool back) {
  corner *corners;
  if (px__alloc((void **)&corners, (2 * PX__COLUMNS + 1) * sizeof *corners) != PX_OK) {
    d->to->failed = true;
    return;
  }
  int count = find_corners(corners, values, d->scale);
  for (int i = 0; i < count; i++) {
    const corner *c = &corners[back ? count - 1 - i : i];
    px__text_add(d->to, "%s%d %.1f", i || back ? " " : "", c->x, c->y);
  }
  px__free(corners);
}

static void add_grid(const drawing *d) {
  char text[BYTES];
  for (int tick = 0; tick < 5; tick++) {
    double y = TOP + HEIGHT - tick * HEIGHT / 4.0;
    px__text_add(d->to, "<path d='M%d %.1fh%d' stroke='#ddd'/>\n", LEFT, y, PX__COLUMNS);
    px__text_add(d->to, "<text x='%d' y='%.1f' text-anchor='end'>%s</text>\n", LEFT - 6, y + 4,
                 bytes_text(text, tick * HEIGHT / 4.0 / d->scale));
    px__text_add(d->to, "<text x='%.1f' y='%d' text-anchor='middle'>",
                 LEFT + tick * PX__COLUMNS / 4.0, TOP + HEIGHT + 18);
    add_time(d, tick * (PX__COLUMNS / 4));
    px__text_add(d->to, "</text>\n");
  }
}

static void add_key(const drawing *d, int row, int64_t bytes, const char *owner) {
  char text[BYTES];
  px__text_add(d->to, "<text x='%d' y='%d'>%s  ", KEYS + 18, TOP + 11 + ROW * row,
               bytes_text(text, (double)bytes));
  px__xml_add(d->to, owner);
  px__text_add(d->to, "</text>\n");
}

// Draws a band on top of those before it: between `below` and `above`.
static void add_part(drawing *d, int row, const char *owner) {
  const char *color = colors[row % PX_COUNT_OF(colors)];
  px__text_add(d->to, "<path d='M");
  add_edge(d, d->above, false);
  add_edge(d, d->below, true);
  px__text_add(d->to, "Z' fill='%s' stroke='none'><title>", color);
  px__xml_add(d->to, owner);
  px__text_add(d->to, "</title></path>\n");
  px__text_add(d->to, "<rect x='%d' y='%d' width='12' height='12' fill='%s' stroke='none'/>\n",
               KEYS, TOP + ROW * row, color);
  add_key(d, row, d->above[d->read.peak] - d->below[d->read.peak], owner);
  memcpy(d->below, d->above, sizeof d->below);
}

static void add_held(drawing *d, const int64_t *held) {
  for (int i = 0; i < PX__COLUMNS; i++) d->above[i] += held[i];
}

static void add_reserved(drawing *d, int row) {
  for (int i = 0; i < PX__COLUMNS; i++) d->above[i] = d->read.columns[i].reserved;
  px__text_add(d->to, "<path d='M");
  add_edge(d, d->above, false);
  px__text_add(d->to, "' stroke-dasharray='4 3'/>\n");
  px__text_add(d->to, "<path d='M%d %dh12' stroke-dasharray='4 3'/>\n", KEYS, TOP + ROW * row + 6);
  add_key(d, row, d->above[d->read.peak], "reserved");
}

// Returns the height.
static int add_device(drawing *d, int owners) {
  char text[BYTES];
  int others = d->read.count > owners ? d->read.count - owners : 0, shown = d->read.count - others;
  d->scale = (double)HEIGHT / (double)(d->read.max > 1 ? d->read.max : 1);
  px__text_add(d->to, "<text x='%d' y='20' font-weight='bold'>cuda:%d: %s live at most, at ", LEFT,
               d->past->device, bytes_text(text, (double)d->read.columns[d->read.peak].total));
  add_time(d, d->read.peak);
  px__text_add(d->to, ", and then by op and line</text>\n");
  add_grid(d);
  for (int n = 0; n < shown; n++) {
    add_held(d, d->read.held[n]);
    add_part(d, n, d->read.owners[n]);
  }
  for (int n = shown; n < d->read.count; n++) add_held(d, d->read.held[n]);
  snprintf(text, sizeof text, "others (%d)", others);
  if (others) add_part(d, shown++, text);
  add_reserved(d, shown);
  int min_height = TOP + HEIGHT + 40, legend_height = TOP + ROW * (shown + 2);
  return legend_height > min_height ? legend_height : min_height;
}

static bool has_blocks(const px_memory_trace *past) {
  for (int64_t i = 0; i < past->event_count; i++)
    if (past->events[i].action == PX_MEMORY_ALLOC ||
        past->events[i].action == PX_MEMORY_FREE_REQUESTED)
      return true;
  return false;
}

static px_status add_devices(px__text *body, int *top, const px_memory_trace *devices, int count,
                             int owners) {
  for (int i = 0; i < count; i++) {
    drawing *d;
    if (!has_blocks(&devices[i])) continue;
    PX_TRY(px__alloc((void **)&d, sizeof *d));
    d->to = body, d->past = &devices[i];
    px_status status = px__usage_history_read(&d->read, d->past);
    if (status == PX_OK) {
      px__text_add(body, "<g transform='translate(0 %d)'>\n", *top);
      *top += add_device(d, owners);
      px__text_add(body, "</g>\n");
    }
    px__usage_history_drop(&d->read);
    px__free(d);
    PX_TRY(status);
  }
  return PX_OK;
}

static void add_all(px__text *to, const px__text *body, int height) {
  px__text_add(to,
               "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
               "font-family='sans-serif' font-size='12' fill='none' stroke='#333'>\n"
               "<style>text { fill: #333; stroke: none }</style>\n"
               "<rect width='%d' height='%d' fill='white' stroke='none'/>\n%s</svg>\n",
               WIDTH, height, WIDTH, height, body->at ? body->at : "");
}

px_status px_memory_picture(char **out, const px_memory_trace *devices, int count, int owners) {
  px__text body = {0}, all = {0};
  int height = 0;
  PX_GIVEN(out);
  PX_CHECK(owners >= 0, PX_VALUE, "owners must not be negative, but it is %d", owners);
  PX_GIVEN_N(devices, count);
  px_status status = add_devices(&body, &height, devices, count, owners);
  if (status == PX_OK && height) add_all(&all, &body, height);
  px__free(body.at);
  if (status == PX_OK && (body.failed || all.failed)) status = PX_NOMEM;
  if (status != PX_OK) return px__free(all.at), status;
  PX_CHECK(height, PX_VALUE,
           "expected a snapshot with events, got none: call _record_memory_history() first");
  *out = all.at;
  return PX_OK;
}

// ---- pictures of this process
static void drop(px_memory_trace *devices, int count) {
  for (int i = 0; i < count; i++) {
    px__free((void *)devices[i].blocks);
    px__free((void *)devices[i].events);
  }
  px__free(devices);
}

static px_status draw(px_memory_trace *devices, int count, int owners, const char *path) {
  char *text = NULL;
  for (int i = 0; i < count; i++) {
    devices[i].device = i;
    PX_TRY(px__memory_events((px_memory_event **)&devices[i].events, &devices[i].event_count, i));
    PX_TRY(px__memory_blocks((px_memory_block **)&devices[i].blocks, &devices[i].block_count, i));
  }
  PX_TRY(px_memory_picture(&text, devices, count, owners));
  px_status status = px__picture_write(&(px__text){.at = text, .length = strlen(text)}, path);
  px__free(text);
  return status;
}

px_status px_memory_draw(const char *path, int owners) {
  px_memory_trace *devices = NULL;
  PX_GIVEN(path);
  int count = px__device_alive() ? px__rt.count : 0;
  PX_TRY(px__alloc((void **)&devices, (size_t)(count + 1) * sizeof *devices));
  px_status status = draw(devices, count, owners, path);
  drop(devices, count);
  return status;
}
