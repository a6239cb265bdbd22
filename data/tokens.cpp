// Ranges of token ids and the in-memory source.
#include "data/tokens.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/hash.h"

namespace trireme {

namespace {

void check_piece(std::int64_t first, std::int64_t count, std::int64_t total) {
  require(first >= 0 && count >= 0 && first <= total - count, "tokens", "asked for {} tokens from {} on; there are {}",
          count, first, total);
}

class BufferSource : public TokenSource {
 public:
  explicit BufferSource(TokenBuffer tokens) : tokens_(std::move(tokens)) {}
  std::int64_t count() const override { return tokens_.count(); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override { tokens_.read(first, out); }

 private:
  TokenBuffer tokens_;
};

}  // namespace

TokenRange::TokenRange(std::shared_ptr<const TokenSource> source)
    : source_(std::move(source)), count_(source_ ? source_->count() : 0) {}

TokenRange TokenRange::part(std::int64_t first, std::int64_t count) const {
  check_piece(first, count, count_);
  TokenRange result = *this;
  result.first_ += first;
  result.count_ = count;
  return result;
}

void TokenRange::read(std::int64_t first, std::span<std::int32_t> out) const {
  check_piece(first, static_cast<std::int64_t>(out.size()), count_);
  if (!out.empty()) source_->read(first_ + first, out);
}

void TokenBuffer::append(std::span<const std::int32_t> ids) {
  if (!narrow_) {
    large_.insert(large_.end(), ids.begin(), ids.end());
    return;
  }
  const std::size_t before = small_.size();
  small_.resize(before + ids.size());
  std::transform(ids.begin(), ids.end(), small_.begin() + static_cast<std::ptrdiff_t>(before),
                 [](std::int32_t id) { return static_cast<std::uint16_t>(id); });
}

std::span<const std::byte> TokenBuffer::bytes() const {
  return narrow_ ? std::as_bytes(std::span(small_)) : std::as_bytes(std::span(large_));
}

void TokenBuffer::read(std::int64_t first, std::span<std::int32_t> out) const {
  check_piece(first, static_cast<std::int64_t>(out.size()), count());
  if (narrow_) {
    std::copy_n(small_.begin() + first, out.size(), out.begin());
  } else {
    std::copy_n(large_.begin() + first, out.size(), out.begin());
  }
}

std::shared_ptr<const TokenSource> in_memory(TokenBuffer tokens) {
  return std::make_shared<BufferSource>(std::move(tokens));
}

std::uint64_t hash_tokens(const TokenSource& tokens) {
  constexpr std::int64_t kBlock = 1 << 16;
  std::vector<std::int32_t> block;
  Hasher hasher;
  for (std::int64_t first = 0; first < tokens.count(); first += kBlock) {
    block.resize(static_cast<std::size_t>(std::min(kBlock, tokens.count() - first)));
    tokens.read(first, block);
    hasher.add(std::as_bytes(std::span(block)));
  }
  return hasher.value();
}

}  // namespace trireme
