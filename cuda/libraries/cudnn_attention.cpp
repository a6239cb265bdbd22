// cuda/libraries/sdpa_run.h on cuDNN. cuDNN has no call "attention": one hands it a graph of operations, and an engine
// recognises the whole and fuses it. Plans are kept by problem; the handle and what it executes belong to one thread at a
// time; workspace is taken for each call.
// Read next: cuda/libraries/sdpa_graph.h, cudnn_graph.h.
#include <cudnn.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/memory.h"
#include "cuda/libraries/cudnn_graph.h"
#include "cuda/libraries/sdpa_run.h"
#include "cuda/runtime/check.h"

namespace trireme::cuda {
namespace {

constexpr std::size_t kOldestVersion = 91600;  // earlier ones need keys in multiples of 128 for the backward

CudnnPlan make_plan(const SdpaProblem& problem, const CudnnDescriptor& device, std::string_view what) {
  if (cudnnGetVersion() < kOldestVersion)
    fail(ExitCode::usage, "attention", "cuDNN {} was found; expected {} or later; choose another --attention",
         cudnnGetVersion(), kOldestVersion);
  return cudnn_plan(cudnn_operations(sdpa_graph(problem), what), device, what);
}

/// A plan with the text that its descriptors name in errors.
struct Planned {
  std::string what;
  CudnnPlan plan;

  explicit Planned(const SdpaProblem& problem)
      : what(to_string(problem)), plan(make_plan(problem, cudnn_device(what), what)) {}
};

/// The state of one GPU. Never destroyed: at the end of the program the driver may be gone before it would be.
struct Context {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;  ///< of one thread at a time
  std::map<SdpaProblem, std::unique_ptr<Planned>> plans;

  /// Of the calling thread's GPU.
  static Context& current() {
    int device = 0;
    TRIREME_CUDA(cudaGetDevice(&device));
    static std::mutex all;
    static auto& contexts = *new std::map<int, Context>();
    const std::scoped_lock lock(all);
    return contexts[device];
  }
};

/// The pointers of a call, by number. Scalars are read from `scalars` while it is executed.
struct Scalars {
  float scale, minus_infinity = -std::numeric_limits<float>::infinity(), one = 1;
  std::int32_t queries, keys;
};

CudnnDescriptor variant_pack(const SdpaCall& call, Scalars& scalars, void* workspace, std::string_view what) {
  const SdpaProblem& problem = call.problem;
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  const auto add = [&](SdpaId id, const void* pointer) {
    ids.push_back(static_cast<std::int64_t>(id));
    pointers.push_back(const_cast<void*>(pointer));  // the library takes inputs and outputs alike
  };
  add(SdpaId::q, call.q);
  add(SdpaId::k, call.k);
  add(SdpaId::v, call.v);
  add(SdpaId::out, call.out);
  add(SdpaId::lse, call.lse);
  add(SdpaId::scale, &scalars.scale);
  if (problem.causal) add(SdpaId::minus_infinity, &scalars.minus_infinity);
  if (problem.causal && scalars.queries != scalars.keys) {
    add(SdpaId::queries, &scalars.queries);
    add(SdpaId::keys, &scalars.keys);
  }
  if (problem.backward) {
    add(SdpaId::one, &scalars.one);
    add(SdpaId::dout, call.dout);
    add(SdpaId::delta, call.delta);
    add(SdpaId::dq, call.dq);
    add(SdpaId::dk, call.dk);
    add(SdpaId::dv, call.dv);
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, what);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, static_cast<std::int64_t>(ids.size()), ids.data())
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<std::int64_t>(pointers.size()),
           pointers.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
      .finalize();
  return pack;
}

}  // namespace

void run_cudnn_attention(const SdpaCall& call, void* stream) {
  const SdpaProblem& problem = call.problem;
  Context& context = Context::current();
  const std::scoped_lock lock(context.mutex);
  std::unique_ptr<Planned>& planned = context.plans[problem];
  if (planned == nullptr) planned = std::make_unique<Planned>(problem);
  const std::string& what = planned->what;
  if (context.handle == nullptr) TRIREME_CUDNN(cudnnCreate(&context.handle), what);
  TRIREME_CUDNN(cudnnSetStream(context.handle, static_cast<cudaStream_t>(stream)), what);

  // Freed when this returns, in the stream's order: whoever gets it next comes after the kernels that use it.
  const MemoryPool::Block workspace(MemoryPool::current()->on(Device::cuda),
                                    static_cast<std::size_t>(std::max<std::int64_t>(planned->plan.workspace, 1)),
                                    MemoryCategory::workspace);
  Scalars scalars{.scale = call.scale,
                  .queries = static_cast<std::int32_t>(problem.q.dims[2]),
                  .keys = static_cast<std::int32_t>(problem.k.dims[2])};
  const CudnnDescriptor pack = variant_pack(call, scalars, workspace.data(), what);
  TRIREME_CUDNN(cudnnBackendExecute(context.handle, planned->plan.descriptor.get(), pack.get()), what);
}

std::int64_t plan_cudnn_attention(const SdpaProblem& problem, std::string_view device_json) {
  const std::string what = to_string(problem);
  return make_plan(problem, cudnn_device(what, device_json), what).workspace;
}

}  // namespace trireme::cuda
