// Softmax cross-entropy over a slice of the vocabulary: per-row statistics that slices can merge, and the gradient.
// Bytes: stats reads the logits once, backward reads and writes them once. FLOPs: one exp per logit each way.
// Read next: nn/cross_entropy.h, which merges slices.
#include "core/cpu/exponentials.h"
#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/vector_math.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t cross_entropy_grain = 4096;  // elements worth a thread

}  // namespace

void cross_entropy_stats(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, Tensor& maximum,
                         Tensor& sum_exp, Tensor& target_logit, Tensor& logit_sum) {
  const std::int64_t rows = targets.count(), columns = logits.size(-1), valid = slice.valid;
  const std::int32_t* target = targets.data<std::int32_t>();
  visit_floating(logits.dtype(), "cross_entropy_stats", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T* x = logits.data<T>();
    A *top = maximum.data<A>(), *exponentials = sum_exp.data<A>(), *at_target = target_logit.data<A>();
    A* total = logit_sum.data<A>();
    parallel_for(rows, row_grain(columns, cross_entropy_grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* row = x + r * columns;
        const std::int64_t local = target[r] - slice.first;
        const ExpStats<A> stats = exp_stats(row, valid);
        top[r] = stats.maximum;
        exponentials[r] = stats.sum_exp;
        total[r] = stats.sum;
        at_target[r] = target[r] >= 0 && local >= 0 && local < valid ? widen(row[local]) : A{0};
      }
    });
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
      const double mean_logit = wide(total[r]) / static_cast<double>(vocab);
      sum += lse - (1 - smoothing) * wide(at_target[r]) - smoothing * mean_logit;
    }
    *loss.data<A>() = static_cast<A>(static_cast<accumulate_t<A>>(scale * sum));
  });
}

void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, const Tensor& maximum,
                            const Tensor& sum_exp, double smoothing, double loss_scale, const Tensor& dloss,
                            Tensor& dlogits) {
  const std::int64_t rows = targets.count(), columns = logits.size(-1), valid = slice.valid;
  const std::int32_t* target = targets.data<std::int32_t>();
  visit_floating(logits.dtype(), "cross_entropy_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T* x = logits.data<T>();
    T* dx = dlogits.data<T>();
    const double scale = loss_scale * static_cast<double>(*dloss.data<A>());
    const A *tops = maximum.data<A>(), *sums = sum_exp.data<A>();
    const A spread = static_cast<A>(scale * smoothing / static_cast<double>(slice.global));
    const A onehot = static_cast<A>(scale * (1 - smoothing));
    parallel_for(rows, row_grain(columns, cross_entropy_grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* row = x + r * columns;
        T* gradient = dx + r * columns;
        if (target[r] < 0) {
          std::fill_n(gradient, columns, T{});
          continue;
        }
        const A top = tops[r], factor = static_cast<A>(scale) / sums[r];
        const auto spread_error = [=](A v) { return factor * exp_approx(v - top) - spread; };
        const std::int64_t local = target[r] - slice.first;
        const bool here = local >= 0 && local < valid;
        const A at_target = here ? widen(row[local]) : A{0};  // read before dlogits, which may be logits, is written
        map<A>(valid, spread_error, gradient, row);
        if (here) gradient[local] = static_cast<T>(spread_error(at_target) - onehot);
        std::fill_n(gradient + valid, columns - valid, T{});
      }
    });
  });
}

}  // namespace trireme::cpu
