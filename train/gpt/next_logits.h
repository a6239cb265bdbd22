// The logits of the token after a text, on any mesh. Made for texts that grow at their end: keys and values are kept
// for tokens whose position has not changed since the previous text, and only the others are computed.
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
  /// For texts of at most `longest` tokens, which is at most the model's context. With keep = false nothing is kept,
  /// and every text is computed as a whole. The same holds with cp > 1.
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
  std::vector<std::int32_t> held_;      // the tokens whose keys and values are in cache_
};

}  // namespace trireme
