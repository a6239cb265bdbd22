// GptSource: a GPT that this or another program has saved. This is the one place that decides what kind of folder a
// path is:
//
//   a model in Hugging Face's layout     config.json with a model_type: models/hugging_face/folder.h
//   a GGUF file                          models/gguf/model_file.h
//   a run, or one of its checkpoints     train/runs/saved_run.h
//
// With the path of a folder that PEFT has written, the model has its adapters: models/hugging_face/adapter.h.
//
//   GptSource source(world, "Qwen3-0.6B");
//   Gpt model(build, source.gpt().config);
//   source.load(model);
// Read next: train/runs/run_texts.h, models/gpt_text.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/tokenizer.h"
#include "models/gguf/model_file.h"
#include "models/gpt_config.h"
#include "models/hugging_face/adapter.h"
#include "models/hugging_face/folder.h"
#include "models/model.h"
#include "train/gpt/usage_texts.h"
#include "train/runs/run_texts.h"

namespace trireme {

/// A GPT of a checkpoint without its run, for generation.
struct SavedGpt {
  GptConfig config;  ///< without dropout
  DType dtype = DType::f32;
  std::shared_ptr<const Tokenizer> tokenizer;
  Progress progress;
  UsageTexts usage;
};

/// Throws ExitCode::usage if the checkpoint's model is not a GPT, and ExitCode::data if an entry is malformed or
/// describes a model that does not match the stored tensors.
SavedGpt read_saved_gpt(const checkpoint::Checkpoint& saved);

class GptSource {
 public:
  /// Opens `path` on all ranks, and `adapter`, unless it is empty. Throws as open_saved_run() and read_saved_gpt(), or
  /// as hugging_face::Folder(); and as hugging_face::Adapter(). Collective over `world`.
  GptSource(ProcessGroup& world, const std::string& path, const std::string& adapter = "");

  const GptConfig& config() const { return config_; }  ///< without dropout
  DType dtype() const { return dtype_; }               ///< of the stored weights
  /// Throws as hugging_face::Folder::tokenizer().
  std::shared_ptr<const Tokenizer> tokenizer() const;
  /// Generation ends before these.
  std::vector<std::int32_t> end_tokens() const;
  /// What else goes with the model: chat template, end tokens, its context.
  const UsageTexts& usage() const { return usage_; }
  /// Throws ExitCode::usage if the model has no template, and ExitCode::data as ChatTemplate::parse().
  ChatTemplate chat_template() const;
  std::string description() const;  ///< "checkpoint: run1/checkpoints/step_00001000"
  /// Null for a checkpoint and a GGUF file.
  const hugging_face::Folder* folder() const { return folder_.get(); }
  /// Null for all but a GGUF file.
  const gguf::ModelFile* gguf_file() const { return file_.get(); }

  /// Fills this rank's part of a model of config(), on any mesh. The model may have adapters that config() has not.
  /// The first rank shows the progress on the terminal. Call it before an optimizer is made. Collective over the
  /// model's mesh.
  void load(Model& model);
  /// The same with the average of the weights (--ema-decay). Throws ExitCode::usage if there is none, or an adapter.
  void load_average(Model& model);

 private:
  void open(ProcessGroup& world, const std::string& path);
  void open_adapter(ProcessGroup& world, const std::string& path);
  void load_base(Model& model);

  bool first_;  // of the ranks that opened it: shows the progress, also if several copies of the model are loaded
  GptConfig config_;
  DType dtype_ = DType::f32;
  std::shared_ptr<const Tokenizer> tokenizer_;  // of a checkpoint
  UsageTexts usage_;
  std::shared_ptr<const hugging_face::Folder> folder_;
  std::shared_ptr<const gguf::ModelFile> file_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
  std::shared_ptr<const hugging_face::Adapter> adapter_;  // or null
};

/// The configuration alone, which is quick: what `--init-from PATH` describes. Throws as GptSource().
GptConfig read_gpt_config(const std::string& path);

/// What the folder of adapters says about a model of `base`: rank, factor and targets. Throws as
/// hugging_face::Adapter().
nn::LoraOptions read_adapter_options(const std::string& adapter, const GptConfig& base);

/// Throws ExitCode::usage, naming all flags, if `asked`, what the flags describe, computes something else than `saved`,
/// the model in `path`. A shorter context is allowed with rotary positions.
void require_same_gpt(const GptConfig& asked, const GptConfig& saved, const std::string& path);

}  // namespace trireme
