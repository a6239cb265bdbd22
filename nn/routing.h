// Counts what the routers of a model chose in a step. From this come figures to watch, and the bias that balances the
// use of experts without a loss (Wang et al. 2024, arXiv:2408.15664; DeepSeek-V3, section 2.1.2):
//
//   chosen:  the K largest of p_e + b_e;  gates use p alone
//   after each step:  b_e += rate * sign(mean load - load of e)
//
// A load counts the choices of the whole global batch, of all ranks and micro-batches, exactly; so the bias has the
// same bits on every mesh. The bias is a buffer: it gets no gradient, and it is saved with the run.
// Read next: nn/router.h, which writes here; train/step/trainer.cpp, which ends the step.
#pragma once

#include <deque>

#include "parallel/mesh/mesh.h"
#include "parallel/parameters/buffer.h"

namespace trireme::nn {

/// One router of this rank's stages, and this rank's sums over the current step.
struct Routing {
  Tensor load;               ///< [E] f64: how often each expert was chosen
  double balance = 0;        ///< this rank's part of the balance loss, before its weight
  double z = 0;              ///< this rank's part of the z-loss, before its weight
  BufferPtr bias = nullptr;  ///< [E] f32; null: none
  double rate = 0;           ///< of its update
};

/// Figures of a whole step, over all routers of the model; the same on every rank.
struct RoutingReport {
  double balance = 0;    ///< balance loss, mean over routers: 1 when every expert of every sequence is used equally
  double z = 0;          ///< z-loss, mean over routers
  double imbalance = 0;  ///< load of the busiest expert over the mean load in its router; maximum over routers
};

/// What all routers of a model count in a step.
class RoutingLog {
 public:
  /// Registers a router; the reference stays valid.
  Routing& add(std::int64_t experts);
  bool empty() const { return routers_.empty(); }  ///< this rank's stages have no router

  /// Ends a step: sums over the ranks, updates the biases if `applied` (false: the step was skipped), and starts the
  /// next. `sequence`: each tp rank routes its own positions. Collective over the mesh: every rank of a model with
  /// experts calls it, even if its stages have no router.
  RoutingReport finish(const DeviceMesh& mesh, bool sequence, bool applied);

 private:
  std::deque<Routing> routers_;  // in the order of the layers
};

}  // namespace trireme::nn
