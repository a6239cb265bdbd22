#include "parallel/verify.h"

#include "parallel/mesh/verify.h"

namespace trireme {

void verify_copies(const nn::ParameterList& parameters, const nn::ParameterList& tied, const DeviceMesh& mesh) {
  for (const nn::ParameterPtr& p : parameters) {
    const std::string what = "parameter " + p->name;
    require_same(p->value, mesh.group(p->placements.ep.sharded() ? Axis::edp : Axis::data), what);
    if (!p->placements.tp.sharded()) require_same(p->value, mesh.group(Axis::tp), what);
  }
  for (const nn::ParameterPtr& p : tied) require_same(p->value, *mesh.pipeline_ends(), "tied parameter " + p->name);
}

}  // namespace trireme
