// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES for backends whose driver does not read it itself.
//
// The rules are the CUDA driver's: entries are numbers, parsed by their leading digits, or
// GPU-<prefix of a UUID>. The list ends at the first invalid entry; a duplicate is an error. Also
// used to count a driver's devices without starting it.
#include "device/open/open.h"

#include <errno.h>
#include <stdio.h>
#include <strings.h>

static const char *uuid_text(const unsigned char uuid[16], char text[48]) {
  int used = snprintf(text, 48, "GPU-");
  for (int i = 0; i < 16; i++)
    used += snprintf(text + used, (size_t)(48 - used), "%s%02x",
                     i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
  return text;
}

static bool is_named(const px_backend *backend, bool glance, int device, const char *at,
                     size_t length) {
  px_device_properties properties = {0};
  char text[48];
  if (glance) return backend->match_forksafe(device, at, length);
  return backend->properties(device, &properties) == PX_OK &&
         !strncasecmp(uuid_text(properties.uuid, text), at, length);
}

// Returns the one device with this UUID prefix; -1 if none or several match.
static int by_uuid(const char *at, size_t length, int present, const px_backend *backend,
                   bool glance) {
  int found = -1;
  for (int i = 0; i < present; i++) {
    if (!is_named(backend, glance, i, at, length)) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

static int by_number(const char *at, int present) {
  char *end;
  errno = 0;
  long value = strtol(at, &end, 10);
  return end == at || errno || value < 0 || value >= present ? -1 : (int)value;
}

int px__visible(const char *text, int present, const px_backend *backend, bool glance,
                int physical[PX__DEVICES]) {
  int count = 0;
  if (present > PX__DEVICES) present = PX__DEVICES;
  if (!text) {
    for (; count < present; count++) physical[count] = count;
    return count;
  }
  for (const char *at = text; at;) {
    at += strspn(at, " \t");
    size_t length = strcspn(at, ", \t");
    bool uuid = length >= 4 && (!strncmp(at, "GPU-", 4) || !strncmp(at, "MIG-", 4));
    int device = uuid ? by_uuid(at, length, present, backend, glance) : by_number(at, present);
    if (device < 0) break;
    for (int i = 0; i < count; i++)
      if (physical[i] == device) return -1;
    physical[count++] = device;
    at = strchr(at, ',');
    if (at) at++;
  }
  return count;
}
