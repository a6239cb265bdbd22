#include "train/gpt/stop_strings.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/json.h"

namespace trireme {
namespace {

/// The length of the longest end of `text` that is the beginning of one of `stops`, but not all of it.
std::size_t possible_stop(std::string_view text, const std::vector<std::string>& stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops)
    for (std::size_t n = std::min(stop.size() - 1, text.size()); n > longest; --n)
      if (text.ends_with(std::string_view(stop).substr(0, n))) longest = n;
  return longest;
}

}  // namespace

TextUntil::TextUntil(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(&tokenizer), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) require(!stop.empty(), "stop strings", "one is empty; expected a character");
}

std::string TextUntil::shown(std::string_view bytes) {
  std::string characters = printable_.push(bytes);
  text_ += characters;
  return characters;
}

std::string TextUntil::push(std::int32_t id) {
  if (ended_) return {};
  held_ += tokenizer_->decode_further(id);
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    ended_ = true;
    const std::string before = held_.substr(0, end);
    held_.clear();
    return shown(before);
  }
  const std::size_t certain = held_.size() - possible_stop(held_, stops_);
  const std::string bytes = held_.substr(0, certain);
  held_.erase(0, certain);
  return shown(bytes);
}

std::string TextUntil::finish() {
  std::string rest = shown(std::exchange(held_, {}));
  const std::string broken = printable_.finish();
  text_ += broken;
  return rest + broken;
}

std::vector<std::string> parse_stop_strings(const std::string& text) {
  if (text.empty()) return {};
  if (!text.starts_with('[')) return {text};
  std::vector<std::string> stops;
  try {
    const nlohmann::json list = parse_json(text, "--stop");
    for (const auto& stop : list) {
      if (!stop.is_string() || stop.get<std::string>().empty())
        fail(ExitCode::data, "stop", "{} is not a text with a character in it", trireme::shown(stop));
      stops.push_back(stop.get<std::string>());
    }
  } catch (const Error& error) {
    fail(ExitCode::usage, "--stop", "{}; expected a text, or a JSON list of texts such as '[\"\\n\\n\",\"User:\"]'",
         error.reason());
  }
  return stops;
}

}  // namespace trireme
