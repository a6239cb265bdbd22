#include "models/hugging_face/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/hash.h"
#include "core/io.h"
#include "data/safetensors.h"
#include "models/hugging_face/adapter_config.h"
#include "models/hugging_face/adapter_weights.h"
#include "models/hugging_face/config.h"
#include "models/weight_transfer.h"
#include "nn/lora.h"
#include "parallel/comm/texts.h"

namespace trireme::hugging_face {

namespace fs = std::filesystem;

void require_adapters(const GptConfig& config) {
  if (config.lora.rank == 0)
    fail(ExitCode::usage, "adapter",
         "the model has no adapters; expected a run with --lora-rank; `convert hf` writes the whole model");
  model_type_of(config);
}

// ---- writing --------------------------------------------------------------------------------------------------------

void write_adapter(const fs::path& folder, const ExportedAdapter& exported,
                   const std::vector<checkpoint::HeldTensor>& held, ProcessGroup& group) {
  const GptConfig& config = exported.config;
  const DType dtype = exported.dtype;
  require_adapters(config);
  WeightMap map;
  std::vector<std::string> targets;
  for (const AdaptableLayer& layer : adaptable_layers(config)) {
    if (!config.lora.adapts(layer.ours)) continue;
    add_adapter(map, layer, config.lora.rank);
    targets.insert(targets.end(), layer.theirs.begin(), layer.theirs.end());
  }
  std::optional<AtomicFolder> place;
  std::optional<SafetensorsWriter> file;
  fail_together(group, [&] {
    if (group.rank() != 0) return;
    place.emplace(folder);
    write_file(place->temporary() / adapter_config_name,
               adapter_config_text(config.lora, targets, model_type_of(config) == "gpt2", exported.base));
    std::vector<SafetensorsEntry> entries;
    for (const TheirTensor& tensor : their_tensors(map)) entries.push_back({tensor.name, dtype, tensor.shape});
    file.emplace(place->temporary() / adapter_weights_name, entries,
                 std::map<std::string, std::string>{{"format", "pt"}});
  });
  write_weights(held, map, group, dtype, [&](const std::string&, const Tensor& whole) { file->write(whole); });
  fail_together(group, [&] {
    if (group.rank() != 0) return;
    file->commit();
    place->commit();
  });
}

// ---- reading --------------------------------------------------------------------------------------------------------

/// The matrices' file, for read_weights().
class Adapter::File : public TensorSource {
 public:
  explicit File(const fs::path& path) : path_(path), file_(path) {}
  std::string path() const override { return path_.string(); }
  std::vector<std::string> names() const override { return file_.names(); }
  std::optional<Stored> find(std::string_view name) const override {
    if (!file_.contains(name)) return std::nullopt;
    return Stored{file_.dtype(name), file_.shape(name)};
  }
  void read(std::string_view name, const Shape& start, Tensor& into) const override { file_.read(name, start, into); }
  void require_whole() const override { file_.require_whole(); }

 private:
  fs::path path_;
  SafetensorsFile file_;
};

namespace {

/// "attn.q" of "blocks.0.attn.q".
std::string_view within_block(std::string_view layer) { return layer.substr(layer.find('.', layer.find('.') + 1) + 1); }

/// LoraOptions::targets that fit these layers and no others of `all`: a pattern for what every block has.
std::string targets_of(const std::vector<std::string>& adapted, const std::vector<AdaptableLayer>& all) {
  const auto joined = [](const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, ",")); };
  if (adapted.size() == all.size()) return nn::LoraOptions().targets;
  std::map<std::string_view, std::size_t> left;  // layers of this name in a block that have no adapter
  for (const AdaptableLayer& layer : all) ++left[within_block(layer.ours)];
  for (const std::string& layer : adapted) --left[within_block(layer)];
  std::set<std::string> patterns;
  std::vector<std::string> targets;
  for (const std::string& layer : adapted) {
    const std::string_view name = within_block(layer);
    const std::string target = left[name] == 0 ? fmt::format("*.{}", name) : layer;
    if (patterns.insert(target).second) targets.push_back(target);
  }
  return joined(targets);
}

fs::path config_path(const fs::path& folder) {
  fs::path path = folder / adapter_config_name;
  if (is_there(path)) return path;
  fail(ExitCode::usage, "adapter",
       "{} has no {}; expected a folder that PEFT's save_pretrained() has written; change "
       "the path",
       folder.string(), adapter_config_name);
}

fs::path weights_path(const fs::path& folder) {
  fs::path path = folder / adapter_weights_name;
  if (is_there(path)) return path;
  fail(ExitCode::data, "adapter",
       "{} has no {}; expected the matrices in a safetensors file (pickled .bin files are not read: load them in PEFT, "
       "and save them again)",
       folder.string(), adapter_weights_name);
}

}  // namespace

Adapter::~Adapter() = default;

Adapter::Adapter(const fs::path& folder, const GptConfig& base) : path_(folder) {
  const fs::path config = config_path(folder);
  lora_ = parse_adapter_config(read_file(config, read_limits::configuration), config);
  if (base.lora.rank > 0)
    fail(ExitCode::usage, "adapter",
         "the model has adapters itself, of rank {}, and {} would be others beside the same layers; expected a model "
         "without; merge its own first: convert hf",
         base.lora.rank, folder.string());
  file_ = std::make_unique<const File>(weights_path(folder));
  const std::vector<AdaptableLayer> all = adaptable_layers(base);
  std::vector<std::string> adapted;
  for (AdaptableLayer layer : all) {
    const std::size_t layers = layer.theirs.size();
    for (std::string& theirs : layer.theirs)
      if (!file_->find(peft_name(theirs, 'A')) && !file_->find(peft_name(theirs, 'B'))) theirs.clear();
    const auto absent = static_cast<std::size_t>(std::count(layer.theirs.begin(), layer.theirs.end(), ""));
    if (absent == layers) continue;
    adapted.push_back(layer.ours);
    if (absent > 0) partial_.push_back(layer.ours);
    add_adapter(map_, layer, lora_.rank);
  }
  require_fit(*file_, map_, {}, "adapter");
  if (adapted.empty())
    fail(ExitCode::data, "adapter", "{} has no tensors; expected matrices named {}", file_->path(),
         peft_name(all.front().theirs.front(), 'A'));
  lora_.targets = targets_of(adapted, all);
}

void Adapter::load(const std::vector<checkpoint::HeldTensor>& held, ProcessGroup& group) const {
  for (const checkpoint::HeldTensor& tensor : held) {
    const std::string_view layer = std::string_view(tensor.name).substr(0, tensor.name.rfind('.'));
    if (!nn::is_adapter(tensor.name) || std::find(partial_.begin(), partial_.end(), layer) == partial_.end()) continue;
    Tensor value = tensor.value;
    copy(Tensor::zeros(value.shape(), value.dtype()), value);
  }
  read_weights(*file_, map_, held, group);
}

std::uint64_t Adapter::fingerprint() const {
  std::string text = fmt::format("{} {} {}\n", lora_.rank, lora_.alpha, lora_.targets);
  for (const std::string& name : file_->names()) {
    const TensorSource::Stored stored = file_->find(name).value();
    text += fmt::format("{} {} {}\n", name, trireme::name(stored.dtype), stored.shape);
  }
  return hash_bytes(text);
}

}  // namespace trireme::hugging_face
