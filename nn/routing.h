// What the routers of a model did in a step, and what follows from it: figures to watch, and the bias that balances the
// use of experts without a loss (Wang et al. 2024, arXiv:2408.15664; DeepSeek-V3, section 2.1.2):
//
//   chosen:  the K largest of p_e + b_e;  gates are made of p alone
//   after each step:  b_e += rate * sign(mean load - load of e)
//
// A load counts the choices of the whole global batch, of all ranks and micro-batches, in exact numbers: the bias has
// the same bits on every mesh. It is a buffer: no gradient reaches it, and it is saved with the run.
// Read next: nn/router.h, which writes here; train/trainer.cpp, which ends the step.
#pragma once

#include <deque>

#include "nn/buffer.h"
#include "parallel/mesh/mesh.h"

namespace trireme::nn {

/// One router of this rank's stages, and the step under way as this rank has seen it.
struct Routing {
  Tensor load;               ///< [E] f64: how often each expert was chosen
  double balance = 0;        ///< this rank's part of the balance loss, before its weight
  double z = 0;              ///< this rank's part of the z-loss, before its weight
  BufferPtr bias = nullptr;  ///< [E] f32; null: none
  double rate = 0;           ///< of its update
};

/// A whole step, of all routers of the model; the same on every rank.
struct RoutingReport {
  double balance = 0;    ///< balance loss, mean over routers: 1 when every expert of every sequence is used equally
  double z = 0;          ///< z-loss, mean over routers
  double imbalance = 0;  ///< choices of the busiest expert over the mean of its router's; the largest of the routers
};

class RoutingLog {
 public:
  /// Registers a router; the reference stays valid.
  Routing& add(std::int64_t experts);
  bool empty() const { return routers_.empty(); }  ///< this rank's stages have no router

  /// Ends a step: sums over the ranks, moves the biases if the step was made (`applied`: not when it was skipped), and
  /// starts the next. `sequence`: each tp rank routes its own positions. Collective over the mesh: every rank of a
  /// model with experts calls it, also one whose stages have no router.
  RoutingReport finish(const DeviceMesh& mesh, bool sequence, bool applied);

 private:
  std::deque<Routing> routers_;  // in the order of the layers
};

}  // namespace trireme::nn
