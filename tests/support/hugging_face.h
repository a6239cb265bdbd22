// Models in Hugging Face's layout, for tests: their whole tensors by name, and a model's gradients as such tensors.
// Read next: models/hugging_face/folder.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/safetensors.h"
#include "models/gpt.h"
#include "models/hugging_face/architectures.h"
#include "models/hugging_face/config.h"
#include "models/weight_transfer.h"
#include "nn/weights.h"

namespace trireme::testing {

/// What weights() of the architecture that config_text() chooses gives.
inline WeightMap hugging_face_map(const GptConfig& config) {
  const std::string type = hugging_face::model_type_of(config);
  for (const hugging_face::Architecture& architecture : hugging_face::architectures())
    if (architecture.model_type == type) return architecture.weights(config, std::string(architecture.base));
  return {};
}

/// What this rank holds of the gradients, in the places of the weights; of frozen parameters, the weights. Without
/// ZeRO.
inline std::vector<checkpoint::HeldTensor> held_gradients(Gpt& model) {
  std::vector<checkpoint::HeldTensor> held = nn::detail::held_weights(model).tensors;
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    if (!model.parameters()[i]->requires_grad()) continue;
    const Tensor gradient = model.parameters()[i]->grad();
    held[i].value = gradient.dims() == 0 ? gradient : view::slice(gradient, 0, 0, held[i].value.size(0));
  }
  held.resize(model.parameters().size());
  return held;
}

/// All whole tensors under their names there, on rank 0. Collective.
inline std::map<std::string, Tensor> their_values(const std::vector<checkpoint::HeldTensor>& held, const WeightMap& map,
                                                  ProcessGroup& world, DType dtype = DType::f32) {
  std::map<std::string, Tensor> tensors;
  write_weights(held, map, world, dtype,
                [&](const std::string& name, const Tensor& tensor) { tensors[name] = clone(tensor); });
  return tensors;
}

}  // namespace trireme::testing
