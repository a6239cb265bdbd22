#include "data/batch.h"

#include "core/error.h"

namespace trireme {

const Tensor& Batch::operator[](std::string_view name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::string names;
  for (const auto& [other, tensor] : tensors) names += (names.empty() ? "" : ", ") + other;
  fail(ExitCode::internal, "batch",
       "the batch has no tensor '{}', only: {}; expected the names that the model reads; change the data source", name,
       names);
}

Batch token_batch(const Tensor& inputs, const Tensor& targets, std::vector<std::int64_t> sample_ids) {
  Batch batch{{{"inputs", inputs}}, std::move(sample_ids)};
  if (targets.defined()) batch.tensors.emplace("targets", targets);
  return batch;
}

}  // namespace trireme
