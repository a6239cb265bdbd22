// The loops of data/word_patterns.h against their regular expressions, the translation of regular expressions, and
// Unicode's properties and normal forms.
#include "data/word_patterns.h"

#include <doctest/doctest.h>

#include <fmt/format.h>

#include "data/normal_form.h"
#include "data/regex_pattern.h"
#include "helpers.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

using Texts = std::vector<std::string>;

Texts words_by_loop(WordPattern pattern, std::string_view text) {
  Texts words;
  for_each_word(pattern, text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Texts matches_of(const RegexPattern& pattern, std::string_view text) {
  Texts matches;
  pattern.for_each_match(text, [&](std::size_t a, std::size_t b) { matches.emplace_back(text.substr(a, b - a)); });
  return matches;
}

/// Characters of all classes that the patterns tell apart, with many meetings of them.
std::string pattern_text(std::mt19937_64& random, int count) {
  const std::vector<std::string> parts = {
      "a",          "b",          "A",          "Z",          "s",      "S",      "'",      "'s",     "'S",
      "'LL",        "'ve",        "'\u017F",    "\u01C5",     "\u02B0", "\u4E2D", "\u0301", "\u0E31", " ",
      "  ",         "\t",         "\n",         "\r\n",       "\u00A0", "\u3000", "\u2028", "1",      "23",
      "\u0663",     "\u00BD",     "\u2167",     ".",          "//",     "/",      "!?",     "\u20AC", "\U0001F600",
      "\U00010D4A", "\U00011DE0", "\U0002EBF0", "\U0001DB00", "\u200B", "\u0085", "\uE000", "re",     "'re"};
  std::string text;
  for (int i = 0; i < count; ++i) text += parts[random() % parts.size()];
  return text;
}

}  // namespace

TEST_CASE("the loops cut as their regular expressions do") {
  std::mt19937_64 random(21);
  for (const WordPattern pattern :
       {WordPattern::gpt2, WordPattern::llama3, WordPattern::cl100k, WordPattern::qwen2, WordPattern::o200k}) {
    std::string expression(regular_expression(pattern));
    CHECK(known_pattern(expression) == pattern);
    // What the translation refuses, in other words.
    const auto replace = [&](std::string_view from, std::string_view to) {
      if (const auto at = expression.find(from); at != std::string::npos) expression.replace(at, from.size(), to);
    };
    replace("{1,3}+", "{1,3}");
    replace("$", "(?!.|\\n)");
    const RegexPattern regex(expression, "test");
    for (int round = 0; round < 3000; ++round) {
      const std::string text = pattern_text(random, 1 + static_cast<int>(random() % 30));
      CAPTURE(text);
      CAPTURE(expression);
      CHECK(words_by_loop(pattern, text) == matches_of(regex, text));
    }
  }
}

TEST_CASE("characters newer than PCRE2's tables are letters and digits") {
  // U+10D4A: a digit of Garay; U+2EBF0: a Chinese character; both of Unicode 15.1 or 16. U+1DB00 is not assigned.
  CHECK(words_by_loop(WordPattern::gpt2, "a\U0002EBF0 1\U00010D40") == Texts{"a\U0002EBF0", " 1\U00010D40"});
  CHECK(words_by_loop(WordPattern::gpt2, "a\U0001DB00") == Texts{"a", "\U0001DB00"});
  CHECK(matches_of(RegexPattern("\\p{L}+", "test"), "a\U0002EBF0 1\U00010D40\u0301") == Texts{"a\U0002EBF0"});
  CHECK(matches_of(RegexPattern("\\p{N}+|\\p{M}", "test"), "a1\U00010D40\u0301") == Texts{"1\U00010D40", "\u0301"});
}

TEST_CASE("regular expressions mean what they mean to Oniguruma, or are refused") {
  CHECK(matches_of(RegexPattern("[^\\s\\p{P}]+", "test"), "ab, \u3000c-d") == Texts{"ab", "c", "d"});
  CHECK(matches_of(RegexPattern(".", "test"), "a\n\r") == Texts{"a", "\r"});
  CHECK(matches_of(RegexPattern("\\D\\S", "test"), "1ab ") == Texts{"ab"});
  CHECK(matches_of(RegexPattern("(?i:k|re)(?=x)|(y)", "test"), "Kx REx re y") == Texts{"K", "RE", "y"});
  CHECK(matches_of(RegexPattern("(?<=a)b{2,3}", "test"), "abbbb bb") == Texts{"bbb"});
  CHECK(matches_of(RegexPattern("]", "test"), "a]") == Texts{"]"});
  for (const char* expression :
       {"",      "^a",    "a$",       "\\w",     "\\b",    "\\h",         "\\K",          "(a",
        "a)",    "[a",    "[[a]]",    "[a&&b]",  "(?m:a)", "(?x",         "a{2}+",        "a{,2}",
        "a{2}?", "{",     "\\p{Han}", "\\p{L",   "\\",     "(?i:\u00E9)", "(?i:\\p{Lu})", "a*",
        "\\s*",  "(?=a)", "\\1",      "(*ANY)a", "a**b",   "(?<!a*)b",    "[]a]",         "[b-a]"}) {
    CAPTURE(expression);
    CHECK(caught([&] { RegexPattern(expression, "test"); }).code == ExitCode::data);
  }
  // Each of many letters may belong to the inner or to the outer repetition.
  const RegexPattern slow("(?:a+)+b", "test");
  CHECK(caught([&] { matches_of(slow, std::string(100, 'a') + " b"); }).code == ExitCode::data);
}

TEST_CASE("normal forms") {
  const auto nfc = [](std::string_view text) { return normal_form(text, NormalForm::nfc); };
  const auto nfd = [](std::string_view text) { return normal_form(text, NormalForm::nfd); };
  CHECK(nfc("e\u0301") == "\u00E9");
  CHECK(nfd("\u00E9x") == "e\u0301x");
  CHECK(nfc("a\u0302\u0323") == "\u1EAD");  // in the order of their classes, and in two steps
  CHECK(nfc("q\u0307\u0323") == "q\u0323\u0307");
  CHECK(nfd("a\u309A\u093C\U0001E94A") == "a\u093C\U0001E94A\u309A");  // classes 8, 7, 7
  CHECK(nfc("a\u0334\u0301") == "\u00E1\u0334");                       // a mark of a lower class does not block
  CHECK(nfc("\u1100\u1161\u11A8") == "\uAC01");                        // Hangul
  CHECK(nfd("\uAC01") == "\u1100\u1161\u11A8");
  CHECK(nfc("\uAC00\u11A7") == "\uAC00\u11A7");  // U+11A7 is no trailing consonant
  CHECK(nfc("\u212B") == "\u00C5");              // a singleton
  CHECK(nfc("\u0958") == "\u0915\u093C");        // excluded from composition
  CHECK(normal_form("\uFB01\u00B2", NormalForm::nfkc) == "fi2");
  CHECK(nfc("\xFF"
            "e\u0301\xCC") == "\xFF\u00E9\xCC");
  CHECK(nfc("\u0301a\xFF\u0301") == "\u0301a\xFF\u0301");
  CHECK(lower_case("\u0130\u03A3 \xFFSTRASSE\u1E9E") == "i\u0307\u03C3 \xFFstrasse\u00DF");
  std::mt19937_64 random(22);
  for (int round = 0; round < 300; ++round) {
    const std::string text = random_text(random, 50) + "o\u0302\u0323\u0301" + random_bytes(random, 3);
    for (const NormalForm form : {NormalForm::nfc, NormalForm::nfd, NormalForm::nfkc, NormalForm::nfkd}) {
      const std::string once = normal_form(text, form);
      CHECK(normal_form(once, form) == once);
      if (surely_normal(text, form)) CHECK(once == text);
    }
    CHECK(nfc(nfd(text)) == nfc(text));
    CHECK(nfd(nfc(text)) == nfd(text));
  }
}
