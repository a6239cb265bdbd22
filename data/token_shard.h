// Token shards: a tokenized corpus on disk, cut into files that are mapped, not read.
//
// A shard file, little-endian:
//
//   offset  bytes  field
//        0      8  magic "TRIMTOKS"
//        8      4  version, 2
//       12      4  bytes per token: 2 (u16) or 4 (i32)
//       16      8  tokens in this shard, n > 0
//       24      8  documents that start in this shard, d
//       32      8  index of the shard's first token in the whole corpus
//       40      8  hash of the tokenizer (Tokenizer::hash)
//       48      8  vocabulary size
//       56      8  1 in the last shard of the corpus, else 0: so that a missing end is noticed
//       64      8  hash of everything after the header (hash_bytes)
//       72      8  hash of the 72 bytes above
//       80         n tokens, zeros up to a multiple of 8, then d document starts (u64, increasing, within the shard)
//
// Nothing follows. A set of shards is a folder: tokens_00000.tokens, tokens_00001.tokens, ... and tokenizer.json.
// Read next: data/corpus.h.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/hash.h"
#include "core/io_growing.h"
#include "data/mapped_file.h"
#include "data/tokenizer.h"
#include "data/tokens.h"

namespace trireme {

inline constexpr std::string_view shard_extension = ".tokens";
inline constexpr std::string_view shard_tokenizer_name = "tokenizer.json";

/// What a shard says about itself.
struct ShardHeader {
  std::int32_t bytes_per_token = 2;
  std::int64_t tokens = 0, documents = 0, first_token = 0;
  std::uint64_t tokenizer_hash = 0;
  std::int64_t vocab_size = 0;
  bool last = false;  ///< the corpus ends with this shard
};

/// Checks the content of `path`, every byte of it. Throws ExitCode::data with file, byte offset, expected and found for
/// what is cut short, too long, damaged, of another kind or version, or holds a token outside its vocabulary.
ShardHeader parse_token_shard(std::span<const std::byte> content, const std::filesystem::path& path);

/// One shard, mapped and checked.
class TokenShard : public TokenSource {
 public:
  /// Reads every byte once; throws as parse_token_shard().
  explicit TokenShard(const std::filesystem::path& path);

  const ShardHeader& header() const { return header_; }
  const std::filesystem::path& path() const { return file_.path(); }
  std::int64_t count() const override { return header_.tokens; }
  void read(std::int64_t first, std::span<std::int32_t> out) const override;
  /// Where documents start, in tokens from the beginning of the shard, increasing.
  std::vector<std::int64_t> document_starts() const;

 private:
  MappedFile file_;
  ShardHeader header_;
};

/// How far a ShardWriter has come: what a later start needs to go on.
struct ShardPosition {
  std::int64_t shards = 0;       ///< complete ones
  std::int64_t first_token = 0;  ///< of the shard that is being written, in the whole corpus
  std::int64_t tokens = 0;       ///< written of it
  std::int64_t documents = 0;    ///< that start among these
  bool pending = false;          ///< the next token is the first of a document
};

/// Writes a set of shards into `folder`, which exists: cuts the stream into files of `shard_tokens` tokens. Memory does
/// not depend on their size: tokens go to the file, whose header is written when it is complete. Until then the file is
/// no valid shard, and documents_NNNNN.part beside it holds the starts of its documents.
class ShardWriter {
 public:
  /// Begins a new set, or goes on at a position that sync() has returned. Throws ExitCode::data if files are shorter
  /// than that, ExitCode::io.
  ShardWriter(std::filesystem::path folder, const Tokenizer& tokenizer, std::int64_t shard_tokens,
              const ShardPosition& from = {});
  ~ShardWriter();
  void start_document();  ///< the next token is the first of a document
  /// Adds tokens to the end.
  void append(std::span<const std::int32_t> ids);
  /// Brings everything to disk. A writer that is made with the result goes on here, even if this process is killed.
  ShardPosition sync();
  void finish();  ///< completes the last, shorter shard; required
  /// After finish(): removes what sync() needed, so that no later start can go on. Without sync(), finish() does it.
  void remove_parts();

  std::int64_t tokens() const { return position_.first_token + position_.tokens; }
  int shards() const { return static_cast<int>(position_.shards); }

 private:
  void open_shard();
  void close_shard(bool last);
  void remove_parts(std::int64_t end);
  void write_ids(std::span<const std::int32_t> ids);
  std::filesystem::path documents_path(std::int64_t shard) const;

  std::filesystem::path folder_;
  std::uint64_t tokenizer_hash_;
  std::int64_t vocab_size_, shard_tokens_;
  ShardPosition position_;
  std::int64_t first_part_;            // the first documents_NNNNN.part that is there
  std::optional<std::int64_t> noted_;  // shards at the last sync(): from there on parts are needed
  bool finished_ = false;
  std::unique_ptr<GrowingFile> file_, documents_;  // of the shard that is being written; null: none yet
  std::unique_ptr<Hasher> payload_;                // of the tokens so far
};

/// Whether `--data PATH` means token shards: a file that is a shard by name or content, or a folder with a file of that
/// extension.
bool is_shard_set(const std::filesystem::path& path);

/// The shards of a folder as one source.
struct ShardSet {
  std::shared_ptr<const TokenSource> tokens;
  std::shared_ptr<const Tokenizer> tokenizer;
};

/// All shards of a folder in order of name, or one shard file, with tokenizer.json from the same folder. Throws
/// ExitCode::data when one is missing or they do not belong together.
ShardSet open_shards(const std::filesystem::path& path);

}  // namespace trireme
