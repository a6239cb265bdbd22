#include "models/same_batch.h"

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "parallel/comm/call_site.h"
#include "parallel/comm/values.h"
#include "parallel/mesh/verify.h"

namespace trireme {
namespace {

/// What a rank tells all others.
struct Record {
  std::uint64_t dp = 0, tensors = 0, ids = 0;  // hashes, and the place on dp

  bool operator==(const Record&) const = default;
};

Record record_of(const Batch& batch, const DeviceMesh& mesh) {
  Hasher tensors, ids;
  for (const auto& [name, tensor] : batch.tensors) {
    tensors.add(std::as_bytes(std::span(name)));
    const std::uint64_t hash = hash_of(tensor);
    tensors.add(std::as_bytes(std::span(&hash, 1)));
  }
  ids.add(std::as_bytes(std::span(batch.sample_ids)));
  return {static_cast<std::uint64_t>(mesh.coord(Axis::dp)), tensors.value(), ids.value()};
}

}  // namespace

void require_right_batches(const Batch& batch, const DeviceMesh& mesh) {
  ProcessGroup& world = mesh.world();
  if (world.size() == 1) return;
  const CallSite site("the comparison of the ranks' batches");
  const std::vector<Record> records = all_gather_values(world, record_of(batch, mesh));
  std::map<std::uint64_t, std::size_t> first_at;                              // rank by place on dp
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> first_with;  // rank by batch
  for (std::size_t b = 0; b < records.size(); ++b) {
    if (b > 0 && records[b] == records[b - 1]) continue;
    const std::size_t at = first_at.try_emplace(records[b].dp, b).first->second;
    if (records[at].tensors != records[b].tensors)
      fail(ExitCode::desync, "same_batch",
           "ranks {} and {} have different batches at dp={}; expected the same tensors, as ranks of tp, cp and pp "
           "compute parts of the same samples; choose samples by mesh.coord(Axis::dp) and a seed that all ranks "
           "share, not by the rank",
           at, b, records[b].dp);
    const std::size_t with = first_with.try_emplace({records[b].tensors, records[b].ids}, b).first->second;
    if (records[with].dp != records[b].dp)
      fail(ExitCode::desync, "same_batch",
           "ranks {} and {} have the same batch at dp={} and dp={}; expected other samples on each rank of dp, or "
           "they count twice; choose samples by mesh.coord(Axis::dp), as with DataLoaderOptions::dp_rank and dp_size",
           with, b, records[with].dp, records[b].dp);
  }
}

}  // namespace trireme
