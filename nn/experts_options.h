// Options of a mixture of experts.
// Read next: nn/moe.h, the layer.
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::nn {

/// What a chosen expert's output is multiplied by. `before`: its softmax probability among all experts (Fedus et al.
/// 2022, Switch Transformer); `after`: its softmax probability among the chosen ones, so that the gates of a token sum
/// to 1 (Shazeer et al. 2017; Jiang et al. 2024, Mixtral).
enum class RouterNorm : std::uint8_t { before, after };

/// The scope of the balance loss: each sequence by itself, or all sequences of the global batch together; the step must
/// then be one micro-batch.
enum class BalanceScope : std::uint8_t { sequence, batch };

/// Sizes and choices of a mixture of experts.
struct ExpertsOptions {
  std::int64_t count = 0;  ///< E, of all ranks together; 0: no mixture, a plain Mlp
  std::int64_t top_k = 2;  ///< K experts compute each token
  /// An expert takes at most ceil(factor * K * T / E) tokens of a sequence of T in training; not set: no limit.
  std::optional<double> capacity_factor{};
  std::int64_t shared = 0;  ///< every token also passes one expert of this many times the hidden width; 0: none
  double aux_loss = 0.01;   ///< weight of the load-balancing loss
  double z_loss = 0.001;    ///< weight of the router z-loss
  double bias_update = 0;   ///< rate of the bias that balances without a loss (nn/routing.h); 0: none
  RouterNorm norm = RouterNorm::before;
  BalanceScope balance = BalanceScope::sequence;
  /// Tokens take the experts in turn, whatever the router has learned: for measurements of memory and speed.
  bool force_balance = false;
};

}  // namespace trireme::nn
