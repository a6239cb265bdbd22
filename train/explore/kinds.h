// The kinds of cases: what each compares, and how its cases are drawn.
//
//   gradients  parity: loss, every gradient and every weight of a mesh are those of one rank, to rounding
//   run        a whole run on a mesh gives what one rank gives, to rounding: losses, norms, validation losses, samples;
//              and exactly: tokens, learning rates, skipped steps, loss scales. In 16 bits its first step is also
//              that of f32, to the dtype's rounding
//   resume     a run that is stopped and resumed gives what it would have given: the same bits on the same mesh, the
//              same numbers to rounding on another
//   bits       two runs that differ in flags that must not change a bit (neutral.h) have the same bits
//   faults     a NaN or a spike is named, skipped and rolled back on a mesh as on one rank
//   verify     --verify and --check-replicas find a flipped bit and a collective too many
//
// docs/guarantees.md names the kind that holds each promise. Read next: train/explore/explorer.h.
#pragma once

#include "train/explore/dice.h"
#include "train/explore/lab.h"

namespace trireme::explore {

struct Verdict {
  enum class Kind : std::uint8_t {
    right,
    refused,  ///< the program refused the flags, in all runs alike
    wrong
  };
  Kind kind = Kind::right;
  std::string text;  ///< what is wrong, or why it was refused

  static Verdict right() { return {}; }
  static Verdict refused(std::string why) { return {Kind::refused, std::move(why)}; }
  static Verdict wrong(std::string what) { return {Kind::wrong, std::move(what)}; }
};

Case draw_case(Kind kind, Dice& dice);
Verdict check_case(const Case& c, Lab& lab);

/// Whether the programs take the flags of both runs, and rounding cannot decide how they end.
bool is_possible(const Case& c);
/// Whether a case that is compared to rounding trains with an AdamW whose updates have no bound, so that the rounding
/// of one small gradient may change a weight by any amount. An update is lr m / sqrt(v). Of a gradient i steps ago,
/// beta1^i is in m, and in sqrt(v) at least sqrt(beta2^i): their ratios have a finite sum if and only if beta1^2 <
/// beta2.
bool amplifies_rounding(const Case& c);
/// Cases that are a little smaller, the boldest first.
std::vector<Case> smaller_cases(const Case& c);

}  // namespace trireme::explore
