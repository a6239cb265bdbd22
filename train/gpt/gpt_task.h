// The task of train_gpt: a GPT and its text. Read next: train/gpt/gpt_task.cpp, train/loop/training.h.
#pragma once

#include <optional>

#include "data/corpus.h"
#include "train/gpt/gpt_options.h"
#include "train/loop/task.h"

namespace trireme {

class GptTask : public Task {
 public:
  GptTask() : Task(o_) {}
  GptOptions& gpt() { return o_; }

  void declare_model(Flags& flags) override;
  void declare_data(Flags& flags) override;
  void validate() const override;
  std::string name() const override { return o_.model.preset == "custom" ? "gpt" : o_.model.preset; }
  std::vector<std::pair<std::string, std::string>> config_notes() const override;

  std::unique_ptr<Model> make(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh) const override;
  ParameterCounts parameters() const override;
  double activation_bytes(const TrainOptions& options, int live) const override;
  double workspace_bytes() const override;

  void load() override;
  CommonValues common() const override { return common_corpus(*corpus_); }
  RunIdentity identity() const override;
  std::shared_ptr<const DataSource> training() const override;
  std::shared_ptr<const ValidationSource> validation() const override;
  std::int64_t targets() const override { return o_.model.config.context; }

  UnitNames unit_names() const override { return {"sequences", "tokens", "tok/s"}; }
  std::vector<LabelledValue> rows() const override;
  std::string gpu_kernels() const override;
  std::string explain_loss(std::int64_t steps, double loss) const override;
  nn::ExpertsOptions experts() const override { return o_.model.config.experts; }
  std::string sample(Model& model) const override;

  void set_parity_defaults() override;
  void declare_parity_data(Flags& flags) override;
  void prepare_parity() override;
  ParityModel::Data parity_data(const TrainOptions& options) const override;

 private:
  GptOptions o_;
  std::optional<Corpus> corpus_;
};

}  // namespace trireme
