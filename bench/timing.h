// What the benchmarks of kernels share: candidates that take turns, medians, random inputs, tables in Markdown.
// Read next: bench/gemm_bench.cpp; bench/peaks.h (the limits that times are compared with).
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/tensor.h"

namespace trireme::bench {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Candidate {
  std::string name;
  std::function<void()> run;
  std::function<void()> prepare = [] {};  ///< at the beginning of a turn, not timed
  std::vector<double> times = {};         ///< seconds of a call, one for each repeat

  double seconds() const { return median(times); }
};

/// Times calls of all candidates. They take turns within a repeat, so that a disturbance hits all of them. The first
/// call of a turn wakes threads and is not timed. `flops`: of a call; short calls are timed in larger groups.
inline void take_turns(std::vector<Candidate>& candidates, double flops, int repeats) {
  const int calls = static_cast<int>(std::clamp(2e8 / flops, 1.0, 2000.0));
  for (Candidate& each : candidates) {
    each.prepare();
    each.run();
  }
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (Candidate& each : candidates) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // OpenMP's threads still spin on our cores
      each.prepare();
      each.run();
      const auto start = Clock::now();
      for (int call = 0; call < calls; ++call) each.run();
      each.times.push_back(seconds_since(start) / calls);
    }
  }
}

/// Uniform in [-0.5, 0.5).
inline Tensor random_tensor(const Shape& shape, std::uint64_t stream, DType dtype) {
  Tensor x = Tensor::empty(shape);
  float* data = x.data<float>();
  for (std::int64_t i = 0; i < x.count(); ++i)
    data[i] = random_uniform(1, stream, static_cast<std::uint64_t>(i)) - 0.5F;
  return cast(x, dtype);
}

/// A table for a file under bench/results/.
class MarkdownTable {
 public:
  MarkdownTable(const std::string& title, const std::vector<std::string>& columns) : text_("### " + title + "\n\n") {
    row(columns);
    row(std::vector<std::string>(columns.size(), "---"));
  }
  void row(const std::vector<std::string>& cells) { text_ += fmt::format("| {} |\n", fmt::join(cells, " | ")); }
  std::string text() const { return text_ + "\n"; }

 private:
  std::string text_;
};

inline std::string thread_count(int team) { return team == 1 ? "1 thread" : fmt::format("{} threads", team); }
/// "102 (87%)".
inline std::string share(double gigas, double peak) {
  return fmt::format("{:.3g} ({:.0f}%)", gigas, 100 * gigas / peak);
}

}  // namespace trireme::bench
