// Newton-Schulz: orthogonalises a matrix by matrix products alone.
//
// X = G / (|G| + 1e-7), then five times X = a X + (b A + c A A) X with A = X X^T: this maps every singular value s of X
// by a s + b s^3 + c s^5. With (a, b, c) = (3.4445, -4.7750, 2.0315), singular values between 0.003 and 1 end between
// 0.68 and 1.14, and the singular vectors stay. So the result is near U V^T, of G = U S V^T (Jordan et al. 2024, "Muon:
// An optimizer for hidden layers in neural networks", section "Newton-Schulz"). Smaller values, of which rounding may
// be a part, grow by at most 3.4445^5 = 485.
//
//   const Tensor direction = optim::orthogonalised(momentum);  // [R, C] -> [R, C]
//
// Read next: optim/muon.h.
#pragma once

#include "core/tensor.h"

namespace trireme::optim {

inline constexpr int newton_schulz_iterations = 5;

/// x [R, C], f32 or f64, any strides -> a new dense tensor [R, C] of its dtype. A matrix of zeros stays zero. FLOPs:
/// 10 S^2 (2 L + S), with S the smaller and L the larger of R and C.
Tensor orthogonalised(const Tensor& x);

}  // namespace trireme::optim
