// Manifest: what a checkpoint holds and where. manifest.json is written last, so a folder that has one is complete.
//
//   step_00001000/
//     manifest.json              this
//     rank_00000.safetensors     what rank 0 wrote: pieces of tensors under their global names
//     rank_00001.safetensors     ...
//
// A tensor is a dtype, a global shape and the pieces that make it up: rectangles, each at an offset in one file. The
// files are described by size and by a checksum (XXH3, 64 bits) per chunk of 1 MiB, so that a reader of a part verifies
// only that part. The manifest's text begins with a checksum of the rest of itself.
// Read next: parallel/checkpoint/manifest_parse.cpp (its checks), parallel/checkpoint/checkpoint.h (reading),
// parallel/checkpoint/saver.h (writing).
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace trireme::checkpoint {

inline constexpr std::uint64_t chunk_bytes = 1 << 20;
inline constexpr const char* manifest_name = "manifest.json";
/// The largest manifest text that is read or written: enough for 2^26 chunks, that is, 64 TiB.
inline constexpr std::uint64_t manifest_most_bytes = 1 << 30;

/// A file of a checkpoint, with its checksums.
struct StoredFile {
  std::string name;                   ///< in the checkpoint's folder
  std::uint64_t bytes = 0;            ///< of the whole file
  std::vector<std::uint64_t> chunks;  ///< checksums of its chunks of chunk_bytes; the last may be shorter
};

/// A dense row-major rectangle of a tensor.
struct Piece {
  std::size_t file = 0;      ///< in Manifest::files
  std::uint64_t offset = 0;  ///< bytes, in that file
  Shape start, shape;        ///< in the whole tensor
};

/// A tensor of a checkpoint, and the pieces that it consists of.
struct StoredTensor {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<Piece> pieces;
};

struct Manifest {
  std::int64_t step = 0;
  int ranks = 0;
  std::string mesh;                        ///< "dp=2,tp=2,pp=1": of the writer; readers do not need it
  std::map<std::string, std::string> run;  ///< texts of the layers above: model, progress, configuration, ...
  std::vector<StoredFile> files;
  std::map<std::string, StoredTensor, std::less<>> tensors;
  std::uint64_t checksum = 0;  ///< of the text it was parsed from; covers all stored data through the chunks' checksums

  std::uint64_t bytes() const;  ///< of all files
};

/// How a manifest's text begins, for its writer and its reader: {"checksum":"0123456789abcdef", then the rest of the
/// text, which has this checksum.
namespace manifest_text {

inline constexpr std::string_view format_name = "trireme checkpoint 1";
inline constexpr std::string_view before_checksum = "{\"checksum\":\"", after_checksum = "\",\n";
inline constexpr std::size_t digits = 16;                                                     // of a checksum
inline constexpr std::size_t body = before_checksum.size() + digits + after_checksum.size();  // where the rest begins

inline std::string hexadecimal(std::uint64_t value) { return fmt::format("{:016x}", value); }  ///< 16 digits

}  // namespace manifest_text

/// Adds the files and pieces of `part`, which another rank wrote.
void merge(Manifest& whole, const Manifest& part);

/// As JSON, with a checksum.
std::string to_text(const Manifest& manifest);
/// Parses and checks the content of `path`: its checksum, plain file names, sizes, that the pieces of each tensor cover
/// it exactly once, and that those in each file cover what follows its header exactly once. Throws ExitCode::data, with
/// the byte at fault.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);

/// As parse_manifest(), for the part that one rank describes to another: it need not be complete.
Manifest parse_part(std::string_view text);

/// Says how the pieces fail to cover the tensor; empty if they cover it. Each piece must lie within the tensor.
std::string cover_problem(const StoredTensor& tensor);
/// Says how the pieces fail to cover the files; empty if they cover them. They must follow one another without gaps,
/// from the end of a file's header to the end of the file, as in data/safetensors.h.
std::string files_problem(const Manifest& manifest);
/// Throws ExitCode::data naming `path` unless exactly one piece has each element of each tensor, and each byte of the
/// files after their headers.
void require_complete(const Manifest& manifest, const std::filesystem::path& path);

}  // namespace trireme::checkpoint
