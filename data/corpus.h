// Corpus: the training tokens, the validation tokens and the tokenizer, from `--data`, `--tokenizer` and
// `--val-fraction`.
//
// The split is made on tokens: of n, the first floor(n * (1 - val_fraction)) are for training and the rest, the last
// part of the text, for validation. A token stands in exactly one of the two.
// Read next: data/sampler.h (training batches), data/eval_windows.h (validation batches).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/tokenizer.h"
#include "data/tokens.h"

namespace trireme {

struct CorpusOptions {
  std::filesystem::path path = {};  ///< a text file, a folder of text files, or token shards
  /// As in make_tokenizer(); left out: "char" for text, their own for shards.
  std::optional<std::string> tokenizer = std::nullopt;
  double val_fraction = 0.1;  ///< 0 <= f < 1; 0 means no validation part
  std::int64_t context = 1;   ///< T: each part must hold at least one window of T + 1 tokens
};

struct Corpus {
  TokenRange train, validation;  ///< validation is empty with val_fraction 0
  std::shared_ptr<const Tokenizer> tokenizer;
  std::uint64_t hash = 0;  ///< of the token ids and the tokenizer: the same text gives the same hash, as text or shards
  std::int64_t tokens() const { return train.count() + validation.count(); }
};

/// Loads and splits. Throws ExitCode::usage for options that make no sense and a path that does not exist,
/// ExitCode::data for data that is empty, malformed or too short (with its size and what is needed), ExitCode::io when
/// it cannot be read.
Corpus load_corpus(const CorpusOptions& options);

/// As above with a tokenizer that exists already (from a checkpoint): options.tokenizer must be left out, and shards
/// must have been made with an equal one.
Corpus load_corpus(const CorpusOptions& options, std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace trireme
