// Embedding: a table of vectors, as torch.nn.Embedding: for words of a small vocabulary, classes, positions. Every rank
// has the whole table. VocabEmbedding (nn/vocab_embedding.h) splits a large vocabulary over tp, and has logits.
//
//   nn::Embedding words(b / "words", 100, 8);                         // weight [100, 8]
//   const Tensor y = words(ids);                                      // i32 [B, T] -> [B, T, 8]
//   nn::Embedding padded(b / "padded", 100, 8, {.padding = 0});       // id 0 starts as zeros, and is not trained
//
// Read next: autograd/ops.h (embedding), nn/vocab_embedding.h.
#pragma once

#include <optional>

#include "nn/module.h"

namespace trireme::nn {

/// Choices of an Embedding.
struct EmbeddingOptions {
  /// An id whose vector starts as zeros, and gets no gradient: PyTorch's padding_idx.
  std::optional<std::int64_t> padding{};
  Init weight_init = Init::normal(1);  ///< PyTorch's
  bool decay = true;                   ///< whether weight decay applies
};

/// Vectors by number. The ids are those of the positions that this rank has of the residual stream, or of [B]: the
/// result has the same dims and one more. Gradients of the table are summed over dp and cp, as those of all parameters.
/// @snippet modules_test.cpp embedding_layer
class Embedding : public Module {
 public:
  /// weight [count, width].
  Embedding(const Build& b, std::int64_t count, std::int64_t width, const EmbeddingOptions& options = {});
  /// ids [..] i32 -> [.., width]. Throws ExitCode::data for an id outside 0 .. count - 1, unless the ids are in a GPU's
  /// memory already: such an id then gives zeros.
  Tensor forward(const Tensor& ids) override;
  const ParameterPtr& weight() const { return weight_; }

 private:
  std::int64_t count_;
  std::optional<std::int64_t> padding_;
  ParameterPtr weight_;  // [count, width]
};

}  // namespace trireme::nn
