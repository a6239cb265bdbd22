#include "nn/unit.h"

#include <utility>

#include "autograd/engine.h"
#include "autograd/op.h"

namespace trireme::nn {
namespace {

/// y = x;  dx = dy, once the unit that computed x is there. Being newer than all that unit recorded, this runs first.
struct BeforeBackward : Op {
  static constexpr const char* name = "unit";
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
  units_.push_back(std::make_unique<Unit>(Unit{std::move(name), chunk, {}}));
  return units_.back().get();
}

std::size_t Units::add_use(Unit* unit) {
  uses_.push_back(unit);
  return uses_.size() - 1;
}

Tensor UnitUse::operator()(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) const {
  if (!observed()) return f(x);
  units_->observer()->before_use(index_, in_backward());
  BeforeBackward op;
  op.units = units_;
  op.use = index_;
  return apply(std::move(op), f(x));
}

}  // namespace trireme::nn
