// Initial values of parameters: a pure function of (seed, name, global element index). So every mesh starts from the
// same weights, with no broadcast.
// Read next: nn/build.h, parallel/parameters/parameter.h.
#pragma once

#include <cstdint>

#include "parallel/parameters/parameter.h"

namespace trireme::nn {

struct Init {
  enum class Kind : std::uint8_t { constant, normal };
  Kind kind = Kind::constant;
  double value = 0;  ///< the constant, or the standard deviation

  static Init zeros() { return {Kind::constant, 0}; }
  static Init ones() { return {Kind::constant, 1}; }
  static Init normal(double init_std) { return {Kind::normal, init_std}; }
};

/// Overwrites the local shard with its part of the initial global tensor.
void initialise(Parameter& parameter, const Init& init, std::uint64_t seed);

}  // namespace trireme::nn
