// Unit: parameters that are used together, and the places where a model uses them.
//
// A model says where units begin (Build::unit()): each block is one, the embedding tables another. ZeRO
// (parallel/zero/) gathers a unit as a whole before it is used and can release it afterwards; the model needs no code
// for this. Without an observer, a unit costs nothing.
//
//   const nn::Build b = parent.unit();
//   use_ = b.use_unit();                                             // in the order of a forward
//   y = use_(x, [&](const Tensor& in) { return in * weight_->value(); });
//
// A Module built with a Build that begins a unit does this by itself in operator(). Outside the uses of its unit,
// Parameter::value() throws. So the first forward finds a forgotten use, on any mesh. Units do not nest.
// Read next: nn/module.h, parallel/zero/weights.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/parameters/parameter.h"

namespace trireme {

struct Shard;  // parallel/parameters/shard.h

struct Unit {
  std::shared_ptr<UnitState> state;
  int chunk = 0;  ///< the stage of this rank it is part of, if there are several: one backward goes through one stage
  ParameterList parameters;

  /// Adds a parameter.
  void add(const ParameterPtr& parameter) {
    parameter->unit = state;
    parameters.push_back(parameter);
  }
};

/// Called each time a unit is about to be used; may communicate, since every rank runs the same program.
class UnitObserver {
 public:
  virtual ~UnitObserver() = default;
  /// The values of the unit used at place `use` are needed from now until the next call: by the forward at that place,
  /// or by its backward (`backward`).
  virtual void before_use(std::size_t use, bool backward) = 0;

  // For code that reads or replaces weights between steps.
  /// Completes weights that are on their way to this rank. Collective over the mesh.
  virtual void finish_gathers() {}
  /// The piece of a parameter that this rank keeps between uses of its unit; null: its local tensor is complete.
  virtual std::shared_ptr<const Shard> kept_piece(const Parameter& /*parameter*/) const { return nullptr; }
  /// Call after weights were replaced.
  virtual void forget_hashes() {}
};

/// The units of a model, and the places where it uses them, in the order of a forward. A unit may be used at several: a
/// tied embedding at two.
class Units {
 public:
  /// Makes a unit. `chunk`: Unit::chunk.
  Unit* add(std::string name, int chunk = 0);
  std::size_t add_use(Unit* unit);  ///< registers the next use, in the order of a forward; returns its place

  const std::vector<std::unique_ptr<Unit>>& all() const { return units_; }
  const std::vector<Unit*>& uses() const { return uses_; }
  UnitObserver* observer() const { return observer_; }
  void set_observer(UnitObserver* observer) { observer_ = observer; }  ///< whom UnitScope tells; null: nobody

 private:
  friend class UnitScope;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<Unit*> uses_;
  UnitObserver* observer_ = nullptr;
  UnitState* in_use_ = nullptr;
};

/// While it lives, a forward is inside one use of a unit, whose values may be read. Throws ExitCode::internal inside
/// the use of another unit.
class UnitScope {
 public:
  UnitScope(Units& units, std::size_t use);
  ~UnitScope();
  UnitScope(const UnitScope&) = delete;
  UnitScope& operator=(const UnitScope&) = delete;

 private:
  Units& units_;
};

/// One place where a unit is used.
class UnitUse {
 public:
  UnitUse() = default;  ///< of no unit
  UnitUse(std::shared_ptr<Units> units, std::size_t index) : units_(std::move(units)), index_(index) {}
  bool of_unit() const { return units_ != nullptr; }

  /// f(x), with the unit's values available while f runs and again while its backward runs.
  Tensor operator()(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) const;

  // The two parts of this, for a forward with several inputs or results; of_unit() must hold. The values are available
  // while the scope lives, and in a backward through y if each result y is replaced by before_backward(y).
  UnitScope enter() const { return {*units_, index_}; }
  Tensor before_backward(const Tensor& y) const;

 private:
  std::shared_ptr<Units> units_;
  std::size_t index_ = 0;
};

}  // namespace trireme
