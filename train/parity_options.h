// The command line of a comparison with one rank: build/bin/parity's, and that of every entry of the parity matrix.
#pragma once

#include <string>
#include <vector>

#include "train/options.h"

namespace trireme {

/// Before any flag: a small model whose vocabulary, 65, divides by nothing, so that padding is at work.
TrainOptions parity_defaults();
/// The groups of flags that make sense in a comparison.
void declare_parity(Flags& flags, TrainOptions& options);
/// Settles what flags left open. Throws ExitCode::usage for what cannot be.
void resolve_parity(TrainOptions& options, int launcher_ranks);

/// `arguments` of build/bin/parity, resolved, for ranks that are threads of one core each.
TrainOptions read_parity_options(const std::vector<std::string>& arguments);

}  // namespace trireme
