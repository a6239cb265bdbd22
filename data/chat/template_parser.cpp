#include "data/chat/template_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "core/error.h"
#include "data/chat/template_lexer.h"
#include "data/utf8.h"

namespace trireme::chat {
namespace {

using Kind = Expression::Kind;

class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view path) : tokens_(std::move(tokens)), path_(path) {}

  Block run() {
    Block block = statements({});
    if (now().kind != Token::Kind::end) refuse("the end of the template");
    return block;
  }

 private:
  /// While it exists, one level of nesting more is in use.
  struct Level {
    explicit Level(Parser& p) : parser(p) {
      if (++parser.depth_ > template_most_depth)
        fail(ExitCode::data, "chat template", "{} line {}: nested deeper than {} levels", parser.path_,
             parser.now().line, template_most_depth);
    }
    ~Level() { --parser.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Parser& parser;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[noreturn]] void refuse(std::string_view expected) const {
    const Token& t = now();
    const std::string got = t.kind == Token::Kind::end           ? "the end"
                            : t.kind == Token::Kind::end_tag     ? "'%}'"
                            : t.kind == Token::Kind::end_print   ? "'}}'"
                            : t.kind == Token::Kind::begin_tag   ? "a tag"
                            : t.kind == Token::Kind::begin_print ? "'{{'"
                                                                 : in_quotes(t.text);
    fail(ExitCode::data, "chat template", "{} line {}: expected {}, got {}", path_, t.line, expected, got);
  }
  bool is_symbol(std::string_view s) const { return now().kind == Token::Kind::symbol && now().text == s; }
  bool is_name(std::string_view s) const { return now().kind == Token::Kind::name && now().text == s; }
  bool take_symbol(std::string_view s) { return is_symbol(s) && (++at_, true); }
  bool take_name(std::string_view s) { return is_name(s) && (++at_, true); }
  void need_symbol(std::string_view s) {
    if (!take_symbol(s)) refuse(fmt::format("'{}'", s));
  }
  void need_end_of_tag() {
    if (now().kind != Token::Kind::end_tag) refuse("'%}'");
    ++at_;
  }
  std::string need_name() {
    if (now().kind != Token::Kind::name) refuse("a name");
    return tokens_[at_++].text;
  }

  ExpressionPtr make(Kind kind, int line, std::vector<ExpressionPtr> parts = {}, std::string text = {}) const {
    auto e = std::make_unique<Expression>();
    e->kind = kind;
    e->line = line;
    e->text = std::move(text);
    e->parts = std::move(parts);
    return e;
  }
  template <class... E>
  ExpressionPtr join(Kind kind, int line, std::string text, E... parts) const {
    std::vector<ExpressionPtr> all;
    (all.push_back(std::move(parts)), ...);
    return make(kind, line, std::move(all), std::move(text));
  }

  // ---- statements -----------------------------------------------------------------------------------------------

  /// Up to a tag that begins with one of `ends`, which is not taken.
  Block statements(const std::vector<std::string_view>& ends) {
    const Level level(*this);
    Block block;
    while (now().kind != Token::Kind::end) {
      if (now().kind == Token::Kind::text) {
        block.push_back({.kind = Statement::Kind::text, .line = now().line, .text = now().text});
        ++at_;
      } else if (now().kind == Token::Kind::begin_print) {
        const int line = now().line;
        ++at_;
        block.push_back({.kind = Statement::Kind::print, .line = line, .expression = tuple_or_expression()});
        if (now().kind != Token::Kind::end_print) refuse("'}}'");
        ++at_;
      } else {
        if (std::find(ends.begin(), ends.end(), after().text) != ends.end()) return block;
        ++at_;  // begin_tag
        block.push_back(statement());
      }
    }
    if (!ends.empty()) refuse(fmt::format("'{{% {} %}}'", ends.back()));
    return block;
  }
  /// The tag `name`, which ends a statement.
  void end_tag(std::string_view name) {
    ++at_;  // begin_tag
    if (!take_name(name)) refuse(fmt::format("'{}'", name));
    need_end_of_tag();
  }

  Statement statement() {
    const int line = now().line;
    const std::string word = need_name();
    if (word == "for") return loop(line);
    if (word == "if") return choice(line);
    if (word == "set") return assignment(line);
    if (word == "macro") return macro(line);
    if (word == "break" || word == "continue") {
      if (loops_ == 0) {
        --at_;
        refuse("a loop around 'break' and 'continue'");
      }
      need_end_of_tag();
      return {.kind = word == "break" ? Statement::Kind::leave : Statement::Kind::next, .line = line};
    }
    if (word == "generation") {
      need_end_of_tag();
      Statement s{.kind = Statement::Kind::group, .line = line, .body = statements({"endgeneration"})};
      end_tag("endgeneration");
      return s;
    }
    --at_;
    refuse("'for', 'if', 'set', 'macro' or another known tag");
  }

  Statement loop(int line) {
    Statement s{.kind = Statement::Kind::loop, .line = line};
    do s.targets.push_back(need_name());
    while (take_symbol(","));
    if (!take_name("in")) refuse("'in'");
    s.expression = disjunction();
    if (take_name("if")) s.condition = expression();
    need_end_of_tag();
    ++loops_;
    s.body = statements({"else", "endfor"});
    --loops_;
    if (after().text == "else") {
      end_tag("else");
      s.otherwise = statements({"endfor"});
    }
    end_tag("endfor");
    return s;
  }

  Statement choice(int line) {
    const Level level(*this);
    Statement s{.kind = Statement::Kind::choice, .line = line, .expression = tuple_or_expression()};
    need_end_of_tag();
    s.body = statements({"elif", "else", "endif"});
    if (after().text == "elif") {
      ++at_;  // begin_tag
      const int elif_line = now().line;
      ++at_;
      s.otherwise.push_back(choice(elif_line));  // takes the endif
      return s;
    }
    if (after().text == "else") {
      end_tag("else");
      s.otherwise = statements({"endif"});
    }
    end_tag("endif");
    return s;
  }

  Statement assignment(int line) {
    Statement s{.kind = Statement::Kind::assign, .line = line};
    do {
      std::string target = need_name();
      if (take_symbol(".")) target += "." + need_name();
      s.targets.push_back(target);
    } while (take_symbol(","));
    if (take_symbol("=")) {
      s.expression = tuple_or_expression();
      need_end_of_tag();
      return s;
    }
    need_end_of_tag();
    s.body = statements({"endset"});
    end_tag("endset");
    return s;
  }

  Statement macro(int line) {
    Statement s{.kind = Statement::Kind::macro, .line = line, .text = need_name()};
    need_symbol("(");
    while (!take_symbol(")")) {
      if (!s.parameters.empty()) need_symbol(",");
      Parameter p{.name = need_name(), .otherwise = nullptr};
      if (take_symbol("=")) p.otherwise = expression();
      s.parameters.push_back(std::move(p));
    }
    need_end_of_tag();
    const int loops = std::exchange(loops_, 0);
    s.body = statements({"endmacro"});
    loops_ = loops;
    end_tag("endmacro");
    return s;
  }

  // ---- expressions, the weakest operator first --------------------------------------------------------------------

  ExpressionPtr tuple_or_expression() {
    const int line = now().line;
    ExpressionPtr first = expression();
    if (!is_symbol(",")) return first;
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(first));
    while (take_symbol(",")) {
      if (now().kind == Token::Kind::end_tag || now().kind == Token::Kind::end_print || is_symbol(")")) break;
      parts.push_back(expression());
    }
    return make(Kind::list, line, std::move(parts), "tuple");
  }

  ExpressionPtr expression() {
    const Level level(*this);
    const int line = now().line;
    ExpressionPtr value = disjunction();
    while (take_name("if")) {
      ExpressionPtr condition = disjunction(), otherwise = take_name("else") ? expression() : nullptr;
      value = join(Kind::condition, line, "", std::move(condition), std::move(value), std::move(otherwise));
    }
    return value;
  }
  template <class Next>
  ExpressionPtr chain(std::string_view word, Kind kind, const Next& next) {
    ExpressionPtr left = next();
    while (is_name(word)) {
      const int line = tokens_[at_++].line;
      left = join(kind, line, "", std::move(left), next());
    }
    return left;
  }
  ExpressionPtr disjunction() {
    return chain("or", Kind::disjunction, [&] { return chain("and", Kind::conjunction, [&] { return negation(); }); });
  }
  ExpressionPtr negation() {
    const Level level(*this);
    const int line = now().line;
    if (take_name("not")) return join(Kind::negation, line, "", negation());
    return comparison();
  }
  std::optional<std::string> comparison_sign() {
    static constexpr std::array<std::string_view, 6> signs = {"==", "!=", "<=", ">=", "<", ">"};
    for (const std::string_view sign : signs)
      if (take_symbol(sign)) return std::string(sign);
    if (take_name("in")) return "in";
    if (is_name("not") && after().kind == Token::Kind::name && after().text == "in") {
      at_ += 2;
      return "not in";
    }
    return std::nullopt;
  }
  ExpressionPtr comparison() {
    const int line = now().line;
    ExpressionPtr left = sum();
    std::optional<std::string> sign = comparison_sign();
    if (!sign) return left;
    ExpressionPtr all = join(Kind::compare, line, "", std::move(left));
    while (sign) {
      all->operators.push_back(*sign);
      all->parts.push_back(sum());
      sign = comparison_sign();
    }
    return all;
  }
  template <class Next>
  ExpressionPtr chain(const std::vector<std::string_view>& signs, const Next& next) {
    ExpressionPtr left = next();
    int operations = 0;
    while (now().kind == Token::Kind::symbol && std::find(signs.begin(), signs.end(), now().text) != signs.end()) {
      if (++operations > 1000) refuse("fewer operations in one expression");
      const Token sign = tokens_[at_++];
      left = join(Kind::binary, sign.line, sign.text, std::move(left), next());
    }
    return left;
  }
  ExpressionPtr sum() {
    return chain({"+", "-"}, [&] { return chain({"~"}, [&] { return product(); }); });
  }
  ExpressionPtr product() {
    return chain({"*", "/", "//", "%"}, [&] { return chain({"**"}, [&] { return unary(true); }); });
  }
  ExpressionPtr unary(bool filters) {
    const Level level(*this);
    const int line = now().line;
    ExpressionPtr value;
    if (take_symbol("-")) {
      value = join(Kind::minus, line, "", unary(false));
    } else if (take_symbol("+")) {
      value = unary(false);
    } else {
      value = primary();
    }
    return with_filters(with_suffixes(std::move(value)), filters);
  }

  ExpressionPtr literal(int line, Value value) const {
    ExpressionPtr e = make(Kind::literal, line);
    e->value = std::move(value);
    return e;
  }
  ExpressionPtr primary() {
    const Token token = now();
    switch (token.kind) {
      case Token::Kind::name:
        ++at_;
        return named(token);
      case Token::Kind::number:
        ++at_;
        return number(token);
      case Token::Kind::string: {
        std::string text;
        while (now().kind == Token::Kind::string) text += tokens_[at_++].text;
        return literal(token.line, Value(std::move(text)));
      }
      default:
        break;
    }
    if (take_symbol("(")) {
      if (take_symbol(")")) return make(Kind::list, token.line, {}, "tuple");
      ExpressionPtr value = tuple_or_expression();
      need_symbol(")");
      return value;
    }
    if (take_symbol("[")) {
      std::vector<ExpressionPtr> parts;
      while (!take_symbol("]")) {
        if (!parts.empty()) need_symbol(",");
        if (!parts.empty() && take_symbol("]")) break;
        parts.push_back(expression());
      }
      return make(Kind::list, token.line, std::move(parts));
    }
    if (take_symbol("{")) {
      std::vector<ExpressionPtr> parts;
      while (!take_symbol("}")) {
        if (!parts.empty()) need_symbol(",");
        if (!parts.empty() && take_symbol("}")) break;
        parts.push_back(expression());
        need_symbol(":");
        parts.push_back(expression());
      }
      return make(Kind::dict, token.line, std::move(parts));
    }
    refuse("an expression");
  }
  ExpressionPtr named(const Token& token) const {
    if (token.text == "true" || token.text == "True") return literal(token.line, Value(true));
    if (token.text == "false" || token.text == "False") return literal(token.line, Value(false));
    if (token.text == "none" || token.text == "None") return literal(token.line, Value());
    return make(Kind::name, token.line, {}, token.text);
  }
  ExpressionPtr number(const Token& token) const {
    const char *begin = token.text.data(), *end = begin + token.text.size();
    if (token.text.find('.') != std::string::npos) return literal(token.line, Value(std::stod(token.text)));
    std::int64_t value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc())
      fail(ExitCode::data, "chat template", "{} line {}: the number {} is too large", path_, token.line,
           in_quotes(token.text));
    return literal(token.line, Value(value));
  }

  ExpressionPtr with_suffixes(ExpressionPtr value) {
    for (int count = 0;; ++count) {
      if (count > 1000) refuse("fewer members of members");
      const int line = now().line;
      if (take_symbol(".")) {
        if (now().kind == Token::Kind::number) {
          value = join(Kind::item, line, "", std::move(value), number(tokens_[at_++]));
        } else {
          value = join(Kind::attribute, line, need_name(), std::move(value));
        }
      } else if (take_symbol("[")) {
        value = subscript(line, std::move(value));
      } else if (is_symbol("(")) {
        value = join(Kind::call, line, "", std::move(value));
        value->arguments = call_arguments();
      } else {
        return value;
      }
    }
  }
  ExpressionPtr subscript(int line, ExpressionPtr value) {
    std::vector<ExpressionPtr> bounds(3);
    int colons = 0;
    while (!is_symbol("]")) {
      if (take_symbol(":")) {
        if (++colons > 2) refuse("']'");
      } else {
        if (bounds[static_cast<std::size_t>(colons)]) refuse("':' or ']'");
        bounds[static_cast<std::size_t>(colons)] = expression();
      }
    }
    need_symbol("]");
    if (colons == 0 && !bounds[0]) {
      --at_;
      refuse("an index");
    }
    if (colons == 0) return join(Kind::item, line, "", std::move(value), std::move(bounds[0]));
    return join(Kind::slice, line, "", std::move(value), std::move(bounds[0]), std::move(bounds[1]),
                std::move(bounds[2]));
  }
  CallArguments call_arguments() {
    CallArguments arguments;
    need_symbol("(");
    bool first = true;
    while (!take_symbol(")")) {
      if (!first) need_symbol(",");
      if (!first && take_symbol(")")) break;
      first = false;
      if (now().kind == Token::Kind::name && after().kind == Token::Kind::symbol && after().text == "=") {
        std::string name = need_name();
        ++at_;
        arguments.named.emplace_back(std::move(name), expression());
      } else {
        arguments.positional.push_back(expression());
      }
    }
    return arguments;
  }
  ExpressionPtr with_filters(ExpressionPtr value, bool filters) {
    for (int count = 0;; ++count) {
      if (count > 1000) refuse("fewer filters");
      const int line = now().line;
      if (filters && take_symbol("|")) {
        value = join(Kind::filter, line, need_name(), std::move(value));
        if (is_symbol("(")) value->arguments = call_arguments();
      } else if (filters && take_name("is")) {
        value = test(line, std::move(value));
      } else if (filters && is_symbol("(")) {
        value = join(Kind::call, line, "", std::move(value));
        value->arguments = call_arguments();
      } else {
        return value;
      }
    }
  }
  ExpressionPtr test(int line, ExpressionPtr value) {
    const bool negated = take_name("not");
    ExpressionPtr result = join(Kind::test, line, need_name(), std::move(value));
    const bool argument = now().kind == Token::Kind::string || now().kind == Token::Kind::number || is_symbol("[") ||
                          is_symbol("{") ||
                          (now().kind == Token::Kind::name && !is_name("else") && !is_name("or") && !is_name("and") &&
                           !is_name("if") && !is_name("is") && !is_name("not") && !is_name("in"));
    if (is_symbol("(")) {
      result->arguments = call_arguments();
    } else if (argument) {
      result->arguments.positional.push_back(with_suffixes(primary()));
    }
    return negated ? join(Kind::negation, line, "", std::move(result)) : std::move(result);
  }

  std::vector<Token> tokens_;
  std::string_view path_;
  std::size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Block parse_template(std::string_view text, std::string_view path) { return Parser(tokens_of(text, path), path).run(); }

}  // namespace trireme::chat
