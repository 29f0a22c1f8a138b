// SPDX-License-Identifier: Apache-2.0
// Zeroes the words of shared objects that the loader overwrites with the addends of relative
// relocations: deflatable FILE... The linker writes these addends into the data too, and a wheel
// without them is 3 % smaller.
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RELATIVE_X86_64 = 8, RELATIVE_AARCH64 = 1027 };

// Zeroes the word at an address; addresses without bytes in the file are left alone.
static void clear(char *image, const Elf64_Ehdr *head, Elf64_Addr address) {
  const Elf64_Phdr *segment = (const Elf64_Phdr *)(image + head->e_phoff);
  for (int i = 0; i < head->e_phnum; i++) {
    if (segment[i].p_type != PT_LOAD || address < segment[i].p_vaddr) continue;
    Elf64_Addr within = address - segment[i].p_vaddr;
    if (within + 8 <= segment[i].p_filesz) memset(image + segment[i].p_offset + within, 0, 8);
  }
}

static void clear_all(char *image) {
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + head->e_shoff);
  for (int s = 0; s < head->e_shnum; s++) {
    if (sections[s].sh_type != SHT_RELA) continue;
    const Elf64_Rela *entries = (const Elf64_Rela *)(image + sections[s].sh_offset);
    for (size_t i = 0; i < sections[s].sh_size / sizeof *entries; i++)
      if (entries[i].r_info == RELATIVE_X86_64 || entries[i].r_info == RELATIVE_AARCH64)
        clear(image, head, entries[i].r_offset);
  }
}

static int rewrite(const char *path) {
  FILE *file = fopen(path, "r+b");
  if (!file) return perror(path), 1;
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file);
  char *image = malloc(size);
  rewind(file);
  int failed = !image || fread(image, 1, size, file) != size || size < sizeof(Elf64_Ehdr) ||
               memcmp(image, ELFMAG "\2\1", 6) != 0;  // 64 bits, little endian
  if (!failed) {
    clear_all(image);
    rewind(file);
    failed = fwrite(image, 1, size, file) != size;
  }
  failed |= fclose(file) != 0;
  free(image);
  if (failed) fprintf(stderr, "deflatable: %s: no 64-bit library, or not writable\n", path);
  return failed;
}

int main(int count, char **arguments) {
  int failed = 0;
  for (int i = 1; i < count; i++) failed |= rewrite(arguments[i]);
  return failed;
}
