#include "train/rank_batch.h"

#include "nn/documents.h"
#include "nn/sequence_order.h"

namespace trireme {

Batch enter_batch(Gpt& model, const Batch& batch) {
  const std::optional<std::int64_t> separator = model.config().document_separator;
  model.run().first_sample = batch.sample_ids.front();
  model.run().document_starts = separator ? nn::document_starts(batch.inputs, *separator) : Tensor();
  const auto local = [&](const Tensor& x) {
    return x.defined() ? nn::local_tokens(x, model.mesh()).to(model.device()) : x;
  };
  return {local(batch.inputs), local(batch.targets), batch.sample_ids};
}

}  // namespace trireme
