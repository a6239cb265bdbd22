#include "check/explore/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "check/explore/sizes.h"
#include "ops/tracking/tracker.h"
#include "train/gpt/gpt_options.h"
#include "train/gpt/parity_options.h"
#include "train/gpt/validate_gpt.h"

namespace trireme::explore {
namespace {

/// The message of the error that f throws, or empty.
std::string objection_of(const std::function<void()>& f) {
  try {
    f();
    return {};
  } catch (const Error& error) { return error.what(); }
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// Draws one alternative of a text like "none|full|every:K"; a capital letter is replaced by a small number. Nothing if
/// a user has to supply the value: FILE, PATH.
std::optional<std::string> draw_alternative(const std::string& value, RandomChoices& random) {
  const std::string chosen = random.pick(split(value, '|'));
  const std::size_t colon = chosen.find(':');
  const std::string placeholder = colon == std::string::npos ? chosen : chosen.substr(colon + 1);
  const bool literal =
      std::none_of(placeholder.begin(), placeholder.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  if (literal) return chosen;
  if (placeholder.size() > 1) return std::nullopt;
  return chosen.substr(0, chosen.size() - 1) + std::to_string(random.between(1, 4));
}

std::string draw_integer(const Flags::Declared& flag, RandomChoices& random) {
  if (!flag.word.empty() && random.chance(0.2)) return flag.word;
  const std::int64_t low = std::isfinite(flag.range.low) ? static_cast<std::int64_t>(flag.range.low) : 0;
  const std::int64_t most = std::isfinite(flag.range.high) ? static_cast<std::int64_t>(flag.range.high) : low + 7;
  return std::to_string(random.between(low, std::min(low + 7, most)));
}

std::string draw_number(const Flags::Declared& flag, RandomChoices& random) {
  if (!flag.word.empty() && random.chance(0.2)) return flag.word;
  double initial = 1;
  std::from_chars(flag.initial.data(), flag.initial.data() + flag.initial.size(), initial);
  if (initial == 0) initial = 0.1;
  const std::vector<double> factors = {0, 0.1, 0.5, 1, 1.5};
  return fmt::format("{:g}", initial * random.pick(factors));
}

Program make_parity() {
  GptOptions options = parity_defaults();
  Flags flags("parity", "");
  declare_parity(flags, options);
  return {.name = "parity", .flags = flags.declared(), .objection = [](const Arguments& arguments) {
            return objection_of([&] { read_parity_options(to_words(arguments)); });
          }};
}

Program make_train() {
  GptOptions options;
  Flags flags("train_gpt", "");
  declare_all(flags, options);
  const Trackers trackers = all_trackers();
  declare_trackers(flags, trackers);
  return {.name = "train_gpt", .flags = flags.declared(), .objection = [](const Arguments& arguments) {
            return objection_of([&] {
              GptOptions o;
              Flags parser("train_gpt", "");
              const Trackers asked = all_trackers();
              declare_all(parser, o);
              declare_trackers(parser, asked);
              parser.parse(to_words(with(arguments, {{"out", "folder"}})));
              resolve(o, 0);
              validate(o);
              for (const std::unique_ptr<Tracker>& tracker : asked) tracker->validate(o.run);
            });
          }};
}

}  // namespace

const Program& parity_program() {
  static const Program program = make_parity();
  return program;
}

const Program& train_program() {
  static const Program program = make_train();
  return program;
}

std::optional<std::string> Space::draw_value(const Flags::Declared& flag, RandomChoices& random) const {
  if (is_fixed(flag.name)) return std::nullopt;
  if (const std::vector<std::string>* sizes = values_to_draw(flag.name)) return random.pick(*sizes);
  if (!flag.choices.empty()) return random.pick(flag.choices);
  switch (flag.kind) {
    case Flags::Kind::on_off:
      return random.chance(0.5) ? "on" : "off";
    case Flags::Kind::integer:
      return draw_integer(flag, random);
    case Flags::Kind::number:
      return draw_number(flag, random);
    case Flags::Kind::text:
      return draw_alternative(flag.value, random);
  }
  return std::nullopt;
}

Arguments Space::draw_core(RandomChoices& random, const std::set<std::string>& excluded) const {
  Arguments core = draw_sizes(random, program_.name == "train_gpt");
  for (const std::string& flag : excluded) core.erase(flag);
  return core;
}

Arguments Space::draw(RandomChoices& random, const std::set<std::string>& excluded) const {
  Arguments chosen = draw_core(random, excluded);
  for (int tries = 0; !program_.objection(chosen).empty(); ++tries) {
    require(tries < 1000, "explore",
            "no mesh, model and batch were accepted together in {} draws; the last draw: {}: {}", tries,
            to_text(chosen), program_.objection(chosen));
    chosen = draw_core(random, excluded);
  }
  // Few flags in some cases, nearly all in others. Two rounds, because some flags are accepted only after another is
  // set.
  const double density = random.pick(std::vector<double>{0.05, 0.15, 0.3, 0.6});
  std::vector<const Flags::Declared*> order;
  for (const Flags::Declared& flag : program_.flags)
    if (!chosen.contains(flag.name) && !excluded.contains(flag.name)) order.push_back(&flag);
  random.shuffle(order);
  for (int turn = 0; turn < 2; ++turn) {
    for (const Flags::Declared* flag : order) {
      if (chosen.contains(flag->name) || !random.chance(density)) continue;
      const std::optional<std::string> value =
          flag->name == "stage-layers" ? draw_stage_layers(chosen, random) : draw_value(*flag, random);
      if (!value) continue;
      const Arguments more = with(chosen, {{flag->name, *value}});
      if (program_.objection(more).empty()) chosen = more;
    }
  }
  return chosen;
}

std::vector<Arguments> smaller(const Arguments& flags) {
  std::vector<Arguments> candidates;
  const auto offer = [&](Arguments candidate) {
    if (candidate != flags) candidates.push_back(std::move(candidate));
  };
  std::vector<std::string> optional;
  for (const auto& [flag, value] : flags)
    if (!is_needed(flag)) optional.push_back(flag);
  for (std::size_t length = optional.size(); length > 0; length /= 2) {  // leave out `length` flags at a time
    for (std::size_t first = 0; first < optional.size(); first += length) {
      Arguments fewer = flags;
      for (std::size_t i = first; i < std::min(first + length, optional.size()); ++i) fewer.erase(optional[i]);
      offer(std::move(fewer));
    }
  }
  for (const auto& [flag, value] : flags) {
    if (flag == "mesh") {
      for (const auto& [axis, size] : parse_axes(value)) {
        for (const int less : {1, size / 2, size - 1}) {
          std::map<std::string, int> axes = parse_axes(value);
          if (less < 1 || less >= size) continue;
          axes[axis] = less;
          offer(with(flags, {{flag, axes_text(axes)}}));
        }
      }
      continue;
    }
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size()) continue;
    for (const std::int64_t less : {std::int64_t{1}, number / 2, number - 1})
      if (less >= 0 && less < number) offer(with(flags, {{flag, std::to_string(less)}}));
  }
  return candidates;
}

}  // namespace trireme::explore
