// Space: what the explorer draws from. It is made from the flags' own declarations (Flags::declared), so a new flag is
// drawn as soon as it is declared, and from what train/validate/validate.cpp refuses, so only runs that may start are
// drawn.
//
// A draw first chooses a mesh, and a model and a batch that fit it: these depend on one another, and chance alone
// would seldom hit. Then the other flags are tried one after the other, in random order; a value that is refused is
// dropped. Models are tiny, and sizes odd or prime where they may be.
// Read next: train/explore/space.cpp, train/explore/kinds.h.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "train/explore/case.h"
#include "train/explore/dice.h"
#include "train/options/flags.h"

namespace trireme::explore {

/// Smaller sets of flags: fewer of them, smaller numbers, fewer ranks, the boldest first. The program may refuse some.
std::vector<Arguments> smaller(const Arguments& flags);

/// A program's flags, and why it refuses some of them together.
struct Program {
  std::string name;
  std::vector<Flags::Declared> flags;
  std::function<std::string(const Arguments&)> objection;  ///< empty: it takes them
};
const Program& parity_program();
const Program& train_program();

class Space {
 public:
  explicit Space(const Program& program) : program_(program) {}

  /// Flags that the program takes together. Flags named in `apart` stay at their defaults.
  Arguments draw(Dice& dice, const std::set<std::string>& apart = {}) const;

  /// A value for one flag. Nothing for flags that are never drawn: files, times, and what the kinds of cases set.
  std::optional<std::string> draw_value(const Flags::Declared& flag, Dice& dice) const;

  const Program& program() const { return program_; }

 private:
  Arguments draw_core(Dice& dice, const std::set<std::string>& apart) const;

  const Program& program_;
};

}  // namespace trireme::explore
