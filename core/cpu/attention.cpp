// Attention on the CPU, forward: out = softmax(scale q k^T + mask) v with an online softmax, so that only a tile of the
// scores ever exists (FlashAttention: Dao et al. 2022, algorithm 1; the layout is that of attention_tiles.h).
//
// For each tile of queries, block of keys after block of keys:
//   s = k q^T [keys, queries] (with a softcap: c tanh(s / c)), new maximum m, p = exp(s - m),
//   l = l exp(m_old - m) + sum p, o = o exp(m_old - m) + v^T p
// and at the end out = o / l, lse = m + log l. 4 Tq Tk Dh FLOPs per head, half of that when causal: blocks that no
// query sees are skipped. Sums and the softmax are f32 (f64 for f64). Both products run on the unit in use
// (attention_panels.h); the units for bf16 take p rounded to bf16, but l sums p unrounded. Each tile of queries is
// computed by one thread, so the team's size does not change the bits. attention_few.cpp handles calls with too few
// queries for a tile.
// Read next: attention_backward.cpp.
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/cpu/attention_few.h"
#include "core/cpu/attention_panels.h"
#include "core/cpu/kernels.h"
#include "core/cpu/vector_math.h"

namespace trireme::cpu {
namespace {

template <class T, class Unit>
class Forward {
  using Acc = accumulate_t<T>;
  using Element = typename Unit::Element;
  static_assert(std::is_same_v<Acc, typename Unit::Sum>);
  static constexpr int width = Unit::columns;  // queries in a tile

 public:
  Forward(const Tensor& q, const Tensor& k, const Tensor& v, const ScoreRule& rule, bool causal,
          const Tensor& first_key, const Tensor& out, const Tensor& lse)
      : q_(q),
        k_(k),
        v_(v),
        out_(out),
        lse_(lse),
        scale_(static_cast<Acc>(rule.scale)),
        softcap_(static_cast<Acc>(rule.softcap)),
        shape_(q, k, causal, first_key) {}

  /// Elements of workspace a thread needs.
  std::int64_t workspace() const { return Workspace(shape_, nullptr).used; }
  std::int64_t tiles() const { return divide_up(shape_.queries, width); }
  std::int64_t items() const { return shape_.batch * shape_.heads * tiles(); }

  int team(int most) const { return useful_team(shape_.flops(), std::min<std::int64_t>(most, items())); }

  /// Items [begin, end): consecutive ones share a kv head, whose keys and values are packed once.
  void run(IndexRange items, Acc* memory) const {
    [[maybe_unused]] const Unit unit;  // lets this thread multiply
    const Workspace work(shape_, memory);
    std::int64_t packed = -1;
    for (std::int64_t item = items.begin; item < items.end; ++item) {
      const std::int64_t index = item % tiles(), head = item / tiles() % shape_.heads,
                         batch = item / tiles() / shape_.heads;
      const std::int64_t kv_head = head / shape_.group();
      if (packed != batch * shape_.kv_heads + kv_head) {
        pack(batch, kv_head, work);
        packed = batch * shape_.kv_heads + kv_head;
      }
      // Late queries see more keys: tiles are taken from both ends in turn, so that equal numbers of items are equal
      // work.
      const std::int64_t tile = index % 2 == 0 ? index / 2 : tiles() - 1 - index / 2;
      query_tile(batch, head, tile * width, work);
    }
  }

 private:
  struct Workspace {
    Element *keys, *values, *query;
    ScoreTile<Unit> scores;
    Acc *sum, *top, *total;
    std::int64_t used;
    Workspace(const AttentionShape& shape, Acc* memory) : Workspace(shape, BumpAllocator<Acc>(memory)) {}
    Workspace(const AttentionShape& shape, BumpAllocator<Acc> allocator)
        : keys(allocator.template take<Element>(shape.key_blocks() * KeyPanels<Unit>::size(shape.width))),
          values(
              allocator.template take<Element>(shape.key_blocks() * WidthPanels<Unit>::size(shape.width, key_block))),
          query(allocator.template take<Element>(Unit::panel(width, shape.width))),
          scores(allocator),
          sum(allocator.take(WidthPanels<Unit>::sum_size(shape.width))),  // [Dh, queries]
          top(allocator.take(width)),                                     // largest score so far
          total(allocator.take(width)),                                   // sum of exp(score - top)
          used(allocator.used()) {}
  };

  IndexRange keys_of(std::int64_t block) const {
    return {block * key_block, std::min((block + 1) * key_block, shape_.keys)};
  }

  void pack(std::int64_t batch, std::int64_t kv_head, const Workspace& work) const {
    const HeadRows<const T> keys(k_, batch, kv_head), values(v_, batch, kv_head);
    for (std::int64_t block = 0; block < shape_.key_blocks(); ++block) {
      KeyPanels<Unit>::pack(keys, keys_of(block), work.keys + block * KeyPanels<Unit>::size(shape_.width));
      WidthPanels<Unit>::pack(values, keys_of(block), key_block,
                              work.values + block * WidthPanels<Unit>::size(shape_.width, key_block));
    }
  }

  void query_tile(std::int64_t batch, std::int64_t head, std::int64_t first, const Workspace& work) const {
    const std::int64_t count = std::min<std::int64_t>(width, shape_.queries - first);
    pack_head_columns<Unit>(HeadRows<const T>(q_, batch, head), first, count, work.query);
    if constexpr (operands_are_sums<Unit>) scale(shape_.width * width, work.query);
    std::fill_n(work.top, width, -std::numeric_limits<Acc>::infinity());
    std::fill_n(work.total, width, Acc{0});
    std::fill_n(work.sum, WidthPanels<Unit>::sum_size(shape_.width), Acc{0});
    const std::int64_t seen = shape_.seen(first + count - 1);  // by the last query of the tile
    for (std::int64_t block = shape_.first_seen(batch, first, count) / key_block; block * key_block < seen; ++block) {
      const IndexRange keys = keys_of(block);
      const std::int64_t visible = std::min(seen - keys.begin, keys.size());
      KeyPanels<Unit>::multiply(keys.size(), visible, shape_.width,
                                work.keys + block * KeyPanels<Unit>::size(shape_.width), work.query, work.scores.sums);
      if constexpr (!operands_are_sums<Unit>) scale(visible * width, work.scores.sums);
      cap_scores(softcap_, visible * width, work.scores.sums);
      mask_scores<width>(shape_, batch, first, keys.begin, visible, work.scores.sums);
      softmax_block(visible, work);
      work.scores.finish(visible);
      WidthPanels<Unit>::multiply_add(shape_.width, key_block, 0, visible,
                                      work.values + block * WidthPanels<Unit>::size(shape_.width, key_block),
                                      work.scores.panel(visible), work.sum);
    }
    finish(batch, head, first, count, work);
  }

  void scale(std::int64_t count, Acc* x) const {
    for (std::int64_t i = 0; i < count; ++i) x[i] *= scale_;
  }

  /// Turns scores [keys, queries] into probabilities relative to the new maximum, and rescales the earlier sums to it.
  void softmax_block(std::int64_t keys, const Workspace& work) const {
    alignas(64) Acc top[width], factor[width], total[width];
    std::copy_n(work.top, width, top);
    for (std::int64_t i = 0; i < keys; ++i) {
      const Acc* row = work.scores.sums + i * width;
      for (int j = 0; j < width; ++j) top[j] = row[j] > top[j] ? row[j] : top[j];
    }
    for (int j = 0; j < width; ++j) {
      const Acc shift = top[j] == -std::numeric_limits<Acc>::infinity() ? Acc{0} : top[j];  // a query that sees nothing
      factor[j] = exp_approx(work.top[j] - shift);
      work.top[j] = top[j];
      top[j] = shift;
      total[j] = work.total[j] * factor[j];
    }
    for (std::int64_t i = 0; i < keys; ++i) {
      Acc* row = work.scores.sums + i * width;
      for (int j = 0; j < width; ++j) row[j] = exp_approx(row[j] - top[j]);
      for (int j = 0; j < width; ++j) total[j] += row[j];
    }
    std::copy_n(total, width, work.total);
    for (std::int64_t d = 0; d < shape_.width; ++d) {
      for (int j = 0; j < width; ++j) work.sum[d * width + j] *= factor[j];
    }
  }

  void finish(std::int64_t batch, std::int64_t head, std::int64_t first, std::int64_t count,
              const Workspace& work) const {
    alignas(64) Acc inverse[width];
    for (int j = 0; j < width; ++j) inverse[j] = work.total[j] == 0 ? Acc{0} : 1 / work.total[j];
    for (std::int64_t d = 0; d < shape_.width; ++d) {
      for (int j = 0; j < width; ++j) work.sum[d * width + j] *= inverse[j];
    }
    write_columns<width>(work.sum, count, HeadRows<T>(out_, batch, head), first);
    Acc* lse = lse_.data<Acc>() + (batch * shape_.heads + head) * shape_.queries + first;
    for (std::int64_t j = 0; j < count; ++j) lse[j] = work.top[j] + std::log(work.total[j]);
  }

  const Tensor &q_, &k_, &v_, &out_, &lse_;
  const Acc scale_, softcap_;
  const AttentionShape shape_;
};

}  // namespace

void attention(const Tensor& q, const Tensor& k, const Tensor& v, const ScoreRule& rule, bool causal,
               const Tensor& first_key, Tensor& out, Tensor& lse) {
  if (out.count() == 0) return;
  if (suits_few_queries(q)) return attention_few(q, k, v, rule, causal, first_key, out, lse);
  visit_floating(q.dtype(), "attention", [&](auto tag) {
    using T = typename decltype(tag)::type;
    visit_unit<T>([&](auto unit) {
      const Forward<T, typename decltype(unit)::type> forward(q, k, v, rule, causal, first_key, out, lse);
      share_out<accumulate_t<T>>(forward);
    });
  });
}

}  // namespace trireme::cpu
