// Softmax cross-entropy over a slice of the vocabulary: per-row statistics that slices can merge, and the gradient.
// Bytes: stats reads the logits once, backward reads and writes them once; in one pass, they are read and written once,
// as a row is still in the cache. FLOPs: one exp per logit each way.
// Read next: nn/cross_entropy.h, which merges slices.
#include <cmath>
#include <limits>

#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/vector_math.h"
#include "core/cpu/vector_rows.h"

namespace trireme::cpu {
namespace {

/// The maximum of a row and the sum of exp(x - maximum): what the cross-entropy normalises by.
template <class A>
struct ExpStats {
  A maximum = -std::numeric_limits<A>::infinity();
  A sum_exp = 0;  ///< 0 when there are no elements, or all are -infinity
  A sum = 0;      ///< of the elements themselves
};

constexpr std::int64_t exp_block = 1024;

/// In one pass over memory: online normalisation (Milakov and Gimelshein 2018), a block at a time. A block is still in
/// L1 when it is read again.
template <class T>
ExpStats<accumulate_t<T>> exp_stats(const T* x, std::int64_t n) {
  using A = accumulate_t<T>;
  ExpStats<A> stats;
  for (std::int64_t i = 0; i < n; i += exp_block) {
    const std::int64_t length = std::min(exp_block, n - i);
    const A top = larger(maximum(x + i, length), stats.maximum);
    stats.sum += sum(x + i, length);
    if (top == -std::numeric_limits<A>::infinity()) continue;
    if (top != stats.maximum) stats.sum_exp *= std::exp(stats.maximum - top);
    stats.maximum = top;
    stats.sum_exp += sum_of_exponentials<false>(length, x + i, top, static_cast<A*>(nullptr));
  }
  return stats;
}

constexpr std::int64_t cross_entropy_grain = 4096;  // elements worth a thread

/// Rows of logits, `columns` each, of which slice.valid are real, and their targets.
template <class T>
struct Rows {
  const T* logits;
  const std::int32_t* targets;
  const VocabSlice& slice;
  std::int64_t columns;

  Rows(const Tensor& x, const Tensor& target, const VocabSlice& of)
      : logits(x.data<T>()), targets(target.data<std::int32_t>()), slice(of), columns(x.size(-1)) {}
  const T* row(std::int64_t r) const { return logits + r * columns; }
  bool ignored(std::int64_t r) const { return targets[r] < 0; }
  /// The target's column; -1 if the row is ignored, or the target is in another slice.
  std::int64_t target_column(std::int64_t r) const {
    const std::int64_t local = targets[r] - slice.first;
    return !ignored(r) && local >= 0 && local < slice.valid ? local : -1;
  }
};

/// Their statistics.
template <class T>
struct Statistics {
  using A = accumulate_t<T>;
  Rows<T> rows;
  A *maximum, *sum_exp, *target_logit, *logit_sum;

  Statistics(const Rows<T>& of, Tensor& top, Tensor& exponentials, Tensor& at_target, Tensor& total)
      : rows(of),
        maximum(top.data<A>()),
        sum_exp(exponentials.data<A>()),
        target_logit(at_target.data<A>()),
        logit_sum(total.data<A>()) {}
  void make(std::int64_t r) const {
    const std::int64_t target = rows.target_column(r);
    const ExpStats<A> stats = exp_stats(rows.row(r), rows.slice.valid);
    maximum[r] = stats.maximum;
    sum_exp[r] = stats.sum_exp;
    logit_sum[r] = stats.sum;
    target_logit[r] = target >= 0 ? widen(rows.row(r)[target]) : A{0};
  }
};

/// Their gradients, from the statistics over all slices. They may overwrite the logits.
template <class T>
struct RowGradients {
  using A = accumulate_t<T>;
  Rows<T> rows;
  const A *maximum, *sum_exp;
  A scale, onehot, spread;
  T* gradients;

  RowGradients(const Rows<T>& of, const Tensor& top, const Tensor& exponentials, double smoothing, double factor,
               Tensor& dlogits)
      : rows(of),
        maximum(top.data<A>()),
        sum_exp(exponentials.data<A>()),
        scale(static_cast<A>(factor)),
        onehot(static_cast<A>(factor * (1 - smoothing))),
        spread(static_cast<A>(factor * smoothing / static_cast<double>(of.slice.global))),
        gradients(dlogits.data<T>()) {}
  void make(std::int64_t r) const {
    const std::int64_t columns = rows.columns, valid = rows.slice.valid, target = rows.target_column(r);
    const T* row = rows.row(r);
    T* gradient = gradients + r * columns;
    if (rows.ignored(r)) {
      std::fill_n(gradient, columns, T{});
      return;
    }
    const A top = maximum[r], factor = scale / sum_exp[r], even = spread;
    const auto spread_error = [=](A v) { return factor * exp_approx(v - top) - even; };
    const A at_target = target >= 0 ? widen(row[target]) : A{0};  // read before it is written, in place
    map<A>(valid, spread_error, gradient, row);
    if (target >= 0) gradient[target] = static_cast<T>(spread_error(at_target) - onehot);
    std::fill_n(gradient + valid, columns - valid, T{});
  }
};

/// f(row) for all rows, on all threads.
template <class F>
void for_rows(const Tensor& logits, const Tensor& targets, F&& f) {
  parallel_for(targets.count(), row_grain(logits.size(-1), cross_entropy_grain),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) f(r);
               });
}

}  // namespace

void cross_entropy_stats(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, Tensor& maximum,
                         Tensor& sum_exp, Tensor& target_logit, Tensor& logit_sum) {
  visit_floating(logits.dtype(), "cross_entropy_stats", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Statistics<T> stats({logits, targets, slice}, maximum, sum_exp, target_logit, logit_sum);
    for_rows(logits, targets, [&](std::int64_t r) { stats.make(r); });
  });
}

void cross_entropy_loss(const Tensor& targets, const Tensor& maximum, const Tensor& sum_exp, const Tensor& target_logit,
                        const Tensor& logit_sum, double smoothing, std::int64_t vocab, double scale, Tensor& loss) {
  const std::int32_t* target = targets.data<std::int32_t>();
  visit_floating(maximum.dtype(), "cross_entropy_loss", [&](auto tag) {
    using A = typename decltype(tag)::type;
    const auto wide = [](A value) { return static_cast<double>(widen(value)); };
    const A *top = maximum.data<A>(), *exponentials = sum_exp.data<A>(), *at_target = target_logit.data<A>();
    const A* total = logit_sum.data<A>();
    double sum = 0;
    for (std::int64_t r = 0; r < targets.count(); ++r) {
      if (target[r] < 0) continue;
      const double lse = std::log(wide(exponentials[r])) + wide(top[r]);
      double row = lse - (1 - smoothing) * wide(at_target[r]);
      // Only with smoothing: of a masked class, 0 * -infinity would be NaN.
      if (smoothing > 0) row -= smoothing * (wide(total[r]) / static_cast<double>(vocab));
      sum += row;
    }
    *loss.data<A>() = static_cast<A>(static_cast<accumulate_t<A>>(scale * sum));
  });
}

void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, const Tensor& maximum,
                            const Tensor& sum_exp, double smoothing, double loss_scale, const Tensor& dloss,
                            Tensor& dlogits) {
  visit_floating(logits.dtype(), "cross_entropy_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double scale = loss_scale * static_cast<double>(*dloss.data<accumulate_t<T>>());
    const RowGradients<T> gradients({logits, targets, slice}, maximum, sum_exp, smoothing, scale, dlogits);
    for_rows(logits, targets, [&](std::int64_t r) { gradients.make(r); });
  });
}

void cross_entropy_one_pass(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, double smoothing,
                            double scale, Tensor& maximum, Tensor& sum_exp, Tensor& target_logit, Tensor& logit_sum,
                            Tensor& dlogits) {
  visit_floating(logits.dtype(), "cross_entropy_one_pass", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Rows<T> rows(logits, targets, slice);
    const Statistics<T> stats(rows, maximum, sum_exp, target_logit, logit_sum);
    const RowGradients<T> gradients(rows, maximum, sum_exp, smoothing, scale, dlogits);
    for_rows(logits, targets, [&](std::int64_t r) {
      stats.make(r);
      gradients.make(r);
    });
  });
}

}  // namespace trireme::cpu
