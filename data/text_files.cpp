// Finding and reading text files.
#include "data/text_files.h"

#include <algorithm>

#include "core/error.h"
#include "data/parallel_encode.h"
#include "data/token_shard.h"
#include "data/utf8.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSniffBytes = 1 << 16;
constexpr std::string_view kNewline = "\n";

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool is_binary(std::string_view text) { return text.substr(0, kSniffBytes).find('\0') != std::string_view::npos; }

/// Regular files under `folder` that are not hidden, by relative path.
std::vector<fs::path> list_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  fs::path last = folder;  // what an error is about
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    last = at->path();
    if (is_hidden(last)) {
      at.disable_recursion_pending();
      continue;
    }
    std::error_code problem;
    const fs::file_status status = at->status(problem);
    if (status.type() == fs::file_type::not_found)  // listed, and not there
      fail(ExitCode::data, "data",
           "{} is a symbolic link to nothing; expected a text; remove it, or bring its file back", last.string());
    if (!fs::status_known(status))
      fail(ExitCode::io, "data", "cannot look at {}: {}", last.string(), problem.message());
    if (fs::is_regular_file(status)) files.push_back(last);
  }
  if (error) fail(ExitCode::io, "data", "cannot read the folder {}: {}", last.string(), error.message());
  std::sort(files.begin(), files.end());
  return files;
}

/// True for the tokenizer of token shards: it is no text, whatever stands beside it.
bool is_own_tokenizer(const MappedFile& file) {
  const std::string format = fmt::format("\"format\": \"{}\"", tokenizer_format);  // as Tokenizer::to_json() writes it
  return file.path().filename() == shard_tokenizer_name && file.text().find(format) != std::string_view::npos;
}

/// Runs f and adds the file's name to its errors: a tokenizer knows the byte, but not the file.
template <class F>
decltype(auto) naming_file(const fs::path& path, F&& f) {
  try {
    return f();
  } catch (const Error& error) { throw Error(error.code(), "data", path.string() + ": " + error.reason()); }
}

}  // namespace

FoundTexts find_texts(const fs::path& path, std::string_view flag, const std::function<bool(const fs::path&)>& always) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    fail(ExitCode::usage, "data",
         "{} does not exist; expected a text file, a folder of text files or token shards; change {}", path.string(),
         flag);
  if (error) fail(ExitCode::io, "data", "cannot read {}: {}", path.string(), error.message());
  const bool folder = fs::is_directory(status);
  const fs::path beside_shards = path / shard_tokenizer_name;
  fs::path tokenizer;  // of token shards that are missing
  FoundTexts found;
  for (const fs::path& file : folder ? list_files(path) : std::vector{path}) {
    const MappedFile mapped(file);
    const bool of_shards = folder && is_own_tokenizer(mapped);
    if (of_shards && (tokenizer.empty() || file == beside_shards)) tokenizer = file;
    const bool binary = is_binary(mapped.text()) && !(always && always(file));
    if (of_shards || (folder && (mapped.size() == 0 || binary))) {
      ++found.skipped;
    } else {
      found.files.push_back(file);
    }
    if (!folder && mapped.size() == 0)
      fail(ExitCode::data, "data", "{} is empty (0 bytes); expected text; change {}", path.string(), flag);
  }
  if (!tokenizer.empty() && (found.files.empty() || tokenizer == beside_shards))
    fail(ExitCode::data, "data",
         "{} belongs to token shards, and there are none beside it (*{}); expected both, as prepare_data leaves them; "
         "bring the shards back, make them again, or change {}",
         tokenizer.string(), shard_extension, flag);
  if (folder && found.files.empty())
    fail(ExitCode::data, "data", "the folder {} holds no text file ({} files were empty or binary); change {}",
         path.string(), found.skipped, flag);
  return found;
}

TextFiles::TextFiles(const fs::path& path, std::string_view flag) : path_(path) {
  const FoundTexts found = find_texts(path, flag);
  for (const fs::path& file : found.files) files_.emplace_back(file);
  skipped_ = found.skipped;
}

std::int64_t TextFiles::bytes() const {
  std::int64_t total = 0;
  for (const MappedFile& file : files_) total += static_cast<std::int64_t>(file.size());
  return total;
}

std::vector<std::string_view> TextFiles::texts() const {
  std::vector<std::string_view> result;
  for (const MappedFile& file : files_) result.push_back(file.text());
  if (files_.size() > 1) result.push_back(kNewline);
  return result;
}

std::shared_ptr<const Tokenizer> TextFiles::make_tokenizer(std::string_view specification) const {
  if (specification == "char") {
    for (const MappedFile& file : files_) {
      const std::size_t valid = valid_utf8_prefix(file.text());
      if (valid < file.size())
        fail(ExitCode::data, "data",
             "{} byte {} of {} (0x{:02X}) is not UTF-8; expected UTF-8 text; convert it or use --tokenizer byte",
             file.path().string(), valid, file.size(), static_cast<unsigned char>(file.text()[valid]));
    }
  }
  return trireme::make_tokenizer(specification, texts());
}

void TextFiles::tokenize(const Tokenizer& tokenizer,
                         const std::function<void(std::span<const std::int32_t>)>& f) const {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    ids.clear();
    naming_file(files_[i].path(), [&] { append_ids_in_parallel(tokenizer, files_[i].text(), ids); });
    files_[i].require_whole();
    const bool last = i + 1 == files_.size();
    if (!last && tokenizer.end_of_text()) ids.push_back(*tokenizer.end_of_text());
    if (!last && !tokenizer.end_of_text())
      naming_file("the newline between files", [&] { tokenizer.append_ids(kNewline, ids); });
    f(ids);
  }
}

}  // namespace trireme
