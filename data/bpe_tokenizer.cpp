// Encoding with byte-pair merges: a linked list of tokens and a heap of candidate pairs, so that a word of n bytes
// costs O(n log n) even when it is a megabyte of one letter.
#include "data/bpe_tokenizer.h"

#include <queue>
#include <tuple>

#include "core/error.h"
#include "core/hash.h"
#include "data/utf8.h"

namespace trireme {

namespace {

constexpr std::size_t kMaxCachedWords = 1 << 20;
constexpr std::size_t kMaxCachedWordBytes = 256;  // longer words do not repeat

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

std::size_t BpeTokenizer::WordHash::operator()(std::string_view word) const { return hash_bytes(word); }

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary, const std::string& source) : vocabulary_(std::move(vocabulary)) {
  const auto& tokens = vocabulary_.tokens;
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) fail(ExitCode::data, "tokenizer", "{}: token {} is empty", source, id);
    if (!ids.emplace(tokens[id], static_cast<std::int32_t>(id)).second)
      fail(ExitCode::data, "tokenizer", "{}: token {} repeats token {}: {}", source, id, ids[tokens[id]],
           in_quotes(spell_bytes(tokens[id])));
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    const auto found = ids.find(text);
    if (found == ids.end())
      fail(ExitCode::data, "tokenizer", "{}: no token for the single byte 0x{:02X}; expected all 256 bytes", source,
           byte);
    byte_ids_[byte] = found->second;
  }
  merges_.reserve(vocabulary_.merges.size());
  for (std::size_t rank = 0; rank < vocabulary_.merges.size(); ++rank) {
    const auto [left, right] = vocabulary_.merges[rank];
    const std::string& a = tokens.at(static_cast<std::size_t>(left));
    const std::string& b = tokens.at(static_cast<std::size_t>(right));
    const auto result = ids.find(a + b);
    if (result == ids.end())
      fail(ExitCode::data, "tokenizer", "{}: merge {} makes {}, which is not in the vocabulary", source, rank,
           in_quotes(spell_bytes(a + b)));
    if (!merges_.emplace(pair_key(left, right), Merge{static_cast<std::int32_t>(rank), result->second}).second)
      fail(ExitCode::data, "tokenizer", "{}: merge {} repeats an earlier one: {} {}", source, rank,
           in_quotes(spell_bytes(a)), in_quotes(spell_bytes(b)));
  }
}

const BpeTokenizer::Merge* BpeTokenizer::find_merge(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeTokenizer::append_ids(std::string_view text, std::vector<std::int32_t>& ids) const {
  const std::unique_lock shared(cache_mutex_, std::try_to_lock);
  Cache own;
  Cache& cache = shared ? cache_ : own;
  splitter_.for_each_word(text, [&](std::string_view word) { append_word(word, cache, ids); });
}

void BpeTokenizer::append_word(std::string_view word, Cache& cache, std::vector<std::int32_t>& ids) const {
  if (word.size() > kMaxCachedWordBytes) return merge_word(word, ids);
  auto found = cache.words.find(word);
  if (found == cache.words.end()) {
    if (cache.words.size() >= kMaxCachedWords) cache = Cache{};
    const std::size_t first = cache.ids.size();
    merge_word(word, cache.ids);
    found = cache.words.emplace(word, std::pair(first, cache.ids.size() - first)).first;
  }
  const auto [first, count] = found->second;
  const auto begin = cache.ids.begin() + static_cast<std::ptrdiff_t>(first);
  ids.insert(ids.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
}

void BpeTokenizer::merge_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  struct Link {
    std::int32_t id;    // -1 once merged into the link before it
    std::int32_t next;  // index; links.size() at the end
    std::int32_t previous;
  };
  const auto length = static_cast<std::int32_t>(word.size());
  std::vector<Link> links(word.size());
  for (std::int32_t i = 0; i < length; ++i)
    links[static_cast<std::size_t>(i)] = {byte_ids_[static_cast<unsigned char>(word[static_cast<std::size_t>(i)])],
                                          i + 1, i - 1};
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
  for (std::int32_t i = 0; i < length; i = link(i).next) ids.push_back(link(i).id);
}

void BpeTokenizer::append_bytes(std::int32_t id, std::string& text) const {
  text += vocabulary_.tokens[static_cast<std::size_t>(id)];
}

}  // namespace trireme
