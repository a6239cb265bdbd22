// Model: what training needs of a model of any architecture. Trainer, evaluation, checkpoints and guards use nothing
// else. A Model object is one rank's part of a model. A model is a front, a row of blocks and an end, cut into pipeline
// stages.
//
//   struct Classifier : Model {
//     Classifier(const nn::Build& b, const Config& c, pipeline::StagePlan plan) : Model(b, std::move(plan)) {
//       if (holds_front()) embed_ = std::make_unique<Patches>(front_unit("embed"), c);
//       make_blocks([&](const nn::Build& block, int) { return std::make_unique<Block>(block, c); });
//       if (holds_end()) head_ = std::make_unique<Head>(end_unit("head"), c);
//     }
//     Tensor front(const Batch& batch) override { return (*embed_)(batch["images"]); }          // [B, T, D]
//     Tensor loss(const Tensor& hidden, const Batch& batch, double scale) override;
//     ...
//   };
//
// This is enough for every pipeline schedule, recomputation and units for ZeRO. A rank makes only the layers of its
// stages; blocks are named by their number in the whole model, so a name is the same tensor on every mesh.
// Read next: models/gpt.h, docs/writing_a_model.md.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/batch.h"
#include "nn/module.h"
#include "parallel/pipeline/stage_plan.h"

namespace trireme {

/// What training needs of a model; one rank's part of it. See the top of this file.
/// @snippet training_test.cpp model
class Model {
 public:
  virtual ~Model() = default;
  Model(Model&&) = default;

  // ---- what is computed ---------------------------------------------------------------------------------------------

  /// This rank's part of a micro-batch of whole samples, for hidden() and loss(). It also tells the layers which
  /// samples come next: call it for each stage of each micro-batch, before hidden().
  Batch enter(const Batch& batch);
  /// Stage `stage` of a micro-batch. The first stage begins with `batch` (`input` is ignored), the others with the
  /// previous stage's result. -> hidden_shape()
  Tensor hidden(int stage, const Tensor& input, const Batch& batch);
  /// Last stage: `scale` times the sum of the losses of all targets of this micro-batch that this dp and cp rank holds;
  /// the same on every tp rank. One element. Do not divide by anything else: `scale` is one over the targets of the
  /// global batch.
  virtual Tensor loss(const Tensor& hidden, const Batch& batch, double scale) = 0;
  /// All of these for a batch of whole samples, on a mesh with pp=1: enter(), hidden() of each stage, and loss().
  Tensor loss_of(const Batch& batch, double scale);
  /// The shape of hidden()'s result for a micro-batch of `samples`, the same for every stage.
  virtual Shape hidden_shape(std::int64_t samples) const = 0;

  // ---- what it is ---------------------------------------------------------------------------------------------------

  virtual std::string architecture() const = 0;  ///< "gpt": the kind of configuration()
  /// Sizes and choices, as a checkpoint stores them: a JSON object. A run resumes only with a model of equal
  /// configuration.
  virtual std::string configuration() const = 0;
  /// One field of a configuration, as a user sets it: {"--ffn-width", "512"}.
  using Setting = std::pair<std::string, std::string>;
  /// The fields of a configuration() of this architecture, in the order in which differences are reported. Throws
  /// ExitCode::data, naming `path`, when it is malformed. Unless overridden, "ffn_width" is set by --ffn-width.
  virtual std::vector<Setting> settings(const std::string& configuration, const std::string& path) const;

  const ParameterList& parameters() const { return build_.parameters(); }
  /// The parameter of this name, "blocks.0.mlp.up.weight". Throws ExitCode::usage, with the nearest names, if this rank
  /// has none.
  ParameterPtr parameter(std::string_view name) const { return matching(parameters(), name).front(); }
  std::string summary() const;  ///< of this rank's part: nn/summary.h
  const BufferList& buffers() const { return build_.buffers(); }
  nn::RoutingLog& routing() { return build_.routing(); }  ///< what routers count; empty without experts
  Units& units() { return build_.units(); }               ///< what ZeRO gathers and releases together
  /// What changes from one forward to the next; shared by all layers.
  nn::RunState& run_state() { return *build_.run_state(); }
  void eval() { run_state().training = false; }              ///< all layers compute as in evaluation
  void train(bool on = true) { run_state().training = on; }  ///< ends eval()
  const nn::Parallelism& parallelism() const { return build_.parallelism(); }
  const DeviceMesh& mesh() const { return build_.mesh(); }
  DType dtype() const { return build_.dtype(); }
  Device device() const { return build_.device(); }
  const pipeline::StagePlan& plan() const { return plan_; }        ///< the blocks of each stage of the whole model
  int stages() const { return static_cast<int>(plan_.size()); }    ///< of the whole model
  int chunks() const { return stages() / mesh().size(Axis::pp); }  ///< stages on each rank
  bool is_last_stage(int stage) const { return stage == stages() - 1; }  ///< whether it computes the loss

 protected:
  /// `plan`: the blocks of every stage. Stage s lives on rank s mod pp. Throws ExitCode::internal when the stages do
  /// not divide over the ranks.
  Model(const nn::Build& build, pipeline::StagePlan plan);

  /// What the first stage does with a micro-batch before its blocks.
  virtual Tensor front(const Batch& batch) = 0;
  /// This rank's part of the tensors, on the model's device. A model that divides sequences over cp returns the
  /// positions of this rank. By default every tensor is returned whole; with cp > 1 that is ExitCode::usage, as each cp
  /// rank would count the same samples.
  virtual Batch local_part(const Batch& batch);

  const nn::Build& build() const { return build_; }
  int total_blocks() const { return plan_.back().end(); }
  bool holds_front() const { return mesh().is_first(Axis::pp); }
  bool holds_end() const { return mesh().is_last(Axis::pp); }
  /// The Build for a module of the first stage: it begins a unit, which is used when the module is called.
  nn::Build front_unit(const std::string& name) const { return (build_ / name).unit(0); }
  /// The same for the last stage.
  nn::Build end_unit(const std::string& name) const { return (build_ / name).unit(chunks() - 1); }
  /// Makes this rank's blocks, of "blocks.0", "blocks.1", ..: each is a unit.
  void make_blocks(const std::function<std::unique_ptr<nn::Module>(const nn::Build& block, int index)>& make);

 private:
  struct PlacedBlock {
    int index;  // in the whole model
    std::unique_ptr<nn::Module> module;
  };
  Tensor recomputed(nn::Module& block, const Tensor& x);

  nn::Build build_;
  pipeline::StagePlan plan_;
  std::vector<PlacedBlock> blocks_;
};

}  // namespace trireme
