#include "data/prepare/text_filter.h"

#include "data/unicode.h"
#include "data/utf8.h"

namespace trireme {

FilterOutcome filter_outcome(std::string_view text, const TextFilter& filter) {
  if (text.empty()) return FilterOutcome::too_short;
  if (!filter.is_used()) return FilterOutcome::kept;
  constexpr CharClass counted = char_class::letter | char_class::mark | char_class::space;
  const auto& classes = char_classes();
  std::int64_t characters = 0, others = 0;
  for (std::size_t at = 0; at < text.size(); ++characters) {
    const auto character = decode_utf8(text, at);
    if (!character || (classes[character->value] & counted) == 0) ++others;
    at += character ? character->bytes : 1;
  }
  if (characters < filter.min_chars) return FilterOutcome::too_short;
  if (filter.max_chars && characters > *filter.max_chars) return FilterOutcome::too_long;
  const auto share = static_cast<double>(others) / static_cast<double>(characters);
  return filter.max_non_letters && share > *filter.max_non_letters ? FilterOutcome::non_letters : FilterOutcome::kept;
}

}  // namespace trireme
