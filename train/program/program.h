// The wrapper of every main(): one message and one exit code for a failure, with any number of ranks.
// Read next: train/launch/ranks.h, which starts the ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "core/error.h"

namespace trireme {

/// An Error with its place in the job.
class PlacedError : public Error {
 public:
  /// `place`: "rank 5 (dp=0,tp=1,pp=1) step 120", or empty. `note`: what the failure also destroyed, or empty.
  PlacedError(const Error& error, std::string place, std::string note = {})
      : Error(error), place_(std::move(place)), note_(std::move(note)) {}
  const std::string& place() const { return place_; }
  const std::string& note() const { return note_; }

 private:
  std::string place_, note_;
};

/// Runs `body`, which returns the exit code. If `body` throws, prints `trireme: FATAL[CODE] place: [where] what` to
/// stderr and returns the error's code (ExitCode::internal for an exception that is not an Error). If several processes
/// of a launcher fail alike, one prints. Fails with ExitCode::io if standard output could not be written, unless it is
/// a closed terminal or a signal asked to leave. Standard streams that are closed become /dev/null first.
int run_program(const std::function<int()>& body);

/// Converts any exception to an Error. An exception that is not an Error becomes ExitCode::internal, or
/// ExitCode::retryable if memory or threads ran out.
Error to_error(const std::exception_ptr& exception);

/// `trireme: FATAL[CODE] place: [where] what; note`. What a user or a file has given may have any length and any bytes:
/// very long words, and the middle of very long messages, are replaced by the number of their bytes, and control
/// characters are escaped.
std::string fatal_message(const std::exception_ptr& exception);

/// Prints the message of `exception`, unless another process of this launcher did so before, and returns the exit code.
int report(const std::exception_ptr& exception);

}  // namespace trireme
