// SPDX-License-Identifier: Apache-2.0
// Writes a C file that embeds binary files and a table of them: bin2c OUTPUT FILE... The name of an
// entry is the file name without folder and without the text after the first dot; entries are
// sorted by name. The assembler includes the bytes (.incbin), so large files cost no compile time;
// paths are relative to the compiler's working directory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
  char name[128];
  const char *path;
} entry;

static int by_name(const void *a, const void *b) {
  return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static int describe(entry *out, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  size_t length = strcspn(name, ".");
  if (length == 0 || length >= sizeof out->name) {
    fprintf(stderr, "bin2c: %s: no name of an entry\n", path);
    return 0;
  }
  memcpy(out->name, name, length);
  out->name[length] = 0;
  out->path = path;
  return 1;
}

static void write_entries(FILE *to, const entry *entries, int count) {
  fputs("// Written by tools/bin2c.c.\n#include \"cuda/host/driver/cuda.h\"\n", to);
  for (int i = 0; i < count; i++) {
    fprintf(
        to,
        "__asm__(\".pushsection .rodata\\n.balign 64\\n.hidden px__image_%s\\n\"\n"
        "        \".globl px__image_%s\\npx__image_%s:\\n.incbin \\\"%s\\\"\\n.popsection\\n\");\n",
        entries[i].name, entries[i].name, entries[i].name, entries[i].path);
    fprintf(to, "extern const unsigned char px__image_%s[];\n", entries[i].name);
  }
  fputs("const px__cuda_module px__cuda_modules[] = {\n", to);
  for (int i = 0; i < count; i++)
    fprintf(to, "    {\"%s\", px__image_%s},\n", entries[i].name, entries[i].name);
  fprintf(to, "};\nconst int px__cuda_module_count = %d;\n", count);
}

int main(int argc, char **argv) {
  int count = argc - 2;
  if (count < 1) {
    fputs("usage: bin2c OUTPUT FILE...\n", stderr);
    return 2;
  }
  entry *entries = calloc((size_t)count, sizeof *entries);
  FILE *to = entries ? fopen(argv[1], "w") : NULL;
  if (!to) {
    perror(argv[1]);
    return 1;
  }
  for (int i = 0; i < count; i++)
    if (!describe(&entries[i], argv[2 + i])) return 1;
  qsort(entries, (size_t)count, sizeof *entries, by_name);
  write_entries(to, entries, count);
  int bad = ferror(to);
  bad |= fclose(to);
  free(entries);
  return bad != 0;
}
