// Texts from disk: one file, or every text file of a folder, as one stream of tokens with separators between documents.
//
// A folder is read recursively in the order of the relative paths. Left out are hidden files and folders (a name that
// begins with a dot), binary files (by their first 64 KiB), pointers of Git LFS, empty files, and what these programs
// wrote (data/file_kind.h): a run may be kept below its own data. If the folder has the tokenizer of token shards, but
// neither shards nor text, the shards are missing, and the folder is refused. Links to folders are not followed, but
// counted. A byte-order mark at the beginning of a file is no text. One file is open at a time, however many there are.
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

#include "data/char_tokenizer.h"
#include "data/tokenizer.h"

namespace trireme {

/// How many files of a folder were left out, and why.
struct OmittedFiles {
  std::size_t empty = 0, binary = 0, lfs_pointers = 0, own = 0;
  std::size_t links = 0;            ///< to folders
  std::size_t special = 0;          ///< pipes, sockets and devices
  std::size_t beside = 0;           ///< entries of a folder of tokens that are no tokens
  std::filesystem::path first_own;  ///< the first one that these programs wrote
  std::size_t all() const { return empty + binary + lfs_pointers + own + links + special + beside; }
  OmittedFiles& operator+=(const OmittedFiles& other);  ///< adds the numbers of another folder
  /// "2 empty, 1 binary, 8 written by Trireme (the first: run/config.json)"; empty: none.
  std::string text() const;
};

/// The files that a path names, and what was left out.
struct FoundTexts {
  std::vector<std::filesystem::path> files;
  OmittedFiles left_out;
};

/// The first bytes of a file, for kind_of(): as they are, or decompressed.
using FirstBytes = std::function<std::string(const std::filesystem::path&)>;

/// If `path` is a file: that file, whatever is in it. If it is a folder: its texts, by the rules at the top of this
/// header. Throws as TextFiles does.
FoundTexts find_texts(const std::filesystem::path& path, std::string_view flag, const FirstBytes& head_of);

/// A file that tokens were made of, or for token files all files of a source.
struct SourceFile {
  std::string name;         ///< relative to the folder that was given
  std::uint64_t bytes = 0;  ///< of text; for token files: tokens
  std::uint64_t hash = 0;   ///< of its content
};

/// The text of a file or a folder; see the top of this file.
class TextFiles {
 public:
  /// Throws ExitCode::usage when `path` does not exist, ExitCode::data when there is no text in it, ExitCode::io when
  /// it cannot be read. `flag` is what messages tell the user to change.
  explicit TextFiles(const std::filesystem::path& path, std::string_view flag = "--data");

  const std::filesystem::path& path() const { return path_; }
  std::size_t count() const { return files_.size(); }
  const OmittedFiles& left_out() const { return left_out_; }
  std::uint64_t bytes() const;           ///< of all files together
  std::vector<SourceFile> list() const;  ///< reads every file, for its hash
  /// Adds the characters of all texts, and if there are several, also the newline between them. Throws ExitCode::data,
  /// with the file and the byte, for what is not UTF-8.
  void add_characters(CharacterSet& set) const;
  /// make_tokenizer() on these texts; errors name the file.
  std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view specification) const;

  /// All texts as tokens, in pieces: calls f(ids, begins), where `begins` says that a document begins with this piece.
  /// The separator is the last piece of the document that it ends.
  void tokenize(const Tokenizer& tokenizer,
                const std::function<void(std::span<const std::int32_t>, bool begins)>& f) const;

 private:
  std::filesystem::path path_;
  std::vector<std::filesystem::path> files_;
  OmittedFiles left_out_;
};

}  // namespace trireme
