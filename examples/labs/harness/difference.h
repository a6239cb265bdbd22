// What is wrong with a tensor, and by how much: the sentences of a grader. They say what can be seen from outside, as an
// engineer would who compares two runs: the ratio, the part that is wrong, the element. Never what the code should be.
#pragma once

#include <string>
#include <string_view>

#include "core/tensor.h"

namespace trireme::labs {

struct Comparison {
  double tolerance = 1e-5;  ///< of `scale`
  /// The magnitude that rounding errors are in proportion to: of the terms, where `want` is a sum of few numbers whose
  /// terms may cancel. 0: the largest magnitude in `want`
  double scale = 0;
  Tensor before = {};  ///< what `got` was before the code ran: so parts that were not written are named
};

/// Empty if `got` has the shape and, within the tolerance, the elements of `want`. Otherwise a sentence about `name`.
std::string difference(std::string_view name, const Tensor& got, const Tensor& want, const Comparison& comparison = {});

}  // namespace trireme::labs
