// SPDX-License-Identifier: Apache-2.0
// Effects of a save on an existing file: mode, links and file type are kept, temporary files of
// killed savers are removed, and any failure keeps the old file and leaves no other.
#include "devices.h"
#include "folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static int files(void) {
  int count = 0;
  DIR *names = opendir(folder);
  CHECK(names);
  while (readdir(names)) count++;
  closedir(names);
  return count - 2;
}

static void write_file(const char *path, const void *bytes, size_t length) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(bytes, 1, length, file) == length && fclose(file) == 0);
}

// A file whose only tensor has `count` elements.
static px_dict *state_of(int64_t count) {
  px_dict *state = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  OK(px_dict_new(&state));
  OK(px_zeros(&t, &count, 1, PX_FLOAT32, px_cpu(), false, false));
  OK(px_dict_set(state, "w", t));
  return state;
}

static void save(const char *path, int64_t count) {
  PX_SCOPED(px_dict) state = state_of(count);
  OK(px_save(path, state, NULL));
}

static int64_t count_in(const char *path) {
  PX_SCOPED(px_dict) state = NULL;
  OK(px_load(&state, path, PX_DEVICE_NONE));
  return px_tensor_numel(px_dict_get(state, "w"));
}

static struct stat stat_of(const char *path) {
  struct stat st;
  CHECK(lstat(path, &st) == 0);
  return st;
}

PX_TEST(a_save_keeps_the_mode) {
  const char *path = path_of("secret");
  save(path, 1);
  CHECK(chmod(path, 0600) == 0);
  save(path, 2);
  CHECK_EQ(stat_of(path).st_mode & 07777, 0600);
  CHECK_EQ(count_in(path), 2);
  CHECK_EQ(files(), 1);
}

PX_TEST(a_save_keeps_the_owner) {
  const char *path = path_of("owned");
  if (geteuid() != 0) SKIP("only root can give files away");
  save(path, 1);
  CHECK(chown(path, 1234, 4321) == 0);
  save(path, 2);
  CHECK_EQ(stat_of(path).st_uid, 1234);
  CHECK_EQ(stat_of(path).st_gid, 4321);
}

PX_TEST(a_save_follows_links) {
  const char *target = path_of("target"), *link = path_of("link"), *second = path_of("second");
  save(target, 1);
  CHECK(symlink("target", link) == 0 && symlink(link, second) == 0);
  save(second, 5);
  CHECK(S_ISLNK(stat_of(second).st_mode) && S_ISLNK(stat_of(link).st_mode));
  CHECK(S_ISREG(stat_of(target).st_mode));
  CHECK_EQ(count_in(target), 5);
  CHECK_EQ(files(), 3);
}

PX_TEST(a_dangling_link_creates_its_target) {
  const char *link = path_of("link");
  CHECK(symlink("later", link) == 0);
  save(link, 3);
  CHECK(S_ISLNK(stat_of(link).st_mode));
  CHECK_EQ(count_in(path_of("later")), 3);
}

PX_TEST(a_hard_linked_file_keeps_both_names) {
  const char *one = path_of("one"), *two = path_of("two");
  save(one, 100);
  CHECK(link(one, two) == 0);
  save(one, 7);
  CHECK_EQ(stat_of(one).st_ino, stat_of(two).st_ino);
  CHECK_EQ(count_in(two), 7);
}

PX_TEST(a_device_stays_a_device) {
  const char *path = path_of("null");
  if (mknod(path, S_IFCHR | 0600, makedev(1, 3)) != 0) SKIP("only root makes devices");
  int probe = open(path, O_WRONLY);
  if (probe < 0) SKIP("devices do not work in this folder");
  close(probe);
  save(path, 3);
  CHECK(S_ISCHR(stat_of(path).st_mode));
  CHECK_EQ(files(), 1);
}

PX_TEST(a_pipe_receives_the_file) {
  const char *path = path_of("pipe"), *copy = path_of("copy");
  char bytes[4096];
  CHECK(mkfifo(path, 0600) == 0);
  int reader = open(path, O_RDONLY | O_NONBLOCK);
  CHECK(reader >= 0);
  save(path, 4);
  ssize_t got = read(reader, bytes, sizeof bytes);
  CHECK(got > 0 && S_ISFIFO(stat_of(path).st_mode));
  close(reader);
  write_file(copy, bytes, (size_t)got);
  CHECK_EQ(count_in(copy), 4);
}

PX_TEST(temporary_files_of_killed_savers_are_removed) {
  const char *path = path_of("state");
  char alive[160];
  snprintf(alive, sizeof alive, "%s.12.3.tmp", path);
  write_file(path_of("state.1.0.tmp"), "x", 1);
  write_file(path_of("state.99999999.12.tmp"), "x", 1);
  write_file(path_of("state.1.tmp"), "x", 1);        // not a temporary name
  write_file(path_of("estate.1.0.tmp"), "x", 1);     // of another file
  write_file(path_of("state.1.0.tmp.bak"), "x", 1);  // a user's backup
  write_file(alive, "x", 1);
  int writer = open(alive, O_RDONLY);
  CHECK(writer >= 0 && flock(writer, LOCK_EX) == 0);  // like an active saver
  save(path, 1);
  CHECK_EQ(files(), 5);
  CHECK(access(alive, F_OK) == 0);
  close(writer);
  save(path, 1);
  CHECK_EQ(files(), 4);
}

PX_TEST(the_next_save_cleans_up_after_a_killed_saver) {
  const char *path = path_of("state");
  save(path, 1);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    px_file *file = NULL;
    OK(px_file_create(&file, path));
    OK(px_file_write(file, "half", 4));
    raise(SIGKILL);
  }
  CHECK(waitpid(child, NULL, 0) == child);
  CHECK_EQ(files(), 2);
  CHECK_EQ(count_in(path), 1);
  save(path, 2);
  CHECK_EQ(files(), 1);
}

PX_TEST(two_writers_of_a_file_do_not_interfere) {
  px_file *one = NULL, *two = NULL;
  const char *path = path_of("state");
  char bytes[8] = {0};
  OK(px_file_create(&one, path));
  OK(px_file_create(&two, path));
  OK(px_file_write(two, "two", 3));
  OK(px_file_write(one, "one", 3));
  OK(px_file_commit(one));
  FAILS(px_file_write(one, "more", 4), PX_VALUE, "is already committed");
  FAILS(px_file_commit(one), PX_VALUE, "is already committed");
  px_release(two);
  px_release(one);
  FILE *file = fopen(path, "rb");
  CHECK(file && fread(bytes, 1, 8, file) == 3 && fclose(file) == 0);
  CHECK_TEXT(bytes, "one");
  CHECK_EQ(files(), 1);
}

// ---- failures

enum { KEPT = 9 };  // enough tensors that the tables grow

static void survives_failures(const char *point, px_status (*act)(const char *), const char *path) {
  int64_t objects = px_live_objects(NULL);
  bool failed = true;
  for (int64_t n = 1; failed; n++) {
    int before = files();
    OK(px_fault_arm(point, n, false));
    failed = act(path) != PX_OK;
    px_fault_disarm_all();
    CHECK(!failed || px_error_last()->message[0]);
    CHECK_EQ(px_live_objects(NULL), objects);
    CHECK_EQ(files(), before);
    CHECK_EQ(count_in(path), KEPT);
    CHECK(n < 10000);
  }
}

static px_tree *tree_of(int64_t count) {
  PX_SCOPED(px_dict) state = state_of(count);
  PX_SCOPED(px_tree) text = NULL;
  px_tree *tree = NULL;
  OK(px_tree_from_dict(&tree, state));
  OK(px_tree_text(&text, "a text"));
  OK(px_tree_set(tree, "text", text));
  return tree;
}

static px_dict *kept_state;
static px_tree *kept_tree;
static px_status act_save(const char *path) { return px_save(path, kept_state, NULL); }
static px_status act_save_tree(const char *path) { return px_save_tree(path, kept_tree); }
static px_status act_load(const char *path) {
  PX_SCOPED(px_dict) back = NULL;
  return px_load(&back, path, PX_DEVICE_NONE);
}
static px_status act_load_tree(const char *path) {
  PX_SCOPED(px_tree) back = NULL;
  return px_load_tree(&back, path, PX_DEVICE_NONE);
}

PX_TEST(failures_keep_the_old_file_and_no_other) {
  const char *path = path_of("state");
  static const char *const points[] = {"file", "alloc"};
  kept_state = state_of(KEPT);
  kept_tree = tree_of(KEPT);
  for (int i = 0; i < 2; i++) {
    OK(px_save(path, kept_state, NULL));
    survives_failures(points[i], act_save, path);
    survives_failures(points[i], act_load, path);
    survives_failures(points[i], act_save_tree, path);
    survives_failures(points[i], act_load_tree, path);
  }
  px_release(kept_state);
  px_release(kept_tree);
}

// ---- large and hostile files

// Memory is not measured under sanitizers, since they keep freed memory and add to each allocation.
// Fewer tensors cover the same code.
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { MEASURED = 0, MANY = 2000, HEADER = 64 << 10, NUMBERS = 1 << 14 };
#else
enum { MEASURED = 1, MANY = 100000, HEADER = 8 << 20, NUMBERS = 1 << 20 };
#endif

PX_TEST(a_hundred_thousand_tensors_round_trip) {
  PX_SCOPED(px_dict) state = NULL;
  PX_SCOPED(px_dict) back = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  char name[32];
  OK(px_dict_new(&state));
  OK(px_zeros(&t, NULL, 0, PX_INT16, px_cpu(), false, false));
  for (int i = 0; i < MANY; i++) {
    snprintf(name, sizeof name, "layer.%d", i);
    OK(px_dict_set(state, name, t));
  }
  OK(px_save(path_of("many"), state, NULL));
  OK(px_load(&back, path_of("many"), PX_DEVICE_NONE));
  CHECK_EQ(px_dict_size(back), MANY);
  CHECK_TEXT(px_dict_name(back, MANY - 1), name);
  CHECK(px_dict_get(back, "layer.1234") && !px_dict_get(back, "layer.100000"));
}

static void forge(const char *path, const char *first, const char *again, size_t length) {
  char *bytes = malloc(8 + length);
  uint64_t claimed = length;
  size_t at = strlen(first), step = strlen(again);
  CHECK(bytes && length >= at);
  memcpy(bytes, &claimed, 8);
  memcpy(bytes + 8, first, at);
  for (; at < length; at++) bytes[8 + at] = again[(at - strlen(first)) % step];
  write_file(path, bytes, 8 + length);
  free(bytes);
}

static int64_t peak(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_maxrss * 1024;
}

PX_TEST(a_hostile_header_takes_at_most_a_mebibyte_of_memory) {
  enum { SHORT = 4096 };
  static const char *const hostile[][2] = {{"{\"a\":", "1,"},
                                           {"{\"a\":[", "1,"},
                                           {"{\"a\":", "{\"b\":"},
                                           {"{\"a\":{\"b\":[", "[],"},
                                           {"{\"a\":{\"b\":[", "\"\","},
                                           {"{\"", "a"},
                                           {"{\"a\":\"", "\\n"},
                                           {"{\"__metadata__\":{\"a\":[", "1,"},
                                           {"{\"__metadata__\":{\"a\":\"", "b"},
                                           {"{\"__metadata__\":{", "\"a\":1,"},
                                           {"1,", "1,"}};
  static char paths[11][128];
  px_dict *state = NULL;
  // Short ones first: the peak also counts code pages on first use.
  for (size_t i = 0; i < 11; i++) {
    snprintf(paths[i], sizeof paths[i], "%s%zu", path_of("hostile"), i);
    forge(paths[i], hostile[i][0], hostile[i][1], SHORT);
    FAILS(px_load(&state, paths[i], PX_DEVICE_NONE), PX_RUNTIME, "hostile");
    forge(paths[i], hostile[i][0], hostile[i][1], HEADER);
  }
  save(path_of("warm"), 1);
  CHECK_EQ(count_in(path_of("warm")), 1);
  int64_t before = peak();  // it already had one of the files in memory
  for (size_t i = 0; i < 11; i++)
    FAILS(px_load(&state, paths[i], PX_DEVICE_NONE), PX_RUNTIME, "hostile");
  CHECK(!MEASURED || peak() - before <= (1 << 20));
}

PX_TEST(a_number_in_a_tree_takes_64_bytes) {
  PX_SCOPED(px_tree) list = NULL;
  int64_t before = peak();
  OK(px_tree_new(&list, PX_TREE_LIST));
  for (int i = 0; i < NUMBERS; i++) {
    PX_SCOPED(px_tree) number = NULL;
    OK(px_tree_number(&number, px_int(i)));
    OK(px_tree_append(list, number));
  }
  CHECK_EQ(px_tree_size(list), NUMBERS);
  CHECK_EQ(px_tree_get_number(px_tree_at(list, NUMBERS - 1)).v.i, NUMBERS - 1);
  CHECK(!MEASURED || peak() - before <= (int64_t)NUMBERS * 64 + (1 << 20));
}
