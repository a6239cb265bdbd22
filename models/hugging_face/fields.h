// Fields: the fields of a config.json while it is read. It remembers which were read, so that one that nobody knows is
// refused: it could change what the model computes.
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: models/hugging_face/config.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/json.h"

namespace trireme::hugging_face {

class Fields {
 public:
  /// `json` must be an object, and outlive this object. `within`: the name of the object for messages, such as
  /// "rope_scaling."; empty: the whole file.
  Fields(const nlohmann::json& json, const std::filesystem::path& path, std::string within = "");

  const std::filesystem::path& path() const { return path_; }
  /// Whether the field is there and not null.
  bool has(const char* key);
  bool given(const char* key) const { return json_.contains(key); }  ///< whether it is there, or null

  // The value of a field. Throw ExitCode::data, naming file and field, if it has another type or range, and those
  // without `otherwise` if it is missing or null.
  std::int64_t count(const char* key, std::int64_t most);  ///< 1 to `most`
  std::int64_t count(const char* key, std::int64_t most, std::int64_t otherwise);
  double number(const char* key);                    ///< finite
  double number(const char* key, double otherwise);  ///< finite
  double positive(const char* key);
  double positive(const char* key, double otherwise);
  bool flag(const char* key, bool otherwise);
  std::string text(const char* key);
  std::string text(const char* key, const std::string& otherwise);
  std::optional<std::vector<std::string>> texts(const char* key);  ///< a list
  /// An object; null if it is missing.
  const nlohmann::json* object(const char* key);
  /// Of any type; JSON's null if it is missing.
  const nlohmann::json& value(const char* key);

  /// Throws ExitCode::data if the field is there, not null and not `value`: the model here computes as if it was.
  void require(const char* key, const nlohmann::json& value);
  /// These do not change what the model computes.
  void ignore(const std::vector<std::string>& keys);
  /// Throws ExitCode::data for the field, saying what was expected.
  [[noreturn]] void refuse(const char* key, const std::string& expected) const;
  /// Throws ExitCode::data for the first field that was neither read nor ignored, unless it is null.
  void refuse_others() const;

 private:
  const nlohmann::json* find(const char* key);
  const nlohmann::json& get(const char* key, const char* expected);

  const nlohmann::json& json_;
  const std::filesystem::path& path_;
  std::string within_;
  std::set<std::string> known_;
};

/// The value of eos_token_id: null, a number or a list.
nlohmann::json end_tokens_json(const std::vector<std::int32_t>& ends);

}  // namespace trireme::hugging_face
