// SPDX-License-Identifier: Apache-2.0
// JSON of files, which may come from anywhere: the parser's tree is freed by recursion, so a text
// that nests too deeply is refused before.
#include <stdio.h>
#include <yajl/yajl_tree.h>

#include "io/io_impl.h"

static bool is_shallow(const char *text, int limit) {
  int depth = 0;
  bool quoted = false;
  for (; *text && depth <= limit; text++) {
    if (*text == '"')
      quoted = !quoted;
    else if (quoted)
      text += *text == '\\' && text[1];
    else
      depth += (*text == '{' || *text == '[') - (*text == '}' || *text == ']');
  }
  return depth <= limit;
}

yajl_val px__json_parse(const char *text, int limit, char *wrong, size_t room) {
  if (is_shallow(text, limit)) return yajl_tree_parse(text, wrong, room);
  snprintf(wrong, room, "it is nested too deeply");
  return NULL;
}
