// Which sample of which source comes next, and what --data may be.
#include "data/mixture.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "data/shuffle.h"
#include "data/utf8.h"

namespace trireme {

namespace {

/// A part of the list as written: PATH:WEIGHT, or PATH alone.
struct WeightedPart {
  std::string_view path, weight;
};

WeightedPart split_weight(std::string_view part) {
  const std::size_t colon = part.rfind(':');
  if (colon == std::string_view::npos) return {part, {}};
  const std::string_view behind = part.substr(colon + 1);
  const bool number = !behind.empty() && behind.find_first_not_of("0123456789.eE+-") == std::string_view::npos;
  return number ? WeightedPart{part.substr(0, colon), behind} : WeightedPart{part, {}};
}

double weight_of(const WeightedPart& part) {
  double weight = 0;
  const auto [end, error] = std::from_chars(part.weight.data(), part.weight.data() + part.weight.size(), weight);
  if (error != std::errc{} || end != part.weight.data() + part.weight.size() || !std::isfinite(weight) || weight <= 0)
    fail(ExitCode::usage, "data", "--data: the weight of {} is {}; expected a number above 0; change it",
         in_quotes(part.path), in_quotes(part.weight));
  return weight;
}

}  // namespace

std::vector<MixturePart> parse_mixture(std::string_view text) {
  std::vector<WeightedPart> listed;
  for (std::size_t begin = 0, comma = 0; comma != std::string_view::npos; begin = comma + 1) {
    comma = text.find(',', begin);
    listed.push_back(split_weight(text.substr(begin, comma - begin)));
  }
  const auto weighted =
      std::count_if(listed.begin(), listed.end(), [](const WeightedPart& part) { return !part.weight.empty(); });
  constexpr std::size_t most = 1000;
  std::error_code unknown;
  if (weighted == 0 || std::filesystem::exists(std::filesystem::path(text), unknown)) return {{std::string(text), 1.0}};

  if (listed.size() > most)
    fail(ExitCode::usage, "data", "--data has {} parts; expected at most {}", listed.size(), most);
  std::vector<MixturePart> parts;
  double sum = 0;
  for (const WeightedPart& part : listed) {
    if (part.weight.empty() || part.path.empty())
      fail(ExitCode::usage, "data",
           "--data {}: the part {} has no {}; expected PATH:WEIGHT,PATH:WEIGHT and so on; add it", in_quotes(text),
           in_quotes(part.weight.empty() ? part.path : part.weight), part.weight.empty() ? "weight" : "path");
    const bool again = std::any_of(parts.begin(), parts.end(), [&](const auto& p) { return p.path == part.path; });
    if (again)
      fail(ExitCode::usage, "data", "--data {}: {} occurs twice; expected it once", in_quotes(text),
           in_quotes(part.path));
    parts.push_back({std::string(part.path), weight_of(part)});
    sum += parts.back().weight;
  }
  for (MixturePart& part : parts) {
    part.weight /= sum;
    if (!(part.weight * static_cast<double>(MixtureOrder::period) >= 1))
      fail(ExitCode::usage, "data",
           "--data: {} has the weight {:.3g} of 1; expected at least 1/{}; raise it, or leave it out",
           in_quotes(part.path), part.weight, MixtureOrder::period);
  }
  return parts;
}

MixtureOrder::MixtureOrder(const std::vector<double>& weights, std::uint64_t seed) : seed_(seed) {
  require(!weights.empty(), "mixture", "no weights; expected at least one");
  // Each source gets its weight rounded down; those with the largest remainders get one more.
  std::vector<std::int64_t> counts;
  std::vector<std::size_t> by_remainder(weights.size());
  std::vector<double> remainders;
  for (const double weight : weights) {
    const double exact = weight * static_cast<double>(period);
    counts.push_back(static_cast<std::int64_t>(std::floor(exact + 1e-9)));
    remainders.push_back(exact - static_cast<double>(counts.back()));
  }
  std::iota(by_remainder.begin(), by_remainder.end(), std::size_t{0});
  std::stable_sort(by_remainder.begin(), by_remainder.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  const std::int64_t left = period - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  require(left >= 0 && left <= static_cast<std::int64_t>(weights.size()), "mixture", "weights whose sum is not 1");
  for (std::int64_t i = 0; i < left; ++i) ++counts[by_remainder[static_cast<std::size_t>(i)]];
  std::int64_t end = 0;
  for (const std::int64_t count : counts) {
    if (count < 1)
      fail(ExitCode::usage, "data", "a source of the mixture has less than 1/{} of it; raise its weight", period);
    ends_.push_back(end += count);
  }
}

MixtureOrder::SourceSample MixtureOrder::locate(std::int64_t sample) const {
  require(sample >= 0, "mixture", "sample {} does not exist", sample);
  const std::int64_t turn = sample / period;
  const auto slot = static_cast<std::int64_t>(shuffled(static_cast<std::uint64_t>(sample % period), period,
                                                       seed_ ^ stream_of("mixture"), static_cast<std::uint64_t>(turn)));
  const auto source = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), slot) - ends_.begin());
  const std::int64_t begin = source == 0 ? 0 : ends_[source - 1];
  return {source, turn * (ends_[source] - begin) + slot - begin};
}

std::int64_t MixtureOrder::count(std::size_t source, std::int64_t samples) const {
  const std::int64_t begin = source == 0 ? 0 : ends_[source - 1], turns = samples / period;
  std::int64_t sum = turns * (ends_[source] - begin);
  for (std::int64_t sample = turns * period; sample < samples; ++sample) sum += locate(sample).source == source ? 1 : 0;
  return sum;
}

std::int64_t MixtureCounter::count(std::size_t source, std::int64_t samples) const {
  const std::int64_t turn = samples / MixtureOrder::period, begin = turn * MixtureOrder::period;
  const std::lock_guard lock(mutex_);
  if (turn != turn_) {
    sources_.clear();
    for (std::int64_t sample = begin; sample < begin + MixtureOrder::period; ++sample)
      sources_.push_back(static_cast<std::uint16_t>(order_.locate(sample).source));
    turn_ = turn;
  }
  return order_.count(source, begin) +
         std::count(sources_.begin(), sources_.begin() + (samples - begin), static_cast<std::uint16_t>(source));
}

std::uint64_t seed_of_source(std::uint64_t seed, std::size_t source) {
  const auto words = philox(seed, stream_of("source of a mixture"), source);
  return static_cast<std::uint64_t>(words[0]) << 32 | words[1];
}

}  // namespace trireme
