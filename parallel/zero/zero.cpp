#include "parallel/zero/zero.h"

#include <cmath>

#include "core/kernels.h"
#include "parallel/grad_sync_tied.h"
#include "parallel/mesh/verify.h"

namespace trireme {
namespace {

/// Squares of the gradients that are cut over the same ranks.
struct Squares {
  std::vector<ProcessGroup*> groups;
  double sum = 0;
};

}  // namespace

Zero::Zero(const nn::ParameterList& parameters, nn::Units& units, const DeviceMesh& mesh, const ZeroOptions& options)
    : mesh_(mesh),
      options_(options),
      groups_(make_zero_groups(mesh, options.shard_ranks)),
      buckets_(make_zero_buckets(parameters, units, mesh, groups_, options_, shards_)),
      tied_(find_tied(parameters, mesh)),
      gradients_(buckets_, tied_, mesh, options_.stage >= 2),
      weights_(buckets_, units, options_) {}

void Zero::attach(optim::Optimizer& optimizer) {
  optimizer.set_prepare([this] { settle(); });
}

// Rule 2 with one more axis: squares are added over the axes on which a parameter is S, and over the ranks with its
// shards. Where nothing is cut every rank has the same sum; a tied copy does not count.
double Zero::gradient_norm() const {
  std::vector<Squares> squares;  // in the order of the buckets: the same on all ranks of a stage
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const ZeroBucket& bucket = buckets_[b];
    for (std::size_t i = 0; i < bucket.shards.size(); ++i) {
      const nn::Parameter& parameter = *bucket.shards[i]->parameter;
      if (parameter.copy_of_earlier_stage) continue;
      std::vector<ProcessGroup*> groups;
      if (bucket.group != nullptr) groups.push_back(bucket.group);
      for (const Axis axis : shard_axes(parameter.placements, mesh_)) groups.push_back(&mesh_.group(axis));
      auto found = squares.begin();
      while (found != squares.end() && found->groups != groups) ++found;
      if (found == squares.end()) found = squares.insert(found, {std::move(groups), 0});
      const Tensor gradient = bucket.in_piece(gradients_.piece(b), i);
      if (gradient.count() > 0) found->sum += kernels(gradient.device()).sum_squares(gradient);
    }
  }
  double total = 0;
  for (const Squares& some : squares) {
    const Tensor sum = Tensor::full({1}, some.sum, DType::f64);
    for (ProcessGroup* group : some.groups) group->all_reduce(sum).wait();
    total += sum.item();
  }
  const Tensor sum = Tensor::full({1}, total, DType::f64);
  if (mesh_.size(Axis::pp) > 1) mesh_.group(Axis::pp).all_reduce(sum).wait();
  return std::sqrt(sum.item());
}

void Zero::verify() {
  settle();
  for (const ZeroBucket& bucket : buckets_) {
    for (const optim::ShardPtr& shard : bucket.shards) {
      const nn::Parameter& p = *shard->parameter;
      const bool whole = p.value.has_elements();
      const std::string what = (whole ? "parameter " : "shard of parameter ") + p.name;
      const Tensor value = whole ? p.value.detach() : shard->weights;
      if (whole) require_same(value, mesh_.group(p.placements.ep.sharded() ? Axis::edp : Axis::data), what);
      if (!whole && bucket.replicas != nullptr) require_same(value, *bucket.replicas, what);
      if (!p.placements.tp.sharded()) require_same(value, mesh_.group(Axis::tp), what);
    }
  }
  for (const nn::ParameterPtr& parameter : tied_) {
    for (const optim::ShardPtr& shard : shards_) {
      if (shard->parameter != parameter) continue;
      const Tensor value = parameter->value.has_elements() ? parameter->value.detach() : shard->weights;
      require_same(value, *mesh_.pipeline_ends(), "tied parameter " + parameter->name);
    }
  }
}

Tensor Zero::gradient(std::size_t place) const {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (std::size_t i = 0; i < buckets_[b].shards.size(); ++i) {
      if (buckets_[b].places[i] == place) return buckets_[b].in_piece(gradients_.piece(b), i);
    }
  }
  fail(ExitCode::internal, "zero", "no shard at place {} of {}", place, shards_.size());
}

}  // namespace trireme
