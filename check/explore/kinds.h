// The kinds of cases: what each one compares, and how its cases are drawn.
//
//   gradients  parity: loss, all gradients and all weights of a mesh equal those of one rank, up to rounding
//   run        a whole run on a mesh equals that on one rank: losses, norms, validation losses and samples up to
//              rounding; tokens, learning rates, skipped steps and loss scales exactly. In 16 bits, its first step also
//              equals that of f32, up to the dtype's rounding
//   resume     a stopped and resumed run equals an uninterrupted one: the same bits on the same mesh, up to rounding on
//              another mesh
//   bits       two runs that differ in flags that must not change a bit (neutral.h) have the same bits
//   faults     a NaN is named and skipped, and a spike rolled back, on a mesh as on one rank
//   verify     --verify and --check-replicas find a flipped bit and an extra collective
//
// docs/guarantees.md names the kind that tests each promise. Read next: check/explore/explorer.h.
#pragma once

#include "check/explore/program_runner.h"
#include "check/explore/random_choices.h"

namespace trireme::explore {

struct CaseResult {
  enum class Kind : std::uint8_t {
    right,
    refused,  ///< the program refused the flags, in all runs alike
    wrong
  };
  Kind kind = Kind::right;
  std::string text;  ///< what is wrong, or why it was refused

  static CaseResult right() { return {}; }
  static CaseResult refused(std::string why) { return {Kind::refused, std::move(why)}; }
  static CaseResult wrong(std::string what) { return {Kind::wrong, std::move(what)}; }
};

Case draw_case(CaseKind kind, RandomChoices& random);
CaseResult check_case(const Case& c, ProgramRunner& runner);

/// True if the programs accept the flags of both runs, and rounding cannot decide the result.
bool is_possible(const Case& c);
/// True if the case is compared up to rounding, but trains with AdamW whose updates are unbounded: the rounding of one
/// small gradient could then change a weight by any amount. An update is lr m / sqrt(v). A gradient of i steps ago
/// contributes beta1^i to m, and at least sqrt(beta2^i) to sqrt(v). The sum of these ratios is finite if and only if
/// beta1^2 < beta2.
bool amplifies_rounding(const Case& c);
/// True if something compares or hashes the tensor that a planted fault changes: only then must a run find it.
bool can_find_fault(const Arguments& flags);
/// Slightly smaller cases, those with the largest reduction first.
std::vector<Case> smaller_cases(const Case& c);

}  // namespace trireme::explore
