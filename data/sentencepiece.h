// Tokenizers from SentencePiece's tokenizer.model, as older folders of Llama 2, Mistral and Gemma have it.
//
// A model of merges that changes text only by U+2581 for spaces, such as those three, becomes the tokenizer that its
// tokenizer.json would be: it can be written as one, and to GGUF. All others (unigrams, rules) are run as the library
// does (data/sentencepiece_tokenizer.h).
//
// The file does not say whether <s> and </s> are put around a text: tokenizer_config.json beside it may, with
// add_bos_token and add_eos_token. Without it a text gets <s>, and not </s>.
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: data/sentencepiece_file.h, data/scored_tokens.h.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/sentencepiece_tokenizer.h"

namespace trireme {

inline constexpr const char* sentence_piece_name = "tokenizer.model";

/// What stands beside the model.
struct SentencePieceExtras {
  SentencePieceEnds ends = {.begin = true};
  std::vector<AddedToken> added = {};  ///< behind its pieces, in order of their ids
};

/// The tokenizer of a model file. A missing <s> or </s> is not added. Throws ExitCode::data, naming `path`, as
/// parse_sentence_piece_model(), SentencePieceTokenizer() and parse_hugging_face_json(), and for added tokens beside a
/// model that is run as the library does.
std::shared_ptr<const Tokenizer> make_sentence_piece(std::string_view file, const std::filesystem::path& path,
                                                     SentencePieceExtras extras);

/// Reads what SentencePieceTokenizer::to_json() wrote.
std::shared_ptr<const Tokenizer> parse_saved_sentence_piece(const nlohmann::json& object,
                                                            const std::filesystem::path& path);

}  // namespace trireme
