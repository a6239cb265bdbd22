// Patterns are sorted, so those that agree with the text so far are neighbours: each further byte narrows their range.
#include "data/added_tokens.h"

#include <algorithm>

#include "data/unicode.h"
#include "data/utf8.h"

namespace trireme {

namespace {

CharClass class_at(std::string_view text, std::size_t at) {
  const auto character = decode_utf8(text, at);
  return character ? char_classes()[character->value] : 0;
}

/// Where the character before byte `at` (> 0) begins.
std::size_t character_before(std::string_view text, std::size_t at) {
  std::size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
  return begin;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool word_before = begin > 0 && (class_at(text, character_before(text, begin)) & char_class::word) != 0;
  const bool word_behind = end < text.size() && (class_at(text, end) & char_class::word) != 0;
  return !word_before && !word_behind;
}

std::size_t spaces_before(std::string_view text, std::size_t at) {
  while (at > 0) {
    const std::size_t begin = character_before(text, at);
    if ((class_at(text, begin) & char_class::space) == 0) break;
    at = begin;
  }
  return at;
}

std::size_t spaces_behind(std::string_view text, std::size_t at) {
  while (at < text.size() && (class_at(text, at) & char_class::space) != 0) at += decode_utf8(text, at)->bytes;
  return at;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns)
    : tokens_(std::move(tokens)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (!patterns[i].empty()) order_.emplace_back(patterns[i], i);
  std::sort(order_.begin(), order_.end());
  for (const auto& [pattern, index] : order_) first_bytes_[static_cast<unsigned char>(pattern.front())] = true;
  if (std::count(first_bytes_.begin(), first_bytes_.end(), true) == 1)
    only_first_byte_ =
        static_cast<int>(std::find(first_bytes_.begin(), first_bytes_.end(), true) - first_bytes_.begin());
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, std::size_t at, std::size_t& length) const {
  const AddedToken* longest = nullptr;
  auto low = order_.begin(), high = order_.end();
  for (std::size_t depth = 0; at + depth < text.size() && low != high; ++depth) {
    const auto byte = static_cast<unsigned char>(text[at + depth]);
    const auto byte_of = [&](const auto& entry) {  // -1: the pattern has ended
      return entry.first.size() > depth ? static_cast<int>(static_cast<unsigned char>(entry.first[depth])) : -1;
    };
    low = std::partition_point(low, high, [&](const auto& entry) { return byte_of(entry) < byte; });
    high = std::partition_point(low, high, [&](const auto& entry) { return byte_of(entry) <= byte; });
    if (low != high && low->first.size() == depth + 1) {
      longest = &tokens_[low->second];
      length = depth + 1;
    }
  }
  return longest;
}

AddedTokenFinder::Found AddedTokenFinder::find(std::string_view text, std::size_t at) const {
  for (; at < text.size(); ++at) {
    if (only_first_byte_ >= 0) {
      at = text.find(static_cast<char>(only_first_byte_), at);
      if (at == std::string_view::npos) break;
    } else if (!first_bytes_[static_cast<unsigned char>(text[at])]) {
      continue;
    }
    std::size_t length = 0;
    if (const AddedToken* token = longest_at(text, at, length)) return {at, at + length, token};
  }
  return {text.size(), text.size(), nullptr};
}

void AddedTokenFinder::split(std::string_view text, bool specials,
                             const std::function<void(std::size_t, std::size_t)>& on_text,
                             const std::function<void(std::int32_t)>& on_token) const {
  std::size_t done = 0;  // everything before it has been passed on
  for (std::size_t at = 0; !order_.empty();) {
    Found found = find(text, at);
    if (found.token == nullptr) break;
    at = found.end;  // what is refused here takes part in no other token either
    if (found.token->special && !specials) continue;
    if (found.token->single_word && !stands_alone(text, found.begin, found.end)) continue;
    if (found.token->lstrip) found.begin = std::max(spaces_before(text, found.begin), done);
    if (found.token->rstrip) found.end = spaces_behind(text, found.end);
    if (done < found.begin) on_text(done, found.begin);
    on_token(found.token->id);
    done = found.end;
  }
  if (done < text.size()) on_text(done, text.size());
}

}  // namespace trireme
