// GPT-2's word pattern through PCRE2, in UTF mode with the just-in-time compiler.
#include "data/bpe_split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "core/error.h"
#include "data/utf8.h"

namespace trireme {

namespace {

// Unicode's White_Space property, spelled out: PCRE2's own \s also takes U+180E and, without UCP, misses all of
// Unicode.
#define TRIREME_SPACES R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"

// Contractions; a run of letters, of digits or of other signs, each with at most one space before it; spaces up to the
// last, which belongs to the next word; spaces at the end.
constexpr std::string_view kPattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+)"
                                      "| ?[^" TRIREME_SPACES R"(\p{L}\p{N}]+)"
                                      "|[" TRIREME_SPACES "]+(?![^" TRIREME_SPACES "])|[" TRIREME_SPACES "]+";

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

}  // namespace

struct BpeSplitter::Pattern {
  pcre2_code* code = nullptr;
  Pattern() = default;
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern() { pcre2_code_free(code); }
};

BpeSplitter::BpeSplitter() : pattern_(std::make_unique<Pattern>()) {
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::uint32_t options = PCRE2_UTF | PCRE2_ANCHORED;
  pattern_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern.data()), kPattern.size(), options, &error, &at, nullptr);
  require(pattern_->code != nullptr, "bpe", "PCRE2 refused the word pattern at {}: {}", at, pcre2_message(error));
  // This fails if the system forbids making code at run time. The same pattern is then interpreted: slower, but with
  // the same words.
  pcre2_jit_compile(pattern_->code, PCRE2_JIT_COMPLETE);
}

BpeSplitter::~BpeSplitter() = default;
BpeSplitter::BpeSplitter(BpeSplitter&&) noexcept = default;

void BpeSplitter::for_each_word(std::string_view text, const std::function<void(std::string_view)>& f) const {
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    split_valid(text.substr(0, valid), f);
    text.remove_prefix(valid);
    if (text.empty()) break;
    f(text.substr(0, 1));
    text.remove_prefix(1);
  }
}

void BpeSplitter::split_valid(std::string_view text, const std::function<void(std::string_view)>& f) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (std::size_t at = 0; at < text.size();) {
    // Without NO_UTF_CHECK every call would check the whole text again.
    const int found = pcre2_match(pattern_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    // Every character is a letter, a digit, a space or another sign, so some alternative always takes it.
    require(found > 0, "bpe", "the word pattern failed at byte {}: {}", at, pcre2_message(found));
    const std::size_t end = pcre2_get_ovector_pointer(match.get())[1];
    f(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace trireme
