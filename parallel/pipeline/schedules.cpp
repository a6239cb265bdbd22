#include "parallel/pipeline/schedules.h"

#include <fmt/ranges.h>

#include <charconv>

#include "core/error.h"

namespace trireme::pipeline {
namespace {

constexpr ScheduleKind kinds[] = {
    {.name = "gpipe", .make = gpipe},
    {.name = "1f1b", .make = one_f_one_b},
    {.name = "zero-bubble", .make = zero_bubble, .help = "weight gradients fill the idle time"},
    {.name = "interleaved",
     .make_with_chunks = interleaved,
     .help = "V stages on every rank, with a smaller bubble and more messages"},
};

std::string spelling(const ScheduleKind& kind) {
  return fmt::format("{}{}", kind.name, kind.make_with_chunks != nullptr ? ":V" : "");
}

struct Request {
  const ScheduleKind* kind;
  int chunks;
};

Request parse(std::string_view name) {
  constexpr int most = 1 << 16;
  for (const ScheduleKind& kind : kinds) {
    if (!name.starts_with(kind.name)) continue;
    std::string_view text = name.substr(kind.name.size());
    if (kind.make != nullptr && text.empty()) return {&kind, 1};
    if (kind.make_with_chunks == nullptr || !text.starts_with(':')) continue;
    text.remove_prefix(1);
    int chunks = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), chunks);
    if (error != std::errc() || end != text.data() + text.size() || chunks < 1 || chunks > most)
      fail(ExitCode::usage, "pipeline",
           "'{}' does not say how many stages a rank holds; expected a whole number from 1 to {}, as in {}:2; "
           "change the schedule (--pipeline)",
           name, most, kind.name);
    return {&kind, chunks};
  }
  fail(ExitCode::usage, "pipeline", "unknown schedule '{}'; expected one of {}; change the name (--pipeline)", name,
       schedule_spellings(", "));
}

}  // namespace

std::span<const ScheduleKind> schedule_kinds() { return kinds; }

std::string schedule_spellings(std::string_view separator) {
  std::vector<std::string> all;
  for (const ScheduleKind& kind : kinds) all.push_back(spelling(kind));
  return fmt::format("{}", fmt::join(all, separator));
}

std::string schedule_help() {
  std::string text = "order of forwards and backwards in a pipeline";
  for (const ScheduleKind& kind : kinds)
    if (!kind.help.empty()) text += fmt::format("; {}: {}", spelling(kind), kind.help);
  return text;
}

std::vector<std::string> schedule_examples(int chunks) {
  std::vector<std::string> names;
  for (const ScheduleKind& kind : kinds)
    names.push_back(kind.make_with_chunks != nullptr ? fmt::format("{}:{}", kind.name, chunks)
                                                     : std::string(kind.name));
  return names;
}

int chunks_per_rank(std::string_view name) { return parse(name).chunks; }

Schedule make_schedule(std::string_view name, int ranks, int microbatches) {
  const auto [kind, chunks] = parse(name);
  if (kind->make_with_chunks != nullptr) return kind->make_with_chunks(ranks, microbatches, chunks);
  return ranks == 1 ? one_f_one_b(ranks, microbatches) : kind->make(ranks, microbatches);
}

}  // namespace trireme::pipeline
