// Implements cuda/libraries/sdpa_run.h with cuDNN. cuDNN has no call "attention": it takes a graph of operations, and
// an engine recognises and fuses it. Plans are cached by problem. The handle and its executions belong to one thread at
// a time; workspace is allocated for each call.
// Read next: cuda/libraries/sdpa_graph.h, cudnn_graph.h.
#include <cudnn.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/device_work.h"
#include "core/error.h"
#include "core/memory.h"
#include "cuda/libraries/cudnn_graph.h"
#include "cuda/libraries/sdpa_run.h"
#include "cuda/runtime/check.h"

namespace trireme::cuda {
namespace {

constexpr std::size_t kOldestVersion = 91600;  // earlier ones need keys in multiples of 128 for the backward

CudnnPlan make_plan(const SdpaGraph& graph, const CudnnDevice& device, std::string_view what) {
  if (cudnnGetVersion() < kOldestVersion)
    fail(ExitCode::usage, "attention", "cuDNN {} was found; expected {} or later; choose another --attention",
         cudnnGetVersion(), kOldestVersion);
  return cudnn_plan(cudnn_operations(graph, device, what), device, what);
}

/// A plan with its graph, and the text that its descriptors use in errors.
struct Planned {
  std::string what;
  SdpaGraph graph;
  CudnnPlan plan;

  Planned(const SdpaProblem& problem, cudnnHandle_t handle)
      : what(to_string(problem)), graph(sdpa_graph(problem)), plan(make_plan(graph, {.handle = handle}, what)) {}
};

/// The state of one GPU. Never destroyed: at program exit the driver may be gone before its destructor runs.
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

/// In host memory, read while a graph is executed.
struct Scalars {
  float scale = 1, minus_infinity = -std::numeric_limits<float>::infinity(), one = 1;
  std::int32_t queries = 0, keys = 0;
};

const void* address(SdpaId id, const SdpaCall& call, const Scalars& scalars) {
  switch (id) {
    case SdpaId::q:
      return call.q;
    case SdpaId::k:
      return call.k;
    case SdpaId::v:
      return call.v;
    case SdpaId::out:
      return call.out;
    case SdpaId::lse:
      return call.lse;
    case SdpaId::dout:
      return call.dout;
    case SdpaId::delta:
      return call.delta;
    case SdpaId::dq:
      return call.dq;
    case SdpaId::dk:
      return call.dk;
    case SdpaId::dv:
      return call.dv;
    case SdpaId::scale:
      return &scalars.scale;
    case SdpaId::minus_infinity:
      return &scalars.minus_infinity;
    case SdpaId::queries:
      return &scalars.queries;
    case SdpaId::keys:
      return &scalars.keys;
    case SdpaId::one:
      return &scalars.one;
    case SdpaId::none:
      break;
  }
  fail(ExitCode::internal, "attention", "node {} has no memory", static_cast<int>(id));
}

/// The pointers of a call, by their ids in the graph.
CudnnDescriptor variant_pack(const SdpaGraph& graph, const SdpaCall& call, const Scalars& scalars, void* workspace,
                             std::string_view what) {
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  for (const SdpaNode& node : graph.nodes) {
    if (node.id == SdpaId::none) continue;
    ids.push_back(static_cast<std::int64_t>(node.id));
    pointers.push_back(const_cast<void*>(address(node.id, call, scalars)));  // also of outputs
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, what);
  const auto count = static_cast<std::int64_t>(ids.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data())
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
      .finalize();
  return pack;
}

}  // namespace

void run_cudnn_attention(const SdpaCall& call, void* stream) {
  const SdpaProblem& problem = call.problem;
  Context& context = Context::current();
  const std::scoped_lock lock(context.mutex);
  if (context.handle == nullptr) TRIREME_CUDNN(cudnnCreate(&context.handle), to_string(problem));
  std::unique_ptr<Planned>& planned = context.plans[problem];
  if (planned == nullptr) planned = std::make_unique<Planned>(problem, context.handle);
  const std::string& what = planned->what;
  TRIREME_CUDNN(cudnnSetStream(context.handle, static_cast<cudaStream_t>(stream)), what);

  // Freed when this returns, in stream order: the next user's kernels run after those that use it.
  const MemoryPool::Block workspace(MemoryPool::current()->on(Device::cuda),
                                    static_cast<std::size_t>(std::max<std::int64_t>(planned->plan.workspace, 1)),
                                    MemoryCategory::workspace);
  const Scalars scalars{.scale = call.scale,
                        .queries = static_cast<std::int32_t>(problem.q.dims[2]),
                        .keys = static_cast<std::int32_t>(problem.k.dims[2])};
  const CudnnDescriptor pack = variant_pack(planned->graph, call, scalars, workspace.data(), what);
  ++device_work().launches;
  TRIREME_CUDNN(cudnnBackendExecute(context.handle, planned->plan.descriptor.get(), pack.get()), what);
}

std::int64_t plan_cudnn_attention(const SdpaProblem& problem, std::string_view device_json) {
  const std::string what = to_string(problem);
  const CudnnDescriptor properties = cudnn_properties(device_json, what);
  return make_plan(sdpa_graph(problem), {.properties = &properties}, what).workspace;
}

}  // namespace trireme::cuda
