// The command line of a comparison of GPTs with one rank: build/bin/parity's, and that of every entry of the parity
// matrix. Read next: train/loop/task.h, whose members do the same for any model.
#pragma once

#include <string>
#include <vector>

#include "train/gpt/gpt_options.h"

namespace trireme {

/// Before any flag: a small model whose vocabulary, 65, divides by nothing, so that padding is at work.
void set_parity_defaults(GptOptions& options);
GptOptions parity_defaults();
/// The groups of flags that make sense in a comparison.
void declare_parity(Flags& flags, GptOptions& options);
/// The documents of a made-up text, under a heading of their own.
void declare_parity_documents(Flags& flags, DataOptions& options);
/// The flags that are the same for every model: batch, mesh, precision, and those of the comparison itself.
void declare_comparison(Flags& flags, TrainOptions& options);
/// What the model has from a tokenizer in training.
void prepare_parity_model(GptOptions& options);
/// Settles what flags left open. Throws ExitCode::usage for what cannot be.
void resolve_parity(GptOptions& options, int launcher_ranks);

/// `arguments` of build/bin/parity, resolved, for ranks that are threads of one core each.
GptOptions read_parity_options(const std::vector<std::string>& arguments);

}  // namespace trireme
