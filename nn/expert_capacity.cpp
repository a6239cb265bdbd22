#include "nn/expert_capacity.h"

#include <cmath>
#include <vector>

#include "nn/positions.h"

namespace trireme::nn {
namespace {

/// Where a position of the sequence is: on which cp rank, and which of its tokens.
struct TokenLocation {
  int rank;
  std::int64_t token;
};

std::vector<TokenLocation> sequence_order(std::int64_t length, int cp) {
  std::vector<TokenLocation> order(static_cast<std::size_t>(length));
  for (int rank = 0; rank < cp; ++rank) {
    for (const PositionRun& run : zigzag(length, cp, rank)) {
      for (std::int64_t i = 0; i < run.length; ++i)
        order[static_cast<std::size_t>(run.global + i)] = {rank, run.local + i};
    }
  }
  return order;
}

/// The choices of the whole sequences: [cp, B, T/cp, K].
Tensor gathered_over_cp(const Tensor& expert, const DeviceMesh& mesh) {
  const int cp = mesh.size(Axis::cp);
  const Tensor all = Tensor::empty({cp, expert.size(0), expert.size(1), expert.size(2)}, DType::i32);
  mesh.group(Axis::cp).all_gather(expert, all).wait();
  return all;
}

}  // namespace

std::int64_t expert_capacity(const ExpertsOptions& options, std::int64_t length) {
  const double share = static_cast<double>(options.top_k * length) / static_cast<double>(options.count);
  constexpr double rounding = 1e-9;  // 1.1 * 10 is 11.000000000000002, of which the ceiling is 12
  return static_cast<std::int64_t>(std::ceil(options.capacity_factor.value() * share * (1 - rounding)));
}

Tensor drop_beyond(const Tensor& expert, std::int64_t experts, std::int64_t capacity, const DeviceMesh& mesh) {
  const int cp = mesh.size(Axis::cp), here = mesh.coord(Axis::cp);
  const std::int64_t batch = expert.size(0), local = expert.size(1), choices = expert.size(2);
  const Tensor all = gathered_over_cp(contiguous(expert), mesh);  // [cp, B, T/cp, K]
  const std::vector<TokenLocation> order = sequence_order(local * cp, cp);
  Tensor kept = clone(expert);  // [B, T/cp, K]
  for (std::int64_t b = 0; b < batch; ++b) {
    std::vector<std::int64_t> taken(static_cast<std::size_t>(experts), 0);
    for (const auto& [rank, token] : order) {
      const std::int64_t row = (b * local + token) * choices;
      for (std::int64_t k = 0; k < choices; ++k) {
        const auto e = static_cast<std::size_t>(all.data<std::int32_t>()[rank * expert.count() + row + k]);
        if (++taken[e] > capacity && rank == here) kept.data<std::int32_t>()[row + k] = -1;
      }
    }
  }
  return kept;
}

}  // namespace trireme::nn
