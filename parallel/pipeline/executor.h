// Runs one rank's list of a checked schedule: plain calls to forward and backward, with messages to the neighbour
// stages. With several chunks a rank, the last rank's neighbour is the first; with one rank, stages hand over directly.
//
// Sends are buffered and never block. The next receive of each direction is posted one message ahead, so that it can
// arrive while this rank computes, and is waited for right before the computation that needs it. A stage of a pipeline
// of one sends nothing: the same loop is then gradient accumulation.
//
// What is kept of a micro-batch on a stage between its forward and its backward is its input's place on the tape, the
// tape and what the operations saved; all of it is freed right after the backward. After the first part of a split one,
// only what the weights' gradients need is kept (autograd/deferred.h), until the second. Nothing is scaled here: the
// loss function divides by the global count of tokens before backward starts, so gradients of micro-batches are simply
// added.
// Read next: parallel/pipeline/executor.cpp, then parallel/grad_sync.h.
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
  /// the activation for the next. Stages of this rank take turns; the first of them sees micro-batches in order.
  std::function<Tensor(int stage, const Tensor& input, int microbatch)> forward;
  Shape activation_shape;  ///< of what is passed between stages: [B, T, D]
  DType dtype = DType::f32;
  Device device = Device::cpu;  ///< where activations arrive
};

/// Called when a backward, or a part of one, is about to start. On its stage, micro-batches come in order: with the
/// last one, a gradient of the stage that is ready is complete (GradSync::last_microbatch).
using BeforeBackward = std::function<void(int stage, int microbatch)>;

struct StepReport {
  double loss = 0;             ///< sum of the micro-batches' losses; 0 but on the last stage's rank
  double forward_seconds = 0;  ///< computing, receives excluded
  double backward_seconds = 0;
  double waiting_seconds = 0;  ///< for messages of neighbour stages
  int peak_live = 0;           ///< most activations alive at once, counted as they are: Proof::peak_live of this rank
};

class Executor {
 public:
  /// Checks the schedule. `group` is mesh.group(Axis::pp), with a rank for every list, and must outlive the executor.
  Executor(Schedule schedule, ProcessGroup& group);

  /// One pass over all micro-batches. All ranks of the group call it together. An error of a stage function, or of a
  /// peer, is thrown as it is.
  StepReport run(const StageFunctions& stage, const BeforeBackward& before_backward = {});

  const Schedule& schedule() const { return schedule_; }
  const Proof& proof() const { return proof_; }

 private:
  Schedule schedule_;
  Proof proof_;
  ProcessGroup& group_;
};

/// The loss of the step on every rank: StepReport::loss summed over data on the last stage, then told to all stages.
/// Collective over data and pp.
double global_loss(const DeviceMesh& mesh, double loss);

}  // namespace trireme::pipeline
