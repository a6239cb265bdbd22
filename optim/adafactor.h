// Adafactor: the size of an update from the mean squares of a matrix's rows and columns, not of its elements.
//
// For a matrix W [R, C] with gradient G, at step t (Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with
// Sublinear Memory Cost", algorithm 4), with b = 1 - t^decay and S = G^2 + eps1:
//
//   row    = b row + (1 - b) mean of S over columns       [R]
//   column = b column + (1 - b) mean of S over rows       [C]
//   U      = G / sqrt(row column / mean(row))
//   W      = W - lr (U / max(1, rms(U) / clip) + weight_decay W)
//
// A vector has a v of its own size in place of row and column: v = b v + (1 - b) S, U = G / sqrt(v). With
// scale_by_weight the update is also multiplied by max(eps2, rms(W)), the paper's relative step size.
//
// The last two dims of a parameter with Parameter::decay are a matrix, as in PyTorch; the dims before them number
// matrices: q, k and v each are one, and each expert's. The last dim of other parameters is a vector, also where
// vectors are packed, as the biases of q, k and v. Each matrix and vector has an rms of its own. Padded rows of a
// vocabulary do not count.
//
// On a mesh a matrix lies in parts on several ranks. As for Muon, WholeMatrices brings G together, and each matrix is
// computed once, as a whole; a run on a mesh then differs from one rank only by the rounding of its gradients. The
// state is small, R + C numbers in place of R C, so every rank that holds a part of the matrix has all of it.
//
//   const auto optimizer = optim::make_adafactor(zero.shards(), mesh, {});
//   optimizer->attach(zero);
//   optimizer->step(1e-3, scale);
//
// step() overwrites the gradients. Read next: optim/whole_matrices.h, optim/muon.h.
#pragma once

#include "optim/optimizer.h"
#include "parallel/mesh/mesh.h"

namespace trireme::optim {

/// The numbers of the formula above.
struct AdafactorConfig {
  double decay = -0.8;           ///< the exponent of 1 - t^decay; below 0
  double eps1 = 1e-30;           ///< added to squares of gradients
  double clip = 1;               ///< the largest rms of an update; above 0
  double weight_decay = 0.1;     ///< on parameters with `decay` only; decoupled
  bool scale_by_weight = false;  ///< multiply updates by max(eps2, rms(W))
  double eps2 = 1e-3;
  MemoryCategory memory = MemoryCategory::optimizer;  ///< where state and masters live; or `offloaded`
};

/// Collective over `mesh`, which must outlive the optimizer. `shards`: the same parameters in the same order on all
/// ranks of a stage. Throws ExitCode::usage for values out of range, and for offloaded state of weights on a GPU.
std::unique_ptr<Optimizer> make_adafactor(const ShardList& shards, const DeviceMesh& mesh,
                                          const AdafactorConfig& config);
std::unique_ptr<Optimizer> make_adafactor(const ParameterList& parameters, const DeviceMesh& mesh,
                                          const AdafactorConfig& config);

}  // namespace trireme::optim
