// Errors that name their cause. Every failure a user can reach is thrown as an Error: it says where, what, what was
// expected, what was found and what to change, and carries the exit code the program ends with.
// Read next: core/tensor.h.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace trireme {

/// Exit codes of every Trireme program.
enum class ExitCode {
  ok = 0,
  usage = 64,      ///< a flag, a configuration value, or an impossible combination of them
  data = 65,       ///< malformed or unusable input data
  internal = 70,   ///< a bug in Trireme or in code calling it with wrong shapes
  locked = 73,     ///< something else owns the output folder
  io = 74,         ///< the file system refused
  retryable = 75,  ///< a lost rank, exhausted memory, a failed GPU, a request to stop: start again
  desync = 76,     ///< ranks are out of step with one another
  numerical = 77,  ///< loss or gradients are no longer finite
};

/// `trireme: [where] what`; `what` reads "problem; expected X, got Y; do Z".
/// @snippet tensor_test.cpp error
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string_view where, std::string_view what)
      : std::runtime_error(fmt::format("trireme: [{}] {}", where, what)), code_(code), where_(where.size()) {}
  ExitCode code() const { return code_; }
  std::string where() const { return std::string(what()).substr(begin, where_); }
  /// `what` alone, to be quoted in another message.
  std::string reason() const { return std::string(what()).substr(begin + where_ + 2); }

 private:
  static constexpr std::size_t begin = std::string_view("trireme: [").size();
  ExitCode code_;
  std::size_t where_;
};

/// Throws an Error with a formatted message: fail(ExitCode::usage, "mesh", "tp={} does not divide heads={}", tp,
/// heads).
template <class... Args>
[[noreturn]] void fail(ExitCode code, std::string_view where, fmt::format_string<Args...> what, Args&&... args) {
  throw Error(code, where, fmt::format(what, std::forward<Args>(args)...));
}

/// Throws with ExitCode::internal unless `holds`: for shapes and arguments of operations called from C++ code.
template <class... Args>
void require(bool holds, std::string_view where, fmt::format_string<Args...> what, Args&&... args) {
  if (!holds) [[unlikely]]
    fail(ExitCode::internal, where, what, std::forward<Args>(args)...);
}

}  // namespace trireme
