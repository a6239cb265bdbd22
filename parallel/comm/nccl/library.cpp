// Implements NcclApi with NCCL and the CUDA runtime. Compiled by nvcc, because cuda/kernels/rank_order.h uses CUDA's
// types there.
//
// Communicators are non-blocking: a call queues its operation, and may continue in the background until
// ncclCommGetAsyncError no longer returns ncclInProgress. state() checks this. (NCCL User Guide, "Creating a
// communicator with options", "Fault tolerance".)
//
// Operations of several communicators run at the same time, and each may wait for another rank. The guide warns of
// deadlock ("Using multiple NCCL communicators concurrently"): a call that waits for everything on one GPU must not
// hold up what another rank's operation waits for. Therefore kernels are loaded when the device is found
// (cuda/runtime/real.cpp), memory comes from the stream's pool, and messages occupy few blocks (nccl/wire.h). One risk
// remains: at the first message of a direction NCCL allocates memory. None of this has run on a GPU.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "core/error.h"
#include "cuda/device/persistent.h"
#include "cuda/kernels/rank_order.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/connections.h"
#include "cuda/runtime/stream.h"
#include "parallel/comm/nccl/api.h"

namespace trireme::comm {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(NcclApi::Id));

ncclComm_t comm_of(NcclApi::Comm comm) { return static_cast<ncclComm_t>(comm); }
cudaStream_t stream_of(NcclApi::Stream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(NcclApi::Event event) { return static_cast<cudaEvent_t>(event); }

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
      return ncclUint8;
  }
  fail(ExitCode::internal, "nccl", "dtype {} has no type of NCCL", static_cast<int>(dtype));
}

std::string text_of(ncclResult_t result, ncclComm_t comm) {
  const char* const detail = ncclGetLastError(comm);
  std::string text = ncclGetErrorString(result);
  if (detail != nullptr && *detail != '\0') text += std::string(" (") + detail + ")";
  return text;
}

/// Throws unless the call is done or under way.
void check_nccl(ncclResult_t result, std::string_view call, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const bool ours = result == ncclInvalidArgument || result == ncclInvalidUsage;
  fail(ours ? ExitCode::internal : ExitCode::retryable, call, "NCCL says: {}", text_of(result, comm));
}

class NcclLibrary final : public NcclApi {
 public:
  NcclLibrary() : compute_(cuda::current_stream()) { TRIREME_CUDA(cudaGetDevice(&device_)); }

  std::string device() override {
    cudaDeviceProp properties{};
    TRIREME_CUDA(cudaGetDeviceProperties(&properties, device_), "device {}", device_);
    std::string text = "GPU-";
    for (const char byte : properties.uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
  }

  Id make_id() override {
    ncclUniqueId made{};
    check_nccl(ncclGetUniqueId(&made), "ncclGetUniqueId", nullptr);
    Id id{};
    std::memcpy(id.data(), &made, sizeof made);
    return id;
  }

  Comm join(const Id& id, int ranks, int rank, const std::string& name, int most_blocks) override {
    use();
    ncclUniqueId shared{};
    std::memcpy(&shared, id.data(), sizeof shared);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = most_blocks;
    cuda::keep_multiprocessors_free(most_blocks);
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, shared, rank, &config);
    check_nccl(result, fmt::format("ncclCommInitRankConfig of group '{}'", name), comm);
    return comm;
  }

  State state(Comm comm) override {
    ncclResult_t error = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_of(comm), &error);
    if (asked != ncclSuccess) error = asked;
    if (error == ncclSuccess) return {};
    if (error == ncclInProgress) return {Health::busy, ""};
    return {Health::broken, text_of(error, comm_of(comm))};
  }

  void abort(Comm comm) noexcept override {
    cudaSetDevice(device_);
    ncclCommAbort(comm_of(comm));
  }

  // An operation has ended for this GPU when its elements are in a buffer. NCCL's thread may still be sending them to
  // another node; an abort stops it, and finalizing waits for it. But finalizing may also wait for other ranks, which
  // may end their groups in another order or have failed. So it gets only a second. (User Guide, "Finalizing a
  // communicator".)
  void end(Comm comm) noexcept override {
    cudaSetDevice(device_);
    ncclComm_t const ending = comm_of(comm);
    ncclResult_t state = ncclCommFinalize(ending);
    const auto start = std::chrono::steady_clock::now();
    while (state == ncclInProgress && std::chrono::steady_clock::now() - start < std::chrono::seconds(1)) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (ncclCommGetAsyncError(ending, &state) != ncclSuccess) break;
    }
    state == ncclSuccess ? ncclCommDestroy(ending) : ncclCommAbort(ending);
  }

  void begin_together() override { check_nccl(ncclGroupStart(), "ncclGroupStart", nullptr); }
  void end_together() override { check_nccl(ncclGroupEnd(), "ncclGroupEnd", nullptr); }

  // Elements that NCCL only moves are bytes to it.
  void send(const void* x, std::size_t bytes, int to, Comm comm, Stream stream) override {
    use();
    check_nccl(ncclSend(x, bytes, ncclUint8, to, comm_of(comm), stream_of(stream)), "ncclSend", comm_of(comm));
  }
  void receive(void* y, std::size_t bytes, int from, Comm comm, Stream stream) override {
    check_nccl(ncclRecv(y, bytes, ncclUint8, from, comm_of(comm), stream_of(stream)), "ncclRecv", comm_of(comm));
  }
  void all_gather(const void* x, void* y, std::size_t bytes, Comm comm, Stream stream) override {
    check_nccl(ncclAllGather(x, y, bytes, ncclUint8, comm_of(comm), stream_of(stream)), "ncclAllGather", comm_of(comm));
  }
  void broadcast(void* x, std::size_t bytes, int root, Comm comm, Stream stream) override {
    check_nccl(ncclBroadcast(x, x, bytes, ncclUint8, root, comm_of(comm), stream_of(stream)), "ncclBroadcast",
               comm_of(comm));
  }

  void all_reduce(void* x, std::int64_t count, DType dtype, Comm comm, Stream stream) override {
    check_nccl(
        ncclAllReduce(x, x, static_cast<std::size_t>(count), type_of(dtype), ncclSum, comm_of(comm), stream_of(stream)),
        "ncclAllReduce", comm_of(comm));
  }
  void reduce_scatter(const void* x, void* y, std::int64_t count, DType dtype, Comm comm, Stream stream) override {
    check_nccl(ncclReduceScatter(x, y, static_cast<std::size_t>(count), type_of(dtype), ncclSum, comm_of(comm),
                                 stream_of(stream)),
               "ncclReduceScatter", comm_of(comm));
  }

  void combine(DType dtype, Reduction op, const void* x, int rows, std::int64_t count, void* y,
               Stream stream) override {
    cuda::combine_in_order(dtype, op, x, rows, count, y, stream_of(stream));
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    TRIREME_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(stream)), "{} bytes", bytes);
  }

  Stream compute_stream() override { return compute_; }

  // At the highest priority: other ranks wait for communication, so it goes before the kernels beside it.
  Stream make_stream() override {
    use();
    cuda::stream_count.add();
    int lowest = 0, highest = 0;
    TRIREME_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    cudaStream_t stream = nullptr;
    TRIREME_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest));
    return stream;
  }
  void destroy_stream(Stream stream) noexcept override {
    cudaSetDevice(device_);
    cudaStreamSynchronize(stream_of(stream));  // an error here belongs to an operation and has been reported
    cudaStreamDestroy(stream_of(stream));
    cuda::stream_count.remove();
  }

  Event make_event() override {
    use();
    cudaEvent_t event = nullptr;
    TRIREME_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
  }
  void destroy_event(Event event) noexcept override { cudaEventDestroy(event_of(event)); }
  void record(Event event, Stream stream) override {
    use();
    TRIREME_CUDA(cudaEventRecord(event_of(event), stream_of(stream)));
  }
  void make_wait(Stream stream, Event event) override {
    use();
    TRIREME_CUDA(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0));
  }
  bool happened(Event event) override {
    use();
    const cudaError_t error = cudaEventQuery(event_of(event));
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // or the next launch of this thread would report it as its own
      return false;
    }
    TRIREME_CUDA(error, "an operation between ranks");
    return true;
  }

 private:
  /// CUDA keeps the device per thread, and the watch has its own thread.
  void use() const { TRIREME_CUDA(cudaSetDevice(device_), "device {}", device_); }

  Stream compute_;
  int device_ = 0;
};

}  // namespace

bool built_with_nccl() { return true; }

std::shared_ptr<NcclApi> nccl_library() {
  // Without this NCCL connects the ranks for an algorithm at the first operation whose length selects it, and the host
  // waits there for the other ranks.
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  return std::make_shared<NcclLibrary>();
}

}  // namespace trireme::comm
