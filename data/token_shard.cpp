// Reading one shard: every field is checked before it is used.
#include "data/token_shard.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"
#include "data/shard_layout.h"
#include "data/stand_in.h"

namespace trireme {

static_assert(std::endian::native == std::endian::little, "shards are stored and mapped little-endian");

namespace {

namespace layout = shard_layout;

/// The checks of one file; each failure names the file and the byte offset of what is wrong.
class Checker {
 public:
  Checker(std::span<const std::byte> content, const std::filesystem::path& path) : content_(content), path_(path) {}

  ShardHeader header() const {
    refuse_stand_in({reinterpret_cast<const char*>(content_.data()), content_.size()}, path_);
    expect(content_.size() >= layout::header_bytes, content_.size(), "the file ends inside the header",
           fmt::format("{} bytes of header", layout::header_bytes), fmt::format("{} bytes", content_.size()));
    const bool marked = std::memcmp(content_.data(), layout::magic.data(), layout::magic.size()) == 0;
    expect(marked, 0, "not a token shard", "the mark " + std::string(layout::magic), "another mark");
    const auto version = field<std::uint32_t>(layout::version_at);
    expect(version == layout::version, layout::version_at, "unknown version", layout::version, version);
    const auto stored = field<std::uint64_t>(layout::header_hash_at);
    const auto actual = hash_bytes(content_.first(layout::header_hash_at));
    expect(stored == actual, layout::header_hash_at, "the header is damaged: its hash does not fit", hex(stored),
           hex(actual));
    return checked_fields();
  }

  void payload(const ShardHeader& header) const {
    const auto stored = field<std::uint64_t>(layout::payload_hash_at);
    const auto actual = hash_bytes(content_.subspan(layout::header_bytes));
    expect(stored == actual, layout::header_bytes, "the tokens are damaged: their hash does not fit", hex(stored),
           hex(actual));
    if (header.bytes_per_token == 2) {
      tokens<std::uint16_t>(header);
    } else {
      tokens<std::int32_t>(header);
    }
    documents(header);
  }

 private:
  template <class T>
  T field(std::size_t at) const {
    T value;
    std::memcpy(&value, content_.data() + at, sizeof value);
    return value;
  }

  static std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

  template <class Expected, class Found>
  void expect(bool holds, std::size_t at, std::string_view what, const Expected& expected, const Found& found) const {
    if (!holds)
      fail(ExitCode::data, "token shard",
           "{} byte {}: {}; expected {}, found {}; make the shards again with prepare_data", path_.string(), at, what,
           expected, found);
  }

  /// The header's numbers, and that they add up to the file's size without overflow.
  ShardHeader checked_fields() const {
    ShardHeader header;
    const auto width = field<std::uint32_t>(layout::width_at);
    expect(width == 2 || width == 4, layout::width_at, "unknown token type", "2 or 4 bytes per token", width);
    const auto tokens = field<std::uint64_t>(layout::tokens_at), documents = field<std::uint64_t>(layout::documents_at);
    const std::uint64_t body = content_.size() - layout::header_bytes;
    expect(tokens > 0, layout::tokens_at, "the shard is empty", "at least one token", tokens);
    // Bounded by the file's size first: nothing below can overflow.
    expect(tokens <= body / width, layout::tokens_at, "more tokens than the file holds",
           fmt::format("at most {} in {} bytes", body / width, content_.size()), tokens);
    expect(documents <= body / 8, layout::documents_at, "more documents than the file holds",
           fmt::format("at most {}", body / 8), documents);
    const std::uint64_t size = layout::documents_begin(tokens, width) + 8 * documents;
    expect(size == content_.size(), std::min<std::uint64_t>(size, content_.size()), "the file has the wrong size",
           fmt::format("{} bytes", size), fmt::format("{} bytes", content_.size()));
    const auto first = field<std::uint64_t>(layout::first_token_at), vocab = field<std::uint64_t>(layout::vocab_at);
    constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
    expect(first <= kMost, layout::first_token_at, "impossible position", fmt::format("at most {}", kMost), first);
    const auto last = field<std::uint64_t>(layout::last_at);
    expect(last <= 1, layout::last_at, "unknown mark of the last shard", "0 or 1", last);
    expect(vocab > 0 && vocab <= 0x7FFFFFFF, layout::vocab_at, "impossible vocabulary size", "1 to 2147483647", vocab);
    header.bytes_per_token = static_cast<std::int32_t>(width);
    header.tokens = static_cast<std::int64_t>(tokens);
    header.documents = static_cast<std::int64_t>(documents);
    header.first_token = static_cast<std::int64_t>(first);
    header.vocab_size = static_cast<std::int64_t>(vocab);
    header.last = last == 1;
    header.tokenizer_hash = field<std::uint64_t>(layout::tokenizer_at);
    return header;
  }

  template <class T>
  void tokens(const ShardHeader& header) const {
    for (std::int64_t i = 0; i < header.tokens; ++i) {
      const std::size_t at = layout::header_bytes + static_cast<std::size_t>(i) * sizeof(T);
      const T id = field<T>(at);
      if (id < 0 || id >= header.vocab_size) [[unlikely]]
        fail(ExitCode::data, "token shard",
             "{} byte {}: token {} is {}; expected 0 to {}; make the shards again with prepare_data", path_.string(),
             at, i, id, header.vocab_size - 1);
    }
    const std::size_t end = layout::header_bytes + static_cast<std::size_t>(header.tokens) * sizeof(T);
    for (std::size_t at = end; at % 8 != 0; ++at)
      expect(content_[at] == std::byte{0}, at, "padding that is not zero", 0, std::to_integer<int>(content_[at]));
  }

  void documents(const ShardHeader& header) const {
    std::size_t at = layout::documents_begin(static_cast<std::uint64_t>(header.tokens),
                                             static_cast<std::uint64_t>(header.bytes_per_token));
    std::uint64_t least = 0;
    for (std::int64_t i = 0; i < header.documents; ++i, at += 8) {
      const auto start = field<std::uint64_t>(at);
      if (start < least || start >= static_cast<std::uint64_t>(header.tokens)) [[unlikely]]
        expect(false, at, "a document start is out of order", fmt::format("{} to {}", least, header.tokens - 1), start);
      least = start + 1;
    }
  }

  std::span<const std::byte> content_;
  const std::filesystem::path& path_;
};

}  // namespace

ShardHeader parse_token_shard(std::span<const std::byte> content, const std::filesystem::path& path) {
  const Checker checker(content, path);
  const ShardHeader header = checker.header();
  checker.payload(header);
  return header;
}

TokenShard::TokenShard(const std::filesystem::path& path)
    : file_(path), header_(parse_token_shard(file_.bytes(), path)) {
  file_.require_whole();
}

void TokenShard::read(std::int64_t first, std::span<std::int32_t> out) const {
  require(first >= 0 && first <= count() - static_cast<std::int64_t>(out.size()), "token shard",
          "asked for {} tokens from {} on; there are {}", out.size(), first, count());
  const std::byte* begin = file_.bytes().data() + layout::header_bytes;
  if (header_.bytes_per_token == 2) {
    std::copy_n(reinterpret_cast<const std::uint16_t*>(begin) + first, out.size(), out.begin());
  } else {
    std::copy_n(reinterpret_cast<const std::int32_t*>(begin) + first, out.size(), out.begin());
  }
  file_.require_whole();
}

std::vector<std::int64_t> TokenShard::document_starts() const {
  const std::size_t at = layout::documents_begin(static_cast<std::uint64_t>(header_.tokens),
                                                 static_cast<std::uint64_t>(header_.bytes_per_token));
  const auto* begin = reinterpret_cast<const std::uint64_t*>(file_.bytes().data() + at);
  std::vector<std::int64_t> starts(static_cast<std::size_t>(header_.documents));
  std::transform(begin, begin + starts.size(), starts.begin(),
                 [](std::uint64_t s) { return static_cast<std::int64_t>(s); });
  return starts;
}

}  // namespace trireme
