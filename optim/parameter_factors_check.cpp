// The check that needs a mesh. The text itself is parsed without one: parameter_factors.cpp.
#include "optim/parameter_factors.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/dry_run.h"
#include "core/nearest.h"

namespace trireme::optim {

void ParameterFactors::refuse(const Entry& entry, const ParameterList& parameters, std::string_view what) const {
  std::vector<std::string> names;
  for (const ParameterPtr& parameter : parameters) names.push_back(parameter->name);
  const std::vector<std::string> near = nearest(entry.pattern, names, 3);
  fail(ExitCode::usage, flag_,
       "no {} has a name like '{}'; expected names such as {}; named_parameters() of a module, or `checkpoint inspect "
       "--tensors` for a saved run, lists them",
       what, entry.pattern, near.empty() ? "blocks.0.attn.qkv.weight" : fmt::format("{}", fmt::join(near, ", ")));
}

void ParameterFactors::require_matches(const ParameterList& parameters, std::string_view what) const {
  for (const Entry& entry : entries_)
    if (std::none_of(parameters.begin(), parameters.end(), [&](const auto& p) { return entry.matches(p->name); }))
      refuse(entry, parameters, what);
}

void ParameterFactors::require_matches(const ParameterList& parameters, std::string_view what,
                                       const DeviceMesh& mesh) const {
  if (entries_.empty()) return;
  const Tensor found = Tensor::zeros({static_cast<std::int64_t>(entries_.size())});
  for (std::size_t i = 0; i < entries_.size(); ++i)
    for (const ParameterPtr& parameter : parameters)
      if (entries_[i].matches(parameter->name)) found.data<float>()[i] = 1;
  if (DryRun::on()) return;  // other ranks may have what this one has not
  mesh.world().all_reduce(found, ReduceOp::max).wait();
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (found.data<float>()[i] == 0) refuse(entries_[i], parameters, what);
}

}  // namespace trireme::optim
