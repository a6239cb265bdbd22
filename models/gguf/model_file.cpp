#include "models/gguf/model_file.h"

#include <fmt/format.h>

#include "autograd/ops.h"
#include "data/gguf/tokenizer.h"
#include "models/gguf/architectures.h"

namespace trireme::gguf {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code unknown;
  if (!fs::is_regular_file(path, unknown)) return false;
  if (path.extension() == ".gguf") return true;
  const MappedFile file(path);
  return file.text().starts_with("GGUF");
}

/// The tensors of a file. Norms that are stored as 1 + weight are given as weight.
class ModelFile::Source : public TensorSource {
 public:
  explicit Source(const fs::path& path) : file_(path) {}

  const GgufFile& file() const { return file_; }
  void norms_have_one_added() { subtracts_one_ = true; }

  std::string path() const override { return file_.path().string(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, stored] : file_.layout().tensors) names.push_back(name);
    return names;
  }
  std::optional<Stored> find(std::string_view name) const override {
    const GgufLayout::Stored* stored = file_.find(name);
    if (stored == nullptr) return std::nullopt;
    return Stored{stored_dtype(stored->storage), stored->shape};
  }
  void read(std::string_view name, const Shape& start, Tensor& into) const override {
    file_.read(name, start, into);
    if (subtracts_one_ && name.ends_with("norm.weight")) {
      const NoGrad guard;
      copy(into - 1.0, into);
    }
  }
  void require_whole() const override { file_.require_whole(); }

 private:
  GgufFile file_;
  bool subtracts_one_ = false;
};

ModelFile::~ModelFile() = default;

const fs::path& ModelFile::path() const { return source_->file().path(); }

ModelFile::ModelFile(const fs::path& path) {
  auto source = std::make_unique<Source>(path);
  const GgufFile& file = source->file();
  const GgufKeys keys(file.layout(), file.path());
  const Architecture& architecture = architecture_named(keys);
  architecture_ = architecture.name;
  if (keys.count("split.count", 1 << 16, 1) > 1)
    keys.refuse("split.count", "1, a model in one file; join the files with llama-gguf-split --merge");
  config_ = architecture.read(keys, architecture_);
  config_.dropout = 0;
  const GgufLayout::Stored* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.dims() != 2)
    fail(ExitCode::data, "gguf", "{}: there is no tensor token_embd.weight of two dims; expected one", path.string());
  config_.vocab = embedding->shape[0];
  config_.tied = file.find("output.weight") == nullptr;
  if (const GgufLayout::Stored* divisors = file.find(rope_divisors_name)) {
    if (divisors->shape != Shape{config_.head_features() / 2} || !is_floating(stored_dtype(divisors->storage)))
      fail(ExitCode::data, "gguf", "{}: {} is {}; expected [{}], half of the features of a head", path.string(),
           rope_divisors_name, divisors->shape, config_.head_features() / 2);
    config_.rope_scaling = scaling_of_divisors(file.read(rope_divisors_name), config_, path.string());
  } else if (nn::parse_rope_scaling(config_.rope_scaling).kind == nn::RopeScaling::Kind::llama3) {
    fail(ExitCode::data, "gguf", "{}: there is no tensor {}, which belongs to the scaling {}; expected one",
         path.string(), rope_divisors_name, config_.rope_scaling);
  }
  map_ = weights(architecture, config_);
  require_fit(
      *source, map_, [](const std::string& name) { return name == rope_divisors_name; }, "gguf");
  dtype_ = stored_dtype(embedding->storage);
  for (const WeightEntry& entry : map_)
    for (const WeightPart& part : entry.parts) {
      if (part.shape.dims() < 2 || part.name.ends_with("ffn_gate_inp.weight") || part.name == "position_embd.weight")
        continue;  // f32 in all files
      const DType dtype = source->find(part.name)->dtype;
      if (size_of(dtype) > size_of(dtype_)) dtype_ = dtype;
      if (dtype != dtype_ && size_of(dtype) == size_of(dtype_)) dtype_ = DType::f32;  // bf16 and f16
    }
  if (architecture.adds_one) source->norms_have_one_added();
  source_ = std::move(source);
}

void ModelFile::load(const std::vector<checkpoint::HeldTensor>& held, ProcessGroup& group,
                     const ReadProgress& progress) const {
  read_weights(*source_, map_, held, group, progress);
}

bool ModelFile::has_tokenizer() const {
  return GgufKeys(source_->file().layout(), path()).text("tokenizer.ggml.model", "none") != "none";
}

std::shared_ptr<const Tokenizer> ModelFile::tokenizer() const {
  std::shared_ptr<const Tokenizer> tokenizer = read_gguf_tokenizer(source_->file().layout(), path());
  if (tokenizer->vocab_size() <= config_.vocab) return tokenizer;
  fail(ExitCode::data, "gguf",
       "{}: the tokenizer has {} tokens, and the model vectors for {}; expected at most as many", path().string(),
       tokenizer->vocab_size(), config_.vocab);
}

std::uint64_t ModelFile::fingerprint() const { return source_->file().fingerprint(); }

std::vector<std::int32_t> ModelFile::end_tokens() const { return gguf_end_tokens(source_->file().layout(), path()); }

SpecialTokens ModelFile::special_tokens() const { return gguf_special_tokens(source_->file().layout(), path()); }

std::string ModelFile::chat_template() const {
  return GgufKeys(source_->file().layout(), path()).text(gguf_chat_template_key, "");
}

}  // namespace trireme::gguf
