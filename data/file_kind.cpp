#include "data/file_kind.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io.h"
#include "data/stand_in.h"
#include "data/token_shard.h"
#include "data/tokenizer.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

/// How a file of these programs begins, and what else stands in its first bytes.
struct Sign {
  std::string_view begin, also;
  FileKind kind = FileKind::own;
};

constexpr std::array signs = {
    Sign{"{\n  \"", "\n  \"micro-batch\": ", FileKind::own_folder},                      // config.json of a run
    Sign{"{\"checksum\":\"", "\"format\":\"trireme checkpoint ", FileKind::own_folder},  // manifest.json
    Sign{"{\n \"", "\n \"format\": \"trireme prepare_data ", FileKind::own_folder},      // progress.json
    Sign{"{\n  \"", "\n  \"architectures\": [", FileKind::own_folder},                   // config.json of a model
    Sign{"{\"step\":", ",\"loss\":"},                                                    // metrics.jsonl
    Sign{"{\"step\":", ",\"val_loss\":"},                                                // best.json
    Sign{"# the files of --data: hash, bytes, name\n", ""},                              // data.txt
    Sign{"step_0000", " "},                                                              // resuming
    Sign{"{\"when\":\"", "\"restart\":"},                                                // incidents.jsonl
    Sign{"{\"displayTimeUnit\": \"ms\", \"otherData\": {", "\"sequence-parallel\":"},    // --profile
    Sign{"<!doctype html>\n<!-- drawn by trireme view -->\n", ""},                       // a page of view
    Sign{"<svg xmlns=", "aria-labelledby=\"title description\" font-family=\"Helvetica, Arial, sans-serif\""},  // --svg
    Sign{"trireme: FATAL[", ""},                       // flight_recorder.txt, a log
    Sign{"device           ", "\nprecision        "},  // a log of train_gpt
    Sign{"{\"event\":\"run_planned\"", ""},            // the same with --json
};

/// A log that the shell writes for this process grows while it is read.
bool is_standard_output(const fs::path& path) {
  struct stat file {};
  struct stat stream {};
  if (::stat(path.c_str(), &file) != 0) return false;
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO})
    if (::fstat(descriptor, &stream) == 0 && stream.st_dev == file.st_dev && stream.st_ino == file.st_ino) return true;
  return false;
}

/// What stands at byte `at` of a format's files.
struct BinaryFormat {
  std::string_view mark, text;
  std::size_t at = 0;
};

using std::string_view_literals::operator""sv;
constexpr std::string_view utf16 = "UTF-16; convert it: iconv -f UTF-16 -t UTF-8";
constexpr std::string_view utf32 = "UTF-32; convert it: iconv -f UTF-32 -t UTF-8";
constexpr std::array binary_formats = {
    BinaryFormat{"\x1F\x8B", "compressed by gzip; decompress it (zcat), or give prepare_data a file NAME.gz"},
    BinaryFormat{"\x28\xB5\x2F\xFD",
                 "compressed by zstd; decompress it (zstdcat), or give prepare_data a file NAME.zst"},
    BinaryFormat{"\xFD\x37zXZ", "compressed by xz; decompress it: xzcat"},
    BinaryFormat{"1AY&SY", "compressed by bzip2; decompress it: bzcat", 4},
    BinaryFormat{"7z\xBC\xAF", "a 7-Zip archive; unpack it"},
    BinaryFormat{"PK\x03\x04", "a zip archive; unpack it"},
    BinaryFormat{"ustar", "a tar archive; unpack it", 257},
    BinaryFormat{"\x93NUMPY", "an array of NumPy; give the text that it was made of, or name a file of ids .bin"},
    BinaryFormat{"%PDF-", "a PDF; extract its text: pdftotext"},
    BinaryFormat{"\xFF\xFE\0\0"sv, utf32},  // before UTF-16, whose mark is a part of this one
    BinaryFormat{"\0\0\xFE\xFF"sv, utf32},
    BinaryFormat{"\xFF\xFE", utf16},
    BinaryFormat{"\xFE\xFF", utf16},
};

/// What a binary file is, and what to do with it, for messages. Nothing: it looks like a text.
std::optional<std::string> binary_in(std::string_view head) {
  for (const BinaryFormat& format : binary_formats)
    if (head.substr(std::min(format.at, head.size())).starts_with(format.mark)) return std::string(format.text);
  const std::size_t zero = head.find('\0');
  if (zero == std::string_view::npos) return std::nullopt;
  return fmt::format("byte {} is zero; give a text; token ids of other programs have names that end in .bin", zero);
}

}  // namespace

std::string ending_of(const fs::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return ending;
}

TextFormat format_of(const fs::path& path, std::string_view head) {
  const std::string last = ending_of(path);
  const bool packed = last == ".gz" || last == ".zst";
  const std::string ending = packed ? ending_of(path.stem()) : last;
  if (ending == ".jsonl" || ending == ".ndjson") return TextFormat::jsonl;
  if (ending == ".csv") return TextFormat::csv;
  if (ending == ".tsv") return TextFormat::tsv;
  if (ending != ".json") return TextFormat::text;
  head = without_mark(head);
  constexpr std::string_view blanks = " \t\r\n";
  const auto next = [&](std::size_t from) { return std::min(head.find_first_not_of(blanks, from), head.size()); };
  const std::size_t begin = next(0), line_end = std::min(head.find('\n', begin), head.size());
  if (head.substr(begin).starts_with('[') && head.substr(next(begin + 1)).starts_with('{'))
    fail(ExitCode::data, "data",
         "{0} is one JSON array, whose braces and names would be learned as text; expected JSON lines: {1} {0} | jq -c "
         "'.[]' > NAME.jsonl; prepare_data --format text takes it as it is",
         path.string(),
         !packed         ? "cat"
         : last == ".gz" ? "zcat"
                         : "zstdcat");
  const std::string_view line = head.substr(begin, line_end - begin);
  const bool whole = line.starts_with('{') && nlohmann::json::accept(line);
  return whole && head.substr(next(line_end)).starts_with('{') ? TextFormat::jsonl : TextFormat::text;
}

void require_text(std::string_view head, const std::string& name) {
  refuse_lfs_pointer(head, name);
  if (const auto binary = binary_in(head))
    fail(ExitCode::data, "data", "{} is no text, but {}; expected a text, a folder of texts or tokens", name, *binary);
}

std::string first_bytes(const fs::path& path) {
  const InputFile file(path);
  // The word that marks our tokenizers may stand behind a large vocabulary.
  const std::uint64_t most = path.filename() == shard_tokenizer_name ? read_limits::tokenizer.bytes : sniffed_bytes;
  std::string head(std::min(file.size(), most), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(head)));
  return head;
}

FileKind kind_of(const fs::path& path, std::string_view head) {
  if (is_standard_output(path)) return FileKind::own;
  if (head.empty()) return FileKind::empty;
  if (binary_in(head)) return FileKind::binary;
  if (is_lfs_pointer(head)) return FileKind::lfs_pointer;
  if (path.filename() == shard_tokenizer_name &&
      head.find(fmt::format("\"format\": \"{}\"", tokenizer_format)) != std::string_view::npos)
    return FileKind::shard_tokenizer;  // as Tokenizer::to_json() writes it
  for (const Sign& sign : signs)
    if (head.starts_with(sign.begin) && head.find(sign.also) != std::string_view::npos) return sign.kind;
  return FileKind::text;
}

}  // namespace trireme
