// What a file of a data folder is, by its first bytes: text, or something that nobody wants to train on.
//
// Runs, checkpoints, jobs of prepare_data, models, pictures, profiles and logs of these programs are text as well. A
// run may be kept below the folder that it reads, so that what it writes must not become its data. Read next:
// data/text_files.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace trireme {

/// `own`: this program wrote it. `own_folder`: also everything that is in its folder, and below.
enum class FileKind : std::uint8_t { text, empty, binary, lfs_pointer, shard_tokenizer, own, own_folder };

/// With which some editors begin a file in UTF-8. It is no part of the text.
inline constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

/// What a text file holds. NAME.jsonl and NAME.ndjson hold a JSON object on each line. NAME.csv and NAME.tsv hold a
/// table whose first row names the columns. Any other file is one text. The case of the ending does not matter. A
/// further ending .gz or .zst is passed over.
enum class TextFormat : std::uint8_t { text, jsonl, csv, tsv };
inline constexpr std::array<std::string_view, 4> text_format_names = {"text", "jsonl", "csv", "tsv"};
/// As --format has it.
inline std::string_view name_of(TextFormat format) { return text_format_names[static_cast<std::size_t>(format)]; }
/// The format by the name of the file. JSON lines are often named NAME.json, so for that name it also looks at the
/// beginning, `head`: first_bytes(), or empty to decide by the name alone. Throws ExitCode::data if NAME.json is one
/// array of objects.
TextFormat format_of(const std::filesystem::path& path, std::string_view head);

/// The ending of a name, ".csv", in small letters.
std::string ending_of(const std::filesystem::path& path);

/// The text of a file, without a byte-order mark.
constexpr std::string_view without_mark(std::string_view file) {
  return file.substr(file.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
}

inline constexpr std::size_t sniffed_bytes = std::size_t{1} << 16;

/// The first `sniffed_bytes` of a file. Throws as InputFile does.
std::string first_bytes(const std::filesystem::path& path);

/// `head`: first_bytes(). A file that is the standard output or error of this process is `own`, too.
FileKind kind_of(const std::filesystem::path& path, std::string_view head);

/// Throws ExitCode::data if `head`, the first bytes of `name`, shows that this is no text: by a zero byte, the mark of
/// another format or encoding, or a pointer of Git LFS. All that is read as text is checked here or by kind_of(): files,
/// what is decompressed, and standard input.
void require_text(std::string_view head, const std::string& name);

}  // namespace trireme
