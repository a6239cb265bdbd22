#include "check/parity/parity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "check/faults/disturb.h"
#include "train/gpt/comparison_batch.h"
#include "train/gpt/gpt_setup.h"
#include "train/step/trainer.h"

namespace trireme {
namespace {

/// A parameter's tensor, or a rectangle of it, and its position in the whole tensor.
struct Piece {
  Tensor value;
  Rectangle rectangle;
  bool sharded = false;  // the other data ranks have the other pieces
};

/// What one rank has after Parity::steps: copies of its shards, in the order of the parameters.
struct StepResults {
  std::vector<double> losses, norms;                    // per step, global
  ParameterList parameters;                             // those that are trained
  std::vector<Piece> gradients;                         // of the first step, before clipping
  std::vector<Piece> weights;                           // after the last step
  std::vector<std::pair<std::string, Tensor>> buffers;  // after the last step, by name
};

Tensor copied_to_host(const Tensor& x) { return x.device() == Device::cpu ? clone(x) : x.to(Device::cpu); }

Piece copy_of(const StateTensor& tensor) {
  return {copied_to_host(tensor.value), tensor.rectangle(), tensor.shard != nullptr};
}

/// The weights as the optimizer sees them: the f32 masters if there are any; or, if it keeps them, their averages.
std::vector<Piece> final_weights(optim::Optimizer& optimizer) {
  std::map<const Parameter*, Piece> masters;
  for (const StateTensor& state : optimizer.state()) {
    if (state.name == (optimizer.averages() ? "ema" : "master")) masters[state.parameter] = copy_of(state);
  }
  std::vector<Piece> weights;
  for (const StateTensor& weight : optimizer.weights()) {
    if (!weight.parameter->requires_grad()) continue;
    const auto master = masters.find(weight.parameter);
    weights.push_back(master != masters.end() ? master->second : copy_of(weight));
  }
  return weights;
}

/// `count` samples of a batch from `first` on. Their ids begin with `first_id`.
Batch rows_of(const Batch& batch, std::int64_t first, std::int64_t count, std::int64_t first_id) {
  Batch rows{.tensors = batch.tensors, .sample_ids = {first_id}};
  for (auto& [name, tensor] : rows.tensors) tensor = view::slice(tensor, 0, first, count);
  return rows;
}

StepResults run_steps(const ParityModel& model, TrainOptions o, const std::shared_ptr<const DeviceMesh>& mesh,
                      const OptimizerOptions& optimizer, const Parity::Disturbance& disturbance = {}) {
  const std::string frozen = o.optimizer.freeze;
  o.optimizer = optimizer;
  o.optimizer.freeze = frozen;
  const BatchSizes sizes = o.batch_sizes();
  Trainer trainer(model.make(o, mesh), o, 64 << 10);  // several buckets even in a small model
  if (disturbance.factor > 0) disturb(trainer.optimizer(), disturbance.factor, disturbance.seed);
  const GlobalBatch data = model.data(o);
  const BatchPlan plan = sizes.on_rank(mesh->coord(Axis::dp));

  StepResults results;
  results.parameters = trained(trainer.model().parameters());
  for (int step = 0; step < Parity::steps; ++step) {
    const auto next_batch = [&](int microbatch) {
      const std::int64_t first = plan.first_sample(0, microbatch);
      return rows_of(data.batch, first, sizes.micro_batch, step * sizes.global_batch + first);
    };
    const Trainer::GradientReport report = trainer.gradients(next_batch, 1.0 / static_cast<double>(data.targets));
    StepNumbers numbers = trainer.numbers(report);
    if (step == 0) {
      for (const StateTensor& piece : trainer.gradient_pieces()) {
        results.gradients.push_back(copy_of(piece));
        if (trainer.scaler().scale() != 1) {  // f16: these gradients belong to the scaled loss
          const NoGrad guard;
          results.gradients.back().value = scale(results.gradients.back().value, 1 / trainer.scaler().scale());
        }
      }
    }
    const double lr = optimizer.optimizer == "sgd" ? 0.5 : 1e-3;
    trainer.queue_update(lr, numbers);
    results.losses.push_back(numbers.loss());
    results.norms.push_back(numbers.norm());
    if (!trainer.update(lr, results.norms.back())) {
      fail(ExitCode::numerical, "parity", "the gradients overflow at a loss scale of {}; lower --loss-scale",
           trainer.scaler().scale());
    }
  }
  results.weights = final_weights(trainer.optimizer());
  for (const BufferPtr& buffer : trainer.model().buffers())
    results.buffers.emplace_back(buffer->name, copied_to_host(buffer->value));
  return results;
}

OptimizerOptions sgd() {
  OptimizerOptions o;
  o.optimizer = "sgd";
  o.momentum = 0.9;
  o.clip = 0.5;  // below the norm of the first gradients, so that clipping has an effect
  return o;
}

/// AdamW's first update of an element is g / (|g| + eps), whose slope at g = 0 is 1 / eps. A gradient tensor of size G
/// has rounding noise of about 4e-7 G, also in elements that happen to be near 0. The noise changes the update of such
/// an element by 4e-7 G / eps of a step. With eps 1e-8, that can be a whole step in the opposite direction on another
/// mesh, and later steps then start from other weights. (The exact gradient of a key bias is 0, so all its steps are of
/// this kind.) Here G, after clipping, is 1e-3 for matrices and up to 2e-2 for biases. An eps of 1e-3 limits the effect
/// to 8e-6 of a step in single elements. A gradient that is wrong by a factor, which AdamW with an eps of 1e-8 would
/// hide, also shows.
///
/// The other optimizers have no such eps. Muon enlarges rounding (optim/muon.h), and an update of Lion, or of a vector
/// by Adafactor, begins as a sign. If a difference is above the tolerance, rounding_reach() says whether rounding is
/// the reason.
OptimizerOptions second(const TrainOptions& options) {
  OptimizerOptions o;
  o.optimizer = options.optimizer.optimizer;
  o.ema_decay = options.optimizer.ema_decay;
  o.muon_scale = optim::MuonScale::match_rms_adamw;
  o.eps = 1e-3;
  o.clip = 0.5;
  return o;
}

/// The part of `whole_tensor` that belongs to `piece`, and the piece, both without padded rows.
std::pair<Tensor, Tensor> overlap(const Piece& piece, const Tensor& whole_tensor, const Parameter& parameter) {
  Tensor mine = piece.value, whole = whole_tensor;
  const Rectangle& r = piece.rectangle;
  for (int dim = 0; dim < mine.dims(); ++dim) {
    const std::int64_t limit = dim == 0 ? parameter.logical_rows : parameter.global_shape[dim];
    const std::int64_t length = std::clamp<std::int64_t>(limit - r.start[dim], 0, mine.size(dim));
    mine = view::slice(mine, dim, 0, length);
    whole = view::slice(whole, dim, std::min(r.start[dim], whole.size(dim) - length), length);
  }
  return {contiguous(cast(mine, DType::f64)), contiguous(cast(whole, DType::f64))};
}

/// Squared norms of the difference and of the reference, over this rank's piece.
std::pair<double, double> squares(const Piece& got, const Parameter& parameter, const Piece& reference) {
  const auto [a, b] = overlap(got, reference.value, parameter);
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < a.count(); ++i) {
    const double x = a.data<double>()[i], y = b.data<double>()[i];
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return {difference, norm};
}

double relative(double difference, double norm) {
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

/// A NaN counts as an infinite difference. Without this it would be lost, because std::max(x, NaN) is x.
double inf_if_nan(double x) { return std::isnan(x) ? INFINITY : x; }

double largest_relative(const std::vector<double>& got, const std::vector<double>& reference) {
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    largest = std::max(largest, inf_if_nan(std::abs(got[i] - reference[i]) / std::abs(reference[i])));
  return largest;
}

/// Relative difference of a buffer to the reference buffer of that name. Every rank holds the whole buffer.
double buffer_difference(const std::pair<std::string, Tensor>& got, const StepResults& reference) {
  for (const auto& [name, value] : reference.buffers) {
    if (name != got.first) continue;
    double difference = 0, norm = 0;
    for (std::int64_t i = 0; i < value.count(); ++i) {
      const double x = got.second.data<float>()[i], y = value.data<float>()[i];
      difference += (x - y) * (x - y);
      norm += y * y;
    }
    return inf_if_nan(relative(difference, norm));
  }
  return INFINITY;
}

}  // namespace

struct ParityReference {
  ParityModel model;
  StepResults sgd, second;                   // by optimizer
  std::map<std::string, std::size_t> index;  // by name: parameters first, then buffers
};

// One micro-batch, so that gradient accumulation is compared too. On the CPU, so that a GPU is compared with the CPU.
void set_one_rank(TrainOptions& o) {
  o.mesh = {};
  o.precision.device = name(Device::cpu);
  o.precision.recompute = "none";
  o.batch = {.micro_batch = o.batch.global_batch, .global_batch = o.batch.global_batch, .micro_batches = std::nullopt};
}

void set_f32(TrainOptions& o) {
  o.precision.dtype = DType::f32;
  o.precision.loss_scale = PrecisionOptions().loss_scale;
  o.precision.scaling = {};
}

std::shared_ptr<const ParityReference> parity_reference(const TrainOptions& options, const ParityModel& model) {
  auto reference = std::make_shared<ParityReference>();
  reference->model = model;
  const auto one = std::make_shared<const DeviceMesh>(self_group(), MeshShape{});
  reference->sgd = run_steps(model, on_one_rank(options), one, sgd());
  reference->second = run_steps(model, on_one_rank(options), one, second(options));
  for (const ParameterPtr& p : reference->sgd.parameters) reference->index.emplace(p->name, reference->index.size());
  for (const auto& [name, value] : reference->sgd.buffers) reference->index.emplace(name, reference->index.size());
  return reference;
}

Parity::Parity(const TrainOptions& options, std::shared_ptr<const ParityReference> reference)
    : options_(options), reference_(std::move(reference)) {
  // Weights are small here: by default, ZeRO-3 would keep all of them whole.
  if (options_.mesh.zero == 3 && !options_.mesh.zero_resident) options_.mesh.zero_resident = 0;
}

Parity& Parity::disturbed(Disturbance disturbance) {
  disturbance_ = disturbance;
  return *this;
}

ParityReport Parity::compare(std::shared_ptr<ProcessGroup> world) const {
  const auto mesh = std::make_shared<const DeviceMesh>(std::move(world), options_.mesh.shape);
  const StepResults with_sgd = run_steps(reference_->model, options_, mesh, sgd(), disturbance_);
  const StepResults with_second = run_steps(reference_->model, options_, mesh, second(options_), disturbance_);

  constexpr int kinds = 3;  // gradient, weight under SGD, weight under the second optimizer
  const auto count = static_cast<std::int64_t>(reference_->index.size());
  const Tensor results = Tensor::zeros({count + 2, kinds}, DType::f64);  // the last two rows: losses and norms
  double* values = results.data<double>();
  for (std::size_t i = 0; i < with_sgd.parameters.size(); ++i) {
    const Parameter& p = *with_sgd.parameters[i];
    const std::size_t row = reference_->index.at(p.name);
    const std::array<std::pair<double, double>, kinds> found = {
        squares(with_sgd.gradients[i], p, reference_->sgd.gradients[row]),
        squares(with_sgd.weights[i], p, reference_->sgd.weights[row]),
        squares(with_second.weights[i], p, reference_->second.weights[row])};
    Tensor sums = Tensor::zeros({kinds, 2}, DType::f64);
    for (int k = 0; k < kinds; ++k) {
      sums.data<double>()[2 * k] = found[static_cast<std::size_t>(k)].first;
      sums.data<double>()[2 * k + 1] = found[static_cast<std::size_t>(k)].second;
    }
    for (const Axis axis : shard_axes(p.placements, *mesh)) mesh->group(axis).all_reduce(sums).wait();
    // With hybrid sharding, several data ranks hold the same piece. They scale the difference and the norm alike.
    if (with_sgd.gradients[i].sharded) mesh->group(Axis::data).all_reduce(sums).wait();
    for (int k = 0; k < kinds; ++k) {
      double& cell = values[row * kinds + static_cast<std::size_t>(k)];
      cell = std::max(cell, inf_if_nan(relative(sums.data<double>()[2 * k], sums.data<double>()[2 * k + 1])));
    }
  }
  for (std::size_t i = 0; i < with_sgd.buffers.size(); ++i) {
    double* const row = values + reference_->index.at(with_sgd.buffers[i].first) * kinds;
    row[1] = buffer_difference(with_sgd.buffers[i], reference_->sgd);
    row[2] = buffer_difference(with_second.buffers[i], reference_->second);
  }
  values[count * kinds] = std::max(largest_relative(with_sgd.losses, reference_->sgd.losses),
                                   largest_relative(with_second.losses, reference_->second.losses));
  values[(count + 1) * kinds] = std::max(largest_relative(with_sgd.norms, reference_->sgd.norms),
                                         largest_relative(with_second.norms, reference_->second.norms));
  const auto first = [](const std::vector<double>& all) { return std::vector<double>{all.front()}; };
  values[count * kinds + 1] = std::max(largest_relative(first(with_sgd.losses), first(reference_->sgd.losses)),
                                       largest_relative(first(with_sgd.norms), first(reference_->sgd.norms)));
  mesh->world().all_reduce(results, ReduceOp::max).wait();

  ParityReport report;
  report.second = options_.optimizer.ema_decay ? "ema" : options_.optimizer.optimizer;
  report.rows.resize(reference_->index.size());
  for (const auto& [name, place] : reference_->index) {
    const double* row = values + place * kinds;
    report.rows[place] = {name, row[0], row[1], row[2]};
  }
  report.loss = values[count * kinds];
  report.gradient_norm = values[(count + 1) * kinds];
  report.first_step = values[count * kinds + 1];
  return report;
}

double ParityReport::largest() const {
  double largest = std::max(loss, gradient_norm);
  for (const Row& row : rows) largest = std::max({largest, row.gradient, row.weight_sgd, row.weight_second});
  return largest;
}

std::string parity_table(const ParityReport& report, int most) {
  std::vector<ParityReport::Row> rows = report.rows;
  if (most >= 0) {
    const auto worst = [](const ParityReport::Row& r) { return std::max({r.gradient, r.weight_sgd, r.weight_second}); };
    std::sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) { return worst(a) > worst(b); });
    rows.resize(std::min(rows.size(), static_cast<std::size_t>(most)));
  }
  std::string text = fmt::format("{:<32} {:>10} {:>12} {:>12}\n", "relative difference", "gradient", "weight, sgd",
                                 "weight, " + report.second);
  for (const ParityReport::Row& row : rows) {
    text += fmt::format("{:<32} {:>10.2e} {:>12.2e} {:>12.2e}\n", row.name, row.gradient, row.weight_sgd,
                        row.weight_second);
  }
  text +=
      fmt::format("{:<32} {:>10.2e}\n{:<32} {:>10.2e}\n", "loss", report.loss, "gradient norm", report.gradient_norm);
  return text;
}

ParityModel parity_model(const Task& task) {
  return {.make = [&task](const TrainOptions& options,
                          std::shared_ptr<const DeviceMesh> mesh) { return task.make(options, std::move(mesh)); },
          .data = [&task](const TrainOptions& options) { return task.parity_data(options); }};
}

ParityModel gpt_parity(const GptConfig& config) {
  return {.make = [config](const TrainOptions& o, std::shared_ptr<const DeviceMesh> mesh) -> std::unique_ptr<Model> {
            return make_gpt(o, config, std::move(mesh));
          },
          .data = [config](const TrainOptions& o) { return comparison_batch(o, config); }};
}

DryProgram dry_program(const ParityModel& model, const TrainOptions& options) {
  TrainOptions one = options;
  one.mesh.shape = {};
  one.batch = {.micro_batch = 1, .global_batch = std::nullopt, .micro_batches = 1};
  DryProgram program{.model = model.make, .sample = model.data(one).batch.tensors};
  for (auto& [name, tensor] : program.sample) tensor = view::slice(tensor, 0, 0, 1);  // [1, ..]
  return program;
}

}  // namespace trireme
