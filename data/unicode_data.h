// The tables of data/unicode_data.cpp, which scripts/make_unicode_tables.py writes. Comments there describe their form.
// Read next: data/unicode.h, which reads them.
#pragma once

#include <cstdint>
#include <span>

namespace trireme::unicode_data {

std::span<const std::uint32_t> category_runs();  ///< First code point << 5 | category.
std::span<const std::uint32_t> space_runs();     ///< First code point << 1 | whether White_Space.
std::span<const std::uint32_t>
word_exceptions();  ///< Where the class of word characters is another than that of its categories.
std::span<const std::uint32_t> numeric_exceptions();  ///< Where Digits knows a newer number.
std::span<const std::uint32_t> combining_classes();   ///< Code point << 8 | number of its class.
std::span<const std::uint32_t> canonical();           ///< Full canonical decompositions.
std::span<const std::uint32_t> compatible();          ///< Full compatibility decompositions, where they differ.
std::span<const std::uint32_t> compositions();        ///< First, second, composed.
std::span<const std::uint32_t> lower_case();          ///< Lower case.

}  // namespace trireme::unicode_data
