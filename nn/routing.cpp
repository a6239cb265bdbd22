#include "nn/routing.h"

#include <algorithm>
#include <utility>

#include "parallel/comm/exact_reduce.h"

namespace trireme::nn {
namespace {

/// b_e += rate * sign(mean - load_e). Compared as load_e * E against the sum: whole numbers, without rounding.
void move_bias(Routing& router, const double* load) {
  const std::int64_t experts = router.load.count();
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) sum += load[e];
  Tensor moved = router.bias->value.to(Device::cpu);  // [E]
  auto* bias = moved.data<float>();
  for (std::int64_t e = 0; e < experts; ++e) {
    const double above = load[e] * static_cast<double>(experts) - sum;
    const double direction = above < 0 ? 1 : above > 0 ? -1 : 0;
    bias[e] = static_cast<float>(bias[e] + router.rate * direction);
  }
  if (moved.device() != router.bias->value.device()) copy(moved, router.bias->value);
}

double imbalance_of(const double* load, std::int64_t experts) {
  double sum = 0, largest = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    sum += load[e];
    largest = std::max(largest, load[e]);
  }
  return sum > 0 ? largest * static_cast<double>(experts) / sum : 0;
}

}  // namespace

Routing& RoutingLog::add(std::int64_t experts) {
  routers_.push_back({.load = Tensor::zeros({experts}, DType::f64)});
  return routers_.back();
}

RoutingReport RoutingLog::finish(const DeviceMesh& mesh, bool sequence, bool applied) {
  std::int64_t size = 0;
  for (const Routing& router : routers_) size += router.load.count() + 2;
  Tensor all = Tensor::zeros({std::max<std::int64_t>(size, 1)}, DType::f64);  // per router: load [E], balance, z
  auto* at = all.data<double>();
  for (Routing& router : routers_) {
    at = std::copy_n(router.load.data<double>(), router.load.count(), at);
    *at++ = std::exchange(router.balance, 0);
    *at++ = std::exchange(router.z, 0);
    std::fill_n(router.load.data<double>(), router.load.count(), 0.0);
  }
  mesh.group(Axis::data).all_reduce(all).wait();
  if (sequence) mesh.group(Axis::tp).all_reduce(all).wait();

  ExactSum balance, z, routers;  // over the model: exact, as stages may be cut anywhere
  Tensor largest = Tensor::zeros({1}, DType::f64);
  const auto* from = all.data<double>();
  for (Routing& router : routers_) {
    const std::int64_t experts = router.load.count();
    if (applied && router.bias) move_bias(router, from);
    double* const largest_yet = largest.data<double>();
    *largest_yet = std::max(*largest_yet, imbalance_of(from, experts));
    balance.add(from[experts]);
    z.add(from[experts + 1]);
    routers.add(1);
    from += experts + 2;
  }
  for (ExactSum* sum : {&balance, &z, &routers}) all_reduce(*sum, mesh.group(Axis::pp));
  mesh.group(Axis::pp).all_reduce(largest, ReduceOp::max).wait();
  const double count = std::max(1.0, routers.value());
  return {balance.value() / count, z.value() / count, largest.item()};
}

}  // namespace trireme::nn
