// SPDX-License-Identifier: Apache-2.0
// cuDNN in the cuda backend, with a stub of the library: choice of engines, reuse of plans, and
// failures. No driver is needed.
//
// The backend loads its libraries by name. This program's dlopen precedes the system's and resolves
// libcudnn.so.9 to the program itself.
#include "cuda_backend.h"
#include "device/core/state.h"

#define EXPORT __attribute__((visibility("default")))

// ---- the stub library: the part used by the backend

enum { ENGINE = 2, CONFIGURATION = 3, PLAN = 5, PACK = 16 };
enum { RESULTS = 202, CONFIGURATION_ENGINE = 300, PLAN_CONFIGURATION = 401, WORKSPACE = 402 };
enum { NOTES = 1303, POINTERS = 1001, ENGINES = 3 };
enum { TENSOR_CORE, ROUNDS_INPUTS, SHORT_SUMS, NONDETERMINISTIC = 4, NOTHING = -1 };
static struct {
  int notes[ENGINES];  // per engine
  int64_t workspaces[ENGINES];
  int live, plans, runs, ran;  // descriptors; plans made; runs, and the engine of the last one
  int create_fails, run_fails, finish_fails_for_engine;
  bool finish_fails;
  void *pointers[3];
} library = {.notes = {NOTHING, NOTHING, NOTHING}, .finish_fails_for_engine = -1};

typedef struct descriptor {
  int type, engine;
} descriptor;

EXPORT size_t cudnnGetVersion(void);
EXPORT const char *cudnnGetErrorString(int status);
EXPORT void cudnnGetLastErrorString(char *text, size_t room);
EXPORT int cudnnCreate(void **handle);
EXPORT int cudnnSetStream(void *handle, void *stream);
EXPORT int cudnnBackendCreateDescriptor(int type, void **out);
EXPORT int cudnnBackendDestroyDescriptor(void *d);
EXPORT int cudnnBackendFinalize(void *d);
EXPORT int cudnnBackendSetAttribute(void *d, int name, int type, int64_t count, const void *from);
EXPORT int cudnnBackendGetAttribute(void *d, int name, int type, int64_t room, int64_t *count,
                                    void *to);
EXPORT int cudnnBackendExecute(void *handle, void *plan, void *pack);

size_t cudnnGetVersion(void) { return 91234; }
const char *cudnnGetErrorString(int status) {
  return status == 5000 ? "CUDNN_STATUS_EXECUTION_FAILED" : "CUDNN_STATUS_NOT_INITIALIZED";
}
void cudnnGetLastErrorString(char *text, size_t room) { snprintf(text, room, "more of it"); }
int cudnnCreate(void **handle) {
  static int it;
  return *handle = &it, library.create_fails;
}
int cudnnSetStream(void *handle, void *stream) { return 0; }
int cudnnBackendCreateDescriptor(int type, void **out) {
  descriptor *d = calloc(1, sizeof *d);
  d->type = type;
  library.live++;
  return *out = d, 0;
}
int cudnnBackendDestroyDescriptor(void *d) {
  library.live--;
  free(d);
  return 0;
}
int cudnnBackendFinalize(void *at) {
  const descriptor *d = at;
  if (d->type != PLAN) return 0;
  library.plans++;
  return library.finish_fails || d->engine == library.finish_fails_for_engine ? 3000 : 0;
}
int cudnnBackendSetAttribute(void *at, int name, int type, int64_t count, const void *from) {
  descriptor *d = at;
  if (name == PLAN_CONFIGURATION) d->engine = (*(descriptor *const *)from)->engine;
  if (name == POINTERS) memcpy(library.pointers, from, sizeof library.pointers);
  return 0;
}
int cudnnBackendGetAttribute(void *at, int name, int type, int64_t room, int64_t *count, void *to) {
  const descriptor *d = at;
  descriptor **list = to;
  *count = 1;
  if (name == RESULTS)
    for (*count = 0; *count < ENGINES && *count < room; ++*count)
      list[*count]->engine = (int)*count;
  if (name == CONFIGURATION_ENGINE) (*list)->engine = d->engine;
  if (name == NOTES) *(int32_t *)to = library.notes[d->engine];
  if (name == NOTES) *count = library.notes[d->engine] != NOTHING;
  if (name == WORKSPACE) *(int64_t *)to = library.workspaces[d->engine];
  return 0;
}
int cudnnBackendExecute(void *handle, void *plan, void *pack) {
  library.runs++;
  library.ran = ((const descriptor *)plan)->engine;
  return library.run_fails;
}

EXPORT void *dlopen(const char *name, int flags);
void *dlopen(const char *name, int flags) {
  void *(*real)(const char *, int);
  *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
  return real(name && strstr(name, "libcudnn.so") ? NULL : name, flags);
}

// ---- a convolution

static size_t memory = SIZE_MAX;  // available workspace memory
static void *core_scratch(const px_launch *launch, size_t bytes) {
  static char somewhere;
  return bytes <= memory ? &somewhere : NULL;
}
static px_core core = {.size = sizeof core,
                       .abi = PX_BACKEND_ABI,
                       .error = px_error_set,
                       .env = px_env_read,
                       .scratch = core_scratch,
                       .setting = px_setting_get};

static char image[64], weight[64], result[64];

// One image of `channels` x 5 x 5 and a 3 x 3 kernel. The addresses are never read.
static px_status convolve(px_dtype dtype, int64_t channels) {
  const int64_t sizes[3][4] = {{1, 1, 3, 3}, {1, channels, 5, 5}, {1, channels, 3, 3}};
  const int64_t strides[3][4] = {{9, 9, 3, 1}, {25 * channels, 25, 5, 1}, {9 * channels, 9, 3, 1}};
  void *const data[3] = {result, image, weight};
  px_operand operands[4] = {{.dtype = PX_DTYPE_NONE}, {0}, {0}, {.dtype = PX_DTYPE_NONE}};
  for (int i = 0; i < 3; i++)
    operands[i] = (px_operand){
        .data = data[i], .sizes = sizes[i], .strides = strides[i], .ndim = 4, .dtype = dtype};
  const int64_t one = 1, none = 0;
  const px_value params[7] = {PX_T(NULL),      PX_T(NULL),     PX_T(NULL), PX_IS(&one, 1),
                              PX_IS(&none, 1), PX_IS(&one, 1), PX_I(1)};
  px_launch l = {.op = "conv2d",
                 .operands = operands,
                 .operand_count = 4,
                 .params = params,
                 .param_count = 7,
                 .stream = image};
  px_kernel kernel = cuda_backend(&core)->find("conv2d");
  CHECK(kernel);
  return kernel(&l);
}

PX_TEST(the_version_is_the_librarys) {
  CHECK_EQ(cuda_backend(&core)->library("cudnn"), 91234);
  CHECK_EQ(cuda_backend(&core)->library("nonesuch"), 0);
}

PX_TEST(a_plan_is_made_once_per_problem) {
  for (int i = 0; i < 3; i++) OK(convolve(PX_FLOAT32, 2));
  CHECK_EQ(library.plans, 1);
  CHECK_EQ(library.runs, 3);
  CHECK(library.pointers[0] == image && library.pointers[1] == weight &&
        library.pointers[2] == result);
  OK(convolve(PX_FLOAT16, 2));
  OK(convolve(PX_FLOAT32, 3));
  px_setting_set(PX_SETTING_CUDNN_TF32, false);
  OK(convolve(PX_FLOAT32, 2));
  CHECK_EQ(library.plans, 4);
}

PX_TEST(the_number_of_cached_descriptors_is_bounded) {
  enum { KEPT = 1024 };
  for (int i = 1; i <= 4 * KEPT; i++) OK(convolve(PX_FLOAT32, i));
  CHECK(library.live <= 2 * KEPT);  // a plan and its configuration
}

PX_TEST(engines_with_disallowed_rounding_are_skipped) {
  library.notes[0] = TENSOR_CORE;
  OK(convolve(PX_FLOAT32, 2));
  CHECK_EQ(library.ran, 0);
  px_setting_set(PX_SETTING_CUDNN_TF32, false);
  OK(convolve(PX_FLOAT32, 2));
  CHECK_EQ(library.ran, 1);
  library.notes[0] = ROUNDS_INPUTS, library.notes[1] = SHORT_SUMS;
  OK(convolve(PX_FLOAT64, 2));
  CHECK_EQ(library.ran, 2);
  OK(convolve(PX_FLOAT16, 2));
  CHECK_EQ(library.ran, 0);
}

PX_TEST(nondeterministic_engines_are_skipped_if_requested) {
  library.notes[0] = NONDETERMINISTIC;
  px_setting_set(PX_SETTING_CUDNN_DETERMINISTIC, true);
  OK(convolve(PX_FLOAT32, 2));
  CHECK_EQ(library.ran, 1);
}

PX_TEST(an_engine_without_a_plan_is_skipped) {
  library.finish_fails_for_engine = 0;
  OK(convolve(PX_FLOAT32, 2));
  CHECK_EQ(library.ran, 1);
}

PX_TEST(without_memory_a_plan_with_less_workspace_is_used) {
  library.workspaces[0] = 1000, library.workspaces[1] = 2000, library.workspaces[2] = 10;
  memory = 100;
  OK(convolve(PX_FLOAT32, 2));
  CHECK_EQ(library.ran, 2);
}

PX_TEST(a_failed_run_is_an_accelerator_error) {
  library.run_fails = 5000;
  FAILS(
      convolve(PX_FLOAT32, 2), PX_ACCELERATOR,
      "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED when calling `cudnnBackendExecute`: more of it");
  library.run_fails = 0;
  OK(convolve(PX_FLOAT32, 2));
}

PX_TEST(a_library_failing_to_initialize_is_an_error_each_time) {
  library.create_fails = 1001;
  for (int i = 0; i < 2; i++)
    FAILS(convolve(PX_FLOAT32, 2), PX_ACCELERATOR,
          "CUDNN_STATUS_NOT_INITIALIZED when calling `cudnnCreate`");
  library.create_fails = 0;
  OK(convolve(PX_FLOAT32, 2));
}

// ---- attention

static const int64_t heads[4] = {2, 4, 16, 64}, by_heads[4] = {4096, 1024, 64, 1},
                     by_rows[4] = {4096, 64, 256, 1};
static char _Alignas(16) rows[64], numbers[64];
static px_operand of_heads(px_dtype dtype, const int64_t *strides) {
  return (px_operand){.data = rows, .sizes = heads, .strides = strides, .ndim = 4, .dtype = dtype};
}
static px_status attend(px_dtype dtype, const int64_t *strides, bool causal) {
  px_operand operands[7] = {[2] = {.dtype = PX_DTYPE_NONE}, [6] = {.dtype = PX_DTYPE_NONE}};
  for (int i = 0; i < 6; i++)
    if (i != 2) operands[i] = of_heads(dtype, strides);
  operands[1] = (px_operand){.data = numbers,
                             .sizes = heads,
                             .strides = (int64_t[]){64, 16, 1},
                             .ndim = 3,
                             .dtype = PX_FLOAT32};
  const px_value params[7] = {PX_T(NULL), PX_T(NULL),   PX_T(NULL), PX_T(NULL),
                              PX_F(0),    PX_B(causal), PX_F(0.5)};
  px_launch l = {.op = "tiled_attention",
                 .operands = operands,
                 .operand_count = 7,
                 .params = params,
                 .param_count = 7,
                 .stream = image};
  px_kernel kernel = cuda_backend(&core)->find("tiled_attention");
  CHECK(kernel);
  return kernel(&l);
}

PX_TEST(attention_has_one_plan_per_sizes_and_strides) {
  for (int i = 0; i < 3; i++) OK(attend(PX_BFLOAT16, by_heads, true));
  CHECK_EQ(library.plans, 1);
  CHECK_EQ(library.runs, 3);
  OK(attend(PX_BFLOAT16, by_rows, true));
  OK(attend(PX_BFLOAT16, by_rows, false));
  OK(attend(PX_FLOAT16, by_rows, false));
  CHECK_EQ(library.plans, 4);
}

PX_TEST(attention_without_a_plan_names_the_reason) {
  for (int i = 0; i < 2; i++) {
    library.finish_fails = true;
    FAILS(attend(PX_BFLOAT16, by_heads, true), PX_UNIMPLEMENTED, "unsupported by cuDNN");
  }
  FAILS(attend(PX_FLOAT32, by_heads, true), PX_UNIMPLEMENTED, "too little shared memory");
}

PX_TEST(unsupported_attention_is_refused_before_cudnn_calls) {
  const px_backend *b = cuda_backend(&core);
  const int64_t odd[4] = {2, 4, 16, 60}, wide[4] = {2, 4, 16, 264}, none[4] = {2, 4, 0, 64};
  px_operand t = of_heads(PX_FLOAT16, by_heads), other = of_heads(PX_BFLOAT16, by_heads);
  px_attention_call c = {.query = &t, .key = &t, .value = &t, .output = &t, .backward = true};
  c.dropout_p = 0.1;
  CHECK(strstr(b->attention_refusal(0, &c), "dropout"));
  c.key = &other;
  CHECK(strstr(b->attention_refusal(0, &c), "the same dtype"));
  for (int i = 0; i < 3; i++) {
    t.sizes = (const int64_t *[]){odd, wide, none}[i];
    CHECK(strstr(b->attention_refusal(0, &c), i < 2 ? "multiples of 8, up to 256" : "elements"));
  }
  t.dtype = PX_FLOAT64;
  CHECK(strstr(b->attention_refusal(0, &c), "float16, bfloat16 and float32"));
  t.dtype = PX_FLOAT16;
  px_setting_set(PX_SETTING_CUDNN_ENABLED, false);
  CHECK(strstr(b->attention_refusal(0, &c), "disabled"));
}
