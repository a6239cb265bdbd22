// Task: a model together with its data, as programs use it. build/bin/train trains any task (ops/run/train_program.h),
// and build/bin/parity compares meshes with it (check/parity/parity.h). The author of a model writes a Task for it and
// adds it to the list in examples/tasks/list.cpp; docs/writing_a_model.md shows one.
//
// The order of calls. For training: declare_data(), declare_model(), then the flags are parsed and resolved,
// validate(), load(). For a comparison: set_parity_defaults(), declare_model(), declare_parity_data(), the flags,
// prepare_parity(), validate(). All other functions come after these. Read next: examples/tasks/vit.cpp,
// train/gpt/gpt_task.h.
#pragma once

#include <filesystem>
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
#include "train/report/report.h"
#include "train/runs/run_texts.h"
#include "train/step/rank_memory.h"

namespace trireme {

/// A whole global batch, the same on every rank.
struct GlobalBatch {
  Batch batch;
  std::int64_t targets = 0;  ///< the sum of losses is divided by this
};

class Task {
 public:
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // ---- flags -------------------------------------------------------------------------------------------------------

  /// The options of every training program. A task sets its own defaults in its constructor.
  TrainOptions& options() { return *options_; }
  const TrainOptions& options() const { return *options_; }
  /// Declares the flags of the model.
  virtual void declare_model(Flags& flags) = 0;
  /// Declares the flags of the training data.
  virtual void declare_data(Flags& flags) { static_cast<void>(flags); }
  /// Throws ExitCode::usage for a model that the mesh cannot hold. Must call validate_training(), which checks
  /// everything that does not depend on the model. For a model that needs whole sequences on a rank, must also call
  /// require_whole_sequences().
  virtual void validate() const = 0;
  /// A short name for the model: part of the name of the folder of --out auto. Letters, digits, "-" and ".".
  virtual std::string name() const { return "run"; }
  /// Notes that --print-config adds after the flags: pairs of a flag's name and a note.
  virtual std::vector<std::pair<std::string, std::string>> config_notes() const { return {}; }

  // ---- the model ---------------------------------------------------------------------------------------------------

  /// This rank's part of the model. The flags of the model are members of the task. Everything else comes from
  /// `options`, not from options(), because a comparison also makes the model on one rank.
  virtual std::unique_ptr<Model> make(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh) const = 0;
  /// The checkpoint without which the model of make() has no weights; empty: it has its first ones.
  virtual std::string needed_checkpoint() const { return ""; }
  /// Bytes that libraries allocate on one rank besides tensors.
  virtual double workspace_bytes() const { return 0; }

  // ---- the data ----------------------------------------------------------------------------------------------------

  /// Reads or makes the data, and sets fields of the model that depend on the data, such as a vocabulary size. Throws
  /// ExitCode::data.
  virtual void load() {}
  /// Values that describe the loaded data; they must be equal on all ranks.
  virtual CommonValues common() const { return {}; }
  virtual RunIdentity identity() const { return {.seed = options().run.seed}; }
  /// Sample n must be a pure function of n (data/source.h).
  virtual std::shared_ptr<const DataSource> training() const = 0;
  /// Null: no validation loss.
  virtual std::shared_ptr<const ValidationSource> validation() const { return nullptr; }
  /// Targets (loss terms) per sample. For text, its tokens. A step divides by the global batch times this number, so a
  /// target that the loss ignores is still counted, unless the source of training() counts them:
  /// DataSource::targets_of().
  virtual std::int64_t targets() const = 0;

  /// How often each source of the training data was read, after `samples` samples, by name; empty: there is only one,
  /// and its samples are drawn at random.
  virtual std::vector<std::pair<std::string, double>> epochs(std::int64_t samples) const {
    return static_cast<void>(samples), std::vector<std::pair<std::string, double>>();
  }

  // ---- what a run prints -------------------------------------------------------------------------------------------

  /// What the task calls its samples and targets, in tables and progress lines.
  struct UnitNames {
    std::string samples = "samples", targets = "targets", per_second = "targets/s";
  };
  virtual UnitNames unit_names() const { return {}; }
  /// Rows for the table before training: the model and its data.
  virtual std::vector<LabelledValue> rows() const = 0;
  /// The kernels it uses on a GPU, one line each.
  virtual std::string gpu_kernels() const { return ""; }
  /// An explanation to print after the validation loss of step `steps`; empty: none.
  virtual std::string explain_loss(std::int64_t steps, double loss) const {
    return static_cast<void>(steps), static_cast<void>(loss), "";
  }
  /// A command that uses the weights of the run in `out`, to print when it has ended; empty: none.
  virtual std::string use_command(const std::string& out) const { return static_cast<void>(out), ""; }
  /// The weights of router losses, for a model with experts.
  virtual nn::ExpertsOptions experts() const { return {}; }
  /// The text that --sample-every prints, made by the model; for a task whose declare_data() calls declare_samples().
  /// Collective.
  virtual std::string sample(Model& model) const { return static_cast<void>(model), ""; }
  /// Whether export_model() is to be called after each save; the run then waits for its saves.
  virtual bool exports() const { return false; }
  /// Writes the weights into the folder of the checkpoint that was just saved, for other programs. Returns a message.
  /// Collective. Throws ExitCode::io.
  virtual std::string export_model(Model& model, const std::filesystem::path& checkpoint) const {
    return static_cast<void>(model), static_cast<void>(checkpoint), "";
  }

  // ---- comparing meshes --------------------------------------------------------------------------------------------

  /// In a comparison, called before flags are parsed; may choose a small model.
  virtual void set_parity_defaults() {}
  /// In a comparison, called instead of declare_data(): declares flags of the synthetic data.
  virtual void declare_parity_data(Flags& flags) { static_cast<void>(flags); }
  /// In a comparison, called instead of load(), before validate().
  virtual void prepare_parity() {}
  /// A global batch, the same on every rank. By default, the first samples of training().
  virtual GlobalBatch parity_data(const TrainOptions& options) const {
    const std::int64_t samples = options.batch_sizes().global_batch;
    return {training()->make_batch(0, samples), samples * targets()};
  }

 protected:
  Task() : options_(&own_) {}
  /// For a task whose options extend TrainOptions: the task keeps them itself.
  explicit Task(TrainOptions& options) : options_(&options) {}

 private:
  TrainOptions own_;
  TrainOptions* options_;
};

/// For dry runs of the task's model. After load().
inline DryProgram dry_program(const Task& task) {
  return {.model = [&task](const TrainOptions& options,
                           std::shared_ptr<const DeviceMesh> mesh) { return task.make(options, std::move(mesh)); },
          .sample = task.training()->make_batch(0, 1).tensors};
}

}  // namespace trireme
