// Attention on the CPU, backward (FlashAttention-2: Dao 2023, algorithm 2). Scores are computed again, tile by tile:
//   p = exp(scale q k^T - lse)                        dv = p^T dout
//   ds = scale p (dout v^T - delta)                   dq = ds k,  dk = ds^T q
// (with a softcap c: of c tanh(scale q k^T / c), and ds also has the factor 1 - tanh^2), with delta = sum over Dh of
// dout * out, a number for each query. 10 Tq Tk Dh FLOPs per head, half when causal.
//
// One thread owns a kv head: it goes over the query heads that read it, and over blocks of keys and of queries, in a
// fixed order, so dk and dv are the same sums for every size of the team. Scores stay transposed, [keys, queries], as
// in the forward pass; dk and dv sum over queries and use the tiles transposed back, [queries, keys]. All five products
// run on the unit in use (attention_panels.h). The units for bf16 take p and ds rounded to bf16; delta and ds are
// computed in f32.
#include <limits>
#include <type_traits>

#include "core/cpu/attention_panels.h"
#include "core/cpu/dots.h"
#include "core/cpu/kernels.h"
#include "core/cpu/vector_math.h"

namespace trireme::cpu {
namespace {

struct BackwardTensors {
  const Tensor &q, &k, &v, &out, &lse, &dout;
  Tensor &dq, &dk, &dv;
};

template <class T, class Unit>
class Backward {
  using Acc = accumulate_t<T>;
  using Element = typename Unit::Element;
  static_assert(std::is_same_v<Acc, typename Unit::Sum>);
  static constexpr int width = Unit::columns;             // queries in a tile, keys in a panel
  static constexpr std::int64_t query_block = 2 * width;  // queries summed over at once for dk and dv
  static constexpr std::int64_t key_panels = key_block / width;

 public:
  Backward(const BackwardTensors& x, const ScoreRule& rule, bool causal, const Tensor& first_key)
      : x_(x),
        scale_(static_cast<Acc>(rule.scale)),
        softcap_(static_cast<Acc>(rule.softcap)),
        shape_(x.q, x.k, causal, first_key) {}

  std::int64_t workspace() const { return Workspace(shape_, nullptr).used; }
  std::int64_t items() const { return shape_.batch * shape_.kv_heads; }

  int team(int most) const { return useful_team(shape_.flops(), std::min<std::int64_t>(most, items())); }

  void run(IndexRange items, Acc* memory) const {
    [[maybe_unused]] const Unit unit;  // lets this thread multiply
    const Workspace work(shape_, memory);
    for (std::int64_t item = items.begin; item < items.end; ++item) {
      kv_head(item / shape_.kv_heads, item % shape_.kv_heads, work);
    }
  }

 private:
  struct Workspace {
    // Of the kv head: sums [key panels][Dh, width].
    Acc *dk, *dv;
    // Of a query head: [query tiles][Dh, width] and panels of Dh over all queries; one number per query.
    Element *query, *dout, *query_rows, *dout_rows;
    Acc *dq, *delta, *lse;
    // Of a block of keys.
    Element *keys, *values, *key_rows;
    // Of a tile of queries against a block of keys: [keys, queries]; and transposed back: [key panels][queries, width].
    ScoreTile<Unit> p, ds;
    Element *p_transposed, *ds_transposed;
    std::int64_t used;

    Workspace(const AttentionShape& shape, Acc* memory) : Workspace(shape, BumpAllocator<Acc>(memory)) {}
    Workspace(const AttentionShape& shape, BumpAllocator<Acc> allocator) : p(allocator), ds(allocator) {
      const std::int64_t tiles = divide_up(shape.queries, width), sum = WidthPanels<Unit>::sum_size(shape.width);
      for (Acc** sums : {&dk, &dv}) *sums = allocator.take(shape.key_blocks() * key_panels * sum);
      dq = allocator.take(tiles * sum);
      for (Element** columns : {&query, &dout})
        *columns = allocator.template take<Element>(tiles * Unit::panel(width, shape.width));
      for (Element** rows : {&query_rows, &dout_rows})
        *rows = allocator.template take<Element>(WidthPanels<Unit>::size(shape.width, shape.queries));
      for (Acc** numbers : {&delta, &lse}) *numbers = allocator.take(tiles * width);
      for (Element** panels : {&keys, &values})
        *panels = allocator.template take<Element>(KeyPanels<Unit>::size(shape.width));
      key_rows = allocator.template take<Element>(WidthPanels<Unit>::size(shape.width, key_block));
      for (Element** transposed : {&p_transposed, &ds_transposed})
        *transposed = allocator.template take<Element>(key_panels * transposed_size);
      used = allocator.used();
    }
  };

  // Elements of a panel of queries or of douts, of a sum [Dh, width], of a transposed panel of probabilities.
  std::int64_t columns_size() const { return Unit::panel(width, shape_.width); }
  std::int64_t sum_size() const { return WidthPanels<Unit>::sum_size(shape_.width); }
  static constexpr std::int64_t transposed_size = Unit::panel(width, query_block);
  IndexRange keys_of(std::int64_t block) const {
    return {block * key_block, std::min((block + 1) * key_block, shape_.keys)};
  }

  void kv_head(std::int64_t batch, std::int64_t kv_head, const Workspace& work) const {
    const std::int64_t panels = shape_.key_blocks() * key_panels;
    for (Acc* sum : {work.dk, work.dv}) std::fill_n(sum, panels * sum_size(), Acc{0});
    for (std::int64_t head = kv_head * shape_.group(); head < (kv_head + 1) * shape_.group(); ++head) {
      pack_queries(batch, head, work);
      for (std::int64_t block = 0; block < shape_.key_blocks(); ++block) {
        pack_keys(batch, kv_head, keys_of(block), work);
        for (std::int64_t first = 0; first < shape_.queries; first += query_block)
          block_pair(batch, block, first, work);
      }
      for (std::int64_t first = 0, tile = 0; first < shape_.queries; first += width, ++tile) {
        write_columns<width>(work.dq + tile * sum_size(), std::min<std::int64_t>(width, shape_.queries - first),
                             HeadRows<T>(x_.dq, batch, head), first);
      }
    }
    for (std::int64_t first = 0, i = 0; first < shape_.keys; first += width, ++i) {
      const std::int64_t count = std::min<std::int64_t>(width, shape_.keys - first);
      write_columns<width>(work.dk + i * sum_size(), count, HeadRows<T>(x_.dk, batch, kv_head), first);
      write_columns<width>(work.dv + i * sum_size(), count, HeadRows<T>(x_.dv, batch, kv_head), first);
    }
  }

  void pack_queries(std::int64_t batch, std::int64_t head, const Workspace& work) const {
    const HeadRows<const T> query(x_.q, batch, head), dout(x_.dout, batch, head), out(x_.out, batch, head);
    const std::int64_t tiles = divide_up(shape_.queries, width);
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t first = tile * width, count = std::min<std::int64_t>(width, shape_.queries - first);
      Element *columns = work.query + tile * columns_size(), *dout_columns = work.dout + tile * columns_size();
      pack_head_columns<Unit>(query, first, count, columns);
      if constexpr (operands_are_sums<Unit>) scale(shape_.width * width, columns);
      pack_head_columns<Unit>(dout, first, count, dout_columns);
      Acc* delta = work.delta + first;
      std::fill_n(delta, width, Acc{0});
      if constexpr (operands_are_sums<Unit>) {
        Acc* scratch = work.dq + tile * sum_size();  // out packed where dq will be summed
        pack_head_columns<Unit>(out, first, count, scratch);
        for (std::int64_t d = 0; d < shape_.width; ++d) {
          const Acc *a = scratch + d * width, *b = dout_columns + d * width;
          for (int j = 0; j < width; ++j) delta[j] += a[j] * b[j];
        }
      } else {
        for (std::int64_t i = 0; i < count; ++i) delta[i] = dot(shape_.width, out.row(first + i), dout.row(first + i));
      }
    }
    std::fill_n(work.dq, tiles * sum_size(), Acc{0});
    WidthPanels<Unit>::pack(query, {0, shape_.queries}, shape_.queries, work.query_rows);
    WidthPanels<Unit>::pack(dout, {0, shape_.queries}, shape_.queries, work.dout_rows);
    // A query that saw no key has lse = -infinity and only masked scores; 0 keeps exp(score - lse) at 0.
    const Acc* lse = x_.lse.template data<Acc>() + (batch * shape_.heads + head) * shape_.queries;
    std::fill_n(work.lse, tiles * width, Acc{0});
    for (std::int64_t i = 0; i < shape_.queries; ++i) {
      work.lse[i] = lse[i] == -std::numeric_limits<Acc>::infinity() ? Acc{0} : lse[i];
    }
  }

  void pack_keys(std::int64_t batch, std::int64_t kv_head, IndexRange keys, const Workspace& work) const {
    const HeadRows<const T> k(x_.k, batch, kv_head), v(x_.v, batch, kv_head);
    KeyPanels<Unit>::pack(k, keys, work.keys);
    KeyPanels<Unit>::pack(v, keys, work.values);
    WidthPanels<Unit>::pack(k, keys, key_block, work.key_rows);
  }

  /// A block of keys against a block of queries: adds to dq of these queries, dk and dv of these keys.
  void block_pair(std::int64_t batch, std::int64_t block, std::int64_t first, const Workspace& work) const {
    const IndexRange keys = keys_of(block);
    const std::int64_t last = std::min(first + query_block, shape_.queries);
    if (shape_.first_seen(batch, first, last - first) >= keys.end) return;
    std::int64_t begin = last;  // queries [begin, last) see something of the block
    std::int64_t widest = 0;    // and this many of its keys
    for (std::int64_t tile = first; tile < last; tile += width) {
      const std::int64_t count = std::min<std::int64_t>(width, last - tile);
      const std::int64_t visible = std::min(shape_.seen(tile + count - 1) - keys.begin, keys.size());
      if (visible <= 0) continue;
      begin = std::min(begin, tile);
      widest = visible;
      gradient_tile(batch, keys, visible, tile, work);
      transpose_tile(visible, count, tile - first, work);
    }
    for (std::int64_t i = 0; i * width < widest; ++i) {
      const std::int64_t sum = (block * key_panels + i) * sum_size();
      const std::int64_t transposed = i * transposed_size + Unit::offset(width, begin - first);
      WidthPanels<Unit>::multiply_add(shape_.width, shape_.queries, begin, last - begin, work.dout_rows,
                                      work.p_transposed + transposed, work.dv + sum);
      WidthPanels<Unit>::multiply_add(shape_.width, shape_.queries, begin, last - begin, work.query_rows,
                                      work.ds_transposed + transposed, work.dk + sum);
    }
  }

  /// p and ds [keys, queries] of one tile of queries, and what they add to dq.
  void gradient_tile(std::int64_t batch, IndexRange keys, std::int64_t visible, std::int64_t first,
                     const Workspace& work) const {
    const std::int64_t tile = first / width, columns = tile * columns_size();
    Acc *p = work.p.sums, *ds = work.ds.sums;
    KeyPanels<Unit>::multiply(keys.size(), visible, shape_.width, work.keys, work.query + columns, p);
    if constexpr (!operands_are_sums<Unit>) scale(visible * width, p);
    cap_scores(softcap_, visible * width, p);
    mask_scores<width>(shape_, batch, first, keys.begin, visible, p);
    KeyPanels<Unit>::multiply(keys.size(), visible, shape_.width, work.values, work.dout + columns, ds);
    const Acc *lse = work.lse + first, *delta = work.delta + first;
    for (std::int64_t i = 0; i < visible; ++i, p += width, ds += width) {
      if (softcap_ > 0) {
        for (int j = 0; j < width; ++j) ds[j] = (ds[j] - delta[j]) * slope_of_cap(p[j]);
        for (int j = 0; j < width; ++j) p[j] = exp_approx(p[j] - lse[j]);
        for (int j = 0; j < width; ++j) ds[j] *= scale_ * p[j];
        continue;
      }
      for (int j = 0; j < width; ++j) p[j] = exp_approx(p[j] - lse[j]);
      for (int j = 0; j < width; ++j) ds[j] = scale_ * p[j] * (ds[j] - delta[j]);
    }
    work.p.finish(visible);
    work.ds.finish(visible);
    WidthPanels<Unit>::multiply_add(shape_.width, key_block, 0, visible, work.key_rows, work.ds.panel(visible),
                                    work.dq + tile * sum_size());
  }

  /// Transposes the tile into rows [row, row + count) of the block's [queries, keys] panels, 0 for keys not visible.
  void transpose_tile(std::int64_t visible, std::int64_t count, std::int64_t row, const Workspace& work) const {
    for (std::int64_t i = 0; i < key_panels; ++i) {
      const std::int64_t keys = std::clamp<std::int64_t>(visible - i * width, 0, width);
      const std::int64_t to = i * transposed_size + Unit::offset(width, row);
      work.p.transposed_panel(i * width, keys, count, work.p_transposed + to);
      work.ds.transposed_panel(i * width, keys, count, work.ds_transposed + to);
    }
  }

  /// The derivative of c tanh(s / c), 1 - tanh^2, from its value, which is -infinity for a masked pair.
  Acc slope_of_cap(Acc capped) const {
    const Acc t = capped < -softcap_ ? Acc{-1} : capped / softcap_;
    return 1 - t * t;
  }

  void scale(std::int64_t count, Acc* x) const {
    for (std::int64_t i = 0; i < count; ++i) x[i] *= scale_;
  }

  const BackwardTensors& x_;
  const Acc scale_, softcap_;
  const AttentionShape shape_;
};

}  // namespace

void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
                        const Tensor& dout, const ScoreRule& rule, bool causal, const Tensor& first_key, Tensor& dq,
                        Tensor& dk, Tensor& dv) {
  visit_floating(q.dtype(), "attention_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    visit_unit<T>([&](auto unit) {
      const BackwardTensors tensors{q, k, v, out, lse, dout, dq, dk, dv};
      const Backward<T, typename decltype(unit)::type> backward(tensors, rule, causal, first_key);
      share_out<accumulate_t<T>>(backward);
    });
  });
}

}  // namespace trireme::cpu
