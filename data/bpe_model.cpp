// Few symbols are merged by looking through all of them for the best pair; many with a heap of candidates, so that a
// word of n bytes costs O(n log n) even when it is a megabyte of one letter.
#include "data/bpe_model.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "core/error.h"
#include "core/hash.h"
#include "data/byte_alphabet.h"
#include "data/utf8.h"

namespace trireme {

namespace {

constexpr std::size_t kFewSymbols = 100;
constexpr std::size_t kMostDerivedMerges = 3 << 19;  // their table then takes 32 MiB

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

std::size_t mixed(std::uint64_t key) {
  key *= 0x9E3779B97F4A7C15U;
  return static_cast<std::size_t>(key ^ (key >> 32));
}

}  // namespace

std::size_t TokenTable::slot_of(std::string_view text) const {
  std::size_t slot = hash_bytes(text) & (slots_.size() - 1);
  while (slots_[slot] >= 0 && (*tokens_)[static_cast<std::size_t>(slots_[slot])] != text)
    slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

std::int32_t TokenTable::insert(std::int32_t id) {
  if (4 * (used_ + 1) > 3 * slots_.size()) {
    const std::vector<std::int32_t> old = std::move(slots_);
    slots_.assign(std::max<std::size_t>(2 * old.size(), 1024), -1);
    for (const std::int32_t known : old)
      if (known >= 0) slots_[slot_of((*tokens_)[static_cast<std::size_t>(known)])] = known;
  }
  std::int32_t& slot = slots_[slot_of((*tokens_)[static_cast<std::size_t>(id)])];
  if (slot >= 0) return slot;
  ++used_;
  return slot = id;
}

std::int32_t TokenTable::find(std::string_view text) const { return slots_.empty() ? -1 : slots_[slot_of(text)]; }

BpeModel::BpeModel(BpeMerges merges, BpeOptions options, const std::string& source)
    : data_(std::move(merges)), options_(std::move(options)), table_(data_.tokens) {
  insert_tokens(source);
  if (options_.ranked_by_id) {
    derive_merges(source);
  } else {
    insert_merges(source);
  }
}

void BpeModel::insert_tokens(const std::string& source) {
  const auto& tokens = data_.tokens;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (id < options_.left_out.size() && options_.left_out[id]) continue;
    if (tokens[id].empty()) fail(ExitCode::data, "tokenizer", "{}: token {} is empty", source, id);
    const std::int32_t known = table_.insert(static_cast<std::int32_t>(id));
    if (known != static_cast<std::int32_t>(id))
      fail(ExitCode::data, "tokenizer", "{}: token {} repeats token {}: {}", source, id, known,
           in_quotes(spell_bytes(tokens[id])));
  }
  if (!options_.by_bytes) return;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    byte_ids_[byte] = table_.find({&text, 1});
    if (byte_ids_[byte] < 0)
      fail(ExitCode::data, "tokenizer", "{}: no token for the single byte 0x{:02X}; expected all 256 bytes", source,
           byte);
  }
}

void BpeModel::insert_merges(const std::string& source) {
  reserve_merges(data_.merges.size());
  std::vector<std::int32_t> first_ranks(options_.rank_by_token ? data_.tokens.size() : 0, -1);
  std::string text;
  for (std::size_t rank = 0; rank < data_.merges.size(); ++rank) {
    const auto [left, right] = data_.merges[rank];
    const std::string& a = data_.tokens.at(static_cast<std::size_t>(left));
    const std::string& b = data_.tokens.at(static_cast<std::size_t>(right));
    text.assign(a).append(b);
    const std::int32_t result = table_.find(text);
    if (result < 0)
      fail(ExitCode::data, "tokenizer", "{}: merge {} makes {}, which is not in the vocabulary", source, rank,
           in_quotes(spell_bytes(text)));
    auto given = options_.ranks.empty() ? static_cast<std::int32_t>(rank) : options_.ranks.at(rank);
    if (options_.rank_by_token) {
      std::int32_t& first = first_ranks[static_cast<std::size_t>(result)];
      given = first < 0 ? first = given : first;
    }
    if (!add_merge(left, right, given, result))
      fail(ExitCode::data, "tokenizer", "{}: merge {} repeats an earlier one: {} {}", source, rank,
           in_quotes(spell_bytes(a)), in_quotes(spell_bytes(b)));
  }
}

/// Every way to cut a token into two tokens is a merge.
void BpeModel::derive_merges(const std::string& source) {
  const auto for_each_cut = [&](const auto& f) {
    for (std::size_t id = 0; id < data_.tokens.size(); ++id) {
      const std::string_view token = data_.tokens[id];
      if (id < options_.left_out.size() && options_.left_out[id]) continue;
      for (std::size_t cut = 1; cut < token.size(); ++cut) {
        const std::int32_t left = table_.find(token.substr(0, cut));
        const std::int32_t right = left < 0 ? -1 : table_.find(token.substr(cut));
        if (right >= 0) f(left, right, static_cast<std::int32_t>(id));
      }
    }
  };
  std::size_t count = 0;
  for_each_cut([&](std::int32_t, std::int32_t, std::int32_t) { ++count; });
  if (count > kMostDerivedMerges)
    fail(ExitCode::data, "tokenizer", "{}: tokens are made of other tokens in {} ways; expected at most {}", source,
         count, kMostDerivedMerges);
  reserve_merges(count);
  for_each_cut([&](std::int32_t left, std::int32_t right, std::int32_t id) { add_merge(left, right, id, id); });
}

void BpeModel::reserve_merges(std::size_t count) {
  std::size_t size = 16;
  while (3 * size < 4 * (count + 1)) size *= 2;
  pairs_.resize(size);
}

bool BpeModel::add_merge(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t result) {
  const std::uint64_t key = pair_key(left, right);
  std::size_t slot = mixed(key) & (pairs_.size() - 1);
  for (; pairs_[slot].rank >= 0; slot = (slot + 1) & (pairs_.size() - 1))
    if (pairs_[slot].pair == key) return false;
  pairs_[slot] = {key, rank, result};
  return true;
}

const BpeModel::Merge* BpeModel::find_merge(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  std::size_t slot = mixed(key) & (pairs_.size() - 1);
  for (; pairs_[slot].rank >= 0; slot = (slot + 1) & (pairs_.size() - 1))
    if (pairs_[slot].pair == key) return &pairs_[slot];
  return nullptr;
}

bool BpeModel::never_joins(bool (*left)(unsigned char), bool (*right)(unsigned char)) const {
  const auto some_unknown = [&](bool (*among)(unsigned char)) {
    for (unsigned char c = 0; c < 128; ++c)
      if (among(c) && table_.find(std::string_view(reinterpret_cast<const char*>(&c), 1)) < 0) return true;
    return false;
  };
  const bool fuses = !options_.by_bytes && options_.byte_tokens.empty() && options_.unknown && options_.fuse_unknown;
  if (fuses && some_unknown(left) && some_unknown(right)) return false;
  for (const std::string& token : data_.tokens) {
    for (std::size_t i = 0; i + 1 < token.size(); ++i)
      if (left(static_cast<unsigned char>(token[i])) && right(static_cast<unsigned char>(token[i + 1]))) return false;
  }
  return true;
}

/// False if the word has too many ids for a slot.
bool BpeModel::fill(WordCache::Slot& slot, std::string_view word) const {
  std::vector<std::int32_t> ids;
  merge_word(word, ids);
  if (ids.size() > WordCache::most_ids) return false;
  slot.put(word, ids);
  return true;
}

void BpeModel::append_broken_byte(unsigned char byte, std::vector<std::int32_t>& ids) const {
  if (options_.by_bytes) {
    ids.push_back(byte_ids_[byte]);
  } else if (!options_.byte_tokens.empty()) {
    ids.push_back(options_.byte_tokens[byte]);
  } else if (options_.unknown) {
    ids.push_back(*options_.unknown);
  }
}

void BpeModel::first_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const {
  if (options_.by_bytes) {
    for (const char c : word) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    return;
  }
  bool after_unknown = false;
  for (std::size_t at = 0; at < word.size();) {
    const auto character = decode_utf8(word, at);
    const std::string_view text = word.substr(at, character ? character->bytes : 1);
    at += text.size();
    const std::int32_t id = table_.find(text);
    const bool is_unknown = id < 0 && options_.byte_tokens.empty();
    if (id >= 0) {
      symbols.push_back(id);
    } else if (!is_unknown) {
      for (const char c : text) symbols.push_back(options_.byte_tokens[static_cast<unsigned char>(c)]);
    } else if (options_.unknown && !(after_unknown && options_.fuse_unknown)) {
      symbols.push_back(*options_.unknown);
    }
    after_unknown = is_unknown;
  }
}

void BpeModel::merge_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (options_.whole_words) {
    if (const std::int32_t id = table_.find(word); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  std::vector<std::int32_t> symbols;
  first_symbols(word, symbols);
  if (symbols.size() <= kFewSymbols) {
    merge_few(symbols);
  } else {
    merge_many(symbols);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void BpeModel::merge_few(std::vector<std::int32_t>& symbols) const {
  std::array<const Merge*, kFewSymbols> merges{};  // of each symbol with the next one
  std::size_t count = symbols.size();
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = find_merge(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = count;
    for (std::size_t i = 0; i + 1 < count; ++i)
      if (merges[i] != nullptr && (best == count || merges[i]->rank < merges[best]->rank)) best = i;
    if (best == count) break;
    symbols[best] = merges[best]->result;
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 2,
              symbols.begin() + static_cast<std::ptrdiff_t>(count),
              symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::copy(merges.begin() + best + 1, merges.begin() + count, merges.begin() + best);
    --count;
    if (best > 0) merges[best - 1] = find_merge(symbols[best - 1], symbols[best]);
    merges[best] = best + 1 < count ? find_merge(symbols[best], symbols[best + 1]) : nullptr;
  }
  symbols.resize(count);
}

void BpeModel::merge_many(std::vector<std::int32_t>& symbols) const {
  struct Link {
    std::int32_t id;    // -1 once merged into the link before it
    std::int32_t next;  // index; links.size() at the end
    std::int32_t previous;
  };
  const auto length = static_cast<std::int32_t>(symbols.size());
  std::vector<Link> links(symbols.size());
  for (std::int32_t i = 0; i < length; ++i)
    links[static_cast<std::size_t>(i)] = {symbols[static_cast<std::size_t>(i)], i + 1, i - 1};
  const auto link = [&](std::int32_t i) -> Link& { return links[static_cast<std::size_t>(i)]; };

  // Candidates by (rank, position): the lowest rank first, equal ranks from left to right.
  using Candidate = std::tuple<std::int32_t, std::int32_t>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto propose = [&](std::int32_t at) {
    if (at < 0 || link(at).next >= length) return;
    const Merge* merge = find_merge(link(at).id, link(link(at).next).id);
    if (merge != nullptr) candidates.emplace(merge->rank, at);
  };
  for (std::int32_t i = 0; i < length; ++i) propose(i);

  while (!candidates.empty()) {
    const auto [rank, at] = candidates.top();
    candidates.pop();
    if (link(at).id < 0 || link(at).next >= length) continue;
    const std::int32_t right = link(at).next;
    const Merge* merge = find_merge(link(at).id, link(right).id);
    if (merge == nullptr || merge->rank != rank) continue;  // an earlier merge changed this pair
    link(at).id = merge->result;
    link(at).next = link(right).next;
    link(right).id = -1;
    if (link(at).next < length) link(link(at).next).previous = at;
    propose(link(at).previous);
    propose(at);
  }
  symbols.clear();
  for (std::int32_t i = 0; i < length; i = link(i).next) symbols.push_back(link(i).id);
}

}  // namespace trireme
