// Saves and resumes a run: applies parallel/checkpoint to a model, its optimizer and its progress.
//
// Tensors are stored under global names, without padding, so a run saved on one mesh can be resumed on any other:
//   blocks.0.mlp.up.weight              a parameter (or a buffer: parallel/parameters/buffer.h), in the model's dtype
//   optimizer.m.blocks.0.mlp.up.weight  its optimizer state, f32 (m, v, momentum, master)
// Everything else that resuming needs is in train/runs/run_texts.h.
// Read next: parallel/checkpoint/saver.h, parallel/checkpoint/checkpoint.h.
#pragma once

#include "parallel/checkpoint/saver.h"
#include "train/events/event.h"
#include "train/runs/run_texts.h"

namespace trireme {

/// Saves a run in the background, as often as needed.
class RunSaver {
 public:
  /// `out` must exist. `model` and `optimizer` must outlive this object. `configuration`: the run's options, as
  /// --config takes them. Collective.
  RunSaver(const std::filesystem::path& out, const Model& model, optim::Optimizer& optimizer, const RunIdentity& run,
           std::string configuration = {}, std::optional<std::int64_t> keep = {});

  // These functions are those of checkpoint::Saver.
  void require_possible() const { saver_.require_possible(); }
  void begin(const Progress& progress, std::optional<checkpoint::ValidationLoss> validation_loss = {});
  bool busy() const { return saver_.busy(); }
  bool committing() const { return saver_.committing(); }
  std::int64_t step() const { return saver_.step(); }
  const std::filesystem::path& path() const { return saver_.path(); }
  std::optional<checkpoint::Saved> poll() { return saver_.poll(); }
  std::optional<checkpoint::Saved> finish() { return saver_.finish(); }
  std::optional<checkpoint::Saved> finish_within(std::chrono::duration<double> limit) {
    return saver_.finish_within(limit);
  }

 private:
  const Model& model_;
  optim::Optimizer& optimizer_;
  RunIdentity run_;
  std::string configuration_;
  checkpoint::Saver saver_;
};

/// The event of a save that succeeded. `best`: see Saved.
Saved saved_event(const checkpoint::Saved& saved, bool best = false);

/// Saves under `out`, which is created if needed, and waits. Returns saved_line() (train/events/texts.h). Collective.
/// Throws ExitCode::io.
std::string save_run(const std::filesystem::path& out, const Model& model, optim::Optimizer& optimizer,
                     const Progress& progress, const RunIdentity& run);

/// Saves only the weights and buffers, as the checkpoint of a run in `out` that has made no step: for generation and
/// --init-from. Returns saved_line(). Collective. Throws ExitCode::io.
std::string save_weights_of_run(const std::filesystem::path& out, const Model& model, const RunIdentity& run);

/// The checkpoint that `path` refers to: itself, or the newest one in a run's folder or in its checkpoints folder. If
/// `best` follows such a folder, as in run1/best: the one with the lowest validation loss (parallel/checkpoint/best.h).
/// Throws ExitCode::usage if there is none, ExitCode::data if the newest one has no valid manifest, and ExitCode::io if
/// it cannot be read.
std::filesystem::path find_saved_run(const std::filesystem::path& path);

/// The checkpoint with which a run with these values of --resume and --out goes on, or one of the same run; nothing: it
/// begins. For what is needed before ranks start, as the model's configuration. Throws as find_saved_run().
std::optional<std::filesystem::path> resumed_checkpoint(const std::string& resume, const std::filesystem::path& out);

/// Opens, on every rank, the checkpoint that find_saved_run() returns on rank 0. Throws the same error on all ranks:
/// those of find_saved_run(), and ExitCode::usage if ranks find different content there. Collective.
checkpoint::Checkpoint open_saved_run(ProcessGroup& world, const std::filesystem::path& path);

/// The result of load_run().
struct Resumed {
  std::filesystem::path path;  ///< of the checkpoint
  Progress progress;
  std::string configuration{};  ///< of the run that saved it, as JSON; may be empty
  std::string dropped{};        ///< what of the optimizer's state is not loaded, as a message; empty: nothing
};
/// Loads weights, optimizer state and buffers of open_saved_run(path) into this rank's shards, and reads only what
/// these need. Throws the same error on every rank: ExitCode::usage, naming the flags, if the model, optimizer,
/// tokenizer, data or seed differs from the saved one; ExitCode::data if the data it reads is damaged. Collective over
/// the model's mesh.
Resumed load_run(const std::filesystem::path& path, Model& model, optim::Optimizer& optimizer, const RunIdentity& run);

/// Like load_run, from the newest valid checkpoint of the run in `out`; returns nothing if the run has saved none. Rank
/// 0 chooses. `tell` is called with the reason for each damaged checkpoint that is skipped. A checkpoint from which two
/// runs resumed and died before completing a step (train/runs/resume_mark.h) is tried last. Changes no file. Throws
/// ExitCode::data if all are damaged, and ExitCode::io at the first that cannot be read, because it may be valid.
/// Collective; rank 0 holds the run's lock.
std::optional<Resumed> load_newest_run(const std::filesystem::path& out, Model& model, optim::Optimizer& optimizer,
                                       const RunIdentity& run, const std::function<void(const std::string&)>& tell);

/// Loads only weights and buffers, from a checkpoint that every rank has opened: for generation, on any mesh. Throws
/// the same error on every rank; ExitCode::usage if the ranks have opened different checkpoints. Collective over the
/// model's mesh. Weights are converted to the model's dtype; one in f32 has the optimizer's f32 copy of a 16-bit
/// weight. `adapters`: false if the run has none; the adapters of the model then keep their values.
void load_weights(checkpoint::Checkpoint& saved, Model& model, bool adapters = true);
/// The same with the average of the weights in their place. Throws ExitCode::usage if the run kept none (--ema-decay).
void load_average(checkpoint::Checkpoint& saved, Model& model);

}  // namespace trireme
