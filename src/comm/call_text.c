// SPDX-License-Identifier: Apache-2.0
// What a rank has called, in words.
#include <stdio.h>
#include <string.h>

#include "comm/comm_impl.h"

const char *const px__collective_names[PX_COLLECTIVE_COUNT] = {
#define XX(name, text) text,
    PX_COLLECTIVE_MAP(XX)
#undef XX
};
const char *const px__reduction_names[PX_REDUCE_COUNT] = {
#define XX(name) #name,
    PX_REDUCE_MAP(XX)
#undef XX
};

// A long path is known by its end.
static const char *tail(const char *path) {
  enum { MOST = 120 };
  size_t length = strlen(path);
  return length > MOST ? path + length - MOST : path;
}

void px__call_describe(char *text, size_t room, const px__call *call, bool with_line) {
  char whom[48] = "", line[PX__CALL / 2] = "";
  const char *to = call->rooted ? ", root" : call->op == PX_SEND ? " to rank" : " from rank";
  if (call->rooted || (px__pairs_up(call->op) && call->peer >= 0))
    snprintf(whom, sizeof whom, "%s %d", to, call->peer);
  if (with_line && call->site.file)
    snprintf(line, sizeof line, " (%s:%d)", tail(call->site.file), call->site.line);
  snprintf(text, room, "%s number %llu of %lld elements %s%s%s%s%s", px__collective_names[call->op],
           (unsigned long long)call->number, (long long)call->count, px_dtype_name(call->dtype),
           call->reduces ? ", " : "", call->reduces ? px__reduction_names[call->reduce] : "", whom,
           line);
}

void px__call_explain(char text[PX__FAILURE], const px__call *call, int rank, int64_t timeout_ms,
                      const char *why) {
  char what[PX__CALL];
  px__call_describe(what, sizeof what, call, false);
  snprintf(text, PX__FAILURE, "[Rank %d] %s (timeout %lld ms) failed: %s", rank, what,
           (long long)timeout_ms, why);
}
