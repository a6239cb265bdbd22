// The options of train_gpt: those of every training run, a GPT, and the text that it reads.
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
  std::string tokenizer = "auto";  ///< char, byte, bpe:PATH, or auto: char, or what token shards came with
  double val_fraction = 0.1;       ///< of the text, its last part

  bool document_mask = false;                      ///< whether attention stays within a document
  std::optional<std::int64_t> document_separator;  ///< the token that ends one; not set: the tokenizer's end of text

  /// What GptConfig::document_separator is to be. Throws ExitCode::usage when documents are to be told apart and there
  /// is nothing to tell them by, or the separator is not one of the `vocab` tokens.
  std::optional<std::int64_t> separator(std::optional<std::int64_t> end_of_text, std::int64_t vocab) const;
};

struct ModelOptions {
  std::string preset = "custom";      ///< a published size, or custom
  GptConfig config;                   ///< but for the vocabulary
  std::optional<std::int64_t> vocab;  ///< not set: the tokenizer's

  /// The model for a tokenizer of `tokenizer_vocab` ids. Throws ExitCode::usage when --vocab is smaller.
  GptConfig with_vocab(std::int64_t tokenizer_vocab) const;
};

struct GptOptions : TrainOptions {
  DataOptions data;
  ModelOptions model;

  CorpusOptions corpus() const;  ///< what load_corpus() takes
};

// One function per group; the options must outlive the flags.
void declare_data(Flags& flags, DataOptions& options);
void declare_documents(Flags& flags, DataOptions& options);  // a part of declare_data
void declare_model(Flags& flags, ModelOptions& options);
void declare_experts(Flags& flags, ModelOptions& options);
/// Every group of train_gpt.
void declare_all(Flags& flags, GptOptions& options);

/// `options` in the form that --config takes: what --print-config prints and config.json holds.
std::string config_text(const GptOptions& options);

}  // namespace trireme
