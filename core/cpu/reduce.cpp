// Reductions over any dims of any view, and the sum of squares of a tensor.
// Bytes: x read once. A reduction with few outputs is cut into parts, by shape alone and never by the number of
// threads; the parts' results are merged in order.
#include <vector>

#include "core/cpu/kernels.h"
#include "core/cpu/lanes.h"
#include "core/cpu/strided.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t reduce_grain = 32768;   // elements worth a thread
constexpr std::int64_t part_elements = 16384;  // elements of x in a part, at least
constexpr std::int64_t most_parts = 16, most_outputs_in_parts = 8192;  // bounds the workspace of parts
constexpr std::int64_t squares_block = 65536;  // elements in a partial sum of squares

template <Reduction op, class A>
constexpr A neutral() {
  return op == Reduction::sum ? A{0} : -std::numeric_limits<A>::infinity();
}

template <Reduction op, class V>  // V: a scalar or Lanes
V merge(V a, V b) {
  if constexpr (op == Reduction::sum) return a + b;
  return larger(a, b);
}

// The dims of x split into those that stay and those that are reduced, each merged on its own.
struct Split {
  Layout<1> kept, reduced;
  std::int64_t outputs, depth, parts;  // depth: elements of x per output

  // Whether neighbouring outputs are neighbours in x: then a vector holds as many outputs.
  bool by_columns() const { return kept.inner_stride(0) == 1 && kept.inner() > 1; }
  std::int64_t part_begin(std::int64_t part) const { return depth * part / parts; }
};

Split split_dims(const Tensor& x, const Tensor& y) {
  Shape reduced = x.shape();
  for (int dim = 0; dim < x.dims(); ++dim) {
    if (y.size(dim) == x.size(dim)) reduced[dim] = 1;
  }
  Split split{merge_dims<1>(y.shape(), {x.strides()}), merge_dims<1>(reduced, {x.strides()}), y.count(), reduced.count(), 1};
  if (split.outputs <= most_outputs_in_parts) {
    const std::int64_t parts = split.outputs * split.depth / part_elements;
    split.parts = std::clamp<std::int64_t>(std::min(parts, split.depth), 1, most_parts);
  }
  return split;
}

// One output: x is its first element.
template <Reduction op, class T>
accumulate_t<T> reduce_one(const T* x, const Layout<1>& reduced, std::int64_t begin, std::int64_t end) {
  using A = accumulate_t<T>;
  const std::int64_t stride = reduced.inner_stride(0);
  A result = neutral<op, A>();
  for_runs(reduced, begin, end, [&](const std::array<std::int64_t, 1>& at, std::int64_t n) {
    const T* first = x + at[0];
    if (stride == 1) {
      result = merge<op>(result, op == Reduction::sum ? sum(first, n) : maximum(first, n));
    } else {
      for (std::int64_t i = 0; i < n; ++i) result = merge<op>(result, widen(first[i * stride]));
    }
  });
  return result;
}

// count * (lanes of A) neighbouring outputs at once.
template <Reduction op, std::int64_t count, class T>
void reduce_lanes(const T* x, const Layout<1>& reduced, std::int64_t begin, std::int64_t end, accumulate_t<T>* y) {
  using A = accumulate_t<T>;
  constexpr std::int64_t width = LanesOf<A>::count;
  const std::int64_t stride = reduced.inner_stride(0);
  Lanes<A> results[count];
  for (auto& result : results) result = Lanes<A>{} + neutral<op, A>();
  for_runs(reduced, begin, end, [&](const std::array<std::int64_t, 1>& at, std::int64_t n) {
    const T* row = x + at[0];
    for (std::int64_t i = 0; i < n; ++i, row += stride) {
      for (std::int64_t k = 0; k < count; ++k) results[k] = merge<op>(load_lanes<A>(row + k * width), results[k]);
    }
  });
  std::memcpy(y, results, sizeof results);
}

// Outputs [first, last) over elements [begin, end) of their depth.
template <Reduction op, class T>
void reduce_range(const T* x, const Split& split, std::int64_t first, std::int64_t last, std::int64_t begin,
                  std::int64_t end, accumulate_t<T>* y) {
  constexpr std::int64_t width = LanesOf<accumulate_t<T>>::count, unroll = 8;
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
    for (; i < n; ++i) y[i] = reduce_one<op>(from + i * stride, split.reduced, begin, end);
    y += n;
  });
}

template <Reduction op, class T>
void reduce_to(const T* x, const Split& split, T* y) {
  using A = accumulate_t<T>;
  std::vector<A> results(static_cast<std::size_t>(split.parts * split.outputs));  // [parts, outputs]
  if (split.parts == 1) {
    constexpr std::int64_t tile = 64;  // outputs: whole vectors, whatever the number of threads
    const std::int64_t tiles = (split.outputs + tile - 1) / tile;
    parallel_for(tiles, row_grain(tile * split.depth, reduce_grain), [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first = begin * tile, last = std::min(split.outputs, end * tile);
      reduce_range<op>(x, split, first, last, 0, split.depth, results.data() + first);
    });
  } else {
    parallel_for(split.parts, reduce_grain / part_elements, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part) {
        reduce_range<op>(x, split, 0, split.outputs, split.part_begin(part), split.part_begin(part + 1),
                         results.data() + part * split.outputs);
      }
    });
    for (std::int64_t part = 1; part < split.parts; ++part) {
      map<A>(split.outputs, [](A a, A b) { return merge<op>(a, b); }, results.data(), results.data(),
             results.data() + part * split.outputs);
    }
  }
  map<A>(split.outputs, [](A v) { return v; }, y, results.data());
}

}  // namespace

void reduce(Reduction op, const Tensor& x, Tensor& y) {
  if (y.count() == 0) return;
  const Split split = split_dims(x, y);
  visit_floating(x.dtype(), "reduce", [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (op == Reduction::sum) {
      reduce_to<Reduction::sum>(x.data<T>(), split, y.data<T>());
    } else {
      reduce_to<Reduction::max>(x.data<T>(), split, y.data<T>());
    }
  });
}

double sum_squares(const Tensor& x) {
  const std::int64_t count = x.count(), blocks = (count + squares_block - 1) / squares_block;
  std::vector<double> partial(static_cast<std::size_t>(blocks));
  visit_floating(x.dtype(), "sum_squares", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t first = block * squares_block, last = std::min(count, first + squares_block);
        partial[static_cast<std::size_t>(block)] = sum_of<double>(last - first, [](auto v) { return v * v; }, from + first);
      }
    });
  });
  double total = 0;
  for (const double part : partial) total += part;
  return total;
}

}  // namespace trireme::cpu
