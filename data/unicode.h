// Properties of Unicode characters, as the patterns of tokenizers use them: \p{L}, \p{N}, \s and so on.
//
// They are those of Unicode 16, which `tokenizers` and `tiktoken` have. The tables of PCRE2 10.42 are of Unicode 14, so
// it would cut texts with newer characters elsewhere.
// Read next: data/word_patterns.h (who asks), data/normal_form.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// General categories by number: 1 << number is a bit of a CharClass.
inline constexpr std::array<std::string_view, 29> general_categories = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};

/// What a character is: one bit for its general category, and three for the properties below.
using CharClass = std::uint32_t;

namespace char_class {
/// The class of a category by its number.
inline constexpr CharClass bit(int number) { return CharClass{1} << number; }
inline constexpr CharClass letter = bit(1) | bit(2) | bit(3) | bit(4) | bit(5);  ///< \p{L}
inline constexpr CharClass mark = bit(6) | bit(7) | bit(8);                      ///< \p{M}
inline constexpr CharClass number = bit(9) | bit(10) | bit(11);                  ///< \p{N}
inline constexpr CharClass upper = bit(1) | bit(3) | bit(4) | bit(5) | mark;     ///< [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
inline constexpr CharClass lower = bit(2) | bit(4) | bit(5) | mark;              ///< [\p{Ll}\p{Lm}\p{Lo}\p{M}]
inline constexpr CharClass numeric = bit(29);                                    ///< \p{N} of Unicode 17, for Digits
inline constexpr CharClass space = bit(30);                                      ///< \s: the property White_Space
inline constexpr CharClass word = bit(31);                                       ///< \w of Rust's crate regex
}  // namespace char_class

/// The class of each code point up to U+10FFFF.
const std::vector<CharClass>& char_classes();

/// The categories that `\p{NAME}` means, as bits: of "Lu", or of all that begin with "L"; nothing for another name.
std::optional<CharClass> categories_named(std::string_view name);

/// The characters with a class of `any_of` (`inverted`: all others), as a list of ranges in the syntax of PCRE2, for
/// use within [ and ]: `\x{41}-\x{5a}...`.
std::string pcre2_ranges(CharClass any_of, bool inverted = false);

}  // namespace trireme
