// SPDX-License-Identifier: Apache-2.0
// Pictures of profiles, as SVG: a lane for each host thread and each stream, with allocated memory
// over time below.
//
// Spans narrower than half a pixel are merged with neighbours of the same colour, so the number of
// lanes bounds the picture's size. Spans are sorted by start.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/profile/report_impl.h"

enum { WIDTH = 1100, LEFT = 120, TOP = 60, LANE = 34, BAR = 20, CURVE = 90 };

static const struct {
  const char *name, *color;
} classes[PX__SPAN_CLASSES] = {[PX_PROFILE_KERNEL] = {"kernels", "#4269d0"},
                               [PX_PROFILE_COPY] = {"copies", "#efb118"},
                               [PX_PROFILE_COLLECTIVE] = {"collectives", "#3ca951"},
                               [PX_PROFILE_OTHER] = {"other work", "#9c6b4e"},
                               [PX__SPAN_HOST] = {"the host", "#97bbf5"},
                               [PX__SPAN_PART] = {"parts", "#dddddd"}};

typedef struct lane {
  int device;
  int64_t number;  // the stream or thread
} lane;

typedef struct canvas {
  px__text *to;
  const px_profile *profile;
  px__spans spans;
  px__levels levels;
  lane *lanes;
  int count;
  double scale;  // pixels per nanosecond
} canvas;

// The bar being drawn: merged units of one lane, class and chain.
typedef struct bar {
  const px__span *first;
  double x, end;
  int64_t units, took;
} bar;

// ---- texts

// Formats a time in the largest fitting unit.
static const char *time_text(char text[32], double nanoseconds) {
  static const struct {
    double size;
    const char *name;
  } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {0, "ns"}};
  int i = 0;
  while (nanoseconds < units[i].size) i++;
  snprintf(text, 32, "%.4g %s", units[i].size > 0 ? nanoseconds / units[i].size : nanoseconds,
           units[i].name);
  return text;
}

// ---- lanes

static int by_lane(const void *a, const void *b) {
  const lane *x = a, *y = b;
  if (x->device != y->device) return x->device - y->device;
  return (x->number > y->number) - (x->number < y->number);
}

static px_status find_lanes(canvas *c) {
  PX_TRY(px__alloc((void **)&c->lanes, (size_t)(c->spans.count + 1) * sizeof *c->lanes));
  for (int64_t i = 0; i < c->spans.count; i++)
    c->lanes[i] = (lane){c->spans.rows[i].device, c->spans.rows[i].lane};
  qsort(c->lanes, (size_t)c->spans.count, sizeof *c->lanes, by_lane);
  for (int64_t i = 0; i < c->spans.count; i++)
    if (!c->count || by_lane(&c->lanes[c->count - 1], &c->lanes[i]))
      c->lanes[c->count++] = c->lanes[i];
  return PX_OK;
}

static double x_of(const canvas *c, int64_t time) {
  return LEFT + (double)(time - c->spans.start) * c->scale;
}

// Draws a bar. A part is a band behind the bars of its lane.
static void put_bar(const canvas *c, const bar *b, int top) {
  if (!b->first) return;
  px_profile_event e;
  char text[32];
  bool part = b->first->class == PX__SPAN_PART, more = b->units > 1;
  double width = b->end - b->x < 0.5 ? 0.5 : b->end - b->x;
  px_profile_event_at(c->profile, b->first->number, &e);
  px__text_add(c->to, "<rect x='%.2f' y='%d' width='%.2f' height='%d' fill='%s'%s><title>", b->x,
               part ? top - 4 : top, width, part ? BAR + 8 : BAR, classes[b->first->class].color,
               b->first->critical ? " stroke='#d62728'" : "");
  if (more) px__text_add(c->to, "%lld units from ", (long long)b->units);
  px__xml_add(c->to, e.name);
  px__text_add(c->to, ", %s</title></rect>\n", time_text(text, (double)b->took));
  if (!part || width < 8.0 * (double)strlen(e.name)) return;
  px__text_add(c->to, "<text x='%.2f' y='%d' fill='#888' font-size='9'>", b->x + 2, top - 6);
  px__xml_add(c->to, e.name);
  px__text_add(c->to, "</text>\n");
}

static bool joins(const canvas *c, const bar *b, const px__span *s) {
  return b->first && b->first->class == s->class && b->first->critical == s->critical &&
         b->end - b->x < 0.5 && x_of(c, s->start) - b->end < 0.25;
}

static void put_class(const canvas *c, const lane *l, int top, int class) {
  bar b = {0};
  for (int64_t i = 0; i < c->spans.count; i++) {
    const px__span *s = &c->spans.rows[i];
    if (s->device != l->device || s->lane != l->number || s->class != class) continue;
    if (!joins(c, &b, s)) {
      put_bar(c, &b, top);
      b = (bar){.first = s, .x = x_of(c, s->start)};
    }
    b.end = x_of(c, s->end);
    b.units++;
    b.took += s->end - s->start;
  }
  put_bar(c, &b, top);
}

static void put_lane(const canvas *c, int row) {
  const lane *l = &c->lanes[row];
  int top = TOP + row * LANE;
  px__text_add(c->to, "<path d='M%d %dh%d' stroke='#eee'/>\n", LEFT, top + BAR / 2, WIDTH);
  px__text_add(c->to, "<text x='%d' y='%d' text-anchor='end'>", LEFT - 8, top + BAR - 5);
  if (l->device < 0)
    px__text_add(c->to, "thread %lld</text>\n", (long long)l->number);
  else
    px__text_add(c->to, "cuda:%d stream %lld</text>\n", l->device, (long long)l->number);
  put_class(c, l, top, PX__SPAN_PART);
  for (int class = 0; class < PX__SPAN_CLASSES; class ++)
    if (class != PX__SPAN_PART) put_class(c, l, top, class);
}

// ---- legend and axes

static void put_legend(const canvas *c) {
  char text[32];
  int x = LEFT;
  px__text_add(c->to, "<text x='%d' y='16' font-weight='bold'>%s from first to last</text>\n", LEFT,
               time_text(text, (double)(c->spans.end - c->spans.start)));
  for (int class = 0; class < PX__SPAN_CLASSES; class ++, x += 110)
    px__text_add(
        c->to,
        "<rect x='%d' y='26' width='10' height='10' fill='%s'/><text x='%d' y='35'>%s</text>\n", x,
        classes[class].color, x + 14, classes[class].name);
  px__text_add(c->to,
               "<rect x='%d' y='26' width='10' height='10' stroke='#d62728'/><text x='%d' "
               "y='35'>critical path</text>\n",
               x, x + 14);
}

static void put_ticks(const canvas *c, int bottom) {
  char text[32];
  for (int i = 0; i <= 8; i++) {
    int x = LEFT + i * WIDTH / 8;
    px__text_add(c->to, "<path d='M%d %dv%d' stroke='#eee'/>\n", x, TOP - 12, bottom - TOP + 12);
    px__text_add(c->to, "<text x='%d' y='%d' text-anchor='middle'>%s</text>\n", x, bottom + 14,
                 time_text(text, (double)(c->spans.end - c->spans.start) * i / 8));
  }
}

// Draws steps, at most one per pixel: its maximum.
static void put_levels(const canvas *c, int top) {
  double peak = c->levels.peak > 0 ? (double)c->levels.peak : 1;
  px__text_add(c->to, "<path fill='none' stroke='#a463f2' d='M%d %d", LEFT, top + CURVE);
  for (int64_t i = 0; i < c->levels.count;) {
    int x = (int)x_of(c, c->levels.rows[i].time);
    int64_t highest = INT64_MIN;
    for (; i < c->levels.count && (int)x_of(c, c->levels.rows[i].time) == x; i++)
      if (c->levels.rows[i].bytes > highest) highest = c->levels.rows[i].bytes;
    double level = highest > 0 ? (double)highest / peak : 0;
    px__text_add(c->to, "H%dV%.1f", x, top + CURVE - CURVE * level);
  }
  px__text_add(c->to, "H%d'/>\n<text x='%d' y='%d' text-anchor='end'>%.4g MiB</text>\n",
               LEFT + WIDTH, LEFT - 8, top + 8, (double)c->levels.peak / (1 << 20));
  px__text_add(c->to, "<text x='%d' y='%d' text-anchor='end'>device memory</text>\n", LEFT - 8,
               top + CURVE);
}

static void put_all(const canvas *c) {
  int bottom = TOP + c->count * LANE, curve = bottom + 30;
  int height = c->levels.count ? curve + CURVE + 20 : bottom + 30;
  px__text_add(c->to,
               "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
               "font-family='sans-serif' font-size='11' fill='none'>\n"
               "<style>text { fill: #333 }</style>\n"
               "<rect width='%d' height='%d' fill='white'/>\n",
               LEFT + WIDTH + 40, height, LEFT + WIDTH + 40, height);
  put_legend(c);
  put_ticks(c, bottom);
  for (int row = 0; row < c->count; row++) put_lane(c, row);
  if (c->levels.count) put_levels(c, curve);
  px__text_add(c->to, "</svg>\n");
}

static px_status write(canvas *c, const char *path) {
  PX_CHECK(c->spans.count, PX_RUNTIME, "the profile is empty: there is nothing to draw");
  int64_t span = c->spans.end - c->spans.start;
  c->scale = span > 0 ? (double)WIDTH / (double)span : 0;
  px__text text = {0};
  c->to = &text;
  put_all(c);
  px_status status = px__picture_write(&text, path);
  px__free(text.at);
  return status;
}

px_status px_profile_draw(const px_profile *profile, const char *path) {
  canvas c = {.profile = profile};
  PX_GIVEN(profile);
  PX_GIVEN(path);
  PX_TRY(px__spans_of(&c.spans, profile));
  px_status status = px__levels_of(&c.levels, profile);
  if (status == PX_OK) status = find_lanes(&c);
  if (status == PX_OK) status = write(&c, path);
  px__free(c.spans.rows);
  px__free(c.levels.rows);
  px__free(c.lanes);
  return status;
}
