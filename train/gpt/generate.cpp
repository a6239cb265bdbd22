#include "train/gpt/generate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/random.h"
#include "train/gpt/next_logits.h"

namespace trireme {

namespace {

struct TokenLogit {
  float logit;
  std::int32_t id;
};

bool likelier(const TokenLogit& a, const TokenLogit& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/// Tokens from the likeliest on. Sorts only as far as it is read: of 50,000 tokens, usually only a few are needed.
class Ranking {
 public:
  explicit Ranking(std::span<const float> logits) {
    for (const float logit : logits) all_.push_back({logit, static_cast<std::int32_t>(all_.size())});
  }
  std::size_t size() const { return all_.size(); }
  const TokenLogit& operator[](std::size_t i) {
    while (i >= ordered_) order_more();
    return all_[i];
  }
  /// Keeps only the `count` likeliest tokens.
  void keep(std::size_t count) {
    if (count >= size()) return;
    const auto end = all_.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(all_.begin(), end, all_.end(), likelier);
    all_.erase(end, all_.end());
  }
  auto begin() const { return all_.begin(); }  ///< in no particular order
  auto end() const { return all_.end(); }

 private:
  void order_more() {
    const std::size_t more = std::min(size(), std::max<std::size_t>(64, 8 * ordered_));
    const auto begin = all_.begin() + static_cast<std::ptrdiff_t>(ordered_),
               end = all_.begin() + static_cast<std::ptrdiff_t>(more);
    if (end != all_.end()) std::nth_element(begin, end, all_.end(), likelier);
    std::sort(begin, end, likelier);
    ordered_ = more;
  }

  std::vector<TokenLogit> all_;
  std::size_t ordered_ = 0;
};

}  // namespace

std::int32_t pick_token(std::span<const float> logits, const GenerateOptions& o, double random) {
  // -infinity is allowed: such a token has probability 0.
  const auto usable = [](float x) { return !std::isnan(x) && x != INFINITY; };
  if (!std::all_of(logits.begin(), logits.end(), usable))
    fail(ExitCode::numerical, "generate",
         "the model's logits are not finite numbers; it was not trained well; use another checkpoint");
  const auto likeliest = std::max_element(logits.begin(), logits.end());  // the first, if several are equal
  if (o.temperature == 0) return static_cast<std::int32_t>(likeliest - logits.begin());

  Ranking ranking(logits);
  if (o.top_k > 0) ranking.keep(static_cast<std::size_t>(o.top_k));
  const auto highest = static_cast<double>(*likeliest);
  const auto weight = [&](const TokenLogit& c) {
    return std::exp((static_cast<double>(c.logit) - highest) / o.temperature);
  };
  double kept = 0;
  for (const TokenLogit& each : ranking) kept += weight(each);
  std::size_t count = ranking.size();
  if (o.top_p < 1) {
    const double enough = o.top_p * std::exchange(kept, 0.0);
    for (count = 0; count < ranking.size() && (count == 0 || kept < enough); ++count) kept += weight(ranking[count]);
  }

  double target = random * kept;
  for (std::size_t i = 0; i < count; ++i) {
    target -= weight(ranking[i]);
    if (target < 0) return ranking[i].id;
  }
  return ranking[count - 1].id;
}

std::vector<std::int32_t> generate(LanguageModel& model, std::span<const std::int32_t> prompt,
                                   const GenerateOptions& options, const std::function<void(std::int32_t)>& each) {
  require(!prompt.empty(), "generate", "the prompt is empty; give at least one token");
  ProcessGroup& stages = model.mesh().group(Axis::pp);
  std::vector<std::int32_t> ids(prompt.begin(), prompt.end());
  // When the context is full, the window moves with every token. All positions then change, so nothing can be reused.
  const auto seen = [context = model.context()](std::size_t count) {
    return std::min(static_cast<std::int64_t>(count), context);
  };
  NextLogits next(model, seen(ids.size() + static_cast<std::size_t>(options.length)), options.cache);
  for (std::int64_t n = 0; n < options.length; ++n) {
    const Tensor logits = next(std::span(ids).last(static_cast<std::size_t>(seen(ids.size()))));
    const double random = random_uniform(options.seed, stream_of("generate"), static_cast<std::uint64_t>(n));
    Tensor token = Tensor::zeros({1}, DType::i32);
    if (logits.defined()) {
      const std::span<const float> all = logits.span<float>();
      const std::size_t known = options.vocab_size > 0 ? static_cast<std::size_t>(options.vocab_size) : all.size();
      *token.data<std::int32_t>() = pick_token(all.first(std::min(known, all.size())), options, random);
    }
    stages.broadcast(token, stages.size() - 1).wait();
    if (options.stop == *token.data<std::int32_t>()) break;
    ids.push_back(*token.data<std::int32_t>());
    if (each) each(ids.back());
  }
  return {ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()), ids.end()};
}

}  // namespace trireme
