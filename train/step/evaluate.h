// The validation loss on any mesh: forward passes only. Training is untouched by it: no random state, gradient or
// loader position changes.
#pragma once

#include "data/source.h"
#include "models/model.h"

namespace trireme {

/// The mean loss over all valid targets of `samples`, the same on every rank. `batch`: samples per forward pass on one
/// dp rank. Collective over the mesh.
double validation_loss(Model& model, const ValidationSource& samples, std::int64_t batch);

/// Throws ExitCode::numerical when the validation loss after `step` is no finite number: such weights are not worth
/// saving. The gradient that made them was finite: only a loss shows it.
void require_finite(double val_loss, std::int64_t step);

/// While it lives, the model evaluates: no dropout, nothing is recorded.
class Evaluating {
 public:
  explicit Evaluating(Model& model) : run_(model.run()), previous_(run_) { run_.training = false; }
  ~Evaluating() { run_ = previous_; }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  NoGrad guard_;
  nn::RunState& run_;
  nn::RunState previous_;
};

}  // namespace trireme
