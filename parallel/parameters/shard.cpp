#include "parallel/parameters/shard.h"

#include <algorithm>

#include "core/kernels.h"

namespace trireme {

DimRange even_share(std::int64_t extent, int ranks, int rank) {
  const std::int64_t rows = extent / ranks, more = extent % ranks;
  return {rank * rows + std::min<std::int64_t>(rank, more), rows + (rank < more ? 1 : 0)};
}

int dim_to_cut(const Shape& shape, int ranks) {
  constexpr std::int64_t rows_per_rank = 16;
  const int candidates = std::max(1, shape.dims() - 1);
  int longest = 0;
  for (int dim = 0; dim < candidates; ++dim) {
    if (shape[dim] >= rows_per_rank * ranks) return dim;
    if (shape[dim] > shape[longest]) longest = dim;
  }
  return longest;
}

Tensor Shard::part(const Tensor& local, int rank) const {
  const DimRange mine = range(rank);
  return view::slice(local, dim, mine.start, mine.length);
}

Rectangle Shard::rectangle() const {
  Rectangle result = parameter->rectangle;
  result.start[dim] += range().start;
  return result;
}

ShardList whole_shards(const ParameterList& parameters) {
  ShardList shards;
  for (const ParameterPtr& parameter : parameters) {
    auto shard = std::make_shared<Shard>();
    shard->parameter = parameter;
    shard->weights = parameter->local.detach();
    shards.push_back(std::move(shard));
  }
  return shards;
}

std::string StateTensor::full_name() const {
  return name.empty() ? parameter->name : fmt::format("optimizer.{}.{}", name, parameter->name);
}

std::vector<StateTensor> whole_weights(const ParameterList& parameters) {
  std::vector<StateTensor> weights;
  for (const ParameterPtr& p : parameters) weights.push_back({"", p.get(), p->local.detach(), nullptr});
  return weights;
}

}  // namespace trireme
