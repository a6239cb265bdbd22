// What guards ask a Trainer: where a value that is not finite comes from, whether copies are equal, whether weights are
// finite.
// Read next: train/loop/guards.cpp, which asks; train/step/non_finite.h, train/step/replica_check.h.
#include <cmath>

#include "core/hash.h"
#include "core/kernels.h"
#include "parallel/data_parallel/verify.h"
#include "train/step/non_finite.h"
#include "train/step/replica_check.h"
#include "train/step/trainer.h"

namespace trireme {

Trainer::Origin Trainer::find_non_finite() {
  const std::string lower = steadier(options_);
  std::string first = origin_of(watch_.found(), mesh_);
  if (first.empty() && !sums_gradients()) first = origin_of(non_finite_piece(), mesh_);
  finish_routing(false);
  run_pass(CheckTime::in_every_backward);
  const std::string again = origin_of(watch_.found(), mesh_);
  if (!again.empty()) return {again + "; a second computation gives the same", lower};
  if (!std::isfinite(gradient_norm()))
    return {"every rank's own gradients are finite, but not their sum over ranks", lower};
  const bool traced = !first.empty();
  return {fmt::format("{}; finite when computed again: suspect the machine, not the samples",
                      traced ? first : "no rank kept a trace of it"),
          fmt::format("look at {} (memory, processor, temperature), and start again from the newest checkpoint",
                      traced ? "that machine" : "the machines of the job")};
}

/// The first piece that is not finite, for gradients that are not summed over ranks.
NonFinite Trainer::non_finite_piece() {
  std::vector<StateTensor> pieces = gradient_pieces();
  for (std::size_t i = pieces.size(); i-- > 0;) {  // in the order of the backward pass
    const Tensor& gradient = pieces[i].value;
    if (gradient.count() == 0 || std::isfinite(kernels(gradient.device()).sum_squares(std::span(&gradient, 1)).value()))
      continue;
    NonFinite found{.tensor = pieces[i].parameter->name,
                    .stage = mesh_.coord(Axis::pp),
                    .microbatch = batches_.size() == 1 ? 0 : -1,
                    .samples = {}};
    for (const Batch& batch : batches_)
      found.samples.insert(found.samples.end(), batch.sample_ids.begin(), batch.sample_ids.end());
    return found;
  }
  return {};
}

std::vector<ReplicatedTensor> Trainer::copies(std::optional<std::int64_t> turn) {
  constexpr std::uint64_t turns = 8;
  std::vector<StateTensor> tensors = optimizer_->weights();
  for (StateTensor& state : optimizer_->state()) {
    // By name: tied weights at the two ends of a pipeline have different indices in the list.
    const bool its_turn = !turn || hash_bytes(state.full_name()) % turns == static_cast<std::uint64_t>(*turn) % turns;
    if (its_turn || state.value.device() == Device::cpu) tensors.push_back(std::move(state));
  }
  std::vector<ReplicatedTensor> copies = gradients_->copies(tensors);
  const std::vector<ReplicatedTensor> buffers = copies_of(model_->buffers(), mesh_);
  copies.insert(copies.end(), buffers.begin(), buffers.end());
  return copies;
}

void Trainer::check_replicas(std::optional<std::int64_t> turn) {
  if (options_.guards.check_replicas == 0) return;
  gradients_->check_hashes();
  trireme::check_replicas(copies(turn), mesh_);
}

void Trainer::require_finite_weights() {
  const std::vector<StateTensor> weights = optimizer_->weights();
  std::vector<Tensor> all;
  for (const StateTensor& weight : weights) all.push_back(contiguous(weight.value));
  const auto finite = [&](std::span<const Tensor> some) {
    return std::isfinite(kernels(model_->device()).sum_squares(some).value());
  };
  if (finite(all)) return;  // on a GPU, one wait
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (finite({&all[i], 1})) continue;
    fail(ExitCode::numerical, "train",
         "{} is not finite; expected weights that are; they were not saved, and earlier checkpoints are as they were; "
         "{}",
         weights[i].parameter->name, steadier(options_));
  }
}

}  // namespace trireme
