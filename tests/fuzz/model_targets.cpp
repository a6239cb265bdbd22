// Targets for models of other programs.
#include <cmath>

#include "models/hugging_face/adapter_config.h"
#include "models/hugging_face/config.h"
#include "models/hugging_face/index.h"
#include "tests/fuzz/targets.h"

namespace trireme::fuzz {

namespace {

void check_config(std::string_view input) {
  hugging_face::ModelConfig config;
  if (!accepted([&] { config = hugging_face::parse_config(input, "config.json"); })) return;
  const GptConfig& c = config.gpt;
  for (const std::int64_t size : {c.layers, c.heads, c.width, c.context, c.vocab, c.hidden(), c.head_features()})
    expect(size >= 1 && size < (std::int64_t{1} << 31), "a size that no tensor has");
  expect(c.heads % c.key_value_heads() == 0, "key-value heads that heads cannot share");
  expect(c.experts.count == 0 || (c.experts.top_k >= 1 && c.experts.top_k <= c.experts.count), "more experts than all");
  const std::string text = hugging_face::config_text(c, DType::f32, {});
  const GptConfig again = hugging_face::parse_config(text, "config.json").gpt;
  expect(hugging_face::config_text(again, DType::f32, {}) == text, "a configuration changed by being written");
}

void check_index(std::string_view input) {
  std::map<std::string, std::string> files;
  if (!accepted([&] { files = hugging_face::parse_index(input, "index.json"); })) return;
  expect(!files.empty(), "an index without tensors");
  for (const auto& [tensor, file] : files)
    expect(std::filesystem::path(file).filename() == file && file != "." && file != "..",
           "a file's name leads out of the folder");
}

void check_adapter(std::string_view input) {
  nn::LoraOptions lora;
  if (!accepted([&] { lora = hugging_face::parse_adapter_config(input, "adapter_config.json"); })) return;
  expect(lora.rank >= 1 && lora.dropout >= 0 && lora.dropout < 1, "a rank or a dropout that no adapter has");
  expect(lora.alpha > 0 && std::isfinite(lora.alpha), "adapters multiplied by a factor that is no number");
  const std::string text = hugging_face::adapter_config_text(lora, {"q_proj"}, false);
  expect(hugging_face::parse_adapter_config(text, "adapter_config.json") == lora, "changed by being written");
}

}  // namespace

void model_config(std::string_view input) {
  check_config(input);
  check_index(input);
  check_adapter(input);
  accepted([&] { hugging_face::parse_end_tokens(input, "generation_config.json"); });
}

}  // namespace trireme::fuzz
