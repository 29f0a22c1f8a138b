// SPDX-License-Identifier: Apache-2.0
// Writes a C file that embeds files and a table of them, px__cuda_TABLE: bin2c OUTPUT TABLE
// NAME=FILE... Entries are sorted by name, and a zero byte follows each file. The assembler
// includes the bytes (.incbin), so large files cost no compile time; paths are relative to the
// compiler's working directory.
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

static int describe(entry *out, const char *argument) {
  size_t length = strcspn(argument, "=");
  if (length == 0 || length >= sizeof out->name || !argument[length]) {
    fprintf(stderr, "bin2c: %s is not NAME=FILE\n", argument);
    return 0;
  }
  memcpy(out->name, argument, length);
  out->name[length] = 0;
  out->path = argument + length + 1;
  return 1;
}

static void write_entries(FILE *to, const char *table, const entry *entries, int count) {
  fputs("// Written by tools/bin2c.c.\n#include \"cuda/host/driver/cuda.h\"\n", to);
  for (int i = 0; i < count; i++) {
    fprintf(to,
            "__asm__(\".pushsection .rodata\\n.balign 64\\n.hidden px__%s_%d\\n\"\n"
            "        \".globl px__%s_%d\\npx__%s_%d:\\n.incbin \\\"%s\\\"\\n.byte 0\\n"
            ".popsection\\n\");\n",
            table, i, table, i, table, i, entries[i].path);
    fprintf(to, "extern const unsigned char px__%s_%d[];\n", table, i);
  }
  fprintf(to, "const px__cuda_file px__cuda_%s[] = {\n", table);
  for (int i = 0; i < count; i++)
    fprintf(to, "    {\"%s\", px__%s_%d},\n", entries[i].name, table, i);
  fprintf(to, "};\nconst int px__cuda_%s_count = %d;\n", table, count);
}

int main(int argc, char **argv) {
  enum { OUTPUT = 1, TABLE, ENTRIES };
  int count = argc - ENTRIES;
  if (count < 1) {
    fputs("usage: bin2c OUTPUT TABLE NAME=FILE...\n", stderr);
    return 2;
  }
  entry *entries = calloc((size_t)count, sizeof *entries);
  FILE *to = entries ? fopen(argv[OUTPUT], "w") : NULL;
  if (!to) {
    perror(argv[OUTPUT]);
    return 1;
  }
  for (int i = 0; i < count; i++)
    if (!describe(&entries[i], argv[ENTRIES + i])) return 1;
  qsort(entries, (size_t)count, sizeof *entries, by_name);
  write_entries(to, argv[TABLE], entries, count);
  int bad = ferror(to);
  bad |= fclose(to);
  free(entries);
  return bad != 0;
}
