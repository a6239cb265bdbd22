// Tokenizing one long text with all threads of a rank.
// Read next: data/tokenizer.h (safe_cut), data/text_files.h.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace trireme {

/// Appends the ids of `text`: those of tokenizer.append_ids(text, ids), whatever the number of threads. Uses the
/// threads of the calling rank (core/parallel_for.h) where the tokenizer can cut the text. Throws as append_ids does.
void append_ids_in_parallel(const Tokenizer& tokenizer, std::string_view text, std::vector<std::int32_t>& ids);

}  // namespace trireme
