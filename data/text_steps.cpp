#include "data/text_steps.h"

#include <algorithm>

#include "data/unicode.h"
#include "data/utf8.h"

namespace trireme {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  while (true) {
    const std::size_t at = from.empty() ? std::string_view::npos : text.find(from);
    result += text.substr(0, at);
    if (at == std::string_view::npos) return result;
    result += to;
    text.remove_prefix(at + from.size());
  }
}

std::string_view normalized(const std::vector<NormalizerStep>& steps, std::string_view text, std::string& storage) {
  const auto change = [&](std::string changed) {
    storage = std::move(changed);
    text = storage;
  };
  for (const NormalizerStep& step : steps) {
    switch (step.kind) {
      case NormalizerStep::Kind::form:
        if (!surely_normal(text, step.form)) change(normal_form(text, step.form));
        break;
      case NormalizerStep::Kind::lower:
        change(lower_case(text));
        break;
      case NormalizerStep::Kind::prepend:
        if (!text.empty()) change(step.to + std::string(text));
        break;
      case NormalizerStep::Kind::replace: {
        if (!step.regex) {
          change(replaced(text, step.from, step.to));
          break;
        }
        std::string result;
        std::size_t copied = 0;
        step.regex->for_each_match(text, [&](std::size_t begin, std::size_t end) {
          result += text.substr(copied, begin - copied);
          result += step.to;
          copied = end;
        });
        result += text.substr(copied);
        change(std::move(result));
        break;
      }
    }
  }
  return text;
}

namespace {

/// Matches and what is between them, in order.
std::vector<MatchedRange> ranges_of(const SplitStep& step, std::string_view text) {
  std::vector<MatchedRange> ranges;
  std::size_t covered = 0;
  const auto add = [&](std::size_t begin, std::size_t end) {
    if (covered < begin) ranges.push_back({covered, begin, step.invert});
    ranges.push_back({begin, end, !step.invert});
    covered = end;
  };
  if (step.regex) {
    step.regex->for_each_match(text, add);
  } else {
    for (std::size_t at = 0; (at = text.find(step.delimiter, at)) != std::string_view::npos;
         at += step.delimiter.size())
      add(at, at + step.delimiter.size());
  }
  if (covered < text.size()) ranges.push_back({covered, text.size(), step.invert});
  return ranges;
}

}  // namespace

std::vector<MatchedRange> matched_ranges(const SplitStep& step, std::string_view text) {
  std::vector<MatchedRange> ranges = ranges_of(step, text);
  if (step.behavior == SplitBehavior::isolated) return ranges;
  std::vector<MatchedRange> merged;
  bool before = false;  // whether the range before matches
  const auto add = [&](const MatchedRange& range, bool merges) {
    before = range.matches;
    if (!merges || merged.empty()) {
      merged.push_back(range);
    } else {
      merged.back().begin = std::min(merged.back().begin, range.begin);
      merged.back().end = std::max(merged.back().end, range.end);
    }
  };
  switch (step.behavior) {
    case SplitBehavior::removed:
      for (const MatchedRange& range : ranges)
        if (!range.matches) merged.push_back(range);
      break;
    case SplitBehavior::merged_with_previous:
      for (const MatchedRange& range : ranges) add(range, range.matches && !before);
      break;
    case SplitBehavior::merged_with_next:
      std::reverse(ranges.begin(), ranges.end());
      for (const MatchedRange& range : ranges) add(range, range.matches && !before);
      std::reverse(merged.begin(), merged.end());
      break;
    case SplitBehavior::contiguous:
      for (const MatchedRange& range : ranges) add(range, range.matches == before);
      break;
    case SplitBehavior::isolated:
      break;
  }
  return merged;
}

std::size_t next_digits(std::string_view text, std::size_t at, bool each, std::size_t& end) {
  const auto is_digit = [&](const CodePoint& c) {
    return (char_classes()[c.value] & (char_class::number | char_class::numeric)) != 0;
  };
  while (at < text.size()) {
    const CodePoint c = *decode_utf8(text, at);
    if (!is_digit(c)) {
      at += c.bytes;
      continue;
    }
    end = at + c.bytes;
    while (!each && end < text.size()) {
      const CodePoint more = *decode_utf8(text, end);
      if (!is_digit(more)) break;
      end += more.bytes;
    }
    return at;
  }
  return end = text.size();
}

}  // namespace trireme
