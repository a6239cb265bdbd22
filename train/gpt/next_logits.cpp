#include "train/gpt/next_logits.h"

#include <algorithm>

#include "parallel/pipeline/schedule.h"
#include "train/step/evaluate.h"

namespace trireme {

NextLogits::NextLogits(LanguageModel& model, std::int64_t longest, bool keep)
    : model_(model),
      longest_(longest),
      executor_(pipeline::forward_only(model.mesh().size(Axis::pp), 1, model.chunks()), model.mesh().group(Axis::pp)) {
  if (keep && model.mesh().size(Axis::cp) == 1) cache_ = std::make_shared<nn::KvCache>(model.padded_length(longest));
}

/// The first position to compute: after the cached tokens, but at least the last token is computed. Ranks that share a
/// sequence need a number of tokens that they divide evenly, so a few cached tokens may be computed again.
std::int64_t NextLogits::first_new(std::span<const std::int32_t> ids) const {
  const auto length = static_cast<std::int64_t>(ids.size());
  const auto differing = std::mismatch(ids.begin(), ids.end(), held_.begin(), held_.end()).first;
  const std::int64_t same = std::min<std::int64_t>(differing - ids.begin(), length - 1);
  return std::max<std::int64_t>(0, length - model_.padded_length(length - same));
}

Tensor NextLogits::operator()(std::span<const std::int32_t> ids) {
  const auto count = static_cast<std::int64_t>(ids.size());
  require(count >= 1 && count <= longest_, "next_logits", "expected 1 to {} tokens, got {}", longest_, count);
  const Evaluating guard(model_);
  const std::int64_t first = cache_ ? first_new(ids) : 0;
  // Padding comes after the last token, which does not attend to it.
  std::vector<std::int32_t> padded(ids.begin(), ids.end());
  padded.resize(static_cast<std::size_t>(first + model_.padded_length(count - first)), 0);
  const auto length = static_cast<std::int64_t>(padded.size());
  const Tensor text = Tensor::from(std::span<const std::int32_t>(padded), {1, length});
  Batch local = model_.enter(token_batch(text, {}, {0}));  // [1, T/cp]
  if (cache_) {
    Tensor& inputs = local.tensors.at("inputs");
    inputs = view::slice(inputs, 1, first, length - first);  // [1, n]
    Tensor& starts = model_.run_state().document_starts;
    if (starts.defined()) starts = view::slice(starts, 1, first, length - first);
    cache_->begin(first);
    held_.resize(static_cast<std::size_t>(first));  // the rest will be overwritten
    model_.run_state().cache = cache_;
  }
  Tensor logits;
  executor_.run({.forward =
                     [&](int stage, const Tensor& input, int) {
                       const Tensor hidden = model_.hidden(stage, input, local);  // [1, n, D]
                       if (!model_.is_last_stage(stage)) return hidden;
                       logits = model_.next_logits(hidden, count - 1 - first);  // [1, 1, V]
                       return Tensor();
                     },
                 .activation_shape = model_.hidden_shape(1, length - first),
                 .dtype = model_.dtype(),
                 .device = model_.device()});
  if (cache_) held_.assign(ids.begin(), ids.end());
  return logits.defined() ? contiguous(logits.to(Device::cpu)) : logits;
}

}  // namespace trireme
