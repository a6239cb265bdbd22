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
//
// A layer whose tokens see only the last W tokens (a window of attention, or a text longer than the context) has memory
// for W of them and a quarter more, however long the text is: when it is full, the oldest are overwritten.
// Read next: nn/attention.cpp, which appends and attends; train/gpt/next_logits.cpp, which decides what is new.
#pragma once

#include <map>
#include <span>
#include <string>

#include "core/tensor.h"

namespace trireme::nn {

class KvCache {
 public:
  /// Has room for `capacity` tokens of a sequence, allocated when a layer first appends. `window`: no token sees more
  /// than the last `window` tokens, in any layer; 0: it may see all.
  explicit KvCache(std::int64_t capacity, std::int64_t window = 0) : capacity_(capacity), window_(window) {}

  /// The tokens of the next forward stand at positions first, first + 1, ...; cached positions from `first` on are
  /// dropped. All earlier positions that they see must be held.
  void begin(std::int64_t first) { first_ = first; }
  std::int64_t first() const { return first_; }
  std::int64_t capacity() const { return capacity_; }
  /// Whether every layer holds what tokens from position `first` on see. Layers that have not appended are not asked.
  bool can_begin(std::int64_t first) const;

  /// The result of append().
  struct Held {
    Tensor keys, values;     ///< [B, m, Hkv/tp, Dh]: of positions start to first + n; often views
    std::int64_t start = 0;  ///< the position of the first key
  };
  /// Appends k, v [B, n, Hkv/tp, Dh] of the next tokens to those of `layer`, and returns them with all earlier ones
  /// that are held. `needed`: the first position that any of the new tokens sees. `window`: tokens of this layer see at
  /// most the last `window` tokens; 0: all.
  Held append(const std::string& layer, const Tensor& k, const Tensor& v, std::int64_t needed = 0,
              std::int64_t window = 0);

  /// Row i of the batch becomes what row rows[i] was; a row may be repeated, or left out.
  void select(std::span<const std::int64_t> rows);

  std::int64_t bytes() const;  ///< of all keys and values that there is memory for

 private:
  struct Layer {
    Tensor keys, values;                 // [B, room, Hkv/tp, Dh]: slot i has position start + i
    std::int64_t start = 0, filled = 0;  // positions start to filled are held
    std::int64_t window = 0;             // the most tokens that a token sees; 0: all
    std::int64_t room() const { return keys.size(1); }
  };
  /// Positions that are kept beyond what the next token sees, because ranks that share a sequence compute a few tokens
  /// again.
  static constexpr std::int64_t margin = 64;
  void make_room(Layer& layer, const Tensor& k, const Tensor& v, std::int64_t window) const;
  static void move_to_front(Layer& layer, std::int64_t from, std::int64_t end);
  static Held with_all(Layer& layer, const Tensor& k, const Tensor& v, std::int64_t first, std::int64_t needed);

  std::int64_t capacity_, window_, first_ = 0;
  std::map<std::string, Layer> layers_;
};

}  // namespace trireme::nn
