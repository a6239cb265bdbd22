// Logits and targets for the loss of lab 3, as its grader makes them and cuts them.
// Read next: grader.cpp.
#pragma once

#include <algorithm>
#include <vector>

#include "examples/labs/03_tensor_parallel/layers.h"

namespace trireme::labs::tensor_parallel {

/// Logits [N, V], of which rank r has columns r ceil(V/tp) and following; and targets [N].
struct Batch {
  int tp;
  Tensor logits, targets;
  std::vector<Loss> got = {};  // what an answer found, by rank

  std::int64_t tokens() const { return logits.size(0); }
  std::int64_t vocabulary() const { return logits.size(1); }
  std::int64_t columns() const { return (vocabulary() + tp - 1) / tp; }
  std::int64_t target(std::int64_t token) const { return targets.data<std::int32_t>()[token]; }
  Tensor part(const Tensor& x, int rank) const {
    const std::int64_t first = rank * columns();
    return clone(view::slice(x, 1, first, std::min(columns(), vocabulary() - first)));
  }
  void loss_on(Rank& rank, const Answers& answers) {
    got[at(rank.rank())] = answers.cross_entropy(rank, part(logits, rank.rank()), clone(targets), vocabulary());
  }
  Run run(const Answers& answers) {
    return run_ranks({.ranks = tp, .collectives = true}, [&](Rank& rank) { loss_on(rank, answers); });
  }
};

inline Batch batch_of(Grading& grading, int tp, std::int64_t tokens, std::int64_t vocabulary) {
  Batch batch = {.tp = tp,
                 .logits = grading.random({tokens, vocabulary}) * 3,
                 .targets = Tensor::empty({tokens}, DType::i32),
                 .got = std::vector<Loss>(at(tp))};
  for (std::int64_t token = 0; token < tokens; ++token) {  // the first and the last column of each rank, then any
    const std::int64_t edge = (token + 1) / 2 * batch.columns() - token % 2;
    const int any = grading.pick(0, static_cast<int>(vocabulary) - 1);
    batch.targets.data<std::int32_t>()[token] =
        static_cast<std::int32_t>(token < 2 * tp ? std::min(edge, vocabulary - 1) : any);
  }
  return batch;
}

/// In turn: a row whose logits are all about 1e4, one where all are about -1e4, one where they spread over 1e4.
inline void enlarge(Batch& batch) {
  const std::int64_t columns = batch.vocabulary();
  for (std::int64_t i = 0; i < batch.logits.count(); ++i) {
    float& logit = batch.logits.data<float>()[i];
    const std::int64_t kind = i / columns % 3;
    logit = kind == 2 ? 5e3F * logit : logit + (kind == 0 ? 1e4F : -1e4F);
  }
}

}  // namespace trireme::labs::tensor_parallel
