#include "models/hugging_face/fields.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "data/utf8.h"

namespace trireme::hugging_face {

using nlohmann::json;

Fields::Fields(const json& json, const std::filesystem::path& path, std::string within)
    : json_(json), path_(path), within_(std::move(within)) {
  if (!json.is_object())
    fail(ExitCode::data, "hugging face", "{}: {} is {}; expected an object", path.string(),
         within_.empty() ? "the file" : within_.substr(0, within_.size() - 1), shown(json));
}

const json* Fields::find(const char* key) {
  known_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

bool Fields::has(const char* key) { return find(key) != nullptr; }

void Fields::refuse(const char* key, const std::string& expected) const {
  const auto found = json_.find(key);
  fail(ExitCode::data, "hugging face", "{}: {}{} is {}; expected {}", path_.string(), within_, key,
       found == json_.end() ? "missing" : shown(*found), expected);
}

const json& Fields::get(const char* key, const char* expected) {
  const json* value = find(key);
  if (value == nullptr) refuse(key, expected);
  return *value;
}

std::int64_t Fields::count(const char* key, std::int64_t most) {
  const json& value = get(key, "a whole number above 0");
  const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                                               : value.is_number_integer() && value.get<std::int64_t>() <= most;
  if (!fits || value.get<std::int64_t>() < 1) refuse(key, fmt::format("a whole number from 1 to {}", most));
  return value.get<std::int64_t>();
}

std::int64_t Fields::count(const char* key, std::int64_t most, std::int64_t otherwise) {
  return has(key) ? count(key, most) : otherwise;
}

double Fields::number(const char* key) {
  const json& value = get(key, "a number");
  if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(key, "a number");
  return value.get<double>();
}

double Fields::number(const char* key, double otherwise) { return has(key) ? number(key) : otherwise; }

double Fields::positive(const char* key) {
  const double value = number(key);
  if (!(value > 0)) refuse(key, "a number above 0");
  return value;
}

double Fields::positive(const char* key, double otherwise) { return has(key) ? positive(key) : otherwise; }

bool Fields::flag(const char* key, bool otherwise) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::string Fields::text(const char* key) {
  const json& value = get(key, "a text");
  if (!value.is_string()) refuse(key, "a text");
  return value.get<std::string>();
}

std::string Fields::text(const char* key, const std::string& otherwise) { return has(key) ? text(key) : otherwise; }

std::optional<std::vector<std::string>> Fields::texts(const char* key) {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> texts;
  if (!value->is_array()) refuse(key, "a list of texts");
  for (const json& element : *value) {
    if (!element.is_string()) refuse(key, "a list of texts");
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

const json* Fields::object(const char* key) {
  const json* value = find(key);
  if (value != nullptr && !value->is_object()) refuse(key, "an object");
  return value;
}

const json& Fields::value(const char* key) {
  static const json null;
  const json* found = find(key);
  return found == nullptr ? null : *found;
}

void Fields::require(const char* key, const json& value) {
  const json* found = find(key);
  if (found == nullptr || *found == value) return;
  refuse(key, fmt::format("{}, the only value that is supported", value.dump()));
}

void Fields::ignore(const std::vector<std::string>& keys) { known_.insert(keys.begin(), keys.end()); }

void Fields::refuse_others() const {
  for (const auto& [key, value] : json_.items())
    if (!value.is_null() && !known_.contains(key))
      fail(ExitCode::data, "hugging face",
           "{}: the field {}{} is {}, and this program does not know it; expected the fields of a model that it knows, "
           "as it could change what the model computes; remove the field if it does not",
           path_.string(), within_, in_quotes(key), shown(value));
}

}  // namespace trireme::hugging_face
