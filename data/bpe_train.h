// Learning a byte-level BPE vocabulary from text (Sennrich et al. 2016, algorithm 1, made incremental).
//
// Deterministic. Start from the 256 bytes (id = byte). Merge the adjacent pair that occurs most often inside words; of
// equally frequent ones the pair with the smaller left id, then the smaller right id; the new token gets the next id.
// Repeat. `<|endoftext|>` gets the last id.
//
// Each byte of the distinct words is a position. A merge reads the positions where its pair occurs or once occurred.
// For each pair that it finds, it adds two positions at most, and there is one token less. So each position is read at
// most three times in all, however long words are and however large the vocabulary is. Memory: 4 bytes for each
// position, and 4 for each position of each pair.
// Read next: data/bpe_tokenizer.h, which applies the merges.
#pragma once

#include <span>
#include <string_view>

#include "data/bpe_tokenizer.h"

namespace trireme {

/// A vocabulary of exactly `vocab_size` tokens: 256 bytes, merges, and `<|endoftext|>`. Throws ExitCode::usage when
/// vocab_size is under 257, or so large that pairs run out (no pair occurs twice); the message has the largest possible
/// size for this text. `work`, if not null, is set to how many positions and candidates for a merge were read.
BpeVocabulary train_bpe(std::span<const std::string_view> texts, std::int32_t vocab_size, std::int64_t* work = nullptr);

}  // namespace trireme
