// What a checkpoint says of the run it belongs to, beside its tensors: texts of Manifest::run, most of them JSON.
//
//   architecture   of the model: "gpt"
//   dtype          of its weights; missing in checkpoints of older versions
//   model          its sizes and choices; of a GPT also the dtype: generation needs no more
//   progress       steps, samples consumed, loss scale, what the guards have skipped
//   seed, data     what the rest of the run follows from: the hash of the tokens, and which part of them is not seen
//   tokenizer      as tokenizer files have it; empty: the model reads no text
//   origin         of a run that began from another's checkpoint: its path, as --resume said it (train/runs/origin.h)
//   configuration  the options, as --config takes them; for people, nothing reads it
// Read next: train/runs/saved_run.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"
#include "parallel/checkpoint/checkpoint.h"

namespace trireme {

/// Samples that a run has passed over, first and last of them.
struct SkippedSamples {
  std::int64_t first = 0, last = 0;
  std::int64_t step = 0;  ///< that was made with later ones
  bool operator==(const SkippedSamples&) const = default;
};

/// What the guards of a run (train/guards/guards.h) decide by: with it, a run that goes on decides as one that never
/// stopped.
struct GuardState {
  std::vector<SkippedSamples> skipped;  ///< in order; those that follow one another for one step are one
  std::int64_t rollbacks = 0;           ///< made so far
  std::vector<double> losses;           ///< of the last steps, with a spike detector

  void skip(SkippedSamples samples);
  bool operator==(const GuardState&) const = default;
};

/// Where a run stands. The learning rate, the sampler and dropout are pure functions of it.
struct Progress {
  std::int64_t steps = 0;                                   ///< optimizer steps made
  std::int64_t samples = 0;                                 ///< samples consumed: a place in the order of all samples
  std::optional<optim::LossScaler::State> loss_scale = {};  ///< of a run in f16
  GuardState guards = {};
  std::string origin = {};  ///< what the run began from: another run's checkpoint; empty: new weights
};

/// What a run must have in common with the saved one it goes on from, beside its model.
struct RunIdentity {
  std::int64_t seed = 0;
  std::string tokenizer = {};  ///< Tokenizer::to_json(); empty: the model reads no text
  std::uint64_t data = 0;      ///< Corpus::hash; 0: not known
  double val_fraction = 0;     ///< which part of the data is not trained on
};

constexpr const char *origin_entry = "origin", *architecture_entry = "architecture", *dtype_entry = "dtype";

using RunTexts = std::map<std::string, std::string>;
RunTexts describe_run(const Model& model, const Progress& progress, const RunIdentity& run,
                      const std::string& configuration = {});
std::string saved_architecture(const checkpoint::Checkpoint& saved);

/// Throws ExitCode::usage, naming the flag, when the model, tokenizer, data or seed is not that of the checkpoint.
void require_same_run(const checkpoint::Checkpoint& saved, const Model& model, const RunIdentity& run);
/// Throws ExitCode::usage, naming the flag, for another optimizer, or one that has momentum where none is stored.
void require_same_optimizer(const checkpoint::Checkpoint& saved, const optim::Optimizer& optimizer);
/// Throws ExitCode::data when it is malformed, or not that of the manifest's step.
Progress read_progress(const checkpoint::Checkpoint& saved);

/// Throws ExitCode::data unless every entry that resuming needs is there and well formed. What a model's own entry says
/// is for its architecture to check (train/runs/saved_gpt.h).
void require_whole_run(const checkpoint::Checkpoint& saved);

}  // namespace trireme
