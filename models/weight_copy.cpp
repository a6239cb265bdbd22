// The copies of models/weight_map.h, apart from it, so that programs can use maps without tensors.
#include "models/weight_map.h"

namespace trireme {
namespace {

/// Rows of heads, [H Dh, ..], with neighbours [Dh/2, 2] and halves [2, Dh/2] exchanged. `dims`: those of a head's rows.
Tensor reordered(const Tensor& rows, std::int64_t heads, std::int64_t first, std::int64_t second) {
  const std::int64_t columns = rows.dims() == 1 ? 1 : rows.size(1);
  const Tensor split = view::reshape(contiguous(rows), {heads, first, second, columns});
  return view::reshape(contiguous(view::transpose(split, 1, 2)), rows.shape());
}

Tensor selected(Tensor view, const std::vector<std::int64_t>& at) {
  for (const std::int64_t index : at) view = view::select(view, 0, index);
  return view;
}

}  // namespace

void copy_to_ours(const WeightPart& part, const Tensor& theirs, Tensor& ours, std::int64_t head_rows) {
  Tensor rows = theirs;
  for (std::size_t i = 0; i < part.at_theirs.size(); ++i) rows = view::select(rows, 0, 0);
  if (part.transposed) rows = view::transpose(rows, 0, 1);
  if (part.interleaved_heads > 0) rows = reordered(rows, rows.size(0) / head_rows, head_rows / 2, 2);
  copy(rows, ours);
}

void copy_to_theirs(const WeightEntry& entry, const WeightPart& part, const Tensor& ours, Tensor& theirs) {
  const Shape shape = part_shape(entry, part);
  Tensor rows = selected(ours, part.at), place = selected(theirs, part.at_theirs);
  if (part.interleaved_heads > 0)
    rows = reordered(rows, part.interleaved_heads, 2, shape[0] / part.interleaved_heads / 2);
  if (part.transposed) place = view::transpose(place, 0, 1);
  place = view::slice(place, 0, part.first_row, shape[0]);
  copy(rows, place);
}

}  // namespace trireme
