#include "data/chat/packed_dialogues.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"
#include "data/shuffle.h"

namespace trireme {

PackedDialogues::PackedDialogues(const std::vector<TokenizedDialogue>& dialogues, std::int64_t context,
                                 std::uint64_t seed, bool shuffle)
    : context_(context), seed_(seed), shuffle_(shuffle) {
  std::vector<std::size_t> order(dialogues.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return dialogues[a].ids.size() > dialogues[b].ids.size(); });
  std::multimap<std::int64_t, std::size_t> rows_by_room;  // free inputs, row
  for (const std::size_t index : order) {
    const TokenizedDialogue& d = dialogues[index];
    const auto all = static_cast<std::int64_t>(d.ids.size()) - 1;  // inputs
    const std::int64_t length = std::min(all, context);
    const auto begin = d.target.begin() + 1, end = d.target.begin() + 1 + std::max<std::int64_t>(length, 0);
    if (length < 1 || std::find(begin, end, true) == end) {
      ++report_.dropped;
      continue;
    }
    report_.cut += all - length;
    auto fitting = rows_by_room.lower_bound(length);
    if (fitting == rows_by_room.end()) {
      rows_.emplace_back();
      fitting = rows_by_room.emplace(context, rows_.size() - 1);
    }
    const auto [room, row] = *fitting;
    rows_by_room.erase(fitting);
    add(rows_[row], d, length);
    rows_by_room.emplace(room - length, row);
  }
  if (rows_.empty())
    fail(ExitCode::data, "dialogues",
         "no dialogue has a target within the context of {} tokens; expected at least one; raise --context, or give a "
         "template that writes the assistant's turns",
         context);
  report_.rows = static_cast<std::int64_t>(rows_.size());
  report_.padding = report_.rows * context_ - report_.tokens;
}

void PackedDialogues::add(Row& row, const TokenizedDialogue& dialogue, std::int64_t length) {
  const auto start = static_cast<std::int32_t>(row.inputs.size());
  for (std::int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<std::size_t>(i);
    row.inputs.push_back(dialogue.ids[at]);
    row.targets.push_back(dialogue.target[at + 1] ? dialogue.ids[at + 1] : -1);
    row.documents.push_back(start);
    row.valid += dialogue.target[at + 1] ? 1 : 0;
    report_.targets += dialogue.target[at + 1] ? 1 : 0;
  }
  ++report_.dialogues;
  report_.tokens += length;
}

std::int64_t PackedDialogues::row_of(std::int64_t sample) const {
  return row_of_sample(sample, report_.rows, seed_, shuffle_);
}

std::optional<std::int64_t> PackedDialogues::targets_of(std::int64_t first, std::int64_t count) const {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += rows_[static_cast<std::size_t>(row_of(first + i))].valid;
  return sum;
}

Batch PackedDialogues::make_batch(std::int64_t first, std::int64_t count) const {
  const Tensor inputs = Tensor::full({count, context_}, 0, DType::i32);    // [B, T]
  const Tensor targets = Tensor::full({count, context_}, -1, DType::i32);  // [B, T]
  const Tensor documents = Tensor::empty({count, context_}, DType::i32);   // [B, T]
  const Tensor positions = Tensor::empty({count, context_}, DType::i32);   // [B, T]
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(first + i);
    const bool exists = shuffle_ || first + i < report_.rows;  // past the end of a validation set: padding
    const Row empty, &row = exists ? rows_[static_cast<std::size_t>(row_of(first + i))] : empty;
    std::copy(row.inputs.begin(), row.inputs.end(), inputs.data<std::int32_t>() + i * context_);
    std::copy(row.targets.begin(), row.targets.end(), targets.data<std::int32_t>() + i * context_);
    for (std::int64_t t = 0; t < context_; ++t) {
      const auto used = static_cast<std::int64_t>(row.inputs.size());
      const std::int32_t start =
          t < used ? row.documents[static_cast<std::size_t>(t)] : static_cast<std::int32_t>(used);
      documents.data<std::int32_t>()[i * context_ + t] = start;
      positions.data<std::int32_t>()[i * context_ + t] = static_cast<std::int32_t>(t) - start;
    }
  }
  Batch batch = token_batch(inputs, targets, std::move(ids));
  batch.tensors.emplace("documents", documents);
  batch.tensors.emplace("positions", positions);
  return batch;
}

}  // namespace trireme
