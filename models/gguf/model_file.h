// A model in a GGUF file, which is read in place: configuration, weights, tokenizer and chat template.
//
//   const gguf::ModelFile file("qwen3-0.6b-q8_0.gguf");
//   Gpt model(nn::Build(mesh, file.dtype(), 0).to_be_loaded(), file.config());
//   file.load(nn::detail::held_weights(model).tensors, mesh->world());
//
// Read next: models/gguf/architectures.h, models/gguf/export.h, data/gguf/file.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/special_ids.h"
#include "data/tokenizer.h"
#include "models/gpt_config.h"
#include "models/weight_transfer.h"

namespace trireme::gguf {

/// Whether a path is a file that begins as a GGUF file does.
bool is_file(const std::filesystem::path& path);

/// A GGUF file that holds a GPT: see the top of this file.
class ModelFile {
 public:
  /// Reads the header; the weights are mapped. Throws ExitCode::data as parse_gguf(), for an unknown architecture or a
  /// key that is not supported, for one of several files of a model, and as require_fit() with all tensors that do not
  /// fit: before any weight is read.
  explicit ModelFile(const std::filesystem::path& path);
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  const std::filesystem::path& path() const;           ///< of the file
  const GptConfig& config() const { return config_; }  ///< without dropout
  const std::string& architecture() const { return architecture_; }
  std::uint64_t fingerprint() const;  ///< of the keys, the tensors' places and the size: equal for copies of one file
  /// Of the matrices: f32 for Q8_0, whose numbers are exact in it; if they differ, the widest.
  DType dtype() const { return dtype_; }
  std::vector<std::int32_t> end_tokens() const;  ///< generation ends before these
  std::string chat_template() const;             ///< empty: there is none
  SpecialTokens special_tokens() const;          ///< bos_token, eos_token and pad_token, for the template

  /// Fills what this rank holds of a model of config(), and converts floating dtypes. Any mesh; each rank reads its
  /// parts. Collective over `group`. Throws as read_weights().
  void load(const std::vector<checkpoint::HeldTensor>& held, ProcessGroup& group,
            const ReadProgress& progress = {}) const;

  bool has_tokenizer() const;  ///< whether the file has one
  /// Throws ExitCode::data as read_gguf_tokenizer(), and if it has more tokens than the model.
  std::shared_ptr<const Tokenizer> tokenizer() const;

 private:
  class Source;

  std::unique_ptr<const Source> source_;
  std::string architecture_;
  GptConfig config_;
  WeightMap map_;
  DType dtype_ = DType::f32;
};

}  // namespace trireme::gguf
