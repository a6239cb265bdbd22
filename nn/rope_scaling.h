// The options of rotary positions; nn/rotary.h says what they mean. Apart from it, so that programs can read the
// options without tensors.
// Read next: nn/rotary.h.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::nn {

/// A published way to change the frequencies for longer texts: nn/rotary.h.
struct RopeScaling {
  enum class Kind : std::uint8_t { none, linear, llama3, yarn };  ///< nn/rotary.h has the formulas
  Kind kind = Kind::none;
  double factor = 1;         ///< s, at least 1
  double original = 0;       ///< tokens of the longest sequence before scaling; llama3 and yarn
  double low = 1, high = 4;  ///< turns in `original` tokens; llama3: 1 and 4; yarn: 1 and 32

  bool operator==(const RopeScaling&) const = default;
};

/// "none", "linear:F", "llama3:F,ORIGINAL", "yarn:F,ORIGINAL"; the last two may go on with ",LOW,HIGH". Throws
/// ExitCode::usage.
RopeScaling parse_rope_scaling(const std::string& text);

/// How q and k of nn::Attention are rotated.
struct Rotary {
  double base = 10000;       ///< RopeOptions::base
  RopeScaling scaling = {};  ///< of the frequencies
  bool interleaved = false;  ///< RopeOptions::interleaved
};

}  // namespace trireme::nn
