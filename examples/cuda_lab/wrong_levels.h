// Collects the levels that were wrong, so that a level broken by a change shows in the program's exit status, and not
// only as a number in a table. Read next: examples/cuda_lab/main.cpp.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

namespace trireme::cuda::lab {

class WrongLevels {
 public:
  /// Adds a level's error and its limit. NaN is wrong.
  void add(std::string_view ladder, std::string_view level, double error, double accepted) {
    if (!(error <= accepted))
      wrong_.push_back(fmt::format("{} of {} (error {:.1e}; expected at most {:.1e})", level, ladder, error, accepted));
  }
  /// The wrong levels, in the order of the run.
  const std::vector<std::string>& names() const { return wrong_; }

 private:
  std::vector<std::string> wrong_;
};

}  // namespace trireme::cuda::lab
