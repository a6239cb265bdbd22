#include "nn/expert_dispatch.h"

#include <algorithm>

#include "autograd/ops.h"
#include "parallel/mesh/redistribute.h"

namespace trireme::nn {
namespace {

/// How many rows each rank has for each expert: [ep, E] i64, the same on all ranks of the ep group.
Tensor counts_of_all_ranks(const Tensor& expert, std::int64_t experts, const DeviceMesh& mesh) {
  Tensor own = Tensor::zeros({experts}, DType::i64);
  auto* const counts = own.data<std::int64_t>();
  for (const std::int32_t e : expert.span<std::int32_t>()) {
    if (e >= 0) ++counts[e];
  }
  Tensor all = Tensor::empty({mesh.size(Axis::ep), experts}, DType::i64);
  mesh.group(Axis::ep).all_gather(own, all).wait();
  return all;
}

Tensor filled(std::int64_t count, std::int32_t value) {
  Tensor x = Tensor::empty({count}, DType::i32);
  std::fill_n(x.data<std::int32_t>(), count, value);
  return x;
}

}  // namespace

ExpertDispatch::ExpertDispatch(const Tensor& expert, std::int64_t experts, const DeviceMesh& mesh) : mesh_(mesh) {
  const int ranks = mesh.size(Axis::ep), here = mesh.coord(Axis::ep);
  const std::int64_t local = experts / ranks, choices = expert.size(1);
  const Tensor table = counts_of_all_ranks(expert, experts, mesh);
  const auto* const counts = table.data<std::int64_t>();
  const auto count = [&](int rank, std::int64_t e) { return counts[rank * experts + e]; };
  const auto for_rank = [&](int from, int to) {
    std::int64_t rows = 0;
    for (std::int64_t e = to * local; e < (to + 1) * local; ++e) rows += count(from, e);
    return rows;
  };
  piece_ = ranks > 1 ? 1 : 0;  // the ranks exchange at least one row
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) piece_ = std::max(piece_, for_rank(from, to));
  }
  require(ranks * piece_ <= INT32_MAX, "dispatch", "{} rows are too many for i32 indices", ranks * piece_);

  // The rows to send: one piece for each rank, with the rows for each of its experts, in the order of tokens.
  std::vector<std::int32_t> next(static_cast<std::size_t>(experts));
  for (int to = 0; to < ranks; ++to) {
    std::int64_t slot = to * piece_;
    for (std::int64_t e = to * local; e < (to + 1) * local; ++e) {
      next[static_cast<std::size_t>(e)] = static_cast<std::int32_t>(slot);
      slot += count(here, e);
    }
  }
  token_of_slot_ = filled(ranks * piece_, -1);
  slot_of_choice_ = filled(expert.count(), -1);
  const auto* const experts_of_choices = expert.data<std::int32_t>();
  auto* const tokens = token_of_slot_.data<std::int32_t>();
  auto* const slots_of_choices = slot_of_choice_.data<std::int32_t>();
  for (std::int64_t i = 0; i < expert.count(); ++i) {
    const std::int32_t e = experts_of_choices[i];
    if (e < 0) continue;
    const std::int32_t slot = next[static_cast<std::size_t>(e)]++;
    tokens[slot] = static_cast<std::int32_t>(i / choices);
    slots_of_choices[i] = slot;
  }

  // The rows received: one piece from each rank, with the rows for each expert held here.
  starts_ = {0};
  std::vector<std::int32_t> slots;
  std::vector<std::int64_t> read(static_cast<std::size_t>(ranks));  // of each piece
  row_of_slot_ = filled(ranks * piece_, -1);
  auto* const rows_of_slots = row_of_slot_.data<std::int32_t>();
  for (std::int64_t e = here * local; e < (here + 1) * local; ++e) {
    for (int from = 0; from < ranks; ++from) {
      std::int64_t& position = read[static_cast<std::size_t>(from)];
      for (std::int64_t i = 0; i < count(from, e); ++i) {
        const std::int64_t slot = from * piece_ + position++;
        rows_of_slots[slot] = static_cast<std::int32_t>(slots.size());
        slots.push_back(static_cast<std::int32_t>(slot));
      }
    }
    starts_.push_back(static_cast<std::int64_t>(slots.size()));
  }
  slot_of_row_ = Tensor::from(std::span<const std::int32_t>(slots), {static_cast<std::int64_t>(slots.size())});
}

/// Seen as one tensor [source, destination, M, D], what is sent is sharded by source and what arrives by destination.
Tensor ExpertDispatch::exchange(const Tensor& buffer) const {
  const std::int64_t width = buffer.size(1);
  const Tensor by_source = reshape(buffer, {1, mesh_.size(Axis::ep), piece_, width});  // [1, ep, M, D]
  const Tensor by_destination =
      redistribute(by_source, mesh_, Axis::ep, placement::S(0), placement::S(1));  // [ep, 1, M, D]
  return reshape(by_destination, buffer.shape());
}

Tensor ExpertDispatch::to_experts(const Tensor& x) const {
  const Tensor sent = gather_rows(x, token_of_slot_);  // [ep M, D]
  if (mesh_.size(Axis::ep) == 1) return sent;          // sorted by expert already
  return gather_rows(exchange(sent), slot_of_row_);    // [R, D]
}

Tensor ExpertDispatch::from_experts(const Tensor& rows) const {
  if (mesh_.size(Axis::ep) == 1) return gather_rows(rows, slot_of_choice_);
  const Tensor returned = exchange(gather_rows(rows, row_of_slot_));  // [ep M, D]
  return gather_rows(returned, slot_of_choice_);                      // [N K, D]
}

}  // namespace trireme::nn
