// The frame around every main(): one message and one exit code for a failure, however many ranks there are.
// Read next: train/launch/ranks.h, which starts the ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "core/error.h"

namespace trireme {

/// An Error that knows where in the job it happened.
class PlacedError : public Error {
 public:
  /// `place`: "rank 5 (dp=0,tp=1,pp=1) step 120", or empty. `note`: what else was lost by it, or empty.
  PlacedError(const Error& error, std::string place, std::string note = {})
      : Error(error), place_(std::move(place)), note_(std::move(note)) {}
  const std::string& place() const { return place_; }
  const std::string& note() const { return note_; }

 private:
  std::string place_, note_;
};

/// Runs `body`, whose result is the exit code; what it printed must have gone out (ExitCode::io), but to a terminal
/// that was closed. When it throws, prints `trireme: FATAL[CODE] place: [where] what` to stderr and returns the error's
/// code (ExitCode::internal for an exception that is not an Error). Of several processes under a launcher that fail
/// alike, one prints.
int run_program(const std::function<int()>& body);

/// Any exception as an Error; one that is none becomes ExitCode::internal.
Error to_error(const std::exception_ptr& exception);

/// `trireme: FATAL[CODE] place: [where] what; note`.
std::string fatal_message(const std::exception_ptr& exception);

/// Prints the message of `exception`, unless another process of this launcher was first, and returns the exit code.
int report(const std::exception_ptr& exception);

}  // namespace trireme
