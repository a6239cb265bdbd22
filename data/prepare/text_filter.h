// Which documents are kept, by their own text alone: by length, and by the share of characters that are not letters
// (tables, code, markup and broken encodings have many).
// Read next: data/prepare/document_set.h (duplicates).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trireme {

/// Which documents are kept.
struct TextFilter {
  std::int64_t min_chars = 1;                            ///< code points; an empty document is never kept
  std::optional<std::int64_t> max_chars = std::nullopt;  ///< not set: any number
  std::optional<double> max_non_letters = std::nullopt;  ///< of all characters; not set: any share
  bool is_used() const { return min_chars > 1 || max_chars || max_non_letters; }
};

/// Whether a document is kept, or why not.
enum class FilterOutcome : std::uint8_t { kept, too_short, too_long, non_letters };

/// What to do with a document. Characters that are neither letters, marks nor white space are non-letters (the classes
/// of Unicode 16: data/unicode.h); a byte that is not UTF-8 is one of them.
FilterOutcome filter_outcome(std::string_view text, const TextFilter& filter);

}  // namespace trireme
