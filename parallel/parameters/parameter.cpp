#include "parallel/parameters/parameter.h"

#include <set>
#include <utility>

#include "autograd/engine.h"
#include "core/nearest.h"

namespace trireme {

const Tensor& Parameter::value() const {
  if (unit != nullptr && !unit->in_use && !in_backward())
    fail(ExitCode::internal, "unit",
         "{} is read outside a use of its unit '{}': under ZeRO its value may be missing or of an earlier step; "
         "expected a read inside a use; call the module that begins the unit, or read the value inside the function "
         "that is given to Build::use_unit()",
         name, unit->name);
  return local;
}

void check_parameters(std::string_view where, const ParameterList& parameters) {
  require(!parameters.empty(), where,
          "the list of parameters is empty; expected those of a model; make the model first, then take "
          "build.parameters()");
  std::set<const Parameter*> seen;
  for (const ParameterPtr& parameter : parameters) {
    require(parameter != nullptr, where, "the list has a null parameter; expected parameters of a model");
    require(seen.insert(parameter.get()).second, where, "{} is twice in the list; expected each parameter once",
            parameter->name);
  }
}

void require_same_mesh(std::string_view where, const ParameterList& parameters, const DeviceMesh& mesh) {
  for (const ParameterPtr& parameter : parameters)
    if (parameter->made_for && *parameter->made_for != mesh.shape())
      fail(ExitCode::usage, where,
           "{} was made for the mesh {}, and is to be used with {}; expected one mesh; give this call the mesh of the "
           "model's Build",
           parameter->name, to_string(*parameter->made_for), to_string(mesh.shape()));
}

void Parameter::set_requires_grad(bool on) {
  if (on == requires_grad()) return;
  if (summed_by != GradientSum::nobody)
    fail(ExitCode::usage, "parameter",
         "{} is to be {} while a GradSync or Zero sums its gradient; expected this before; {} parameters first, then "
         "make GradSync or Zero and the optimizer",
         name, on ? "trained again" : "frozen", on ? "unfreeze" : "freeze");
  if (!on) {
    leaf().set_grad({});
    frozen_leaf = local.node();
    local.set_node(nullptr);
  } else if (frozen_leaf != nullptr) {
    local.set_node(std::exchange(frozen_leaf, nullptr));
  } else {
    require_grad(local);
    leaf().set_parameter();
  }
}

void set_requires_grad(const ParameterList& parameters, bool on) {
  for (const ParameterPtr& parameter : parameters) parameter->set_requires_grad(on);
}

ParameterList trained(const ParameterList& parameters) {
  ParameterList chosen;
  for (const ParameterPtr& parameter : parameters)
    if (parameter->requires_grad()) chosen.push_back(parameter);
  return chosen;
}

// After a mismatch it goes back to the last *, which takes one more character.
bool name_fits(std::string_view name, std::string_view pattern) {
  std::size_t n = 0, p = 0, star = std::string_view::npos, after_star = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool name_fits_any(std::string_view name, std::string_view patterns) {
  while (!patterns.empty()) {
    const std::string_view pattern = patterns.substr(0, patterns.find(','));
    if (name_fits(name, pattern)) return true;
    patterns.remove_prefix(std::min(patterns.size(), pattern.size() + 1));
  }
  return false;
}

ParameterList matching(const ParameterList& parameters, std::string_view pattern, bool or_none) {
  ParameterList chosen;
  std::vector<std::string> names;
  for (const ParameterPtr& parameter : parameters) {
    if (name_fits(parameter->name, pattern)) chosen.push_back(parameter);
    names.push_back(parameter->name);
  }
  if (!chosen.empty() || or_none) return chosen;
  std::string near;
  for (const std::string& name : nearest(pattern, names, 3))
    near += fmt::format("{}{}", near.empty() ? "" : ", ", name);
  fail(ExitCode::usage, "parameter",
       "none of {} parameters has a name like '{}'; expected one or more; the nearest: {}", names.size(), pattern,
       near.empty() ? "none" : near);
}

void zero_grad(const ParameterList& parameters) {
  for (const ParameterPtr& parameter : trained(parameters)) {
    if (parameter->summed_by != GradientSum::nobody)
      fail(ExitCode::usage, "zero_grad",
           "a GradSync or Zero has the gradient of {}; expected its own zero_grad(), which also checks the order of a "
           "step; call that",
           parameter->name);
    parameter->gradient_summed = false;
    Leaf& leaf = parameter->leaf();
    if (leaf.sum().defined()) {
      leaf.mark_zero();
      continue;
    }
    const MemoryScope scope(MemoryCategory::gradients);
    leaf.set_grad(Tensor::zeros(parameter->local.shape(), leaf.gradient_dtype(), parameter->local.device()));
  }
}

void mark_gradients_summed(const ParameterList& parameters) {
  for (const ParameterPtr& parameter : trained(parameters)) {
    if (parameter->summed_by != GradientSum::nobody)
      fail(ExitCode::usage, "mark_gradients_summed",
           "a GradSync or Zero adds up the gradient of {}; expected parameters without one; call its finish()",
           parameter->name);
    parameter->gradient_summed = true;
  }
}

void Parameter::require_summed(std::string_view where) const {
  if (gradient_summed) return;
  if (summed_by == GradientSum::grad_sync)
    fail(ExitCode::usage, where,
         "the gradient of {} is that of this rank's samples: GradSync::finish() was not called after the last "
         "backward; expected the sum over all ranks; call finish() first, then clip_gradients() and step()",
         name);
  if (summed_by == GradientSum::zero)
    fail(ExitCode::usage, where,
         "Zero keeps the gradient of {} in pieces; expected those of the whole step; call its finish() after the last "
         "backward, take the norm from its gradient_norm(), and give the optimizer zero.shards() and attach(zero)",
         name);
  if (needs_sum)
    fail(
        ExitCode::usage, where,
        "the gradient of {} is that of this rank's samples, as nothing adds it up over the ranks of the mesh; expected "
        "the sum over all of them; make a GradSync of all parameters after the model, and call its finish() after the "
        "last backward; after a sum of your own, call mark_gradients_summed()",
        name);
}

Leaf& Parameter::leaf() const {
  Leaf* const leaf = leaf_of(local);
  require(leaf != nullptr, "parameter",
          "{} {} cannot have a gradient, as it is frozen or was taken off the tape; expected a leaf; train it with "
          "set_requires_grad(true)",
          name, local.shape());
  return *leaf;
}

const Tensor& Parameter::defined_grad(std::string_view where) const {
  const Tensor& gradient = grad();
  require(gradient.defined(), where,
          "{} {} has no gradient: no backward has reached it, and nothing made one of zeros; expected one; use it in "
          "forward, call zero_grad() of all parameters before backward, make a GradSync, or freeze it",
          name, local.shape());
  return gradient;
}

}  // namespace trireme
