// The task of train_gpt: a GPT and its text. Read next: train/gpt/gpt_task.cpp, ops/run/train_program.h.
#pragma once

#include <optional>

#include "data/corpus.h"
#include "data/mixture.h"
#include "train/gpt/dialogue_data.h"
#include "train/gpt/gpt_options.h"
#include "train/gpt/usage_texts.h"
#include "train/loop/task.h"

namespace trireme {

/// The task of train_gpt: a GPT on text.
class GptTask : public Task {
 public:
  GptTask();
  GptOptions& gpt() { return o_; }  ///< the options, which the flags set

  void declare_model(Flags& flags) override;
  void declare_data(Flags& flags) override;
  void validate() const override;
  std::string name() const override { return o_.model.preset == "custom" ? "gpt" : o_.model.preset; }
  std::vector<std::pair<std::string, std::string>> config_notes() const override;

  std::unique_ptr<Model> make(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh) const override;
  std::string needed_checkpoint() const override;
  double workspace_bytes() const override;

  void load() override;
  CommonValues common() const override { return common_corpus(*corpus_); }
  RunIdentity identity() const override;
  std::shared_ptr<const DataSource> training() const override;
  std::shared_ptr<const ValidationSource> validation() const override;
  std::int64_t targets() const override { return o_.model.config.context; }
  std::vector<std::pair<std::string, double>> epochs(std::int64_t samples) const override;

  UnitNames unit_names() const override { return {"sequences", "tokens", "tok/s"}; }
  std::vector<LabelledValue> rows() const override;
  std::string gpu_kernels() const override;
  std::string explain_loss(std::int64_t steps, double loss) const override;
  std::string use_command(const std::string& out) const override;
  nn::ExpertsOptions experts() const override { return o_.model.config.experts; }
  std::string sample(Model& model) const override;
  bool exports() const override { return o_.export_hf; }
  std::string export_model(Model& model, const std::filesystem::path& checkpoint) const override;

  void set_parity_defaults() override;
  void declare_parity_data(Flags& flags) override;
  void prepare_parity() override;
  GlobalBatch parity_data(const TrainOptions& options) const override;

 private:
  std::shared_ptr<const Tokenizer> own_tokenizer() const;
  std::optional<ChatTemplate> chat_template() const;
  void set_usage();
  Corpus load_text() const;
  void make_training();
  std::string data_row() const;
  std::string packing_row() const;

  GptOptions o_;
  std::optional<Corpus> corpus_;
  UsageTexts usage_;             // of the model with which training begins, and of --chat-template
  std::string other_tokenizer_;  // how the tokenizer differs from that of this model; empty: it does not
  std::shared_ptr<const DataSource> training_;
  std::unique_ptr<MixtureCounter> counter_;  // of a mixture
  std::vector<double> samples_per_epoch_;    // of each source of the corpus
  std::vector<PackingReport> packed_;        // of each source; empty with --packing cut
  std::int64_t cut_by_windows_ = 0;          // documents that --packing cut would cut
  std::optional<ChatTemplate> chat_;         // of dialogues
  std::optional<DialogueData> dialogues_;    // with a chat template
};

}  // namespace trireme
