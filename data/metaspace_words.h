// Cuts a text of characters before each U+2581, or run of them, or behind it, where no token can cross the cut: short
// words are then found in the cache of words.
// Read next: data/word_cache.h.
#pragma once

#include <algorithm>
#include <string_view>

#include "data/bpe_model.h"

namespace trireme {

inline constexpr std::string_view metaspace = "\xE2\x96\x81";  // U+2581

/// Whether no metaspace of a token has another character in front of it.
inline bool begins_with_metaspaces(std::string_view token) {
  while (token.starts_with(metaspace)) token.remove_prefix(metaspace.size());
  return token.find(metaspace) == std::string_view::npos;
}

/// Whether no metaspace of a token has another character behind it.
inline bool ends_with_metaspaces(std::string_view token) {
  while (token.ends_with(metaspace)) token.remove_suffix(metaspace.size());
  return token.find(metaspace) == std::string_view::npos;
}

/// Whether no merge can cross the beginning of a run of metaspaces.
inline bool separates_metaspaces(const BpeModel& model) {
  if (model.options().by_bytes || model.options().whole_words || model.find(metaspace) < 0) return false;
  return std::all_of(model.tokens().begin(), model.tokens().end(), begins_with_metaspaces);
}

/// Calls f(word) for the words of a text, in order: each begins with a run of metaspaces, but perhaps the first.
template <class F>
void for_each_metaspace_word(std::string_view text, const F& f) {
  std::size_t begin = 0;
  for (std::size_t at = 1; (at = text.find(metaspace, at)) != std::string_view::npos; at += metaspace.size()) {
    const bool in_run = at >= metaspace.size() && text.substr(at - metaspace.size()).starts_with(metaspace);
    if (in_run) continue;
    f(text.substr(begin, at - begin));
    begin = at;
  }
  f(text.substr(begin));
}

/// The same for words that end with a run of metaspaces, but perhaps the last.
template <class F>
void for_each_word_before_metaspace(std::string_view text, const F& f) {
  std::size_t begin = 0;
  for (std::size_t at = 0; (at = text.find(metaspace, at)) != std::string_view::npos;) {
    while (text.substr(at).starts_with(metaspace)) at += metaspace.size();
    f(text.substr(begin, at - begin));
    begin = at;
  }
  if (begin < text.size()) f(text.substr(begin));
}

}  // namespace trireme
