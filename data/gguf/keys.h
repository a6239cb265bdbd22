// GgufKeys: the keys of a GGUF file while they are read. Each has a type and a range, and an error that names it.
//
//   const GgufKeys keys(file.layout(), file.path());
//   const std::int64_t layers = keys.count("llama.block_count", 4096);
// Read next: data/gguf/file.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/gguf/file.h"

namespace trireme {

class GgufKeys {
 public:
  /// Both must outlive this object.
  GgufKeys(const GgufLayout& layout, const std::filesystem::path& path) : layout_(layout), path_(path) {}

  const std::filesystem::path& path() const { return path_; }
  const GgufValue* find(const std::string& key) const { return layout_.find(key); }  ///< null: there is no such key
  bool has(const std::string& key) const { return find(key) != nullptr; }            ///< whether the file has the key

  // The value of a key. Throw ExitCode::data, naming file and key, if it has another type or range, and those without
  // `otherwise` if it is missing.
  std::int64_t count(const std::string& key, std::int64_t most) const;  ///< 1 to `most`
  std::int64_t count(const std::string& key, std::int64_t most, std::int64_t otherwise) const;
  double positive(const std::string& key) const;  ///< finite, above 0; of an f32 the shortest decimal number that it is
  double positive(const std::string& key, double otherwise) const;
  std::string text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  /// The id of one of `tokens` tokens; nothing if it is missing.
  std::optional<std::int32_t> token(const std::string& key, std::size_t tokens) const;
  /// A list with elements of that type.
  const GgufValue& array(const std::string& key, GgufType elements) const;
  std::vector<std::string> texts(const std::string& key, std::size_t most) const;  ///< UTF-8, at most so many

  /// Throws ExitCode::data for the key, saying what was expected.
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;

 private:
  const GgufLayout& layout_;
  const std::filesystem::path& path_;
};

}  // namespace trireme
