// The texts in a checkpoint that describe its run: the entries of Manifest::run, most of them JSON.
//
//   architecture   of the model: "gpt"
//   dtype          of its weights; missing in checkpoints of older versions
//   optimizer      as --optimizer has it; missing in checkpoints of older versions, and in weights without a run
//   model          its sizes and choices; for a GPT also the dtype: all that generation needs
//   progress       steps, samples consumed, the last loss, loss scale, skipped samples and other state of the guards
//   seed, data     they determine the rest of the run: the hash of the tokens, and the fraction kept for validation
//   written        when and by which version of the program; only for people
//   tokenizer      in the format of tokenizer files; empty: the model reads no text
//   origin         for a run that began from another run's checkpoint: the path in --resume (train/runs/origin.h)
//   configuration  the options, as --config takes them; only for people, no program reads it
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

/// A range of samples that a run has skipped: the first and the last of them.
struct SkippedSamples {
  std::int64_t first = 0, last = 0;
  std::int64_t step = 0;  ///< the step that was made with later samples
  bool operator==(const SkippedSamples&) const = default;
};

/// The state of a run's guards (train/loop/guards.h). With it, a resumed run makes the same decisions as a run that
/// was never interrupted.
struct GuardState {
  std::vector<SkippedSamples> skipped;  ///< in order; adjacent ranges for the same step are joined
  std::int64_t rollbacks = 0;           ///< made so far
  std::vector<double> losses;           ///< of the last steps; used with a spike detector

  /// Adds samples that are left out.
  void skip(SkippedSamples samples);
  bool operator==(const GuardState&) const = default;
};

/// The position of a run. The learning rate, the sampler and dropout are pure functions of it.
struct Progress {
  std::int64_t steps = 0;                                   ///< optimizer steps made
  std::int64_t samples = 0;                                 ///< samples consumed: the position in the order
  std::optional<optim::LossScaler::State> loss_scale = {};  ///< of a run in f16
  GuardState guards = {};
  std::optional<double> loss = {};  ///< of the last step; only for people
  std::string origin = {};  ///< path of the other run's checkpoint from which this run began; empty: new weights
};

/// The properties that a resumed run must share with the saved run, besides the model.
struct RunIdentity {
  std::int64_t seed = 0;
  std::string tokenizer = {};  ///< Tokenizer::to_json(); empty: the model reads no text
  std::uint64_t data = 0;      ///< Corpus::hash; 0: not known
  double val_fraction = 0;     ///< fraction of the data that is kept for validation
  std::string files = {};      ///< data_list() of the data; empty: not known
  std::string usage = {};      ///< how the model is used (train/gpt/usage_texts.h); is stored, and may change
};

constexpr const char *origin_entry = "origin", *architecture_entry = "architecture", *dtype_entry = "dtype",
                     *optimizer_entry = "optimizer", *written_entry = "written", *configuration_entry = "configuration",
                     *usage_entry = "usage";

using RunTexts = std::map<std::string, std::string>;  ///< entries of Manifest::run
/// The texts of a checkpoint: model, progress, identity and configuration.
RunTexts describe_run(const Model& model, const Progress& progress, const RunIdentity& run,
                      const std::string& optimizer = {}, const std::string& configuration = {});
/// Model::architecture() of the saved model.
std::string saved_architecture(const checkpoint::Checkpoint& saved);

/// Throws ExitCode::usage, naming the flag, if the checkpoint has another model, tokenizer, data or seed.
void require_same_run(const checkpoint::Checkpoint& saved, const Model& model, const RunIdentity& run);
/// Throws ExitCode::usage, naming the flag, for another optimizer, and for momentum if the checkpoint stores none.
void require_same_optimizer(const checkpoint::Checkpoint& saved, optim::Optimizer& optimizer);
/// What the checkpoint stores for the optimizer and this one would not keep, as a message; empty: nothing.
std::string dropped_state(const checkpoint::Checkpoint& saved, const optim::Optimizer& optimizer);
/// Throws ExitCode::data if the entry is malformed or does not match the manifest's step.
Progress read_progress(const checkpoint::Checkpoint& saved);

/// Throws ExitCode::data unless every entry that resuming needs is present and well formed. The content of a model's
/// own entry is checked by its architecture (train/gpt/gpt_source.h).
void require_whole_run(const checkpoint::Checkpoint& saved);

}  // namespace trireme
