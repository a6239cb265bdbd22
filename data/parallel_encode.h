// Tokenizing one long text with all threads of a rank.
// Read next: data/tokenizer.h (safe_cut), data/text_files.h.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace trireme {

/// Calls f with the ids of `text`, piece by piece: together those of tokenizer.encode(text), whatever the number of
/// threads. Where the tokenizer can cut the text, uses the threads of the calling rank (core/parallel_for.h), and holds
/// the ids of a few megabytes of text. Throws as append_ids does.
void encode_in_parallel(const Tokenizer& tokenizer, std::string_view text,
                        const std::function<void(std::span<const std::int32_t>)>& f);

}  // namespace trireme
