#include "data/bpe_builder.h"

#include <algorithm>

#include "core/error.h"
#include "data/byte_alphabet.h"
#include "data/utf8.h"

namespace trireme {

void BpeBuilder::check_room(const std::string& where) const {
  if (data_.merges.size() == bpe_most_merges)
    fail(ExitCode::data, "tokenizer", "{}: more than {} merges; expected fewer", where, bpe_most_merges);
}

void BpeBuilder::add(std::string text, bool leave_out, const std::string& where) {
  if (data_.tokens.size() == bpe_most_tokens)
    fail(ExitCode::data, "tokenizer", "{}: more than {} tokens; expected a smaller vocabulary", where, bpe_most_tokens);
  data_.tokens.push_back(std::move(text));
  left_out_.push_back(leave_out);
  any_left_out_ = any_left_out_ || leave_out;
  if (!leave_out) table_.insert(size() - 1);  // a repetition is refused by BpeModel
}

void BpeBuilder::add_token(std::string spelling, const std::string& where) {
  if (spelling_ == Spelling::text) return add(std::move(spelling), false, where);
  auto bytes = unspell_bytes(spelling);
  if (!bytes && spelling_ == Spelling::bytes)
    fail(ExitCode::data, "tokenizer",
         "{}: the token {} has a character outside the byte alphabet; expected byte-level BPE", where,
         in_quotes(spelling));
  const bool leave_out = !bytes;
  add(bytes ? std::move(*bytes) : std::move(spelling), leave_out, where);
}

void BpeBuilder::add_bytes(std::string bytes, const std::string& where) { add(std::move(bytes), false, where); }

void BpeBuilder::add_gap(const std::string& where) { add({}, true, where); }

std::optional<std::int32_t> BpeBuilder::find(std::string_view spelling) const {
  std::int32_t id = -1;
  if (spelling_ == Spelling::text) {
    id = table_.find(spelling);
  } else if (const auto bytes = unspell_bytes(spelling)) {
    id = table_.find(*bytes);
  } else if (any_left_out_) {
    for (std::size_t i = 0; i < data_.tokens.size() && id < 0; ++i)
      if (left_out_[i] && !data_.tokens[i].empty() && data_.tokens[i] == spelling) id = static_cast<std::int32_t>(i);
  }
  return id < 0 ? std::nullopt : std::optional(id);
}

void BpeBuilder::add_merge(std::int64_t left, std::int64_t right, const std::string& where) {
  check_room(where);
  for (const std::int64_t id : {left, right})
    if (id < 0 || id >= size() || left_out_[static_cast<std::size_t>(id)])
      fail(ExitCode::data, "tokenizer", "{}: a merge of id {}; expected that of a token, under {}", where, id, size());
  data_.merges.emplace_back(static_cast<std::int32_t>(left), static_cast<std::int32_t>(right));
}

void BpeBuilder::add_merge(std::string_view left, std::string_view right, const std::string& where) {
  check_room(where);
  const auto id_of = [&](std::string_view spelling) {
    const auto id = find(spelling);
    if (!id || left_out_[static_cast<std::size_t>(*id)])
      fail(ExitCode::data, "tokenizer", "{}: {} is not in the vocabulary; expected a token", where,
           in_quotes(spelling));
    return *id;
  };
  const std::int32_t first = id_of(left);
  data_.merges.emplace_back(first, id_of(right));
}

void BpeBuilder::add_merge(std::string_view line, const std::string& where) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || line.find(' ', space + 1) != std::string_view::npos)
    fail(ExitCode::data, "tokenizer", "{}: expected two tokens with one space between them, got {}", where,
         in_quotes(line));
  add_merge(line.substr(0, space), line.substr(space + 1), where);
}

BpeMerges BpeBuilder::take() { return std::move(data_); }

void VocabReader::take(const JsonPlace& place, const nlohmann::json& value, const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& what) {
    fail(ExitCode::data, "tokenizer", "{} byte {}: token {} {}", path.string(), place.at, in_quotes(place.key), what);
  };
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= bpe_most_tokens)
    refuse(fmt::format("has id {}; expected a number under {}", shown(value), bpe_most_tokens));
  const auto id = value.get<std::size_t>();
  if (id >= given_.size()) {
    spellings_.resize(id + 1);
    given_.resize(id + 1);
  }
  if (given_[id]) refuse(fmt::format("has the id {} of {}; expected one of its own", id, in_quotes(spellings_[id])));
  given_[id] = true;
  spellings_[id] = place.key;
  if (id >= most_) {
    most_ = id;
    most_at_ = place.at;
  }
}

std::vector<std::string> VocabReader::finish(const std::filesystem::path& path) {
  const auto missing = std::find(given_.begin(), given_.end(), false);
  if (missing != given_.end())
    fail(ExitCode::data, "tokenizer", "{} byte {}: token {} has id {}, but none has {}; expected ids without gaps",
         path.string(), most_at_, in_quotes(spellings_[most_]), most_, missing - given_.begin());
  return std::move(spellings_);
}

}  // namespace trireme
