#include "parallel/checkpoint/held_tensor.h"

#include <algorithm>
#include <map>

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t small_bytes = 64 << 10;  // smaller parts cost more in descriptions than they balance

/// Sets how many ranks hold the same elements, and this rank's number among them. `shard_ranks`: ranks that share one
/// copy.
void count_copies(HeldTensor& held, const Placements& placements, int shard_ranks, const DeviceMesh& mesh) {
  held.copies = 1;
  held.copy_index = 0;
  for (const Axis axis : {Axis::edp, Axis::ep}) {  // if neither is sharded, together: the coordinate in data
    if (placements.on(axis).sharded()) continue;
    held.copies *= mesh.size(axis);
    held.copy_index = held.copy_index * mesh.size(axis) + mesh.coord(axis);
  }
  held.copies /= shard_ranks;  // shards lie on runs of neighbours
  held.copy_index /= shard_ranks;
  if (placements.tp.sharded()) return;
  held.copies *= mesh.size(Axis::tp);
  held.copy_index = held.copy_index * mesh.size(Axis::tp) + mesh.coord(Axis::tp);
}

/// Rows from `logical_rows` on are padding: they are neither stored nor loaded.
void drop_padding(HeldTensor& held, std::int64_t logical_rows) {
  if (held.global.dims() == 0) return;
  held.global = held.global.with(0, logical_rows);
  const std::int64_t real = std::clamp<std::int64_t>(logical_rows - held.start[0], 0, held.value.size(0));
  held.value = view::slice(held.value, 0, 0, real);
}

HeldTensor held_state(const StateTensor& state, const DeviceMesh& mesh) {
  const Parameter& parameter = *state.parameter;
  HeldTensor held{.name = state.full_name(),
                  .value = state.value,
                  .global = parameter.global_shape,
                  .start = state.rectangle().start,
                  .written_by_earlier_stage = parameter.copy_of_earlier_stage};
  count_copies(held, parameter.placements, state.shard ? state.shard->ranks() : 1, mesh);
  drop_padding(held, parameter.logical_rows);
  return held;
}

HeldTensor held_buffer(const Buffer& buffer, const DeviceMesh& mesh) {
  HeldTensor held{
      .name = buffer.name, .value = buffer.value, .global = buffer.global_shape, .start = buffer.rectangle.start};
  count_copies(held, buffer.placements, 1, mesh);
  return held;
}

/// The part that this rank, copy number `held.copy_index`, writes.
HeldTensor part_of(const HeldTensor& held) {
  const int dim = dim_to_cut(held.value.shape(), held.copies);
  const DimRange rows = even_share(held.value.size(dim), held.copies, held.copy_index);
  HeldTensor part = held;
  part.value = view::slice(held.value, dim, rows.start, rows.length);
  part.start[dim] += rows.start;
  return part;
}

}  // namespace

std::vector<HeldTensor> held_tensors(const std::vector<StateTensor>& tensors, const BufferList& buffers,
                                     const DeviceMesh& mesh) {
  std::vector<HeldTensor> all;
  for (const StateTensor& tensor : tensors) all.push_back(held_state(tensor, mesh));
  for (const BufferPtr& buffer : buffers) all.push_back(held_buffer(*buffer, mesh));
  return all;
}

std::vector<HeldTensor> owned_parts(const std::vector<HeldTensor>& held) {
  std::vector<HeldTensor> parts;
  // Bytes of small tensors given to each copy so far, by number of copies. Ranks with copies of a tensor must decide
  // alike, so this depends only on names, their order, global shapes and numbers of copies.
  std::map<int, std::vector<std::int64_t>> given;
  for (const HeldTensor& tensor : held) {
    const std::int64_t bytes = tensor.global.count() * static_cast<std::int64_t>(size_of(tensor.value.dtype()));
    const bool cut = bytes >= tensor.copies * small_bytes;
    bool mine = true;
    if (!cut) {
      std::vector<std::int64_t>& loads = given[tensor.copies];
      loads.resize(static_cast<std::size_t>(tensor.copies));
      const auto least = std::min_element(loads.begin(), loads.end());
      mine = least - loads.begin() == tensor.copy_index;
      *least += bytes;
    }
    if (tensor.written_by_earlier_stage || tensor.value.count() == 0 || !mine) continue;
    if (!cut || tensor.copies == 1) {
      parts.push_back(tensor);
      continue;
    }
    HeldTensor part = part_of(tensor);
    if (part.value.count() > 0) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace trireme::checkpoint
