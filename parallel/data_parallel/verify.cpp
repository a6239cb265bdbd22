#include "parallel/data_parallel/verify.h"

#include "parallel/mesh/verify.h"

namespace trireme {
namespace {

/// The ranks that hold copies of a tensor that is whole on this rank.
ProcessGroup* holders(const Placements& placements, const DeviceMesh& mesh) {
  return &mesh.group(placements.ep.sharded() ? Axis::edp : Axis::data);
}

/// "state optimizer.m.NAME", as in a checkpoint; "gradient NAME".
std::pair<std::string, std::string> kind_and_name(const StateTensor& t) {
  if (t.name == "gradient") return {t.name, t.parameter->name};
  return {t.name.empty() ? "parameter" : "state", t.full_name()};
}

void add(std::vector<ReplicatedTensor>& copies, const ReplicatedTensor& copy) {
  if (copy.group != nullptr && copy.group->size() > 1) copies.push_back(copy);
}

}  // namespace

std::vector<ReplicatedTensor> copies_of(const std::vector<StateTensor>& tensors, const ParameterList& tied,
                                        const DeviceMesh& mesh, const ShardReplicas& replicas) {
  std::vector<ReplicatedTensor> copies;
  for (const StateTensor& t : tensors) {
    const Placements& placements = t.parameter->placements;
    const bool whole = t.shard == nullptr || t.shard->group == nullptr;
    const auto [kind, name] = kind_and_name(t);
    ReplicatedTensor copy{.name = name,
                          .kind = (whole ? "" : "shard of ") + kind,
                          .value = t.value,
                          .rectangle = t.rectangle(),
                          .group = whole ? holders(placements, mesh) : replicas(*t.shard)};
    add(copies, copy);
    copy.group = placements.tp.sharded() ? nullptr : &mesh.group(Axis::tp);
    add(copies, copy);
  }
  for (const ParameterPtr& p : tied) {
    for (const StateTensor& t : tensors) {
      if (t.parameter != p.get()) continue;
      const auto [kind, name] = kind_and_name(t);
      add(copies, {name, "tied " + kind, t.value, t.rectangle(), mesh.pipeline_ends()});
    }
  }
  return copies;
}

std::vector<ReplicatedTensor> copies_of(const BufferList& buffers, const DeviceMesh& mesh) {
  std::vector<ReplicatedTensor> copies;
  for (const BufferPtr& b : buffers) {
    add(copies, {b->name, "buffer", b->value, b->rectangle, holders(b->placements, mesh)});
    if (!b->placements.tp.sharded()) add(copies, {b->name, "buffer", b->value, b->rectangle, &mesh.group(Axis::tp)});
  }
  return copies;
}

void verify_copies(const std::vector<ReplicatedTensor>& copies) {
  for (const ReplicatedTensor& copy : copies)
    require_same(copy.value, *copy.group, fmt::format("{} {}", copy.kind, copy.name));
}

}  // namespace trireme
