// Muon: momentum whose direction is orthogonalised, for the matrices between hidden layers; AdamW for all else.
//
// For a matrix W [R, C] with gradient G (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural
// networks"):
//
//   M = momentum M + (1 - momentum) G
//   U = momentum M + (1 - momentum) G        (Nesterov; without it, U = M)
//   O = Newton-Schulz of U                   optim/newton_schulz.h
//   W = W - lr (scale O + weight_decay W)    scale: MuonScale
//
// Which parameters: those with Parameter::hidden_matrix, which nn::Linear and nn::Moe set. A packed projection is
// several matrices: q, k and v each are one (all heads together), gate and up each, and each expert's. AdamW updates
// embeddings, output heads, routers, norms and biases, with the rate that step() gets.
//
// On a mesh a matrix lies in parts on several ranks. Momentum is kept in the same parts, in f32, and WholeMatrices
// brings the parts of U together, so that each matrix is orthogonalised once, as a whole. A run on a mesh then differs
// from one rank only by the rounding of its gradients. Newton-Schulz enlarges this rounding up to 485 times where the
// singular values of U are small.
//
//   const auto optimizer = optim::make_muon(zero.shards(), mesh, {.lr_ratio = 0.02 / 3e-4});
//   optimizer->attach(zero);
//   optimizer->step(3e-4, scale);   // matrices: 0.02
//
// step() overwrites the gradients of matrices. Read next: optim/whole_matrices.h.
#pragma once

#include <optional>
#include <string_view>

#include "optim/optimizer.h"
#include "parallel/mesh/mesh.h"

namespace trireme::optim {

/// The factor of an orthogonalised update of a matrix [R, C], whose elements are about 1 / sqrt(max(R, C)).
enum class MuonScale : std::uint8_t {
  original,         ///< sqrt(max(1, R / C)): Jordan et al. 2024
  match_rms_adamw,  ///< 0.2 sqrt(max(R, C)): the size of AdamW's, and its rates (Liu et al. 2025, section 2.2)
};
/// "original", "match-rms-adamw".
constexpr std::string_view name(MuonScale scale) {
  return scale == MuonScale::original ? "original" : "match-rms-adamw";
}
/// That factor for a matrix of this size.
double update_factor(MuonScale scale, std::int64_t rows, std::int64_t columns);

/// Numbers of Muon, and those of AdamW for the other parameters.
struct MuonConfig {
  double momentum = 0.95;
  bool nesterov = true;
  MuonScale scale = MuonScale::original;
  double lr_ratio = 1;  ///< the rate of matrices over that of step()
  /// The other parameters. weight_decay and memory are also those of matrices.
  AdamWConfig adamw = {};
};

/// Collective over `mesh`, which must outlive the optimizer. `shards`: the same parameters in the same order on all
/// ranks of a stage. Throws ExitCode::usage for values out of range, and for offloaded state of weights on a GPU.
std::unique_ptr<Optimizer> make_muon(const ShardList& shards, const DeviceMesh& mesh, const MuonConfig& config);
std::unique_ptr<Optimizer> make_muon(const ParameterList& parameters, const DeviceMesh& mesh, const MuonConfig& config);

}  // namespace trireme::optim
