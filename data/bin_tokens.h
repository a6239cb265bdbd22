// Tokens in the files of other programs: nanoGPT's and llm.c's, both to read and to write.
//
// nanoGPT: train.bin and val.bin are ids of 2 bytes, and nothing else (its data/*/prepare.py). llm.c: *.bin begins with
// 256 numbers of 4 bytes: 20240520, version 1, how many ids follow, zeros; then ids of 2 bytes (its dev/data). Both are
// little-endian. A file ending in .bin that begins with llm.c's number is one of llm.c, another is one of nanoGPT.
//
// Files with wider ids, or of another order of bytes, texts and llm.c's other files are refused where they can be known:
// read as ids of 2 bytes, they would be learned without a sign of it.
//
// Neither holds its tokenizer. We write tokenizer.json beside them, and look for it there.
// Read next: data/token_shard.h (our format, which has checksums), data/corpus.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "data/tokens.h"

namespace trireme {

inline constexpr std::string_view bin_extension = ".bin";

/// How tokens are stored.
enum class TokenFormat : std::uint8_t { none, trireme, nanogpt, llmc };

/// What `path`, a file or a folder, holds; none: no tokens, but perhaps text. A folder is one of other programs' files
/// if it has a file ending in .bin that is named train.bin or val.bin, or that is one of llm.c, and no shard of ours.
TokenFormat token_format(const std::filesystem::path& path);

/// The number of tokens in a file of llm.c. Throws ExitCode::data, with file, byte offset, expected and found, for
/// another version, another size than the header says, and no tokens.
std::int64_t parse_llmc_header(std::span<const std::byte> content, const std::filesystem::path& path);
/// The same for a file of nanoGPT. Throws for an odd number of bytes, no tokens, llm.c's other files, a text, and ids
/// of 4 or 8 bytes that all are below 65536.
std::int64_t parse_nanogpt(std::span<const std::byte> content, const std::filesystem::path& path);

/// The tokens of a file, or of all files of a folder: those named val* or *_val_* are for validation.
struct BinTokens {
  std::shared_ptr<const TokenSource> train, validation;  ///< validation: null if there are no such files
};

/// Maps and checks the files of `path`, whose token_format() is nanogpt or llmc. Throws ExitCode::data for an id that
/// is not below `vocab_size`, with file and index, and as the functions above do; ExitCode::usage if `vocab_size` is
/// larger than 65536: their ids have 2 bytes.
BinTokens open_bins(const std::filesystem::path& path, std::int64_t vocab_size);

/// Writes tokens into `folder` as NAME.bin (nanoGPT), or NAME_000000.bin and so on with at most `file_tokens` each
/// (llm.c); `name` is "train" or "val". Returns the number of files. Throws ExitCode::usage if `vocab_size` is larger
/// than 65536: their ids have 2 bytes.
int write_bins(const TokenRange& tokens, TokenFormat format, const std::filesystem::path& folder, std::string_view name,
               std::int64_t vocab_size, std::int64_t file_tokens);

/// Several sources, one after the other; at least one.
std::shared_ptr<const TokenSource> joined(std::vector<std::shared_ptr<const TokenSource>> sources);

}  // namespace trireme
