// SPDX-License-Identifier: Apache-2.0
// The printed form of tensors, character by character.
#include "device_test.h"
#include "tensor/tensor_impl.h"

typedef struct golden {
  px_dtype dtype;
  int ndim;
  int64_t sizes[6];
  px_print_options options;
  double step;
  double values[64];
  const char *text;
} golden;
#include "print_golden.h"

static px_tensor *build(const golden *g, px_device device) {
  int64_t numel = 1;
  for (int d = 0; d < g->ndim; d++) numel *= g->sizes[d];
  size_t item = px_dtype_size(g->dtype);
  char *data = calloc((size_t)numel + 1, item);
  bool whole = !px_dtype_is_float(g->dtype);
  for (int64_t i = 0; i < numel; i++) {
    double v = g->step != 0 ? g->step * (double)i : g->values[i];
    // golden integers are all exact in double
    px_scalar_store(whole ? px_int((int64_t)v) : px_float(v), g->dtype, data + (size_t)i * item);
  }
  px_tensor *t;
  OK(px_tensor_from_data(&t, data, g->ndim, g->sizes, g->dtype, device));
  free(data);
  return t;
}

static void expect(const px_tensor *t, const char *text) {
  char *got;
  OK(px_tensor_text(&got, t, "tensor("));
  CHECK_TEXT(got, text);
  px_free(got);
}

PX_TEST(tensors_print_like_pytorch) {
  for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
    px_print_options_set(goldens[i].options);
    PX_SCOPED(px_tensor) t = build(&goldens[i], px_cpu());
    expect(t, goldens[i].text);
  }
}

PX_TEST(the_device_is_printed_unless_it_is_the_default) {
  simulate_plainly(2);
  const float two[] = {1, 1};
  PX_SCOPED(px_tensor) host = NULL;
  PX_SCOPED(px_tensor) on_device = NULL;
  int64_t size = 2;
  OK(px_tensor_from_data(&on_device, two, 1, &size, PX_FLOAT32, px_cuda(1)));
  OK(px_tensor_from_data(&host, two, 1, &size, PX_FLOAT32, px_cpu()));
  expect(on_device, "tensor([1., 1.], device='cuda:1')");
  OK(px_device_set_default(px_cuda(1)));
  expect(on_device, "tensor([1., 1.], device='cuda:1')");
  OK(px_device_set_default(px_cuda(-1)));
  expect(host, "tensor([1., 1.])");
  OK(px_device_set_default(PX_DEVICE_NONE));
  OK(px_device_set_home(px_cuda(-1)));
  CHECK(px_device_equal(px_device_default(), px_device_home()));
  expect(on_device, "tensor([1., 1.], device='cuda:1')");
  expect(host, "tensor([1., 1.], device='cpu')");
  OK(px_device_set(1));
  expect(on_device, "tensor([1., 1.])");
}

PX_TEST(a_large_device_tensor_is_summarised) {
  simulate_plainly(1);
  golden g = {PX_INT16, 2, {40, 40}, {4, 1000, 3, 80, -1}, 1, {0}, NULL};
  PX_SCOPED(px_tensor) t = build(&g, px_cuda(0));
  expect(t,
         "tensor([[   0,    1,    2,  ...,   37,   38,   39],\n"
         "        [  40,   41,   42,  ...,   77,   78,   79],\n"
         "        [  80,   81,   82,  ...,  117,  118,  119],\n"
         "        ...,\n"
         "        [1480, 1481, 1482,  ..., 1517, 1518, 1519],\n"
         "        [1520, 1521, 1522,  ..., 1557, 1558, 1559],\n"
         "        [1560, 1561, 1562,  ..., 1597, 1598, 1599]], device='cuda:0',\n"
         "       dtype=torch.int16)");
}

PX_TEST(a_view_prints_its_own_elements) {
  golden g = {PX_INT64, 2, {2, 3}, {4, 1000, 3, 80, -1}, 1, {0}, NULL};
  PX_SCOPED(px_tensor) t = build(&g, px_cpu());
  PX_SCOPED(px_tensor) transposed = NULL;
  OK(px_tensor_as_strided(&transposed, t, 2, (int64_t[]){3, 2}, (int64_t[]){1, 3}, 0));
  expect(transposed, "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])");
}

static const char *suffix;
static void write_suffix(const px_tensor *t, char *text, size_t capacity) {
  snprintf(text, capacity, "%s", suffix);
}

PX_TEST(a_full_line_wraps_before_the_grad_suffix) {
  golden g = {PX_FLOAT32, 1, {12}, {4, 1000, 3, 80, -1}, 0, {0}, NULL};
  for (int i = 0; i < 13; i++) g.values[i] = 1;
  px__print_suffix = write_suffix;
  PX_SCOPED(px_tensor) twelve = build(&g, px_cpu());
  suffix = ", requires_grad=True";
  expect(twelve, "tensor([1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.], requires_grad=True)");
  suffix = ", grad_fn=<MulBackward0>";
  expect(twelve,
         "tensor([1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.],\n"
         "       grad_fn=<MulBackward0>)");
  g.sizes[0] = 13;
  PX_SCOPED(px_tensor) thirteen = build(&g, px_cpu());
  suffix = ", requires_grad=True";
  expect(thirteen,
         "tensor([1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.],\n"
         "       requires_grad=True)");
}

PX_TEST(a_subclass_indents_by_its_name) {
  golden g = {PX_FLOAT32, 2, {2, 2}, {4, 1000, 3, 80, -1}, 1, {0}, NULL};
  PX_SCOPED(px_tensor) t = build(&g, px_cpu());
  char *got;
  OK(px_tensor_text(&got, t, "Sub("));
  CHECK_TEXT(got, "Sub([[0., 1.],\n     [2., 3.]])");
  px_free(got);
}

PX_TEST(printing_without_memory_fails_and_leaks_nothing) {
  golden g = {PX_INT64, 2, {60, 60}, {4, 1000, 3, 80, -1}, 1, {0}, NULL};
  PX_SCOPED(px_tensor) t = build(&g, px_cpu());
  int64_t live = px_live_objects(NULL), nth = 1;
  for (;; nth++) {
    char *got = NULL;
    OK(px_fault_arm("alloc", nth, false));
    px_status status = px_tensor_text(&got, t, "tensor(");
    px_fault_disarm_all();
    CHECK_EQ(px_live_objects(NULL), live);
    px_free(got);
    if (status == PX_OK) break;
    CHECK_EQ(status, PX_NOMEM);
    CHECK(!got);
    px_error_clear();
  }
  CHECK(nth > 3);
}
