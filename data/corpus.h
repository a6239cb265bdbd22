// Corpus: the training tokens, the validation tokens and the tokenizer, from `--data`, `--tokenizer` and
// `--val-fraction`.
//
// The split is made on tokens: of n, the first floor(n * (1 - val_fraction)) are for training and the rest, the last
// part of the text, for validation. A token stands in exactly one of the two. Where other programs have files for
// validation, as nanoGPT's val.bin, those are the validation tokens, unless val_fraction is 0. Each source of a mixture
// is split by itself. All have one tokenizer.
// Read next: data/sampler.h (training batches), data/eval_windows.h (validation batches).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/text_files.h"
#include "data/tokenizer.h"
#include "data/tokens.h"

namespace trireme {

/// Which text, and how it is split.
struct CorpusOptions {
  /// A text file, a folder of text files, or tokens: our shards, or files of nanoGPT or llm.c (data/bin_tokens.h). Or
  /// several of these with their weights: parse_mixture() in data/mixture.h.
  std::filesystem::path path = {};
  /// As in make_tokenizer(); left out: "char" for text, their own for tokens.
  std::optional<std::string> tokenizer = std::nullopt;
  double val_fraction = 0.1;  ///< 0 <= f < 1; 0 means no validation part
  std::int64_t context = 1;   ///< T: each part must hold at least one window of T + 1 tokens
};

/// A source of a mixture.
struct CorpusPart {
  std::string path;
  double weight = 1;  ///< of all parts together: 1
  TokenRange train;
};

struct Corpus {
  TokenRange train, validation;   ///< validation is empty with val_fraction 0; of a mixture: one source after the other
  std::vector<CorpusPart> parts;  ///< the sources; one, unless several were given
  std::shared_ptr<const Tokenizer> tokenizer;
  std::uint64_t hash = 0;  ///< of the token ids and the tokenizer: the same text gives the same hash, as text or shards
  std::vector<SourceFile> files;  ///< in the order of the text; of a mixture with the path of their part in front
  OmittedFiles left_out;          ///< files of folders that were left out
  std::int64_t tokens() const { return train.count() + validation.count(); }
};

/// Loads and splits. Throws ExitCode::usage for options that make no sense and a path that does not exist,
/// ExitCode::data for data that is empty, malformed or too short (with its size and what is needed), ExitCode::io when
/// it cannot be read.
Corpus load_corpus(const CorpusOptions& options);

/// As above with a tokenizer that exists already (from a checkpoint): options.tokenizer must be left out, and shards
/// must have been made with an equal one.
Corpus load_corpus(const CorpusOptions& options, const std::shared_ptr<const Tokenizer>& tokenizer);

}  // namespace trireme
