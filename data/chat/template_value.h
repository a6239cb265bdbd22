// The values of chat templates: those of Python that templates use. Lists and dictionaries are never changed after they
// are made, except the namespace of `{% set ns.x = .. %}`.
// Read next: data/chat/template_tree.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace trireme::chat {

class Value;
/// Of a list or a tuple.
using List = std::vector<Value>;
/// In the order of insertion.
using Dict = std::vector<std::pair<std::string, Value>>;

/// The arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  Dict named;
};
/// What a template can call.
using Function = std::function<Value(const Arguments&)>;

/// What a name without a value has: it is false and prints nothing.
struct Undefined {
  std::string name;
};
struct None {};

/// A value of a template, as Python has them.
class Value {
 public:
  using Namespace = std::shared_ptr<Dict>;  ///< can be written to
  /// Shared, as values are copied often.
  using Text = std::shared_ptr<const std::string>;
  /// What a value can be.
  using Held = std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, Namespace, std::shared_ptr<const Function>>;

  Value() : held_(None()) {}
  Value(Undefined u) : held_(std::move(u)) {}
  Value(bool b) : held_(b) {}
  Value(std::int64_t i) : held_(i) {}
  Value(double d) : held_(d) {}
  Value(std::string s) : held_(std::make_shared<const std::string>(std::move(s))) {}
  Value(const char* s) : Value(std::string(s)) {}
  Value(List list) : held_(std::make_shared<const List>(std::move(list))) {}
  Value(Dict dict) : held_(std::make_shared<const Dict>(std::move(dict))) {}
  Value(Function f) : held_(std::make_shared<const Function>(std::move(f))) {}
  /// What namespace() of a template makes.
  static Value make_namespace(Dict initial) {
    Value value;
    value.held_ = std::make_shared<Dict>(std::move(initial));
    return value;
  }
  /// A list that prints as a tuple.
  static Value tuple(List list) {
    Value value(std::move(list));
    value.tuple_ = true;
    return value;
  }
  /// Objects keep their order.
  static Value from_json(const nlohmann::ordered_json& json);

  /// Null, if the value is of another type.
  template <class T>
  const T* get() const {
    return std::get_if<T>(&held_);
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  /// Null, if it is none.
  const std::string* text() const {
    const auto* held = get<Text>();
    return held != nullptr ? held->get() : nullptr;
  }
  const List* list() const;          ///< null, if it is none
  const Dict* dict() const;          ///< also of a namespace
  Dict* writable() const;            ///< of a namespace
  const Function* function() const;  ///< null, if it is none
  bool is_number() const { return get<bool>() || get<std::int64_t>() || get<double>(); }
  /// A whole number, or a boolean as one; nothing for other values.
  std::optional<std::int64_t> whole() const;
  double number() const;                            ///< 0 unless is_number()
  const Value* member(std::string_view key) const;  ///< of a dictionary or namespace

  bool truth() const;        ///< as in `if`
  std::string str() const;   ///< as Python's str(): what {{ }} prints
  std::string repr() const;  ///< as Python's repr(): within lists
  const char* type() const;  ///< for messages: "a list"
  /// As Python's ==.
  friend bool operator==(const Value& a, const Value& b);

 private:
  Held held_;
  bool tuple_ = false;  // a list that prints with round brackets
};

/// As Python's json.dumps(ensure_ascii=False). `indent` below 0: on one line.
std::string to_json_text(const Value& value, int indent, int depth = 0);

// Text by characters, as Python counts it.
std::int64_t characters(std::string_view text);
/// The characters of a text.
std::vector<std::string> split_characters(std::string_view text);
/// Without the characters of `set` at its ends; an empty set: without white space.
std::string strip(std::string_view text, std::string_view set, bool left, bool right);
/// The words between white space.
std::vector<std::string> split_words(std::string_view text);

}  // namespace trireme::chat
