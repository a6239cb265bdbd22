// A fake NcclApi among the threads of one process, for tests. A stream is a thread with a queue, so operations continue
// after the call has returned, as on a GPU. A send ends when it is received. With Sends::buffered it ends when it is
// copied, and then needs its communicator until it is received. A communicator is busy for a while after each call, and
// after the first call of a kind until the other ranks have made theirs. Ranks whose calls do not match wait forever.
// all_reduce and reduce_scatter add as on a ring: chunk c begins on rank c + 1, and each addition rounds to the dtype.
//
// The compute stream is the host itself, because the emulated device runs kernels at their launch. With Compute::queued
// it is a stream too: then a test sees how the host runs ahead of its kernels, but buffers that are freed meanwhile are
// not kept for them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/runtime/connections.h"
#include "parallel/comm/nccl/api.h"

namespace trireme::testing {

enum class Sends { rendezvous, buffered };

/// Shared by all ranks.
class Fabric {
 public:
  explicit Fabric(Sends sends = Sends::rendezvous) : sends_(sends) {}
  struct Communicator;  // the ends of one communicator
  std::shared_ptr<Communicator> join(const comm::NcclApi::Id& id, int ranks);
  void break_all(const std::string& problem);  ///< all communicators report this from now on
  int communicators() const;                   ///< joined and not yet aborted, over all ranks
  unsigned next_id();

 private:
  const Sends sends_;
  mutable std::mutex mutex_;
  unsigned ids_ = 0;
  std::string problem_;
  std::map<comm::NcclApi::Id, std::shared_ptr<Communicator>> communicators_;
};

/// A queue of work and the thread that does it.
class FakeStream {
 public:
  FakeStream();
  ~FakeStream();  ///< after all queued work
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;
  void push(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;
  std::thread thread_;
};

enum class Compute { on_host, queued };

/// The API of one rank.
class FakeNccl final : public comm::NcclApi {
 public:
  FakeNccl(std::shared_ptr<Fabric> fabric, std::string device, Compute compute = Compute::on_host);

  void compute(std::function<void()> kernel);  ///< queues it on the compute stream; for Compute::queued

  std::string device() override { return device_; }
  Id make_id() override;
  Comm join(const Id& id, int ranks, int rank, const std::string& name, int most_blocks) override;
  State state(Comm comm) override;
  void abort(Comm comm) noexcept override;
  void end(Comm comm) noexcept override;
  void begin_together() override;
  void end_together() override;
  void send(const void* x, std::size_t bytes, int to, Comm comm, Stream stream) override;
  void receive(void* y, std::size_t bytes, int from, Comm comm, Stream stream) override;
  void all_gather(const void* x, void* y, std::size_t bytes, Comm comm, Stream stream) override;
  void broadcast(void* x, std::size_t bytes, int root, Comm comm, Stream stream) override;
  void all_reduce(void* x, std::int64_t count, DType dtype, Comm comm, Stream stream) override;
  void reduce_scatter(const void* x, void* y, std::int64_t count, DType dtype, Comm comm, Stream stream) override;
  void combine(DType dtype, Reduction op, const void* x, int rows, std::int64_t count, void* y, Stream stream) override;
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override;
  Stream compute_stream() override { return compute_.get(); }
  /// As on a GPU, there must be a connection for each stream, of which the program's kernels use one.
  Stream make_stream() override {
    streams_.add(cuda::kMostConnections - 1);
    return new FakeStream;
  }
  void destroy_stream(Stream stream) noexcept override {
    delete static_cast<FakeStream*>(stream);
    streams_.remove();
  }
  Event make_event() override;
  void destroy_event(Event event) noexcept override;
  void record(Event event, Stream stream) override;
  void make_wait(Stream stream, Event event) override;
  bool happened(Event event) override;

  /// A send to one rank, or a receive from it.
  struct Transfer {
    const std::byte* out = nullptr;
    std::byte* in = nullptr;
    std::size_t bytes = 0;
    int peer = 0;
  };

 private:
  struct End;
  struct Together;
  static thread_local Together together;
  void add(Comm comm, Stream stream, const Transfer& transfer);
  enum class Way { messages, gather, broadcast, large_broadcast, all_reduce, reduce_scatter };
  void start(End& end, Stream stream, std::vector<Transfer> transfers, Way way);

  std::shared_ptr<Fabric> fabric_;
  std::string device_;
  std::unique_ptr<FakeStream> compute_;  // null: the host
  cuda::StreamCount streams_;
};

}  // namespace trireme::testing
