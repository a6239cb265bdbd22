// Finding and reading text files.
#include "data/text_files.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/hash.h"
#include "core/io.h"
#include "data/file_kind.h"
#include "data/mapped_file.h"
#include "data/parallel_encode.h"
#include "data/token_shard.h"
#include "data/utf8.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNewline = "\n";

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

/// What a folder holds, without hidden files and folders, in any order.
struct Entries {
  std::vector<fs::path> files, folders;
  std::size_t links = 0;    // to folders
  std::size_t special = 0;  // pipes, sockets and devices
};

Entries entries_of(const fs::path& folder) {
  Entries entries;
  std::error_code error;
  fs::path last = folder;  // what an error is about
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    last = at->path();
    if (is_hidden(last)) continue;
    std::error_code problem;
    const fs::file_status status = at->status(problem);
    if (status.type() == fs::file_type::not_found)  // listed, and not there
      fail(ExitCode::data, "data",
           "{} is a symbolic link to nothing; expected a text; remove it, or bring its file back", last.string());
    if (problem == std::errc::too_many_symbolic_link_levels)
      fail(ExitCode::data, "data", "{} is a symbolic link that leads back to itself; expected a text; remove it",
           last.string());
    if (!fs::status_known(status))
      fail(ExitCode::io, "data", "cannot look at {}: {}", last.string(), problem.message());
    if (fs::is_regular_file(status)) {
      entries.files.push_back(last);
    } else if (!fs::is_directory(status)) {
      ++entries.special;
    } else if (at->is_symlink(problem)) {
      ++entries.links;
    } else {
      entries.folders.push_back(last);
    }
  }
  if (error) fail(ExitCode::io, "data", "cannot read the folder {}: {}", last.string(), error.message());
  return entries;
}

/// The search for texts in a folder.
class TextSearch {
 public:
  explicit TextSearch(const FirstBytes& head_of) : head_of_(head_of) {}

  /// `below`: not the folder that was asked for. All of such a folder is ours if one of its files says so.
  void search(const fs::path& folder, bool below) {
    Entries entries = entries_of(folder);
    found_.left_out.links += entries.links;
    found_.left_out.special += entries.special;
    std::vector<std::pair<FileKind, fs::path>> files;
    for (fs::path& file : entries.files) {
      const FileKind kind = kind_of(file, head_of_(file));
      if (below && kind == FileKind::own_folder) return leave_out(folder);
      files.emplace_back(kind, std::move(file));
    }
    for (const auto& [kind, file] : files) add(kind, file);
    for (const fs::path& each : entries.folders) search(each, true);
  }

  FoundTexts finish() {
    std::sort(found_.files.begin(), found_.files.end());
    return std::move(found_);
  }
  /// The tokenizers of token shards.
  const std::vector<fs::path>& tokenizers() const { return tokenizers_; }

 private:
  void add(FileKind kind, const fs::path& file) {
    if (kind == FileKind::shard_tokenizer) tokenizers_.push_back(file);
    if (kind == FileKind::empty) {
      ++found_.left_out.empty;
    } else if (kind == FileKind::text) {
      found_.files.push_back(file);
    } else if (kind == FileKind::binary) {
      ++found_.left_out.binary;
    } else if (kind == FileKind::lfs_pointer) {
      ++found_.left_out.lfs_pointers;
    } else {
      add_own(file);
    }
  }

  void leave_out(const fs::path& folder) {
    const Entries entries = entries_of(folder);
    for (const fs::path& file : entries.files) add_own(file);
    for (const fs::path& each : entries.folders) leave_out(each);
  }

  void add_own(const fs::path& file) {
    OmittedFiles& left_out = found_.left_out;
    if (left_out.own++ == 0 || file < left_out.first_own) left_out.first_own = file;
  }

  const FirstBytes& head_of_;
  FoundTexts found_;
  std::vector<fs::path> tokenizers_;
};

/// Runs f and adds the file's name to its errors: a tokenizer knows the byte, but not the file.
template <class F>
decltype(auto) naming_file(const fs::path& path, F&& f) {
  try {
    return f();
  } catch (const Error& error) { throw Error(error.code(), "data", path.string() + ": " + error.reason()); }
}

}  // namespace

OmittedFiles& OmittedFiles::operator+=(const OmittedFiles& other) {
  if (own == 0) first_own = other.first_own;
  empty += other.empty;
  binary += other.binary;
  lfs_pointers += other.lfs_pointers;
  own += other.own;
  links += other.links;
  special += other.special;
  beside += other.beside;
  return *this;
}

std::string OmittedFiles::text() const {
  std::string result;
  const auto add = [&](std::size_t count, std::string_view what) {
    if (count > 0) result += fmt::format("{}{} {}", result.empty() ? "" : ", ", count, what);
  };
  add(empty, "empty");
  add(binary, "binary");
  add(lfs_pointers, lfs_pointers == 1 ? "pointer of Git LFS" : "pointers of Git LFS");
  add(links, links == 1 ? "link to a folder" : "links to folders");
  add(special, special == 1 ? "pipe, socket or device" : "pipes, sockets or devices");
  add(beside, "beside the tokens");
  add(own, "written by Trireme");
  if (own > 0) result += fmt::format(" (the first: {})", first_own.string());
  return result;
}

FoundTexts find_texts(const fs::path& path, std::string_view flag, const FirstBytes& head_of) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    fail(ExitCode::usage, "data",
         "{} does not exist; expected a text file, a folder of text files or token shards; change {}", path.string(),
         flag);
  if (error) fail(ExitCode::io, "data", "cannot read {}: {}", path.string(), error.message());
  if (!fs::is_directory(status)) {
    if (fs::is_fifo(status))
      fail(ExitCode::data, "data",
           "{} is not a regular file but a pipe; expected a file or a folder; give the text to prepare_data on its "
           "standard input: zcat a.gz | prepare_data --data -",
           path.string());
    if (InputFile(path).size() == 0)
      fail(ExitCode::data, "data", "{} is empty (0 bytes); expected text; change {}", path.string(), flag);
    return {{path}, {}};
  }
  TextSearch search(head_of);
  search.search(path, false);
  FoundTexts found = search.finish();
  const std::vector<fs::path>& tokenizers = search.tokenizers();
  const bool beside = std::find(tokenizers.begin(), tokenizers.end(), path / shard_tokenizer_name) != tokenizers.end();
  if (beside || (!tokenizers.empty() && found.files.empty()))
    fail(ExitCode::data, "data",
         "{} belongs to token shards, and there are none beside it (*{}); expected both, as prepare_data leaves them; "
         "bring the shards back, make them again, or change {}",
         (beside ? path / shard_tokenizer_name : tokenizers.front()).string(), shard_extension, flag);
  if (found.files.empty())
    fail(ExitCode::data, "data", "the folder {} holds no text file{}; expected at least one; change {}", path.string(),
         found.left_out.all() == 0 ? "" : "; left out: " + found.left_out.text(), flag);
  return found;
}

TextFiles::TextFiles(const fs::path& path, std::string_view flag) : path_(path) {
  FoundTexts found = find_texts(path, flag, first_bytes);
  for (const fs::path& file : found.files) {
    const std::string head = file == path ? first_bytes(file) : std::string();  // the files of a folder are texts
    require_text(head, file.string());
    const TextFormat format = format_of(file, head);
    if (format != TextFormat::text)
      fail(ExitCode::usage, "data",
           "{} holds {}, whose {} and names would be learned as text; expected dialogues with --chat-template FILE, or "
           "the token shards that prepare_data makes of it; change {}",
           file.string(), format == TextFormat::jsonl ? "JSON lines" : "a table",
           format == TextFormat::jsonl ? "braces" : "separators", flag);
  }
  files_ = std::move(found.files);
  left_out_ = std::move(found.left_out);
}

std::uint64_t TextFiles::bytes() const {
  std::uint64_t total = 0;
  for (const fs::path& file : files_) total += InputFile(file).size();
  return total;
}

std::vector<SourceFile> TextFiles::list() const {
  std::vector<SourceFile> result;
  for (const fs::path& path : files_) {
    const MappedFile file(path);
    const fs::path name = path == path_ ? path.filename() : path.lexically_relative(path_);
    result.push_back({name.string(), file.size(), hash_bytes(file.text())});
  }
  return result;
}

void TextFiles::add_characters(CharacterSet& set) const {
  for (const fs::path& path : files_) {
    const MappedFile file(path);
    const std::string_view text = without_mark(file.text());
    if (const auto at = set.add(text))
      fail(ExitCode::data, "data",
           "{} byte {} of {} (0x{:02X}) is not UTF-8; expected UTF-8 text; convert it or use --tokenizer byte",
           path.string(), *at + file.size() - text.size(), file.size(), static_cast<unsigned char>(text[*at]));
  }
  if (files_.size() > 1) set.add(kNewline);
}

std::shared_ptr<const Tokenizer> TextFiles::make_tokenizer(std::string_view specification) const {
  if (specification != "char") return trireme::make_tokenizer(specification, {});
  CharacterSet set;
  add_characters(set);
  return std::make_shared<CharTokenizer>(set);
}

void TextFiles::tokenize(const Tokenizer& tokenizer,
                         const std::function<void(std::span<const std::int32_t>, bool)>& f) const {
  for (const fs::path& path : files_) {
    const MappedFile file(path);
    bool begins = true;
    const auto pass_on = [&](std::span<const std::int32_t> ids) { f(ids, std::exchange(begins, false)); };
    naming_file(path, [&] { encode_in_parallel(tokenizer, without_mark(file.text()), pass_on); });
    file.require_whole();
    if (path == files_.back()) return;
    if (const auto end = tokenizer.end_of_text())
      pass_on(std::vector{*end});
    else
      pass_on(naming_file("the newline between files", [&] { return tokenizer.encode(kNewline); }));
  }
}

}  // namespace trireme
