// Kinds of kernels: a machine has one efficiency for each, and a step's time is reported by them.
// Read next: ops/plan/cluster.h.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace trireme::plan {

enum class KernelKind {
  product,      ///< matrix products, also grouped ones
  attention,    ///< forward and backward
  elementwise,  ///< norms, activations, losses, embeddings: a little arithmetic for each element that is read
  copy,         ///< moves or adds up what is there: buckets, gradients, casts
  optimizer,    ///< updates of weights
};
inline constexpr std::array<std::string_view, 5> kernel_kind_names = {"products", "attention", "elementwise", "copies",
                                                                      "optimizer"};

/// `kernel`: a name in KernelTable (core/kernels.h).
inline KernelKind kernel_kind(std::string_view kernel) {
  constexpr std::array<std::string_view, 6> copies = {"fill",        "copy",       "axpby",
                                                      "sum_squares", "squares_to", "multiply_by"};
  if (kernel.find("gemm") != std::string_view::npos) return KernelKind::product;
  if (kernel.starts_with("attention")) return KernelKind::attention;
  if (kernel == "adamw" || kernel == "sgd") return KernelKind::optimizer;
  return std::ranges::find(copies, kernel) != copies.end() ? KernelKind::copy : KernelKind::elementwise;
}
inline std::string_view name(KernelKind kind) { return kernel_kind_names[static_cast<std::size_t>(kind)]; }

}  // namespace trireme::plan
