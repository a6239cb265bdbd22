// Texts from disk: one file, or every text file of a folder, as one stream of tokens with separators between documents.
//
// A folder is read recursively in the order of the relative paths. Left out are hidden files and folders (a name that
// begins with a dot), binary files (a zero byte in the first 64 KiB), empty files, and the tokenizer of token shards.
// If the folder has such a tokenizer, but neither shards nor text, the shards are missing, and the folder is refused.
// Between two documents stands the token `<|endoftext|>` where the vocabulary has it, and one newline otherwise. Read
// next: data/corpus.h.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/mapped_file.h"
#include "data/tokenizer.h"

namespace trireme {

/// The files that a path names, and how many were left out.
struct FoundTexts {
  std::vector<std::filesystem::path> files;
  std::size_t skipped = 0;
};

/// `path` itself if it is a file, or the text files of the folder, by the rules at the top of this file. `always`:
/// files that are no binary files, whatever is in them. Throws as TextFiles does.
FoundTexts find_texts(const std::filesystem::path& path, std::string_view flag,
                      const std::function<bool(const std::filesystem::path&)>& always = {});

/// The text of a file or a folder, in memory; see the top of this file.
class TextFiles {
 public:
  /// Throws ExitCode::usage when `path` does not exist, ExitCode::data when there is no text in it, ExitCode::io when
  /// it cannot be read. `flag` is what messages tell the user to change.
  explicit TextFiles(const std::filesystem::path& path, std::string_view flag = "--data");

  const std::filesystem::path& path() const { return path_; }
  std::size_t count() const { return files_.size(); }
  std::size_t skipped() const { return skipped_; }  ///< files left out by the rules above
  std::int64_t bytes() const;                       ///< of all files together
  /// The texts, and if there are several, also the newline between them: what a vocabulary must cover.
  std::vector<std::string_view> texts() const;

  /// make_tokenizer() on these texts; errors name the file.
  std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view specification) const;

  /// All texts as tokens: calls f(ids) once per document; the separator is the last id of the document it ends.
  void tokenize(const Tokenizer& tokenizer, const std::function<void(std::span<const std::int32_t>)>& f) const;

 private:
  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::size_t skipped_ = 0;
};

}  // namespace trireme
