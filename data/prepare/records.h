// The documents of a block of text: a record of JSON Lines or of a table is one, and a text is one, or part of one.
// Read next: data/prepare/block_reader.h, which makes blocks; data/prepare/csv.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/prepare/text_input.h"

namespace trireme {

/// The longest record of JSON Lines or of a table. In JSON a string has at most 16 MiB.
inline constexpr std::size_t longest_record = std::size_t{64} << 20;

/// The text of one line of JSON Lines: the value of `field` in its object. `file` and `line` are for messages.
/// Throws ExitCode::data, with file and line, if it is not strict JSON (data/json.h), not an object, or has no such
/// text.
std::string text_of_json_line(std::string_view json, std::string_view field, std::string_view file, std::int64_t line);

/// The column of a table that holds the text.
struct CsvColumn {
  std::size_t column = 0, columns = 0;  ///< its index, and how many the table has
};

/// The column named `field` in the table's first record. Throws ExitCode::data if it is not there exactly once.
CsvColumn csv_column(const std::vector<std::string>& names, std::string_view field, std::string_view file);

/// Whole records of one file, or a part of a text.
struct TextBlock {
  std::string bytes;
  TextFormat format = TextFormat::text;
  std::string file;          ///< its name, for messages
  CsvColumn column;          ///< of a table
  InputPosition begin, end;  ///< where it stands
  bool begins = true;        ///< the first byte begins a document
  bool ends = true;          ///< a document ends behind the last byte
  std::uint64_t stored = 0;  ///< bytes of all inputs read so far, as stored: for a progress display
};

/// Calls f(text, line) for each document of the block; for a text, once with all of it. Blank lines of JSON Lines, and
/// of tables with several columns, are left out. Throws ExitCode::data, with file and line.
void for_each_document(const TextBlock& block, std::string_view field,
                       const std::function<void(std::string_view text, std::int64_t line)>& f);

}  // namespace trireme
