// What attention's forward and backward passes share besides panels: heads as matrices, masks, and writing results.
//
// Both passes keep scores transposed, [keys, queries], with a tile's worth of queries side by side in vector lanes. The
// softmax over keys then works lane by lane, and a tile of probabilities is already the panel of B for the product with
// the values: out^T [Dh, queries] = V^T P^T. Read next: attention_panels.h, attention.cpp.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/cpu/pack.h"
#include "core/cpu/partition.h"
#include "core/cpu/vector_math.h"
#include "core/parallel_for.h"
#include "core/tensor.h"

namespace trireme::cpu {

/// Keys handled at once: a multiple of a tile's columns on every machine.
inline constexpr std::int64_t key_block = 64;

/// One head of a [B, T, H, Dh] tensor: row t is at data + t * stride, contiguous.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t count, width, stride;  // T, Dh, elements from row to row

  HeadRows(const Tensor& x, std::int64_t batch, std::int64_t head)
      : data(x.data<std::remove_const_t<T>>() + batch * x.strides()[0] + head * x.strides()[2]),
        count(x.size(1)),
        width(x.size(3)),
        stride(x.strides()[1]) {}
  T* row(std::int64_t t) const { return data + t * stride; }
};

/// Extents of one attention call.
struct AttentionShape {
  std::int64_t batch, queries, heads, width, keys, kv_heads;
  bool causal;
  const std::int32_t* first_key;  // [B, Tq], or null: every query sees keys from 0 on

  AttentionShape(const Tensor& q, const Tensor& k, bool is_causal, const Tensor& first_keys)
      : batch(q.size(0)),
        queries(q.size(1)),
        heads(q.size(2)),
        width(q.size(3)),
        keys(k.size(1)),
        kv_heads(k.size(2)),
        causal(is_causal),
        first_key(first_keys.defined() ? first_keys.data<std::int32_t>() : nullptr) {}

  std::int64_t group() const { return heads / kv_heads; }  ///< query heads that read one kv head
  std::int64_t key_blocks() const { return divide_up(keys, key_block); }
  /// Of the forward pass, not causal.
  std::int64_t flops() const { return 4 * batch * heads * queries * keys * width; }
  /// Keys that query i sees: [0, seen(i)).
  std::int64_t seen(std::int64_t i) const {
    return causal ? std::clamp<std::int64_t>(i + keys - queries + 1, 0, keys) : keys;
  }
  /// The first key that one of queries [first, first + count) sees.
  std::int64_t first_seen(std::int64_t batch_row, std::int64_t first, std::int64_t count) const {
    if (first_key == nullptr) return 0;
    const std::int32_t* row = first_key + batch_row * queries + first;
    return std::max<std::int32_t>(0, *std::min_element(row, row + count));
  }
};

/// Writes columns [0, count) of x [Dh, columns] as rows first.. of a head.
template <int columns, class T>
void write_columns(const accumulate_t<T>* x, std::int64_t count, const HeadRows<T>& to, std::int64_t first) {
  using Acc = accumulate_t<T>;
  constexpr int width = tile_columns<Acc>;
  alignas(64) Acc rows[panel_size<Acc>(width, columns)];  // [queries, part of Dh]
  for (std::int64_t d = 0; d < to.width; d += width) {
    const std::int64_t part = std::min<std::int64_t>(width, to.width - d);
    pack_columns(Strip<Acc>{x + d * columns, part, count, columns, 1}, rows);
    for (std::int64_t i = 0; i < count; ++i) {
      T* row = to.row(first + i) + d;
      for (std::int64_t j = 0; j < part; ++j) row[j] = static_cast<T>(rows[i * width + j]);
    }
  }
}

/// s becomes softcap tanh(s / softcap), for each of `count` scores; 0: nothing is done.
template <class Acc>
void cap_scores(Acc softcap, std::int64_t count, Acc* scores) {
  if (softcap == 0) return;
  const Acc inverse = 1 / softcap;
  for (std::int64_t i = 0; i < count; ++i) scores[i] = softcap * tanh_approx(scores[i] * inverse);
}

/// Sets the scores [keys, columns] of masked pairs to -infinity. Column j is query first + j of sequence `batch`;
/// masked are keys from seen(first + j) on and keys before its first_key. Row 0 is key `key`; there are `count` rows.
template <int columns, class Acc>
void mask_scores(const AttentionShape& shape, std::int64_t batch, std::int64_t first, std::int64_t key,
                 std::int64_t count, Acc* scores) {
  for (int j = 0; shape.first_key != nullptr && j < std::min<std::int64_t>(columns, shape.queries - first); ++j) {
    const std::int64_t hidden = shape.first_key[batch * shape.queries + first + j] - key;
    for (std::int64_t i = 0; i < std::min(hidden, count); ++i)
      scores[i * columns + j] = -std::numeric_limits<Acc>::infinity();
  }
  if (!shape.causal) return;
  const std::int64_t offset = first + shape.keys - shape.queries;  // column j sees keys up to offset + j
  for (std::int64_t i = std::max<std::int64_t>(0, offset + 1 - key); i < count; ++i) {
    const std::int64_t hidden = std::min<std::int64_t>(key + i - offset, columns);
    std::fill_n(scores + i * columns, hidden, -std::numeric_limits<Acc>::infinity());
  }
}

/// Runs a pass over all its items on the team, each member with a workspace of its own. A pass has items(), team(most),
/// workspace() in elements of Acc, and run(items, memory).
template <class Acc, class Pass>
void share_out(const Pass& pass) {
  const int team = pass.team(threads());
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor workspace = Tensor::empty({team, pass.workspace()}, dtype_of<Acc>);
  Acc* memory = workspace.data<Acc>();
  parallel_parts(team, [&](int member, int members) {
    pass.run(part_of(pass.items(), members, member), memory + member * pass.workspace());
  });
}

}  // namespace trireme::cpu
