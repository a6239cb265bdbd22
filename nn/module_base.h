// ModuleBase: what every layer has, whatever its forward takes and returns: a name, parameters and other modules below
// it, and a place on the mesh. nn::Module is the base of layers that map one tensor to one tensor. A layer with another
// forward derives from ModuleBase, and gives its work to call():
//
//   struct Cross : nn::ModuleBase {
//     nn::Linear q, kv;
//     Cross(const nn::Build& b, std::int64_t width);
//     Tensor operator()(const Tensor& x, const Tensor& memory) {        // [B, T, D], [B, S, D] -> [B, T, D]
//       return call([&] { return attend(q(x), kv(memory)); });
//     }
//   };
//
// call() announces the layer's unit for ZeRO, and adds the layer's name to errors.
//
// A module's parameters are those whose names are below its own: "blocks.3.norm.weight" belongs to "blocks.3". So give
// modules names of their own, b / "name"; two modules with one name share their parameters.
// Read next: nn/module.h, nn/summary.h, nn/weights.h.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "nn/build.h"
#include "parallel/comm/call_site.h"

namespace trireme::nn {

/// A parameter under its name within a module: "norm.weight" in "blocks.3".
struct NamedParameter {
  std::string name;
  ParameterPtr parameter;
};

/// The base of all layers: a name, parameters, and modules below it.
/// @snippet modules_test.cpp module_base
class ModuleBase {
 public:
  explicit ModuleBase(const Build& build);
  virtual ~ModuleBase();
  ModuleBase(const ModuleBase&) = delete;  // parameters are registered once, by name
  ModuleBase& operator=(const ModuleBase&) = delete;

  const std::string& name() const { return build_.name(); }
  const Build& build() const { return build_; }  ///< with which it was made

  // Of this module and the modules below it, on this rank, in the order in which they were made.
  ParameterList parameters() const { return build_.parameters_below(); }
  std::vector<NamedParameter> named_parameters() const;
  BufferList buffers() const { return build_.buffers_below(); }
  std::vector<ModuleBase*> modules() const { return build_.modules_below(); }  ///< this one is among them

  /// As in PyTorch: from now on the module, and the modules below it that exist, compute as in evaluation. Dropout
  /// drops nothing, BatchNorm takes its running statistics and leaves them as they are, an Moe drops no tokens.
  /// Gradients are another matter: NoGrad, freeze().
  void eval() { train(false); }
  /// Ends eval(). Throws ExitCode::usage while RunState::training, the switch of the whole model, is off.
  void train(bool on = true);
  /// Whether the module computes as in training: neither eval() nor RunState::training says otherwise.
  bool training() const { return !evaluating_ && run_state().training; }

  /// The parameter of this name within the module: block.parameter("norm.weight"). Throws ExitCode::usage, with the
  /// nearest names, if there is none.
  ParameterPtr parameter(std::string_view name) const;

 protected:
  const DeviceMesh& mesh() const { return build_.mesh(); }
  const Parallelism& parallelism() const { return build_.parallelism(); }
  Placement residual() const { return build_.residual(); }  ///< placement of the residual stream on tp
  const RunState& run_state() const { return *build_.run_state(); }

  /// f(), inside a use of the module's unit if it begins one. If f throws ExitCode::internal, as for a wrong shape, the
  /// message gets the layer's name. f returns a tensor, or a pair, tuple, vector or array of tensors.
  template <class F>
  auto call(F&& f) {
    const CallSite site(name());
    try {
      if (!use_.of_unit()) return f();
      auto result = [&] {
        const UnitScope scope = use_.enter();
        return f();
      }();
      announce(result);
      return result;
    } catch (const Error& error) { rethrow_with_name(error); }
  }

 private:
  /// Called while `error` is handled.
  [[noreturn]] void rethrow_with_name(const Error& error) const;

  // The backward through a result first makes the unit's values available.
  void announce(Tensor& result) const { result = use_.before_backward(result); }
  void announce(std::vector<Tensor>& results) const {
    for (Tensor& result : results) announce(result);
  }
  template <std::size_t n>
  void announce(std::array<Tensor, n>& results) const {
    for (Tensor& result : results) announce(result);
  }
  template <class A, class B>
  void announce(std::pair<A, B>& results) const {
    announce(results.first);
    announce(results.second);
  }
  template <class... Ts>
  void announce(std::tuple<Ts...>& results) const {
    std::apply([this](auto&... result) { (announce(result), ...); }, results);
  }

  Build build_;
  UnitUse use_;
  bool evaluating_ = false;
};

/// Stops the training of all parameters of the module (Parameter::set_requires_grad()). Call it before GradSync, Zero
/// and optimizers are made.
inline void freeze(const ModuleBase& module) { set_requires_grad(module.parameters(), false); }
/// Trains them again.
inline void unfreeze(const ModuleBase& module) { set_requires_grad(module.parameters(), true); }
/// Starts a step without GradSync or Zero.
inline void zero_grad(const ModuleBase& module) { trireme::zero_grad(module.parameters()); }

}  // namespace trireme::nn
