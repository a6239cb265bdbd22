// Case: one test of the explorer. It has a kind, which says what is compared with what, and the flags of the runs. Its
// text form is the argument of `explore --replay`:
//
//   bits --mesh=dp=2 --zero=1 --micro-batches=3 then --pipeline=zero-bubble
//
// These are two runs that must give the same bits. The second run also has the flags after `then`.
// Read next: check/explore/kinds.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::explore {

/// Values by flag, written as on the command line; flags without dashes.
using Arguments = std::map<std::string, std::string>;

/// "--dropout=0.1 --mesh=dp=2".
std::string to_text(const Arguments& arguments);
/// The same as separate arguments for a program.
std::vector<std::string> to_words(const Arguments& arguments);
/// The flag's value, or `otherwise` if it is not given.
std::string value_of(const Arguments& arguments, const std::string& flag, const std::string& otherwise = "");
/// `base` with `changes` applied on top.
Arguments with(Arguments base, const Arguments& changes);

enum class CaseKind : std::uint8_t { gradients, run, resume, bits, faults, verify };
std::string_view name(CaseKind kind);
const std::vector<CaseKind>& all_kinds();

struct Case {
  CaseKind kind = CaseKind::run;
  Arguments flags;   ///< of the first run
  Arguments change;  ///< flags that the second run has in addition, or with another value
  bool operator==(const Case&) const = default;
};

std::string to_text(const Case& c);
/// Missing sizes are set to tiny ones. Throws ExitCode::usage for text that is not a case.
Case parse_case(const std::string& text);

}  // namespace trireme::explore
