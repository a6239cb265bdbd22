// What programs share that use a saved model without training it: flags of ranks and device, and the model on a mesh.
// The copies that the ranks of dp hold may do different work: then each is a mesh of its own, and the copies do not talk
// while the model computes. With experts divided over ep, a copy has several dp ranks.
// Read next: train/gpt/gpt_source.h, train/launch/ranks.h, train/gpt/text_batches.h; examples/eval.cpp and
// examples/generate.cpp, which use it.
#pragma once

#include <memory>
#include <string>

#include "models/gpt.h"
#include "parallel/mesh/mesh.h"
#include "train/gpt/gpt_options.h"
#include "train/gpt/gpt_source.h"
#include "train/program/rank.h"

namespace trireme {

/// Declares --mesh, --ranks, --device and --threads. `axes`: what --help says about --mesh.
void declare_ranks(Flags& flags, GptOptions& options, const std::string& axes);

/// Fills in what follows from the flags, before run_ranks(). `flags`: all of them, which must be equal on all ranks.
/// Throws as resolve().
void resolve_ranks(GptOptions& options, const std::string& flags);

/// How many copies of a model a mesh holds: dp, unless ep needs ranks of several dp coordinates.
int model_copies(const MeshShape& shape);

/// One of the copies, on each of its ranks.
struct ModelCopy {
  int copies = 1;
  int number = 0;                       ///< of this rank's copy, from 0; the world's first rank is in copy 0
  std::shared_ptr<ProcessGroup> group;  ///< its ranks, in the order of the world
  MeshShape shape;                      ///< of these ranks
};
/// The copy of this rank of a mesh of `shape`. Collective over `world`.
ModelCopy model_copy(const std::shared_ptr<ProcessGroup>& world, const MeshShape& shape);

/// This rank's part of the model in `source`, with its weights. `average`: those of --ema. Throws ExitCode::usage if
/// the mesh cannot hold the model. Collective over the world.
std::unique_ptr<Gpt> load_on_mesh(Rank& rank, const GptOptions& options, GptSource& source, bool average);
/// The same on the mesh of one of several copies, which must be that of model_copy(rank.world, options.mesh.shape).
std::unique_ptr<Gpt> load_on_mesh(Rank& rank, GptOptions options, GptSource& source, bool average,
                                  const ModelCopy& copy);

}  // namespace trireme
