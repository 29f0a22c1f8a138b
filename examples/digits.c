// SPDX-License-Identifier: Apache-2.0
// Trains a small convolutional network on handwritten digits with data parallelism over two
// devices, real or simulated; reports the held-out accuracy, saves a checkpoint and checks it.
// examples/digits.py is the same program in Python and prints the same losses.
// Usage: digits [DATA.csv.gz] [FOLDER for results]
#include <phlox/phlox.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum {
  IMAGES = 1797,
  PIXELS = 64,
  TRAIN = 1438,
  HELD_OUT = 359,
  BATCH = 64,
  EPOCHS = 15,
  DEVICE_LIMIT = 2
};

typedef struct job {
  const char *data, *folder;
  px_device devices[DEVICE_LIMIT];
  int device_count;
  px_list *train, *held_out;  // images and labels
  px_module *net;
  px_optimizer *optimizer;
  int64_t order[IMAGES];  // of the images, drawn at random
  double losses[EPOCHS * (TRAIN / BATCH + 1)];
  int steps;
} job;

// ---- data

static px_status read_csv(const char *path, float *images, int64_t *labels) {
  gzFile file = gzopen(path, "rb");
  PX_CHECK(file, PX_NOT_FOUND, "cannot open '%s'", path);
  char line[1024];
  int count = 0;
  for (; count < IMAGES && gzgets(file, line, sizeof line); count++) {
    char *at = line;
    for (int i = 0; i < PIXELS; i++, at += *at == ',')
      images[count * PIXELS + i] = strtof(at, &at) / 16;
    labels[count] = (int64_t)strtod(at, NULL);
  }
  gzclose(file);
  PX_CHECK(count == IMAGES, PX_RUNTIME, "'%s' has %d images, not %d", path, count, IMAGES);
  return PX_OK;
}

static px_status load_data(job *j) {
  static float images[IMAGES * PIXELS];
  static int64_t labels[IMAGES];
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_TRY(read_csv(j->data, images, labels));
  PX_TRY(px_tensor_from_data(&x, images, 4, (int64_t[]){IMAGES, 1, 8, 8}, PX_FLOAT32, px_cpu()));
  PX_TRY(px_tensor_from_data(&y, labels, 1, (int64_t[]){IMAGES}, PX_INT64, px_cpu()));
  PX_TRY(px_random_permutation(j->order, IMAGES, NULL));
  PX_TRY(px_collate_rows(&j->train, (px_tensor *[]){x, y}, 2, j->order, TRAIN));
  return px_collate_rows(&j->held_out, (px_tensor *[]){x, y}, 2, j->order + TRAIN, HELD_OUT);
}

// ---- the network

static px_status make_net(px_module **out) {
  px_module *layers[8] = {0};
  px_status status = px_conv2d_new(&layers[0], 1, 16, 3, .padding = 1);
  if (status == PX_OK) status = px_relu_new(&layers[1]);
  if (status == PX_OK) status = px_max_pool2d_new(&layers[2], 2);
  if (status == PX_OK) status = px_conv2d_new(&layers[3], 16, 32, 3, .padding = 1);
  if (status == PX_OK) status = px_relu_new(&layers[4]);
  if (status == PX_OK) status = px_max_pool2d_new(&layers[5], 2);
  if (status == PX_OK) status = px_flatten_new(&layers[6]);
  if (status == PX_OK) status = px_linear_new(&layers[7], 128, 10);
  if (status == PX_OK) status = px_sequential_new(out, layers, 8);
  for (int i = 0; i < 8; i++) px_release(layers[i]);
  return status;
}

static px_status make_model(job *j) {
  PX_SCOPED(px_list) parameters = NULL;
  PX_TRY(make_net(&j->net));
  PX_TRY(px_module_to(j->net, PX_DTYPE_NONE, j->devices[0], false));
  PX_TRY(px_module_parameters(&parameters, j->net));
  return px_adam_new(&j->optimizer, px_list_items(parameters), px_list_size(parameters),
                     .lr = 0.003);
}

// Computes the network's output for a batch, scattered over the devices.
static px_status forward(px_tensor **out, job *j, px_tensor *images) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(px_to(&x, images, PX_DTYPE_NONE, j->devices[0], true, false));
  return px_data_parallel(out, j->net, x, j->devices, j->device_count, j->devices[0], 0);
}

// ---- training

static void progress(const job *j, int epoch, double loss, bool last) {
  if (!isatty(STDOUT_FILENO)) {
    if (last) printf("epoch %2d  loss %.9g\n", epoch + 1, loss);
    return;
  }
  int total = EPOCHS * ((TRAIN + BATCH - 1) / BATCH), filled = 30 * j->steps / total;
  printf("\r[%.*s%*s] epoch %d/%d  loss %.4f ", filled, "##############################",
         30 - filled, "", epoch + 1, EPOCHS, loss);
  if (j->steps == total) putchar('\n');
  fflush(stdout);
}

static px_status train_step(double *loss_out, job *j, px_list *batch) {
  PX_SCOPED(px_tensor) target = NULL;
  PX_SCOPED(px_tensor) scores = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  px_scalar value;
  PX_TRY(px_to(&target, px_list_get(batch, 1), PX_DTYPE_NONE, j->devices[0], true, false));
  PX_TRY(px_optimizer_zero_grad(j->optimizer, true));
  PX_TRY(forward(&scores, j, px_list_get(batch, 0)));
  PX_TRY(px_cross_entropy(&loss, scores, target, NULL, -100, "mean", 0));
  PX_TRY(px_backward(1, &loss, NULL, false, false));
  PX_TRY(px_optimizer_step(j->optimizer));
  PX_TRY(px_tensor_item(&value, loss));
  *loss_out = px_scalar_float(value);
  return PX_OK;
}

static px_status train_epoch(job *j, int epoch) {
  int64_t unused;
  PX_TRY(px_seed_draw(&unused, NULL));  // as PyTorch's DataLoader does for its workers
  PX_TRY(px_random_order(j->order, TRAIN, TRAIN, false, NULL));
  for (int i = 0; i < TRAIN; i += BATCH) {
    PX_SCOPED(px_list) batch = NULL;
    double loss = 0;
    int count = i + BATCH < TRAIN ? BATCH : TRAIN - i;
    PX_TRY(px_collate_rows(&batch, px_list_items(j->train), 2, j->order + i, count));
    PX_TRY(train_step(&loss, j, batch));
    j->losses[j->steps++] = loss;
    progress(j, epoch, loss, i + BATCH >= TRAIN);
  }
  return PX_OK;
}

static px_status train(job *j) {
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  for (int epoch = 0; epoch < EPOCHS; epoch++) PX_TRY(train_epoch(j, epoch));
  clock_gettime(CLOCK_MONOTONIC, &to);
  double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
  fprintf(stderr, "%d steps in %.2f s: %.0f images/s\n", j->steps, seconds,
          TRAIN * EPOCHS / seconds);
  return PX_OK;
}

// ---- results

// The predicted labels of the held-out images.
static px_status predict(job *j, px_tensor *images, int64_t *labels) {
  PX_SCOPED(px_tensor) scores = NULL;
  PX_SCOPED(px_tensor) best = NULL;
  PX_TRY(px_module_train(j->net, false));
  px_grad_set_enabled(false);
  px_status status = forward(&scores, j, images);
  px_grad_set_enabled(true);
  PX_TRY(status);
  PX_TRY(px_argmax(&best, scores, &(int64_t){1}, false));
  return px_tensor_read(best, labels, HELD_OUT * sizeof *labels);
}

static px_status equal(bool *out, const px_tensor *a, const px_tensor *b) {
  PX_SCOPED(px_tensor) each = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  px_scalar value;
  PX_TRY(px_eq(&each, a, b));
  PX_TRY(px_all(&all, each, NULL, 0, false));
  PX_TRY(px_tensor_item(&value, all));
  *out = px_scalar_int(value) != 0;
  return PX_OK;
}

static px_status checkpoint(job *j) {
  char path[1024];
  snprintf(path, sizeof path, "%s/digits.safetensors", j->folder);
  PX_SCOPED(px_dict) state = NULL;
  PX_SCOPED(px_dict) loaded = NULL;
  PX_TRY(px_module_state_dict(&state, j->net, ""));
  PX_TRY(px_save(path, state, (const char *const[]){"network", "digits", NULL}));
  PX_TRY(px_load(&loaded, path, j->devices[0]));
  for (int64_t i = 0; i < px_dict_size(state); i++) {
    bool same = false;
    px_tensor *value = px_dict_get(loaded, px_dict_name(state, i));
    PX_CHECK(value, PX_RUNTIME, "the checkpoint lost '%s'", px_dict_name(state, i));
    PX_TRY(equal(&same, px_dict_value(state, i), value));
    PX_CHECK(same, PX_RUNTIME, "the checkpoint changed '%s'", px_dict_name(state, i));
  }
  PX_TRY(px_module_load_state_dict(j->net, loaded, true));
  printf("checkpoint %s: loaded and equal\n", path);
  return PX_OK;
}

// The plot: the loss by epoch, and misclassified images below.
enum { LEFT = 70, RIGHT = 590, TOP = 40, BOTTOM = 230, MISTAKES = 9 };
static const double highest = 2.5;  // upper limit of the loss axis

static double x_of(double epoch) { return LEFT + (RIGHT - LEFT) * epoch / EPOCHS; }
static double y_of(double loss) {
  return BOTTOM - (BOTTOM - TOP) * (loss > highest ? highest : loss) / highest;
}

static void draw_text(FILE *svg, double x, double y, const char *anchor, const char *text) {
  fprintf(svg, "<text x='%.1f' y='%.1f' text-anchor='%s'>%s</text>\n", x, y, anchor, text);
}

static void draw_axes(FILE *svg) {
  char number[16];
  for (int epoch = 0; epoch <= EPOCHS; epoch += 3) {
    snprintf(number, sizeof number, "%d", epoch);
    fprintf(svg, "<path d='M%.1f %dv6'/>\n", x_of(epoch), BOTTOM);
    draw_text(svg, x_of(epoch), BOTTOM + 20, "middle", number);
  }
  for (double loss = 0; loss <= highest; loss += 0.5) {
    snprintf(number, sizeof number, "%.1f", loss);
    fprintf(svg, "<path d='M%d %.1fh-6'/><path d='M%d %.1fH%d' stroke='#ddd'/>\n", LEFT, y_of(loss),
            LEFT, y_of(loss), RIGHT);
    draw_text(svg, LEFT - 10, y_of(loss) + 4, "end", number);
  }
  fprintf(svg, "<path d='M%d %dV%dH%d'/>\n", LEFT, TOP, BOTTOM, RIGHT);
  draw_text(svg, (LEFT + RIGHT) / 2.0, BOTTOM + 40, "middle", "epochs");
  fprintf(svg,
          "<text transform='translate(22,%d) rotate(-90)' text-anchor='middle'>"
          "loss (cross-entropy, nats)</text>\n",
          (TOP + BOTTOM) / 2);
}

static void draw_curve(FILE *svg, const job *j) {
  fprintf(svg, "<polyline stroke='#b03a2e' points='");
  for (int i = 0; i < j->steps; i++)
    fprintf(svg, "%.1f,%.1f ", x_of((double)EPOCHS * (i + 1) / j->steps), y_of(j->losses[i]));
  fprintf(svg, "'/>\n");
}

static void draw_digit(FILE *svg, const float *image, int x, int y, int64_t guess, int64_t truth) {
  char text[32];
  for (int i = 0; i < PIXELS; i++) {
    int grey = (int)(255 - 255 * image[i]);
    fprintf(svg, "<rect x='%d' y='%d' width='6' height='6' stroke='none' fill='rgb(%d,%d,%d)'/>\n",
            x + i % 8 * 6, y + i / 8 * 6, grey, grey, grey);
  }
  snprintf(text, sizeof text, "%d, is %d", (int)guess, (int)truth);
  draw_text(svg, x, y + 64, "start", text);
}

static void draw(FILE *svg, const job *j, const float *images, const int64_t *guesses,
                 const int64_t *labels) {
  char title[128];
  fprintf(svg,
          "<svg xmlns='http://www.w3.org/2000/svg' width='620' height='390' "
          "font-family='sans-serif' font-size='12' fill='none' stroke='#333'>\n"
          "<style>text { fill: #333; stroke: none }</style>\n"
          "<rect width='620' height='390' fill='white' stroke='none'/>\n");
  snprintf(title, sizeof title, "Training on handwritten digits, %d steps of %d images", j->steps,
           BATCH);
  draw_text(svg, (LEFT + RIGHT) / 2.0, 22, "middle", title);
  draw_axes(svg);
  draw_curve(svg, j);
  draw_text(svg, 20, 300, "start", "Held-out digits that were misread:");
  for (int i = 0, drawn = 0; i < HELD_OUT && drawn < MISTAKES; i++)
    if (guesses[i] != labels[i])
      draw_digit(svg, images + i * PIXELS, 20 + 65 * drawn++, 312, guesses[i], labels[i]);
  fprintf(svg, "</svg>\n");
}

static px_status picture(const job *j, const float *images, const int64_t *guesses,
                         const int64_t *labels) {
  char path[1024];
  snprintf(path, sizeof path, "%s/digits.svg", j->folder);
  FILE *svg = fopen(path, "w");
  PX_CHECK(svg, PX_IO, "cannot write '%s'", path);
  draw(svg, j, images, guesses, labels);
  PX_CHECK(fclose(svg) == 0, PX_IO, "cannot write '%s'", path);
  printf("picture %s\n", path);
  return PX_OK;
}

static px_status evaluate(job *j) {
  static float images[HELD_OUT * PIXELS];
  static int64_t labels[HELD_OUT], guesses[HELD_OUT];
  int right = 0;
  PX_TRY(px_tensor_read(px_list_get(j->held_out, 0), images, sizeof images));
  PX_TRY(px_tensor_read(px_list_get(j->held_out, 1), labels, sizeof labels));
  PX_TRY(predict(j, px_list_get(j->held_out, 0), guesses));
  for (int i = 0; i < HELD_OUT; i++) right += guesses[i] == labels[i];
  printf("held-out accuracy %.2f %% (%d of %d)\n", 100.0 * right / HELD_OUT, right, HELD_OUT);
  PX_CHECK(right >= 0.97 * HELD_OUT, PX_RUNTIME, "the accuracy is below 97 %%");
  return picture(j, images, guesses, labels);
}

static px_status find_devices(job *j) {
  int count = px_device_count(PX_CUDA);
  j->device_count = count < DEVICE_LIMIT ? count : DEVICE_LIMIT;
  j->devices[0] = px_cpu();
  for (int i = 0; i < j->device_count; i++) {
    px_device_properties facts;
    PX_TRY(px_device_get_properties(&facts, i));
    j->devices[i] = px_cuda(i);
    printf("cuda:%d is %s\n", i, facts.simulated ? "simulated" : facts.name);
  }
  if (!count) printf("no devices: training on the CPU\n");
  return PX_OK;
}

// Writes every loss, to compare programs.
static px_status write_losses(const job *j) {
  char path[1024];
  snprintf(path, sizeof path, "%s/losses.txt", j->folder);
  FILE *file = fopen(path, "w");
  PX_CHECK(file, PX_IO, "cannot write '%s'", path);
  for (int i = 0; i < j->steps; i++) fprintf(file, "%.9g\n", j->losses[i]);
  PX_CHECK(fclose(file) == 0, PX_IO, "cannot write '%s'", path);
  return PX_OK;
}

static px_status run(job *j) {
  PX_TRY(find_devices(j));
  px_setting_set(PX_SETTING_CUDNN_DETERMINISTIC, 1);  // reproducible losses
  px_manual_seed(0);
  PX_TRY(load_data(j));
  PX_TRY(make_model(j));
  PX_TRY(train(j));
  PX_TRY(write_losses(j));
  PX_TRY(evaluate(j));
  PX_TRY(checkpoint(j));
  for (int i = 0; i < j->device_count; i++)
    printf("peak memory of cuda:%d: %.2f MiB\n", i,
           (double)px_memory_allocated_peak(i) / (1 << 20));
  return PX_OK;
}

int main(int argc, char **argv) {
  static job j;
  j.data = argc > 1 ? argv[1] : "data/digits.csv.gz";
  j.folder = argc > 2 ? argv[2] : ".";
  px_status status = run(&j);
  if (status != PX_OK) px_error_print();
  px_release(j.optimizer);
  px_release(j.net);
  px_release(j.train);
  px_release(j.held_out);
  return status != PX_OK;
}
