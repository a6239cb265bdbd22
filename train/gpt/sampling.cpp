#include "train/gpt/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/random.h"

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

/// What top_k, top_p and min_p leave: the first `count` tokens of a ranking, and the sum of their weights.
class Candidates {
 public:
  Candidates(std::span<const float> logits, const GenerateOptions& o)
      : ranking_(logits),
        highest_(static_cast<double>(*std::max_element(logits.begin(), logits.end()))),
        temperature_(o.temperature) {
    if (o.top_k > 0) ranking_.keep(static_cast<std::size_t>(o.top_k));
    count_ = ranking_.size();
    for (const TokenLogit& each : ranking_) sum_ += weight(each);
    if (o.top_p < 1) keep_share(o.top_p);
    if (o.min_p > 0) keep_above(o.min_p);
  }
  std::size_t count() const { return count_; }
  double sum() const { return sum_; }
  const TokenLogit& operator[](std::size_t i) { return ranking_[i]; }
  /// The probability over that of the likeliest token.
  double weight(const TokenLogit& c) const {
    return std::exp((static_cast<double>(c.logit) - highest_) / temperature_);
  }

 private:
  void keep_share(double share) {
    const double enough = share * std::exchange(sum_, 0.0);
    for (count_ = 0; count_ < ranking_.size() && (count_ == 0 || sum_ < enough); ++count_)
      sum_ += weight(ranking_[count_]);
  }
  void keep_above(double least) {
    const std::size_t all = count_;
    sum_ = 0;
    for (count_ = 0; count_ < all && (count_ == 0 || weight(ranking_[count_]) >= least); ++count_)
      sum_ += weight(ranking_[count_]);
  }

  Ranking ranking_;
  double highest_, temperature_, sum_ = 0;
  std::size_t count_ = 0;
};

double log_of_sum(std::span<const float> logits) {
  const auto highest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
  return highest + std::log(sum);
}

void require_usable(std::span<const float> logits) {
  // -infinity is allowed: such a token has probability 0.
  const auto usable = [](float x) { return !std::isnan(x) && x != INFINITY; };
  if (!std::all_of(logits.begin(), logits.end(), usable))
    fail(ExitCode::numerical, "generate",
         "the model's logits are not finite numbers; it was not trained well; use another checkpoint");
}

}  // namespace

void penalise(std::span<float> logits, std::span<const std::int32_t> prompt, std::span<const std::int32_t> generated,
              const GenerateOptions& o) {
  const auto change = [&](std::int32_t id, const auto& f) {
    if (static_cast<std::size_t>(id) >= logits.size()) return;  // of the prompt, and not to be generated
    float& logit = logits[static_cast<std::size_t>(id)];
    constexpr double most = std::numeric_limits<float>::max();  // a penalty makes no infinity
    if (std::isfinite(logit)) logit = static_cast<float>(std::clamp(f(static_cast<double>(logit)), -most, most));
  };
  if (o.repetition_penalty != 1) {
    std::set<std::int32_t> seen(prompt.begin(), prompt.end());
    seen.insert(generated.begin(), generated.end());
    for (const std::int32_t id : seen)
      change(id, [&](double z) { return z > 0 ? z / o.repetition_penalty : z * o.repetition_penalty; });
  }
  if (o.frequency_penalty == 0 && o.presence_penalty == 0) return;
  std::map<std::int32_t, std::int64_t> times;
  for (const std::int32_t id : generated) ++times[id];
  for (const auto& [id, n] : times)
    change(id, [&, n = n](double z) { return z - o.frequency_penalty * static_cast<double>(n) - o.presence_penalty; });
}

std::int32_t pick_token(std::span<const float> logits, const GenerateOptions& o, double random) {
  require_usable(logits);
  if (o.temperature == 0)  // the first, if several are equal
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  Candidates candidates(logits, o);
  double target = random * candidates.sum();
  for (std::size_t i = 0; i < candidates.count(); ++i) {
    target -= candidates.weight(candidates[i]);
    if (target < 0) return candidates[i].id;
  }
  return candidates[candidates.count() - 1].id;
}

std::vector<double> token_probabilities(std::span<const float> logits, const GenerateOptions& o) {
  require_usable(logits);
  require(o.temperature > 0, "sampling", "probabilities at temperature {}; expected a temperature above 0",
          o.temperature);
  Candidates candidates(logits, o);
  std::vector<double> probabilities(logits.size(), 0.0);
  for (std::size_t i = 0; i < candidates.count(); ++i)
    probabilities[static_cast<std::size_t>(candidates[i].id)] = candidates.weight(candidates[i]) / candidates.sum();
  return probabilities;
}

double random_of_token(std::uint64_t seed, std::int64_t number) {
  return static_cast<double>(random_uniform(seed, stream_of("generate"), static_cast<std::uint64_t>(number)));
}

double log_probability(std::span<const float> logits, std::int32_t id) {
  return static_cast<double>(logits[static_cast<std::size_t>(id)]) - log_of_sum(logits);
}

std::vector<TokenLogprob> likeliest_tokens(std::span<const float> logits, std::int64_t count) {
  const double sum = log_of_sum(logits);
  Ranking ranking(logits);
  std::vector<TokenLogprob> likeliest;
  for (std::size_t i = 0; i < std::min(ranking.size(), static_cast<std::size_t>(count)); ++i)
    likeliest.push_back({ranking[i].id, static_cast<float>(static_cast<double>(ranking[i].logit) - sum)});
  return likeliest;
}

}  // namespace trireme
