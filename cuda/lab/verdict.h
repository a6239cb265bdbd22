// Which levels of a climb were wrong. A level that anyone may have changed says so by the program's exit status, and
// not only by a number in a table. Read next: cuda/lab/main.cpp.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

namespace trireme::cuda::lab {

class Verdict {
 public:
  /// A level's error, and up to what it is right. Not a number is wrong.
  void add(std::string_view ladder, std::string_view level, double error, double accepted) {
    if (!(error <= accepted))
      wrong_.push_back(fmt::format("{} of {} (error {:.1e}; expected at most {:.1e})", level, ladder, error, accepted));
  }
  /// Those that were wrong, in the order of the climb.
  const std::vector<std::string>& wrong() const { return wrong_; }

 private:
  std::vector<std::string> wrong_;
};

}  // namespace trireme::cuda::lab
