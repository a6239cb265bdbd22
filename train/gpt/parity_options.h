// The command line of a comparison of GPTs with one rank: that of build/bin/parity, and of every entry of the parity
// matrix. Read next: train/loop/task.h, whose members do the same for any model.
#pragma once

#include <string>
#include <vector>

#include "train/gpt/gpt_options.h"

namespace trireme {

/// Sets defaults before flags are parsed: a small model. Its vocabulary of 65 is odd, so that tp tests padding.
void set_parity_defaults(GptOptions& options);
/// A model that is small enough to compare it on many meshes.
GptOptions parity_defaults();
/// Declares the groups of flags that make sense in a comparison.
void declare_parity(Flags& flags, GptOptions& options);
/// The flags for documents of the synthetic text, with a heading of their own.
void declare_parity_documents(Flags& flags, DataOptions& options);
/// The flags that are the same for every model: batch, mesh, precision, and those of the comparison itself.
void declare_comparison(Flags& flags, TrainOptions& options);
/// Sets the fields that come from the tokenizer in training.
void prepare_parity_model(GptOptions& options);
/// Fills in values that the flags left open. Throws ExitCode::usage for options that contradict each other.
void resolve_parity(GptOptions& options, int launcher_ranks);

/// Parses and resolves `arguments` of build/bin/parity. Ranks are threads, with one core each unless --threads is given.
GptOptions read_parity_options(const std::vector<std::string>& arguments);

}  // namespace trireme
