#include "parallel/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "core/kernels.h"
#include "parallel/comm/exact_reduce.h"

namespace trireme {
namespace {

/// Gradients that are cut over the same groups.
struct SameGroups {
  std::vector<ProcessGroup*> groups;
  std::vector<Tensor> gradients;
};

std::vector<ProcessGroup*> groups_of(const GradientPart& part, const DeviceMesh& mesh) {
  std::vector<ProcessGroup*> groups;
  if (part.shards != nullptr) groups.push_back(part.shards);
  for (const Axis axis : shard_axes(part.parameter->placements, mesh)) groups.push_back(&mesh.group(axis));
  return groups;
}

/// In the order of the parts: the same on all ranks of a stage.
std::vector<SameGroups> by_groups(const std::vector<GradientPart>& parts, const DeviceMesh& mesh) {
  std::vector<SameGroups> kinds;
  for (const GradientPart& part : parts) {
    if (part.parameter->copy_of_earlier_stage) continue;
    std::vector<ProcessGroup*> groups = groups_of(part, mesh);
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const SameGroups& k) { return k.groups == groups; });
    if (kind == kinds.end()) kind = kinds.insert(kind, {std::move(groups), {}});
    kind->gradients.push_back(part.gradient);
  }
  return kinds;
}

}  // namespace

double gradient_norm(const std::vector<GradientPart>& parts, const DeviceMesh& mesh) {
  ExactSum total;
  for (const SameGroups& kind : by_groups(parts, mesh)) {
    ExactSum squares = kernels(kind.gradients.front().device()).sum_squares(kind.gradients);
    for (ProcessGroup* group : kind.groups) all_reduce(squares, *group);
    total.add(squares);
  }
  if (mesh.size(Axis::pp) > 1) all_reduce(total, mesh.group(Axis::pp));
  return std::sqrt(total.value());
}

double gradient_norm(const ParameterList& parameters, const DeviceMesh& mesh) {
  std::vector<GradientPart> parts;
  for (const ParameterPtr& parameter : parameters) parts.push_back({parameter.get(), parameter->grad()});
  return gradient_norm(parts, mesh);
}

double clip_factor(double norm, double max_norm) { return max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0; }

}  // namespace trireme
