#include "train/gpt/gpu_choices.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/choices.h"
#include "cuda/selection.h"
#include "nn/vocab_embedding.h"

namespace trireme {
namespace {

struct Choice {
  std::string call;  ///< "qkv.dx"
  std::string_view implementation;
};

/// The most frequent implementation, then the calls for which others are used.
std::string summary(const std::vector<Choice>& choices) {
  const auto count = [&](const Choice& of) {
    return std::count_if(choices.begin(), choices.end(),
                         [&](const Choice& each) { return each.implementation == of.implementation; });
  };
  const std::string_view most = std::max_element(choices.begin(), choices.end(), [&](const Choice& a, const Choice& b) {
                                  return count(a) < count(b);
                                })->implementation;
  std::string text(most);
  std::string_view shown = most;
  for (const Choice& each : choices) {
    if (each.implementation == most) continue;
    text += each.implementation == shown ? fmt::format(", {}", each.call)
                                         : fmt::format(", but {} for {}", each.implementation, each.call);
    shown = each.implementation;
  }
  return text;
}

struct Layer {
  const char* name;
  std::int64_t in, out;  ///< on this rank
};

std::vector<Layer> layers(const GptOptions& o, std::optional<std::int64_t> vocab) {
  const GptConfig& m = o.model.config;
  const std::int64_t tp = o.mesh.shape.size(Axis::tp), head_dim = m.head_features();
  const std::int64_t kv_heads = std::max<std::int64_t>(1, m.key_value_heads() / tp);
  std::vector<Layer> result = {{"qkv", m.width, (m.heads / tp + 2 * kv_heads) * head_dim},
                               {"projection", m.attention_width() / tp, m.width}};
  if (m.experts.count == 0 || m.moe_every > 1) {
    result.push_back({"mlp-in", m.width, m.hidden() / tp * (m.gated() ? 2 : 1)});
    result.push_back({"mlp-out", m.hidden() / tp, m.width});
  }
  if (vocab) result.push_back({"head", m.width, nn::padded_vocab(*vocab, static_cast<int>(tp)) / tp});
  return result;
}

}  // namespace

GpuChoices gpu_choices(const GptOptions& o, std::optional<std::int64_t> vocab) {
  cuda::select_gemm(o.precision.gemm);
  cuda::select_attention(o.precision.attention);
  const GptConfig& m = o.model.config;
  const std::int64_t tokens = m.context / o.mesh.shape.size(Axis::cp), tp = o.mesh.shape.size(Axis::tp);
  std::vector<Choice> products;
  for (const Layer& layer : layers(o, vocab)) {
    const auto [forward, dx, dw] =
        cuda::layer_choice(o.precision.dtype, o.batch_sizes().micro_batch * tokens, layer.in, layer.out);
    products.push_back({fmt::format("{}.forward", layer.name), forward});
    products.push_back({fmt::format("{}.dx", layer.name), dx});
    products.push_back({fmt::format("{}.dw", layer.name), dw});
  }
  // Ulysses exchanges tokens for heads before attention; ring attention works on a rank's tokens.
  const std::int64_t cp = o.mesh.context_parallel == nn::ContextParallel::ulysses ? o.mesh.shape.size(Axis::cp) : 1;
  const std::int64_t kv_heads = std::max<std::int64_t>(1, m.key_value_heads() / tp);
  const auto [forward, backward] =
      cuda::attention_choice(o.precision.dtype, tokens * cp, m.heads / (tp * cp), kv_heads / cp, m.head_features());
  return {.products = summary(products), .attention = summary({{"forward", forward}, {"backward", backward}})};
}

std::vector<std::pair<std::string, std::string>> gpu_choice_notes(const GptOptions& o) {
  if (o.precision.tensor_device() != Device::cuda) return {};
  const GpuChoices choices = gpu_choices(o, o.model.vocab);
  return {{"gemm", "on this GPU: " + choices.products}, {"attention", "on this GPU: " + choices.attention}};
}

}  // namespace trireme
