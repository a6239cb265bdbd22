// Elements picked, or added to, by an index along one dim.
// Bytes: gather reads the index and one element of x for each, and writes y; scatter_add reads x and the index, and
// reads and writes one element of y for each. An index is looked up in one row of x or y at a time, if dim is the last:
// a row of a few thousand elements stays in L1.
#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/streaming.h"
#include "core/cpu/strided.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t gather_grain = 8192;  // elements worth a thread

/// The strides of the tensor that the index points into, as walked beside the index: it stays where it is along dim.
Shape strides_beside_index(const Tensor& x, int dim) { return x.strides().with(dim, 0); }

/// Whether 0 <= id < size. The compiler then expects a branch, which is never missed; vector code that loads elements
/// by their index is slower on many processors.
bool inside(std::int32_t id, std::int64_t size) {
  return __builtin_expect(static_cast<long>(static_cast<std::uint32_t>(id) < size), 1) != 0;
}

/// y[i] = x[i step + id[i] stride]. A function of its own, so that the numbers stay in registers.
template <class T>
void pick_run(std::int64_t n, const std::int32_t* id, const T* x, std::int64_t step, std::int64_t stride,
              std::int64_t size, T* y) {
  for (std::int64_t i = 0; i < n; ++i, x += step) {
    if (inside(id[i], size)) {
      y[i] = x[id[i] * stride];
    } else {
      y[i] = T{};
    }
  }
}

/// y = x picked by index.
template <class T>
void pick(const T* x, const Tensor& index, const Shape& x_strides, std::int64_t stride, std::int64_t size, Tensor& y) {
  const auto* ids = index.data<const std::int32_t>();
  const auto layout = merge_dims<2>(index.shape(), {index.strides(), x_strides});
  const std::int64_t step = layout.inner_stride(1), row = layout.inner();
  const bool within_rows = step == 0 && stride == 1 && row >= size / static_cast<std::int64_t>(64 / sizeof(T));
  write_elements(y, gather_grain, y.data<T>(), [&](std::int64_t begin, std::int64_t end, T* place) {
    for_runs(layout, begin, end, [&](const std::array<std::int64_t, 2>& at, std::int64_t n) {
      if (within_rows) {  // of the next row of x, the same part: the processor cannot foresee the order of its elements
        const std::int64_t first = at[0] % row * size / row, last = (at[0] % row + n) * size / row;
        fetch(x + at[1] + size + first, last - first);
      }
      // The index and y are dense, so they have equal offsets.
      pick_run(n, ids + at[0], x + at[1], step, stride, size, place + at[0] - begin);
    });
  });
}

/// Adds x to y in row-major order, on the calling thread.
template <class T>
void add_part(const Tensor& x, int dim, const Tensor& index, const Tensor& y) {
  using A = accumulate_t<T>;
  const auto* ids = index.data<const std::int32_t>();
  const T* from = x.data<const T>();
  A* const to = y.data<A>();
  const std::int64_t stride = y.strides()[dim], size = y.size(dim);
  const auto layout = merge_dims<3>(index.shape(), {index.strides(), x.strides(), strides_beside_index(y, dim)});
  const std::int64_t id_step = layout.inner_stride(0), x_step = layout.inner_stride(1), y_step = layout.inner_stride(2);
  for_runs(layout, 0, index.count(), [&](const std::array<std::int64_t, 3>& at, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int32_t id = ids[at[0] + i * id_step];
      if (inside(id, size)) to[at[2] + i * y_step + id * stride] += widen(from[at[1] + i * x_step]);
    }
  });
}

}  // namespace

void gather(const Tensor& x, int dim, const Tensor& index, Tensor& y) {
  if (y.count() == 0) return;
  const Shape beside = strides_beside_index(x, dim);
  const std::int64_t stride = x.strides()[dim], size = x.size(dim);
  visit_floating(x.dtype(), "gather", [&](auto tag) {
    using T = typename decltype(tag)::type;
    pick(x.data<const T>(), index, beside, stride, size, y);
  });
}

// Elements that are added to one place differ in dim only. So threads share the indices of another dim, the first that
// is large enough for them, or the largest.
void scatter_add(const Tensor& x, int dim, const Tensor& index, Tensor& y) {
  if (x.count() == 0) return;
  int cut = -1;
  for (int i = 0; i < x.dims(); ++i)
    if (i != dim && (cut < 0 || (x.size(cut) < 64 && x.size(i) > x.size(cut)))) cut = i;
  visit_floating(x.dtype(), "scatter_add", [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (cut < 0) return add_part<T>(x, dim, index, y);
    parallel_for(x.size(cut), row_grain(x.count() / x.size(cut), gather_grain),
                 [&](std::int64_t begin, std::int64_t end) {
                   const auto part = [&](const Tensor& of) { return view::slice(of, cut, begin, end - begin); };
                   add_part<T>(part(x), dim, part(index), part(y));
                 });
  });
}

}  // namespace trireme::cpu
