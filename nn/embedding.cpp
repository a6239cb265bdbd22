#include "nn/embedding.h"

#include "core/ids.h"
#include "core/kernels.h"

namespace trireme::nn {
namespace {

/// The ids with -1, which gives zeros and no gradient, in place of those that are the padding, or that are not.
Tensor without(const Tensor& ids, std::int64_t padding, bool drop_padding) {
  const Tensor here = contiguous(ids.to(Device::cpu));
  Tensor kept = clone(here);
  for (std::int32_t& id : kept.span<std::int32_t>())
    if ((id == padding) == drop_padding) id = -1;
  return kept.to(ids.device());
}

}  // namespace

Embedding::Embedding(const Build& b, std::int64_t count, std::int64_t width, const EmbeddingOptions& options)
    : Module(b), count_(count), padding_(options.padding) {
  if (count < 1 || width < 1)
    fail(ExitCode::usage, "embedding", "{}: {} vectors of width {}; expected at least 1 of each", name(), count, width);
  if (padding_ && (*padding_ < 0 || *padding_ >= count))
    fail(ExitCode::usage, "embedding", "{}: a padding of {}; expected an id, 0 to {}", name(), *padding_, count - 1);
  weight_ = b.parameter("weight", {count, width}, {.tp = b.per_position_placement()}, options.weight_init,
                        {.decay = options.decay});
  if (!padding_) return;
  Tensor row = view::select(weight_->local, 0, *padding_);
  kernels(row.device()).fill(row, 0);
}

Tensor Embedding::forward(const Tensor& ids) {
  check_ids("embedding", "id", ids, {.first = 0, .end = count_}, "change the ids, or make the layer with more vectors");
  const Tensor weight = weight_->value();
  if (!padding_) return embedding(weight, ids, 0);
  const Tensor trained = embedding(weight, without(ids, *padding_, true), 0);
  return trained +
         embedding(weight.detach(), without(ids, *padding_, false), 0);  // what the row holds, if it was loaded
}

}  // namespace trireme::nn
