// What cuDNN says about our graphs: it accepts the tensors and operations, has a deterministic engine for an H200, and
// compiles the kernel. This needs no GPU: no_driver.cpp replaces the driver.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>

#include "core/error.h"
#include "cuda/libraries/sdpa_run.h"
#include "cuda/libraries/sdpa_translate.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace trireme::cuda;

namespace cudnn_library_test {
namespace {

/// An H200 as cuDNN describes a device to itself.
constexpr std::string_view kH200 = R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],
"regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,
"maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,
"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,
"totalGlobalMem":150000000000,"smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":62914560,
"cudaDeviceId":0,"deviceVer":900,"driverVer":13000,"deviceName":"NVIDIA H200"})";

struct Case {
  int batch, heads, kv_heads, head_dim, queries, keys;
  bool causal;
};

/// q, k and v as parts of one packed tensor.
template <class T>
AttentionForward<T> attention(const Case& c) {
  AttentionForward<T> p{};
  p.batch = c.batch;
  p.heads = c.heads;
  p.kv_heads = c.kv_heads;
  p.head_dim = c.head_dim;
  p.queries = c.queries;
  p.keys = c.keys;
  p.causal = c.causal;
  p.q_pitch = p.kv_pitch = std::int64_t{c.heads + 2 * c.kv_heads} * c.head_dim;
  p.out_pitch = std::int64_t{c.heads} * c.head_dim;
  return p;
}

/// The bytes of workspace; a plan that cannot be made throws.
template <class T>
std::int64_t plan(const Case& c, bool backward) {
  const AttentionForward<T> forward = attention<T>(c);
  if (!backward) return plan_cudnn_attention(translate(forward).problem, kH200);
  AttentionBackward<T> p{};
  p.forward = forward;
  p.dout_pitch = forward.out_pitch;
  p.dq_pitch = p.dkv_pitch = forward.q_pitch;
  return plan_cudnn_attention(translate(p).problem, kH200);
}

/// Loads the stand-in. From now on every search for libcuda.so.1 finds it.
void stand_in_for_the_driver() {
  static void* const driver = dlopen(TRIREME_NO_DRIVER, RTLD_NOW | RTLD_GLOBAL);
  REQUIRE(driver != nullptr);
}

}  // namespace

TEST_CASE("cudnn library: plans for an H200, forward") {
  stand_in_for_the_driver();
  CHECK_NOTHROW(plan<bf16>({2, 12, 12, 64, 1024, 1024, true}, false));  // GPT-2
  CHECK_NOTHROW(plan<f16>({1, 8, 2, 128, 100, 130, true}, false));      // ragged, groups, bottom right
  CHECK_NOTHROW(plan<bf16>({1, 4, 4, 80, 33, 64, false}, false));
}

TEST_CASE("cudnn library: plans for an H200, backward, with memory for ds") {
  stand_in_for_the_driver();
  CHECK(plan<bf16>({2, 12, 12, 64, 1024, 1024, true}, true) >= std::int64_t{2} * 2 * 12 * 1024 * 1024);
  CHECK_NOTHROW(plan<f16>({1, 8, 2, 128, 100, 130, true}, true));
  CHECK_NOTHROW(plan<bf16>({1, 4, 4, 80, 33, 64, false}, true));
}

TEST_CASE("cudnn library: a refused tensor names the call, the place and the attention") {
  SdpaProblem problem = translate(attention<bf16>({1, 2, 2, 64, 16, 16, false})).problem;
  problem.q.dims[3] = -64;
  const std::string message = testing::error_of([&] { plan_cudnn_attention(problem, kH200); });
  for (const char* part : {"cudnnBackend", "cudnn_graph.cpp:", "full attention forward in bf16: batch 1"})
    CHECK(testing::says(message, part));
}

}  // namespace cudnn_library_test
