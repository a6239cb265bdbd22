// Fill, copy and concat: what moves elements without arithmetic, between any dtypes and strides.
// Bytes: each element read once and written once; a dense copy is memcpy, or past the caches (streaming.h).
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/cpu/channel_kernels.h"
#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/streaming.h"
#include "core/cpu/strided.h"
#include "core/cpu/transpose.h"

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

// memcpy; for short rows a loop: up to 512 bytes the call takes as long as the copy, and from 1.5 KiB the library uses
// the processor's string instruction, which is slow to start (2 KiB on Zen 4: 2.5 times as long as the loop). A part of
// a large result is `streamed`.
void copy_bytes(const void* x, void* y, std::size_t count, bool streamed) {
  constexpr std::size_t line = 64, most = 2816, least_streamed = 128, least_fetched = 1024;
  if (streamed && count >= least_streamed) {
    const auto bytes = static_cast<std::int64_t>(count);
    return count >= least_fetched ? stream_from_memory(x, y, bytes) : stream(x, y, bytes);
  }
  if (count % line != 0 || count > most) {
    std::memcpy(y, x, count);
    return;
  }
  for (std::size_t i = 0; i < count; i += line)
    std::memcpy(static_cast<std::byte*>(y) + i, static_cast<const std::byte*>(x) + i, line);
}

/// Fetches the first 512 bytes of n elements at x, which need not exist. The processor itself fetches what follows.
template <class T>
void fetch_begin(const T* x, std::int64_t n) {
  constexpr std::int64_t most = 512;  // bytes
  fetch(x, std::min(n, most / static_cast<std::int64_t>(sizeof(T))));
}

template <class To, class From>
void copy_run(const From* x, std::int64_t x_stride, To* y, std::int64_t y_stride, std::int64_t n,
              bool streamed = false) {
  if (x_stride != 1 || y_stride != 1) {
    for (std::int64_t i = 0; i < n; ++i) y[i * y_stride] = convert<To>(x[i * x_stride]);
  } else if constexpr (std::same_as<From, To>) {
    copy_bytes(x, y, static_cast<std::size_t>(n) * sizeof(To), streamed);
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

// A square of elements of 16, 32 or 64 bits, transposed in registers: y[i][c] = x[c][i]. Vectors of float or double
// hold the bits; 16-bit elements are widened, so that a square has as many elements as a vector of float.
template <class Word>
using SquareLane = std::conditional_t<sizeof(Word) == 8, double, float>;
template <class Word>
inline constexpr std::int64_t square_side = lanes<SquareLane<Word>>;

template <class Word>
void copy_square(const Word* x, std::int64_t x_stride, Word* y, std::int64_t y_stride) {
  using Lane = SquareLane<Word>;
  constexpr int side = lanes<Lane>;
  Vector<Lane> rows[side];
  if constexpr (sizeof(Word) == 2) {
    for (int c = 0; c < side; ++c) rows[c] = reinterpret_cast<Vector<float>>(detail::load_words(x + c * x_stride));
  } else {
    for (int c = 0; c < side; ++c) std::memcpy(&rows[c], x + c * x_stride, sizeof rows[c]);
  }
  transpose_square<Lane>(rows);
  for (int i = 0; i < side; ++i) {
    if constexpr (sizeof(Word) == 2) {
      const auto half = __builtin_convertvector(reinterpret_cast<detail::Word>(rows[i]), detail::Half);
      std::memcpy(y + i * y_stride, &half, sizeof half);
    } else {
      std::memcpy(y + i * y_stride, &rows[i], sizeof rows[i]);
    }
  }
}

/// Elements whose types the loops know: words that are moved unchanged, and the usual conversions.
template <class To, class From>
struct Typed {
  const From* x;
  To* y;
  bool streamed = false;

  static constexpr std::int64_t tile = 64 / static_cast<std::int64_t>(std::clamp<std::size_t>(sizeof(To), 2, 4));

  void prefetch(std::int64_t x_at, std::int64_t n) const { fetch_begin(x + x_at, n); }
  void run(std::int64_t x_at, std::int64_t x_stride, std::int64_t y_at, std::int64_t y_stride, std::int64_t n) const {
    copy_run(x + x_at, x_stride, y + y_at, y_stride, n, streamed);
  }
  /// The tile [rows, width] at y_at, contiguous along its rows, of a matrix that is contiguous along columns at x_at.
  void transposed(std::int64_t x_at, std::int64_t x_stride, std::int64_t y_at, std::int64_t y_stride, std::int64_t rows,
                  std::int64_t width) const {
    if constexpr (std::same_as<To, From> && sizeof(To) > 1) {
      constexpr std::int64_t side = square_side<To>;
      if (rows == tile && width == tile && tile % side == 0) {
        for (std::int64_t i = 0; i < tile; i += side)
          for (std::int64_t j = 0; j < tile; j += side)
            copy_square(x + x_at + i + j * x_stride, x_stride, y + y_at + i * y_stride + j, y_stride);
        return;
      }
    }
    for (std::int64_t i = 0; i < rows; ++i) run(x_at + i, x_stride, y_at + i * y_stride, 1, width);
  }
};

template <class To, class From>
void convert_run(const std::byte* x, std::int64_t x_stride, std::byte* y, std::int64_t y_stride, std::int64_t n) {
  copy_run(reinterpret_cast<const From*>(x), x_stride, reinterpret_cast<To*>(y), y_stride, n);
}

/// Elements of one dtype that become another. The conversion of a run is called through a pointer: copies of all loops
/// for 42 pairs of dtypes would take a quarter of a minute to compile.
struct Converted {
  const std::byte* x;
  std::byte* y;
  std::int64_t x_size, y_size;  // bytes of an element
  void (*convert)(const std::byte* x, std::int64_t x_stride, std::byte* y, std::int64_t y_stride, std::int64_t n);

  static constexpr std::int64_t tile = 16;

  void prefetch(std::int64_t x_at, std::int64_t n) const { fetch_begin(x + x_at * x_size, n * x_size); }
  void run(std::int64_t x_at, std::int64_t x_stride, std::int64_t y_at, std::int64_t y_stride, std::int64_t n) const {
    convert(x + x_at * x_size, x_stride, y + y_at * y_size, y_stride, n);
  }
  void transposed(std::int64_t x_at, std::int64_t x_stride, std::int64_t y_at, std::int64_t y_stride, std::int64_t rows,
                  std::int64_t width) const {
    for (std::int64_t i = 0; i < rows; ++i) run(x_at + i, x_stride, y_at + i * y_stride, 1, width);
  }
};

// Rows [first, last) of a matrix y [rows, columns] whose rows are contiguous in y and whose columns are in x, in square
// tiles: the lines of x and y that a tile touches stay in L1 until all of their elements are used.
template <class Elements>
void copy_transposed(const Elements& elements, std::int64_t x_at, std::int64_t x_stride, std::int64_t y_at,
                     std::int64_t y_stride, std::int64_t first, std::int64_t last, std::int64_t columns) {
  constexpr std::int64_t tile = Elements::tile;
  for (std::int64_t r = first; r < last; r += tile) {
    for (std::int64_t c = 0; c < columns; c += tile)
      elements.transposed(x_at + r + c * x_stride, x_stride, y_at + r * y_stride + c, y_stride,
                          std::min(tile, last - r), std::min(tile, columns - c));
  }
}

template <class Elements>
void copy_elements(const Elements& elements, Layout<2> layout) {
  const auto inner = static_cast<std::size_t>(layout.dims - 1);
  const std::int64_t x_stride = layout.inner_stride(0), y_stride = layout.inner_stride(1);
  const int transposed = transposed_dim(layout);
  if (transposed < 0) {
    // The processor does not foresee short runs that are far apart in x.
    constexpr std::int64_t runs_ahead = 8;
    const std::int64_t ahead = layout.dims > 1 ? runs_ahead * layout.stride[0][inner - 1] : 0;
    parallel_elements(layout.count(), copy_grain, [&](std::int64_t begin, std::int64_t end) {
      for_runs(layout, begin, end, [&](const std::array<std::int64_t, 2>& at, std::int64_t n) {
        elements.prefetch(at[0] + ahead, n);
        elements.run(at[0], x_stride, at[1], y_stride, n);
      });
      end_of_stream();
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
      copy_transposed(elements, at[0], x_stride, at[1], row_stride, begin, end, columns);
    });
  });
}

template <class T>
inline constexpr bool is_narrow = std::same_as<T, bf16> || std::same_as<T, f16>;
/// The conversions that training in 16 bits makes.
template <class To, class From>
inline constexpr bool is_usual = (std::same_as<From, float> && is_narrow<To>) ||
                                 (std::same_as<To, float> && is_narrow<From>);

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
      copy_elements(Typed<Word, Word>{static_cast<const Word*>(x.raw()), static_cast<Word*>(y.raw()),
                                      copy_is_streamed(y.bytes())},
                    layout);
    });
    return;
  }
  Converted elements{static_cast<const std::byte*>(x.raw()), static_cast<std::byte*>(y.raw()),
                     static_cast<std::int64_t>(size_of(x.dtype())), static_cast<std::int64_t>(size_of(y.dtype())),
                     nullptr};
  visit_any(x.dtype(), [&](auto x_tag) {
    visit_any(y.dtype(), [&](auto y_tag) {
      using From = typename decltype(x_tag)::type;
      using To = typename decltype(y_tag)::type;
      if constexpr (is_usual<To, From>) {
        copy_elements(Typed<To, From>{x.data<From>(), y.data<To>()}, layout);
      } else if constexpr (!std::same_as<From, To>) {
        elements.convert = convert_run<To, From>;
        copy_elements(elements, layout);
      }
    });
  });
}

void concat_dense(const std::vector<Tensor>& parts, int dim, const Tensor& y) {
  if (y.count() == 0) return;
  struct Part {
    const std::byte* from;
    std::int64_t bytes;  // for each index of the dims before `dim`
  };
  std::int64_t rows = 1;
  for (int before = 0; before < dim; ++before) rows *= y.size(before);
  std::vector<Part> pieces;
  for (const Tensor& part : parts)
    pieces.push_back({static_cast<const std::byte*>(std::as_const(part).raw()), part.bytes() / rows});
  auto* const to = static_cast<std::byte*>(y.raw());
  const std::int64_t row_bytes = y.bytes() / rows;
  const bool streamed = copy_is_streamed(y.bytes());
  parallel_for(rows, row_grain(y.count() / rows, copy_grain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::byte* place = to + r * row_bytes;
      for (const Part& piece : pieces) {
        copy_bytes(piece.from + r * piece.bytes, place, static_cast<std::size_t>(piece.bytes), streamed);
        place += piece.bytes;
      }
    }
    end_of_stream();
  });
}

}  // namespace trireme::cpu
