#include "parallel/zero/zero.h"

#include <cmath>

#include "core/kernels.h"
#include "parallel/grad_sync_tied.h"

namespace trireme {
namespace {

/// Gradients that are cut over the same ranks.
struct CutAlike {
  std::vector<ProcessGroup*> groups;
  std::vector<Tensor> gradients;
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
  if (options_.seal != Seal::nothing) {
    std::vector<optim::StateTensor> state = optimizer.state();
    if (options_.seal == Seal::weights) std::erase_if(state, [](const auto& s) { return s.name != "master"; });
    weights_.seal(shards_, state);
  }
  optimizer.set_prepare([this] { settle(); });
}

// Rule 2 with one more axis: squares are added over the axes on which a parameter is S, and over the ranks with its
// shards. Where nothing is cut every rank has the same sum; a tied copy does not count.
double Zero::gradient_norm() const {
  std::vector<CutAlike> kinds;  // in the order of the buckets: the same on all ranks of a stage
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const ZeroBucket& bucket = buckets_[b];
    for (std::size_t i = 0; i < bucket.shards.size(); ++i) {
      const nn::Parameter& parameter = *bucket.shards[i]->parameter;
      if (parameter.copy_of_earlier_stage) continue;
      std::vector<ProcessGroup*> groups;
      if (bucket.group != nullptr) groups.push_back(bucket.group);
      for (const Axis axis : shard_axes(parameter.placements, mesh_)) groups.push_back(&mesh_.group(axis));
      auto found = kinds.begin();
      while (found != kinds.end() && found->groups != groups) ++found;
      if (found == kinds.end()) found = kinds.insert(found, {std::move(groups), {}});
      found->gradients.push_back(bucket.in_piece(gradients_.piece(b), i));
    }
  }
  double total = 0;
  for (const CutAlike& kind : kinds) {
    const double squares = kernels(kind.gradients.front().device()).sum_squares(kind.gradients);
    const Tensor sum = Tensor::full({1}, squares, DType::f64);
    for (ProcessGroup* group : kind.groups) group->all_reduce(sum).wait();
    total += sum.item();
  }
  const Tensor sum = Tensor::full({1}, total, DType::f64);
  if (mesh_.size(Axis::pp) > 1) mesh_.group(Axis::pp).all_reduce(sum).wait();
  return std::sqrt(sum.item());
}

std::vector<Copied> Zero::copies() {
  settle();
  std::vector<Copied> copies;
  const auto add = [&](const optim::Shard& shard, const char* kind, ProcessGroup* group) {
    if (group == nullptr || group->size() == 1) return;
    const nn::Parameter& p = *shard.parameter;
    const bool whole = p.value.has_elements();
    copies.push_back({p.name, whole ? kind : "shard of parameter", whole ? p.value.detach() : shard.weights,
                      whole ? p.rectangle : shard.rectangle(), group});
  };
  for (const ZeroBucket& bucket : buckets_) {
    for (const optim::ShardPtr& shard : bucket.shards) {
      const Placements& placements = shard->parameter->placements;
      const bool whole = shard->parameter->value.has_elements();
      add(*shard, "parameter",
          whole ? &mesh_.group(placements.ep.sharded() ? Axis::edp : Axis::data) : bucket.replicas);
      if (!placements.tp.sharded()) add(*shard, "parameter", &mesh_.group(Axis::tp));
    }
  }
  for (const nn::ParameterPtr& parameter : tied_) {
    for (const optim::ShardPtr& shard : shards_)
      if (shard->parameter == parameter) add(*shard, "tied parameter", mesh_.pipeline_ends());
  }
  return copies;
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
