#include "models/gguf/export.h"

#include <fmt/format.h>

#include <optional>

#include "autograd/ops.h"
#include "data/gguf/tokenizer.h"
#include "models/gguf/architectures.h"
#include "parallel/comm/texts.h"

namespace trireme::gguf {
namespace {

/// The number of a storage in general.file_type.
std::uint32_t file_type(GgufStorage storage) {
  switch (storage) {
    case GgufStorage::f16:
      return 1;
    case GgufStorage::q8_0:
      return 7;
    case GgufStorage::bf16:
      return 32;
    default:
      return 0;
  }
}

GgufStorage storage_of(const TheirTensor& tensor, GgufStorage matrices) {
  const bool in_f32 =
      tensor.shape.dims() < 2 || tensor.name.ends_with("ffn_gate_inp.weight") || tensor.name == "position_embd.weight";
  if (in_f32) return GgufStorage::f32;
  const bool ragged = tensor.shape[tensor.shape.dims() - 1] % q8_0_values != 0;
  return matrices == GgufStorage::q8_0 && ragged ? GgufStorage::f16 : matrices;
}

GgufValues values_of(const Exported& e, const Architecture& architecture) {
  GgufValues values;
  const std::string name(architecture.name);
  values.add("general.architecture", std::string_view(name));
  values.add("general.name", std::string_view(e.name));
  values.add("general.file_type", file_type(e.storage));
  values.add("general.quantization_version", std::uint32_t{2});
  values.add(name + ".vocab_size", static_cast<std::uint32_t>(e.config.vocab));
  architecture.write(e.config, values, name);
  if (e.tokenizer == nullptr) {
    values.add("tokenizer.ggml.model", "none");
    return values;
  }
  add_gguf_tokenizer(values, *e.tokenizer,
                     {.rows = e.config.vocab,
                      .end_tokens = e.end_tokens,
                      .chat_template = e.chat_template,
                      .special_tokens = e.special_tokens});
  return values;
}

}  // namespace

void require_exportable(const Exported& exported) { values_of(exported, architecture_of(exported.config)); }

std::uint64_t write_file(const std::filesystem::path& path, const Exported& exported,
                         const std::vector<checkpoint::HeldTensor>& held, ProcessGroup& group,
                         const std::function<void(std::uint64_t)>& progress) {
  const Architecture& architecture = architecture_of(exported.config);
  const WeightMap map = weights(architecture, exported.config);
  const Tensor divisors = rope_divisors(exported.config);
  std::vector<GgufEntry> entries;
  if (divisors.defined()) entries.push_back({rope_divisors_name, GgufStorage::f32, divisors.shape()});
  for (const TheirTensor& tensor : their_tensors(map))
    entries.push_back({tensor.name, storage_of(tensor, exported.storage), tensor.shape});
  std::optional<GgufWriter> file;
  fail_together(group, [&] {
    if (group.rank() != 0) return;
    file.emplace(path, values_of(exported, architecture), entries);
    if (divisors.defined()) file->write(divisors);
  });
  write_weights(
      held, map, group, DType::f32,
      [&](const std::string& name, const Tensor& whole) {
        if (architecture.adds_one && name.ends_with("norm.weight")) {
          const NoGrad guard;
          file->write(whole + 1.0);
        } else {
          file->write(whole);
        }
        if (progress) progress(file->bytes());
      },
      exported.config.lora.scale());
  std::uint64_t bytes = 0;
  fail_together(group, [&] {
    if (!file) return;
    bytes = file->bytes();
    file->commit();
  });
  return bytes;
}

}  // namespace trireme::gguf
