#include "parallel/zero/zero.h"

#include <map>

#include "parallel/data_parallel/gradient_norm.h"
#include "parallel/data_parallel/replicated.h"
#include "parallel/data_parallel/tied_parameters.h"
#include "parallel/parameters/same_model.h"

namespace trireme {
namespace {

/// The mesh, once the parameters have been compared: before they are cut.
const DeviceMesh& compared(const ParameterList& parameters, const DeviceMesh& mesh, int stage) {
  check_parameters("zero", parameters);
  if (stage < 1 || stage > 3)
    fail(ExitCode::usage, "zero",
         "stage {}; expected 1, 2 or 3; for 0 call make_data_parallel(), or make a GradSync; set ZeroOptions::stage",
         stage);
  for (const ParameterPtr& parameter : parameters)
    require(parameter->summed_by == GradientSum::nobody, "zero",
            "{} has a GradSync or Zero already; expected one for each parameter; destroy the other first",
            parameter->name);
  require_same_model(parameters, mesh);
  return mesh;
}

}  // namespace

Zero::Zero(const ParameterList& parameters, Units& units, const DeviceMesh& mesh, const ZeroOptions& options)
    : mesh_(compared(parameters, mesh, options.stage)),
      options_(options),
      groups_(make_zero_groups(mesh, options.shard_ranks)),
      buckets_(make_zero_buckets(parameters, units, mesh, groups_, options_, shards_)),
      tied_(find_tied(parameters, mesh)),
      gradients_(buckets_, tied_, mesh, options_.stage >= 2),
      weights_(buckets_, units, options_) {}

void Zero::hash_shards(const std::vector<StateTensor>& state) {
  if (options_.hashed_data == HashedData::none) return;
  std::vector<StateTensor> hashed;
  for (const StateTensor& tensor : state)
    if (options_.hashed_data != HashedData::weights || tensor.name == "master") hashed.push_back(tensor);
  weights_.hash_shards(shards_, hashed);
}

void Zero::sum_squares(Tensor& sum) const {
  std::vector<GradientPart> parts;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const ZeroBucket& bucket = buckets_[b];
    if (bucket.frozen) continue;
    for (std::size_t i = 0; i < bucket.shards.size(); ++i)
      parts.push_back({bucket.shards[i]->parameter.get(), bucket.in_piece(gradients_.piece(b), i), bucket.group});
  }
  trireme::sum_squares(parts, mesh_, sum);
}

std::vector<ReplicatedTensor> Zero::copies(const std::vector<StateTensor>& tensors) const {
  std::map<const Shard*, ProcessGroup*> replicas;
  for (const ZeroBucket& bucket : buckets_) {
    for (const ShardPtr& shard : bucket.shards) replicas[shard.get()] = bucket.replicas;
  }
  return copies_of(tensors, tied_, mesh_, [&](const Shard& shard) { return replicas.at(&shard); });
}

Tensor Zero::gradient(std::size_t place) const {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (std::size_t i = 0; i < buckets_[b].shards.size(); ++i) {
      if (buckets_[b].places[i] == place && !buckets_[b].frozen) return buckets_[b].in_piece(gradients_.piece(b), i);
    }
  }
  fail(ExitCode::internal, "zero", "no shard with a gradient at place {} of {}", place, shards_.size());
}

std::unique_ptr<DataParallel> make_data_parallel(const ParameterList& parameters, Units& units, const DeviceMesh& mesh,
                                                 const ZeroOptions& options) {
  if (options.stage == 0) return std::make_unique<Replicated>(parameters, mesh, options.bucket_bytes);
  return std::make_unique<Zero>(parameters, units, mesh, options);
}

}  // namespace trireme
