// SPDX-License-Identifier: Apache-2.0
// Optimizer steps for one element type (T, NAME; SQRT the root); optim.c includes it twice.

static void NAME(sgd)(const sgd_task *t, int64_t begin, int64_t end) {
  T *p = t->param, *m = t->buffer;
  const T *grad = t->grad;
  T lr = (T)t->lr, momentum = (T)t->momentum, fresh = (T)(1 - t->dampening), decay = (T)t->decay;
  T sign = t->maximize ? -1 : 1;
  for (int64_t i = begin; i < end; i++) {
    T g = sign * grad[i];
    if (t->decay != 0) g += decay * p[i];
    if (m) {
      T b = t->first ? g : m[i] * momentum + g * fresh;
      m[i] = b;
      g = t->nesterov ? g + momentum * b : b;
    }
    p[i] -= lr * g;
  }
}
static void NAME(adam)(const adam_task *t, int64_t begin, int64_t end) {
  T *p = t->param, *avg = t->avg, *sq = t->avg_sq, *top = t->top;
  const T *grad = t->grad;
  T beta1 = (T)t->beta1, beta2 = (T)t->beta2, fresh1 = (T)(1 - t->beta1),
    fresh2 = (T)(1 - t->beta2);
  T size = (T)(t->lr / (1 - pow(t->beta1, (double)t->step))), eps = (T)t->eps;
  T root = (T)sqrt(1 - pow(t->beta2, (double)t->step)), decay = (T)t->decay;
  T keep = t->decoupled ? (T)(1 - t->lr * t->decay) : 1, add = t->decoupled ? 0 : decay;
  T sign = t->maximize ? -1 : 1;
  for (int64_t i = begin; i < end; i++) {
    T x = p[i] * keep, g = sign * grad[i] + add * p[i];
    T a = avg[i] * beta1 + g * fresh1, s = sq[i] * beta2 + g * g * fresh2;
    avg[i] = a, sq[i] = s;
    if (top) s = top[i] = s > top[i] ? s : top[i];
    p[i] = x - size * a / (SQRT(s) / root + eps);
  }
}
static void NAME(adadelta)(const adadelta_task *t, int64_t begin, int64_t end) {
  T *p = t->param, *sq = t->square_avg, *acc = t->acc_delta;
  const T *grad = t->grad;
  T lr = (T)t->lr, rho = (T)t->rho, fresh = (T)(1 - t->rho), eps = (T)t->eps, decay = (T)t->decay;
  T sign = t->maximize ? -1 : 1;
  for (int64_t i = begin; i < end; i++) {
    T g = sign * grad[i] + decay * p[i];
    sq[i] = sq[i] * rho + g * g * fresh;
    T delta = SQRT(acc[i] + eps) / SQRT(sq[i] + eps) * g;
    acc[i] = acc[i] * rho + delta * delta * fresh;
    p[i] -= lr * delta;
  }
}
