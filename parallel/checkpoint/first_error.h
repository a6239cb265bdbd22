// FirstError: for a rank that must go on making the calls that other ranks wait for, although something failed here.
// Read next: parallel/checkpoint/weights.cpp, which uses it.
#pragma once

#include <optional>

#include "core/error.h"

namespace trireme::checkpoint {

/// Keeps the first error of several actions, and skips the actions after it.
///
///   FirstError problem;
///   for (...) { const Tensor value = whole.gather(name); problem.run([&] { writer.write(value); }); }
///   fail_together(group, [&] { problem.rethrow(); });
class FirstError {
 public:
  /// Calls f(), unless an earlier one has thrown.
  template <class F>
  void run(const F& f) {
    if (error_) return;
    try {
      f();
    } catch (const Error& error) { error_ = error; }
  }
  /// Throws the error, if there is one.
  void rethrow() const {
    if (error_) throw Error(*error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace trireme::checkpoint
