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

/// On the CPU: without rounding.
double exact_squares(const std::vector<GradientPart>& parts, const DeviceMesh& mesh) {
  ExactSum total;
  for (const SameGroups& kind : by_groups(parts, mesh)) {
    ExactSum squares = kernels(kind.gradients.front().device()).sum_squares(kind.gradients);
    for (ProcessGroup* group : kind.groups) all_reduce(squares, *group);
    total.add(squares);
  }
  if (mesh.size(Axis::pp) > 1) all_reduce(total, mesh.group(Axis::pp));
  return total.value();
}

void add_over(ProcessGroup& group, const Tensor& x) {
  if (group.size() > 1) group.all_reduce(x).wait();
}

}  // namespace

void sum_squares(const std::vector<GradientPart>& parts, const DeviceMesh& mesh, Tensor& sum) {
  const KernelTable& k = kernels(sum.device());
  if (sum.device() == Device::cpu) return k.fill(sum, exact_squares(parts, mesh));
  k.fill(sum, 0);
  for (const SameGroups& kind : by_groups(parts, mesh)) {
    Tensor squares = Tensor::empty({1}, DType::f64, sum.device());
    k.squares_to(kind.gradients, squares);
    for (ProcessGroup* group : kind.groups) add_over(*group, squares);
    k.axpby(1.0, squares, 1.0, sum);
  }
  add_over(mesh.group(Axis::pp), sum);
}

double gradient_norm(const ParameterList& parameters, const DeviceMesh& mesh) {
  std::vector<GradientPart> parts;
  for (const ParameterPtr& parameter : parameters) parts.push_back({parameter.get(), parameter->grad()});
  Tensor sum = Tensor::empty({1}, DType::f64, parts.empty() ? Device::cpu : parts.front().gradient.device());
  sum_squares(parts, mesh, sum);
  return std::sqrt(sum.item());
}

}  // namespace trireme
