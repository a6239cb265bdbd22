#include "data/chat/template_render.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <optional>

#include "core/error.h"
#include "data/chat/template_filters.h"
#include "data/utf8.h"

namespace trireme::chat {

void Work::add(std::size_t bytes) {
  done_ += 1 + static_cast<std::int64_t>(bytes / 64);
  if (done_ > template_most_work) refuse("the template takes too many steps, or makes too much text");
}

void Work::refuse(const std::string& what) const {
  fail(ExitCode::data, "chat template", "{} line {}: {}", path_, line_, what);
}

namespace {

using Kind = Expression::Kind;

/// What a statement asks of the loop around it.
enum class Flow : std::uint8_t { on, leave, next };

std::int64_t power(Work& work, std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  if (exponent < 0 || exponent > 64) work.refuse(fmt::format("a power of {}; expected 0 to 64", exponent));
  for (std::int64_t i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(result, base, &result)) work.refuse("a number is too large");
  return result;
}

class Renderer {
 public:
  Renderer(std::string_view path, const Dict& variables, std::vector<Mark>* marks) : work_(path), marks_(marks) {
    scopes_.emplace_back();
    for (const auto& [name, value] : variables) set(name, value);
  }

  std::string run(const Block& block) {
    render(block);
    return std::move(output_);
  }

 private:
  // ---- names: a loop and a macro have a scope of their own ----------------------------------------------------------

  void set(const std::string& name, Value value) {
    Dict& scope = scopes_.back();
    for (auto& [key, held] : scope)
      if (key == name) {
        held = std::move(value);
        return;
      }
    scope.emplace_back(name, std::move(value));
  }
  Value find(const std::string& name) {
    for (std::size_t i = scopes_.size(); i-- > 0;)
      for (const auto& [key, value] : scopes_[i])
        if (key == name) return value;
    return built_in(name);
  }
  Value built_in(const std::string& name) {
    if (name == "raise_exception")
      return Value(Function([this](const Arguments& a) -> Value {
        work_.refuse(fmt::format(
            "the template refuses the conversation: {}; change its messages (roles and their order), or give "
            "another template",
            in_quotes(a.positional.empty() ? "" : a.positional[0].str())));
      }));
    if (name == "namespace" || name == "dict")
      return Value(Function([name](const Arguments& a) {
        Dict initial = a.named;
        if (!a.positional.empty() && a.positional[0].dict() != nullptr)
          initial.insert(initial.begin(), a.positional[0].dict()->begin(), a.positional[0].dict()->end());
        return name == "dict" ? Value(std::move(initial)) : Value::make_namespace(std::move(initial));
      }));
    if (name == "range") return Value(Function([this](const Arguments& a) { return range(a); }));
    if (name == "strftime_now") return Value(Function([this](const Arguments& a) { return date(a); }));
    return Value(Undefined{name});
  }
  Value range(const Arguments& a) {
    std::vector<std::int64_t> bounds;
    for (const Value& v : a.positional) {
      if (v.get<std::int64_t>() == nullptr)
        work_.refuse(fmt::format("range() of {}; expected whole numbers", v.type()));
      bounds.push_back(*v.get<std::int64_t>());
    }
    if (bounds.empty() || bounds.size() > 3) work_.refuse("range() without one to three numbers");
    const std::int64_t begin = bounds.size() == 1 ? 0 : bounds[0], end = bounds.size() == 1 ? bounds[0] : bounds[1];
    const std::int64_t step = bounds.size() == 3 ? bounds[2] : 1;
    if (step == 0) work_.refuse("range() with steps of 0");
    List numbers;
    for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
      work_.add();
      numbers.emplace_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return Value(std::move(numbers));
  }
  Value date(const Arguments& a) {
    const std::string format = a.positional.empty() ? "" : a.positional[0].str();
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    std::string text(256, '\0');
    if (format.size() > 64) work_.refuse("strftime_now() with a long format");
    text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
    return Value(std::move(text));
  }

  // ---- statements -----------------------------------------------------------------------------------------------

  void write(const std::string& text) {
    work_.add(text.size());
    if (output_.size() + text.size() > template_most_output) work_.refuse("the template makes too much text");
    output_ += text;
  }

  Flow render(const Block& block) {
    for (const Statement& s : block) {
      work_.at(s.line);
      work_.add();
      const Flow flow = render(s);
      if (flow != Flow::on) return flow;
    }
    return Flow::on;
  }
  Flow render(const Statement& s) {
    switch (s.kind) {
      case Statement::Kind::text:
        write(s.text);
        return Flow::on;
      case Statement::Kind::print:
        write(evaluate(*s.expression).str());
        return Flow::on;
      case Statement::Kind::choice:
        return render(evaluate(*s.expression).truth() ? s.body : s.otherwise);
      case Statement::Kind::group:
        return marked(s);
      case Statement::Kind::loop:
        loop(s);
        return Flow::on;
      case Statement::Kind::assign:
        assign(s);
        return Flow::on;
      case Statement::Kind::macro:
        set(s.text, Value(Function([this, &s](const Arguments& a) { return call_macro(s, a); })));
        return Flow::on;
      case Statement::Kind::leave:
        return Flow::leave;
      case Statement::Kind::next:
        return Flow::next;
    }
    return Flow::on;
  }

  /// {% generation %}. Within another one it adds nothing.
  Flow marked(const Statement& s) {
    if (marks_ == nullptr || in_mark_) return render(s.body);
    if (captures_ > 0)
      work_.refuse(
          "{% generation %} in a macro, or in the text of {% set %}, whose place in the conversation is not known; "
          "expected it around what the template writes itself; put it there, or give another template");
    in_mark_ = true;
    const std::size_t begin = output_.size();
    const Flow flow = render(s.body);
    in_mark_ = false;
    if (output_.size() > begin) marks_->push_back({begin, output_.size()});
    return flow;
  }

  void assign(const Statement& s) {
    Value value;
    if (s.expression) {
      value = evaluate(*s.expression);
    } else {
      value = Value(captured([&] { render(s.body); }));
    }
    assign_all(s, value);
  }
  void assign_all(const Statement& s, const Value& value) {
    if (s.targets.size() == 1) return assign_to(s.targets[0], value);
    if (value.list() == nullptr || value.list()->size() != s.targets.size())
      work_.refuse(fmt::format("{} for {} names; expected a list of as many", value.type(), s.targets.size()));
    for (std::size_t i = 0; i < s.targets.size(); ++i) assign_to(s.targets[i], (*value.list())[i]);
  }
  void assign_to(const std::string& target, const Value& value) {
    const std::size_t dot = target.find('.');
    if (dot == std::string::npos) return set(target, value);
    const Value held = find(target.substr(0, dot));
    Dict* space = held.writable();
    if (space == nullptr)
      work_.refuse(fmt::format("{} is {}; expected a namespace()", in_quotes(target.substr(0, dot)), held.type()));
    const std::string name = target.substr(dot + 1);
    for (auto& [key, old] : *space)
      if (key == name) {
        old = value;
        return;
      }
    space->emplace_back(name, value);
  }
  template <class F>
  std::string captured(const F& f) {
    std::string outer = std::exchange(output_, {});
    ++captures_;
    f();
    --captures_;
    return std::exchange(output_, std::move(outer));
  }

  /// While it exists, names are set in a new scope.
  struct Scope {
    explicit Scope(Renderer& r) : renderer(r) { r.scopes_.emplace_back(); }
    ~Scope() { renderer.scopes_.pop_back(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    Renderer& renderer;
  };

  void loop(const Statement& s) {
    List all = elements(work_, evaluate(*s.expression));
    if (s.condition) {
      List kept;
      for (Value& item : all) {
        const Scope scope(*this);
        assign_all(s, item);
        if (evaluate(*s.condition).truth()) kept.push_back(std::move(item));
      }
      all = std::move(kept);
    }
    if (all.empty()) {
      render(s.otherwise);
      return;
    }
    const auto count = static_cast<std::int64_t>(all.size());
    for (std::int64_t i = 0; i < count; ++i) {
      const Scope scope(*this);
      const auto at = static_cast<std::size_t>(i);
      assign_all(s, all[at]);
      set("loop", Value(Dict{{"index", Value(i + 1)},
                             {"index0", Value(i)},
                             {"revindex", Value(count - i)},
                             {"revindex0", Value(count - i - 1)},
                             {"first", Value(i == 0)},
                             {"last", Value(i + 1 == count)},
                             {"length", Value(count)},
                             {"previtem", i > 0 ? all[at - 1] : Value(Undefined{"previtem"})},
                             {"nextitem", i + 1 < count ? all[at + 1] : Value(Undefined{"nextitem"})}}));
      if (render(s.body) == Flow::leave) break;
    }
  }

  Value call_macro(const Statement& s, const Arguments& a) {
    if (++calls_ > 32) work_.refuse("macros that call each other more than 32 deep");
    std::vector<Dict> outer;  // a macro sees the names of the template, not those of its caller's loops
    outer.swap(scopes_);
    scopes_.push_back(outer.front());
    scopes_.emplace_back();
    if (a.positional.size() > s.parameters.size())
      work_.refuse(fmt::format("the macro {} got {} arguments; expected at most {}", in_quotes(s.text),
                               a.positional.size(), s.parameters.size()));
    for (std::size_t i = 0; i < s.parameters.size(); ++i) {
      const Parameter& p = s.parameters[i];
      Value value = i < a.positional.size() ? a.positional[i]
                    : p.otherwise           ? evaluate(*p.otherwise)
                                            : Value(Undefined{p.name});
      for (const auto& [name, given] : a.named)
        if (name == p.name) value = given;
      set(p.name, std::move(value));
    }
    std::string text = captured([&] { render(s.body); });
    scopes_.swap(outer);
    --calls_;
    return Value(std::move(text));
  }

  // ---- expressions ----------------------------------------------------------------------------------------------

  Value evaluate(const Expression& e) {
    work_.at(e.line);
    work_.add();
    const auto part = [&](std::size_t i) { return evaluate(*e.parts[i]); };
    switch (e.kind) {
      case Kind::literal:
        return e.value;
      case Kind::name:
        return find(e.text);
      case Kind::list: {
        List list;
        for (const ExpressionPtr& item : e.parts) list.push_back(evaluate(*item));
        return e.text == "tuple" ? Value::tuple(std::move(list)) : Value(std::move(list));
      }
      case Kind::dict:
        return dictionary(e);
      case Kind::attribute:
        return attribute(part(0), e.text);
      case Kind::item:
        return item(part(0), part(1));
      case Kind::slice:
        return sliced(e);
      case Kind::call:
        return call(e);
      case Kind::filter:
        return apply_filter(work_, e.text, part(0), arguments(e.arguments));
      case Kind::test:
        return Value(apply_test(work_, e.text, part(0), arguments(e.arguments)));
      case Kind::negation:
        return Value(!part(0).truth());
      case Kind::minus:
        return minus(part(0));
      case Kind::conjunction: {
        Value left = part(0);
        return left.truth() ? part(1) : left;
      }
      case Kind::disjunction: {
        Value left = part(0);
        return left.truth() ? left : part(1);
      }
      case Kind::condition:
        if (part(0).truth()) return part(1);
        return e.parts[2] ? part(2) : Value(Undefined{"the value of an 'if' without 'else'"});
      case Kind::binary:
        return binary(e.text, part(0), part(1));
      case Kind::compare:
        return compared(e);
    }
    return {};
  }

  Arguments arguments(const CallArguments& given) {
    Arguments a;
    for (const ExpressionPtr& e : given.positional) a.positional.push_back(evaluate(*e));
    for (const auto& [name, e] : given.named) a.named.emplace_back(name, evaluate(*e));
    return a;
  }
  Value dictionary(const Expression& e) {
    Dict dict;
    for (std::size_t i = 0; i < e.parts.size(); i += 2) {
      const Value key = evaluate(*e.parts[i]);
      Value value = evaluate(*e.parts[i + 1]);
      if (key.text() == nullptr) work_.refuse(fmt::format("{} as a key; expected a text", key.type()));
      const auto same = std::find_if(dict.begin(), dict.end(), [&](const auto& p) { return p.first == *key.text(); });
      if (same != dict.end()) {
        same->second = std::move(value);
      } else {
        dict.emplace_back(*key.text(), std::move(value));
      }
    }
    return Value(std::move(dict));
  }
  void require_defined(const Value& value, const std::string& member) const {
    if (const auto* undefined = value.get<Undefined>())
      work_.refuse(fmt::format("{} is undefined, and has no member {}", in_quotes(undefined->name), in_quotes(member)));
  }
  Value attribute(const Value& value, const std::string& name) {
    require_defined(value, name);
    if (has_method(value, name) && value.writable() == nullptr) {
      Work& work = work_;
      return Value(Function([value, name, &work](const Arguments& a) { return call_method(work, value, name, a); }));
    }
    const Value* member = value.member(name);
    return member != nullptr ? *member : Value(Undefined{name});
  }
  Value item(const Value& value, const Value& key) {
    require_defined(value, key.str());
    if (key.text()) {
      const Value* member = value.member(*key.text());
      return member != nullptr ? *member : Value(Undefined{*key.text()});
    }
    if (key.get<std::int64_t>() == nullptr) return Value(Undefined{key.str()});
    std::int64_t index = *key.get<std::int64_t>();
    const List all = value.dict() ? List() : elements(work_, value);
    if (index < 0) index += static_cast<std::int64_t>(all.size());
    if (index < 0 || index >= static_cast<std::int64_t>(all.size())) return Value(Undefined{key.str()});
    return all[static_cast<std::size_t>(index)];
  }
  Value sliced(const Expression& e) {
    const Value value = evaluate(*e.parts[0]);
    require_defined(value, "[:]");
    const auto bound = [&](std::size_t i) -> std::optional<std::int64_t> {
      if (!e.parts[i]) return std::nullopt;
      const Value v = evaluate(*e.parts[i]);
      if (v.is_none()) return std::nullopt;
      if (v.get<std::int64_t>() == nullptr) work_.refuse(fmt::format("a slice with {}; expected a number", v.type()));
      return std::clamp<std::int64_t>(*v.get<std::int64_t>(), -(std::int64_t{1} << 40), std::int64_t{1} << 40);
    };
    const List all = elements(work_, value);
    const auto count = static_cast<std::int64_t>(all.size());
    const std::int64_t step = bound(3).value_or(1);
    if (step == 0) work_.refuse("a slice with steps of 0");
    const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
    const auto place = [&](std::optional<std::int64_t> given, std::int64_t otherwise) {
      if (!given) return otherwise;
      return std::clamp(*given < 0 ? *given + count : *given, low, high);
    };
    const std::int64_t begin = place(bound(1), step > 0 ? low : high), end = place(bound(2), step > 0 ? high : low);
    List part;
    for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step)
      part.push_back(all[static_cast<std::size_t>(i)]);
    if (!value.text()) return Value(std::move(part));
    std::string text;
    for (const Value& c : part) text += *c.text();
    return Value(std::move(text));
  }
  Value call(const Expression& e) {
    const Value callee = evaluate(*e.parts[0]);
    if (callee.function() == nullptr) {
      const auto* undefined = callee.get<Undefined>();
      work_.at(e.line);
      work_.refuse(undefined ? fmt::format("{} is not known; expected a function, a macro or a method",
                                           in_quotes(undefined->name))
                             : fmt::format("{} is called; expected a function", callee.type()));
    }
    Arguments a = arguments(e.arguments);
    work_.at(e.line);
    return (*callee.function())(a);
  }
  Value minus(const Value& value) {
    if (const auto* i = value.get<std::int64_t>()) return Value(*i == INT64_MIN ? *i : -*i);
    if (!value.is_number()) work_.refuse(fmt::format("- {}; expected a number", value.type()));
    return Value(-value.number());
  }
  Value binary(const std::string& sign, const Value& a, const Value& b) {
    if (sign == "~") return concatenated(a.str(), b.str());
    if (sign == "+" && a.text() && b.text()) return concatenated(*a.text(), *b.text());
    if (sign == "+" && a.list() && b.list()) {
      List all = *a.list();
      all.insert(all.end(), b.list()->begin(), b.list()->end());
      work_.add(64 * all.size());
      return Value(std::move(all));
    }
    if (sign == "*" && a.text() && b.get<std::int64_t>()) return repeated(*a.text(), *b.get<std::int64_t>());
    if (!a.is_number() || !b.is_number())
      work_.refuse(fmt::format("{} {} {}; expected two numbers, texts or lists", a.type(), sign, b.type()));
    if (a.whole() && b.whole() && sign != "/") return integers(sign, *a.whole(), *b.whole());
    const double x = a.number(), y = b.number();
    if ((sign == "/" || sign == "//" || sign == "%") && y == 0) work_.refuse("a division by 0");
    if (sign == "+") return Value(x + y);
    if (sign == "-") return Value(x - y);
    if (sign == "*") return Value(x * y);
    if (sign == "/") return Value(x / y);
    if (sign == "//") return Value(std::floor(x / y));
    if (sign == "%") return Value(x - y * std::floor(x / y));
    return Value(std::pow(x, y));
  }
  Value integers(const std::string& sign, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    if (sign == "**") return Value(power(work_, a, b));
    if (sign == "//" || sign == "%") {
      if (b == 0) work_.refuse("a division by 0");
      if (b == -1) return sign == "%" ? Value(std::int64_t{0}) : minus(Value(a));
      const bool down = a % b != 0 && (a < 0) != (b < 0);
      return Value(sign == "//" ? a / b - (down ? 1 : 0) : a % b + (down ? b : 0));
    }
    const bool overflow = sign == "+"   ? __builtin_add_overflow(a, b, &result)
                          : sign == "-" ? __builtin_sub_overflow(a, b, &result)
                                        : __builtin_mul_overflow(a, b, &result);
    if (overflow) work_.refuse("a number is too large");
    return Value(result);
  }
  Value concatenated(const std::string& a, const std::string& b) {
    work_.add(a.size() + b.size());
    return Value(a + b);
  }
  Value repeated(const std::string& text, std::int64_t times) {
    if (times > 0 && text.size() > template_most_output / static_cast<std::size_t>(times))
      work_.refuse("the template makes too much text");
    std::string all;
    for (std::int64_t i = 0; i < times; ++i) {
      work_.add(text.size());
      all += text;
    }
    return Value(std::move(all));
  }
  Value compared(const Expression& e) {
    Value left = evaluate(*e.parts[0]);
    for (std::size_t i = 0; i < e.operators.size(); ++i) {
      Value right = evaluate(*e.parts[i + 1]);
      const std::string& sign = e.operators[i];
      const bool holds = sign == "=="       ? left == right
                         : sign == "!="     ? !(left == right)
                         : sign == "in"     ? is_in(work_, left, right)
                         : sign == "not in" ? !is_in(work_, left, right)
                         : sign == "<"      ? compare_values(work_, left, right) < 0
                         : sign == "<="     ? compare_values(work_, left, right) <= 0
                         : sign == ">"      ? compare_values(work_, left, right) > 0
                                            : compare_values(work_, left, right) >= 0;
      if (!holds) return Value(false);
      left = std::move(right);
    }
    return Value(true);
  }

  Work work_;
  std::vector<Dict> scopes_;
  std::string output_;
  std::vector<Mark>* marks_;  // null: not wanted
  bool in_mark_ = false;
  int calls_ = 0, captures_ = 0;
};

}  // namespace

std::string render_template(const Block& block, std::string_view path, const Dict& variables,
                            std::vector<Mark>* marks) {
  return Renderer(path, variables, marks).run(block);
}

}  // namespace trireme::chat
