// The calls of NCCL and of CUDA's streams and events that NcclGroup needs, as one thin interface. nccl/library.cpp
// passes each call on; tests replace it by an implementation within the process.
//
// Nothing here waits: operations and events are queued in streams. Handles are opaque; the caller that made one owns
// it. Library errors are thrown. Read next: parallel/comm/nccl/group.h.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "core/dtype.h"
#include "core/kernels.h"

namespace trireme::comm {

class NcclApi {
 public:
  using Comm = void*;
  using Stream = void*;
  using Event = void*;
  using Id = std::array<unsigned char, 128>;

  enum class Health { ready, busy, broken };
  struct State {
    Health health = Health::ready;
    std::string problem;  ///< when broken
  };

  virtual ~NcclApi() = default;
  virtual std::string device() = 0;  ///< identifies this rank's GPU among those of all nodes

  // ---- communicators; one call at a time for each ----
  virtual Id make_id() = 0;
  /// The communicator of the ranks that pass this id. Busy until all have joined. `most_blocks`: thread blocks that one
  /// operation may occupy on the GPU. Persistent kernels leave as many multiprocessors free (cuda/device/persistent.h).
  virtual Comm join(const Id& id, int ranks, int rank, const std::string& name, int most_blocks) = 0;
  /// After join and after each operation it may be busy for a while; the next call must wait until it is not.
  virtual State state(Comm comm) = 0;
  /// Frees it without waiting for other ranks. Operations under way end soon, with undefined results.
  virtual void abort(Comm comm) noexcept = 0;
  /// Frees it once nothing is under way here and the data that other ranks still need has been sent. Waits a second at
  /// most.
  virtual void end(Comm comm) noexcept = 0;

  // ---- operations; those between begin_together and end_together of a thread start together. Sizes in bytes, except
  // those of all_reduce and reduce_scatter ----
  virtual void begin_together() = 0;
  virtual void end_together() = 0;
  virtual void send(const void* x, std::size_t bytes, int to, Comm comm, Stream stream) = 0;
  virtual void receive(void* y, std::size_t bytes, int from, Comm comm, Stream stream) = 0;
  /// y [ranks, bytes]; x may be this rank's part of y.
  virtual void all_gather(const void* x, void* y, std::size_t bytes, Comm comm, Stream stream) = 0;
  virtual void broadcast(void* x, std::size_t bytes, int root, Comm comm, Stream stream) = 0;
  /// x, in place, becomes the sum of all ranks' x. The library adds in `dtype`, in an order that it chooses.
  virtual void all_reduce(void* x, std::int64_t count, DType dtype, Comm comm, Stream stream) = 0;
  /// y [count] = the sum of this rank's row of x [ranks, count].
  virtual void reduce_scatter(const void* x, void* y, std::int64_t count, DType dtype, Comm comm, Stream stream) = 0;

  // ---- on this rank's device ----
  /// As cuda/kernels/rank_order.h.
  virtual void combine(DType dtype, Reduction op, const void* x, int rows, std::int64_t count, void* y,
                       Stream stream) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;  ///< no overlap
  virtual Stream compute_stream() = 0;  ///< where the program's kernels are queued
  virtual Stream make_stream() = 0;
  virtual void destroy_stream(Stream stream) noexcept = 0;  ///< waits for what is queued
  virtual Event make_event() = 0;
  virtual void destroy_event(Event event) noexcept = 0;
  virtual void record(Event event, Stream stream) = 0;     ///< happens after all work queued there so far
  virtual void make_wait(Stream stream, Event event) = 0;  ///< later work there waits for it
  virtual bool happened(Event event) = 0;
};

bool built_with_nccl();
/// The NCCL that this program was built with, for the opened device. Throws ExitCode::usage if built without NCCL.
std::shared_ptr<NcclApi> nccl_library();

}  // namespace trireme::comm
