// SPDX-License-Identifier: Apache-2.0
// A folder for the files of a test, removed at its end.
#pragma once

static char folder[64];

static void folder_remove(void) {
  char command[96];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  if (system(command) != 0) fprintf(stderr, "could not remove %s\n", folder);
}

// Returns the path of a file in it. The last 16 paths stay valid.
static const char *path_of(const char *name) {
  static char paths[16][128];
  static int next;
  char *path = paths[next++ % 16];
  if (!folder[0]) {
    strcpy(folder, "/tmp/phlox-files-XXXXXX");
    CHECK(mkdtemp(folder));
    atexit(folder_remove);
  }
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}
