#include "data/sentencepiece_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/byte_alphabet.h"
#include "data/metaspace_words.h"
#include "data/scored_tokens.h"
#include "data/utf8.h"

namespace trireme {

namespace {

using Type = SentencePiece::Type;

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string file, const std::filesystem::path& path,
                                               SentencePieceEnds ends)
    : file_(std::move(file)),
      model_(parse_sentence_piece_model(file_, path)),
      ends_(ends),
      normalizer_(model_, path),
      controls_(control_finder()) {
  model_.rules = {};
  if ((ends.begin && !model_.control(model_.begin_piece)) || (ends.end && !model_.control(model_.end_piece)))
    fail(ExitCode::data, "tokenizer", "{}: no control piece {} and {}; expected those that are put around a text",
         path.string(), in_quotes(model_.begin_piece), in_quotes(model_.end_piece));
  if (model_.byte_fallback) {
    byte_ids_.resize(256);
    for (std::size_t id = 0; id < model_.pieces.size(); ++id)
      if (const SentencePiece& piece = model_.pieces[id]; piece.type == Type::byte)
        for (std::size_t byte = 0; byte < 256; ++byte)
          if (piece.text == fmt::format("<0x{:02X}>", byte)) byte_ids_[byte] = static_cast<std::int32_t>(id);
  }
  using Algorithm = SentencePieceModel::Algorithm;
  if (model_.algorithm == Algorithm::unigram) {
    unigrams_ = std::make_unique<const UnigramModel>(model_, byte_ids_, path);
  } else if (model_.algorithm == Algorithm::bpe) {
    build_merges(path);
  } else {
    fail(ExitCode::data, "tokenizer", "{}: a model of {}; expected unigrams or BPE", path.string(),
         model_.algorithm == Algorithm::word ? "words" : "characters");
  }
}

AddedTokenFinder SentencePieceTokenizer::control_finder() const {
  std::vector<AddedToken> tokens;
  std::vector<std::string> patterns;
  for (std::size_t id = 0; id < model_.pieces.size(); ++id) {
    if (model_.pieces[id].type != Type::control) continue;
    patterns.push_back(model_.pieces[id].text);
    tokens.push_back({.id = static_cast<std::int32_t>(id), .content = patterns.back(), .special = true});
  }
  return {std::move(tokens), patterns};
}

void SentencePieceTokenizer::build_merges(const std::filesystem::path& path) {
  BpeMerges merges;
  BpeOptions options{.by_bytes = false, .unknown = model_.unknown, .fuse_unknown = true, .byte_tokens = byte_ids_};
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  for (const SentencePiece& piece : model_.pieces) {
    if (piece.type == Type::unused)
      fail(ExitCode::data, "tokenizer", "{}: the piece {} is not in use; expected a model of BPE without such pieces",
           path.string(), in_quotes(piece.text));
    merges.tokens.push_back(piece.text);
    options.left_out.push_back(piece.type != Type::normal && piece.type != Type::user_defined);
    types.push_back(static_cast<std::int32_t>(piece.type));
    scores.push_back(piece.score);
  }
  float last = 0;
  for (const scored_tokens::ScoredMerge& merge :
       scored_tokens::merges_of_scores(merges.tokens, types, scores, path.string())) {
    const bool equal = !merges.merges.empty() && merge.score == last;
    options.ranks.push_back(equal ? options.ranks.back() : static_cast<std::int32_t>(merges.merges.size()));
    merges.merges.emplace_back(merge.left, merge.right);
    last = merge.score;
  }
  merges_ = std::make_unique<const BpeModel>(std::move(merges), std::move(options), path.string());
  separates_metaspaces_ = separates_metaspaces(*merges_);
}

void SentencePieceTokenizer::append_ids(std::string_view text, std::vector<std::int32_t>& ids) const {
  const std::string normalized = normalizer_.normalized(text);
  if (merges_) {
    append_merged(normalized, ids);
  } else {
    unigrams_->append_ids(normalized, ids);
  }
}

void SentencePieceTokenizer::append_merged(std::string_view text, std::vector<std::int32_t>& ids) const {
  const WordCaches::Lease lease(merges_->caches());
  const auto append = [&](std::string_view part) {
    const auto word = [&](std::string_view w) { merges_->append_word(w, lease.cache(), ids); };
    if (separates_metaspaces_) return for_each_metaspace_word(part, word);
    word(part);
  };
  const ByteTrie& kept = normalizer_.kept();
  if (kept.empty()) return append(text);
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::int32_t id = -1;
    const std::size_t bytes = kept.longest(text.substr(at), id);
    if (bytes == 0) {
      at = std::min(at + utf8_bytes(text[at]), text.size());
      continue;
    }
    append(text.substr(begin, at - begin));
    ids.push_back(id);
    begin = at += bytes;
  }
  append(text.substr(begin));
}

std::vector<std::int32_t> SentencePieceTokenizer::encode_with_special(std::string_view text) const {
  std::vector<std::int32_t> ids;
  if (ends_.begin) ids.push_back(*model_.control(model_.begin_piece));
  controls_.split(
      text, true, [&](std::size_t begin, std::size_t end) { append_ids(text.substr(begin, end - begin), ids); },
      [&](std::int32_t id) { ids.push_back(id); });
  if (ends_.end) ids.push_back(*model_.control(model_.end_piece));
  return ids;
}

void SentencePieceTokenizer::append_bytes(std::int32_t id, std::string& text) const {
  const SentencePiece& piece = model_.pieces[static_cast<std::size_t>(id)];
  if (piece.type == Type::control) return;
  if (piece.type == Type::unknown) {
    text += model_.unknown_surface;
  } else if (const auto byte = std::find(byte_ids_.begin(), byte_ids_.end(), id); byte != byte_ids_.end()) {
    text += static_cast<char>(byte - byte_ids_.begin());
  } else {
    std::string_view rest = piece.text;
    for (std::size_t at = 0; (at = rest.find(metaspace)) != std::string_view::npos;) {
      text.append(rest.substr(0, at)).append(" ");
      rest.remove_prefix(at + metaspace.size());
    }
    text += rest;
  }
}

/// The space in front of the first piece is not part of the text; of several, none is if spaces are removed.
void SentencePieceTokenizer::append_text(std::span<const std::int32_t> ids, std::string& text) const {
  bool begins = model_.adds_space || model_.removes_spaces;
  for (const std::int32_t id : ids) {
    std::string piece;
    append_bytes(id, piece);
    const Type type = model_.pieces[static_cast<std::size_t>(id)].type;
    if (begins && type != Type::control) {
      const bool drops = type != Type::byte && type != Type::unknown && piece.starts_with(' ');
      if (drops) piece.erase(0, 1);
      begins = drops && model_.removes_spaces && piece.empty();
    }
    text += piece;
  }
}

std::string SentencePieceTokenizer::to_json() const {
  const nlohmann::json object = {{"format", std::string(tokenizer_format)},
                                 {"version", 1},
                                 {"kind", std::string(sentence_piece_kind)},
                                 {"model", spell_bytes(file_)},
                                 {"adds_begin", ends_.begin},
                                 {"adds_end", ends_.end}};
  return object.dump(1) + "\n";
}

}  // namespace trireme
