// Writes a model as a GGUF file, which llama.cpp and programs that use it load. The file appears under its name when it
// is complete. From any mesh, one tensor at a time.
//
//   gguf::write_file("model.gguf",
//                    {.config = model.config(), .storage = GgufStorage::q8_0, .tokenizer = tokenizer.get()},
//                    nn::detail::held_weights(model).tensors, mesh.world());
//
// Vectors, routers and learned positions are f32 in all files, as llama.cpp needs them. A matrix whose rows are no
// multiple of 32 is f16 in a file of Q8_0.
// Read next: models/gguf/model_file.h, which reads such files; data/gguf/tokenizer.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/gguf/file.h"
#include "data/special_ids.h"
#include "data/tokenizer.h"
#include "models/gpt_config.h"
#include "models/weight_transfer.h"

namespace trireme::gguf {

/// What a file holds besides the weights.
struct Exported {
  GptConfig config;
  GgufStorage storage = GgufStorage::f32;     ///< of matrices: f32, f16, bf16 or Q8_0
  const Tokenizer* tokenizer = nullptr;       ///< null: none is written; llama.cpp then only takes ids
  std::vector<std::int32_t> end_tokens = {};  ///< that end a text, at most three; empty: the tokenizer's
  std::string chat_template = {};             ///< empty: none
  SpecialTokens special_tokens = {};          ///< bos_token and pad_token, if the tokenizer has them
  std::string name = "model";                 ///< general.name
};

/// Throws ExitCode::usage if no architecture of llama.cpp computes what the model does, or if it does not have the
/// tokenizer.
void require_exportable(const Exported& exported);

/// Writes the file. Collective over `group`; the first rank writes. Throws on all ranks ExitCode::io, and as
/// require_exportable() and to_q8_0(). Returns the bytes written on the first rank, 0 on others.
std::uint64_t write_file(const std::filesystem::path& path, const Exported& exported,
                         const std::vector<checkpoint::HeldTensor>& held, ProcessGroup& group,
                         const std::function<void(std::uint64_t bytes)>& progress = {});

}  // namespace trireme::gguf
