#include "parallel/parameters/later_parameters.h"

#include <algorithm>

#include "core/error.h"

namespace trireme {

LaterParameters::LaterParameters(const ParameterList& parameters) {
  for (const ParameterPtr& parameter : parameters) {
    const std::weak_ptr<const ParameterList>& list = parameter->made_with;
    const auto is_same = [&](const Model& model) {
      return !model.parameters.owner_before(list) && !list.owner_before(model.parameters);
    };
    const auto all = list.lock();
    if (all != nullptr && std::none_of(models_.begin(), models_.end(), is_same)) models_.push_back({list, all->size()});
  }
}

template <class IsMissed>
ParameterPtr LaterParameters::find(const IsMissed& is_missed) const {
  for (const Model& model : models_) {
    const auto all = model.parameters.lock();
    for (std::size_t i = model.count; all != nullptr && i < all->size(); ++i) {
      const Parameter& later = *(*all)[i];
      if (later.requires_grad() && later.grad().defined() && is_missed(later)) return (*all)[i];
    }
  }
  return nullptr;
}

void LaterParameters::require_updated(std::string_view where) const {
  const ParameterPtr later = find([](const Parameter& p) { return p.optimizer.expired(); });
  if (later != nullptr)
    fail(ExitCode::usage, where,
         "{} was made after the optimizer, which does not update it, and it has a gradient; expected all layers to be "
         "made before; make the optimizer after the last layer, make a second one of the new parameters, or freeze "
         "them",
         later->name);
}

void LaterParameters::require_summed(std::string_view where) const {
  const ParameterPtr later =
      find([](const Parameter& p) { return p.needs_sum && p.summed_by == GradientSum::nobody && !p.gradient_summed; });
  if (later != nullptr)
    fail(ExitCode::usage, where,
         "{} was made after the GradSync, which does not sum its gradient over ranks; expected all layers to be made "
         "before; make the GradSync after the last layer, make a second one of the new parameters, or freeze them",
         later->name);
}

}  // namespace trireme
