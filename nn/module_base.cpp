#include "nn/module_base.h"

#include <algorithm>
#include <iterator>
#include <typeinfo>

#include "core/nearest.h"

namespace trireme::nn {
namespace {

/// An Error that names a layer: the innermost.
class LayerError final : public Error {
 public:
  LayerError(const Error& error, const std::string& layer)
      : Error(error.code(), error.where(), fmt::format("{}; in the layer '{}'", error.reason(), layer)) {}
};

}  // namespace

ModuleBase::ModuleBase(const Build& build) : build_(build) {
  if (build.begins_unit()) use_ = build.use_unit();
  build_.modules_->push_back(this);
}

ModuleBase::~ModuleBase() {
  std::vector<ModuleBase*>& all = *build_.modules_;
  all.erase(std::prev(std::find(all.rbegin(), all.rend(), this).base()));  // modules mostly go in reverse order
}

std::vector<NamedParameter> ModuleBase::named_parameters() const {
  std::vector<NamedParameter> named;
  for (const ParameterPtr& parameter : parameters())
    named.push_back({std::string(name_within(parameter->name, name())), parameter});
  return named;
}

ParameterPtr ModuleBase::parameter(std::string_view name) const {
  std::vector<std::string> names;
  for (NamedParameter& named : named_parameters()) {
    if (named.name == name) return named.parameter;
    names.push_back(std::move(named.name));
  }
  const std::string of = this->name().empty() ? "the model" : fmt::format("'{}'", this->name());
  if (names.empty())
    fail(ExitCode::usage, "module", "{} has no parameter '{}', and no other on this rank; expected one that it has", of,
         name);
  std::string near;
  for (const std::string& other : nearest(name, names, 3))
    near += fmt::format("{}'{}'", near.empty() ? "" : ", ", other);
  fail(ExitCode::usage, "module", "{} has no parameter '{}'; expected one of its {}; the nearest are {}", of, name,
       names.size(), near);
}

void ModuleBase::train(bool on) {
  if (on && !run_state().training)
    fail(ExitCode::usage, "module",
         "{} is to be trained while RunState::training is false, which is for all modules of the model; expected true; "
         "set build.run_state()->training = true",
         name().empty() ? "the model" : fmt::format("'{}'", name()));
  for (ModuleBase* module : modules()) module->evaluating_ = !on;
}

void ModuleBase::rethrow_with_name(const Error& error) const {
  if (typeid(error) == typeid(Error) && error.code() == ExitCode::internal && !name().empty())
    throw LayerError(error, name());
  throw;
}

}  // namespace trireme::nn
