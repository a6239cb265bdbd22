// Lora: low-rank adapters beside frozen Linear layers (Hu et al. 2021, "LoRA", section 4.1), for any model.
//
//   y = x W^T + b + (alpha / r) dropout(x) A^T B^T         A [r, in] and B [out, r] are trained; W and b are not
//
// B starts at 0, so that a model with adapters begins as the model without them. A Build says which layers get one:
//
//   Decoder model(build.with_lora({.rank = 8, .targets = "*.attn.*"}));   // its layers know nothing of it
//   nn::train_adapters_only(model.parameters());                          // before GradSync, Zero and the optimizer
//
// A Linear that is split by outputs over tp splits B and keeps A whole; one that is split by inputs splits A and keeps
// B whole, and its adapter's output is part of the partial sum that the layer sums anyway. So an adapter needs no
// communication of its own.
// Read next: nn/lora.cpp, nn/linear.cpp (who calls it), docs/freezing.md.
#pragma once

#include <string_view>

#include "nn/linear.h"
#include "nn/lora_options.h"

namespace trireme::nn {

/// The layer that an adapter belongs to.
struct AdaptedLayer {
  std::int64_t in = 0;
  Shape out;
  Split split = Split::none;
  std::int64_t shared_parts = 0;  ///< as LinearOptions::parts, if tp ranks share parts
  bool separate = false;          ///< as LinearOptions::separate_adapters
};

/// The adapter of one Linear; a part of it, under its name: parameters lora_a and lora_b.
class Lora {
 public:
  Lora(const Build& b, const LoraOptions& options, const AdaptedLayer& layer);
  /// y + the adapter's output, with dropout if `training`. With Split::in both are this rank's part of a sum over tp.
  Tensor add(const Tensor& y, const Tensor& x, bool training) const;  // [.., out(/tp)], [.., in(/tp)] -> [.., out(/tp)]

 private:
  Tensor dropped(const Tensor& x) const;  // [.., in(/tp)]

  Build build_;
  AdaptedLayer layer_;
  double scale_, dropout_;
  ParameterPtr a_, b_;  // [r, in] and [out.., r]; separate: [P, r, in] and [P, F, r]
};

/// Whether a parameter of this name belongs to an adapter.
bool is_adapter(std::string_view parameter);
/// weight + scale B A, in f32 or f64: what a layer without an adapter needs to compute the same. All three are whole.
Tensor merged_weight(const Tensor& weight, const Tensor& a, const Tensor& b, double scale);
/// Freezes all parameters but those of adapters.
void train_adapters_only(const ParameterList& parameters);

}  // namespace trireme::nn
