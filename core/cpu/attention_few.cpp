// Attention of a few queries with many keys, forward: for generating text one token at a time, with a cache of the
// earlier keys and values (nn/kv_cache.h).
//
// The tiles of attention.cpp put queries side by side in vector lanes, where one query would fill one lane, and copy
// keys and values into panels first. Here a key's features lie in the lanes: a score is a dot product along memory.
// Bytes: every key and value once, 2 Tk Hkv Dh per sequence; the time should be that of reading them. Keys come in
// blocks, which stay in the first-level cache for all queries that read them: the few queries of each head, for all
// heads of a group. Between blocks, sums are rescaled to the new maximum as in attention.cpp. The unit of work is a kv
// head.
#include "core/cpu/attention_few.h"

#include <cmath>
#include <limits>

#include "core/cpu/attention_tiles.h"
#include "core/cpu/dots.h"
#include "core/cpu/vector_math.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t most_queries = 8;

template <class T>
class FewQueries {
  using Acc = accumulate_t<T>;
  static constexpr Acc lowest = -std::numeric_limits<Acc>::infinity();

 public:
  FewQueries(const Tensor& q, const Tensor& k, const Tensor& v, const ScoreRule& rule, bool causal,
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
  std::int64_t items() const { return shape_.batch * shape_.kv_heads; }
  int team(int most) const { return useful_team(shape_.flops(), std::min<std::int64_t>(most, items())); }

  void run(IndexRange items, Acc* memory) const {
    const Workspace work(shape_, memory);
    for (std::int64_t item = items.begin; item < items.end; ++item) {
      const std::int64_t batch = item / shape_.kv_heads, kv_head = item % shape_.kv_heads;
      start(batch, kv_head, work);
      const HeadRows<const T> keys(k_, batch, kv_head), values(v_, batch, kv_head);
      const std::int64_t seen = shape_.seen(shape_.queries - 1);
      for (std::int64_t key = shape_.first_seen(batch, 0, shape_.queries); key < seen; key += key_block) {
        const IndexRange block = {key, std::min(key + key_block, seen)};
        for (std::int64_t row = 0; row < rows(); ++row) add_block(keys, values, visible(batch, row, block), row, work);
      }
      finish(batch, kv_head, work);
    }
  }

 private:
  /// Rows are the queries that read one kv head: those of its first head, those of its second...
  struct Workspace {
    Acc *query, *sum, *top, *total, *scores;
    std::int64_t used;
    Workspace(const AttentionShape& shape, Acc* memory) {
      BumpAllocator<Acc> allocator(memory);
      const std::int64_t rows = shape.group() * shape.queries;
      query = allocator.take(rows * shape.width);  // [rows, Dh], scaled
      sum = allocator.take(rows * shape.width);    // [rows, Dh]
      top = allocator.take(rows);                  // largest score so far
      total = allocator.take(rows);                // sum of exp(score - top)
      scores = allocator.take(key_block);          // of one row with one block
      used = allocator.used();
    }
  };

  std::int64_t rows() const { return shape_.group() * shape_.queries; }
  std::int64_t head_of(std::int64_t kv_head, std::int64_t row) const {
    return kv_head * shape_.group() + row / shape_.queries;
  }

  void start(std::int64_t batch, std::int64_t kv_head, const Workspace& work) const {
    for (std::int64_t row = 0; row < rows(); ++row) {
      const T* query = HeadRows<const T>(q_, batch, head_of(kv_head, row)).row(row % shape_.queries);
      for (std::int64_t d = 0; d < shape_.width; ++d)
        work.query[row * shape_.width + d] = scale_ * static_cast<Acc>(query[d]);
      arrange_for_dots<T>(shape_.width, work.query + row * shape_.width);
    }
    std::fill_n(work.sum, rows() * shape_.width, Acc{0});
    std::fill_n(work.top, rows(), lowest);
    std::fill_n(work.total, rows(), Acc{0});
  }

  /// The keys of a block that a row sees; possibly none.
  IndexRange visible(std::int64_t batch, std::int64_t row, IndexRange block) const {
    const std::int64_t query = row % shape_.queries;
    const std::int64_t begin = std::max(block.begin, shape_.first_seen(batch, query, 1));
    return {begin, std::max(begin, std::min(block.end, shape_.seen(query)))};
  }

  /// Adds one block of keys to the running softmax of a row.
  void add_block(const HeadRows<const T>& keys, const HeadRows<const T>& values, IndexRange range, std::int64_t row,
                 const Workspace& work) const {
    if (range.size() == 0) return;
    const std::int64_t count = range.size(), width = shape_.width;
    const Acc* query = work.query + row * width;
    std::int64_t j = 0;
    for (; j + 4 <= count; j += 4) dots<1, 4>(width, query, keys.row(range.begin + j), keys.stride, work.scores + j, 4);
    for (; j < count; ++j) dots<1, 1>(width, query, keys.row(range.begin + j), keys.stride, work.scores + j, 1);

    cap_scores(softcap_, count, work.scores);
    Acc top = work.top[row];
    for (j = 0; j < count; ++j) top = work.scores[j] > top ? work.scores[j] : top;
    const Acc shift = top == lowest ? Acc{0} : top;
    const Acc factor = exp_approx(work.top[row] - shift);
    work.top[row] = top;
    for (j = 0; j < count; ++j) work.scores[j] = exp_approx(work.scores[j] - shift);
    Acc total = work.total[row] * factor;
    for (j = 0; j < count; ++j) total += work.scores[j];
    work.total[row] = total;

    Acc* sum = work.sum + row * width;
    std::int64_t d = 0;
    for (; d + 4 * lanes<Acc> <= width; d += 4 * lanes<Acc>) add_values<4>(values, range, d, factor, work.scores, sum);
    for (; d + lanes<Acc> <= width; d += lanes<Acc>) add_values<1>(values, range, d, factor, work.scores, sum);
    for (; d < width; ++d) {
      Acc each = sum[d] * factor;
      for (j = 0; j < count; ++j) each += work.scores[j] * static_cast<Acc>(values.row(range.begin + j)[d]);
      sum[d] = each;
    }
  }

  /// sum = factor sum + p v for features [d, d + parts vectors).
  template <int parts>
  static void add_values(const HeadRows<const T>& values, IndexRange range, std::int64_t d, Acc factor, const Acc* p,
                         Acc* sum) {
    Vector<Acc> part[parts];
#pragma GCC unroll 4
    for (int i = 0; i < parts; ++i) part[i] = load(sum + d + i * lanes<Acc>) * factor;
    for (std::int64_t j = 0; j < range.size(); ++j) {
      const T* value = values.row(range.begin + j) + d;
#pragma GCC unroll 4
      for (int i = 0; i < parts; ++i) part[i] += load(value + i * lanes<Acc>) * p[j];
    }
#pragma GCC unroll 4
    for (int i = 0; i < parts; ++i) store(sum + d + i * lanes<Acc>, part[i]);
  }

  void finish(std::int64_t batch, std::int64_t kv_head, const Workspace& work) const {
    Acc* lse = lse_.data<Acc>();
    for (std::int64_t row = 0; row < rows(); ++row) {
      const std::int64_t head = head_of(kv_head, row), query = row % shape_.queries;
      const Acc total = work.total[row], inverse = total == 0 ? Acc{0} : 1 / total;
      T* out = HeadRows<T>(out_, batch, head).row(query);
      for (std::int64_t d = 0; d < shape_.width; ++d)
        out[d] = static_cast<T>(inverse * work.sum[row * shape_.width + d]);
      lse[(batch * shape_.heads + head) * shape_.queries + query] = work.top[row] + std::log(total);
    }
  }

  const Tensor &q_, &k_, &v_, &out_, &lse_;
  const Acc scale_, softcap_;
  const AttentionShape shape_;
};

}  // namespace

bool suits_few_queries(const Tensor& q) { return q.size(1) <= most_queries; }

void attention_few(const Tensor& q, const Tensor& k, const Tensor& v, const ScoreRule& rule, bool causal,
                   const Tensor& first_key, const Tensor& out, const Tensor& lse) {
  visit_floating(q.dtype(), "attention", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = accumulate_t<T>;
    const FewQueries<T> few(q, k, v, rule, causal, first_key, out, lse);
    share_out<Acc>(few);
  });
}

}  // namespace trireme::cpu
