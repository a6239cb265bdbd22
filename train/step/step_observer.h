// StepObserver: its functions are called at fixed points of a step, and may change it. Fault injection uses this. By
// default a Trainer has no observers.
// Read next: train/step/trainer.cpp, which calls it; check/faults/injection.h.
#pragma once

#include "optim/optimizer.h"

namespace trireme {

class StepObserver {
 public:
  StepObserver() = default;
  virtual ~StepObserver() = default;
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;

  /// Before the first micro-batch. Returns whether it has changed weights.
  virtual bool before_step(optim::Optimizer& /*optimizer*/) { return false; }
  virtual void before_batch() {}    ///< a micro-batch is requested
  virtual void before_forward() {}  ///< of a stage of this rank with a micro-batch
  /// The same for its backward pass. `parameters` have the gradients of the backward passes before it.
  virtual void before_backward(const ParameterList& /*parameters*/) {}
  virtual double loss_factor() { return 1; }  ///< multiplies the loss of a micro-batch
  /// With the gradients of the step, before the update.
  virtual void before_update(optim::Optimizer& /*optimizer*/) {}
  virtual void save_begun() {}  ///< the background write of a checkpoint has begun
};

}  // namespace trireme
