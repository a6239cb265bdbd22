#include "data/chat/template_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "data/utf8.h"

namespace trireme::chat {
namespace {

/// Arguments by place or by name.
class FilterArguments {
 public:
  FilterArguments(Work& work, const Arguments& arguments) : work_(work), all_(arguments) {}
  const Value* find(std::size_t place, std::string_view name) const {
    if (place < all_.positional.size()) return &all_.positional[place];
    for (const auto& [key, value] : all_.named)
      if (key == name) return &value;
    return nullptr;
  }
  Value get(std::size_t place, std::string_view name, const Value& otherwise) const {
    const Value* value = find(place, name);
    return value != nullptr ? *value : otherwise;
  }
  std::string text(std::size_t place, std::string_view name, const std::string& otherwise) const {
    const Value* value = find(place, name);
    if (value == nullptr || value->is_none()) return otherwise;
    if (value->text() == nullptr)
      work_.refuse(fmt::format("argument '{}' is {}; expected a text", name, value->type()));
    return *value->text();
  }
  std::int64_t number(std::size_t place, std::string_view name, std::int64_t otherwise) const {
    const Value* value = find(place, name);
    if (value == nullptr || value->is_none()) return otherwise;
    if (!value->is_number()) work_.refuse(fmt::format("argument '{}' is {}; expected a number", name, value->type()));
    return static_cast<std::int64_t>(std::clamp(value->number(), -1e15, 1e15));
  }

 private:
  Work& work_;
  const Arguments& all_;
};

const std::string& need_text(Work& work, const Value& value, std::string_view what) {
  if (value.text() == nullptr) work.refuse(fmt::format("{} of {}; expected a text", what, value.type()));
  return *value.text();
}

/// Upper and lower case of ASCII; other letters would need tables that change with Unicode.
template <class F>
std::string ascii_cased(Work& work, const std::string& text, std::string_view what, const F& change) {
  std::string result = text;
  bool inside = false;  // a word
  for (char& c : result) {
    if (static_cast<unsigned char>(c) >= 128) work.refuse(fmt::format("{} of a text that is not ASCII", what));
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter) c = change(c, inside);
    inside = letter;
  }
  return result;
}
char upper_char(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
char lower_char(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

std::string cased(Work& work, const std::string& text, const std::string& how) {
  if (how == "upper") return ascii_cased(work, text, how, [](char c, bool) { return upper_char(c); });
  if (how == "lower") return ascii_cased(work, text, how, [](char c, bool) { return lower_char(c); });
  if (how == "title")
    return ascii_cased(work, text, how, [](char c, bool inside) { return inside ? lower_char(c) : upper_char(c); });
  std::string result = cased(work, text, "lower");  // capitalize
  if (!result.empty()) result[0] = upper_char(result[0]);
  return result;
}

std::string replaced(Work& work, const std::string& text, const std::string& from, const std::string& to,
                     std::int64_t most) {
  std::string result;
  std::size_t at = 0;
  if (from.empty()) work.refuse("replace() of an empty text");
  while (most != 0) {
    const std::size_t found = text.find(from, at);
    if (found == std::string::npos) break;
    work.add(found - at + to.size());
    result += text.substr(at, found - at) + to;
    at = found + from.size();
    --most;
  }
  work.add(text.size() - at);
  return result + text.substr(at);
}

Value split_text(Work& work, const std::string& text, const FilterArguments& given) {
  const std::int64_t most = given.number(1, "maxsplit", -1);
  const Value* separator = given.find(0, "sep");
  List parts;
  work.add(2 * text.size());
  if (separator == nullptr || separator->is_none()) {
    if (most >= 0) work.refuse("split() by white space with maxsplit is not known");
    for (std::string& word : split_words(text)) parts.emplace_back(std::move(word));
    return Value(std::move(parts));
  }
  const std::string by = given.text(0, "sep", "");
  if (by.empty()) work.refuse("split() by an empty text");
  std::size_t at = 0;
  for (std::int64_t n = 0; most < 0 || n < most; ++n) {
    const std::size_t found = text.find(by, at);
    if (found == std::string::npos) break;
    work.add(found - at);
    parts.emplace_back(text.substr(at, found - at));
    at = found + by.size();
  }
  parts.emplace_back(text.substr(at));
  return Value(std::move(parts));
}

bool any_affix(Work& work, const Value& affixes, std::string_view what,
               const std::function<bool(const std::string&)>& has) {
  if (affixes.list() == nullptr) return has(need_text(work, affixes, what));
  for (const Value& each : *affixes.list())
    if (has(need_text(work, each, what))) return true;
  return false;
}

std::string indented(Work& work, const std::string& text, const FilterArguments& given) {
  const Value width = given.get(0, "width", Value(std::int64_t{4}));
  const std::string by =
      width.text()
          ? *width.text()
          : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(given.number(0, "width", 4), 0, 1000)), ' ');
  const bool first = given.get(1, "first", Value(false)).truth(), blank = given.get(2, "blank", Value(false)).truth();
  std::string result;
  std::size_t at = 0;
  for (bool begin = true; at <= text.size(); begin = false) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const bool wanted = begin ? first : blank || !line.empty();
    work.add(by.size() + line.size());
    result += (wanted ? by : "") + line + (end < text.size() ? "\n" : "");
    at = end + 1;
  }
  return result;
}

Value member_path(const Value& value, const std::string& path) {
  const Value* at = &value;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    at = at->member(path.substr(begin, end - begin));
    if (at == nullptr) return Value(Undefined{path});
    begin = end + 1;
  }
  return *at;
}

/// select, reject, selectattr, rejectattr.
Value selected(Work& work, const std::string& name, const Value& value, const Arguments& arguments) {
  const bool attribute = name.ends_with("attr"), keep = name.starts_with("select");
  const std::size_t test = attribute ? 1 : 0;
  const FilterArguments given(work, arguments);
  const std::string path = attribute ? given.text(0, "attribute", "") : "";
  List kept;
  for (const Value& item : elements(work, value)) {
    const Value tested = attribute ? member_path(item, path) : item;
    bool holds = tested.truth();
    if (arguments.positional.size() > test) {
      Arguments rest;
      rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(test) + 1,
                             arguments.positional.end());
      holds = apply_test(work, need_text(work, arguments.positional[test], "the test"), tested, rest);
    }
    work.add();
    if (holds == keep) kept.push_back(item);
  }
  return Value(std::move(kept));
}

Value mapped(Work& work, const Value& value, const Arguments& arguments) {
  const FilterArguments given(work, arguments);
  List results;
  const Value* attribute = given.find(9, "attribute");
  for (const Value& item : elements(work, value)) {
    work.add();
    if (attribute != nullptr) {
      Value found = member_path(item, need_text(work, *attribute, "attribute"));
      if (found.is_undefined()) found = given.get(9, "default", found);
      results.push_back(std::move(found));
    } else {
      if (arguments.positional.empty()) work.refuse("map() without a filter; expected one, or attribute=");
      Arguments rest{.positional = {arguments.positional.begin() + 1, arguments.positional.end()},
                     .named = arguments.named};
      results.push_back(apply_filter(work, need_text(work, arguments.positional[0], "the filter"), item, rest));
    }
  }
  return Value(std::move(results));
}

std::string joined(Work& work, const Value& value, const FilterArguments& given) {
  const std::string by = given.text(0, "d", "");
  const Value* attribute = given.find(1, "attribute");
  std::string result;
  bool first = true;
  for (const Value& item : elements(work, value)) {
    const std::string text = attribute ? member_path(item, need_text(work, *attribute, "attribute")).str() : item.str();
    work.add(by.size() + text.size());
    result += (first ? "" : by) + text;
    first = false;
  }
  return result;
}

Value to_int(const Value& value, const FilterArguments& given) {
  if (value.is_number()) return Value(static_cast<std::int64_t>(std::clamp(value.number(), -9e15, 9e15)));
  if (value.text()) {
    const std::string text = strip(*value.text(), "", true, true);
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return Value(number);
  }
  return given.get(0, "default", Value(std::int64_t{0}));
}

Value sorted(Work& work, const Value& value, const FilterArguments& given) {
  List all = elements(work, value);
  const Value* attribute = given.find(2, "attribute");
  const auto key = [&](const Value& item) {
    Value k = attribute ? member_path(item, need_text(work, *attribute, "attribute")) : item;
    if (k.text() && !given.get(1, "case_sensitive", Value(false)).truth())
      return Value(cased(work, *k.text(), "lower"));
    return k;
  };
  std::stable_sort(all.begin(), all.end(), [&](const Value& a, const Value& b) {
    work.add();
    return compare_values(work, key(a), key(b)) < 0;
  });
  if (given.get(0, "reverse", Value(false)).truth()) std::reverse(all.begin(), all.end());
  return Value(std::move(all));
}

Value length_of(Work& work, const Value& value) {
  if (value.text()) return Value(characters(*value.text()));
  if (value.is_undefined()) return Value(std::int64_t{0});
  if (value.list() == nullptr && value.dict() == nullptr) work.refuse(fmt::format("length of {}", value.type()));
  return Value(static_cast<std::int64_t>(value.list() ? value.list()->size() : value.dict()->size()));
}

Value items_of(const Value& value) {
  List pairs;
  if (value.dict() != nullptr)
    for (const auto& [key, item] : *value.dict()) pairs.push_back(Value::tuple({Value(key), item}));
  return Value(std::move(pairs));
}

/// Of a filter or a test that `known` does not list, or that does not take such a value.
[[noreturn]] void refuse_name(Work& work, std::string_view kind, const std::string& name, std::string_view known,
                              const Value& value) {
  const bool is_known = fmt::format(", {},", known).find(fmt::format(", {},", name)) != std::string::npos;
  work.refuse(is_known
                  ? fmt::format("the {} {} does not take {}; change the template", kind, in_quotes(name), value.type())
                  : fmt::format("the {} {} is not known; expected one of {}; change the template", kind,
                                in_quotes(name), known));
}

}  // namespace

List elements(Work& work, const Value& value) {
  List all;
  if (value.list()) {
    work.add(8 * value.list()->size());
    return *value.list();
  }
  if (value.dict()) {
    for (const auto& [key, item] : *value.dict()) all.emplace_back(key);
  } else if (value.text()) {
    work.add(32 * value.text()->size());
    for (std::string& c : split_characters(*value.text())) all.emplace_back(std::move(c));
  } else if (!value.is_undefined()) {
    work.refuse(fmt::format("a loop over {}; expected a list, a dictionary or a text", value.type()));
  }
  return all;
}

int compare_values(Work& work, const Value& a, const Value& b) {
  if (a.whole() && b.whole()) return *a.whole() < *b.whole() ? -1 : *a.whole() > *b.whole() ? 1 : 0;
  if (a.is_number() && b.is_number()) return a.number() < b.number() ? -1 : a.number() > b.number() ? 1 : 0;
  if (a.text() && b.text()) return a.text()->compare(*b.text());
  if (a.list() && b.list()) {
    for (std::size_t i = 0; i < std::min(a.list()->size(), b.list()->size()); ++i)
      if (const int c = compare_values(work, (*a.list())[i], (*b.list())[i])) return c;
    return static_cast<int>(a.list()->size() > b.list()->size()) -
           static_cast<int>(a.list()->size() < b.list()->size());
  }
  work.refuse(fmt::format("{} cannot be compared with {}", a.type(), b.type()));
}

bool is_in(Work& work, const Value& item, const Value& container) {
  if (container.text()) return container.text()->find(need_text(work, item, "'in'")) != std::string::npos;
  if (container.list()) {
    work.add(container.list()->size());
    return std::find(container.list()->begin(), container.list()->end(), item) != container.list()->end();
  }
  if (container.dict()) return item.text() && container.member(*item.text()) != nullptr;
  if (container.is_undefined()) return false;
  work.refuse(fmt::format("'in' {}; expected a text, a list or a dictionary", container.type()));
}

Value apply_filter(Work& work, const std::string& name, const Value& value, const Arguments& arguments) {
  const FilterArguments given(work, arguments);
  work.add(value.text() ? value.text()->size() : 0);
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (is({"trim"})) return Value(strip(value.str(), given.text(0, "chars", ""), true, true));
  if (is({"length", "count"})) return length_of(work, value);
  if (is({"upper", "lower", "title", "capitalize"})) return Value(cased(work, value.str(), name));
  if (is({"string", "safe"})) return Value(value.str());
  if (is({"default", "d"})) {
    const bool falsy = given.get(1, "boolean", Value(false)).truth() && !value.truth();
    return value.is_undefined() || falsy ? given.get(0, "default_value", Value("")) : value;
  }
  if (is({"replace"}))
    return Value(
        replaced(work, value.str(), given.text(0, "old", ""), given.text(1, "new", ""), given.number(2, "count", -1)));
  if (is({"tojson"})) {
    std::string text =
        to_json_text(value, static_cast<int>(std::clamp<std::int64_t>(given.number(0, "indent", -1), -1, 64)));
    work.add(text.size());
    return Value(std::move(text));
  }
  if (is({"join"})) return Value(joined(work, value, given));
  if (is({"items"})) return items_of(value);
  if (is({"list"})) return Value(elements(work, value));
  if (is({"first", "last"})) {
    const List all = elements(work, value);
    if (all.empty()) return Value(Undefined{name});
    return name == "first" ? all.front() : all.back();
  }
  if (is({"reverse"})) {
    List all = elements(work, value);
    std::reverse(all.begin(), all.end());
    if (!value.text()) return Value(std::move(all));
    std::string text;
    for (const Value& c : all) text += *c.text();
    return Value(std::move(text));
  }
  if (is({"int"})) return to_int(value, given);
  if (is({"float"})) return value.is_number() ? Value(value.number()) : given.get(0, "default", Value(0.0));
  if (is({"abs"}) && value.get<std::int64_t>()) return Value(std::abs(*value.get<std::int64_t>()));
  if (is({"abs"}) && value.is_number()) return Value(std::abs(value.number()));
  if (is({"round"}) && value.is_number()) {
    const double ten =
        std::pow(10.0, static_cast<double>(std::clamp<std::int64_t>(given.number(0, "precision", 0), 0, 12)));
    return Value(std::nearbyint(value.number() * ten) / ten);
  }
  if (is({"indent"})) return Value(indented(work, value.str(), given));
  if (is({"select", "reject", "selectattr", "rejectattr"})) return selected(work, name, value, arguments);
  if (is({"map"})) return mapped(work, value, arguments);
  if (is({"sort"})) return sorted(work, value, given);
  if (is({"dictsort"})) return sorted(work, items_of(value), FilterArguments(work, {}));
  if (is({"unique"})) {
    List kept;
    for (const Value& item : elements(work, value))
      if (!is_in(work, item, Value(kept))) kept.push_back(item);
    return Value(std::move(kept));
  }
  if (is({"min", "max"})) {
    const List all = elements(work, value);
    if (all.empty()) return Value(Undefined{name});
    const auto less = [&](const Value& a, const Value& b) { return compare_values(work, a, b) < 0; };
    return name == "min" ? *std::min_element(all.begin(), all.end(), less)
                         : *std::max_element(all.begin(), all.end(), less);
  }
  refuse_name(work, "filter", name, known_filters, value);
}

bool apply_test(Work& work, const std::string& name, const Value& value, const Arguments& arguments) {
  const FilterArguments given(work, arguments);
  work.add();
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto* flag = value.get<bool>();
  const auto* integer = value.get<std::int64_t>();
  if (is({"defined"})) return !value.is_undefined();
  if (is({"undefined"})) return value.is_undefined();
  if (is({"none"})) return value.is_none();
  if (is({"true"})) return flag != nullptr && *flag;
  if (is({"false"})) return flag != nullptr && !*flag;
  if (is({"boolean"})) return flag != nullptr;
  if (is({"integer"})) return integer != nullptr;
  if (is({"float"})) return value.get<double>() != nullptr;
  if (is({"number"})) return value.is_number();
  if (is({"string"})) return value.text() != nullptr;
  if (is({"mapping"})) return value.dict() != nullptr;
  if (is({"iterable", "sequence"})) return value.text() || value.list() || value.dict() || value.is_undefined();
  if (is({"callable"})) return value.function() != nullptr;
  if (is({"even", "odd"}) && integer != nullptr) return (*integer % 2 == 0) == (name == "even");
  if (is({"divisibleby"}) && integer != nullptr) {
    const std::int64_t by = given.number(0, "num", 0);
    if (by == 0) work.refuse("a division by 0");
    return *integer % by == 0;
  }
  if (is({"lower", "upper"})) return value.str() == cased(work, value.str(), name);
  if (is({"in"})) return is_in(work, value, given.get(0, "seq", Value()));
  const Value other = given.get(0, "other", Value());
  if (is({"eq", "equalto", "sameas"})) return value == other;
  if (is({"ne"})) return !(value == other);
  if (is({"gt", "greaterthan"})) return compare_values(work, value, other) > 0;
  if (is({"ge"})) return compare_values(work, value, other) >= 0;
  if (is({"lt", "lessthan"})) return compare_values(work, value, other) < 0;
  if (is({"le"})) return compare_values(work, value, other) <= 0;
  refuse_name(work, "test", name, known_tests, value);
}

bool has_method(const Value& value, std::string_view name) {
  static constexpr std::string_view
      of_text =
          " strip lstrip rstrip split startswith endswith replace upper lower title capitalize join find splitlines "
          "removeprefix removesuffix ",
      of_dict = " items keys values get ";
  const std::string word = " " + std::string(name) + " ";
  if (value.text()) return of_text.find(word) != std::string_view::npos;
  return value.dict() != nullptr && of_dict.find(word) != std::string_view::npos;
}

Value call_method(Work& work, const Value& value, const std::string& name, const Arguments& arguments) {
  const FilterArguments given(work, arguments);
  if (const Dict* dict = value.dict()) {
    work.add(8 * dict->size());
    if (name == "items") return items_of(value);
    List all;
    if (name == "keys" || name == "values") {
      for (const auto& [key, item] : *dict) all.push_back(name == "keys" ? Value(key) : item);
      return Value(std::move(all));
    }
    const Value* found = value.member(given.text(0, "key", ""));
    return found != nullptr ? *found : given.get(1, "default", Value());
  }
  const std::string& text = *value.text();
  work.add(text.size());
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return Value(strip(text, given.text(0, "chars", ""), name != "rstrip", name != "lstrip"));
  if (name == "split") return split_text(work, text, given);
  if (name == "startswith" || name == "endswith")
    return Value(any_affix(work, given.get(0, "prefix", Value()), name, [&](const std::string& affix) {
      return name == "startswith" ? text.starts_with(affix) : text.ends_with(affix);
    }));
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string affix = given.text(0, "prefix", "");
    if (name == "removeprefix" && text.starts_with(affix)) return Value(text.substr(affix.size()));
    if (name == "removesuffix" && text.ends_with(affix)) return Value(text.substr(0, text.size() - affix.size()));
    return value;
  }
  if (name == "replace")
    return Value(
        replaced(work, text, given.text(0, "old", ""), given.text(1, "new", ""), given.number(2, "count", -1)));
  if (name == "join")
    return Value(joined(work, given.get(0, "iterable", Value(List{})),
                        FilterArguments(work, {.positional = {value}, .named = {}})));
  if (name == "find") {
    const std::size_t found = text.find(given.text(0, "sub", ""));
    return Value(found == std::string::npos ? std::int64_t{-1} : characters(std::string_view(text).substr(0, found)));
  }
  if (name == "splitlines") {
    List lines;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      lines.emplace_back(text.substr(at, end - at));
      at = end + 1;
    }
    return Value(std::move(lines));
  }
  return Value(cased(work, text, name));
}

}  // namespace trireme::chat
