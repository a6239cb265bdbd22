// Unicode's normal forms (Unicode Standard Annex 15) and lower case, as the normalizers of tokenizers compute them.
// Read next: data/unicode.h; data/text_steps.h, which uses them.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// The four normal forms.
enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// The text in this form. Bytes that are not UTF-8 stay as they are, and combine with nothing.
std::string normal_form(std::string_view text, NormalForm form);

/// True if normal_form(text, form) would return the same text, found by a fast check that may err: false for some texts
/// that stay the same.
bool surely_normal(std::string_view text, NormalForm form);

/// Each character in lower case by itself: no special final sigma.
std::string lower_case(std::string_view text);

}  // namespace trireme
