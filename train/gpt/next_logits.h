// The logits of the token after a text, on any mesh, for texts that mostly grow at their end: keys and values of tokens
// that stand where they stood in the text before are kept, and only the others computed.
// Read next: nn/kv_cache.h, train/gpt/generate.h.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "models/language_model.h"
#include "nn/kv_cache.h"
#include "parallel/pipeline/executor.h"

namespace trireme {

class NextLogits {
 public:
  /// For texts of at most `longest` tokens, no more than the model's context. keep = false: nothing is kept, and every
  /// text computed as a whole, which is also so when sequences are cut over cp.
  NextLogits(LanguageModel& model, std::int64_t longest, bool keep = true);

  /// [1, 1, V] f32 on the last stage; undefined on others. `ids`: not empty. Collective over the mesh, with the same
  /// ids on all ranks.
  Tensor operator()(std::span<const std::int32_t> ids);

 private:
  std::int64_t first_new(std::span<const std::int32_t> ids) const;

  LanguageModel& model_;
  std::int64_t longest_;
  pipeline::Executor executor_;
  std::shared_ptr<nn::KvCache> cache_;  // null: nothing is kept
  std::vector<std::int32_t> held_;      // the tokens whose keys and values it has
};

}  // namespace trireme
