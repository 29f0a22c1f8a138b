// SPDX-License-Identifier: Apache-2.0
// Saved tensor hooks: user-defined packing of tensors saved by calls. The hooks of a thread form a
// stack and the top one applies. A packed tensor retains its hooks, independent of later pushes and
// pops.
#include "autograd/engine/graph.h"

struct px__packers {
  px_object head;
  px_saved_hooks hooks;
  void *context;
  struct px__packers *below;  // owned; next in the thread's stack
};
static _Thread_local struct px__packers *top;  // owned

// Why pushing hooks is disabled on a thread: a text owned by it. A pthread key, as in
// src/call/hooks.c.
static pthread_key_t disabled_key;
static bool has_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void make_key(void) { has_key = pthread_key_create(&disabled_key, px_free) == 0; }

struct px__packed {
  px_object head;
  struct px__packers *packers;  // owned
  px_tensor *form;              // outline of the packed tensor
  void *kept;                   // result of the pack hook; released by the hooks
  bool packed;
};

static void packers_destroy(void *self) {
  struct px__packers *packers = self;
  if (packers->hooks.release) packers->hooks.release(packers->context);
  px_release(packers->below);
  px_object_end(packers);
  px_free(packers);
}
static const px_class packers_class = {"hooks for saved tensors", packers_destroy};

static void packed_destroy(void *self) {
  px__packed *packed = self;
  if (packed->packed) packed->packers->hooks.release_packed(packed->kept);
  px_release(packed->packers);
  px_release(packed->form);
  px_object_end(packed);
  px_free(packed);
}
static const px_class packed_class = {"packed tensor", packed_destroy};

px_status px_saved_hooks_push(const px_saved_hooks *hooks, void *context) {
  PX_GIVEN(hooks);
  PX_CHECK(hooks->pack && hooks->unpack && hooks->release_packed, PX_VALUE,
           "hooks for saved tensors need pack, unpack and release_packed");
  PX_CHECK(!px_saved_hooks_disabled(), PX_RUNTIME, "%s", px_saved_hooks_disabled());
  struct px__packers *packers = NULL;
  PX_TRY(px_alloc((void **)&packers, sizeof *packers));
  px_object_init(packers, &packers_class);
  packers->hooks = *hooks;
  packers->context = context;
  packers->below = top;
  top = packers;
  return PX_OK;
}

void px_saved_hooks_pop(void) {
  struct px__packers *popped = top;
  if (!popped) return;
  top = px_retain(popped->below);
  px_release(popped);
}

px_status px_saved_hooks_disable(const char *message) {
  char *text = NULL, *before = (char *)px_saved_hooks_disabled();
  if (message) {
    PX_CHECK(!top, PX_RUNTIME, "%s", message);
    PX_TRY(px_strdup(&text, message));
  }
  if (has_key && pthread_setspecific(disabled_key, text) == 0) return px_free(before), PX_OK;
  px_free(text);
  PX_FAIL(PX_NOMEM, "out of memory for thread-local saved tensor hooks");
}

const char *px_saved_hooks_disabled(void) {
  pthread_once(&once, make_key);
  return has_key ? pthread_getspecific(disabled_key) : NULL;
}

bool px__packs(const px_tensor *t) { return top && !(px_tensor_marks(t) & PX_MARK_WRAPPED); }

static px_status pack(px__packed *packed, px_tensor *t) {
  uint64_t version = px_tensor_version(t);
  PX_TRY(packed->packers->hooks.pack(&packed->kept, t, packed->packers->context));
  packed->packed = true;
  PX_CHECK(px_tensor_version(t) == version, PX_RUNTIME,
           "A saved tensor pack hook is modifying its input in place. Tensors provided as input to "
           "pack hook can not be modified by in-place operations as this can lead to unexpected "
           "side-effects. Please open an issue if you need to perform in-place operations on the "
           "input to a pack hook.");
  return PX_OK;
}

px_status px__pack(px__packed **out, px_tensor *t) {
  PX_SCOPED(px__packed) packed = NULL;
  PX_TRY(px_alloc((void **)&packed, sizeof *packed));
  px_object_init(packed, &packed_class);
  packed->packers = px_retain(top);
  PX_TRY(px_tensor_outline(&packed->form, t));
  PX_TRY(pack(packed, t));
  *out = PX_MOVE(packed);
  return PX_OK;
}

// Kernels rely on the metadata of saved tensors.
static bool has_form(const px_tensor *t, const px_tensor *form) {
  int ndim = px_tensor_ndim(form);
  if (px_tensor_ndim(t) != ndim || px_tensor_dtype(t) != px_tensor_dtype(form)) return false;
  for (int i = 0; i < ndim; i++)
    if (px_tensor_size(t, i) != px_tensor_size(form, i)) return false;
  return px_device_equal(px_tensor_device(t), px_tensor_device(form));
}

px_status px__unpack(px_tensor **out, px__packed *packed) {
  PX_SCOPED(px_tensor) t = NULL;
  PX_TRY(packed->packers->hooks.unpack(&t, packed->kept, packed->packers->context));
  PX_CHECK(t && has_form(t, packed->form), PX_RUNTIME,
           "expected a tensor with the shape, dtype and device of the packed one from a saved "
           "tensor unpack hook");
  *out = PX_MOVE(t);
  return PX_OK;
}
