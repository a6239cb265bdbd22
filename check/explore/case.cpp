#include "check/explore/case.h"

#include <fmt/format.h>

#include <sstream>

#include "core/error.h"

namespace trireme::explore {
namespace {

constexpr const char* separator = "then";

/// Default sizes for a training run: with the programs' own defaults, a run would take an hour.
Arguments tiny_sizes(const Arguments& flags) {
  Arguments sizes = {{"data", "text-17"}, {"layers", "2"},  {"heads", "2"},
                     {"width", "8"},      {"context", "8"}, {"steps", "3"}};
  if (!flags.contains("global-batch")) sizes["micro-batch"] = "2";
  return sizes;
}

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  std::vector<std::string_view> names;
  for (const CaseKind kind : all_kinds()) names.push_back(name(kind));
  fail(
      ExitCode::usage, "explore",
      "'{}' is not a case: {}; expected a kind ({}), flags as --name=value, and perhaps '{}' and more flags; change it",
      text, why, fmt::join(names, ", "), separator);
}

}  // namespace

std::string to_text(const Arguments& arguments) {
  std::string text;
  for (const std::string& word : to_words(arguments)) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> to_words(const Arguments& arguments) {
  std::vector<std::string> words;
  words.reserve(arguments.size());
  for (const auto& [flag, value] : arguments) words.push_back(fmt::format("--{}={}", flag, value));
  return words;
}

std::string value_of(const Arguments& arguments, const std::string& flag, const std::string& otherwise) {
  const auto found = arguments.find(flag);
  return found == arguments.end() ? otherwise : found->second;
}

Arguments with(Arguments base, const Arguments& changes) {
  for (const auto& [flag, value] : changes) base[flag] = value;
  return base;
}

const std::vector<CaseKind>& all_kinds() {
  static const std::vector<CaseKind> kinds = {CaseKind::gradients, CaseKind::run,    CaseKind::resume,
                                              CaseKind::bits,      CaseKind::faults, CaseKind::verify};
  return kinds;
}

std::string_view name(CaseKind kind) {
  switch (kind) {
    case CaseKind::gradients:
      return "gradients";
    case CaseKind::run:
      return "run";
    case CaseKind::resume:
      return "resume";
    case CaseKind::bits:
      return "bits";
    case CaseKind::faults:
      return "faults";
    case CaseKind::verify:
      return "verify";
  }
  fail(ExitCode::internal, "explore", "a kind without a name");
}

std::string to_text(const Case& c) {
  std::string text(name(c.kind));
  if (!c.flags.empty()) text += " " + to_text(c.flags);
  if (!c.change.empty()) text += fmt::format(" {} {}", separator, to_text(c.change));
  return text;
}

Case parse_case(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  words >> word;
  Case c;
  bool known = false;
  for (const CaseKind kind : all_kinds()) {
    if (name(kind) != word) continue;
    c.kind = kind;
    known = true;
  }
  if (!known) refuse(text, fmt::format("there is no kind '{}'", word));
  Arguments* target = &c.flags;
  while (words >> word) {
    if (word == separator) {
      if (target == &c.change) refuse(text, fmt::format("it has two '{}'", separator));
      target = &c.change;
      continue;
    }
    const std::size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == std::string::npos)
      refuse(text, fmt::format("'{}' is not --name=value", word));
    (*target)[word.substr(2, equals - 2)] = word.substr(equals + 1);
  }
  if (c.kind != CaseKind::gradients) c.flags = with(tiny_sizes(c.flags), c.flags);
  return c;
}

}  // namespace trireme::explore
