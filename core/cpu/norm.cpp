// Layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) over the last dim, forward and backward.
// Bytes: forward reads x and writes y; backward reads x and dy and writes dx; a row stays in L1 between its passes.
// The gradients of gamma and beta are summed per block of rows, then over blocks in order; the shape alone sets the
// blocks.
#include <cmath>

#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t norm_grain = 16384;     // elements worth a thread
constexpr std::int64_t parameter_blocks = 32;  // partial sums of dgamma and dbeta

struct RowBlocks {
  std::int64_t rows_each, count;
};

// At most parameter_blocks blocks of at least 8 rows.
RowBlocks row_blocks(std::int64_t rows) {
  const std::int64_t each = std::max<std::int64_t>(8, (rows + parameter_blocks - 1) / parameter_blocks);
  return {each, (rows + each - 1) / each};
}

// total[j] = sum over blocks, in order, of partial[block, j].
template <class A>
void sum_blocks(const A* partial, std::int64_t blocks, std::int64_t stride, std::int64_t columns, A* total) {
  std::fill_n(total, columns, A{0});
  for (std::int64_t block = 0; block < blocks; ++block) {
    map<A>(
        columns, [](A sum, A part) { return sum + part; }, total, total, partial + block * stride);
  }
}

template <class T>
void layer_norm_row(const T* x, const T* gamma, const T* beta, std::int64_t columns, double eps, T* y,
                    accumulate_t<T>& mean, accumulate_t<T>& rstd) {
  using A = accumulate_t<T>;
  const A count = static_cast<A>(columns), centre = sum(x, columns) / count;
  const A variance = sum_of<A>(
                         columns, [centre](auto v) { return (v - centre) * (v - centre); }, x) /
                     count;
  const A scale = A{1} / std::sqrt(variance + static_cast<A>(eps));
  mean = centre;
  rstd = scale;
  if (beta != nullptr) {
    map<A>(
        columns, [=](A v, A g, A b) { return (v - centre) * scale * g + b; }, y, x, gamma, beta);
  } else {
    map<A>(
        columns, [=](A v, A g) { return (v - centre) * scale * g; }, y, x, gamma);
  }
}

// With n = (x - mean) rstd and e = dy gamma: dx = rstd (e - mean(e) - n mean(e n)); dgamma += dy n; dbeta += dy.
// `added`: null, or added to dx.
template <class T, class A = accumulate_t<T>>
void layer_norm_backward_row(const T* x, const T* gamma, A mean, A rstd, const T* dy, const T* added,
                             std::int64_t columns, T* dx, A* dgamma, A* dbeta) {
  const A count = static_cast<A>(columns);
  const A mean_e = sum_of<A>(
                       columns, [](auto d, auto g) { return d * g; }, dy, gamma) /
                   count;
  const A mean_en = sum_of<A>(
                        columns, [=](auto d, auto g, auto v) { return d * g * ((v - mean) * rstd); }, dy, gamma, x) /
                    count;
#pragma GCC ivdep
  for (std::int64_t j = 0; j < columns; ++j) {
    const A d = widen(dy[j]), n = (widen(x[j]) - mean) * rstd;
    dgamma[j] += d * n;
    dbeta[j] += d;
    const A own = rstd * (d * widen(gamma[j]) - mean_e - n * mean_en);
    dx[j] = static_cast<T>(added == nullptr ? own : own + widen(added[j]));
  }
}

// With n = x rstd and e = dy gamma: dx = rstd (e - n mean(e n)); dgamma += dy n.
template <class T, class A = accumulate_t<T>>
void rms_norm_backward_row(const T* x, const T* gamma, A rstd, const T* dy, const T* added, std::int64_t columns, T* dx,
                           A* dgamma) {
  const A mean_en = sum_of<A>(
                        columns, [=](auto d, auto g, auto v) { return d * g * (v * rstd); }, dy, gamma, x) /
                    static_cast<A>(columns);
#pragma GCC ivdep
  for (std::int64_t j = 0; j < columns; ++j) {
    const A d = widen(dy[j]), n = widen(x[j]) * rstd;
    dgamma[j] += d * n;
    const A own = rstd * (d * widen(gamma[j]) - n * mean_en);
    dx[j] = static_cast<T>(added == nullptr ? own : own + widen(added[j]));
  }
}

}  // namespace

void layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, Tensor& y, Tensor& mean,
                Tensor& rstd) {
  if (x.count() == 0) return;
  const std::int64_t columns = x.size(-1), rows = x.count() / columns;
  visit_floating(x.dtype(), "layer_norm", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T *from = x.data<T>(), *scale = gamma.data<T>(), *shift = beta.defined() ? beta.data<T>() : nullptr;
    T* to = y.data<T>();
    A *means = mean.data<A>(), *rstds = rstd.data<A>();
    parallel_for(rows, row_grain(columns, norm_grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        layer_norm_row(from + r * columns, scale, shift, columns, eps, to + r * columns, means[r], rstds[r]);
      }
    });
  });
}

void layer_norm_backward(const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
                         const Tensor& added, Tensor& dx, Tensor& dgamma, Tensor& dbeta) {
  const std::int64_t columns = x.size(-1), rows = columns > 0 ? x.count() / columns : 0;
  const RowBlocks blocks = row_blocks(rows);
  visit_floating(x.dtype(), "layer_norm_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const Tensor partial = workspace({blocks.count, 2, columns}, dtype_of<A>);
    const T *input = x.data<T>(), *scale = gamma.data<T>(), *from = dy.data<T>(),
            *more = added.defined() ? added.data<T>() : nullptr;
    T* to = dx.data<T>();
    A* sums = partial.data<A>();
    std::fill_n(sums, partial.count(), A{0});
    const A *means = mean.data<A>(), *rstds = rstd.data<A>();
    const std::int64_t grain = row_grain(blocks.rows_each * columns, norm_grain);
    parallel_for(blocks.count, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin * blocks.rows_each; r < std::min(rows, end * blocks.rows_each); ++r) {
        A* part = sums + r / blocks.rows_each * 2 * columns;
        const std::int64_t at = r * columns;
        layer_norm_backward_row(input + at, scale, means[r], rstds[r], from + at, more == nullptr ? more : more + at,
                                columns, to + at, part, part + columns);
      }
    });
    sum_blocks(sums, blocks.count, 2 * columns, columns, dgamma.data<A>());
    if (dbeta.defined()) sum_blocks(sums + columns, blocks.count, 2 * columns, columns, dbeta.data<A>());
  });
}

void rms_norm(const Tensor& x, const Tensor& gamma, double eps, Tensor& y, Tensor& rstd) {
  if (x.count() == 0) return;
  const std::int64_t columns = x.size(-1), rows = x.count() / columns;
  visit_floating(x.dtype(), "rms_norm", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T *from = x.data<T>(), *scale = gamma.data<T>();
    T* to = y.data<T>();
    A* rstds = rstd.data<A>();
    parallel_for(rows, row_grain(columns, norm_grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* row = from + r * columns;
        const A mean_square = sum_of<A>(
                                  columns, [](auto v) { return v * v; }, row) /
                              static_cast<A>(columns);
        const A factor = A{1} / std::sqrt(mean_square + static_cast<A>(eps));
        rstds[r] = factor;
        map<A>(
            columns, [factor](A v, A g) { return v * factor * g; }, to + r * columns, row, scale);
      }
    });
  });
}

void rms_norm_backward(const Tensor& x, const Tensor& gamma, const Tensor& rstd, const Tensor& dy, const Tensor& added,
                       Tensor& dx, Tensor& dgamma) {
  const std::int64_t columns = x.size(-1), rows = columns > 0 ? x.count() / columns : 0;
  const RowBlocks blocks = row_blocks(rows);
  visit_floating(x.dtype(), "rms_norm_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const Tensor partial = workspace({blocks.count, columns}, dtype_of<A>);
    const T *input = x.data<T>(), *scale = gamma.data<T>(), *from = dy.data<T>(),
            *more = added.defined() ? added.data<T>() : nullptr;
    T* to = dx.data<T>();
    A* sums = partial.data<A>();
    std::fill_n(sums, partial.count(), A{0});
    const A* rstds = rstd.data<A>();
    const std::int64_t grain = row_grain(blocks.rows_each * columns, norm_grain);
    parallel_for(blocks.count, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin * blocks.rows_each; r < std::min(rows, end * blocks.rows_each); ++r) {
        const std::int64_t at = r * columns;
        rms_norm_backward_row(input + at, scale, rstds[r], from + at, more == nullptr ? more : more + at, columns,
                              to + at, sums + r / blocks.rows_each * columns);
      }
    });
    sum_blocks(sums, blocks.count, columns, columns, dgamma.data<A>());
  });
}

}  // namespace trireme::cpu
