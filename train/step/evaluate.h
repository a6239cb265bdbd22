// The validation loss on any mesh: forward passes only. It does not affect training: random state, gradients and loader
// position stay the same.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "data/source.h"
#include "models/model.h"

namespace trireme {

/// The mean loss over all valid targets of `samples`, the same on every rank. `batch`: samples per forward pass on one
/// dp rank. `progress` is called on ranks that have the first stage, with the number of batches done and of all.
/// `hidden`: Model::hidden_shape() of a batch whose samples are not as long as the model's context. Collective over the
/// mesh.
double validation_loss(Model& model, const ValidationSource& samples, std::int64_t batch,
                       const std::function<void(std::int64_t done, std::int64_t all)>& progress = {},
                       const std::optional<Shape>& hidden = std::nullopt);

/// The same, unless `leave` is true on any rank: then the evaluation ends soon, on all ranks, without a loss. With pp >
/// 1 it ends after at most 32 batches, as the stages work on different ones.
std::optional<double> validation_loss_unless(const std::function<bool()>& leave, Model& model,
                                             const ValidationSource& samples, std::int64_t batch,
                                             const std::function<void(std::int64_t done, std::int64_t all)>& progress,
                                             const std::optional<Shape>& hidden = std::nullopt);

/// Steps between validation losses for --eval-every auto: a twentieth of the run, or more if an evaluation is
/// expensive. A forward pass takes about a third of what training on the same samples takes. Evaluations then take at
/// most about a tenth of the time. `samples`: of an evaluation; `global_batch`: of a step.
std::int64_t evaluation_interval(std::int64_t steps, std::int64_t samples, std::int64_t global_batch);

/// Throws ExitCode::numerical if the validation loss after `step` is not finite: such weights should not be saved.
/// `remedy`: what to change, for the message.
/// Gradients may still have been finite, so only a loss reveals this.
void require_finite(double val_loss, std::int64_t step, const std::string& remedy);

/// While it exists, the model is in evaluation mode: no dropout, no autograd recording.
class Evaluating {
 public:
  explicit Evaluating(Model& model) : run_(model.run_state()), previous_(run_) { run_.training = false; }
  ~Evaluating() { run_ = previous_; }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  NoGrad guard_;
  nn::RunState& run_;
  nn::RunState previous_;
};

}  // namespace trireme
