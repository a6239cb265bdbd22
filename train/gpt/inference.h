// What programs share that use a saved model without training it: flags of ranks and device, and the model on a mesh.
// Read next: train/gpt/gpt_source.h, train/launch/ranks.h; examples/eval.cpp and examples/generate.cpp, which use it.
#pragma once

#include <memory>
#include <string>

#include "models/gpt.h"
#include "train/gpt/gpt_options.h"
#include "train/gpt/gpt_source.h"
#include "train/gpt/model_copies.h"
#include "train/program/rank.h"

namespace trireme {

/// Declares --mesh, --ranks, --device and --threads. `axes`: what --help says about --mesh.
void declare_ranks(Flags& flags, GptOptions& options, const std::string& axes);

/// Fills in what follows from the flags, before run_ranks(). `flags`: all of them, which must be equal on all ranks.
/// Throws as resolve().
void resolve_ranks(GptOptions& options, const std::string& flags);

/// This rank's part of the model in `source`, with its weights. `average`: those of --ema. Throws ExitCode::usage if
/// the mesh cannot hold the model. Collective over the world.
std::unique_ptr<Gpt> load_on_mesh(Rank& rank, const GptOptions& options, GptSource& source, bool average);
/// The same on the mesh of one of several copies, which must be that of model_copy(rank.world, options.mesh.shape).
std::unique_ptr<Gpt> load_on_mesh(Rank& rank, GptOptions options, GptSource& source, bool average,
                                  const ModelCopy& copy);

}  // namespace trireme
