// Case: one thing that the explorer tries. It has a kind, which says what is compared with what, and the flags of the
// runs. As text, which `explore --replay` takes:
//
//   bits --mesh=dp=2 --zero=1 --micro-batches=3 then --pipeline=zero-bubble
//
// are two runs that must have the same bits: the second has the flags behind `then` in addition.
// Read next: train/explore/kinds.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::explore {

/// Values by flag, both as on the command line, the flag without dashes.
using Arguments = std::map<std::string, std::string>;

/// "--dropout=0.1 --mesh=dp=2".
std::string to_text(const Arguments& arguments);
/// The same as words for a program.
std::vector<std::string> to_words(const Arguments& arguments);
/// `base` with `changes`, which win.
Arguments with(Arguments base, const Arguments& changes);

enum class Kind : std::uint8_t { gradients, run, resume, bits, faults, verify };
std::string_view name(Kind kind);
const std::vector<Kind>& all_kinds();

struct Case {
  Kind kind = Kind::run;
  Arguments flags;   ///< of the first run
  Arguments change;  ///< what the second one has in addition, or another value of
  bool operator==(const Case&) const = default;
};

std::string to_text(const Case& c);
/// Sizes that are missing are tiny ones. Throws ExitCode::usage for text that is no case.
Case parse_case(const std::string& text);

}  // namespace trireme::explore
