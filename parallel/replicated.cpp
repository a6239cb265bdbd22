#include "parallel/replicated.h"

#include "optim/gradient_norm.h"

namespace trireme {

Replicated::Replicated(const nn::ParameterList& parameters, const DeviceMesh& mesh, std::int64_t bucket_bytes)
    : parameters_(parameters),
      mesh_(mesh),
      sync_(parameters, mesh, bucket_bytes),
      shards_(optim::whole_shards(parameters)) {}

double Replicated::gradient_norm() const { return optim::gradient_norm(parameters_, mesh_); }

std::vector<Copied> Replicated::copies(const std::vector<optim::StateTensor>& tensors) const {
  return copies_of(tensors, sync_.tied(), mesh_);
}

}  // namespace trireme
