// A model in Hugging Face's layout, which is read in place:
//
//   config.json                      sizes and choices
//   model.safetensors                the weights; or several files, and in which each tensor is:
//   model-00001-of-00002.safetensors, ..., model.safetensors.index.json
//   tokenizer.json                   (or vocab.json and merges.txt, or tokenizer.model) and tokenizer_config.json
//   generation_config.json           where texts end
//
//   const hugging_face::Folder folder("Qwen3-0.6B");
//   Gpt model(nn::Build(mesh, folder.dtype(), 0).to_be_loaded(), folder.config());
//   folder.load(nn::detail::held_weights(model).tensors, mesh->world());
//
// Read next: models/hugging_face/config.h, models/weight_transfer.h, models/hugging_face/export.h.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "models/hugging_face/config.h"
#include "models/hugging_face/index.h"
#include "models/weight_transfer.h"

namespace trireme::hugging_face {

inline constexpr const char *config_name = "config.json", *weights_name = "model.safetensors",
                            *index_name = "model.safetensors.index.json", *tokenizer_name = "tokenizer.json",
                            *tokenizer_config_name = "tokenizer_config.json",
                            *generation_config_name = "generation_config.json";

/// Whether a path is such a folder: its config.json has a model_type. Throws ExitCode::io as is_there().
bool is_folder(const std::filesystem::path& path);

/// A folder in Hugging Face's layout that holds a GPT: see the top of this file.
class Folder {
 public:
  /// Reads config.json, and the headers of the weights' files, which are then mapped. Throws ExitCode::usage if it is
  /// no such folder; ExitCode::data as parse_config(), parse_index() and parse_safetensors(), for files that the index
  /// names and that are not there, and as require_fit() with all tensors that do not fit: before any weight is read.
  explicit Folder(const std::filesystem::path& path);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const GptConfig& config() const { return config_.gpt; }
  const std::string& model_type() const { return config_.model_type; }
  DType dtype() const { return dtype_; }  ///< of the weights; if they differ, the widest
  /// A hash of the configuration, and of names, dtypes and shapes of the tensors: differs if ranks have other files.
  std::uint64_t fingerprint() const;
  /// Generation ends before these: of generation_config.json, otherwise of config.json.
  const std::vector<std::int32_t>& end_tokens() const { return config_.end_tokens; }

  /// Fills what this rank holds of a model of config(), and converts floating dtypes. Any mesh; each rank reads its
  /// parts. Collective over `group`. Throws as read_weights().
  void load(const std::vector<checkpoint::HeldTensor>& held, ProcessGroup& group,
            const ReadProgress& progress = {}) const;

  /// Whether the folder has a tokenizer.
  bool has_tokenizer() const;
  /// Throws ExitCode::usage if the folder has no tokenizer, and ExitCode::data if it is malformed or has more tokens
  /// than the model.
  std::shared_ptr<const Tokenizer> tokenizer() const;

 private:
  class Shards;

  std::filesystem::path path_;
  ModelConfig config_;
  std::unique_ptr<const Shards> shards_;
  WeightMap map_;
  DType dtype_ = DType::f32;
};

/// Throws ExitCode::data, naming `path`, if the tokenizer has more tokens than the model has vectors for.
void require_vocabulary(const Tokenizer& tokenizer, const GptConfig& config, const std::filesystem::path& path);

/// The configuration alone, which is quick. Throws as Folder().
ModelConfig read_config(const std::filesystem::path& folder);

}  // namespace trireme::hugging_face
