// Space: the set of flags that the explorer draws from. It is made from the declarations of the flags
// (Flags::declared), so a new flag is drawn as soon as it is declared. Combinations that validate() refuses are not
// drawn.
//
// A draw first chooses a mesh, a model and a batch that fit each other; independent random choices would rarely fit.
// Then it tries the other flags one by one in random order, and drops values that are refused. Models are tiny, and
// sizes are odd or prime where possible.
// Read next: check/explore/space.cpp, check/explore/kinds.h.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "check/explore/case.h"
#include "check/explore/random_choices.h"
#include "train/options/flags.h"

namespace trireme::explore {

/// Smaller sets of flags: fewer flags, smaller numbers, fewer ranks; the largest reductions first. Some may be refused.
std::vector<Arguments> smaller(const Arguments& flags);

/// A program's flags, and the check that refuses combinations of them.
struct Program {
  std::string name;
  std::vector<Flags::Declared> flags;
  std::function<std::string(const Arguments&)> objection;  ///< the error text; empty: the flags are accepted
};
const Program& parity_program();
const Program& train_program();

class Space {
 public:
  explicit Space(const Program& program) : program_(program) {}

  /// Draws flags that the program accepts together. Flags in `excluded` stay at their defaults.
  Arguments draw(RandomChoices& random, const std::set<std::string>& excluded = {}) const;

  /// A value for one flag; nothing for flags that are never drawn: files, times, and flags that the kinds of cases set.
  std::optional<std::string> draw_value(const Flags::Declared& flag, RandomChoices& random) const;

  const Program& program() const { return program_; }

 private:
  /// A mesh, a model and a batch that fit each other.
  Arguments draw_core(RandomChoices& random, const std::set<std::string>& excluded) const;

  const Program& program_;
};

}  // namespace trireme::explore
