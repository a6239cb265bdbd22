// tokenizer.json of Hugging Face's library `tokenizers`, for models of byte-pair encoding: GPT-2, Llama, Qwen, Gemma
// and others. Accepted are:
//
//   model           BPE, by bytes or by characters with byte fallback or an unknown token; ignore_merges; no dropout.
//                   rank_by_token is our own, for models of SentencePiece (BpeOptions); the library does not read it
//   added_tokens    with lstrip, rstrip, single_word, normalized and special
//   normalizer      NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Sequence
//   pre_tokenizer   ByteLevel, Split, Metaspace, Digits, Sequence
//   post_processor  TemplateProcessing, ByteLevel, Sequence
//   decoder         ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip, Sequence
//
// Everything else is refused, with the field and its value: another tokenizer would give other ids.
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: data/pipeline_tokenizer.h, data/tokenizer_files.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "data/pipeline_tokenizer.h"

namespace trireme {

/// Kind of such a tokenizer in our own files.
inline constexpr std::string_view hugging_face_kind = "hugging-face";

/// Parses tokenizer.json. Throws ExitCode::data, with the place or the field, for what is malformed, does not fit
/// together, or is not supported.
std::shared_ptr<const Tokenizer> parse_hugging_face_json(std::string_view text, const std::filesystem::path& path);

/// The same tokenizer as text of a tokenizer.json that `tokenizers` and `transformers` load: for tokenizers of Hugging
/// Face, for those that prepare_data learns, for bytes and for characters. Throws ExitCode::usage for one of tiktoken:
/// its ranks are no list of merges.
std::string hugging_face_json(const Tokenizer& tokenizer);

/// The settings in what such a file holds beside the vocabulary and the merges. `find` gives the id of a token of the
/// vocabulary by its spelling, `tokens` their number. Throws as parse_hugging_face_json().
PipelineSettings hugging_face_settings(const nlohmann::json& object, const std::filesystem::path& path,
                                       const std::function<std::optional<std::int32_t>(std::string_view)>& find,
                                       std::int32_t tokens);

/// True if such settings have a ByteLevel step: tokens are then spelled in the alphabet of bytes.
bool has_byte_level(const nlohmann::json& object);

}  // namespace trireme
