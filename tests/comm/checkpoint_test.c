// SPDX-License-Identifier: Apache-2.0
// Checkpoints: saved by several processes and loaded by one or by another number of them;
// interrupted saves, and damaged files.
#include "phlox/phlox.h"

#include <dirent.h>
#include <fcntl.h>

#include "ranks.h"

static char folder[64];

static void make_folder(void) {
  strcpy(folder, "/tmp/phlox-checkpoint-XXXXXX");
  CHECK(mkdtemp(folder) != NULL);
}

static char *in_folder(const char *name, char *path) {
  snprintf(path, 400, "%s/%s", folder, name);
  return path;
}

// Calls fn with the path of each tensor file. Returns their number.
static int each_file(void (*fn)(const char *path)) {
  char path[400];
  int count = 0;
  DIR *names = opendir(folder);
  CHECK(names != NULL);
  for (struct dirent *entry = readdir(names); entry; entry = readdir(names)) {
    if (!strstr(entry->d_name, ".safetensors")) continue;
    count++;
    if (fn) fn(in_folder(entry->d_name, path));
  }
  closedir(names);
  return count;
}

static void drop_file(const char *path) { CHECK_EQ(unlink(path), 0); }
static void cut_file(const char *path) { CHECK_EQ(truncate(path, 90), 0); }

static void remove_folder(void) {
  char path[400];
  each_file(drop_file);
  unlink(in_folder(".metadata", path));
  CHECK_EQ(rmdir(folder), 0);
}

// Rows [first, first + count) of a matrix with elements 10 * i + j + more.
static px_tensor *rows(int64_t first, int64_t count, double more) {
  px_tensor *out;
  int64_t sizes[] = {count, 3};
  OK(px_tensor_empty(&out, 2, sizes, PX_FLOAT64, px_cpu()));
  double *at = px_tensor_data(out);
  for (int64_t i = 0; i < count * 3; i++) at[i] = (double)(10 * (first + i / 3) + i % 3) + more;
  return out;
}

static const int64_t full_sizes[] = {5, 3};

// The fault point inside the library, and its passage.
static const char *point;
static int64_t passage;
static void arm(void) {
  if (point) OK(px_fault_arm(point, passage, false));
}
static px_status disarmed(px_status status) {
  if (point) px_fault_disarm_all();
  return status;
}

static px_status save(px_comm *comm, double more) {
  int64_t first, count;
  int rank = comm ? px_comm_rank(comm) : 0;
  px_shard_rows(&first, &count, 5, rank, comm ? px_comm_size(comm) : 1);
  PX_SCOPED(px_tensor) part = rows(first, count, more);
  PX_SCOPED(px_tensor) all = rows(0, 2, more);
  PX_SCOPED(px_tree) values = NULL;
  PX_SCOPED(px_tree) epoch = NULL;
  OK(px_tree_new(&values, PX_TREE_DICT));
  OK(px_tree_number(&epoch, px_int(7)));
  OK(px_tree_set(values, "epoch", epoch));
  px_checkpoint_item items[] = {{"w", part, full_sizes, first}, {"b", all, NULL, 0}};
  arm();
  return disarmed(px_checkpoint_save(folder, comm, px_cpu(), items, 2, values));
}

// Reads and checks rows of "w", and "b". With `more` EITHER, all values belong to one of the two
// saves.
enum { EITHER = -1 };
static px_status check(int64_t first, int64_t count, double more) {
  PX_SCOPED(px_checkpoint) saved = NULL;
  PX_SCOPED(px_tensor) part = rows(0, count, -1);
  PX_SCOPED(px_tensor) all = rows(0, 2, -1);
  arm();
  px_status status = px_checkpoint_open(&saved, folder);
  px_checkpoint_item items[] = {{"w", part, full_sizes, first}, {"b", all, NULL, 0}};
  if (status == PX_OK) status = px_checkpoint_read(saved, items, 2);
  PX_TRY(disarmed(status));
  const double *w = px_tensor_data(part), *b = px_tensor_data(all);
  if (more == EITHER) more = w[0] == 0.5 ? 0.5 : 0.25;
  for (int64_t i = 0; i < count * 3; i++)
    CHECK_NEAR(w[i], (double)(10 * (first + i / 3) + i % 3) + more, 0);
  for (int64_t i = 0; i < 6; i++) CHECK_NEAR(b[i], (double)(10 * (i / 3) + i % 3) + more, 0);
  px_checkpoint_entry entry;
  CHECK(px_checkpoint_find(saved, "w", &entry) && entry.ndim == 2 && entry.sizes[0] == 5);
  px_tree *epoch = px_tree_get(px_checkpoint_values(saved), "epoch");
  CHECK_EQ(px_scalar_int(px_tree_get_number(epoch)), 7);
  return PX_OK;
}

static void save_twice(px_comm *comm, px_device device) {
  OK(save(comm, 0.5));
  OK(save(comm, 0.25));
}
static void read_own(px_comm *comm, px_device device) {
  int64_t first, count;
  px_shard_rows(&first, &count, 5, px_comm_rank(comm), px_comm_size(comm));
  OK(check(first, count, 0.25));
}
PX_TEST(another_number_of_ranks_can_load_a_checkpoint) {
  make_folder();
  run_ranks(3, ON_CPU, save_twice);
  CHECK_EQ(each_file(NULL), 3);  // the files of the first save are gone
  OK(check(0, 5, 0.25));
  OK(check(1, 3, 0.25));
  run_ranks(2, ON_CPU, read_own);
  remove_folder();
}

// The second save of rank 1 fails: all ranks get the error and the first checkpoint stays.
static void fail_second(px_comm *comm, px_device device) {
  int rank = px_comm_rank(comm);
  OK(save(comm, 0.25));
  if (rank) OK(px_fault_arm("file", 2, true));
  px_status status = save(comm, 0.5);
  px_fault_disarm_all();
  CHECK_EQ((int)status, (int)(rank ? PX_IO : PX_RUNTIME));
  if (!rank)
    CHECK(strstr(px_error_last()->message, "rank 1 could not write its part of the checkpoint"));
}
// Rank 1 exits during the second save.
static void die_in_second(px_comm *comm, px_device device) {
  OK(save(comm, 0.25));
  if (px_comm_rank(comm)) _exit(0);
  px_status status = save(comm, 0.5);
  CHECK_EQ((int)status, (int)PX_DIST_BACKEND);
  _exit(0);  // the other rank no longer answers
}
PX_TEST(a_failed_or_interrupted_save_keeps_the_previous_checkpoint) {
  make_folder();
  run_ranks(2, ON_CPU, fail_second);
  OK(check(0, 5, 0.25));
  run_ranks(2, ON_CPU, die_in_second);
  OK(check(0, 5, 0.25));
  remove_folder();
}

static px_status with_fault(const char *what, int64_t n, px_status (*fn)(px_comm *, double),
                            double more) {
  point = what;
  passage = n;
  px_status status = fn(NULL, more);
  point = NULL;
  return status;
}
static px_status check_all(px_comm *comm, double more) { return check(0, 5, more); }

PX_TEST(after_any_failed_call_one_checkpoint_is_complete) {
  static const char *const points[] = {"file", "alloc"};
  make_folder();
  for (int p = 0; p < 2; p++) {
    int64_t n = 1, objects = px_live_objects(NULL);
    OK(save(NULL, 0.25));
    for (px_status status = PX_IO; status != PX_OK; n++) {
      status = with_fault(points[p], n, save, 0.5);
      OK(check(0, 5, status == PX_OK ? 0.5 : EITHER));
    }
    CHECK(n > 4);
    for (n = 1; with_fault(points[p], n, check_all, 0.5) != PX_OK;) n++;
    CHECK(n > 4);
    CHECK_EQ(px_live_objects(NULL), objects);
    CHECK_EQ(each_file(NULL), 1);
  }
  remove_folder();
}

PX_TEST(damaged_files_are_named) {
  char path[400];
  make_folder();
  PX_SCOPED(px_checkpoint) saved = NULL;
  FAILS(px_checkpoint_open(&saved, folder), PX_NOT_FOUND, "no complete checkpoint in this folder");
  OK(save(NULL, 0));
  OK(px_checkpoint_open(&saved, folder));
  PX_SCOPED(px_tensor) small = rows(0, 2, 0);
  px_checkpoint_item other = {"x", small, NULL, 0}, size = {"w", small, NULL, 0};
  FAILS(px_checkpoint_read(saved, &other, 1), PX_RUNTIME,
        "Missing key in checkpoint state_dict: x.");
  FAILS(px_checkpoint_read(saved, &size, 1), PX_VALUE,
        "Size mismatch between saved torch.Size([5, 3]) and current: torch.Size([2, 3]) for w");
  each_file(cut_file);
  FAILS(check(0, 5, 0), PX_RUNTIME, ", got 90");
  each_file(drop_file);
  FAILS(check(0, 5, 0), PX_RUNTIME, "is incomplete: its file '");
  FILE *file = fopen(in_folder(".metadata", path), "r+");
  CHECK(file && fseek(file, 20, SEEK_SET) == 0 && fputs("###", file) >= 0 && fclose(file) == 0);
  px_release(saved);
  saved = NULL;
  px_status status = px_checkpoint_open(&saved, folder);
  CHECK_EQ((int)status, (int)PX_RUNTIME);
  remove_folder();
}
