#include "parallel/data_parallel/gradient_norm.h"

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

/// Each rank of tp computes the gradients of replicated parameters itself. If damage makes one of these gradients NaN
/// or infinite, that rank alone would skip the step, and wait for the others in other collectives. So the sum becomes
/// non-finite on all: each adds a share of all sums that is too small to change a finite one by a bit.
void share_non_finite(ProcessGroup& tp, Tensor& sum) {
  if (tp.size() == 1) return;
  constexpr double kTooSmallToChange = 1e-300;
  Tensor shares = Tensor::zeros({1}, DType::f64, sum.device());
  kernels(sum.device()).axpby(kTooSmallToChange, sum, 0.0, shares);
  tp.all_reduce(shares).wait();
  kernels(sum.device()).axpby(1.0, shares, 1.0, sum);
}

}  // namespace

void sum_squares(const std::vector<GradientPart>& parts, const DeviceMesh& mesh, Tensor& sum) {
  const KernelTable& k = kernels(sum.device());
  if (sum.device() == Device::cpu) {
    k.fill(sum, exact_squares(parts, mesh));
    return share_non_finite(mesh.group(Axis::tp), sum);
  }
  k.fill(sum, 0);
  for (const SameGroups& kind : by_groups(parts, mesh)) {
    Tensor squares = Tensor::empty({1}, DType::f64, sum.device());
    k.squares_to(kind.gradients, squares);
    for (ProcessGroup* group : kind.groups) add_over(*group, squares);
    k.axpby(1.0, squares, 1.0, sum);
  }
  add_over(mesh.group(Axis::pp), sum);
  share_non_finite(mesh.group(Axis::tp), sum);
}

double gradient_norm(const ParameterList& parameters, const DeviceMesh& mesh) {
  require_same_mesh("gradient_norm", parameters, mesh);
  std::vector<GradientPart> parts;
  for (const ParameterPtr& parameter : trained(parameters)) {
    parameter->require_summed("gradient_norm");
    parts.push_back({parameter.get(), parameter->defined_grad("gradient_norm")});
  }
  Tensor sum = Tensor::empty({1}, DType::f64, parts.empty() ? Device::cpu : parts.front().gradient.device());
  sum_squares(parts, mesh, sum);
  return std::sqrt(sum.item());
}

double clip_gradients(const ParameterList& parameters, const DeviceMesh& mesh, double most) {
  if (!(most > 0)) fail(ExitCode::usage, "clip_gradients", "a norm of at most {}; expected more than 0", most);
  const double norm = gradient_norm(parameters, mesh);
  if (!std::isfinite(norm))
    fail(ExitCode::numerical, "clip_gradients",
         "the norm of the gradients is {}; expected a finite number; skip this step, or lower the learning rate", norm);
  const double factor = clip_factor(norm, most);
  if (factor == 1) return norm;
  for (const ParameterPtr& parameter : trained(parameters)) {
    Tensor& gradient = parameter->grad();
    kernels(gradient.device()).axpby(0.0, gradient, factor, gradient);
  }
  return norm;
}

}  // namespace trireme
