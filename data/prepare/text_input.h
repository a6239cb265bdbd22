// What prepare_data reads: files of documents, and where one is in them.
//
// A file's format follows from its name (data/file_kind.h). A further ending .gz or .zst means that it is compressed.
// "-" is standard input.
// Read next: data/prepare/block_reader.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/file_kind.h"
#include "data/prepare/byte_stream.h"
#include "data/text_files.h"

namespace trireme {

/// The path that stands for standard input.
inline constexpr std::string_view standard_input = "-";

/// A file to read.
struct TextInput {
  std::filesystem::path path;
  TextFormat format = TextFormat::text;
  Compression compression = Compression::none;
  std::uint64_t bytes = 0;    ///< as stored; 0 for standard input
  std::int64_t modified = 0;  ///< when, by the file system's clock; 0 for standard input
  bool is_standard_input() const { return path == standard_input; }
  std::string name() const { return is_standard_input() ? "standard input" : path.string(); }  ///< for messages
};

/// All inputs of a path, in the order of their names.
struct TextInputs {
  std::vector<TextInput> files;
  OmittedFiles left_out = {};  ///< files of a folder, by the rules of data/text_files.h
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const TextInput& file : files) sum += file.bytes;
    return sum;
  }
};

/// Throws ExitCode::data unless the input, whose decompressed text begins with `head`, may be a text: data/file_kind.h.
void require_text(std::string_view head, const TextInput& input);

/// The inputs that `path` names: a file, a folder, or "-". `format`: of all of them; not set: by name. In a folder,
/// files are left out by the rules of data/text_files.h; compressed ones by what is in them.
/// Throws ExitCode::usage if `path` does not exist, ExitCode::data if there is nothing to read.
TextInputs find_text_inputs(const std::filesystem::path& path, std::optional<TextFormat> format);

/// A place between two records, or two parts of a text.
struct InputPosition {
  std::int64_t file = 0;     ///< index into TextInputs::files
  std::uint64_t offset = 0;  ///< bytes of the file's text, after decompression
  std::int64_t line = 1;     ///< the line that begins there, or goes on
  bool inside = false;       ///< of a document
  std::uint64_t hash = 0;    ///< of the text before it, for standard input; otherwise 0
};

}  // namespace trireme
