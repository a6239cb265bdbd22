// Expands the runs of data/unicode_data.cpp into one table, once per process.
#include "data/unicode.h"

#include <fmt/core.h>

#include "data/unicode_data.h"

namespace trireme {

namespace {

constexpr std::uint32_t kCodePoints = 0x110000;

/// Calls f(code point, value) for all of them; a run is `first << shift | value`.
template <class F>
void for_each_in_runs(std::span<const std::uint32_t> runs, int shift, const F& f) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::uint32_t end = i + 1 < runs.size() ? runs[i + 1] >> shift : kCodePoints;
    for (std::uint32_t c = runs[i] >> shift; c < end; ++c) f(c, runs[i] & ((1U << shift) - 1));
  }
}

}  // namespace

const std::vector<CharClass>& char_classes() {
  static const std::vector<CharClass> classes = [] {
    using namespace char_class;
    std::vector<CharClass> result(kCodePoints);
    for_each_in_runs(unicode_data::category_runs(), 5,
                     [&](std::uint32_t c, std::uint32_t number) { result[c] = bit(static_cast<int>(number)); });
    for_each_in_runs(unicode_data::word_exceptions(), 1, [&](std::uint32_t c, std::uint32_t differs) {
      constexpr CharClass usually = letter | mark | bit(9) | bit(10) | bit(12);
      if (((result[c] & usually) != 0) != (differs != 0)) result[c] |= word;
    });
    for_each_in_runs(unicode_data::numeric_exceptions(), 1, [&](std::uint32_t c, std::uint32_t differs) {
      if (((result[c] & number) != 0) != (differs != 0)) result[c] |= numeric;
    });
    for_each_in_runs(unicode_data::space_runs(), 1, [&](std::uint32_t c, std::uint32_t inside) {
      if (inside != 0) result[c] |= space;
    });
    return result;
  }();
  return classes;
}

std::optional<CharClass> categories_named(std::string_view name) {
  CharClass bits = 0;
  for (std::size_t number = 0; number < general_categories.size(); ++number) {
    const std::string_view category = general_categories[number];
    if (category == name || (name.size() == 1 && category.starts_with(name))) bits |= CharClass{1} << number;
  }
  return bits == 0 ? std::nullopt : std::optional(bits);
}

std::string pcre2_ranges(CharClass any_of, bool inverted) {
  const auto& classes = char_classes();
  std::string ranges;
  for (std::uint32_t c = 0; c < kCodePoints; ++c) {
    const auto inside = [&](std::uint32_t at) {
      return (at < 0xD800 || at >= 0xE000) && ((classes[at] & any_of) != 0) != inverted;
    };
    if (!inside(c)) continue;
    const std::uint32_t first = c;
    while (c + 1 < kCodePoints && inside(c + 1)) ++c;
    ranges += first == c ? fmt::format("\\x{{{:x}}}", c) : fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", first, c);
  }
  return ranges;
}

}  // namespace trireme
