// What a run leaves behind: weights, optimizer state, progress, tokenizer and configuration, in one safetensors file,
// OUT/checkpoints/step_00002000/run.safetensors. Tensors are stored whole (padding removed) under their global names,
// so a run saved on one mesh is resumed on any other. The file is written under a temporary name and renamed: whole or
// absent.
//
//   blocks.0.mlp.up.weight              a parameter, in the model's dtype
//   optimizer.m.blocks.0.mlp.up.weight  its optimizer state, f32 (m, v, momentum, master)
// Read next: data/safetensors.h.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/tokenizer.h"
#include "models/gpt.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"

namespace trireme {

/// Where a run stands. The learning rate, the sampler and dropout are pure functions of it.
struct Progress {
  std::int64_t steps = 0;                                   ///< optimizer steps made
  std::int64_t samples = 0;                                 ///< sequences consumed
  std::optional<optim::LossScaler::State> loss_scale = {};  ///< of a run in f16
};

/// What a run must have in common with the saved one it goes on from, beside its model and tokenizer.
struct RunIdentity {
  std::int64_t seed = 0;
  std::uint64_t data = 0;   ///< Corpus::hash; 0: not known
  double val_fraction = 0;  ///< which part of the data is not trained on
  RunIdentity(std::int64_t s, std::uint64_t d = 0, double v = 0) : seed(s), data(d), val_fraction(v) {}
};

/// Saves under `out`; returns the line to print: path, size, seconds. Collective over the mesh; rank 0 writes.
std::string save_run(const std::filesystem::path& out, const Gpt& model, optim::Optimizer& optimizer,
                     const Progress& progress, const Tokenizer& tokenizer, const RunIdentity& run);

/// The file that `path` means: itself, or the newest checkpoint in a run's folder. Throws ExitCode::usage when there is
/// none.
std::filesystem::path find_saved_run(const std::filesystem::path& path);
bool holds_saved_run(const std::filesystem::path& folder);

/// Loads weights and optimizer state into this rank's shards. Throws ExitCode::usage when the model, the optimizer, the
/// tokenizer, the data or the seed is not the one saved, naming the flags.
Progress load_run(const std::filesystem::path& path, Gpt& model, optim::Optimizer& optimizer,
                  const Tokenizer& tokenizer, const RunIdentity& run);

/// A saved model without its run: for generation.
struct SavedModel {
  GptConfig config;
  DType dtype = DType::f32;
  std::shared_ptr<const Tokenizer> tokenizer;
  Progress progress;
};
SavedModel read_saved_model(const std::filesystem::path& path);
void load_weights(const std::filesystem::path& path, Gpt& model);

}  // namespace trireme
