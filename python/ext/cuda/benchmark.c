// SPDX-License-Identifier: Apache-2.0
// torch.utils.benchmark: how long a statement takes. Python's timeit runs it; here are the clock,
// which waits for the device, how often it is run, and what the times say.
#include "bind/ext.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

EXT_MODULE(benchmark, "utils.benchmark", "How long statements take.");

typedef struct task {
  PyObject *stmt, *setup, *label, *sub_label, *description, *env;
  int64_t num_threads;
} task;
typedef struct timer_object {
  PyObject_HEAD task task;
  PyObject *inner;  // a timeit.Timer
} timer_object;
typedef struct measurement_object {
  PyObject_HEAD task task;
  int64_t number;  // of runs in each time
  double *times;   // of all runs, in seconds, in the order in which they were measured
  double *sorted;  // the same, the least first; NULL until somebody asks
  int64_t count;
} measurement_object;
static timer_object *timer_of(PyObject *self) { return (timer_object *)self; }
static measurement_object *measurement_of(PyObject *self) { return (measurement_object *)self; }

#define TASK(object) \
  EXT_OBJECT(object, task.stmt), EXT_OBJECT(object, task.setup), EXT_OBJECT(object, task.label), \
      EXT_OBJECT(object, task.sub_label), EXT_OBJECT(object, task.description), \
      EXT_OBJECT(object, task.env)
EXT_OWNS(timer, TASK(timer_object), EXT_OBJECT(timer_object, inner));
EXT_OWNS(measurement, TASK(measurement_object), EXT_MEMORY(measurement_object, times),
         EXT_MEMORY(measurement_object, sorted));

static task task_copy(const task *from) {
  task to = *from;
  PyObject *parts[] = {to.stmt, to.setup, to.label, to.sub_label, to.description, to.env};
  for (int i = 0; i < EXT_LENGTH(parts); i++) Py_XINCREF(parts[i]);
  return to;
}

// ---- what the times say

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
// NULL without memory.
static const double *sorted_times(measurement_object *self) {
  size_t bytes = (size_t)self->count * sizeof *self->sorted;
  if (self->sorted || !(self->sorted = PyMem_Malloc(bytes))) return self->sorted;
  memcpy(self->sorted, self->times, bytes);
  qsort(self->sorted, (size_t)self->count, sizeof *self->sorted, compare);
  return self->sorted;
}
// The time of one run that a share of the measurements stays below; NaN without memory.
static double quantile(measurement_object *self, double share) {
  const double *sorted = sorted_times(self);
  if (!sorted) return NAN;
  double at = share * (double)(self->count - 1);
  int64_t low = (int64_t)at, high = low + 1 < self->count ? low + 1 : low;
  double value = sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
  return value / (double)self->number;
}
static double mean(const measurement_object *self) {
  double sum = 0;
  for (int64_t i = 0; i < self->count; i++) sum += self->times[i];
  return sum / (double)self->count / (double)self->number;
}
static double spread(measurement_object *self) {
  return quantile(self, 0.75) - quantile(self, 0.25);
}
static bool is_uneven(measurement_object *self) { return spread(self) > 0.1 * quantile(self, 0.5); }

// By the standard error of the inner half of the sorted times, as if they were normal.
static int significant_figures(measurement_object *self) {
  enum { MOST = 4 };
  static const double least = 25e-9, z = 1.645;
  int64_t from = self->count / 4, to = (3 * self->count + 3) / 4, n = to - from;
  double sum = 0, squares = 0;
  const double *sorted = sorted_times(self);
  for (int64_t i = from; sorted && i < to; i++) sum += sorted[i];
  for (int64_t i = from; sorted && i < to; i++)
    squares += (sorted[i] - sum / (double)n) * (sorted[i] - sum / (double)n);
  double error = z * sqrt(squares / (double)n) / sqrt((double)n) / (double)self->number;
  double figures = floor(log10(quantile(self, 0.5) / (error > least ? error : least)));
  return figures > 1 ? figures < MOST ? (int)figures : MOST : 1;
}

static PyObject *list_of_times(const measurement_object *self, double runs) {
  PyObject *list = PyList_New(self->count);
  for (int64_t i = 0; list && i < self->count; i++)
    PyList_SET_ITEM(list, i, PyFloat_FromDouble(self->times[i] / runs));
  return list;
}

// "label: sub_label", or the statement.
static PyObject *title(const task *t) {
  if (t->label && t->sub_label) return PyUnicode_FromFormat("%S: %S", t->label, t->sub_label);
  return Py_NewRef(t->label ? t->label : t->stmt);
}

static PyObject *row_name(const task *t) {
  return Py_NewRef(t->sub_label ? t->sub_label : t->stmt);
}
static PyObject *text_of(PyObject *text) { return Py_NewRef(text ? text : Py_None); }

static PyObject *measurement_repr(PyObject *object) {
  static const struct {
    double seconds;
    const char *name;
  } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  measurement_object *self = measurement_of(object);
  double median = quantile(self, 0.5);
  int unit = 0;
  while (unit < EXT_LENGTH(units) - 1 && median < units[unit].seconds) unit++;
  char figure[64], range[96] = "";
  snprintf(figure, sizeof figure, "%.2f %s", median / units[unit].seconds, units[unit].name);
  if (self->count > 2)
    snprintf(range, sizeof range, "  IQR:    %.2f %s (%.2f to %.2f)\n",
             spread(self) / units[unit].seconds, units[unit].name,
             quantile(self, 0.25) / units[unit].seconds,
             quantile(self, 0.75) / units[unit].seconds);
  const task *t = &self->task;
  bool one = self->count == 1, prepared = PyUnicode_CompareWithASCIIString(t->setup, "pass");
  EXT_OWNED *name = title(t);
  EXT_OWNED *more =
      t->description ? PyUnicode_FromFormat("%S\n", t->description) : PyUnicode_FromString("");
  EXT_OWNED *setup =
      prepared ? PyUnicode_FromFormat("setup: %S\n", t->setup) : PyUnicode_FromString("");
  if (!name || !more || !setup) return NULL;
  return PyUnicode_FromFormat(
      "<torch.utils.benchmark.utils.common.Measurement object at %p>\n%U\n%U%U  %s%s\n%s  %lld "
      "measurement%s, %lld runs %s, %lld thread%s%s",
      object, name, more, setup, one ? "" : "Median: ", figure, range, (long long)self->count,
      one ? "" : "s", (long long)self->number, one ? "" : "per measurement",
      (long long)t->num_threads, t->num_threads == 1 ? "" : "s",
      self->count > 2 && is_uneven(self)
          ? "\n  WARNING: the measurements differ by more than a tenth."
          : "");
}
EXT_TYPE(measurement, "torch.utils.benchmark.Measurement", "utils.benchmark.Measurement",
         measurement_object, EXT_FINAL, "What a Timer measured.", EXT_LIFETIME_SLOTS(measurement),
         .tp_repr = measurement_repr);
EXT_GET(measurement, number_per_run, "int", measurement_of(self)->number,
        "How often the statement ran for each time.");
EXT_GET(measurement, raw_times, "list[float]", list_of_times(measurement_of(self), 1),
        "The times, in seconds.");
EXT_GET(measurement, times, "list[float]",
        list_of_times(measurement_of(self), (double)measurement_of(self)->number),
        "The times of one run.");
EXT_GET(measurement, median, "float", quantile(measurement_of(self), 0.5), "Of one run.");
EXT_GET(measurement, mean, "float", mean(measurement_of(self)), "Of one run.");
EXT_GET(measurement, iqr, "float", spread(measurement_of(self)),
        "From the first quarter of the times to the last.");
EXT_GET(measurement, has_warnings, "bool", is_uneven(measurement_of(self)),
        "Whether that is more than a tenth of the median.");
EXT_GET(measurement, title, "str", title(&measurement_of(self)->task), "Its name in tables.");
EXT_GET(measurement, num_threads, "int", measurement_of(self)->task.num_threads,
        "The threads of the CPU that it had.");
#define TEXT_OF_TASK(name, doc) \
  EXT_GET(measurement, name, "str | None", text_of(measurement_of(self)->task.name), doc)
TEXT_OF_TASK(label, "What it belongs to.");
TEXT_OF_TASK(sub_label, "What tells it from others with its label.");
TEXT_OF_TASK(description, "What tells it from others with its sub_label.");
TEXT_OF_TASK(env, "Where it ran.");
EXT_GET(measurement, as_row_name, "str", row_name(&measurement_of(self)->task),
        "The name of its row in tables.");
EXT_GET(measurement, stmt, "str", Py_NewRef(measurement_of(self)->task.stmt), "The statement.");
EXT_GET(measurement, setup, "str", Py_NewRef(measurement_of(self)->task.setup),
        "What ran before it.");
EXT_GET(measurement, significant_figures, "int", significant_figures(measurement_of(self)),
        "How many digits of the median the inner half of the times tell, from 1 to 4.");
EXT_METHOD(measurement, meets_confidence, "(threshold: float = 0.1) -> bool",
           "Whether iqr is less than a share of the median.") {
  EXT_ARGS(double, threshold);
  measurement_object *m = measurement_of(self);
  return PyBool_FromLong(spread(m) / quantile(m, 0.5) < threshold);
}

// ---- measuring

EXT_METHOD0(benchmark, timer, "float",
            "The time now, in seconds, when the current device is done with what it was given.") {
  struct timespec now;
  if (px_device_initialized()) EXT_WAIT(px_device_synchronize(-1));
  clock_gettime(CLOCK_MONOTONIC, &now);
  return PyFloat_FromDouble((double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
}

// The seconds that so many runs take; negative with an exception.
static double measure(const timer_object *self, int64_t number) {
  EXT_OWNED *seconds = PyObject_CallMethod(self->inner, "timeit", "L", (long long)number);
  double value = seconds ? PyFloat_AsDouble(seconds) : -1;
  return PyErr_Occurred() ? -1 : value;
}

static int add_time(measurement_object *made, double seconds) {
  if (seconds < 0) return -1;
  double *more = PyMem_Realloc(made->times, (size_t)(made->count + 1) * sizeof *more);
  if (!more) return PyErr_NoMemory(), -1;
  made->times = more;
  made->times[made->count++] = seconds;
  PyMem_Free(made->sorted);
  made->sorted = NULL;
  return 0;
}

// So many runs that they take a thousandth of the time, at least.
static int64_t block_size(const timer_object *self, double min_run_time) {
  int64_t number = 1;
  for (double seconds; (seconds = measure(self, number)) < min_run_time / 1000; number *= 10)
    if (seconds < 0) return -1;
  return number;
}

typedef struct plan {
  int64_t number;  // runs in each time; 0: as many as are sensible
  double least, most, threshold;
  PyObject *callback;  // is told the runs and the seconds of each time; borrowed, or NULL
} plan;

static int tell(const plan *p, int64_t number, double seconds) {
  if (!p->callback) return 0;
  EXT_OWNED *none = PyObject_CallFunction(p->callback, "Ld", (long long)number, seconds);
  return none ? 0 : -1;
}

static int fill(measurement_object *made, const timer_object *self, const plan *p) {
  made->number = p->number ? p->number : block_size(self, p->least);
  if (made->number < 0) return -1;
  if (p->number && measure(self, p->number / 100 > 2 ? p->number / 100 : 2) < 0) return -1;
  for (double total = 0, seconds; !made->count || (!p->number && total < p->most);
       total += seconds) {
    seconds = measure(self, made->number);
    if (add_time(made, seconds) < 0 || tell(p, made->number, seconds) < 0) return -1;
    bool enough = total + seconds >= p->least && made->count > 3;
    if (enough && spread(made) < p->threshold * quantile(made, 0.5)) break;
  }
  return 0;
}

static PyObject *run(PyObject *object, plan p) {
  const timer_object *self = timer_of(object);
  measurement_object *made = ext_new(&measurement_type);
  EXT_OWNED *result = (PyObject *)made;
  int threads = px_num_threads();
  if (!made) return NULL;
  made->task = task_copy(&self->task);
  EXT_TRY(px_set_num_threads((int)self->task.num_threads));
  int failed = fill(made, self, &p);
  if (px_set_num_threads(threads) != PX_OK && !failed) return ext_raise();
  return failed ? NULL : ext_moved(&result);
}

static PyObject *dedented(PyObject *text) {
  EXT_OWNED *plain = ext_call_from("textwrap", "dedent", "(O)", text);
  return plain ? PyObject_CallMethod(plain, "strip", NULL) : NULL;
}

// timeit.Timer over the program's names, and torch.
static PyObject *make_inner(const task *t, PyObject *clock, PyObject *globals) {
  EXT_OWNED *timeit = PyImport_ImportModule("timeit");
  EXT_OWNED *package = timeit ? PyImport_ImportModule("phlox") : NULL;
  EXT_OWNED *names = package ? PyDict_New() : NULL;
  if (!names || PyDict_SetItemString(names, "torch", package) < 0 ||
      (globals && PyDict_Update(names, globals) < 0))
    return NULL;
  return PyObject_CallMethod(timeit, "Timer", "OOOO", t->stmt, t->setup, clock, names);
}

static int check_language(const char *language, const char *global_setup) {
  bool python = !strcmp(language, "python") || !strcmp(language, "py");
  if (python && !*global_setup) return 0;
  if (python)
    PyErr_Format(PyExc_ValueError,
                 "global_setup is C++ only, got `%s`. Most likely this code can simply be moved to "
                 "`setup`.",
                 global_setup);
  else if (!strcmp(language, "cpp") || !strcmp(language, "c++"))
    PyErr_SetString(PyExc_NotImplementedError, "Timer(language='c++') is not implemented in Phlox");
  else
    PyErr_Format(PyExc_ValueError, "Invalid language `%s`.", language);
  return -1;
}

EXT_NEW(timer,
        "(stmt: str = 'pass', setup: str = 'pass', global_setup: str = '', timer: Callable[[], "
        "float] | None = None, globals: dict[str, Any] | None = None, label: str | None = None, "
        "sub_label: str | None = None, description: str | None = None, env: str | None = None, "
        "num_threads: int = 1, language: str = 'python')") {
  PyObject *stmt, *setup, *timer, *globals, *label, *sub_label, *description, *env;
  const char *global_setup, *language;
  int64_t num_threads;
  EXT_BIND(stmt, setup, global_setup, timer, globals, label, sub_label, description, env,
           num_threads, language);
  if (check_language(language ? language : "python", global_setup ? global_setup : "") < 0)
    return NULL;
  EXT_OWNED *pass = PyUnicode_FromString("pass");
  EXT_OWNED *utils = pass ? ext_extension_attr("utils") : NULL;
  EXT_OWNED *module = utils ? PyObject_GetAttrString(utils, "benchmark") : NULL;
  EXT_OWNED *clock = module ? PyObject_GetAttrString(module, "timer") : NULL;
  EXT_OWNED *statement = clock ? dedented(stmt ? stmt : pass) : NULL;
  EXT_OWNED *before = statement ? dedented(setup ? setup : pass) : NULL;
  EXT_OWNED *object = before ? ext_new(type) : NULL;
  if (!object) return NULL;
  timer_object *self = timer_of(object);
  self->task =
      (task){ext_moved(&statement),   ext_moved(&before), Py_XNewRef(label), Py_XNewRef(sub_label),
             Py_XNewRef(description), Py_XNewRef(env),    num_threads};
  if (num_threads < 1)
    EXT_FAIL(PyExc_ValueError, "num_threads must be positive, but got %lld",
             (long long)num_threads);
  self->inner = make_inner(&self->task, timer ? timer : clock, globals);
  return self->inner ? ext_moved(&object) : NULL;
}
EXT_TYPE(timer, "torch.utils.benchmark.Timer", "utils.benchmark.Timer", timer_object, EXT_GC,
         "Measures how long a statement takes, which sees torch and the names of globals.\n\n"
         ">>> timer = torch.utils.benchmark.Timer(\"x + x\", globals={\"x\": torch.ones(3)})\n"
         ">>> timer.timeit(10).number_per_run\n"
         "10\n",
         EXT_LIFETIME_SLOTS(timer), .tp_new = timer_new);
EXT_METHOD(timer, timeit, "(number: int = 1000000) -> Measurement",
           "The time of so many runs, after some that are not measured.") {
  EXT_ARGS(int64_t, number);
  if (number < 1)
    EXT_FAIL(PyExc_ValueError, "number must be positive, but got %lld", (long long)number);
  return run(self, (plan){.number = number});
}
static PyObject *refuse_repeats(void) {
  EXT_FAIL(PyExc_NotImplementedError, "See `Timer.blocked_autorange.`");
}
EXT_METHOD(timer, repeat, "(repeat: int = -1, number: int = -1) -> None",
           "Refused, as by PyTorch: blocked_autorange measures.") {
  EXT_ARGS(int64_t, repeat, number);
  return refuse_repeats();
}
EXT_METHOD(timer, autorange, "(callback: Callable | None = None) -> None",
           "Refused, as by PyTorch: blocked_autorange measures.") {
  EXT_ARGS(PyObject *, callback);
  return refuse_repeats();
}
EXT_METHOD(timer, blocked_autorange,
           "(callback: Callable | None = None, min_run_time: float = 0.2) -> Measurement",
           "Measures blocks of runs, whose size it chooses, for so many seconds. callback gets "
           "the runs and the seconds of each block.") {
  PyObject *callback;
  double min_run_time;
  EXT_BIND(callback, min_run_time);
  return run(self, (plan){.least = min_run_time, .most = min_run_time, .callback = callback});
}
EXT_METHOD(timer, adaptive_autorange,
           "(threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0, "
           "callback: Callable | None = None) -> Measurement",
           "The same until the spread of the times is below a share of their median, or for "
           "max_run_time.") {
  PyObject *callback;
  double threshold, min_run_time, max_run_time;
  EXT_BIND(threshold, min_run_time, max_run_time, callback);
  plan p = {.least = min_run_time, .most = max_run_time, .threshold = threshold};
  p.callback = callback;
  return run(self, p);
}

// ---- several of one task

static bool same(PyObject *a, PyObject *b) {
  if (!a || !b) return a == b;
  int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal > 0;
}
static bool same_task(const task *a, const task *b) {
  return same(a->stmt, b->stmt) && same(a->setup, b->setup) && same(a->label, b->label) &&
         same(a->sub_label, b->sub_label) && same(a->description, b->description) &&
         same(a->env, b->env) && a->num_threads == b->num_threads;
}

// The times of `more` are counted in as those of one run each.
static int add_times(measurement_object *made, const measurement_object *more) {
  for (int64_t i = 0; i < more->count; i++)
    if (add_time(made, more->times[i] / (double)more->number) < 0) return -1;
  return 0;
}

// The one of the same task in the list, which gets one at its end where there is none; borrowed.
static measurement_object *merged_into(PyObject *list, const task *of) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    measurement_object *known = measurement_of(PyList_GET_ITEM(list, i));
    if (same_task(&known->task, of)) return known;
  }
  measurement_object *made = ext_new(&measurement_type);
  EXT_OWNED *object = (PyObject *)made;
  if (!made) return NULL;
  made->task = task_copy(of);
  made->number = 1;
  return PyList_Append(list, object) < 0 ? NULL : made;
}

EXT_STATIC_METHOD(measurement, merge, "(measurements: Iterable[Measurement]) -> list[Measurement]",
                  "Those of one task become one, whose times are of one run each.") {
  EXT_ARGS(PyObject *, measurements);
  EXT_OWNED *all = PySequence_List(measurements);
  EXT_OWNED *list = all ? PyList_New(0) : NULL;
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(all); i++) {
    PyObject *one = PyList_GET_ITEM(all, i);
    if (!Py_IS_TYPE(one, &measurement_type))
      EXT_FAIL(PyExc_TypeError, "merge takes Measurements, not %s", Py_TYPE(one)->tp_name);
    measurement_object *into = merged_into(list, &measurement_of(one)->task);
    if (!into || add_times(into, measurement_of(one)) < 0) return NULL;
  }
  return ext_moved(&list);
}
