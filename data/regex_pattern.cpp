// Translates an expression for PCRE2, character by character, and refuses what it does not know.
#include "data/regex_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <vector>

#include "core/error.h"
#include "data/unicode.h"
#include "data/utf8.h"

namespace trireme {

namespace {

constexpr std::size_t kLongestExpression = 4096, kLongestTranslation = 1 << 20;
constexpr std::uint32_t kMostSteps = 1'000'000;  // of one match

std::string message_of_pcre2(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

class Translator {
 public:
  Translator(std::string_view expression, const std::string& where) : text_(expression), where_(where) {}

  std::string run() {
    if (text_.size() > kLongestExpression)
      refuse(fmt::format("a regular expression of {} bytes; expected at most {}", text_.size(), kLongestExpression));
    if (text_.empty()) refuse("an empty regular expression; expected one that matches something");
    if (valid_utf8_prefix(text_) < text_.size()) refuse("a regular expression that is not UTF-8");
    while (at_ < text_.size()) {
      item();
      if (out_.size() > kLongestTranslation) refuse("a regular expression with too many character classes");
    }
    if (!groups_.empty()) refuse("a group that does not end");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(ExitCode::data, "tokenizer", "{} is {}: {} at byte {}; not supported", where_, in_quotes(text_), what, at_);
  }
  bool follows(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  bool ignores_case() const { return !groups_.empty() && groups_.back(); }

  void item() {
    const char c = text_[at_];
    if (c == '\\') return escape(false);
    if (c == '[') return set();
    if (c == '(') return group();
    if (c == ')') {
      if (groups_.empty()) refuse("a ) without a (");
      groups_.pop_back();
    }
    if (c == '{') return count();
    if (c == '.') {
      out_ += "[^\\n]";
      ++at_;
      return;
    }
    if (c == '^' || c == '$') refuse(fmt::format("the anchor {}", c));
    literal();
  }

  void literal() {
    const std::size_t bytes = decode_utf8(text_, at_)->bytes;
    if (ignores_case() && bytes > 1) refuse("a letter beyond ASCII in a (?i: group");
    out_ += text_.substr(at_, bytes);
    at_ += bytes;
  }

  void group() {
    constexpr std::array<std::string_view, 8> openings = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "("};
    for (const std::string_view opening : openings) {
      if (!follows(opening) || (opening == "(" && (follows("(?") || follows("(*")))) continue;
      groups_.push_back(opening == "(?i:" || ignores_case());
      if (groups_.size() > 100) refuse("more than 100 nested groups");
      out_ += opening == "(" ? "(?:" : opening;
      at_ += opening.size();
      return;
    }
    refuse("a group of a kind that is not known");
  }

  /// {2}, {2,} or {2,5}. A + or ? behind it means one thing to Oniguruma and another to PCRE2.
  void count() {
    const std::size_t end = text_.find('}', at_);
    const std::string_view inside =
        end == std::string_view::npos ? std::string_view() : text_.substr(at_ + 1, end - at_ - 1);
    const bool digits = !inside.empty() && inside.find_first_not_of("0123456789,") == std::string_view::npos;
    if (!digits || inside.front() == ',' || inside.find(',') != inside.rfind(',') || inside.size() > 9)
      refuse("a { that begins no quantifier");
    if (end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '?'))
      refuse("a quantifier {} with + or ? behind it");
    out_ += text_.substr(at_, end + 1 - at_);
    at_ = end + 1;
  }

  void append_class(CharClass any_of, bool inverted, bool in_set) {
    if (ignores_case()) refuse("a character class in a (?i: group");
    const std::string ranges = pcre2_ranges(any_of, inverted);
    out_ += in_set ? ranges : "[" + ranges + "]";
  }

  void escape(bool in_set) {
    if (at_ + 1 >= text_.size()) refuse("a \\ at the end");
    const char c = text_[at_ + 1];
    const bool is_sign =
        c >= '!' && c <= '~' && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z');
    if (is_sign || c == ' ' || c == 'r' || c == 'n' || c == 't') {
      out_ += '\\';
      out_ += c;
      at_ += 2;
    } else if (c == 's' || c == 'S') {
      append_class(char_class::space, c == 'S', in_set);
      at_ += 2;
    } else if (c == 'd' || c == 'D') {
      append_class(*categories_named("Nd"), c == 'D', in_set);
      at_ += 2;
    } else if (c == 'p' || c == 'P') {
      property(c == 'P', in_set);
    } else {
      refuse(fmt::format("the escape \\{}", c));
    }
  }

  void property(bool inverted, bool in_set) {
    const std::size_t end = text_.find('}', at_);
    std::string_view name;
    if (text_.substr(at_ + 2).starts_with('{') && end != std::string_view::npos)
      name = text_.substr(at_ + 3, end - at_ - 3);
    const auto categories = categories_named(name);
    if (!categories) refuse("a property that is no general category");
    append_class(*categories, inverted, in_set);
    at_ = end + 1;
  }

  void set() {
    out_ += '[';
    ++at_;
    if (at_ < text_.size() && text_[at_] == '^') {
      out_ += '^';
      ++at_;
    }
    for (const std::size_t begin = at_;;) {
      if (at_ >= text_.size()) refuse("a [ that does not end");
      if (text_[at_] == ']' && at_ > begin) break;
      if (text_[at_] == ']' || text_[at_] == '[' || follows("&&")) refuse("a set within a set");
      if (text_[at_] == '\\') {
        escape(true);
      } else {
        literal();
      }
    }
    out_ += ']';
    ++at_;
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::string out_;
  std::vector<bool> groups_;  // that are open; whether case is ignored there
};

struct FreeMatchData {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

}  // namespace

struct RegexPattern::Compiled {
  std::string where, expression;
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    pcre2_code_free(code);
    pcre2_match_context_free(context);
  }
};

RegexPattern::RegexPattern(std::string_view expression, const std::string& where)
    : compiled_(std::make_unique<Compiled>()) {
  const std::string translated = Translator(expression, where).run();
  Compiled& c = *compiled_;
  c.where = where;
  c.expression = in_quotes(expression);
  int error = 0;
  PCRE2_SIZE at = 0;
  c.code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF, &error, &at,
                         nullptr);
  if (c.code == nullptr)
    fail(ExitCode::data, "tokenizer", "{} is {}: not a regular expression: {}", where, c.expression,
         message_of_pcre2(error));
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(c.code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0)
    fail(ExitCode::data, "tokenizer",
         "{} is {}, which also matches nothing; expected an expression that matches at least one character", where,
         c.expression);
  c.context = pcre2_match_context_create(nullptr);
  require(c.context != nullptr, "regular expression", "PCRE2 has no memory");
  pcre2_set_match_limit(c.context, kMostSteps);
  // This fails if the system forbids making code at run time. The expression is then interpreted: slower, but with the
  // same matches.
  pcre2_jit_compile(c.code, PCRE2_JIT_COMPLETE);
}

RegexPattern::~RegexPattern() = default;
RegexPattern::RegexPattern(RegexPattern&&) noexcept = default;

void RegexPattern::for_each_match(std::string_view text, const std::function<void(std::size_t, std::size_t)>& f) const {
  const std::unique_ptr<pcre2_match_data, FreeMatchData> match(pcre2_match_data_create(1, nullptr));
  require(match != nullptr, "regular expression", "PCRE2 has no memory");
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (std::size_t at = 0; at < text.size();) {
    // Without NO_UTF_CHECK every call would check the whole text again.
    const auto find = [&](std::uint32_t options) {
      return pcre2_match(compiled_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | options, match.get(),
                         compiled_->context);
    };
    int found = find(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = find(PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0)
      fail(ExitCode::data, "tokenizer", "{} is {}, which cannot be matched with this text at byte {}: {}",
           compiled_->where, compiled_->expression, at, message_of_pcre2(found));
    const std::size_t* ends = pcre2_get_ovector_pointer(match.get());
    f(ends[0], ends[1]);
    at = ends[1];
  }
}

}  // namespace trireme
