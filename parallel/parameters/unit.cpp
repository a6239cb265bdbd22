#include "parallel/parameters/unit.h"

#include <utility>

#include "autograd/engine.h"
#include "autograd/op.h"

namespace trireme {
namespace {

/// y = x;  dx = dy. Backward first makes the unit that computed x available: this node is newer than all that the unit
/// recorded, so it runs before them.
struct BeforeBackward : Op {
  static constexpr const char* name = "unit";
  static constexpr bool keeps_f32 = true;  // ZeRO rounds nothing that would not be rounded without it
  std::shared_ptr<Units> units;
  std::size_t use = 0;
  Tensor forward(const Tensor& x) const { return x; }
  Gradients backward(const Tensor& dy) const {
    if (units->observer() != nullptr) units->observer()->before_use(use, true);
    return {dy};
  }
};

}  // namespace

Unit* Units::add(std::string name, int chunk) {
  units_.push_back(std::make_unique<Unit>(Unit{std::make_shared<UnitState>(UnitState{std::move(name)}), chunk, {}}));
  return units_.back().get();
}

std::size_t Units::add_use(Unit* unit) {
  uses_.push_back(unit);
  return uses_.size() - 1;
}

UnitScope::UnitScope(Units& units, std::size_t use) : units_(units) {
  UnitState& state = *units.uses()[use]->state;
  if (units.in_use_ != nullptr)
    fail(ExitCode::internal, "unit",
         "a use of unit '{}' begins inside one of '{}'; expected units not to nest; build the inner one without "
         "Build::unit(), or use it before or after the outer one",
         state.name, units.in_use_->name);
  if (units.observer() != nullptr) units.observer()->before_use(use, in_backward());
  units.in_use_ = &state;
  state.in_use = true;
}

UnitScope::~UnitScope() { std::exchange(units_.in_use_, nullptr)->in_use = false; }

Tensor UnitUse::operator()(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) const {
  if (units_ == nullptr) return f(x);
  const UnitScope scope = enter();
  return before_backward(f(x));
}

Tensor UnitUse::before_backward(const Tensor& y) const {
  if (units_->observer() == nullptr || !y.defined()) return y;
  BeforeBackward op;
  op.units = units_;
  op.use = index_;
  return apply(std::move(op), y);
}

}  // namespace trireme
