// The tokenizer in the keys of a GGUF file, and a tokenizer as such keys: tokenizer.ggml.* of llama.cpp.
//
//   model "gpt2"    byte-level BPE: tokens in the alphabet of bytes, merges, and the name of the pattern that cuts
//                   words (pre: gpt-2, llama-bpe, qwen2, gpt-4o)
//   model "llama"   BPE of characters with byte fallback, where "\u2581" stands for a space: tokens with a score for
//                   each. Of two tokens that could be made next, the one of the higher score is made first. We write
//                   the negative rank of the first merge that makes a token, and read the scores as merges again
//
// llama.cpp does not apply Unicode's normal forms (Qwen has NFC), so other text than NFC gets other ids there.
// Read next: data/gguf/file.h, data/hugging_face.h.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/gguf/writer.h"
#include "data/special_ids.h"
#include "data/tokenizer.h"

namespace trireme {

inline constexpr const char* gguf_chat_template_key = "tokenizer.chat_template";

/// What the keys say besides the tokenizer.
struct GgufTokenizerChoices {
  std::int64_t rows = 0;                      ///< of the model's embedding: as many tokens are written; 0: all
  std::vector<std::int32_t> end_tokens = {};  ///< that end a text, at most three; empty: the tokenizer's
  std::string chat_template = {};             ///< empty: none
  SpecialTokens special_tokens = {};          ///< bos_token and pad_token, if the tokenizer has them
};

/// Adds the keys of a tokenizer. Throws ExitCode::usage for one that llama.cpp does not know: of tiktoken, of
/// characters, with another pattern or other steps than above, without a token that ends a text (of bytes, byte 0
/// does), and with more than three.
void add_gguf_tokenizer(GgufValues& values, const Tokenizer& tokenizer, const GgufTokenizerChoices& choices);

/// The tokenizer of a file. Throws ExitCode::data, naming the key, for what is missing, malformed or not supported.
std::shared_ptr<const Tokenizer> read_gguf_tokenizer(const GgufLayout& layout, const std::filesystem::path& path);

/// The tokens that end a text, as far as the file names them: of a text (eos), a turn (eot) and a message (eom);
/// checked as ids. Throws as read_gguf_tokenizer().
std::vector<std::int32_t> gguf_end_tokens(const GgufLayout& layout, const std::filesystem::path& path);

/// The texts of bos_token, eos_token and pad_token, if the file names them. Throws as read_gguf_tokenizer().
SpecialTokens gguf_special_tokens(const GgufLayout& layout, const std::filesystem::path& path);

}  // namespace trireme
