// The options of train_gpt: those of every training run, of a GPT, and of its text.
// Read next: train/gpt/gpt_options.cpp (names, defaults, units), train/options/options.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/corpus.h"
#include "models/gpt_config.h"
#include "train/options/options.h"

namespace trireme {

struct DataOptions {
  std::string data;                ///< a text file, a folder of them, or token shards
  std::string tokenizer = "auto";  ///< char, byte, bpe:PATH, or auto: char, or the tokenizer of the token shards
  double val_fraction = 0.1;       ///< fraction of the text, taken from its end

  bool document_mask = false;                      ///< attention stays within a document
  std::optional<std::int64_t> document_separator;  ///< ends a document; not set: the end-of-text token

  /// The value for GptConfig::document_separator. Throws ExitCode::usage if --document-mask needs a separator and there
  /// is none, or if the separator is not one of the `vocab` tokens.
  std::optional<std::int64_t> separator(std::optional<std::int64_t> end_of_text, std::int64_t vocab) const;
};

struct ModelOptions {
  std::string preset = "custom";      ///< the name of a published size, or custom
  GptConfig config;                   ///< all but the vocabulary size
  std::optional<std::int64_t> vocab;  ///< not set: the tokenizer's vocabulary size

  /// The model for a tokenizer with `tokenizer_vocab` ids. Throws ExitCode::usage if --vocab is smaller.
  GptConfig with_vocab(std::int64_t tokenizer_vocab) const;
};

struct GptOptions : TrainOptions {
  DataOptions data;
  ModelOptions model;

  CorpusOptions corpus() const;  ///< the argument for load_corpus()
};

// One function per group. The options must outlive the flags.
void declare_data(Flags& flags, DataOptions& options);
void declare_documents(Flags& flags, DataOptions& options);  // part of declare_data
void declare_model(Flags& flags, ModelOptions& options);
void declare_experts(Flags& flags, ModelOptions& options);
/// Declares every group of train_gpt.
void declare_all(Flags& flags, GptOptions& options);

/// `options` in the form that --config reads: the output of --print-config, and the content of config.json.
std::string config_text(const GptOptions& options);

}  // namespace trireme
