// Reductions over any dims of any view, and the sum of squares of many tensors.
// Bytes: x read once. A reduction with few outputs is cut into parts, by shape alone and never by the number of
// threads; the parts' results are merged in order.
#include <mutex>
#include <vector>

#include "core/cpu/arrays.h"
#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/partition.h"
#include "core/cpu/strided.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t reduce_grain = 32768;                           // elements worth a thread
constexpr std::int64_t part_elements = 16384;                          // elements of x in a part, at least
constexpr std::int64_t most_parts = 16, most_outputs_in_parts = 8192;  // bounds the workspace of parts
constexpr std::int64_t squares_block = 65536;                          // elements of rows that are added by one thread
constexpr std::int64_t cached_bytes = 1 << 20;                         // of a core's own caches

template <Reduction op, class A>
constexpr A neutral() {
  return op == Reduction::sum ? A{0} : -std::numeric_limits<A>::infinity();
}

template <Reduction op, class V>  // V: a scalar or a Vector
V merge(V a, V b) {
  if constexpr (op == Reduction::sum) return a + b;
  return larger(a, b);
}

// The dims of x in two groups, those that stay and those that are reduced; neighbouring dims are merged within each
// group.
struct Split {
  Layout<1> kept, reduced;
  std::int64_t outputs, depth, parts;  // depth: elements of x per output
  bool from_memory;                    // x is larger than the caches of a core

  // Whether neighbouring outputs are neighbours in x: then a vector computes one output in each lane.
  bool by_columns() const { return kept.inner_stride(0) == 1 && kept.inner() > 1; }
  std::int64_t part_begin(std::int64_t part) const { return depth * part / parts; }
};

Split split_dims(const Tensor& x, const Tensor& y) {
  Shape reduced = x.shape();
  for (int dim = 0; dim < x.dims(); ++dim) {
    if (y.size(dim) == x.size(dim)) reduced[dim] = 1;
  }
  Split split{.kept = merge_dims<1>(y.shape(), {x.strides()}),
              .reduced = merge_dims<1>(reduced, {x.strides()}),
              .outputs = y.count(),
              .depth = reduced.count(),
              .parts = 1,
              .from_memory = x.bytes() >= cached_bytes};
  if (split.outputs <= most_outputs_in_parts) {
    // By columns, a part holds some rows of all outputs; otherwise it holds some elements of one output.
    const std::int64_t parts = (split.by_columns() ? split.outputs : 1) * split.depth / part_elements;
    split.parts = std::clamp<std::int64_t>(std::min(parts, split.depth), 1, most_parts);
  }
  return split;
}

template <Reduction op, class T>
accumulate_t<T> reduce_run(const T* x, std::int64_t stride, std::int64_t n, bool from_memory) {
  using A = accumulate_t<T>;
  if (stride == 1 && op == Reduction::max) return maximum(x, n);
  if (stride == 1) return from_memory ? sum<true>(x, n) : sum(x, n);
  A result = neutral<op, A>();
  for (std::int64_t i = 0; i < n; ++i) result = merge<op>(result, widen(x[i * stride]));
  return result;
}

// One output from elements [begin, end) of its depth: x is its first element.
template <Reduction op, class T>
accumulate_t<T> reduce_one(const T* x, const Split& split, std::int64_t begin, std::int64_t end) {
  using A = accumulate_t<T>;
  const Layout<1>& reduced = split.reduced;
  const std::int64_t stride = reduced.inner_stride(0);
  if (reduced.dims == 1) return reduce_run<op>(x + begin * stride, stride, end - begin, split.from_memory);
  A result = neutral<op, A>();
  for_runs(reduced, begin, end, [&](const std::array<std::int64_t, 1>& at, std::int64_t n) {
    result = merge<op>(result, reduce_run<op>(x + at[0], stride, n, split.from_memory));
  });
  return result;
}

// count vectors of neighbouring outputs at once.
template <Reduction op, std::int64_t count, class T>
void reduce_lanes(const T* x, const Layout<1>& reduced, std::int64_t begin, std::int64_t end, accumulate_t<T>* y) {
  using A = accumulate_t<T>;
  constexpr std::int64_t width = lanes<A>;
  const std::int64_t stride = reduced.inner_stride(0);
  constexpr std::int64_t block = 1024;  // rows of a partial sum: errors grow with the length of a chain of additions
  Vector<A> results[count], totals[count];
  for (auto& result : results) result = Vector<A>{} + neutral<op, A>();
  for (auto& total : totals) total = Vector<A>{} + neutral<op, A>();
  std::int64_t left = block;
  for_runs(reduced, begin, end, [&](const std::array<std::int64_t, 1>& at, std::int64_t n) {
    const T* row = x + at[0];
    for (std::int64_t i = 0; i < n;) {
      const std::int64_t stop = std::min(n, i + left);
      left -= stop - i;
      for (; i < stop; ++i, row += stride) {
        for (std::int64_t k = 0; k < count; ++k) results[k] = merge<op>(load_as<A>(row + k * width), results[k]);
      }
      if (left > 0) break;
      left = block;
      for (std::int64_t k = 0; k < count; ++k) {
        totals[k] = merge<op>(results[k], totals[k]);
        results[k] = Vector<A>{} + neutral<op, A>();
      }
    }
  });
  for (std::int64_t k = 0; k < count; ++k) results[k] = merge<op>(results[k], totals[k]);
  std::memcpy(y, results, sizeof results);
}

// Outputs [first, last) over elements [begin, end) of their depth.
template <Reduction op, class T>
void reduce_range(const T* x, const Split& split, std::int64_t first, std::int64_t last, std::int64_t begin,
                  std::int64_t end, accumulate_t<T>* y) {
  constexpr std::int64_t width = lanes<accumulate_t<T>>, unroll = 8;
  const std::int64_t stride = split.kept.inner_stride(0);
  for_runs(split.kept, first, last, [&](const std::array<std::int64_t, 1>& at, std::int64_t n) {
    const T* from = x + at[0];
    std::int64_t i = 0;
    if (split.by_columns()) {
      for (; i + unroll * width <= n; i += unroll * width) {
        reduce_lanes<op, unroll>(from + i, split.reduced, begin, end, y + i);
      }
      for (; i + width <= n; i += width) reduce_lanes<op, 1>(from + i, split.reduced, begin, end, y + i);
    }
    for (; i < n; ++i) y[i] = reduce_one<op>(from + i * stride, split, begin, end);
    y += n;
  });
}

// Every output over its whole depth; threads share the outputs.
template <Reduction op, class T>
void reduce_outputs(const T* x, const Split& split, accumulate_t<T>* y) {
  constexpr std::int64_t tile = 64;  // outputs: whole vectors, whatever the number of threads
  const std::int64_t tiles = (split.outputs + tile - 1) / tile;
  parallel_for(tiles, row_grain(tile * split.depth, reduce_grain), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * tile, last = std::min(split.outputs, end * tile);
    reduce_range<op>(x, split, first, last, 0, split.depth, y + first);
  });
}

// The same, part by part; threads share the parts. results [parts, outputs]; at the end the first row holds the
// result.
template <Reduction op, class T>
void reduce_parts(const T* x, const Split& split, accumulate_t<T>* results) {
  using A = accumulate_t<T>;
  parallel_for(split.parts, reduce_grain / part_elements, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      reduce_range<op>(x, split, 0, split.outputs, split.part_begin(part), split.part_begin(part + 1),
                       results + part * split.outputs);
    }
  });
  for (std::int64_t part = 1; part < split.parts; ++part) {
    map<A>(
        split.outputs, [](A a, A b) { return merge<op>(a, b); }, results, results, results + part * split.outputs);
  }
}

template <Reduction op, class T, class Y>
void reduce_to(const T* x, const Split& split, Y* y) {
  using A = accumulate_t<T>;
  if constexpr (std::same_as<Y, A>) {
    if (split.parts == 1) return reduce_outputs<op>(x, split, y);
  }
  const Tensor partial = workspace({split.parts, split.outputs}, dtype_of<A>);
  A* results = partial.data<A>();
  if (split.parts == 1) {
    reduce_outputs<op>(x, split, results);
  } else {
    reduce_parts<op>(x, split, results);
  }
  map<A>(
      split.outputs, [](A v) { return v; }, y, results);
}

/// Throws if add_rows() cannot take x: threads of the team must not throw.
void require_floating(const Tensor& x) {
  visit_floating(x.dtype(), "sum_squares", [&](auto tag) { (void)x.data<typename decltype(tag)::type>(); });
}

/// Adds the sums of squares of the rows of x that begin in elements [first, last).
void add_rows(const Tensor& x, std::int64_t width, std::int64_t first, std::int64_t last, ExactSum& sum) {
  visit_floating(x.dtype(), "sum_squares", [&](auto tag) {
    const auto* const data = x.data<typename decltype(tag)::type>();
    const auto square = [](auto v) { return v * v; };
    const bool from_memory = x.bytes() >= cached_bytes;
    for (std::int64_t i = divide_up(first, width) * width; i < last; i += width)
      sum.add(from_memory ? sum_of<double, true>(width, square, data + i) : sum_of<double>(width, square, data + i));
  });
}

}  // namespace

void reduce(Reduction op, const Tensor& x, Tensor& y) {
  if (y.count() == 0) return;
  const Split split = split_dims(x, y);
  visit_floating(x.dtype(), "reduce", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto reduce_into = [&](auto* to) {
      if (op == Reduction::sum) {
        reduce_to<Reduction::sum>(x.data<T>(), split, to);
      } else {
        reduce_to<Reduction::max>(x.data<T>(), split, to);
      }
    };
    if (y.dtype() == dtype_of<accumulate_t<T>>) return reduce_into(y.data<accumulate_t<T>>());
    reduce_into(y.data<T>());
  });
}

ExactSum sum_squares(std::span<const Tensor> xs) {
  std::vector<std::int64_t> counts, widths;
  for (const Tensor& x : xs) {
    require_floating(x);
    counts.push_back(x.count());
    widths.push_back(x.dims() < 2 ? 1 : x.size(-1));
  }
  ExactSum total;
  std::mutex mutex;
  parallel_arrays(counts, squares_block, reduce_grain, [&](std::size_t i, std::int64_t first, std::int64_t last) {
    ExactSum sum;
    add_rows(xs[i], widths[i], first, last, sum);
    const std::scoped_lock lock(mutex);
    total.add(sum);  // exact, so the order does not matter
  });
  return total;
}

void squares_to(std::span<const Tensor> xs, Tensor& sum) { *sum.data<double>() = sum_squares(xs).value(); }

}  // namespace trireme::cpu
