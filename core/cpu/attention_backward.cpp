// Attention on the CPU, backward (FlashAttention-2: Dao 2023, algorithm 2). Scores are computed again, tile by tile:
//   p = exp(scale q k^T - lse)                        dv = p^T dout
//   ds = scale p (dout v^T - delta)                   dq = ds k,  dk = ds^T q
// with delta = sum over Dh of dout * out, a number for each query. 10 Tq Tk Dh FLOPs a head, half when causal.
//
// One thread owns a kv head: it goes over the query heads that read it, and over blocks of keys and of queries, in a
// fixed order, so dk and dv are the same sums whatever the team's size. Scores stay transposed, [keys, queries], as in
// the forward pass; dk and dv sum over queries and take the tiles turned round, [queries, keys].
#include <array>
#include <limits>

#include "core/cpu/attention_tiles.h"
#include "core/cpu/kernels.h"
#include "core/cpu/vector_math.h"

namespace trireme::cpu {
namespace {

struct BackwardTensors {
  const Tensor &q, &k, &v, &out, &lse, &dout;
  Tensor &dq, &dk, &dv;
};

template <class T>
class Backward {
  using Acc = accumulate_t<T>;
  static constexpr int width = tile_columns<Acc>;         // queries in a tile, keys in a panel
  static constexpr std::int64_t query_block = 2 * width;  // queries summed over at once for dk and dv
  static constexpr std::int64_t key_panels = key_block / width;

 public:
  Backward(const BackwardTensors& x, double scale, bool causal, const Tensor& first_key)
      : x_(x), scale_(static_cast<Acc>(scale)), shape_(x.q, x.k, causal, first_key) {}

  std::int64_t workspace() const { return Workspace(shape_, nullptr).used; }
  std::int64_t items() const { return shape_.batch * shape_.kv_heads; }

  int team(int most) const { return useful_team(shape_.flops(), std::min<std::int64_t>(most, items())); }

  void run(Range items, Acc* memory) const {
    const Workspace work(shape_, memory);
    for (std::int64_t item = items.begin; item < items.end; ++item) {
      kv_head(item / shape_.kv_heads, item % shape_.kv_heads, work);
    }
  }

 private:
  struct Workspace {
    // Of the kv head: sums [key panels][Dh, width].
    Acc *dk, *dv;
    // Of a query head: [query tiles][Dh, width] and panels of Dh over all queries; a number a query.
    Acc *query, *dout, *dq, *query_rows, *dout_rows, *delta, *lse;
    // Of a block of keys.
    Acc *keys, *values, *key_rows;
    // Of a tile of queries against a block of keys: [keys, queries]; and turned round: [key panels][queries, width].
    Acc *p, *ds, *p_turned, *ds_turned;
    std::int64_t used;

    Workspace(const AttentionShape& shape, Acc* memory) {
      Carver<Acc> carver(memory);
      const std::int64_t tiles = divide_up(shape.queries, width), tile = panel_size<Acc>(width, shape.width);
      for (Acc** sum : {&dk, &dv}) *sum = carver.take(shape.key_blocks() * key_panels * shape.width * width);
      for (Acc** columns : {&query, &dout, &dq}) *columns = carver.take(tiles * tile);
      for (Acc** rows : {&query_rows, &dout_rows})
        *rows = carver.take(WidthPanels<Acc>::size(shape.width, shape.queries));
      for (Acc** numbers : {&delta, &lse}) *numbers = carver.take(tiles * width);
      for (Acc** panels : {&keys, &values}) *panels = carver.take(KeyPanels<Acc>::size(shape.width));
      key_rows = carver.take(WidthPanels<Acc>::size(shape.width, key_block));
      for (Acc** scores : {&p, &ds}) *scores = carver.take(key_block * width);
      for (Acc** turned : {&p_turned, &ds_turned})
        *turned = carver.take(key_panels * panel_size<Acc>(width, query_block));
      used = carver.used();
    }
  };

  std::int64_t tile_size() const { return panel_size<Acc>(width, shape_.width); }
  Range keys_of(std::int64_t block) const {
    return {block * key_block, std::min((block + 1) * key_block, shape_.keys)};
  }

  void kv_head(std::int64_t batch, std::int64_t kv_head, const Workspace& work) const {
    const std::int64_t panels = shape_.key_blocks() * key_panels, panel = shape_.width * width;
    for (Acc* sum : {work.dk, work.dv}) std::fill_n(sum, panels * panel, Acc{0});
    for (std::int64_t head = kv_head * shape_.group(); head < (kv_head + 1) * shape_.group(); ++head) {
      pack_queries(batch, head, work);
      for (std::int64_t block = 0; block < shape_.key_blocks(); ++block) {
        pack_keys(batch, kv_head, keys_of(block), work);
        for (std::int64_t first = 0; first < shape_.queries; first += query_block)
          block_pair(batch, block, first, work);
      }
      for (std::int64_t first = 0, tile = 0; first < shape_.queries; first += width, ++tile) {
        write_columns(work.dq + tile * tile_size(), std::min<std::int64_t>(width, shape_.queries - first),
                      HeadRows<T>(x_.dq, batch, head), first);
      }
    }
    for (std::int64_t first = 0, i = 0; first < shape_.keys; first += width, ++i) {
      const std::int64_t count = std::min<std::int64_t>(width, shape_.keys - first);
      write_columns(work.dk + i * panel, count, HeadRows<T>(x_.dk, batch, kv_head), first);
      write_columns(work.dv + i * panel, count, HeadRows<T>(x_.dv, batch, kv_head), first);
    }
  }

  void pack_queries(std::int64_t batch, std::int64_t head, const Workspace& work) const {
    const HeadRows<const T> query(x_.q, batch, head), dout(x_.dout, batch, head), out(x_.out, batch, head);
    const std::int64_t tiles = divide_up(shape_.queries, width);
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t first = tile * width, count = std::min<std::int64_t>(width, shape_.queries - first);
      Acc* columns = work.query + tile * tile_size();
      pack_head_columns(query, first, count, columns);
      for (std::int64_t i = 0; i < shape_.width * width; ++i) columns[i] *= scale_;
      pack_head_columns(dout, first, count, work.dout + tile * tile_size());
      // delta, with out packed where dq will be summed.
      Acc* scratch = work.dq + tile * tile_size();
      pack_head_columns(out, first, count, scratch);
      Acc* delta = work.delta + first;
      std::fill_n(delta, width, Acc{0});
      for (std::int64_t d = 0; d < shape_.width; ++d) {
        const Acc *a = scratch + d * width, *b = work.dout + tile * tile_size() + d * width;
        for (int j = 0; j < width; ++j) delta[j] += a[j] * b[j];
      }
    }
    std::fill_n(work.dq, tiles * tile_size(), Acc{0});
    WidthPanels<Acc>::pack(query, {0, shape_.queries}, shape_.queries, work.query_rows);
    WidthPanels<Acc>::pack(dout, {0, shape_.queries}, shape_.queries, work.dout_rows);
    // A query that saw no key has lse = -infinity and only masked scores; 0 keeps exp(score - lse) at 0.
    const Acc* lse = x_.lse.template data<Acc>() + (batch * shape_.heads + head) * shape_.queries;
    std::fill_n(work.lse, tiles * width, Acc{0});
    for (std::int64_t i = 0; i < shape_.queries; ++i) {
      work.lse[i] = lse[i] == -std::numeric_limits<Acc>::infinity() ? Acc{0} : lse[i];
    }
  }

  void pack_keys(std::int64_t batch, std::int64_t kv_head, Range keys, const Workspace& work) const {
    const HeadRows<const T> k(x_.k, batch, kv_head), v(x_.v, batch, kv_head);
    KeyPanels<Acc>::pack(k, keys, work.keys);
    KeyPanels<Acc>::pack(v, keys, work.values);
    WidthPanels<Acc>::pack(k, keys, key_block, work.key_rows);
  }

  /// A block of keys against a block of queries: adds to dq of these queries, dk and dv of these keys.
  void block_pair(std::int64_t batch, std::int64_t block, std::int64_t first, const Workspace& work) const {
    const Range keys = keys_of(block);
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
      turn(visible, count, tile - first, work);
    }
    for (std::int64_t i = 0; i * width < widest; ++i) {
      const std::int64_t sum = (block * key_panels + i) * shape_.width * width;
      const std::int64_t turned = i * panel_size<Acc>(width, query_block) + (begin - first) * width;
      WidthPanels<Acc>::multiply_add(shape_.width, shape_.queries, begin, last - begin, work.dout_rows,
                                     work.p_turned + turned, work.dv + sum);
      WidthPanels<Acc>::multiply_add(shape_.width, shape_.queries, begin, last - begin, work.query_rows,
                                     work.ds_turned + turned, work.dk + sum);
    }
  }

  /// p and ds [keys, queries] of one tile of queries, and what they add to dq.
  void gradient_tile(std::int64_t batch, Range keys, std::int64_t visible, std::int64_t first,
                     const Workspace& work) const {
    const std::int64_t tile = first / width * tile_size();
    KeyPanels<Acc>::multiply(keys.size(), visible, shape_.width, work.keys, work.query + tile, work.p);
    mask_scores(shape_, batch, first, keys.begin, visible, work.p);
    KeyPanels<Acc>::multiply(keys.size(), visible, shape_.width, work.values, work.dout + tile, work.ds);
    const Acc *lse = work.lse + first, *delta = work.delta + first;
    for (std::int64_t i = 0; i < visible; ++i) {
      Acc *p = work.p + i * width, *ds = work.ds + i * width;
      for (int j = 0; j < width; ++j) p[j] = exp_approx(p[j] - lse[j]);
      for (int j = 0; j < width; ++j) ds[j] = scale_ * p[j] * (ds[j] - delta[j]);
    }
    WidthPanels<Acc>::multiply_add(shape_.width, key_block, 0, visible, work.key_rows, work.ds, work.dq + tile);
  }

  /// The tile turned round into rows [row, row + count) of the block's [queries, keys] panels, 0 for keys not visible.
  void turn(std::int64_t visible, std::int64_t count, std::int64_t row, const Workspace& work) const {
    for (std::int64_t i = 0; i < key_panels; ++i) {
      const std::int64_t keys = std::clamp<std::int64_t>(visible - i * width, 0, width);
      const std::int64_t from = i * width * width, to = i * panel_size<Acc>(width, query_block) + row * width;
      pack_columns(Strip<Acc>{work.p + from, keys, count, width, 1}, work.p_turned + to);
      pack_columns(Strip<Acc>{work.ds + from, keys, count, width, 1}, work.ds_turned + to);
    }
  }

  const BackwardTensors& x_;
  const Acc scale_;
  const AttentionShape shape_;
};

}  // namespace

void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
                        const Tensor& dout, double scale, bool causal, const Tensor& first_key, Tensor& dq, Tensor& dk,
                        Tensor& dv) {
  visit_floating(q.dtype(), "attention_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = accumulate_t<T>;
    const BackwardTensors tensors{q, k, v, out, lse, dout, dq, dk, dv};
    const Backward<T> backward(tensors, scale, causal, first_key);
    share_out<Acc>(backward);
  });
}

}  // namespace trireme::cpu
