// SPDX-License-Identifier: Apache-2.0
// Collective backend over Gloo (libgloo-dev). Each collective maps to Gloo's; exceptions are
// caught.
//
// Gloo terminates the process if a message does not fit the receive buffer. The core's tags
// therefore encode the call and its size; for sends and receives the size is added to the slot
// here.
#include "phlox/engine.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/scatter.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>

namespace {

using std::chrono::milliseconds;
using Device = std::shared_ptr<gloo::transport::Device>;

class Store : public gloo::rendezvous::Store {
 public:
  explicit Store(const px_engine_job &job) : job_(job) {}
  void set(const std::string &key, const std::vector<char> &data) override {
    char why[512] = "";
    if (job_.set(job_.store, key.c_str(), data.data(), data.size(), why, sizeof why))
      throw std::runtime_error(why);
  }
  std::vector<char> get(const std::string &key) override {
    char why[512] = "";
    void *value = nullptr;
    size_t size = 0;
    if (job_.get(job_.store, key.c_str(), &value, &size, why, sizeof why))
      throw std::runtime_error(why);
    std::vector<char> data(static_cast<char *>(value), static_cast<char *>(value) + size);
    job_.release(value);
    return data;
  }
  void wait(const std::vector<std::string> &keys) override {
    for (const auto &key : keys) get(key);
  }

 private:
  const px_engine_job &job_;
};

// Buffers of pending waits. Gloo's closing of connections does not wake local waiters, so ending
// the group aborts these buffers' waits.
class PendingWaits {
 public:
  void add(gloo::transport::UnboundBuffer *buffer) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (ended_) throw std::runtime_error("the group has ended");
    buffers_.insert(buffer);
  }
  void remove(gloo::transport::UnboundBuffer *buffer) {
    const std::lock_guard<std::mutex> guard(lock_);
    buffers_.erase(buffer);
  }
  void end() {
    const std::lock_guard<std::mutex> guard(lock_);
    ended_ = true;
    for (auto *buffer : buffers_) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  }

 private:
  std::mutex lock_;
  std::set<gloo::transport::UnboundBuffer *> buffers_;
  bool ended_ = false;
};

class Memory : public gloo::transport::UnboundBuffer {
  using Base = gloo::transport::UnboundBuffer;

 public:
  Memory(std::unique_ptr<Base> inner, std::shared_ptr<PendingWaits> waits)
      : Base(inner->ptr, inner->size), inner_(std::move(inner)), waits_(std::move(waits)) {
    waits_->add(inner_.get());
  }
  ~Memory() override { waits_->remove(inner_.get()); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  // Gloo's collectives ignore an aborted wait, so it throws.
  bool waitRecv(int *rank, milliseconds timeout) override {
    return completed(inner_->waitRecv(rank, timeout));
  }
  bool waitSend(int *rank, milliseconds timeout) override {
    return completed(inner_->waitSend(rank, timeout));
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }
  void send(int rank, uint64_t slot, size_t offset, size_t bytes) override {
    inner_->send(rank, slot, offset, bytes);
  }
  void recv(int rank, uint64_t slot, size_t offset, size_t bytes) override {
    inner_->recv(rank, slot, offset, bytes);
  }
  void recv(std::vector<int> ranks, uint64_t slot, size_t offset, size_t bytes) override {
    inner_->recv(std::move(ranks), slot, offset, bytes);
  }

 private:
  static bool completed(bool yes) {
    if (!yes) throw std::runtime_error("the group has ended");
    return yes;
  }
  std::unique_ptr<Base> inner_;
  std::shared_ptr<PendingWaits> waits_;
};

// A transport context with the pairs of another one, creating such buffers.
class Transport : public gloo::transport::Context {
  using Base = gloo::transport::Context;
  using Pair = std::unique_ptr<gloo::transport::Pair>;

 public:
  explicit Transport(std::shared_ptr<Base> inner)
      : Base(inner->rank, inner->size), inner_(std::move(inner)) {
    setTimeout(inner_->getTimeout());
  }
  Pair &getPair(int to) override { return inner_->getPair(to); }
  Pair &createPair(int to) override { return inner_->createPair(to); }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void *ptr,
                                                                      size_t bytes) override {
    return std::make_unique<Memory>(inner_->createUnboundBuffer(ptr, bytes), waits_);
  }
  void end() { waits_->end(); }

 private:
  std::shared_ptr<Base> inner_;
  std::shared_ptr<PendingWaits> waits_ = std::make_shared<PendingWaits>();
};

class Connections : public gloo::rendezvous::Context {
 public:
  using gloo::rendezvous::Context::Context;
  void connect(gloo::rendezvous::Store &store, Device &device) {
    connectFullMesh(store, device);
    transport_ = std::make_shared<Transport>(transportContext_);
    transportContext_ = transport_;
  }
  void end() {
    transport_->end();
    closeConnections();
  }

 private:
  std::shared_ptr<Transport> transport_;
};

struct Joined {
  std::shared_ptr<Connections> context;
  Device device;
};

// Blocks SIGPIPE in the calling thread and threads started by it, and discards a pending one.
// Gloo may write to closed connections. By default the signal would kill the process.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const struct timespec now = {0, 0};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe &) = delete;
  NoSigpipe &operator=(const NoSigpipe &) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_;
};

// Calls `body` and returns its exception as a text.
template <typename Body>
int guarded(char *why, size_t capacity, Body body) {
  const NoSigpipe quiet;
  try {
    body();
    return 0;
  } catch (const std::exception &e) {
    snprintf(why, capacity, "%s", e.what());
  } catch (...) {
    snprintf(why, capacity, "unknown error in Gloo");
  }
  return 1;
}

Device device_of(const char *hostname, const char *interface) {
  gloo::transport::tcp::attr attr;
  if (hostname) attr.hostname = hostname;
  if (interface) attr.iface = interface;
  return gloo::transport::tcp::CreateDevice(attr);
}

// Gloo reads an unset pointer if a name does not resolve.
bool resolves(const char *name) {
  struct addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(name, nullptr, &hints, &found)) return false;
  freeaddrinfo(found);
  return true;
}

// The device of the host's name, or loopback if the name resolves to no local address.
Device default_device() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  if (!resolves(name)) return device_of("127.0.0.1", nullptr);
  try {
    return device_of(name, nullptr);
  } catch (const std::exception &) {
    return device_of("127.0.0.1", nullptr);
  }
}

int join(void **out, const px_engine_job *job, char *why, size_t capacity) {
  return guarded(why, capacity, [&] {
    auto joined = std::make_unique<Joined>();
    Store store(*job);
    joined->device = job->interface ? device_of(nullptr, job->interface) : default_device();
    joined->context = std::make_shared<Connections>(job->rank, job->size);
    joined->context->setTimeout(milliseconds(job->timeout_ms));
    joined->context->connect(store, joined->device);
    // Wait for all ranks: a rank leaving at once must not exit before the others see its
    // connection.
    gloo::BarrierOptions together(joined->context);
    together.setTimeout(milliseconds(job->timeout_ms));
    gloo::barrier(together);
    *out = joined.release();
  });
}

void leave(void *self) {
  const NoSigpipe quiet;
  delete static_cast<Joined *>(self);
}

void abort_all(void *self) {
  char why[64];
  guarded(why, sizeof why, [&] { static_cast<Joined *>(self)->context->end(); });
}

// ---- collectives: elements are opaque bytes, except to the reduction functions

struct Call {
  const px_engine_call &c;
  std::shared_ptr<gloo::Context> context;
  size_t bytes() const { return c.item * static_cast<size_t>(c.count); }
  uint8_t *in() const { return static_cast<uint8_t *>(const_cast<void *>(c.in)); }
  uint8_t *out() const { return static_cast<uint8_t *>(c.out); }
};

template <typename Options>
void common(Options &options, const Call &call) {
  options.setTag(call.c.tag);
  options.setTimeout(milliseconds(call.c.timeout_ms));
}

void broadcast(const Call &call) {
  gloo::BroadcastOptions options(call.context);
  common(options, call);
  options.setRoot(call.c.peer);
  options.setOutput(call.out(), call.bytes());
  gloo::broadcast(options);
}

template <typename T>
void all_reduce_of(const Call &call, void *at, size_t count) {
  gloo::AllreduceOptions options(call.context);
  common(options, call);
  options.setReduceFunction(call.c.reduce);
  options.setOutput(static_cast<T *>(at), count);
  gloo::allreduce(options);
}

template <typename T>
void reduce_of(const Call &call, void *at, size_t count) {
  std::vector<T> scratch(call.context->rank == call.c.peer ? 0 : count);
  gloo::ReduceOptions options(call.context);
  common(options, call);
  options.setRoot(call.c.peer);
  options.setReduceFunction(call.c.reduce);
  options.setInput(static_cast<T *>(at), count);
  options.setOutput(scratch.empty() ? static_cast<T *>(at) : scratch.data(), count);
  gloo::reduce(options);
}

// Dispatches on the element size.
using Reduction = void (*)(const Call &call, void *at, size_t count);
void by_size(const Call &call, void *at, size_t count, const Reduction (&sizes)[4]) {
  const int which = call.c.item == 1 ? 0 : call.c.item == 2 ? 1 : call.c.item == 4 ? 2 : 3;
  sizes[which](call, at, count);
}

// Small all_reduces send the input to all ranks at once, and each rank reduces in rank order, so
// all have the same bits. Gloo's ring needs four messages instead of one, with a thread wake-up
// for each.
constexpr size_t DIRECT_BYTES = 1 << 18;  // maximum bytes sent and received by a rank

bool is_direct(const Call &call, size_t count) {
  const auto others = static_cast<size_t>(call.context->size) - 1;
  return others > 0 && others * count * call.c.item <= DIRECT_BYTES;
}

void exchange(const Call &call, void *at, size_t bytes, uint8_t *parts) {
  const auto slot = gloo::Slot::build(gloo::kAllreduceSlotPrefix, call.c.tag);
  const milliseconds timeout(call.c.timeout_ms);
  const int rank = call.context->rank, ranks = call.context->size;
  auto in = call.context->createUnboundBuffer(parts, bytes * static_cast<size_t>(ranks));
  auto out = call.context->createUnboundBuffer(at, bytes);
  for (int step = 1; step < ranks; step++) {
    const int from = (rank + step) % ranks;
    in->recv(from, slot, bytes * static_cast<size_t>(from), bytes);
  }
  for (int step = 1; step < ranks; step++) out->send((rank + ranks - step) % ranks, slot, 0, bytes);
  for (int step = 1; step < ranks; step++) in->waitRecv(timeout);
  for (int step = 1; step < ranks; step++) out->waitSend(timeout);
}

void all_reduce_direct(const Call &call, void *at, size_t count) {
  const size_t bytes = count * call.c.item;
  const auto ranks = static_cast<size_t>(call.context->size);
  const auto rank = static_cast<size_t>(call.context->rank);
  const std::unique_ptr<uint8_t[]> parts(new uint8_t[bytes * ranks]);
  exchange(call, at, bytes, parts.get());
  memcpy(parts.get() + rank * bytes, at, bytes);
  call.c.reduce(at, parts.get(), parts.get() + bytes, count);
  for (size_t r = 2; r < ranks; r++) call.c.reduce(at, at, parts.get() + r * bytes, count);
}

void all_reduce_at(const Call &call, void *at, size_t count) {
  if (is_direct(call, count)) {
    all_reduce_direct(call, at, count);
    return;
  }
  static const Reduction sizes[] = {all_reduce_of<uint8_t>, all_reduce_of<uint16_t>,
                                    all_reduce_of<uint32_t>, all_reduce_of<uint64_t>};
  by_size(call, at, count, sizes);
}

void all_reduce(const Call &call) {
  all_reduce_at(call, call.c.out, static_cast<size_t>(call.c.count));
}

void reduce(const Call &call) {
  static const Reduction sizes[] = {reduce_of<uint8_t>, reduce_of<uint16_t>, reduce_of<uint32_t>,
                                    reduce_of<uint64_t>};
  by_size(call, call.c.out, static_cast<size_t>(call.c.count), sizes);
}

void all_gather(const Call &call) {
  gloo::AllgatherOptions options(call.context);
  common(options, call);
  options.setInput(call.in(), call.bytes());
  options.setOutput(call.out(), call.bytes() * static_cast<size_t>(call.context->size));
  gloo::allgather(options);
}

// Gloo has no reduce_scatter for unregistered memory: reduces everything and keeps this rank's
// part.
void reduce_scatter(const Call &call) {
  const auto ranks = static_cast<size_t>(call.context->size);
  std::vector<uint8_t> all(call.in(), call.in() + call.bytes() * ranks);
  all_reduce_at(call, all.data(), static_cast<size_t>(call.c.count) * ranks);
  memcpy(call.c.out, all.data() + call.bytes() * static_cast<size_t>(call.context->rank),
         call.bytes());
}

// Sizes differ between ranks and are not in the tag, so ranks exchange and compare them.
void check_counts(const Call &call, const std::vector<int64_t> &in,
                  const std::vector<int64_t> &out) {
  std::vector<int64_t> theirs(out.size());
  gloo::AlltoallOptions options(call.context);
  common(options, call);
  options.setInput(const_cast<int64_t *>(in.data()), in.size());
  options.setOutput(theirs.data(), theirs.size());
  gloo::alltoall(options);
  for (size_t r = 0; r < out.size(); r++)
    if (theirs[r] != out[r])
      throw std::runtime_error("rank " + std::to_string(r) + " sends " + std::to_string(theirs[r]) +
                               " bytes, where " + std::to_string(out[r]) + " are awaited");
}

void all_to_all(const Call &call) {
  const auto parts = [&](const int64_t *counts) {
    std::vector<int64_t> bytes(counts, counts + call.context->size);
    for (auto &part : bytes) part *= static_cast<int64_t>(call.c.item);
    return bytes;
  };
  const auto in = parts(call.c.in_counts), out = parts(call.c.out_counts);
  check_counts(call, in, out);
  gloo::AlltoallvOptions options(call.context);
  common(options, call);
  options.setInput(call.in(), in);
  options.setOutput(call.out(), out);
  gloo::alltoallv(options);
}

void gather(const Call &call) {
  gloo::GatherOptions options(call.context);
  common(options, call);
  options.setRoot(call.c.peer);
  options.setInput(call.in(), call.bytes());
  if (call.context->rank == call.c.peer)
    options.setOutput(call.out(), call.bytes() * static_cast<size_t>(call.context->size));
  gloo::gather(options);
}

void scatter(const Call &call) {
  gloo::ScatterOptions options(call.context);
  common(options, call);
  options.setRoot(call.c.peer);
  if (call.context->rank == call.c.peer) {
    std::vector<uint8_t *> parts;
    for (int r = 0; r < call.context->size; r++)
      parts.push_back(call.in() + call.bytes() * static_cast<size_t>(r));
    options.setInputs(parts, call.bytes());
  }
  options.setOutput(call.out(), call.bytes());
  gloo::scatter(options);
}

void barrier(const Call &call) {
  gloo::BarrierOptions options(call.context);
  common(options, call);
  gloo::barrier(options);
}

// ---- sends and receives

struct Pending {
  std::shared_ptr<gloo::Context> context;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  bool sends;
};

// The highest byte is nonzero in slots of Gloo's collectives, and 0 in these.
uint64_t slot_of(const px_engine_call &c) {
  const uint64_t bytes = c.item * static_cast<uint64_t>(c.count);
  return ((bytes * 0x9e3779b97f4a7c15u >> 40) << 32) | c.tag;
}

Pending begin(Joined *self, const px_engine_call &c) {
  const bool sends = c.op == PX_SEND;
  Pending p{self->context, nullptr, sends};
  p.buffer = p.context->createUnboundBuffer(sends ? const_cast<void *>(c.in) : c.out,
                                            c.item * static_cast<size_t>(c.count));
  if (sends) {
    p.buffer->send(c.peer, slot_of(c));
  } else if (c.peer >= 0) {
    p.buffer->recv(c.peer, slot_of(c));
  } else {
    std::vector<int> others;
    for (int r = 0; r < p.context->size; r++)
      if (r != p.context->rank) others.push_back(r);
    p.buffer->recv(others, slot_of(c));
  }
  return p;
}

void end(Pending &p, int *peer, int64_t timeout_ms) {
  if (p.sends)
    p.buffer->waitSend(peer, milliseconds(timeout_ms));
  else
    p.buffer->waitRecv(peer, milliseconds(timeout_ms));
}

int start(void **pending, void *self, const px_engine_call *call, char *why, size_t capacity) {
  return guarded(why, capacity,
                 [&] { *pending = new Pending(begin(static_cast<Joined *>(self), *call)); });
}

int finish(void *pending, int *peer, int64_t timeout_ms, char *why, size_t capacity) {
  std::unique_ptr<Pending> p(static_cast<Pending *>(pending));
  if (timeout_ms < 0) return 0;  // the connections stay
  return guarded(why, capacity, [&] { end(*p, peer, timeout_ms); });
}

// ---- the table

using Collective = void (*)(const Call &call);
const Collective collectives[] = {broadcast,  all_reduce, reduce,  all_gather, reduce_scatter,
                                  all_to_all, gather,     scatter, barrier};

int run(void *self, const px_engine_call *call, char *why, size_t capacity) {
  auto *joined = static_cast<Joined *>(self);
  return guarded(why, capacity, [&] {
    if (call->op == PX_SEND || call->op == PX_RECV) {
      int peer;
      Pending p = begin(joined, *call);
      end(p, &peer, call->timeout_ms);
    } else if (call->count > 0 || call->op == PX_BARRIER || call->op == PX_ALL_TO_ALL) {
      collectives[call->op](Call{*call, joined->context});
    }
  });
}

// Versions of libgloo.so.0 differ in the virtual functions of stores; later ones have this symbol.
extern "C" __attribute__((weak)) void store_has_v2() __asm__(
    "_ZN4gloo10rendezvous5Store14has_v2_supportEv");
#ifdef GLOO_STORE_HAS_STORE_V2
constexpr bool built_with_v2 = true;
#else
constexpr bool built_with_v2 = false;
#endif

int load(const px_engine_paths *paths, char *why, size_t capacity) {
  if ((store_has_v2 != nullptr) == built_with_v2) return 0;
  snprintf(
      why, capacity,
      "libgloo.so.0 is %s than the version that Phlox was built with; Phlox built from sources "
      "on this system uses it (libgloo-dev)",
      built_with_v2 ? "older" : "newer");
  return 1;
}

const px_engine table = {
    PX_ENGINE_ABI, sizeof(px_engine), "gloo",  join,    leave,   abort_all, run,     start,  finish,
    load,          nullptr,           nullptr, nullptr, nullptr, nullptr,   nullptr, nullptr};

}  // namespace

extern "C" __attribute__((visibility("default"))) const px_engine *px_engine_entry(uint32_t abi) {
  return abi == PX_ENGINE_ABI ? &table : nullptr;
}
