// StepNumbers: what decides about a step's update, and what is printed of it. On a GPU the numbers are there long
// before the host knows them: kernels read them in device memory, and the host's copy is queued behind the kernels that
// compute them. Reading waits for that copy only, not for what was queued later.
// Read next: Trainer::numbers() in train/step/trainer.cpp, then train/loop/guards.cpp.
#pragma once

#include <cmath>

#include "core/host_copy.h"

namespace trireme {

class StepNumbers {
 public:
  /// `values`: f64 [2], the loss and the sum of squares of the gradient; the gradient is that of loss_scale x the loss.
  StepNumbers(const Tensor& values, double loss_scale) : values_(values), copy_(values), loss_scale_(loss_scale) {}

  double loss() { return copy_.get().data<double>()[0]; }  ///< of the global batch; waits for a device
  /// Of the gradient, without the loss scale; waits for a device.
  double norm() { return std::sqrt(copy_.get().data<double>()[1]) / loss_scale_; }

  // For kernels: f64 [1] each.
  Tensor loss_on_device() const { return view::slice(values_, 0, 0, 1); }
  Tensor squares_on_device() const { return view::slice(values_, 0, 1, 1); }

 private:
  Tensor values_;
  HostCopy copy_;
  double loss_scale_;
};

}  // namespace trireme
