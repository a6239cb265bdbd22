#include "train/gpt/model_copies.h"

#include <fmt/format.h>

#include <numeric>
#include <vector>

namespace trireme {

// A copy has whole groups of ep and whole groups of cp: the fewest dp ranks whose ranks along data ep divides.
int model_copies(const MeshShape& shape) {
  const int ep = shape.size(Axis::ep);
  return shape.size(Axis::dp) * std::gcd(ep, shape.size(Axis::cp)) / ep;
}

ModelCopy model_copy(const std::shared_ptr<ProcessGroup>& world, const MeshShape& shape) {
  ModelCopy copy{.copies = model_copies(shape), .number = 0, .group = world, .shape = shape};
  if (copy.copies == 1) return copy;
  copy.shape.at(Axis::dp) = shape.size(Axis::dp) / copy.copies;
  // World rank = (pp * DATA + data) * TP + tp, and a copy has neighbours along data.
  const int within = copy.shape.size(Axis::data) * copy.shape.size(Axis::tp);
  const auto copy_of = [&](int rank) { return rank / within % copy.copies; };
  copy.number = copy_of(world->rank());
  std::vector<int> members;
  for (int rank = 0; rank < world->size(); ++rank)
    if (copy_of(rank) == copy.number) members.push_back(world->world_rank(rank));
  copy.group = world->subgroup(members, fmt::format("copy {} of the model", copy.number));
  return copy;
}

}  // namespace trireme
