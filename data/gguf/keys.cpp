#include "data/gguf/keys.h"

#include <cmath>
#include <string>

#include "data/utf8.h"

namespace trireme {

void GgufKeys::refuse(const std::string& key, const std::string& expected) const {
  const GgufValue* value = find(key);
  fail(ExitCode::data, "gguf", "{}: {} is {}; expected {}", path_.string(), key,
       value == nullptr     ? std::string("missing")
       : value->is_text()   ? in_quotes(value->text())
       : value->is_number() ? fmt::format("{}", value->number())
                            : fmt::format("a value of the type {}", name(value->type())),
       expected);
}

std::int64_t GgufKeys::count(const std::string& key, std::int64_t most) const {
  const GgufValue* value = find(key);
  if (value == nullptr || !value->is_whole() || value->whole() < 1 || value->whole() > most)
    refuse(key, fmt::format("a whole number from 1 to {}", most));
  return value->whole();
}

std::int64_t GgufKeys::count(const std::string& key, std::int64_t most, std::int64_t otherwise) const {
  return has(key) ? count(key, most) : otherwise;
}

double GgufKeys::positive(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr || !value->is_number() || !std::isfinite(value->number()) || value->number() <= 0)
    refuse(key, "a finite number above 0");
  if (value->type() != GgufType::f32) return value->number();
  return std::stod(fmt::format("{}", static_cast<float>(value->number())));  // 1e-05, not 9.99999974e-06
}

double GgufKeys::positive(const std::string& key, double otherwise) const {
  return has(key) ? positive(key) : otherwise;
}

std::string GgufKeys::text(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr || !value->is_text()) refuse(key, "a text");
  return std::string(value->text());
}

std::string GgufKeys::text(const std::string& key, const std::string& otherwise) const {
  return has(key) ? text(key) : otherwise;
}

bool GgufKeys::flag(const std::string& key, bool otherwise) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->type() != GgufType::boolean) refuse(key, "a boolean");
  return value->truth();
}

std::optional<std::int32_t> GgufKeys::token(const std::string& key, std::size_t tokens) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_whole() || value->whole() < 0 || static_cast<std::uint64_t>(value->whole()) >= tokens)
    refuse(key, fmt::format("the id of a token, below {}", tokens));
  return static_cast<std::int32_t>(value->whole());
}

const GgufValue& GgufKeys::array(const std::string& key, GgufType elements) const {
  const GgufValue* value = find(key);
  if (value == nullptr || value->type() != GgufType::array || value->elements() != elements)
    refuse(key, fmt::format("an array of {}", name(elements)));
  return *value;
}

std::vector<std::string> GgufKeys::texts(const std::string& key, std::size_t most) const {
  const GgufValue& value = array(key, GgufType::text);
  if (value.count() > most) refuse(key, fmt::format("at most {} texts", most));
  std::vector<std::string> all;
  value.for_each([&](const GgufValue& each) {
    if (valid_utf8_prefix(each.text()) != each.text().size())
      fail(ExitCode::data, "gguf", "{}: {}[{}] is {}, which is not UTF-8; expected UTF-8", path_.string(), key,
           all.size(), in_quotes(each.text()));
    all.emplace_back(each.text());
  });
  return all;
}

}  // namespace trireme
