#include "train/step/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/kernels.h"
#include "core/packed_weights.h"
#include "core/stopwatch.h"
#include "core/update_scale.h"
#include "models/same_batch.h"
#include "parallel/comm/texts.h"
#include "parallel/comm/watch/beacon.h"
#include "parallel/data_parallel/verify.h"
#include "parallel/mesh/verify.h"
#include "parallel/pipeline/schedules.h"
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

}  // namespace

Trainer::Trainer(std::unique_ptr<Model> model, const TrainOptions& o, std::int64_t bucket_bytes)
    : options_(o),
      batch_(o.batch_sizes()),
      model_(with_frozen(with_stages(o.mesh.stages(), std::move(model)), o.optimizer.freeze)),
      mesh_(model_->mesh()),
      ties_stages_(any_rank(mesh_.world(), has_tied_copy(model_->parameters()))),
      has_routers_(any_rank(mesh_.world(), !model_->routing().empty())),
      watch_(model_->parameters()),
      gradients_(make_data_parallel(model_->parameters(), model_->units(), mesh_,
                                    zero_options(o.mesh, o.guards, bucket_bytes))),
      optimizer_(make_optimizer(o, gradients_->shards(), mesh_)),
      scaler_(o.precision.make_scaler()),
      executor_(pipeline::make_schedule(o.mesh.pipeline, mesh_.size(Axis::pp), static_cast<int>(batch_.micro_batches)),
                mesh_.group(Axis::pp)) {
  optimizer_->attach(*gradients_);
}

Trainer::GradientReport Trainer::gradients(const NextBatch& next_batch, double per_target) {
  for (StepObserver* observer : observers_)
    if (observer->before_step(*optimizer_)) weights_changed();
  batches_.clear();
  next_batch_ = &next_batch;
  per_target_ = per_target;
  fetch_seconds_ = 0;
  if (!std::exchange(compared_batches_, true)) require_right_batches(batch(0), mesh_);
  const double before = fetch_seconds_;
  GradientReport report = run_pass(first_check());
  report.fetch_seconds = fetch_seconds_;
  report.pipeline.forward_seconds -= fetch_seconds_ - before;
  return report;
}

/// A micro-batch of the step. The first stage of this rank that asks for it has it fetched, within its forward.
const Batch& Trainer::batch(int microbatch) {
  while (static_cast<int>(batches_.size()) <= microbatch) {
    const watch::PhaseScope phase(Phase::data);
    for (StepObserver* observer : observers_) observer->before_batch();
    const Stopwatch stopwatch;
    batches_.push_back((*next_batch_)(static_cast<int>(batches_.size())));
    fetch_seconds_ += stopwatch.seconds();
  }
  return batches_[static_cast<std::size_t>(microbatch)];
}

bool Trainer::sums_gradients() const { return mesh_.size(Axis::data) > 1 || mesh_.size(Axis::tp) > 1 || ties_stages_; }

// If no gradient is summed over ranks, a check of the gradients after the step finds the same. On a GPU, each check
// would wait for the device.
Trainer::CheckTime Trainer::first_check() const {
  if (!sums_gradients() || model_->device() != Device::cpu) return CheckTime::never;
  return options_.mesh.zero >= 2 ? CheckTime::in_every_backward
                                 : CheckTime::in_last_backward;  // summed each time, or once
}

Trainer::GradientReport Trainer::run_pass(CheckTime check_time) {
  watch_.begin(check_time, batches_);
  gradients_->zero_grad(static_cast<int>(batch_.micro_batches));
  model_->run_state().step_sequences = batch_.global_batch;
  model_->run_state().loss_scale = scaler_.scale();
  const PackedWeights kept(options_.precision.keep_packed && batch_.micro_batches > 1);
  const pipeline::StageFunctions stage = {
      .forward = [this](int s, const Tensor& input, int microbatch) { return forward(s, input, microbatch); },
      .activation_shape = model_->hidden_shape(batch_.micro_batch),
      .dtype = model_->dtype(),
      .device = model_->device()};
  GradientReport report;
  report.pipeline = executor_.run(stage, [this](int s, int microbatch) { before_backward(s, microbatch); });
  if (scaler_.active()) {
    Tensor& loss = report.pipeline.loss;
    const Tensor scale = Tensor::full({1}, scaler_.scale(), DType::f64, loss.device());
    kernels(loss.device()).binary(Binary::divide, loss, scale, loss);
  }
  const watch::PhaseScope phase(Phase::communication);
  report.sums = gradients_->finish();
  // Before the update: clipping, by a norm that is then wrong on a rank, would make all weights differ.
  if (mesh_.world().verifies()) verify_copies(gradients_->copies(gradient_pieces()));
  return report;
}

/// A stage of a micro-batch: its activation [B, T, D] for the next stage, or on the last stage its loss [].
Tensor Trainer::forward(int stage, const Tensor& input, int microbatch) {
  for (StepObserver* observer : observers_) observer->before_forward();
  const Batch entered = model_->enter(batch(microbatch));
  const Tensor hidden = model_->hidden(stage, input, entered);  // [B, T, D]
  if (!model_->is_last_stage(stage)) return hidden;
  double scale = per_target_ * scaler_.scale();
  for (StepObserver* observer : observers_) scale *= observer->loss_factor();
  const Tensor loss = model_->loss(hidden, entered, scale);  // []
  watch_.loss(loss, stage, microbatch);
  return loss;
}

void Trainer::before_backward(int stage, int microbatch) {
  const bool last = microbatch + 1 == batch_.micro_batches;
  watch_.backward(stage, microbatch, last);
  for (StepObserver* observer : observers_) observer->before_backward(model_->parameters());
  gradients_->last_microbatch(last);
}

double Trainer::gradient_norm() { return gradients_->gradient_norm() / scaler_.scale(); }

StepNumbers Trainer::numbers(const GradientReport& report) {
  const Tensor values = Tensor::empty({2}, DType::f64, model_->device());
  Tensor loss = view::slice(values, 0, 0, 1), squares = view::slice(values, 0, 1, 1);
  gradients_->sum_squares(squares);
  copy(report.pipeline.loss, loss);
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

void Trainer::finish_routing(bool applied) {
  if (has_routers_) routing_ = model_->routing().finish(mesh_, options_.mesh.parallelism().sequence, applied);
}

void Trainer::skip() {
  if (std::exchange(queued_, false)) optimizer_->set_steps(optimizer_->steps() - 1);
  finish_routing(false);
}

void Trainer::weights_changed() { gradients_->forget_hashes(); }

void Trainer::before_update() {
  for (StepObserver* observer : observers_) observer->before_update(*optimizer_);
}

void Trainer::queue_update(double lr, const StepNumbers& numbers) {
  const Device device = model_->device();
  if (device == Device::cpu || options_.optimizer.memory == MemoryCategory::offloaded) return;
  if (!optimizer_->takes_scale_on_device()) return;
  before_update();
  Tensor scale = Tensor::empty({1}, DType::f32, device);
  kernels(device).update_scale(numbers.loss_on_device(), numbers.squares_on_device(), scaler_.scale(),
                               options_.optimizer.clip, scale);
  optimizer_->step(lr, scale);
  queued_ = true;
}

bool Trainer::update(double lr, double norm) {
  if (mesh_.world().verifies())
    require_same(Tensor::full({}, norm, DType::f64), mesh_.world(), "the norm of the gradient");
  if (!std::isfinite(norm)) {
    skip();
    scaler_.overflowed(norm);
    return false;
  }
  finish_routing(true);
  if (!std::exchange(queued_, false)) {
    before_update();
    optimizer_->step(lr, clip_factor(norm, options_.optimizer.clip) / scaler_.scale());
  }
  scaler_.updated();
  if (mesh_.world().verifies()) verify_copies(copies());
  return true;
}

}  // namespace trireme
