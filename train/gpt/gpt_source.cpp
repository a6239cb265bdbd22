#include "train/gpt/gpt_source.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/io.h"
#include "models/config_difference.h"
#include "models/gpt_text.h"
#include "nn/weights.h"
#include "parallel/checkpoint/folder.h"
#include "parallel/comm/texts.h"
#include "train/launch/common_values.h"
#include "train/program/progress.h"
#include "train/program/units.h"
#include "train/runs/saved_run.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

/// Number of elements in the stored weights and buffers.
double stored_elements(const checkpoint::Checkpoint& saved) {
  double elements = 0;
  for (const auto& [name, tensor] : saved.manifest().tensors)
    if (!name.starts_with("optimizer.")) elements += static_cast<double>(tensor.shape.count());
  return elements;
}

/// On different machines, the same path may lead to different files; rank 0 decides what it is.
bool first_rank_says(ProcessGroup& world, const std::function<bool()>& question) {
  bool found = false;
  fail_together(world, [&] {
    if (world.rank() == 0) found = question();
  });
  return any_rank(world, found);
}

bool holds_adapters(const fs::path& path) { return is_there(path / hugging_face::adapter_config_name); }

constexpr const char* expected_model =
    "expected the --out folder of train_gpt or one of its checkpoints, a folder in Hugging Face's layout, or a GGUF "
    "file; change the path";

/// Explains paths that are no model of any kind. What a folder of train_gpt lacks, find_saved_run() says.
void require_model_at(const fs::path& path) {
  const bool may_be_chosen = path.filename() == "best" || checkpoint::has_checkpoint_name(path);
  std::error_code unknown;
  if (!may_be_chosen && !is_there(path))
    fail(ExitCode::usage, "model", "{} does not exist; {}", path.string(), expected_model);
  if (holds_adapters(path))
    fail(ExitCode::usage, "checkpoint",
         "{0} holds adapters, and not the model that they belong to; expected that model; give its path, and --adapter "
         "{0} (train_gpt: --init-adapter)",
         path.string());
  if (fs::is_regular_file(path, unknown))
    fail(ExitCode::usage, "model", "{} is a file, but no GGUF file; {}", path.string(), expected_model);
  for (const char* weights : {hugging_face::weights_name, hugging_face::index_name})
    if (is_there(path / weights))
      fail(ExitCode::usage, "model", "{} has {}, but no {} with a 'model_type'; {}", path.string(), weights,
           hugging_face::config_name, expected_model);
}

/// Of a folder in Hugging Face's layout. Its template is parsed only when it is used.
UsageTexts usage_of(const hugging_face::Folder& folder) {
  const TemplateTexts texts = template_texts(folder.path());
  return {.chat_template = texts.text,
          .special_tokens = texts.special_tokens,
          .end_tokens = folder.end_tokens(),
          .context = folder.config().context};
}

}  // namespace

SavedGpt read_saved_gpt(const checkpoint::Checkpoint& saved) {
  const std::string architecture = saved_architecture(saved);
  if (architecture != "gpt")
    fail(ExitCode::usage, "checkpoint", "{} holds a model of the architecture '{}'; expected 'gpt'; change the path",
         saved.path().string(), architecture);
  const std::filesystem::path manifest = saved.path() / checkpoint::manifest_name;
  const StoredGpt model = read_gpt_text(saved.run("model"), manifest, stored_elements(saved));
  SavedGpt gpt{.config = model.config,
               .dtype = model.dtype,
               .tokenizer = parse_tokenizer(saved.run("tokenizer"), manifest),
               .progress = read_progress(saved),
               .usage = {}};
  const RunTexts& texts = saved.manifest().run;
  if (const auto usage = texts.find(usage_entry); usage != texts.end())
    gpt.usage = UsageTexts::parse(usage->second, manifest);
  gpt.config.dropout = 0;
  return gpt;
}

GptSource::GptSource(ProcessGroup& world, const std::string& path, const std::string& adapter)
    : first_(world.rank() == 0) {
  open(world, path);
  if (!adapter.empty()) open_adapter(world, adapter);
}

void GptSource::open_adapter(ProcessGroup& world, const std::string& path) {
  fail_together(world, [&] { adapter_ = std::make_shared<const hugging_face::Adapter>(path, config_); });
  require_common(world, {{"the adapter in " + path, fmt::format("content {:016x}", adapter_->fingerprint()),
                          "expected one; give every rank the same files: a folder that all of them share, or equal "
                          "copies"}});
  config_.lora = adapter_->lora();
  config_.lora.dropout = 0;
}

void GptSource::open(ProcessGroup& world, const std::string& path) {
  if (first_rank_says(world, [&] { return gguf::is_file(path); })) {
    fail_together(world, [&] { file_ = std::make_shared<const gguf::ModelFile>(path); });
    require_common(world,
                   {{"the model in " + path, fmt::format("content {:016x}", file_->fingerprint()),
                     "expected one; give every rank the same file: one that all of them share, or equal copies"}});
    config_ = file_->config();
    dtype_ = file_->dtype();
    usage_ = {.chat_template = file_->chat_template(),
              .special_tokens = file_->special_tokens(),
              .end_tokens = file_->end_tokens(),
              .context = config_.context};
    return;
  }
  if (first_rank_says(world, [&] { return hugging_face::is_folder(path); })) {
    fail_together(world, [&] { folder_ = std::make_shared<const hugging_face::Folder>(path); });
    require_common(world, {{"the model in " + path, fmt::format("content {:016x}", folder_->fingerprint()),
                            "expected one; give every rank the same files: a folder that all of them share, or equal "
                            "copies"}});
    config_ = folder_->config();
    dtype_ = folder_->dtype();
    fail_together(world, [&] { usage_ = usage_of(*folder_); });
    return;
  }
  fail_together(world, [&] {
    if (world.rank() == 0) require_model_at(path);
  });
  checkpoint_.emplace(open_saved_run(world, path));
  const SavedGpt saved = read_saved_gpt(*checkpoint_);
  config_ = saved.config;
  dtype_ = saved.dtype;
  tokenizer_ = saved.tokenizer;
  usage_ = saved.usage;
}

std::shared_ptr<const Tokenizer> GptSource::tokenizer() const {
  return file_ ? file_->tokenizer() : folder_ ? folder_->tokenizer() : tokenizer_;
}

std::vector<std::int32_t> GptSource::end_tokens() const {
  if (!usage_.end_tokens.empty() || folder_ || file_) return usage_.end_tokens;
  const std::optional<std::int32_t> end = tokenizer_->end_of_text();
  return end ? std::vector{*end} : std::vector<std::int32_t>();
}

ChatTemplate GptSource::chat_template() const {
  if (usage_.chat_template.empty())
    fail(ExitCode::usage, "chat",
         "the model ({}) has no chat template; expected one of the folder or file that it came from, or of the "
         "--chat-template it was trained with; give --chat-template FILE, or --chat-template chatml",
         description());
  return ChatTemplate::parse(usage_.chat_template, "the model's chat template", usage_.special_tokens);
}

std::string GptSource::description() const {
  const std::string adapter = adapter_ ? ", with the adapters in " + adapter_->path().string() : "";
  if (file_) return fmt::format("{} in {}{}", file_->architecture(), file_->path().string(), adapter);
  return (folder_ ? fmt::format("{} in {}", folder_->model_type(), folder_->path().string())
                  : "checkpoint: " + checkpoint_->path().string()) +
         adapter;
}

void GptSource::load(Model& model) {
  load_base(model);
  if (!adapter_) return;
  const nn::detail::HeldWeights held = nn::detail::held_weights(model);
  adapter_->load(held.tensors, *held.group);
}

void GptSource::load_base(Model& model) {
  if (!folder_ && !file_) return load_weights(*checkpoint_, model, config_.lora.rank > 0 && !adapter_);
  const nn::detail::HeldWeights held = nn::detail::held_weights(model);
  const auto load_all = [&](const ReadProgress& progress) {
    file_ ? file_->load(held.tensors, *held.group, progress) : folder_->load(held.tensors, *held.group, progress);
  };
  if (!first_) return load_all({});
  double bytes = 0;
  for (const checkpoint::HeldTensor& tensor : held.tensors) bytes += static_cast<double>(tensor.value.bytes());
  ProgressBar bar(Screen::of_process(), "loading", bytes, format_bytes);
  load_all([&](std::uint64_t done) { bar.set(static_cast<double>(done)); });
}

void GptSource::load_average(Model& model) {
  if (adapter_)
    fail(ExitCode::usage, "ema", "the adapters in {} belong to the weights, not to their average; drop --ema",
         adapter_->path().string());
  if (folder_ || file_)
    fail(ExitCode::usage, "ema",
         "{} is no run, and has no average of weights; expected a run with --ema-decay; drop --ema",
         (file_ ? file_->path() : folder_->path()).string());
  trireme::load_average(*checkpoint_, model);
}

GptConfig read_gpt_config(const std::string& path) {
  if (gguf::is_file(path)) return gguf::ModelFile(path).config();
  if (hugging_face::is_folder(path)) return hugging_face::read_config(path).gpt;
  require_model_at(path);
  const checkpoint::Checkpoint saved(find_saved_run(path));
  return read_saved_gpt(saved).config;
}

nn::LoraOptions read_adapter_options(const std::string& adapter, const GptConfig& base) {
  return hugging_face::Adapter(adapter, base).lora();
}

void require_same_gpt(const GptConfig& asked, const GptConfig& saved, const std::string& path) {
  GptConfig expected = saved;
  if (saved.lora.rank == 0) expected.lora = asked.lora;  // adapters are added to the model
  if (saved.positions == PositionEncoding::rope && asked.context < saved.context) expected.context = asked.context;
  std::string text;
  for (const ConfigDifference& difference : config_differences(asked, expected))
    text += fmt::format("{}{} {} (there: {})", text.empty() ? "" : ", ", difference.flag, difference.value,
                        difference.other);
  if (text.empty()) return;
  fail(ExitCode::usage, "init-from",
       "the model in {} is another one than these flags describe: {}; expected its own sizes and choices; drop these "
       "flags, or --init-from",
       path, text);
}

}  // namespace trireme
