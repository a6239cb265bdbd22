// The options of train_gpt: those of every training run, of a GPT, and of its text.
// Read next: train/gpt/gpt_options.cpp (names, defaults, units), train/options/options.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "data/corpus.h"
#include "data/packing.h"
#include "models/gpt_config.h"
#include "train/options/options.h"

namespace trireme {

/// Flags of text and tokens.
struct DataOptions {
  std::string data;                ///< a text file, a folder of them, or tokens; or several with weights
  std::string tokenizer = "auto";  ///< as make_tokenizer(), or auto: char, or that of the tokens
  double val_fraction = 0.1;       ///< fraction of the text, taken from its end

  Packing packing = Packing::cut;                  ///< how training samples are made of documents
  std::string chat_template;                       ///< data are dialogues, rendered by it; empty: they are text
  bool document_mask = false;                      ///< attention stays within a document
  std::optional<std::int64_t> document_separator;  ///< ends a document; not set: the end-of-text token
  bool restart_positions = false;                  ///< GptConfig::restart_positions

  /// The token that ends a document, for Packing. Throws ExitCode::usage as separator().
  std::int32_t packing_separator(std::optional<std::int64_t> end_of_text, std::int64_t vocab) const;
  /// The value for GptConfig::document_separator. Throws ExitCode::usage if --document-mask needs a separator and there
  /// is none, or if the separator is not one of the `vocab` tokens.
  std::optional<std::int64_t> separator(std::optional<std::int64_t> end_of_text, std::int64_t vocab) const;
};

/// Flags of the architecture.
struct ModelOptions {
  std::string preset = "custom";      ///< the name of a published size, or custom
  GptConfig config;                   ///< all but the vocabulary size
  std::optional<std::int64_t> vocab;  ///< not set: the tokenizer's vocabulary size
  std::string init_from;              ///< a model in Hugging Face's layout, or a run; empty: new weights
  /// Where that model is read. A checkpoint that the run resumes has all of it: init_from is not read again.
  std::string read_from;
  /// Reads the configuration of the model in read_from: read_gpt_config(). A program without files has none.
  std::function<GptConfig(const std::string& path)> read_config;
  std::string init_adapter;  ///< a folder of PEFT's, whose adapters are trained on; empty: new ones, if any
  /// Reads what the folder in init_adapter describes: read_adapter_options(). A program without files has none.
  std::function<nn::LoraOptions(const std::string& adapter, const GptConfig& base)> read_adapter;

  /// Whether the run begins with the weights of init_from.
  bool begins_with_weights() const { return !init_from.empty() && read_from == init_from; }

  /// Takes the architecture from read_from, and the adapters from init_adapter or, in a run that resumes, from its
  /// checkpoint. The dropout of the flags stays.
  void set_saved_config();
  /// The model for a tokenizer with `tokenizer_vocab` ids. Throws ExitCode::usage if --vocab is smaller.
  GptConfig with_vocab(std::int64_t tokenizer_vocab) const;
};

/// All flags of train_gpt.
struct GptOptions : TrainOptions {
  DataOptions data;
  ModelOptions model;
  bool export_hf = false;  ///< write each checkpoint also in Hugging Face's layout

  CorpusOptions corpus() const;  ///< the argument for load_corpus()
};

// One function per group. The options must outlive the flags.
void declare_data(Flags& flags, DataOptions& options);
void declare_documents(Flags& flags, DataOptions& options);  // part of declare_data
void declare_model(Flags& flags, ModelOptions& options);
void declare_experts(Flags& flags, ModelOptions& options);
void declare_adapters(Flags& flags, ModelOptions& options);
void declare_other_programs(Flags& flags, GptOptions& options);  // before declare_model: its flags set others
/// Declares every group of train_gpt.
void declare_all(Flags& flags, GptOptions& options);

/// `options` in the form that --config reads: the output of --print-config, and the content of config.json.
std::string config_text(const GptOptions& options);

}  // namespace trireme
