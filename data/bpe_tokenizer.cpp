#include "data/bpe_tokenizer.h"

#include "data/word_patterns.h"

namespace trireme {

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary, const std::string& source)
    : end_of_text_(vocabulary.end_of_text), model_(std::move(vocabulary), {}, source) {}

void BpeTokenizer::append_ids(std::string_view text, std::vector<std::int32_t>& ids) const {
  const WordCaches::Lease lease(model_.caches());
  for_each_bpe_word(text, [&](std::string_view word) { model_.append_word(word, lease.cache(), ids); });
}

void BpeTokenizer::append_bytes(std::int32_t id, std::string& text) const {
  text += model_.tokens()[static_cast<std::size_t>(id)];
}

}  // namespace trireme
