#include "train/gpt/next_logits.h"

#include <algorithm>

#include "parallel/pipeline/schedule.h"
#include "train/step/evaluate.h"

namespace trireme {
namespace {

std::int64_t length_of(std::span<const std::int32_t> text) { return static_cast<std::int64_t>(text.size()); }

/// The cache for texts of at most `longest` tokens.
std::shared_ptr<nn::KvCache> make_cache(const LanguageModel& model, std::int64_t longest, bool slides) {
  const std::int64_t context = model.context();
  if (longest <= context) return std::make_shared<nn::KvCache>(model.padded_length(longest));
  if (!slides) return std::make_shared<nn::KvCache>(model.padded_length(context));
  return std::make_shared<nn::KvCache>(model.padded_length(longest), context);
}

/// [B, T] i32 on the host, of `value(row, column)`.
template <class F>
Tensor table(std::int64_t rows, std::int64_t columns, const F& value) {
  Tensor all = Tensor::empty({rows, columns}, DType::i32);
  for (std::int64_t i = 0; i < rows * columns; ++i)
    all.data<std::int32_t>()[i] = static_cast<std::int32_t>(value(i / columns, i % columns));
  return all;
}

}  // namespace

NextLogits::NextLogits(LanguageModel& model, std::int64_t longest, bool keep, PastContext past)
    : model_(model),
      longest_(longest),
      past_(past),
      executor_(pipeline::forward_only(model.mesh().size(Axis::pp), 1, model.chunks()), model.mesh().group(Axis::pp)) {
  if (keep && model.mesh().size(Axis::cp) == 1) cache_ = make_cache(model, longest, slides());
}

Tensor NextLogits::operator()(std::span<const std::int32_t> ids) { return logits_after({ids}); }

Tensor NextLogits::operator()(const std::vector<Text>& texts) { return logits_after({texts.begin(), texts.end()}); }

void NextLogits::select(std::span<const std::int64_t> rows) {
  if (held_.empty()) return;
  const auto chosen = [&](const auto& all) {
    std::remove_cvref_t<decltype(all)> some;
    for (const std::int64_t row : rows) some.push_back(all[static_cast<std::size_t>(row)]);
    return some;
  };
  held_ = chosen(held_);
  padding_ = chosen(padding_);
  if (cache_) cache_->select(rows);
}

/// The end of a text that the model sees.
std::span<const std::int32_t> NextLogits::seen(std::span<const std::int32_t> text) const {
  const std::int64_t context = model_.context(), length = length_of(text);
  if (length <= context || slides()) return text;
  // With learned positions, half of the context is dropped at a time: its start depends on the length only.
  const std::int64_t step = past_ == PastContext::slide ? std::max<std::int64_t>(1, context / 2) : 1;
  const std::int64_t start = (length - context + step - 1) / step * step;
  return text.subspan(static_cast<std::size_t>(start));
}

/// Decides in which column each text begins. If the columns of the last call do not fit, nothing that is held can be
/// used.
void NextLogits::lay_out(const Texts& texts) {
  std::int64_t columns = 0;
  for (const auto& text : texts) columns = std::max(columns, length_of(text));
  const auto ends_at = [&](std::size_t row) { return padding_[row] + length_of(texts[row]); };
  bool same = cache_ && held_.size() == texts.size() && (slides() || ends_at(0) <= cache_->capacity());
  for (std::size_t row = 0; same && row < texts.size(); ++row) same = ends_at(row) == ends_at(0);
  if (same) return;
  held_.assign(texts.size(), {});
  padding_.clear();
  for (const auto& text : texts) padding_.push_back(columns - length_of(text));
}

/// The first column to compute: after the cached tokens, but at least the last token is computed. Ranks that share a
/// sequence need a number of tokens that they divide evenly, so a few cached tokens may be computed again.
std::int64_t NextLogits::first_new(const Texts& texts, std::int64_t columns) const {
  std::int64_t same = columns - 1;
  for (std::size_t row = 0; row < texts.size(); ++row) {
    const Text& held = held_[row];
    if (held.empty()) return 0;
    const auto differing = std::mismatch(texts[row].begin(), texts[row].end(), held.begin(), held.end()).first;
    same = std::min<std::int64_t>(same, padding_[row] + (differing - texts[row].begin()));
  }
  const std::int64_t first = std::max<std::int64_t>(0, columns - model_.padded_length(columns - same));
  return cache_->can_begin(first) ? first : 0;
}

/// Lets no token see a column before its text, or more than the context.
void NextLogits::restrict(std::int64_t columns) {
  nn::RunState& state = model_.run_state();
  const bool padded = std::any_of(padding_.begin(), padding_.end(), [](std::int64_t n) { return n > 0; });
  const std::int64_t context = model_.context();
  const bool long_text = slides() && columns > context;
  if (!padded && !long_text) return;
  const auto rows = static_cast<std::int64_t>(padding_.size());
  const Tensor documents = state.document_starts;
  const auto begin = [&](std::int64_t row, std::int64_t t) -> std::int64_t {  // of the token's document
    const std::int64_t text = padding_[static_cast<std::size_t>(row)];
    if (t < text) return t;
    return documents.defined() ? std::max<std::int64_t>(text, documents.data<std::int32_t>()[row * columns + t]) : text;
  };
  if (padded) {
    const bool restart = state.positions.defined();  // in each document
    state.positions = table(rows, columns, [&](std::int64_t row, std::int64_t t) {
      const std::int64_t from = restart ? begin(row, t) : padding_[static_cast<std::size_t>(row)];
      // Columns behind the texts have positions, too, which must exist.
      return std::max<std::int64_t>(0, slides() ? t - from : std::min(t - from, context - 1));
    });
  }
  state.document_starts = table(rows, columns, [&](std::int64_t row, std::int64_t t) {
    return long_text ? std::max(begin(row, t), t - context + 1) : begin(row, t);
  });
}

/// Computes columns first .. first + count, and returns the logits of column `wanted`, counted from `first`.
Tensor NextLogits::forward(Batch local, std::int64_t first, std::int64_t count, std::optional<std::int64_t> wanted) {
  nn::RunState& state = model_.run_state();
  const Tensor starts = state.document_starts, positions = state.positions;
  const auto rows = static_cast<std::int64_t>(padding_.size());
  if (cache_) {
    Tensor& inputs = local.tensors.at("inputs");
    inputs = contiguous(view::slice(inputs, 1, first, count));  // [B, n]
    for (Tensor* of_tokens : {&state.document_starts, &state.positions})
      if (of_tokens->defined()) *of_tokens = contiguous(view::slice(*of_tokens, 1, first, count));
    cache_->begin(first);
    state.cache = cache_;
  }
  Tensor logits;
  executor_.run({.forward =
                     [&](int stage, const Tensor& input, int) {
                       const Tensor hidden = model_.hidden(stage, input, local);  // [B, n, D]
                       if (!model_.is_last_stage(stage)) return hidden;
                       if (wanted) logits = model_.next_logits(hidden, *wanted);  // [B, 1, V]
                       return Tensor();
                     },
                 .activation_shape = model_.hidden_shape(rows, count),
                 .dtype = model_.dtype(),
                 .device = model_.device()});
  state.document_starts = starts;
  state.positions = positions;
  return logits;
}

Tensor NextLogits::logits_after(const Texts& texts) {
  require(!texts.empty(), "next_logits", "expected at least one text");
  Texts ends;
  for (const auto& text : texts) {
    require(!text.empty() && length_of(text) <= longest_, "next_logits", "expected 1 to {} tokens, got {}", longest_,
            text.size());
    ends.push_back(seen(text));
  }
  lay_out(ends);
  const Evaluating guard(model_);
  const auto rows = static_cast<std::int64_t>(ends.size());
  const std::int64_t columns = padding_[0] + length_of(ends[0]);
  const std::int64_t first = cache_ ? first_new(ends, columns) : 0;
  // What follows the last token is not seen by it.
  const std::int64_t all = first + model_.padded_length(columns - first);
  const Tensor ids = Tensor::zeros({rows, all}, DType::i32);
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy(ends[static_cast<std::size_t>(row)].begin(), ends[static_cast<std::size_t>(row)].end(),
              ids.data<std::int32_t>() + row * all + padding_[static_cast<std::size_t>(row)]);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(rows));
  const Batch local = model_.enter(token_batch(ids, {}, numbers));  // [B, T/cp]
  restrict(all);
  held_.assign(static_cast<std::size_t>(rows), {});  // until all is computed
  // A text longer than the context comes in parts, so that no more than that is computed at once.
  const std::int64_t part = cache_ ? model_.padded_length(model_.context()) : all;
  std::int64_t at = first;
  for (; all - at > part && columns - at > part; at += part) forward(local, at, part, std::nullopt);
  const Tensor logits = forward(local, at, all - at, columns - 1 - at);
  if (cache_)
    for (std::size_t row = 0; row < ends.size(); ++row) held_[row].assign(ends[row].begin(), ends[row].end());
  return logits.defined() ? contiguous(logits.to(Device::cpu)) : logits;
}

}  // namespace trireme
