#include "data/chat/template_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "data/utf8.h"

namespace trireme::chat {
namespace {

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string number_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", d);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string quoted(const std::string& s) {
  const char quote = s.find('\'') != std::string::npos && s.find('"') == std::string::npos ? '"' : '\'';
  std::string result(1, quote);
  for (const char c : s) {
    if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (c == '\r') {
      result += "\\r";
    } else if (static_cast<unsigned char>(c) < 32 || c == 127) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      if (c == quote || c == '\\') result += '\\';
      result += c;
    }
  }
  return result + quote;
}

}  // namespace

Value Value::from_json(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
    case nlohmann::ordered_json::value_t::number_unsigned:
      return Value(json.get<std::int64_t>());
    case nlohmann::ordered_json::value_t::number_float:
      return Value(json.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return Value(json.get<std::string>());
    case nlohmann::ordered_json::value_t::array: {
      List list;
      for (const auto& item : json) list.push_back(from_json(item));
      return Value(std::move(list));
    }
    case nlohmann::ordered_json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.emplace_back(key, from_json(item));
      return Value(std::move(dict));
    }
    default:
      return {};
  }
}

const List* Value::list() const {
  const auto* held = get<std::shared_ptr<const List>>();
  return held != nullptr ? held->get() : nullptr;
}

const Dict* Value::dict() const {
  const auto* held = get<std::shared_ptr<const Dict>>();
  return held != nullptr ? held->get() : writable();
}

Dict* Value::writable() const {
  const auto* held = get<Namespace>();
  return held != nullptr ? held->get() : nullptr;
}

const Function* Value::function() const {
  const auto* held = get<std::shared_ptr<const Function>>();
  return held != nullptr ? held->get() : nullptr;
}

std::optional<std::int64_t> Value::whole() const {
  if (const auto* b = get<bool>()) return *b ? 1 : 0;
  if (const auto* i = get<std::int64_t>()) return *i;
  return std::nullopt;
}

double Value::number() const {
  if (const auto* b = get<bool>()) return *b ? 1 : 0;
  if (const auto* i = get<std::int64_t>()) return static_cast<double>(*i);
  const auto* d = get<double>();
  return d != nullptr ? *d : 0;
}

const Value* Value::member(std::string_view key) const {
  if (const Dict* all = dict())
    for (const auto& [name, value] : *all)
      if (name == key) return &value;
  return nullptr;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (text()) return !text()->empty();
  if (list()) return !list()->empty();
  if (get<std::shared_ptr<const Dict>>()) return !dict()->empty();
  return true;
}

std::string Value::repr() const {
  if (text()) return quoted(*text());
  if (list()) {
    std::string result = tuple_ ? "(" : "[";
    for (const Value& item : *list()) result += (result.size() > 1 ? ", " : "") + item.repr();
    if (tuple_ && list()->size() == 1) result += ',';
    return result + (tuple_ ? ")" : "]");
  }
  if (dict()) {
    std::string result = "{";
    for (const auto& [key, item] : *dict())
      result += (result.size() > 1 ? ", " : "") + quoted(key) + ": " + item.repr();
    return result + "}";
  }
  return str();
}

std::string Value::str() const {
  if (is_undefined()) return {};
  if (is_none()) return "None";
  if (const auto* b = get<bool>()) return *b ? "True" : "False";
  if (const auto* i = get<std::int64_t>()) return fmt::format("{}", *i);
  if (const auto* d = get<double>()) return number_text(*d);
  if (text()) return *text();
  return list() || dict() ? repr() : "<function>";
}

const char* Value::type() const {
  if (is_undefined()) return "undefined";
  if (is_none()) return "none";
  if (get<bool>()) return "a boolean";
  if (is_number()) return "a number";
  if (text()) return "a text";
  if (list()) return "a list";
  return dict() ? "a dictionary" : "a function";
}

bool operator==(const Value& a, const Value& b) {
  if (a.whole() && b.whole()) return *a.whole() == *b.whole();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.text() && b.text()) return *a.text() == *b.text();
  if (a.list() && b.list()) return a.tuple_ == b.tuple_ && *a.list() == *b.list();
  if (a.dict() && b.dict()) {
    if (a.dict()->size() != b.dict()->size()) return false;
    for (const auto& [key, value] : *a.dict()) {
      const Value* other = b.member(key);
      if (other == nullptr || !(*other == value)) return false;
    }
    return true;
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

std::string to_json_text(const Value& value, int indent, int depth) {
  const auto wrapped = [&](char open, char close, const std::vector<std::string>& items) {
    if (items.empty()) return std::string{open, close};
    std::string result(1, open);
    const std::string line = indent < 0 ? "" : "\n" + std::string(static_cast<std::size_t>(indent * (depth + 1)), ' ');
    for (std::size_t i = 0; i < items.size(); ++i) result += (i == 0 ? "" : indent < 0 ? ", " : ",") + line + items[i];
    if (indent >= 0) result += "\n" + std::string(static_cast<std::size_t>(indent * depth), ' ');
    return result + close;
  };
  const auto json_string = [](const std::string& s) {
    return nlohmann::json(s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::vector<std::string> items;
  if (value.list()) {
    for (const Value& item : *value.list()) items.push_back(to_json_text(item, indent, depth + 1));
    return wrapped('[', ']', items);
  }
  if (value.dict()) {
    for (const auto& [key, item] : *value.dict())
      items.push_back(json_string(key) + ": " + to_json_text(item, indent, depth + 1));
    return wrapped('{', '}', items);
  }
  if (value.text()) return json_string(*value.text());
  if (value.is_none() || value.is_undefined()) return "null";
  if (const auto* b = value.get<bool>()) return *b ? "true" : "false";
  return value.str();
}

std::vector<std::string> split_characters(std::string_view text) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::optional<CodePoint> c = decode_utf8(text, at);
    const std::size_t bytes = c ? c->bytes : 1;
    all.emplace_back(text.substr(at, bytes));
    at += bytes;
  }
  return all;
}

std::int64_t characters(std::string_view text) {
  std::int64_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) {
    const std::optional<CodePoint> c = decode_utf8(text, at);
    at += c ? c->bytes : 1;
  }
  return count;
}

namespace {

bool strips(const std::string& character, std::string_view set) {
  if (!set.empty()) {
    const std::vector<std::string> all = split_characters(set);
    return std::find(all.begin(), all.end(), character) != all.end();
  }
  const std::optional<CodePoint> c = decode_utf8(character, 0);
  return c && is_space(c->value);
}

}  // namespace

std::string strip(std::string_view text, std::string_view set, bool left, bool right) {
  const std::vector<std::string> all = split_characters(text);
  std::size_t begin = 0, end = all.size();
  while (left && begin < end && strips(all[begin], set)) ++begin;
  while (right && begin < end && strips(all[end - 1], set)) --end;
  std::string result;
  for (std::size_t i = begin; i < end; ++i) result += all[i];
  return result;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  for (const std::string& c : split_characters(text)) {
    if (strips(c, "")) {
      inside = false;
    } else if (inside) {
      words.back() += c;
    } else {
      words.push_back(c);
      inside = true;
    }
  }
  return words;
}

}  // namespace trireme::chat
