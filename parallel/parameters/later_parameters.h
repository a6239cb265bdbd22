// Parameters that were made after an optimizer or GradSync: they get gradients, but nobody updates them or sums their
// gradients. So their weights silently keep their first values, or differ between ranks. Build keeps one list of a
// model's parameters; an optimizer and a GradSync remember its length, and look at what was added when they are used.
// A Parameter that a program makes by hand is in no such list, and is not found.
// Read next: optim/optimizer.h, parallel/data_parallel/grad_sync.h.
#pragma once

#include <vector>

#include "parallel/parameters/parameter.h"

namespace trireme {

/// Finds parameters that were made after this object. See the top of this file.
class LaterParameters {
 public:
  LaterParameters() = default;
  /// Of the models that `parameters` are from.
  explicit LaterParameters(const ParameterList& parameters);

  /// Both throw ExitCode::usage, naming `where` and the parameter, for one that was made later, is not frozen, and has
  /// a gradient: a forward used it. Without later parameters they compare a few numbers.
  void require_updated(std::string_view where) const;  ///< unless an optimizer has it
  void require_summed(std::string_view where) const;   ///< unless a GradSync or Zero has it, or nothing is to be summed

 private:
  template <class IsMissed>
  ParameterPtr find(const IsMissed& is_missed) const;

  struct Model {
    std::weak_ptr<const ParameterList> parameters;
    std::size_t count;
  };
  std::vector<Model> models_;
};

}  // namespace trireme
