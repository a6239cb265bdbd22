#include "train/step/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "core/hash.h"
#include "core/kernels.h"
#include "core/packed_weights.h"
#include "core/update_scale.h"
#include "models/same_batch.h"
#include "parallel/comm/watch/beacon.h"
#include "parallel/pipeline/schedules.h"
#include "parallel/verify.h"
#include "train/faults/injection.h"
#include "train/step/non_finite.h"
#include "train/step/replica_check.h"
#include "train/step/setup.h"

namespace trireme {
namespace {

ZeroOptions zero_options(const MeshOptions& o, const GuardOptions& guards, std::int64_t bucket_bytes) {
  return {.stage = static_cast<int>(o.zero),
          .prefetch = static_cast<int>(o.zero_prefetch.value_or(MeshOptions::default_prefetch)),
          .resident_bytes = o.zero_resident.value_or(MeshOptions::default_resident),
          .hashed_data = guards.check_replicas == 0 ? HashedData::none
                         : guards.check_state       ? HashedData::all
                                                    : HashedData::weights,
          .shard_ranks = static_cast<int>(o.dp_shard.value_or(0)),
          .bucket_bytes = bucket_bytes};
}

/// True if `here` is true on any rank of the mesh. Collective.
bool on_any_rank(bool here, const DeviceMesh& mesh) {
  const Tensor any = Tensor::full({1}, here ? 1 : 0, DType::f32);
  mesh.world().all_reduce(any, ReduceOp::max).wait();
  return any.item() > 0;
}

bool has_tied_copy(const ParameterList& parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [](const auto& p) { return p->copy_of_earlier_stage; });
}

std::unique_ptr<Model> with_stages(int expected, std::unique_ptr<Model> model) {
  if (model->stages() != expected)
    fail(ExitCode::usage, "trainer",
         "the model was made with a plan of {} pipeline stages, and the mesh and --pipeline have {}; make it with "
         "stage_plan(layers, options.mesh.stages())",
         model->stages(), expected);
  return model;
}

/// The batches of a step. Each is made once, in order, and kept until all stages of this rank have taken it.
class StepBatches {
 public:
  StepBatches(const Trainer::NextBatch& next, int stages) : next_(next), stages_(stages) {}

  /// Each stage of the rank calls it once per micro-batch.
  Batch take(int microbatch) {
    for (; made_ <= microbatch; ++made_) kept_[made_] = {next_(made_), stages_};
    const auto found = kept_.find(microbatch);
    Batch batch = found->second.batch;
    if (--found->second.takers == 0) kept_.erase(found);
    return batch;
  }

 private:
  struct Kept {
    Batch batch;
    int takers;
  };
  const Trainer::NextBatch& next_;
  int stages_, made_ = 0;
  std::map<int, Kept> kept_;  // by micro-batch
};

}  // namespace

Trainer::Trainer(std::unique_ptr<Model> model, const TrainOptions& o, std::int64_t bucket_bytes)
    : options_(o),
      batch_(o.batch_sizes()),
      model_(with_frozen(with_stages(o.mesh.stages(), std::move(model)), o.optimizer.freeze)),
      mesh_(model_->mesh()),
      ties_stages_(on_any_rank(has_tied_copy(model_->parameters()), mesh_)),
      has_routers_(on_any_rank(!model_->routing().empty(), mesh_)),
      watch_(model_->parameters()),
      gradients_(make_data_parallel(model_->parameters(), model_->units(), mesh_,
                                    zero_options(o.mesh, o.guards, bucket_bytes))),
      optimizer_(make_optimizer(o, gradients_->shards(), mesh_)),
      scaler_(o.precision.make_scaler()),
      executor_(pipeline::make_schedule(o.mesh.pipeline, mesh_.size(Axis::pp), static_cast<int>(batch_.micro_batches)),
                mesh_.group(Axis::pp)) {
  optimizer_->attach(*gradients_);
}

Trainer::Pass Trainer::gradients(const NextBatch& next_batch, double loss_scale) {
  step_.clear();
  fault::point(fault::Point::step, &mesh_);
  if (fault::noise(*optimizer_)) weights_changed();
  loss_scale_ = loss_scale;
  const NextBatch kept = [&](int index) {
    const watch::PhaseScope phase(Phase::data);
    fault::point(fault::Point::data, &mesh_);
    step_.push_back(next_batch(index));
    return step_.back();
  };
  if (std::exchange(compared_batches_, true)) return run_pass(kept, first_look());
  const auto start = std::chrono::steady_clock::now();
  const Batch first = kept(0);
  const std::chrono::duration<double> fetching = std::chrono::steady_clock::now() - start;
  require_right_batches(first, mesh_);
  Pass pass = run_pass([&](int index) { return index == 0 ? first : kept(index); }, first_look());
  pass.pipeline.forward_seconds += fetching.count();  // run_pass() includes the fetching of the other batches
  return pass;
}

bool Trainer::sums_gradients() const { return mesh_.size(Axis::data) > 1 || mesh_.size(Axis::tp) > 1 || ties_stages_; }

// If no gradient is summed over ranks, a check of the gradients after the step finds the same. On a GPU, each check
// would wait for the device.
Trainer::Look Trainer::first_look() const {
  if (!sums_gradients() || model_->device() != Device::cpu) return Look::never;
  return options_.mesh.zero >= 2 ? Look::in_every_backward : Look::in_last_backward;  // summed each time, or once
}

Trainer::Pass Trainer::run_pass(const NextBatch& next_batch, Look look) {
  watch_.begin(look);
  gradients_->zero_grad(static_cast<int>(batch_.micro_batches));
  model_->run_state().step_sequences = batch_.global_batch;
  model_->run_state().loss_scale = scaler_.scale();
  const NextBatch watched = [&](int index) {
    Batch batch = next_batch(index);
    watch_.microbatch(batch);
    return batch;
  };
  StepBatches batches(watched, model_->chunks());
  const pipeline::StageFunctions stage = {
      .forward =
          [&](int s, const Tensor& input, int microbatch) {
            fault::point(fault::Point::forward, &mesh_);
            const Batch batch = model_->enter(batches.take(microbatch));
            const Tensor hidden = model_->hidden(s, input, batch);  // [B, T, D]
            if (!model_->is_last_stage(s)) return hidden;
            const Tensor loss =
                model_->loss(hidden, batch, loss_scale_ * scaler_.scale() * fault::loss_factor());  // []
            watch_.loss(loss, s, microbatch);
            return loss;
          },
      .activation_shape = model_->hidden_shape(batch_.micro_batch),
      .dtype = model_->dtype(),
      .device = model_->device()};
  Pass pass;
  const PackedWeights kept(options_.precision.keep_packed && batch_.micro_batches > 1);
  pass.pipeline = executor_.run(stage, [&](int s, int microbatch) {
    const bool last = microbatch + 1 == batch_.micro_batches;
    watch_.backward(s, microbatch, last);
    fault::point(fault::Point::backward, &mesh_);
    fault::poison(model_->parameters());
    gradients_->last_microbatch(last);
  });
  if (scaler_.active()) {
    Tensor& loss = pass.pipeline.loss;
    const Tensor scale = Tensor::full({1}, scaler_.scale(), DType::f64, loss.device());
    kernels(loss.device()).binary(Binary::divide, loss, scale, loss);
  }
  const watch::PhaseScope phase(Phase::communication);
  pass.sums = gradients_->finish();
  return pass;
}

double Trainer::gradient_norm() { return gradients_->gradient_norm() / scaler_.scale(); }

StepNumbers Trainer::numbers(const Pass& pass) {
  const Tensor values = Tensor::empty({2}, DType::f64, model_->device());
  Tensor loss = view::slice(values, 0, 0, 1), squares = view::slice(values, 0, 1, 1);
  gradients_->sum_squares(squares);
  copy(pass.pipeline.loss, loss);
  pipeline::add_over_ranks(mesh_, loss);
  return {values, scaler_.scale()};
}

std::vector<StateTensor> Trainer::gradient_pieces() {
  std::vector<StateTensor> pieces;
  const ShardList& shards = gradients_->shards();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (!shards[i]->parameter->requires_grad()) continue;
    const bool whole = shards[i]->group == nullptr;
    pieces.push_back({"gradient", shards[i]->parameter.get(), gradients_->gradient(i), whole ? nullptr : shards[i]});
  }
  return pieces;
}

Trainer::Origin Trainer::find_non_finite() {
  const std::string lower = steadier(options_);
  std::string first = origin_of(watch_.found(), mesh_);
  if (first.empty() && !sums_gradients()) first = origin_of(non_finite_piece(), mesh_);
  finish_routing(false);
  const std::vector<Batch> step = step_;
  run_pass([&](int index) { return step[static_cast<std::size_t>(index)]; }, Look::in_every_backward);
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
                    .microbatch = step_.size() == 1 ? 0 : -1,
                    .samples = {}};
    for (const Batch& batch : step_)
      found.samples.insert(found.samples.end(), batch.sample_ids.begin(), batch.sample_ids.end());
    return found;
  }
  return {};
}

void Trainer::finish_routing(bool applied) {
  if (has_routers_) routing_ = model_->routing().finish(mesh_, options_.mesh.parallelism().sequence, applied);
}

void Trainer::skip() {
  if (std::exchange(queued_, false)) optimizer_->set_steps(optimizer_->steps() - 1);
  finish_routing(false);
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

void Trainer::weights_changed() { gradients_->forget_hashes(); }

void Trainer::before_optimizer() {
  fault::point(fault::Point::optimizer, &mesh_);
  fault::flip(*optimizer_);
}

void Trainer::queue_update(double lr, const StepNumbers& numbers) {
  const Device device = model_->device();
  if (device == Device::cpu || options_.optimizer.memory == MemoryCategory::offloaded) return;
  if (!optimizer_->takes_scale_on_device()) return;
  before_optimizer();
  Tensor scale = Tensor::empty({1}, DType::f32, device);
  kernels(device).update_scale(numbers.loss_on_device(), numbers.squares_on_device(), scaler_.scale(),
                               options_.optimizer.clip, scale);
  optimizer_->step(lr, scale);
  queued_ = true;
}

bool Trainer::update(double lr, double norm) {
  if (!std::isfinite(norm)) {
    skip();
    scaler_.overflowed(norm);
    return false;
  }
  finish_routing(true);
  if (!std::exchange(queued_, false)) {
    before_optimizer();
    optimizer_->step(lr, clip_factor(norm, options_.optimizer.clip) / scaler_.scale());
  }
  scaler_.updated();
  if (mesh_.world().verifies()) verify_copies(copies());
  return true;
}

}  // namespace trireme
