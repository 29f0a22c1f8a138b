// SPDX-License-Identifier: Apache-2.0
// Shared by pictures: texts in XML, and files.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/profile/report_impl.h"

void px__xml_add(px__text *to, const char *text) {
  static const struct {
    char character;
    const char *entity;
  } entities[] = {{'<', "&lt;"},   {'>', "&gt;"},  {'&', "&amp;"},  {'"', "&quot;"},
                  {'\'', "&#39;"}, {'\t', "&#9;"}, {'\n', "&#10;"}, {'\r', "&#13;"}};
  while (*text) {
    int i = 0, length = px__utf8_length(text);
    while (i < (int)PX_COUNT_OF(entities) && entities[i].character != *text) i++;
    bool noncharacter =
        length == 3 && (!memcmp(text, "\xef\xbf\xbe", 3) || !memcmp(text, "\xef\xbf\xbf", 3));
    if (i < (int)PX_COUNT_OF(entities))
      px__text_add(to, "%s", entities[i].entity);
    else if ((unsigned char)*text < 32)
      px__text_add(to, "\xe2\x90%c", 0x80 + *text);
    else if (!length || noncharacter)
      px__text_add(to, "\\x%02x", (unsigned char)*text);
    else
      px__text_add(to, "%.*s", length, text);
    text += length && !noncharacter ? length : 1;
  }
}

static px_status write(FILE *file, const px__text *text, const char *path) {
  bool bad = fwrite(text->at, 1, text->length, file) != text->length;
  bad |= fclose(file) != 0;
  PX_CHECK(!bad, PX_IO, "%s: %s", path, strerror(errno));
  return PX_OK;
}

px_status px__picture_write(const px__text *text, const char *path) {
  PX_CHECK(!text->failed, PX_NOMEM, "out of memory for the picture '%s'", path);
  PX_CHECK(!px__fault(PX__FAULT_FILE), PX_IO, "%s: could not be written (injected)", path);
  FILE *file = fopen(path, "w");
  PX_CHECK(file, PX_IO, "%s: %s", path, strerror(errno));
  return write(file, text, path);
}
