#include "nn/vocab_embedding.h"

#include <algorithm>
#include <numeric>

#include "core/ids.h"
#include "parallel/mesh/redistribute.h"

namespace trireme::nn {

using placement::P, placement::R, placement::S;

std::int64_t padded_vocab(std::int64_t vocab, int tp) {
  const std::int64_t multiple = std::lcm(std::int64_t{64}, std::int64_t{tp});
  return (vocab + multiple - 1) / multiple * multiple;
}

VocabEmbedding::VocabEmbedding(const Build& b, std::int64_t vocab, std::int64_t width, double init_std,
                               bool copy_of_earlier_stage)
    : Module(b) {
  const std::int64_t rows = padded_vocab(vocab, b.mesh().size(Axis::tp));
  weight_ = b.parameter("weight", {rows, width}, {.tp = S(0)}, Init::normal(init_std),
                        {.logical_rows = vocab, .decay = true, .copy_of_earlier_stage = copy_of_earlier_stage});
  slice_.first = weight_->rectangle.start[0];
  slice_.valid = std::clamp<std::int64_t>(vocab - slice_.first, 0, weight_->local.size(0));
  slice_.global = vocab;
}

Tensor VocabEmbedding::forward(const Tensor& ids) {
  check_ids("embedding", "token", ids, {.first = 0, .end = slice_.global},
            "use the tokenizer of the model, or make the model with a larger vocabulary");
  return redistribute(embedding(weight_->value(), ids, slice_.first), mesh(), Axis::tp, P, residual());
}

Tensor VocabEmbedding::logits(const Tensor& h) {
  return logits_of_replicated(redistribute(h, mesh(), Axis::tp, residual(), R));
}

Tensor VocabEmbedding::logits_of_replicated(const Tensor& h) {
  Tensor logits = linear(h, weight_->value(), {});  // [.., V/tp]
  const std::int64_t width = logits.size(-1);
  if (width != slice_.global)
    logits.set_columns({.width = width, .whole = slice_.global, .parts = mesh().size(Axis::tp)});
  return logits;
}

}  // namespace trireme::nn
