#include "parallel/data_parallel/replicated.h"

#include <numeric>

#include "parallel/data_parallel/gradient_norm.h"

namespace trireme {

Replicated::Replicated(const ParameterList& parameters, const DeviceMesh& mesh, std::int64_t bucket_bytes)
    : parameters_(parameters),
      mesh_(mesh),
      sync_(parameters, mesh, bucket_bytes),
      shards_(whole_shards(parameters)),
      places_(shards_.size()) {
  std::iota(places_.begin(), places_.end(), std::size_t{0});
}

void Replicated::sum_squares(Tensor& sum) const {
  std::vector<GradientPart> parts;
  for (const ParameterPtr& parameter : trained(parameters_))
    parts.push_back({parameter.get(), parameter->defined_grad("gradient_norm")});
  trireme::sum_squares(parts, mesh_, sum);
}

void Replicated::require_summed(std::string_view where) const {
  for (const ParameterPtr& parameter : trained(parameters_)) parameter->require_summed(where);
}

std::vector<ReplicatedTensor> Replicated::copies(const std::vector<StateTensor>& tensors) const {
  return copies_of(tensors, sync_.tied(), mesh_);
}

}  // namespace trireme
