// KvCache: keeps the keys and values of a text's tokens so far, so that only its new tokens are computed.
//
// A token sees only the tokens before it. Its keys and values therefore never change while the text up to it stays the
// same. If they are kept, one more token costs one row through every matrix instead of the whole text:
//
//   without   x [B, t, D]   q, k, v [B, t, ..]                                     attention [B, t, H/tp, Dh]
//   with      x [B, n, D]   q, k, v [B, n, ..]   K, V [B, t, Hkv/tp, Dh] from here   attention [B, n, H/tp, Dh]
//
// n of t tokens are new; query i of them sees keys up to t - n + i, which is the causal limit of the attention kernel
// for fewer queries than keys. The model's caller puts a cache into RunState, calls begin() with the position of the
// next tokens, and gives the model only these tokens. A rank holds what its attention layers need: its heads of its
// stages' blocks. Only for evaluation, and only where a rank has whole sequences (cp = 1).
// Read next: nn/attention.cpp, which appends and attends; train/gpt/next_logits.cpp, which decides what is new.
#pragma once

#include <map>
#include <string>

#include "core/tensor.h"

namespace trireme::nn {

class KvCache {
 public:
  /// Has room for `capacity` tokens of a sequence, allocated when a layer first appends.
  explicit KvCache(std::int64_t capacity) : capacity_(capacity) {}

  /// The tokens of the next forward stand at positions first, first + 1, ...; cached positions from `first` on are
  /// dropped. All earlier positions must have been appended.
  void begin(std::int64_t first) { first_ = first; }
  std::int64_t first() const { return first_; }
  std::int64_t capacity() const { return capacity_; }

  struct Held {
    Tensor keys, values;  ///< [B, first + n, Hkv/tp, Dh], views
  };
  /// Appends k, v [B, n, Hkv/tp, Dh] of the next tokens to those of `layer`, and returns all of them.
  Held append(const std::string& layer, const Tensor& k, const Tensor& v);

 private:
  struct Layer {
    Tensor keys, values;      // [B, capacity, Hkv/tp, Dh]
    std::int64_t filled = 0;  // positions from 0 on that were appended
  };
  std::int64_t capacity_, first_ = 0;
  std::map<std::string, Layer> layers_;
};

}  // namespace trireme::nn
