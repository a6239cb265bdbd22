// Catches the Error that code throws, for a test to check.
// Read next: core/error.h, tests/support/text.h.
#pragma once

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <string>
#include <string_view>

#include "core/error.h"
#include "tests/support/text.h"

namespace trireme::testing {

struct Caught {
  ExitCode code = ExitCode::ok;
  std::string message;
  bool has(std::string_view part) const { return contains(message, part); }
};

/// The Error that f throws; code ok and no message if it throws nothing.
template <class F>
Caught caught(F&& f) {
  try {
    f();
  } catch (const Error& error) { return {error.code(), error.what()}; }
  return {};
}

/// The message of the Error that f throws; empty if it throws none.
template <class F>
std::string error_of(F&& f) {
  return caught(f).message;
}

/// The same; checks that f throws an Error with this code.
template <class F>
std::string error_of(F&& f, ExitCode code) {
  const Caught error = caught(f);
  CHECK_MESSAGE(error.code == code, error.message);
  return error.message;
}

/// The code and the message of the Error that f throws: "64 trireme: ..."; "nothing" if it throws none.
template <class F>
std::string failure(F&& f) {
  const Caught error = caught(f);
  return error.code == ExitCode::ok ? "nothing" : fmt::format("{} {}", static_cast<int>(error.code), error.message);
}

/// The Error that f throws. If it throws none, the test case fails and ends.
template <class F>
Error thrown_by(F&& f) {
  try {
    f();
  } catch (const Error& error) { return error; }
  FAIL("expected an error");
  return {ExitCode::ok, "", ""};
}

/// Whether the text contains this part. If not, prints both.
inline bool says(std::string_view text, std::string_view part) {
  const bool found = contains(text, part);
  if (!found) MESSAGE(std::string(text), "\nlacks: ", std::string(part));
  return found;
}
inline bool says(const Error& error, std::string_view part) { return says(std::string_view(error.what()), part); }

}  // namespace trireme::testing
