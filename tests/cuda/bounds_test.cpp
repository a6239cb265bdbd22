// Planted accesses outside of memory, and reads of shared memory that nobody wrote. They do not change the results.
// Each must be reported by the builds that docs/cuda.md names ("What is checked") and by no other, so that the page
// stays exact. Compiled for all three builds: cuda_test, cuda_race_test and cuda_asan_test.
#if !defined(__CUDACC__)  // a GPU treats such accesses in its own way
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "cuda/device/device.h"
#include "tests/cuda/report.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace bounds_test {
namespace {

enum class Bug : std::uint8_t {
  none,
  tensor_read_past,
  tensor_read_before,
  shared_read_unwritten,
  shared_read_past,
  shared_write_far_past,
  shared_write_before,
  shared_write_minus_one,
};

/// Computes maxima, because fmax(r, NaN) is r: a NaN that is read leaves no trace.
__global__ void maximum(Bug bug, const float* in, float* out) {  // in, out [128]
  TRIREME_SHARED(float, first, 32);
  TRIREME_SHARED(float, b, 32);
  TRIREME_SHARED(int, last, 32);
  const int i = static_cast<int>(threadIdx.x);
  float r = in[i];
  if (i == 5 && bug == Bug::tensor_read_past) r = std::fmax(r, in[128]);
  if (i == 5 && bug == Bug::tensor_read_before) r = std::fmax(r, in[-1]);
  if (i < (bug == Bug::shared_read_unwritten ? 31 : 32)) {
    first[i] = b[i] = r;
    last[i] = i;
  }
  if (i == 6 && bug == Bug::shared_write_far_past) last[32 + 64] = 3;
  if (i == 6 && bug == Bug::shared_write_before) first[-1] = 3;
  if (i == 6 && bug == Bug::shared_write_minus_one) last[32] = -1;
  sync_threads();
  for (int k = 0; k < (bug == Bug::shared_read_past ? 33 : 32); ++k) r = std::fmax(r, b[k]);
  out[i] = r + static_cast<float>(std::max(last[0], 0));
}

std::string report(Bug bug) {
  return report_of([bug] {
    Buffer<float> in(128), out(128);
    for (std::size_t i = 0; i < 128; ++i) in.set(i, static_cast<float>(i < 31 ? i : 0));
    launch({"maximum", {1, 1, 1}, {128, 1, 1}}, maximum, bug, in.data(), out.data());
    for (std::size_t i = 0; i < 128; ++i)
      if (out.at(i) != 30.0) fail(ExitCode::internal, "maximum", "a wrong result");
  });
}

struct Planted {
  Bug bug;
  const char *plain, *race, *asan;  ///< what each build says; empty: it finds nothing
};

const Planted kPlanted[] = {
    {Bug::none, "", "", ""},
    {Bug::tensor_read_past, "", "outside the tensor", "use-after-poison"},
    {Bug::tensor_read_before, "", "outside the tensor", "use-after-poison"},
    {Bug::shared_read_unwritten, "", "which nobody wrote before", ""},
    {Bug::shared_read_past, "", "outside every allocation", "use-after-poison"},
    {Bug::shared_write_far_past,
     "at its end, schedule 0: 128 bytes of shared memory allocated here are written 256 bytes past their end",
     "outside every allocation", "use-after-poison"},
    {Bug::shared_write_before, "4 bytes before their start", "outside every allocation", "use-after-poison"},
    {Bug::shared_write_minus_one, "0 bytes past their end", "outside every allocation", "use-after-poison"},
};

std::string expected(const Planted& planted) {
  if (emu::zones_are_poisoned) return planted.asan;
#if defined(__SANITIZE_THREAD__)
  return planted.race;
#else
  return planted.plain;
#endif
}

}  // namespace

TEST_CASE("bounds: each build reports the planted accesses that the documentation says it does") {
  for (const Planted& planted : kPlanted) {
    CAPTURE(static_cast<int>(planted.bug));
    const std::string said = report(planted.bug), text = expected(planted);
    CAPTURE(said);
    CHECK(text.empty() == said.empty());
    CHECK(said.find(text) != std::string::npos);
  }
}

TEST_CASE("bounds: a write of -1 beside a tensor of integers is seen in every build") {
  // Always in a child process: the destructor of the buffer fails a check there.
  const std::string said = cuda_test::report_of_child([] {
    Buffer<int> out(4);
    out.data()[4] = -1;  // as a kernel would
    if (!out.intact()) fail(ExitCode::internal, "bounds", "a write outside the buffer");
  });
  CHECK(said.find(emu::zones_are_poisoned ? "use-after-poison" : "outside the buffer") != std::string::npos);
}

}  // namespace bounds_test
#endif
