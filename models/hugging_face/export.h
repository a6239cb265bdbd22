// Writes a model as a folder in Hugging Face's layout, which `transformers`, vLLM and others load. The folder appears
// under its name when it is complete. From any mesh, one tensor at a time.
//
//   hugging_face::write_folder("out", {.config = model.config(), .dtype = model.dtype(), .tokenizer = tokenizer.get()},
//                              nn::detail::held_weights(model).tensors, mesh.world());
//
// Read next: models/hugging_face/folder.h, which reads such folders and lists their files.
#pragma once

#include <filesystem>
#include <functional>

#include "core/dtype.h"
#include "data/special_ids.h"
#include "data/tokenizer.h"
#include "models/gpt_config.h"
#include "models/weight_transfer.h"

namespace trireme::hugging_face {

/// What a folder says besides the weights.
struct Exported {
  GptConfig config;
  DType dtype = DType::f32;                   ///< of the weights in the files
  const Tokenizer* tokenizer = nullptr;       ///< null: none is written
  std::string chat_template = {};             ///< empty: that of `texts_from`, or none
  std::vector<std::int32_t> end_tokens = {};  ///< that end a text; empty: the tokenizer's
  SpecialTokens special_tokens = {};          ///< with `tokenizer`: bos_token, pad_token, unk_token
  /// A folder in the same layout, with the texts of the tokenizer and of generation: they are copied from there as they
  /// are, also a chat template. Empty: they are made from `tokenizer`.
  std::filesystem::path texts_from = {};
  std::uint64_t shard_bytes = std::uint64_t{5} << 30;  ///< at most so much in one file, or one tensor
};

/// Throws ExitCode::usage if no architecture of Hugging Face computes what the model does, or if the tokenizer has no
/// tokenizer.json and no tokenizer.model. For programs that must know before they train.
void require_exportable(const GptConfig& config, const Tokenizer* tokenizer);

/// Writes the folder, which must not exist or be empty. Collective over `group`; the first rank writes. Throws on all
/// ranks ExitCode::io, and as require_exportable(). Returns the bytes written on the first rank, 0 on others.
std::uint64_t write_folder(const std::filesystem::path& folder, const Exported& exported,
                           const std::vector<checkpoint::HeldTensor>& held, ProcessGroup& group,
                           const std::function<void(std::uint64_t bytes)>& progress = {});

}  // namespace trireme::hugging_face
