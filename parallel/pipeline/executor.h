// Runs one rank's list of a checked schedule: plain calls to forward and backward, with messages to the neighbour
// stages. With several chunks per rank, the last rank's neighbour is the first; with one rank, stages hand over
// directly.
//
// Sends are buffered and never block. The next receive of each direction is posted one message ahead, so that it can
// arrive while this rank computes, and is waited for right before the computation that needs it. A pipeline of one
// stage sends nothing: the same loop is then gradient accumulation.
//
// Between a micro-batch's forward and backward a stage keeps the input's place on the tape, the tape, and what
// the operations saved. All of it is freed right after the backward. Between the two parts of a split backward
// only the data for the weights' gradients stays (autograd/deferred.h). The executor scales nothing: the loss
// function divides by the global count of tokens before backward starts, so gradients of micro-batches are simply
// added. Losses are added where they are: the host does not wait for them.
// Read next: parallel/pipeline/executor.cpp, then parallel/data_parallel/grad_sync.h.
#pragma once

#include <functional>

#include "core/tensor.h"
#include "parallel/mesh/mesh.h"
#include "parallel/pipeline/check.h"

namespace trireme::pipeline {

/// What a stage computes.
struct StageFunctions {
  /// The first stage gets an undefined input and fetches its own tokens. The last stage returns the micro-batch's
  /// loss, one element, already scaled (forward-only: it may return an undefined tensor); every other stage returns
  /// the activation for the next. Stages of this rank take turns; its first stage sees micro-batches in order.
  std::function<Tensor(int stage, const Tensor& input, int microbatch)> forward;
  Shape activation_shape;  ///< of the tensors passed between stages: [B, T, D]
  DType dtype = DType::f32;
  Device device = Device::cpu;  ///< where activations arrive
};

/// Called before each backward, or part of one. On each stage, micro-batches come in order. So in the last one, a
/// gradient of the stage that becomes ready is complete (GradSync::last_microbatch).
using BeforeBackward = std::function<void(int stage, int microbatch)>;

/// One pass on this rank.
struct StepReport {
  /// f64 [1], on the stages' device: the sum of the micro-batches' losses; 0 except on the last stage's rank.
  Tensor loss{};
  double forward_seconds = 0;  ///< computing, receives excluded
  double backward_seconds = 0;
  double waiting_seconds = 0;  ///< for messages of neighbour stages
  int peak_live = 0;  ///< most activations alive at once, counted while running: equals ScheduleCosts::peak_live
};

/// Runs a rank's list of a schedule.
class Executor {
 public:
  /// Checks the schedule. `group` is mesh.group(Axis::pp), with a rank for every list, and must outlive the executor.
  Executor(Schedule schedule, ProcessGroup& group);

  /// One pass over all micro-batches. All ranks of the group call it together. An error of a stage function, or of a
  /// peer, is thrown as it is.
  StepReport run(const StageFunctions& stage, const BeforeBackward& before_backward = {});

  const Schedule& schedule() const { return schedule_; }
  const ScheduleCosts& costs() const { return costs_; }

 private:
  Schedule schedule_;
  ScheduleCosts costs_;
  ProcessGroup& group_;
};

/// Makes a rank's StepReport::loss that of the whole step: sums it over data, and sends the last stage's sum to all
/// stages. Collective over data and pp.
void add_over_ranks(const DeviceMesh& mesh, Tensor& loss);
/// The same as a number; waits for the device.
double global_loss(const DeviceMesh& mesh, const Tensor& loss);

}  // namespace trireme::pipeline
