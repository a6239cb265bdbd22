// Tables as text, by RFC 4180: records of fields, with a separator between two fields and a line end (LF or CRLF) after
// a record. A field that begins with a quote ends with one; between them, separators and line ends are text, and two
// quotes are one. Stricter than most programs: a quote elsewhere, text behind a closing quote and a lone CR are
// refused, because readers disagree about what they mean.
//
// It is not a library's parser. Those that Debian has (libcsv, fast-cpp-csv-parser) read files, not spans, fix the
// number of columns when they are compiled, or accept what is refused here.
// Read next: data/prepare/records.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The most fields of a record: a record of separators alone would take 32 times its size in memory.
inline constexpr std::size_t csv_most_fields = 10'000;

/// The records of a text, one after the other.
class CsvReader {
 public:
  /// `text` begins with a record, on line `line` of `file`. It must outlive this object.
  CsvReader(std::string_view text, char separator, std::string_view file, std::int64_t line = 1)
      : text_(text), separator_(separator), file_(file), line_(line), record_line_(line) {}

  /// Puts the fields of the next record into `fields`; false at the end. Throws ExitCode::data, with file and line, for
  /// what is not a record.
  bool next(std::vector<std::string>& fields);
  std::int64_t line() const { return record_line_; }  ///< where the last record began

 private:
  void quoted(std::string& field);
  void plain(std::string& field);
  [[noreturn]] void refuse(std::string_view what) const;

  std::string_view text_;
  char separator_;
  std::string_view file_;
  std::int64_t line_, record_line_;
  std::size_t at_ = 0;
};

/// Finds where records end, in text that arrives in pieces.
class CsvCutter {
 public:
  /// Reads on to the end of `text`, of which the last call has seen `seen` bytes: returns the end of the last record
  /// that ends at or before `most`, or, if there is none, of the first that ends after it; 0: none ends in `text`.
  std::size_t cut(std::string_view text, std::size_t most);
  void restart() { seen_ = best_ = 0, quoted_ = false; }  ///< the next text begins with a record

 private:
  std::size_t seen_ = 0, best_ = 0;
  bool quoted_ = false;
};

}  // namespace trireme
