// LoraOptions: which layers get low-rank adapters, and how large these are. Read next: nn/lora.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::nn {

/// Which layers get adapters, and how large these are.
struct LoraOptions {
  std::int64_t rank = 0;                     ///< r; 0: no adapters
  double alpha = 16;                         ///< adapters are multiplied by alpha / rank
  double dropout = 0;                        ///< of an adapter's input, in training
  std::string targets = "*.attn.*,*.mlp.*";  ///< names of Linear layers: patterns with * and ?, separated by commas

  double scale() const { return rank > 0 ? alpha / static_cast<double>(rank) : 0; }  ///< 0: no adapters
  bool adapts(std::string_view layer) const;  ///< whether the layer of this name gets one
  bool operator==(const LoraOptions&) const = default;
};

}  // namespace trireme::nn
