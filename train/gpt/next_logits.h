// The logits of the token after each of several texts, on any mesh. Made for texts that grow at their end: keys and
// values are kept for tokens whose position has not changed since the previous call, and only the others are computed.
//
// Texts of different lengths share a batch: shorter ones are padded in front, so that all end in the same column.
//
//   text 0   a b c d e      columns 0 to 4 are positions 0 to 4
//   text 1   . . f g h      column 2 is position 0; no token sees a column before it
//
// A text's logits are those that it has alone, up to rounding: products of more rows may add in another order.
// Texts longer than the context: PastContext in train/gpt/generate_options.h.
// Read next: nn/kv_cache.h, train/gpt/generate.h.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "models/language_model.h"
#include "nn/kv_cache.h"
#include "parallel/pipeline/executor.h"
#include "train/gpt/generate_options.h"

namespace trireme {

/// The logits of the next token, on any mesh.
class NextLogits {
 public:
  /// The tokens of a text so far.
  using Text = std::vector<std::int32_t>;

  /// For texts of at most `longest` tokens. With keep = false nothing is kept, and every text is computed as a whole.
  /// The same holds with cp > 1.
  NextLogits(LanguageModel& model, std::int64_t longest, bool keep = true,
             PastContext past_context = PastContext::slide);

  /// [1, 1, V] f32 on the last stage; undefined on others. `ids`: not empty. Collective over the mesh, with the same
  /// ids on all ranks.
  Tensor operator()(std::span<const std::int32_t> ids);
  /// The same for several texts -> [B, 1, V].
  Tensor operator()(const std::vector<Text>& texts);

  /// Text i of the next call continues text rows[i] of the last one. A text may be repeated, or left out.
  void select(std::span<const std::int64_t> rows);
  /// Memory of this rank's keys and values.
  std::int64_t cache_bytes() const { return cache_ ? cache_->bytes() : 0; }

 private:
  using Texts = std::vector<std::span<const std::int32_t>>;

  Tensor logits_after(const Texts& texts);
  std::span<const std::int32_t> seen(std::span<const std::int32_t> text) const;
  bool slides() const { return past_ == PastContext::slide && model_.relative_positions(); }
  void lay_out(const Texts& seen);
  std::int64_t first_new(const Texts& seen, std::int64_t columns) const;
  void restrict(std::int64_t columns);
  Tensor forward(Batch local, std::int64_t first, std::int64_t count, std::optional<std::int64_t> wanted);

  LanguageModel& model_;
  std::int64_t longest_;
  PastContext past_;
  pipeline::Executor executor_;
  std::shared_ptr<nn::KvCache> cache_;  // null: nothing is kept
  std::vector<Text> held_;              // of each text, the tokens whose keys and values are in cache_
  std::vector<std::int64_t> padding_;   // of each text, the columns before its first token
};

}  // namespace trireme
