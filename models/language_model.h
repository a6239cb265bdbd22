// LanguageModel: what generating text needs of a model in addition to training: the logits of the next token, for texts
// of any length, with keys and values of earlier tokens kept (RunState::cache).
// Read next: train/gpt/next_logits.h.
#pragma once

#include "models/model.h"

namespace trireme {

class LanguageModel : public Model {
 public:
  using Model::hidden_shape;
  using Model::loss;
  /// One rank, one call: the mean loss of the targets [B, T] i32 of ids [B, T] i32. A negative target is ignored. Each
  /// call in training has new samples: their numbers, which dropout masks depend on, go on from those of the call
  /// before. Throws ExitCode::usage on a mesh of several ranks.
  Tensor loss(const Tensor& ids, const Tensor& targets);
  /// The same for texts of `length` tokens each, a padded_length().
  virtual Shape hidden_shape(std::int64_t samples, std::int64_t length) const = 0;
  /// `length` rounded up so that it divides over the ranks that share a sequence.
  virtual std::int64_t padded_length(std::int64_t length) const = 0;
  virtual std::int64_t context() const = 0;  ///< the most tokens that it sees at once
  /// Whether only differences of positions matter, as with rotary ones. Such a model can be given longer texts, in
  /// evaluation, if RunState::document_starts lets each token see at most context() tokens.
  virtual bool relative_positions() const { return false; }

  /// Last stage: logits of the token after position `position`, real tokens only, whole on every tp rank.
  /// -> [B, 1, V] f32
  virtual Tensor next_logits(const Tensor& hidden, std::int64_t position) = 0;

 protected:
  using Model::Model;

 private:
  std::int64_t next_sample_ = 0;  // of loss(ids, targets)
};

}  // namespace trireme
