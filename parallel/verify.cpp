#include "parallel/verify.h"

#include "parallel/mesh/verify.h"

namespace trireme {

std::vector<Copied> copies_of(const nn::ParameterList& parameters, const nn::ParameterList& tied,
                              const DeviceMesh& mesh) {
  std::vector<Copied> copies;
  const auto add = [&](const nn::Parameter& p, const char* kind, ProcessGroup& group) {
    if (group.size() > 1) copies.push_back({p.name, kind, p.value.detach(), p.rectangle, &group});
  };
  for (const nn::ParameterPtr& p : parameters) {
    add(*p, "parameter", mesh.group(p->placements.ep.sharded() ? Axis::edp : Axis::data));
    if (!p->placements.tp.sharded()) add(*p, "parameter", mesh.group(Axis::tp));
  }
  for (const nn::ParameterPtr& p : tied) add(*p, "tied parameter", *mesh.pipeline_ends());
  return copies;
}

void verify_copies(const std::vector<Copied>& copies) {
  for (const Copied& copy : copies) require_same(copy.value, *copy.group, fmt::format("{} {}", copy.kind, copy.name));
}

}  // namespace trireme
