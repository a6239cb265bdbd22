#include "nn/positions.h"

#include <algorithm>
#include <numeric>

namespace trireme::nn {
namespace {

void append(PositionRuns& runs, std::int64_t global, std::int64_t length) {
  if (!runs.empty() && runs.back().global + runs.back().length == global) {
    runs.back().length += length;
    return;
  }
  const std::int64_t local = runs.empty() ? 0 : runs.back().local + runs.back().length;
  runs.push_back({local, global, length});
}

}  // namespace

PositionRuns zigzag(std::int64_t length, int cp, int rank) {
  if (cp == 1) return {{0, 0, length}};
  const std::int64_t chunks = 2 * std::int64_t{cp}, chunk = length / chunks;
  require(chunk * chunks == length, "positions", "{} tokens do not divide into 2 x cp = {} chunks", length, chunks);
  PositionRuns runs;
  append(runs, rank * chunk, chunk);
  append(runs, (chunks - 1 - rank) * chunk, chunk);
  return runs;
}

PositionRuns part(const PositionRuns& runs, int parts, int index) {
  const std::int64_t all = runs.back().local + runs.back().length, each = all / parts;
  require(each * parts == all, "positions", "{} tokens do not divide over {} ranks", all, parts);
  const std::int64_t begin = index * each, end = begin + each;
  PositionRuns result;
  for (const PositionRun& run : runs) {
    const std::int64_t from = std::max(begin, run.local), to = std::min(end, run.local + run.length);
    if (from < to) append(result, run.global + from - run.local, to - from);
  }
  return result;
}

PositionRuns shifted(PositionRuns runs, std::int64_t first) {
  for (PositionRun& run : runs) run.global += first;
  return runs;
}

PositionRuns attention_positions(const DeviceMesh& mesh, std::int64_t length) {
  return zigzag(length, mesh.size(Axis::cp), mesh.coord(Axis::cp));
}

PositionRuns residual_positions(const DeviceMesh& mesh, const Parallelism& parallelism, std::int64_t length) {
  const PositionRuns runs = attention_positions(mesh, length);
  return parallelism.sequence ? part(runs, mesh.size(Axis::tp), mesh.coord(Axis::tp)) : runs;
}

std::int64_t sequence_length(const DeviceMesh& mesh, const Parallelism& parallelism, std::int64_t local) {
  return local * mesh.size(Axis::cp) * (parallelism.sequence ? mesh.size(Axis::tp) : 1);
}

std::int64_t sequence_multiple(const MeshShape& mesh, const Parallelism& parallelism) {
  const std::int64_t cp = mesh.size(Axis::cp), tp = parallelism.sequence ? mesh.size(Axis::tp) : 1;
  return cp * std::lcm(cp > 1 ? std::int64_t{2} : std::int64_t{1}, tp);
}

Tensor position_ids(const PositionRuns& runs) {
  Tensor ids = Tensor::empty({runs.back().local + runs.back().length}, DType::i32);
  auto* id = ids.data<std::int32_t>();
  for (const PositionRun& run : runs) {
    for (std::int64_t i = 0; i < run.length; ++i) id[run.local + i] = static_cast<std::int32_t>(run.global + i);
  }
  return ids;
}

}  // namespace trireme::nn
