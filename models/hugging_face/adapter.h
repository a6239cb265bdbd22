// Adapters (nn/lora.h) as a folder in the layout of the library PEFT: adapter_config.json, and the matrices in
// adapter_model.safetensors. The model beside which they were trained is not in it.
//
//   hugging_face::write_adapter("adapter", {.config = model.config(), .base = "Qwen/Qwen3-0.6B"},
//                               nn::detail::held_weights(model).tensors, mesh.world());
//
//   const hugging_face::Adapter adapter("adapter", config);    // for a model of this configuration
//   config.lora = adapter.lora();
//   Gpt model(nn::Build(mesh, dtype, 0), config);
//   adapter.load(nn::detail::held_weights(model).tensors, mesh.world());
//
// Both work on any mesh, and each needs memory for one tensor at a time.
// A merged model, which needs no PEFT: models/hugging_face/export.h. Read next: docs/hugging_face.md.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "models/gpt_config.h"
#include "models/weight_map.h"
#include "parallel/checkpoint/held_tensor.h"
#include "parallel/comm/process_group.h"

namespace trireme::hugging_face {

inline constexpr const char* adapter_weights_name = "adapter_model.safetensors";
inline constexpr const char* adapter_config_name = "adapter_config.json";

/// What a folder of adapters says besides their weights.
struct ExportedAdapter {
  GptConfig config;          ///< of the model with its adapters
  DType dtype = DType::f32;  ///< of the weights in the file
  std::string base = {};     ///< the name or path of the model without them, which PEFT may load; empty: none
};

/// Throws ExitCode::usage if the model has no adapters, or if no architecture of Hugging Face computes what it does.
void require_adapters(const GptConfig& config);

/// Writes the folder, which must not exist or be empty, and appears when it is complete. Collective over `group`; the
/// first rank writes. Throws on all ranks ExitCode::io, and as require_adapters().
void write_adapter(const std::filesystem::path& folder, const ExportedAdapter& exported,
                   const std::vector<checkpoint::HeldTensor>& held, ProcessGroup& group);

/// Adapters that PEFT, or write_adapter(), has saved. See the top of this file.
class Adapter {
 public:
  /// Reads adapter_config.json and the header of the matrices' file, which is then mapped. `base`: the model that the
  /// adapters belong to; without adapters. Throws ExitCode::usage if there is no such folder, if `base` has adapters,
  /// or if no architecture of Hugging Face computes what it does; ExitCode::data as parse_adapter_config(), and with
  /// all tensors that do not fit the model.
  Adapter(const std::filesystem::path& folder, const GptConfig& base);
  ~Adapter();
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// For GptConfig::lora of the model that gets them. The targets name exactly the layers that have adapters there.
  const nn::LoraOptions& lora() const { return lora_; }
  /// A hash of what the configuration says, and of names, dtypes and shapes of the tensors.
  std::uint64_t fingerprint() const;
  /// Fills what this rank holds of the adapters of a model with lora(). Where PEFT has an adapter beside gate or up
  /// only, the other one's matrices are both 0, and stay so: neither gets a gradient. Collective over `group`. Throws
  /// as read_weights().
  void load(const std::vector<checkpoint::HeldTensor>& held, ProcessGroup& group) const;

 private:
  class File;

  std::filesystem::path path_;
  nn::LoraOptions lora_;
  std::unique_ptr<const File> file_;
  WeightMap map_;
  std::vector<std::string> partial_;  // ours, of which PEFT has one layer of two
};

}  // namespace trireme::hugging_face
