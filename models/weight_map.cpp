#include "models/weight_map.h"

namespace trireme {

WeightEntry same_weight(std::string ours, std::string theirs, const Shape& shape) {
  return {.name = std::move(ours), .shape = shape, .parts = {{.name = std::move(theirs), .shape = shape}}};
}

Shape part_shape(const WeightEntry& entry, const WeightPart& part) {
  std::vector<std::int64_t> extents;
  for (int dim = static_cast<int>(part.at.size()); dim < entry.shape.dims(); ++dim) extents.push_back(entry.shape[dim]);
  return Shape(std::span<const std::int64_t>(extents));
}

}  // namespace trireme
