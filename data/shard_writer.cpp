// Writing token shards.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"
#include "core/io.h"
#include "data/shard_layout.h"
#include "data/token_shard.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
namespace layout = shard_layout;

constexpr std::size_t kBlock = 1 << 20;

int width_of(std::int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

/// Calls f(bytes) for the bytes of a file from `first` on, block by block.
template <class F>
void for_each_block(const fs::path& path, std::uint64_t first, const F& f) {
  const InputFile file(path);
  std::vector<std::byte> block;
  for (std::uint64_t at = first; at < file.size(); at += block.size()) {
    block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, file.size() - at)));
    file.read_at(at, block);
    f(std::span<const std::byte>(block));
  }
}

}  // namespace

ShardWriter::ShardWriter(fs::path folder, const Tokenizer& tokenizer, std::int64_t shard_tokens,
                         const ShardPosition& from)
    : folder_(std::move(folder)),
      tokenizer_hash_(tokenizer.hash()),
      vocab_size_(tokenizer.vocab_size()),
      shard_tokens_(shard_tokens),
      position_(from),
      first_part_(from.shards) {
  require(shard_tokens > 0, "ShardWriter", "a shard must hold at least one token, not {}", shard_tokens);
  if (from.tokens > 0) open_shard();
  if (from.tokens > 0 || from.shards > 0) noted_ = from.shards;
}

ShardWriter::~ShardWriter() = default;

fs::path ShardWriter::documents_path(std::int64_t shard) const {
  return folder_ / fmt::format("documents_{:05}.part", shard);
}

/// Opens the files of the shard that is being written, with what position_ says is in them.
void ShardWriter::open_shard() {
  const fs::path path = folder_ / fmt::format("tokens_{:05}{}", position_.shards, shard_extension);
  const auto width = static_cast<std::uint64_t>(width_of(vocab_size_));
  const std::uint64_t bytes =
      position_.tokens == 0 ? 0 : layout::header_bytes + width * static_cast<std::uint64_t>(position_.tokens);
  file_ = std::make_unique<GrowingFile>(path, bytes);
  documents_ = std::make_unique<GrowingFile>(documents_path(position_.shards),
                                             8 * static_cast<std::uint64_t>(position_.documents));
  payload_ = std::make_unique<Hasher>();
  if (bytes == 0) {
    file_->write(std::array<std::byte, layout::header_bytes>{});
  } else {
    for_each_block(path, layout::header_bytes, [&](std::span<const std::byte> block) { payload_->add(block); });
  }
}

void ShardWriter::start_document() { position_.pending = true; }

void ShardWriter::append(std::span<const std::int32_t> ids) {
  while (!ids.empty()) {
    if (position_.tokens == shard_tokens_) close_shard(false);
    if (!file_) open_shard();
    if (position_.pending) {
      const auto here = static_cast<std::uint64_t>(position_.tokens);
      documents_->write(std::as_bytes(std::span(&here, 1)));
      ++position_.documents;
      position_.pending = false;
    }
    const auto room = static_cast<std::size_t>(shard_tokens_ - position_.tokens);
    const auto piece = ids.first(std::min(room, ids.size()));
    write_ids(piece);
    position_.tokens += static_cast<std::int64_t>(piece.size());
    ids = ids.subspan(piece.size());
  }
}

void ShardWriter::write_ids(std::span<const std::int32_t> ids) {
  if (width_of(vocab_size_) == 4) {
    payload_->add(std::as_bytes(ids));
    file_->write(std::as_bytes(ids));
    return;
  }
  std::array<std::uint16_t, 4096> narrow;
  while (!ids.empty()) {
    const auto piece = ids.first(std::min(ids.size(), narrow.size()));
    std::transform(piece.begin(), piece.end(), narrow.begin(),
                   [](std::int32_t id) { return static_cast<std::uint16_t>(id); });
    const auto bytes = std::as_bytes(std::span(narrow).first(piece.size()));
    payload_->add(bytes);
    file_->write(bytes);
    ids = ids.subspan(piece.size());
  }
}

ShardPosition ShardWriter::sync() {
  if (file_) {
    file_->sync();
    documents_->sync();
    sync_folder(folder_);
  }
  // The caller notes the position after this call; what its last note needs must stay until then.
  if (noted_) remove_parts(*noted_);
  noted_ = position_.shards;
  return position_;
}

void ShardWriter::remove_parts(std::int64_t end) {
  for (; first_part_ < end; ++first_part_) remove_file(documents_path(first_part_));
}

void ShardWriter::remove_parts() { remove_parts(position_.shards); }

void ShardWriter::finish() {
  require(!finished_, "ShardWriter", "finish() was called twice");
  finished_ = true;
  position_.pending = false;  // a document without a token
  if (position_.tokens > 0) close_shard(true);
  if (!noted_) remove_parts();
}

void ShardWriter::close_shard(bool last) {
  const auto tokens = static_cast<std::uint64_t>(position_.tokens);
  const auto width = static_cast<std::uint64_t>(width_of(vocab_size_));
  const std::array<std::byte, 8> zeros{};
  const auto padding = std::span(zeros).first(layout::documents_begin(tokens, width) - file_->size());
  payload_->add(padding);
  file_->write(padding);
  documents_->sync();
  for_each_block(documents_->path(), 0, [&](std::span<const std::byte> block) {
    payload_->add(block);
    file_->write(block);
  });

  std::array<std::byte, layout::header_bytes> header{};
  const auto put = [&](std::size_t at, auto value) { std::memcpy(header.data() + at, &value, sizeof value); };
  std::memcpy(header.data(), layout::magic.data(), layout::magic.size());
  put(layout::version_at, layout::version);
  put(layout::width_at, static_cast<std::uint32_t>(width));
  put(layout::tokens_at, tokens);
  put(layout::documents_at, static_cast<std::uint64_t>(position_.documents));
  put(layout::first_token_at, static_cast<std::uint64_t>(position_.first_token));
  put(layout::tokenizer_at, tokenizer_hash_);
  put(layout::vocab_at, static_cast<std::uint64_t>(vocab_size_));
  put(layout::last_at, std::uint64_t{last ? 1U : 0U});
  put(layout::payload_hash_at, payload_->value());
  put(layout::header_hash_at, hash_bytes(std::span<const std::byte>(header).first(layout::header_hash_at)));
  file_->sync();  // a header on disk means that everything else is there, too
  file_->rewrite(0, header);
  file_->sync();
  sync_folder(folder_);

  file_.reset();
  documents_.reset();
  ++position_.shards;
  position_.first_token += position_.tokens;
  position_.tokens = position_.documents = 0;
}

}  // namespace trireme
