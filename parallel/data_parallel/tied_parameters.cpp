#include "parallel/data_parallel/tied_parameters.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "core/dry_run.h"
#include "parallel/comm/texts.h"

namespace trireme {
namespace {

/// Each stage must have built only its own part of the model. A parameter that two stages own would be trained twice,
/// each time with part of its gradient, and would count twice in the norm.
void require_own_parts(const ParameterList& parameters, const DeviceMesh& mesh) {
  ProcessGroup& stages = mesh.group(Axis::pp);
  if (stages.size() == 1 || DryRun::on()) return;
  std::string names;
  for (const ParameterPtr& parameter : parameters) {
    if (!parameter->copy_of_earlier_stage) names += parameter->name + "\n";
  }
  std::map<std::string, int> holder;
  const std::vector<std::string> by_stage = all_gather_texts(stages, names);
  for (int stage = 0; stage < stages.size(); ++stage) {
    std::istringstream lines(by_stage[static_cast<std::size_t>(stage)]);
    for (std::string name; std::getline(lines, name);) {
      const auto [first, is_new] = holder.emplace(name, stage);
      if (is_new) continue;
      fail(ExitCode::usage, "pipeline",
           "ranks {} and {} of pp both made {}; expected each to make only its stage's part of the model (as "
           "models/gpt.cpp does, from mesh.coord(Axis::pp)), or the last one a tied copy (copy_of_earlier_stage); use "
           "pp=1 for a model that is not cut into stages",
           first->second, stage, name);
    }
  }
}

/// What both ends of the pipeline must have in common.
std::string description(const Parameter& parameter) {
  return fmt::format("{} {} of seed {}, {}", parameter.name, parameter.local.shape(), parameter.seed,
                     parameter.requires_grad() ? "trained" : "frozen");
}

}  // namespace

// A tied weight has the same name on both ends. Only the last stage knows that it holds a copy, so it tells the first.
ParameterList find_tied(const ParameterList& parameters, const DeviceMesh& mesh) {
  require_own_parts(parameters, mesh);
  ParameterList tied;
  ProcessGroup* ends = mesh.pipeline_ends();
  if (ends == nullptr) return tied;
  std::string names;
  for (const ParameterPtr& parameter : parameters) {
    if (parameter->copy_of_earlier_stage) names += description(*parameter) + "\n";
  }
  std::istringstream lines(broadcast_text(*ends, names, ends->size() - 1));
  for (std::string line; std::getline(lines, line);) {
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const ParameterPtr& parameter) { return description(*parameter) == line; });
    require(found != parameters.end(), "grad_sync",
            "{}: the last pipeline stage has a copy of {}; the first stage has no such parameter", mesh.where(), line);
    if ((*found)->requires_grad()) tied.push_back(*found);
  }
  return tied;
}

}  // namespace trireme
