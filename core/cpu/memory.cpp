// Fill and copy: what moves elements without arithmetic, between any dtypes and strides.
// Bytes: each element read once and written once; a dense copy is memcpy.
#include <cstring>

#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/strided.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t copy_grain = 32768;  // elements: moving fewer takes less time than waking a second thread

// The 16-bit formats convert through float; everything else converts as C++ does.
template <class To, class From>
To convert(From x) {
  return static_cast<To>(widen(x));
}
template <class To, std::integral From>
To convert(From x) {
  if constexpr (std::integral<To> || std::floating_point<To>) {
    return static_cast<To>(x);
  } else {
    return static_cast<To>(static_cast<float>(x));
  }
}
template <class To>
requires(std::same_as<To, bf16> || std::same_as<To, f16>) To convert(double x) {
  return static_cast<To>(static_cast<float>(x));
}

template <class To, class From>
void copy_run(const From* x, std::int64_t x_stride, To* y, std::int64_t y_stride, std::int64_t n) {
  if (x_stride != 1 || y_stride != 1) {
    for (std::int64_t i = 0; i < n; ++i) y[i * y_stride] = convert<To>(x[i * x_stride]);
  } else if constexpr (std::same_as<From, To>) {
    std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(To));
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
  }
}

// For a transposed copy, in which y is contiguous along its last dim and x along another, that dim of x; else -1.
int transposed_dim(const Layout<2>& layout) {
  if (layout.inner_stride(1) != 1 || layout.inner_stride(0) == 1) return -1;
  for (int dim = 0; dim + 1 < layout.dims; ++dim) {
    if (layout.stride[0][static_cast<std::size_t>(dim)] == 1) return dim;
  }
  return -1;
}

// Rows [first, last) of a matrix y [rows, columns] whose rows are contiguous in y and whose columns are in x, in square
// tiles: the lines of x and y that a tile touches stay in L1 until all of their elements are used.
template <class To, class From>
void copy_transposed(const From* x, std::int64_t x_stride, To* y, std::int64_t y_stride, std::int64_t first,
                     std::int64_t last, std::int64_t columns) {
  constexpr std::int64_t tile = 16;
  for (std::int64_t r = first; r < last; r += tile) {
    const std::int64_t rows = std::min(tile, last - r);
    for (std::int64_t c = 0; c < columns; c += tile) {
      const std::int64_t width = std::min(tile, columns - c);
      for (std::int64_t i = r; i < r + rows; ++i)
        copy_run(x + i + c * x_stride, x_stride, y + i * y_stride + c, 1, width);
    }
  }
}

template <class To, class From>
void copy_elements(const From* x, To* y, Layout<2> layout) {
  const auto inner = static_cast<std::size_t>(layout.dims - 1);
  const std::int64_t x_stride = layout.inner_stride(0), y_stride = layout.inner_stride(1);
  const int transposed = transposed_dim(layout);
  if (transposed < 0) {
    parallel_elements(layout.count(), copy_grain, [&](std::int64_t begin, std::int64_t end) {
      for_runs(layout, begin, end, [&](const std::array<std::int64_t, 2>& at, std::int64_t n) {
        copy_run(x + at[0], x_stride, y + at[1], y_stride, n);
      });
    });
    return;
  }
  // The two dims of the matrix leave the layout; what remains is walked matrix by matrix.
  const auto row_dim = static_cast<std::size_t>(transposed);
  const std::int64_t rows = layout.extent[row_dim], columns = layout.extent[inner],
                     row_stride = layout.stride[1][row_dim];
  layout.extent[row_dim] = layout.extent[inner] = 1;
  for_runs(layout, 0, layout.count(), [&](const std::array<std::int64_t, 2>& at, std::int64_t) {
    parallel_for(rows, row_grain(columns, copy_grain), [&](std::int64_t begin, std::int64_t end) {
      copy_transposed(x + at[0], x_stride, y + at[1], row_stride, begin, end, columns);
    });
  });
}

// One type per element size is enough to move elements unchanged.
template <class F>
void visit_word(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f(TypeTag<std::uint8_t>{});
    case 2:
      return f(TypeTag<std::uint16_t>{});
    case 4:
      return f(TypeTag<std::uint32_t>{});
    default:
      return f(TypeTag<std::uint64_t>{});
  }
}

template <class Word>
void fill_words(Word* y, const Layout<1>& layout, Word value) {
  const std::int64_t stride = layout.inner_stride(0);
  parallel_elements(layout.count(), copy_grain, [&](std::int64_t begin, std::int64_t end) {
    for_runs(layout, begin, end, [&](const std::array<std::int64_t, 1>& at, std::int64_t n) {
      if (stride == 1) {
        std::fill_n(y + at[0], n, value);
      } else {
        for (std::int64_t i = 0; i < n; ++i) y[at[0] + i * stride] = value;
      }
    });
  });
}

}  // namespace

void fill(Tensor& y, double value) {
  std::uint64_t bits = 0;
  visit_any(y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T element = convert<T>(value);
    std::memcpy(&bits, &element, sizeof element);
  });
  visit_word(y.dtype(), [&](auto tag) {
    using Word = typename decltype(tag)::type;
    Word word;
    std::memcpy(&word, &bits, sizeof word);
    fill_words(static_cast<Word*>(y.raw()), merge_dims<1>(y.shape(), {y.strides()}), word);
  });
}

void copy(const Tensor& x, Tensor& y) {
  if (y.count() == 0) return;
  const auto layout = merge_dims<2>(y.shape(), {x.strides(), y.strides()});
  if (x.dtype() == y.dtype()) {
    visit_word(x.dtype(), [&](auto tag) {
      using Word = typename decltype(tag)::type;
      copy_elements(static_cast<const Word*>(x.raw()), static_cast<Word*>(y.raw()), layout);
    });
    return;
  }
  visit_any(x.dtype(), [&](auto x_tag) {
    visit_any(y.dtype(), [&](auto y_tag) {
      using From = typename decltype(x_tag)::type;
      using To = typename decltype(y_tag)::type;
      if constexpr (!std::same_as<From, To>) copy_elements(x.data<From>(), y.data<To>(), layout);
    });
  });
}

}  // namespace trireme::cpu
