// Task: a model together with its data, as programs use it. build/bin/train trains any of them (train/loop/training.h),
// build/bin/parity compares meshes with it (train/parity/parity.h). An author of a model writes a Task beside it and
// adds it to the list in examples/tasks/list.cpp; docs/writing_a_model.md shows one.
//
// The order of calls. Training: declare_data(), declare_model(), the flags are read and resolved, validate(), load().
// Comparing: set_parity_defaults(), declare_model(), declare_parity_data(), flags, prepare_parity(), validate(). Then
// the rest. Read next: examples/tasks/vit.cpp, train/loop/gpt_task.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/source.h"
#include "models/model.h"
#include "nn/experts_options.h"
#include "train/launch/common_values.h"
#include "train/options/flags.h"
#include "train/options/options.h"
#include "train/parity/parity.h"
#include "train/report/report.h"
#include "train/runs/run_texts.h"

namespace trireme {

class Task {
 public:
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // ---- flags -------------------------------------------------------------------------------------------------------

  /// What every training program can be told. A task sets defaults of its own in its constructor.
  TrainOptions& options() { return *options_; }
  const TrainOptions& options() const { return *options_; }
  /// The flags of the model.
  virtual void declare_model(Flags& flags) = 0;
  /// The flags of the data that the model trains on.
  virtual void declare_data(Flags& flags) { static_cast<void>(flags); }
  /// Throws ExitCode::usage for a model that the mesh cannot hold. Has to call validate_training(), which checks all
  /// that is not the model's own, and, for a model that needs whole sequences on a rank, require_whole_sequences().
  virtual void validate() const = 0;
  /// Notes that --print-config adds to flags: pairs of flag and note.
  virtual std::vector<std::pair<std::string, std::string>> config_notes() const { return {}; }

  // ---- the model ---------------------------------------------------------------------------------------------------

  /// This rank's part of the model on a mesh. The model's own flags are members of the task; everything else comes from
  /// `options`, not from options(): a comparison asks for the model on one rank, too.
  virtual std::unique_ptr<Model> make(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh) const = 0;
  /// Parameters of the whole model, to refuse at once what the machine cannot hold; 0: known only when it is made.
  virtual std::int64_t parameters() const { return 0; }
  /// Bytes of activations on one rank, with so many micro-batches between forward and backward; 0: not known.
  virtual double activation_bytes(int live) const { return static_cast<void>(live), 0; }
  /// Bytes that libraries keep on one rank besides tensors.
  virtual double workspace_bytes() const { return 0; }

  // ---- the data ----------------------------------------------------------------------------------------------------

  /// Reads or makes the data, and sets the parts of the model that depend on it, such as a vocabulary. Throws
  /// ExitCode::data.
  virtual void load() {}
  /// What load() has read and every rank must have read alike.
  virtual CommonValues common() const { return {}; }
  virtual RunIdentity identity() const { return {.seed = options().run.seed}; }
  /// Sample n must be a pure function of n (data/source.h).
  virtual std::shared_ptr<const DataSource> training() const = 0;
  /// Null: there is no validation loss.
  virtual std::shared_ptr<const ValidationSource> validation() const { return nullptr; }
  /// How many targets a sample has: loss terms. For text, its tokens. A step divides by the global batch times this, so
  /// a target that the loss leaves out counts here all the same.
  virtual std::int64_t targets() const = 0;

  // ---- what a run prints -------------------------------------------------------------------------------------------

  struct Words {
    std::string samples = "samples", targets = "targets", per_second = "targets/s";
  };
  virtual Words words() const { return {}; }
  /// Rows of the table before training: the model and its data.
  virtual std::vector<Row> rows() const = 0;
  /// Which kernels it uses on a GPU: a line each.
  virtual std::string gpu_kernels() const { return ""; }
  /// What a validation loss after so many steps means, in words behind it; empty: nothing.
  virtual std::string explain_loss(std::int64_t steps, double loss) const {
    return static_cast<void>(steps), static_cast<void>(loss), "";
  }
  /// Weights of the losses of routers, for a model with experts.
  virtual nn::ExpertsOptions experts() const { return {}; }
  /// What --sample-every prints, made by the model, for a task whose declare_data() calls declare_samples().
  /// Collective.
  virtual std::string sample(Model& model) const { return static_cast<void>(model), ""; }

  // ---- comparing meshes --------------------------------------------------------------------------------------------

  /// In a comparison, called before any flag is read: may choose a small model.
  virtual void set_parity_defaults() {}
  /// In a comparison, called in place of declare_data(): flags of the made-up data.
  virtual void declare_parity_data(Flags& flags) { static_cast<void>(flags); }
  /// In a comparison, called in place of load(), before validate().
  virtual void prepare_parity() {}
  /// A global batch, the same on every rank. By default the first samples of training().
  virtual ParityModel::Data parity_data(const TrainOptions& options) const {
    const std::int64_t samples = options.batch_sizes().global_batch;
    return {training()->make_batch(0, samples), samples * targets()};
  }

 protected:
  Task() : options_(&own_) {}
  /// A task whose options are more than TrainOptions keeps them itself.
  explicit Task(TrainOptions& options) : options_(&options) {}

 private:
  TrainOptions own_;
  TrainOptions* options_;
};

/// `task`, which must outlive it, as Parity takes it.
ParityModel parity_model(const Task& task);

}  // namespace trireme
