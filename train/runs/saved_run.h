// A run saved and resumed: what parallel/checkpoint stores, applied to a model, its optimizer and its progress.
//
// Tensors are stored under global names, without padding, so a run saved on one mesh is resumed on any other:
//   blocks.0.mlp.up.weight              a parameter (or a buffer: nn/buffer.h), in the model's dtype
//   optimizer.m.blocks.0.mlp.up.weight  its optimizer state, f32 (m, v, momentum, master)
// Everything else a run needs to go on is in train/runs/run_texts.h.
// Read next: parallel/checkpoint/saver.h, parallel/checkpoint/checkpoint.h.
#pragma once

#include "parallel/checkpoint/saver.h"
#include "train/runs/run_texts.h"

namespace trireme {

/// Saves a run in the background, again and again.
class RunSaver {
 public:
  /// All arguments must outlive this object. `configuration`: the run's options, as --config takes them. Collective.
  RunSaver(const std::filesystem::path& out, const Model& model, optim::Optimizer& optimizer, const RunIdentity& run,
           std::string configuration = {}, std::optional<std::int64_t> keep = {});

  // As checkpoint::Saver has them.
  void begin(const Progress& progress);
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

/// What to print of a save: "saved step 20 in PATH (1.2 MB, 0.030 s, of which training stood still for 0.001 s)".
std::string saved_line(const checkpoint::Saved& saved);

/// Saves under `out` and waits; returns saved_line(). Collective. Throws ExitCode::io.
std::string save_run(const std::filesystem::path& out, const Model& model, optim::Optimizer& optimizer,
                     const Progress& progress, const RunIdentity& run);

/// The checkpoint that `path` means: itself, or the newest one of a run's folder or of the checkpoints in it. Throws
/// ExitCode::usage when there is
/// none, and ExitCode::data when the newest one has no valid manifest, ExitCode::io when it cannot be read.
std::filesystem::path find_saved_run(const std::filesystem::path& path);

/// The checkpoint that `path` means to rank 0 (find_saved_run), opened by every rank. Throws the same on all: as
/// find_saved_run, and ExitCode::usage when ranks find different content there. Collective.
checkpoint::Checkpoint open_saved_run(ProcessGroup& world, const std::filesystem::path& path);

struct Resumed {
  std::filesystem::path path;  ///< of the checkpoint
  Progress progress;
};
/// Loads weights, optimizer state and buffers of open_saved_run(path) into this rank's shards, reading what it needs of
/// them. Throws, on every rank alike, ExitCode::usage when the model, the optimizer, the tokenizer, the data or the
/// seed is not the one saved, naming the flags, and ExitCode::data when what it reads is damaged. Collective over the
/// model's mesh.
Resumed load_run(const std::filesystem::path& path, Model& model, optim::Optimizer& optimizer, const RunIdentity& run);

/// As load_run, from the newest valid checkpoint of the run in `out`; nothing when it has saved none. Rank 0 chooses.
/// Of those that are damaged `tell` is told why they were skipped. One from which two runs resumed and died before they
/// had made a step (train/runs/resume_mark.h) is tried last. Changes no file. Throws ExitCode::data when all are
/// damaged, and ExitCode::io at the first that cannot be read: it may be whole. Collective; rank 0 has the run's lock.
std::optional<Resumed> load_newest_run(const std::filesystem::path& out, Model& model, optim::Optimizer& optimizer,
                                       const RunIdentity& run, const std::function<void(const std::string&)>& tell);

/// Weights and buffers alone, of a checkpoint that every rank has opened: for generation, on any mesh. Throws the same
/// on every rank, ExitCode::usage when these are not one checkpoint. Collective over the model's mesh.
void load_weights(checkpoint::Checkpoint& saved, Model& model);

}  // namespace trireme
