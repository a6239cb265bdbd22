// Learning a byte-level BPE vocabulary from text (Sennrich et al. 2016, algorithm 1, made incremental).
//
// Deterministic. Start from the 256 bytes (id = byte). Merge the adjacent pair that occurs most often inside words; of
// equally frequent ones the pair with the smaller left id, then the smaller right id; the new token gets the next id.
// Repeat. `<|endoftext|>` gets the last id.
// Read next: data/bpe_tokenizer.h, which applies the merges.
#pragma once

#include <span>
#include <string_view>

#include "data/bpe_tokenizer.h"

namespace trireme {

/// A vocabulary of exactly `vocab_size` tokens: 256 bytes, merges, and `<|endoftext|>`. Throws ExitCode::usage when
/// vocab_size is under 257, or so large that pairs run out (no pair occurs twice); the message has the largest possible
/// size for this text.
BpeVocabulary train_bpe(std::span<const std::string_view> texts, std::int32_t vocab_size);

}  // namespace trireme
