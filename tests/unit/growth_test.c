// SPDX-License-Identifier: Apache-2.0
// Containers of many elements: the work of a step does not depend on their number. This file's
// strcmp and memmove, used by the library's objects, count comparisons and moved bytes.
#include "autograd/engine/graph.h"
#include "nn/module/nn_impl.h"
#include "phlox/phlox.h"
#include "test.h"

static int64_t work;

int strcmp(const char *a, const char *b) {
  work++;
  for (; *a && *a == *b; a++) b++;
  return (int)(unsigned char)*a - (int)(unsigned char)*b;
}
void *memmove(void *to, const void *from, size_t bytes) {
  volatile char *out = to;  // or the compiler replaces the loops by a call of memmove
  const char *in = from;
  work += (int64_t)bytes;
  for (size_t i = 0; i < bytes && out < in; i++) out[i] = in[i];
  for (size_t i = bytes; i-- > 0 && out > in;) out[i] = in[i];
  return to;
}

// Fails unless ten times as many elements take at most eleven times as much work.
static void check_linear(void (*run)(int count)) {
  work = 0;
  run(1000);
  int64_t few = work;
  work = 0;
  run(10000);
  if (work > 11 * few + 1000)
    fprintf(stderr, "1,000 elements: %lld, 10,000: %lld\n", (long long)few, (long long)work);
  CHECK(work <= 11 * few + 1000);
}

static px_module *new_module(void) {
  static const px_module_kind bare = {.name = "Module"};
  px_module *made;
  OK(px_module_new(&made, &bare, NULL, NULL));
  return made;
}
static px_tensor *leaf(void) {
  px_tensor *made;
  OK(px_tensor_empty(&made, 0, NULL, PX_FLOAT32, px_cpu()));
  return made;
}
static const char *name_of(int i) {
  static char name[16];
  snprintf(name, sizeof name, "p%d", i);
  return name;
}

static px_module *with_buffers(int count) {
  px_module *self = new_module();
  PX_SCOPED(px_tensor) value = leaf();
  for (int i = 0; i < count; i++) OK(px_module_register_buffer(self, name_of(i), value, true));
  return self;
}

static void register_and_find(int count) {
  PX_SCOPED(px_module) self = with_buffers(count);
  px_module_entry entry;
  for (int i = 0; i < count; i++) {
    CHECK(px_module_entry_find(self, name_of(i), &entry) && *entry.name == 'p');
    CHECK(px_module_entry_at(self, PX_ENTRY_BUFFER, i, &entry));
    CHECK_EQ(atoi(entry.name + 1), i);
  }
  CHECK(!px_module_entry_find(self, "q", &entry));
  CHECK(!px_module_entry_at(self, PX_ENTRY_BUFFER, count, &entry));
}
PX_TEST(registering_and_finding_entries_is_linear) { check_linear(register_and_find); }

// Removes two of three entries from the front, then the rest from the end.
static void remove_entries(int count) {
  PX_SCOPED(px_module) self = with_buffers(count);
  px_module_entry entry;
  int at = 0, seen = 0;
  for (int i = 0; i < count; i++)
    if (i % 3) OK(px_module_remove(self, name_of(i)));
  while (px_module_entry_next(self, PX_ENTRY_BUFFER, &at, &entry))
    CHECK_EQ(atoi(entry.name + 1), 3 * seen++);
  CHECK_EQ(seen, (count + 2) / 3);
  for (int i = count - 1; i >= 0; i--) {
    bool kept = i % 3 == 0;
    CHECK_EQ(px_module_entry_find(self, name_of(i), &entry), kept);
    if (kept) OK(px_module_remove(self, name_of(i)));
  }
  CHECK(!px_module_entry_at(self, PX_ENTRY_BUFFER, 0, &entry));
}
PX_TEST(removing_entries_is_linear) { check_linear(remove_entries); }

PX_TEST(an_entry_of_another_sort_moves_to_the_end) {
  PX_SCOPED(px_module) self = with_buffers(100);
  PX_SCOPED(px_module) child = new_module();
  px_module_entry entry = {"p7", PX_ENTRY_MODULE, true, NULL, child};
  OK(px_module_put(self, &entry));
  int at = 0, count = 0;
  while (px_module_entry_next(self, PX_ENTRY_BUFFER | PX_ENTRY_MODULE, &at, &entry)) count++;
  CHECK(count == 100 && entry.module == child);
  CHECK(px_module_entry_at(self, PX_ENTRY_BUFFER, 7, &entry) && !strcmp(entry.name, "p8"));
  CHECK(px_module_entry_find(self, "p7", &entry) && entry.sort == PX_ENTRY_MODULE);
}

static void save_state(int count) {
  PX_SCOPED(px_module) self = with_buffers(count);
  PX_SCOPED(px_dict) state = NULL;
  OK(px_module_state_dict(&state, self, ""));
  CHECK_EQ(px_dict_size(state), count);
  OK(px_module_load_state_dict(self, state, true));
}
PX_TEST(saving_and_loading_a_state_is_linear) { check_linear(save_state); }

static px_status no_hook(px_tensor **out, px_tensor *grad, void *context) { return PX_OK; }
static void add_and_remove_hooks(int count) {
  PX_SCOPED(px_tensor) x = leaf();
  OK(px_tensor_set_requires_grad(x, true));
  int64_t first = 0, id;
  for (int i = 0; i < count; i++) {
    OK(px_tensor_add_hook(&id, x, no_hook, NULL, NULL));
    if (i == 0) first = id;
  }
  for (int i = 0; i < count; i++) {
    CHECK(px_tensor_hook(x, first + i));
    px_tensor_remove_hook(x, first + i);
    CHECK(!px_tensor_hook(x, first + i));
  }
}
PX_TEST(adding_and_removing_hooks_is_linear) { check_linear(add_and_remove_hooks); }

static px_status no_module_hook(px_tensor **replacement, px_module *self, px_tensor *const *inputs,
                                int count, px_tensor *result, void *context) {
  return PX_OK;
}
static void add_and_remove_module_hooks(int count) {
  PX_SCOPED(px_module) self = new_module();
  px_hook_entry entry;
  int64_t first = 0, id;
  for (int i = 0; i < count; i++) {
    OK(px_module_add_hook(&id, self, true, no_module_hook, NULL, NULL));
    if (i == 0) first = id;
  }
  for (int i = 0; i < count; i++) {
    CHECK(px_module_hook_at(self, 0, &entry) && entry.id == first + i);
    px_module_remove_hook(self, first + i);
  }
  CHECK(!px_module_has_hooks(self));
}
PX_TEST(adding_and_removing_hooks_of_a_module_is_linear) {
  check_linear(add_and_remove_module_hooks);
}

// ---- depth

typedef struct longest {
  int count;
  size_t length;
} longest;
static px_status see(const char *name, const px_module_entry *entry, px_module *owner,
                     void *context) {
  longest *l = context;
  l->count++;
  l->length = strlen(name) > l->length ? strlen(name) : l->length;
  return PX_OK;
}

PX_TEST(modules_nested_10000_deep_are_visited_saved_and_destroyed) {
  enum { DEPTH = 10000 };
  px_module *net = with_buffers(1);
  for (int i = 0; i < DEPTH; i++) {
    px_module *outer = new_module();
    OK(px_module_register_module(outer, "m", net));
    px_release(net);
    net = outer;
  }
  longest l = {0, 0};
  OK(px_module_walk(net, PX_ENTRY_MODULE, "", true, false, see, &l));
  CHECK(l.count == DEPTH + 1 && l.length == 2 * DEPTH - 1);
  PX_SCOPED(px_dict) state = NULL;
  OK(px_module_state_dict(&state, net, ""));
  CHECK(px_dict_size(state) == 1 && strlen(px_dict_name(state, 0)) == 2 * DEPTH + 2);
  px_release(net);
}

PX_TEST(a_walk_ends_at_a_module_that_contains_itself) {
  PX_SCOPED(px_module) self = new_module();
  PX_SCOPED(px_module) child = new_module();
  longest l = {0, 0};
  OK(px_module_register_module(self, "child", child));
  OK(px_module_register_module(child, "parent", self));
  OK(px_module_walk(self, PX_ENTRY_MODULE, "", true, false, see, &l));
  CHECK_EQ(l.count, 2);
  FAILS(px_module_walk(self, PX_ENTRY_MODULE, "", true, true, see, &l), PX_RECURSION,
        "module 'child.parent' contains itself");
  OK(px_module_remove(child, "parent"));
}
