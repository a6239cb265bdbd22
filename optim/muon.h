// Muon: momentum whose direction is orthogonalised, for the matrices between hidden layers; AdamW for all else.
//
// For a matrix W [R, C] with gradient G (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural
// networks"):
//
//   M = momentum M + (1 - momentum) G
//   U = momentum M + (1 - momentum) G        (Nesterov; without it, U = M)
//   O = Newton-Schulz of U                   orthogonalised(), below
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

inline constexpr int newton_schulz_iterations = 5;

/// Newton-Schulz orthogonalises a matrix by matrix products alone.
///
/// X = G / (|G| + 1e-7), then five times X = a X + (b A + c A A) X with A = X X^T: this maps every singular value s of
/// X by a s + b s^3 + c s^5. With (a, b, c) = (3.4445, -4.7750, 2.0315), singular values between 0.003 and 1 end
/// between 0.68 and 1.14, and the singular vectors stay. So the result is near U V^T, of G = U S V^T (Jordan et al.
/// 2024, section "Newton-Schulz"). Smaller values, of which rounding may be a part, grow by at most 3.4445^5 = 485.
///
/// x [R, C], f32 or f64, any strides -> a new dense tensor [R, C] of its dtype. A matrix of zeros stays zero. FLOPs:
/// 10 S^2 (2 L + S), with S the smaller and L the larger of R and C.
Tensor orthogonalised(const Tensor& x);

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
