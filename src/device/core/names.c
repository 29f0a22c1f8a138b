// SPDX-License-Identifier: Apache-2.0
// Devices as text: "cpu", "cuda", "cuda:1".
//
// PyTorch's grammar and texts, except that blanks around the index are allowed, and an index out of
// range is an error.
#include "device/core/state.h"

#include <ctype.h>
#include <stdio.h>

enum { MAX_INDEX = 127 };
static const char *const type_names[] = {"cpu", "cuda", "meta"};
// PyTorch's types not supported by Phlox; and meta, at its position in the text.
#define OTHER_TYPES \
  "ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, vulkan, mps, meta, " \
  "hpu, mtia, privateuseone"

const char *px_device_type_name(int type) {
  return type >= 0 && type < PX_DEVICE_TYPES ? type_names[type] : "?";
}

const char *px_device_format(px_device device, char text[PX_DEVICE_TEXT]) {
  const char *name = px_device_type_name(device.type);
  if (device.index < 0)
    snprintf(text, PX_DEVICE_TEXT, "%s", name);
  else
    snprintf(text, PX_DEVICE_TEXT, "%s:%d", name, device.index);
  return text;
}

static bool is_other_type(const char *name, size_t length) {
  for (const char *at = OTHER_TYPES; at; at = strchr(at, ',')) {
    at += strspn(at, ", ");
    if (strcspn(at, ",") == length && !strncmp(at, name, length)) return true;
  }
  return false;
}

static px_status parse_type(int16_t *out, const char *text, size_t length) {
  for (int i = 0; i < PX_DEVICE_TYPES; i++)
    if (strlen(type_names[i]) == length && !strncmp(type_names[i], text, length))
      return *out = (int16_t)i, PX_OK;
  PX_CHECK(!is_other_type(text, length), PX_UNIMPLEMENTED, "Phlox has no device type '%.*s'",
           (int)length, text);
  PX_FAIL(PX_RUNTIME,
          "Expected one of cpu, cuda, " OTHER_TYPES " device type at start of device string: %.*s",
          (int)length, text);
}

// Parses ":index" up to the end of the text; -1 if malformed. One blank may precede the index.
static int64_t parse_index(const char *at) {
  at++;
  if (*at == ' ') at++;
  const char *digits = at;
  int64_t value = 0;
  for (; isdigit((unsigned char)*at); at++)
    if (value < INT32_MAX) value = value * 10 + (*at - '0');
  bool padded = *digits == '0' && at > digits + 1;
  return at == digits || padded || *at ? -1 : value;
}

px_status px_device_parse(px_device *out, const char *text) {
  PX_GIVEN(out);
  PX_GIVEN(text);
  PX_CHECK(*text, PX_RUNTIME, "Device string must not be empty");
  size_t length = 0;
  while (isalpha((unsigned char)text[length]) || text[length] == '_') length++;
  const char *rest = text + length;
  int64_t index = *rest == ':' ? parse_index(rest) : -1;
  bool well_formed = length > 0 && (!*rest || index >= 0);
  PX_CHECK(well_formed, PX_RUNTIME, "Invalid device string: '%s'", text);
  px_device device = {.index = -1};
  PX_TRY(parse_type(&device.type, text, length));
  PX_CHECK(index <= MAX_INDEX, PX_RUNTIME, "Device index must be between 0 and %d, but got '%s'",
           MAX_INDEX, text);
  device.index = (int16_t)index;
  *out = device;
  return PX_OK;
}
