#include "models/hugging_face/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "core/hash.h"
#include "core/io.h"
#include "data/json.h"
#include "data/safetensors.h"
#include "data/utf8.h"
#include "models/gpt_text.h"
#include "models/hugging_face/architectures.h"
#include "parallel/comm/texts.h"

namespace trireme::hugging_face {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* where = "hugging face";
constexpr ReadLimit index_limit{std::uint64_t{256} << 20, "an index of tensors"};

const Architecture& architecture_named(const std::string& model_type) {
  const auto& all = architectures();
  return *std::find_if(all.begin(), all.end(), [&](const auto& a) { return a.model_type == model_type; });
}

std::string joined_quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + in_quotes(name);
  return text;
}

}  // namespace

bool is_folder(const fs::path& path) {
  const fs::path config = path / config_name;
  std::error_code unknown;
  const bool weights = is_there(path / weights_name) || is_there(path / index_name);
  if (!fs::is_regular_file(config, unknown)) return weights;
  try {
    const json object = parse_json(read_file(config, read_limits::configuration), config);
    return weights || (object.is_object() && object.contains("model_type"));
  } catch (const Error& error) {
    if (error.code() == ExitCode::io) throw;
    return weights;
  }
}

// ---- the weights' files ---------------------------------------------------------------------------------------------

/// All tensors of a folder.
class Folder::Shards : public TensorSource {
 public:
  explicit Shards(const fs::path& folder) : folder_(folder) {
    if (is_there(folder / index_name))
      open_indexed();
    else if (is_there(folder / weights_name))
      open(weights_name);
    else
      fail(ExitCode::data, where,
           "{} has neither {} nor {}; expected the weights in safetensors files (pickled .bin and .pt files are not "
           "read: convert them in Python)",
           folder.string(), weights_name, index_name);
  }

  std::string path() const override { return folder_.string(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, file] : tensors_) names.push_back(name);
    return names;
  }
  std::optional<Stored> find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return std::nullopt;
    return Stored{found->second->dtype(name), found->second->shape(name)};
  }
  void read(std::string_view name, const Shape& start, Tensor& into) const override {
    tensors_.find(name)->second->read(name, start, into);
  }
  void require_whole() const override {
    for (const auto& file : files_) file->require_whole();
  }
  std::size_t count() const { return tensors_.size(); }

 private:
  void open(const std::string& file_name) {
    files_.push_back(std::make_unique<const SafetensorsFile>(folder_ / file_name));
    for (const std::string& name : files_.back()->names())
      if (!tensors_.emplace(name, files_.back().get()).second)
        fail(ExitCode::data, where, "{}: the tensor {} is in two files; expected it in one", folder_.string(),
             in_quotes(name));
  }

  void open_indexed() {
    const fs::path index = folder_ / index_name;
    const std::map<std::string, std::string> files = parse_index(read_file(index, index_limit), index);
    std::vector<std::string> absent, elsewhere;
    std::set<std::string> names;
    for (const auto& [tensor, file] : files) names.insert(file);
    for (const std::string& file : names)
      if (!is_there(folder_ / file)) absent.push_back(file);
    if (!absent.empty())
      fail(ExitCode::data, where, "{} names files that are not there: {}; expected all; download them, too",
           index.string(), joined_quoted(absent));
    std::map<std::string, const SafetensorsFile*> opened;
    for (const std::string& file : names) {
      open(file);
      opened[file] = files_.back().get();
    }
    for (const auto& [tensor, file] : files)
      if (!opened[file]->contains(tensor)) elsewhere.push_back(tensor);
    if (!elsewhere.empty())
      fail(ExitCode::data, where, "{}: tensors are not in the files that it names: {}; expected each in its file",
           index.string(), joined_quoted(elsewhere));
  }

  fs::path folder_;
  std::vector<std::unique_ptr<const SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*, std::less<>> tensors_;
};

/// A tied model has one tensor for the vectors of its tokens and its head. Files may hold it twice, but not two
/// tensors.
void require_tied(const TensorSource& files, const std::string& vectors) {
  constexpr const char* head = "lm_head.weight";
  constexpr std::int64_t piece = 64 << 20;  // bytes that are compared at a time
  const auto first = files.find(vectors), second = files.find(head);
  if (!second) return;
  bool same = first->dtype == second->dtype && first->shape == second->shape;
  const std::int64_t rows = first->shape[0], width = first->shape[1];
  const std::int64_t most =
      std::max<std::int64_t>(1, piece / (width * static_cast<std::int64_t>(size_of(first->dtype))));
  for (std::int64_t row = 0; same && row < rows; row += most) {
    Tensor a = Tensor::empty({std::min(most, rows - row), width}, first->dtype);  // [rows of a piece, D]
    Tensor b = Tensor::empty(a.shape(), first->dtype);
    files.read(vectors, {row, 0}, a);
    files.read(head, {row, 0}, b);
    same = std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
  }
  if (!same)
    fail(ExitCode::data, where,
         "{}: {} has tie_word_embeddings, and {} is not the same as {}; expected one of them, or equal ones; write "
         "\"tie_word_embeddings\": false there if the model has a head of its own",
         files.path(), config_name, head, vectors);
}

// ---- the folder -----------------------------------------------------------------------------------------------------

ModelConfig read_config(const fs::path& folder) {
  const fs::path path = folder / config_name;
  if (!is_there(path))
    fail(ExitCode::usage, where, "{} has no {}; expected a model in Hugging Face's layout; change the path",
         folder.string(), config_name);
  ModelConfig config = parse_config(read_file(path, read_limits::configuration), path);
  const fs::path generation = folder / generation_config_name;
  if (is_there(generation))
    if (auto tokens = parse_end_tokens(read_file(generation, read_limits::configuration), generation))
      config.end_tokens = std::move(*tokens);
  for (const std::int32_t id : config.end_tokens)
    if (id >= config.gpt.vocab)
      fail(ExitCode::data, where, "{}: eos_token_id has {}; expected ids below the vocab_size, {}; change it",
           folder.string(), id, config.gpt.vocab);
  return config;
}

Folder::~Folder() = default;

Folder::Folder(const fs::path& path)
    : path_(path), config_(read_config(path)), shards_(std::make_unique<const Shards>(path)) {
  const Architecture& architecture = architecture_named(config_.model_type);
  const GptConfig& c = config_.gpt;
  // A map of made-up sizes could take all memory: each block has tensors of its own, and each expert.
  const double wanted = static_cast<double>(c.layers) * static_cast<double>(std::max<std::int64_t>(c.experts.count, 1));
  if (wanted > static_cast<double>(shards_->count()))
    fail(ExitCode::data, where, "{} describes {} blocks{}, and the files hold {} tensors; expected files of this model",
         (path / config_name).string(), c.layers,
         c.experts.count > 0 ? fmt::format(" with {} experts each", c.experts.count) : "", shards_->count());
  const std::vector<std::string> names = shards_->names();
  const std::string base(architecture.base);
  const bool has_base =
      std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(base); });
  map_ = architecture.weights(c, has_base ? base : "");
  require_fit(
      *shards_, map_, [&](const std::string& name) { return architecture.ignored(c, name); }, where);
  dtype_ = shards_->find(map_.front().parts.front().name)->dtype;
  for (const WeightEntry& entry : map_)
    for (const WeightPart& part : entry.parts) {
      const DType dtype = shards_->find(part.name)->dtype;
      if (size_of(dtype) > size_of(dtype_)) dtype_ = dtype;
      if (dtype != dtype_ && size_of(dtype) == size_of(dtype_)) dtype_ = DType::f32;  // bf16 and f16
    }
}

void Folder::load(const std::vector<checkpoint::HeldTensor>& held, ProcessGroup& group,
                  const ReadProgress& progress) const {
  fail_together(group, [&] {
    if (group.rank() == 0 && config_.gpt.tied) require_tied(*shards_, map_.front().parts.front().name);
  });
  read_weights(*shards_, map_, held, group, progress);
}

std::uint64_t Folder::fingerprint() const {
  std::string text = gpt_text(config_.gpt, dtype_);
  for (const std::string& name : shards_->names()) {
    const TensorSource::Stored stored = shards_->find(name).value();
    text += fmt::format("{} {} {}\n", name, trireme::name(stored.dtype), stored.shape);
  }
  return hash_bytes(text);
}

bool Folder::has_tokenizer() const {
  return is_there(path_ / tokenizer_name) || (is_there(path_ / "vocab.json") && is_there(path_ / "merges.txt")) ||
         is_there(path_ / "tokenizer.model");
}

std::shared_ptr<const Tokenizer> Folder::tokenizer() const {
  if (!has_tokenizer())
    fail(ExitCode::usage, where,
         "{} has no tokenizer that this program reads: neither {}, nor vocab.json and merges.txt, nor tokenizer.model; "
         "expected one; save it "
         "there with AutoTokenizer.save_pretrained",
         path_.string(), tokenizer_name);
  std::shared_ptr<const Tokenizer> tokenizer = make_tokenizer("bpe:" + path_.string(), {});
  require_vocabulary(*tokenizer, config(), path_ / tokenizer_name);
  return tokenizer;
}

void require_vocabulary(const Tokenizer& tokenizer, const GptConfig& config, const fs::path& path) {
  if (tokenizer.vocab_size() <= config.vocab) return;
  fail(ExitCode::data, where,
       "{}: the tokenizer has {} tokens, and the model vectors for {}; expected at most as many; take the tokenizer "
       "that belongs to the model",
       path.string(), tokenizer.vocab_size(), config.vocab);
}

}  // namespace trireme::hugging_face
