// SPDX-License-Identifier: Apache-2.0
// Descriptions of calls for error texts.
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

// Returns the last MAX_PATH_TAIL bytes of a long path.
static const char *tail(const char *path) {
  enum { MAX_PATH_TAIL = 120 };
  size_t length = strlen(path);
  return length > MAX_PATH_TAIL ? path + length - MAX_PATH_TAIL : path;
}

void px__call_describe(char *text, size_t size, const px__call *call, bool with_line) {
  char peer[48] = "", line[PX__CALL / 2] = "";
  const char *to = call->rooted ? ", root" : call->op == PX_SEND ? " to rank" : " from rank";
  if (call->rooted || (px__is_p2p(call->op) && call->peer >= 0))
    snprintf(peer, sizeof peer, "%s %d", to, call->peer);
  if (with_line && call->site.file)
    snprintf(line, sizeof line, " (%s:%d)", tail(call->site.file), call->site.line);
  snprintf(text, size, "%s number %llu of %lld elements %s%s%s%s%s", px__collective_names[call->op],
           (unsigned long long)call->number, (long long)call->count, px_dtype_name(call->dtype),
           call->reduces ? ", " : "", call->reduces ? px__reduction_names[call->reduce] : "", peer,
           line);
}

void px__call_explain(char text[PX__FAILURE], const px__call *call, int rank, int64_t timeout_ms,
                      const char *why) {
  char description[PX__CALL];
  px__call_describe(description, sizeof description, call, false);
  snprintf(text, PX__FAILURE, "[Rank %d] %s (timeout %lld ms) failed: %s", rank, description,
           (long long)timeout_ms, why);
}
