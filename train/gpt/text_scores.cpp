#include "train/gpt/text_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/eval_windows.h"
#include "nn/sequence_order.h"
#include "parallel/mesh/redistribute.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedule.h"
#include "train/gpt/sampling.h"
#include "train/step/evaluate.h"

namespace trireme {
namespace {

std::int64_t bytes_of(const TokenRange& tokens, const Tokenizer& tokenizer) {
  constexpr std::int64_t part = 1 << 16;
  std::int64_t bytes = 0;
  std::vector<std::int32_t> ids;
  for (std::int64_t first = 1; first < tokens.count(); first += part) {  // token 0 is not predicted
    ids.resize(static_cast<std::size_t>(std::min(part, tokens.count() - first)));
    tokens.read(first, ids);
    for (const std::int32_t id : ids) bytes += static_cast<std::int64_t>(tokenizer.decode_further(id).size());
  }
  return bytes;
}

/// Continuations with one length of padded rows, for one forward on all dp ranks.
class Round {
 public:
  Round(const std::vector<Continuation>& all, std::span<const std::size_t> order, std::int64_t first,
        std::int64_t batch, std::int64_t length)
      : all_(all), order_(order), first_(first), batch_(batch), length_(length) {}

  /// The number of the continuation in a row; past the last: none.
  std::optional<std::size_t> number(std::int64_t row) const {
    const auto at = static_cast<std::size_t>(first_ + row);
    return at < order_.size() ? std::optional(order_[at]) : std::nullopt;
  }
  Batch batch() const {
    const Tensor inputs = Tensor::full({batch_, length_}, 0, DType::i32);    // [B, T]
    const Tensor targets = Tensor::full({batch_, length_}, -1, DType::i32);  // [B, T]
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(batch_));
    for (std::int64_t row = 0; row < batch_; ++row) {
      if (!number(row)) continue;
      const Continuation& c = all_[*number(row)];
      std::copy(c.ids.begin(), c.ids.end() - 1, inputs.data<std::int32_t>() + row * length_);
      std::copy(c.ids.begin() + c.first, c.ids.end(), targets.data<std::int32_t>() + row * length_ + c.first - 1);
    }
    return token_batch(inputs, targets, std::move(numbers));
  }

 private:
  const std::vector<Continuation>& all_;
  std::span<const std::size_t> order_;
  std::int64_t first_, batch_, length_;
};

/// Sums of all continuations, f64 [N, 2]: the log-probability, and how many tokens are not the likeliest. A rank adds
/// the positions that it holds.
class Sums {
 public:
  explicit Sums(std::size_t count) : all_(Tensor::zeros({static_cast<std::int64_t>(count), 2}, DType::f64)) {}

  /// logits [B, T/cp, V] f32 and targets [B, T/cp] on this rank.
  void add(const Round& round, const Tensor& logits, const Tensor& targets, std::int64_t vocab) {
    const std::int64_t width = logits.size(2);
    const auto known = static_cast<std::size_t>(std::min(vocab, width));
    for (std::int64_t i = 0; i < targets.count(); ++i) {
      const std::int32_t target = targets.data<std::int32_t>()[i];
      if (target < 0) continue;
      const std::span<const float> row(logits.data<float>() + i * width, known);
      const auto likeliest = std::max_element(row.begin(), row.end()) - row.begin();
      double* sums = all_.data<double>() + 2 * static_cast<std::int64_t>(*round.number(i / targets.size(1)));
      sums[0] += log_probability(row, target);
      sums[1] += likeliest == target ? 0 : 1;
    }
  }
  Tensor& tensor() { return all_; }

 private:
  Tensor all_;
};

}  // namespace

double TextScore::perplexity() const { return std::exp(loss); }

double TextScore::bits_per_byte() const {
  return loss * static_cast<double>(tokens) / (std::log(2.0) * static_cast<double>(bytes));
}

std::int64_t row_length(const LanguageModel& model, std::int64_t context, std::int64_t tokens) {
  return std::min(context, model.padded_length(std::max<std::int64_t>(tokens, 1)));
}

double loss_of_rows(LanguageModel& model, const ValidationSource& rows, std::int64_t length, std::int64_t batch) {
  const auto dp = static_cast<std::int64_t>(model.mesh().size(Axis::dp));
  const std::int64_t needed = std::min(batch, (rows.count() + dp - 1) / dp);
  return validation_loss(model, rows, needed, {}, model.hidden_shape(needed, length));
}

TextScore score_text(LanguageModel& model, std::int64_t context, const TokenRange& tokens, const Tokenizer& tokenizer,
                     std::int64_t stride, std::int64_t batch) {
  const std::int64_t length = row_length(model, context, tokens.count() - 1);
  const StrideWindows windows(tokens, length, std::min(stride, length));
  return {.tokens = windows.targets(),
          .bytes = bytes_of(tokens, tokenizer),
          .loss = loss_of_rows(model, windows, length, batch)};
}

std::vector<ContinuationScore> score_continuations(Gpt& model, std::vector<Continuation> all, std::int64_t vocab,
                                                   std::int64_t batch) {
  const std::int64_t longest = model.context() + 1;
  const auto length_of = [](const Continuation& c) { return static_cast<std::int64_t>(c.ids.size()); };
  std::vector<std::int64_t> cuts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    Continuation& c = all[i];
    require(c.first >= 1 && c.first < length_of(c), "evaluation",
            "continuation {} begins at token {} of {}; expected a token before it and one in it", i, c.first,
            length_of(c));
    const std::int64_t cut = std::max<std::int64_t>(0, length_of(c) - longest);
    if (cut >= c.first)
      fail(ExitCode::data, "evaluation",
           "{}: an answer has {} tokens, more than the model's context of {}; expected at most that; shorten it",
           c.where, length_of(c) - c.first, model.context());
    c.ids.erase(c.ids.begin(), c.ids.begin() + cut);
    c.first -= cut;
    cuts.push_back(cut);
  }
  // The longest first, so that rows of one forward have about the same length.
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return all[a].ids.size() > all[b].ids.size(); });
  const DeviceMesh& mesh = model.mesh();
  const Evaluating guard(model);
  pipeline::Executor executor(pipeline::forward_only(mesh.size(Axis::pp), 1, model.chunks()), mesh.group(Axis::pp));
  Sums sums(all.size());
  const auto count = static_cast<std::int64_t>(all.size()), per_round = batch * mesh.size(Axis::dp);
  for (std::int64_t first = 0; first < count; first += per_round) {
    const std::int64_t length =
        model.padded_length(length_of(all[order[static_cast<std::size_t>(first)]]) - 1);  // all ranks: the longest
    const Round round(all, order, first + mesh.coord(Axis::dp) * batch, batch, length);
    const Batch local = model.enter(round.batch());
    executor.run({.forward =
                      [&](int stage, const Tensor& input, int) {
                        const Tensor hidden = model.hidden(stage, input, local);  // [B, T, D]
                        if (!model.is_last_stage(stage)) return hidden;
                        const Tensor logits = contiguous(model.gathered_logits(hidden).to(Device::cpu));
                        sums.add(round, logits, contiguous(local["targets"].to(Device::cpu)), vocab);
                        return Tensor();
                      },
                  .activation_shape = model.hidden_shape(batch, length),
                  .dtype = model.dtype(),
                  .device = model.device()});
  }
  pipeline::add_over_ranks(mesh, sums.tensor());
  std::vector<ContinuationScore> scores;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double* sum = sums.tensor().data<double>() + 2 * i;
    scores.push_back(
        {.logprob = sum[0], .tokens = length_of(all[i]) - all[i].first, .greedy = sum[1] == 0, .cut = cuts[i]});
  }
  return scores;
}

Tensor sequence_logits(Gpt& model, const std::vector<std::int32_t>& ids) {
  const DeviceMesh& mesh = model.mesh();
  const auto count = static_cast<std::int64_t>(ids.size()), length = model.padded_length(count);
  const Evaluating guard(model);
  const Tensor inputs = Tensor::full({1, length}, 0, DType::i32);  // [1, T]
  std::copy(ids.begin(), ids.end(), inputs.data<std::int32_t>());
  const Batch local = model.enter(token_batch(inputs, {}, {0}));
  Tensor logits;
  pipeline::Executor executor(pipeline::forward_only(mesh.size(Axis::pp), 1, model.chunks()), mesh.group(Axis::pp));
  executor.run({.forward =
                    [&](int stage, const Tensor& input, int) {
                      const Tensor hidden = model.hidden(stage, input, local);  // [1, T, D]
                      if (!model.is_last_stage(stage)) return hidden;
                      const Tensor here = model.gathered_logits(hidden);  // [1, T/cp, V]
                      logits = nn::to_sequence_order(redistribute(here, mesh, Axis::cp, placement::S(1), placement::I),
                                                     mesh.size(Axis::cp));
                      return Tensor();
                    },
                .activation_shape = model.hidden_shape(1, length),
                .dtype = model.dtype(),
                .device = model.device()});
  if (!logits.defined()) return logits;
  return contiguous(view::slice(view::select(logits.to(Device::cpu), 0, 0), 0, 0, count));  // [T, V]
}

}  // namespace trireme
