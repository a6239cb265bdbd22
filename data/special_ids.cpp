#include "data/special_ids.h"

#include "core/error.h"
#include "data/chat/dialogues.h"

namespace trireme {

std::optional<std::int32_t> special_id(const Tokenizer& tokenizer, const std::string& text) {
  try {
    const std::vector<std::int32_t> ids = encode_rendered(tokenizer, text);
    if (ids.size() == 1 && tokenizer.decode(ids) == text) return ids.front();
  } catch (const Error&) {  // a character that is no token
  }
  return std::nullopt;
}

std::optional<std::int32_t> special_id(const Tokenizer& tokenizer, const SpecialTokens& tokens,
                                       const std::string& name) {
  const auto found = tokens.find(name);
  if (found == tokens.end() || found->second.empty()) return std::nullopt;
  return special_id(tokenizer, found->second);
}

}  // namespace trireme
