// SPDX-License-Identifier: Apache-2.0
// TorchScript archives from C. tests/script/record.py makes the archives;
// tests/python/io/test_script.py compares all methods with PyTorch's results.
#include "../faults.h"
#include "ops_help.h"

static const char *archive(const char *name) {
  static char path[4200];
  built_path(path, 4000, "..");
  snprintf(path + strlen(path), 100, "/tests/script/%s.pt", name);
  return path;
}
static px_script *loaded(const char *name) {
  px_script *script = NULL;
  OK(px_script_load(&script, archive(name), px_cpu()));
  return script;
}
static px_tree *tuple(px_tree *part_take) {
  PX_SCOPED(px_tree) part = part_take;
  px_tree *made = NULL;
  OK(px_tree_new(&made, PX_TREE_TUPLE));
  if (part) OK(px_tree_append(made, part));
  return made;
}
static px_tree *number(int64_t n) {
  px_tree *made = NULL;
  OK(px_tree_number(&made, px_int(n)));
  return made;
}

PX_TEST(methods_take_and_return_trees) {
  PX_SCOPED(px_script) script = loaded("scripted");
  PX_SCOPED(px_tree) args = tuple(number(9)), *result = NULL;
  OK(px_script_run(&result, script, "loops", args, NULL));
  CHECK_EQ(px_tree_size(result), 3);
  CHECK_EQ(px_tree_get_number(px_tree_at(result, 0)).v.i, 27);
  CHECK(px_tree_get_number(px_tree_at(result, 1)).v.f == 12.5);
  CHECK_EQ(px_tree_size(px_tree_at(result, 2)), 6);
}

PX_TEST(named_arguments_and_defaults) {
  PX_SCOPED(px_script) script = loaded("scripted");
  PX_SCOPED(px_tree) named = NULL, *x = NULL, *n = number(2), *result = NULL;
  PX_SCOPED(px_tensor) t = floats(2, 1., 2.);
  OK(px_tree_new(&named, PX_TREE_DICT));
  OK(px_tree_tensor(&x, t));
  OK(px_tree_set(named, "n", n));
  OK(px_tree_set(named, "x", x));
  OK(px_script_run(&result, script, "optional", NULL, named));
  IS(px_tree_get_tensor(result), 2, 3., 4.);
}

PX_TEST(attributes_and_methods_of_submodules) {
  PX_SCOPED(px_script) script = loaded("scripted");
  PX_SCOPED(px_tree) scale = NULL, *ratio = NULL, *value = NULL, *text = NULL;
  const char *method = NULL;
  OK(px_script_get(&scale, script, "sub.scale"));
  CHECK(px_tree_get_number(scale).v.f == 1.5);
  OK(px_tree_number(&value, px_float(0.25)));
  OK(px_script_set(script, "ratio", value));
  OK(px_script_get(&ratio, script, "ratio"));
  CHECK(px_tree_get_number(ratio).v.f == 0.25);
  OK(px_tree_text(&text, "x"));
  FAILS(px_script_set(script, "ratio", text), PX_RUNTIME, "cannot have a value of type 'str'");
  FAILS(px_script_set(script, "sub.scale", value), PX_RUNTIME, "Can't set constant 'scale'");
  FAILS(px_script_get(&text, script, "nothing"), PX_ATTRIBUTE, "no attribute 'nothing'");
  OK(px_script_method(&method, script, "sub.lin", 0));
  CHECK(!strcmp(method, "forward"));
  OK(px_script_method(&method, script, "sub.lin", 1));
  CHECK(!method);
}

PX_TEST(code_reads_the_current_parameters_of_the_module) {
  PX_SCOPED(px_script) script = loaded("scripted");
  PX_SCOPED(px_tensor) x = floats(3, 1., 2., 3.);
  PX_SCOPED(px_tree) part = NULL, *result = NULL;
  PX_SCOPED(px_dict) state = NULL;
  OK(px_module_state_dict(&state, px_script_module(script), ""));
  CHECK_EQ(px_dict_size(state), 17);
  OK(px_zero_(px_dict_get(state, "sub.lin.weight")));
  OK(px_fill_(px_dict_get(state, "sub.lin.bias"), px_float(2)));
  OK(px_tree_tensor(&part, x));
  PX_SCOPED(px_tree) args = tuple(px_retain(part));
  OK(px_script_run(&result, script, "sub.forward", args, NULL));
  IS(px_tree_get_tensor(result), 2, 3., 3.);
  CHECK_EQ(px_module_training(px_script_module(script)), false);
}

PX_TEST(errors_of_the_code_keep_their_class_and_text) {
  PX_SCOPED(px_script) script = loaded("scripted");
  PX_SCOPED(px_tree) args = tuple(number(-1)), *none = tuple(NULL), *result = NULL;
  FAILS(px_script_run(&result, script, "raises", args, NULL), PX_VALUE, "negative number -1");
  FAILS(px_script_run(&result, script, "nothing", args, NULL), PX_ATTRIBUTE, "'nothing'");
  FAILS(px_script_run(&result, script, "raises", none, NULL), PX_RUNTIME,
        "raises() is missing value for argument 'n'.");
  CHECK(!result);
}

PX_TEST(other_files_are_refused) {
  px_script *script = NULL;
  FAILS(px_script_load(&script, "/nonexistent.pt", px_cpu()), PX_NOT_FOUND, "/nonexistent.pt");
  FAILS(px_script_load_bytes(&script, "PK", 2, px_cpu(), "bytes"), PX_RUNTIME,
        "failed finding central directory");
  CHECK(!script);
}

static px_status load_and_run(void *context) {
  job *j = context;
  PX_SCOPED(px_script) script = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tree) args = NULL, *part = NULL, *result = NULL;
  j->loss = 0;
  PX_TRY(px_ones(&x, (int64_t[]){1, 1, 5, 5}, 4, PX_FLOAT32, px_cpu(), false, false));
  PX_TRY(px_tree_new(&args, PX_TREE_TUPLE));
  PX_TRY(px_tree_tensor(&part, x));
  PX_TRY(px_tree_append(args, part));
  PX_TRY(px_script_load(&script, archive("traced"), px_cpu()));
  PX_TRY(px_script_run(&result, script, "forward", args, NULL));
  return add_to_loss(j, px_tree_get_tensor(px_tree_at(result, 0)));
}

PX_TEST(every_failing_allocation_is_reported_and_leaks_nothing) {
  job j = {.device = px_cpu()};
  CHECK(fail_each("alloc", load_and_run, &j) > 100);
  CHECK(fail_each("file", load_and_run, &j) > 0);
}
