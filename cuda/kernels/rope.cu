// Kernels of rotary positions; formulas and bytes: cuda/kernels/rope.h. The first makes the table of angles, with a
// thread per position and pair; the second rotates, with a thread per piece of both halves of a head, and the third
// pairs of neighbours.
#include "cuda/kernels/rope.h"

#include <cmath>

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    table_kernel(const std::int32_t* positions, std::int64_t tokens, std::int64_t half, double base,
                 const double* frequencies, bool inverse, float* table) {
  const MyPiece mine = my_piece<1>(tokens * half);
  if (mine.count == 0) return;
  const std::int64_t token = mine.first / half, i = mine.first % half;
  const double frequency =
      frequencies != nullptr ? frequencies[i] : pow(base, -static_cast<double>(i) / static_cast<double>(half));
  const double angle = static_cast<double>(positions[token]) * frequency;
  table[mine.first] = static_cast<float>(cos(angle));
  table[tokens * half + mine.first] = static_cast<float>(inverse ? -sin(angle) : sin(angle));
}

/// N values of the table, in loads of 16 bytes where they are aligned.
template <int N>
struct TableRun {
  Pack<float, 4> parts[N / 4];

  __device__ __forceinline__ TableRun(const float* from, int count) {
    TRIREME_UNROLL
    for (int k = 0; k < N / 4; ++k) parts[k] = load_piece<4>(from + 4 * k, count - 4 * k);
  }
  __device__ __forceinline__ float operator[](int i) const { return parts[i / 4].values[i % 4]; }
};

template <class T>
__global__ void __launch_bounds__(kThreads) rope_kernel(const __grid_constant__ Rope<T> p) {
  constexpr int kWidth = kPackSize<T>;
  const std::int64_t half = p.head_dim / 2, pieces = (half + kWidth - 1) / kWidth;
  const MyPiece mine = my_piece<1>(p.batch * p.tokens * p.heads * pieces);
  if (mine.count == 0) return;
  const std::int64_t head = mine.first / pieces, i = mine.first % pieces * kWidth,
                     token = head / p.heads % p.position_count;
  const int count = half - i < kWidth ? static_cast<int>(half - i) : kWidth;
  const std::int64_t low = head * p.head_dim + i, high = low + half;
  const TableRun<kWidth> cosines(p.table + token * half + i, count);
  const TableRun<kWidth> sines(p.table + (p.position_count + token) * half + i, count);
  auto a = load_piece<kWidth>(p.x + low, count), b = load_piece<kWidth>(p.x + high, count);
  TRIREME_UNROLL
  for (int j = 0; j < kWidth; ++j) {
    const float u = to_float(a.values[j]), v = to_float(b.values[j]);
    a.values[j] = from_float<T>(u * cosines[j] - v * sines[j]);
    b.values[j] = from_float<T>(v * cosines[j] + u * sines[j]);
  }
  store_piece(p.y + low, a, count);
  store_piece(p.y + high, b, count);
}

/// A thread per piece of a head, which holds both of each pair.
template <class T>
__global__ void __launch_bounds__(kThreads) neighbours_kernel(const __grid_constant__ Rope<T> p) {
  constexpr int kWidth = kPackSize<T>;
  const std::int64_t half = p.head_dim / 2, pieces = (p.head_dim + kWidth - 1) / kWidth;
  const MyPiece mine = my_piece<1>(p.batch * p.tokens * p.heads * pieces);
  if (mine.count == 0) return;
  const std::int64_t head = mine.first / pieces, i = mine.first % pieces * kWidth;
  const std::int64_t token = head / p.heads % p.position_count, at = head * p.head_dim + i;
  const int count = p.head_dim - i < kWidth ? static_cast<int>(p.head_dim - i) : kWidth;
  const float* const cosines = p.table + token * half + i / 2;
  const float* const sines = cosines + p.position_count * half;
  auto x = load_piece<kWidth>(p.x + at, count);
  TRIREME_UNROLL
  for (int j = 0; j < kWidth / 2; ++j) {
    if (2 * j >= count) break;
    const float u = to_float(x.values[2 * j]), v = to_float(x.values[2 * j + 1]);
    x.values[2 * j] = from_float<T>(u * cosines[j] - v * sines[j]);
    x.values[2 * j + 1] = from_float<T>(v * cosines[j] + u * sines[j]);
  }
  store_piece(p.y + at, x, count);
}

}  // namespace

template <class T>
void rope(const Rope<T>& problem, Stream stream) {
  constexpr int kWidth = kPackSize<T>;
  Rope<T> p = problem;
  if (p.position_count == 0) p.position_count = p.tokens;
  const std::int64_t half = p.head_dim / 2, rows = p.batch * p.tokens * p.heads;
  if (rows * half == 0) return;
  launch({"rope_table", grid_of_pieces(p.position_count * half, kThreads, 1), {kThreads, 1, 1}, 0, stream},
         table_kernel, p.positions, p.position_count, half, p.base, p.frequencies, p.inverse, p.table);
  if (p.interleaved) {
    const std::int64_t whole = (p.head_dim + kWidth - 1) / kWidth;
    launch({"rope_neighbours", grid_of_pieces(rows * whole, kThreads, 1), {kThreads, 1, 1}, 0, stream},
           neighbours_kernel<T>, p);
    return;
  }
  const std::int64_t pieces = (half + kWidth - 1) / kWidth;
  launch({"rope", grid_of_pieces(rows * pieces, kThreads, 1), {kThreads, 1, 1}, 0, stream}, rope_kernel<T>, p);
}

#define INSTANTIATE(T) template void rope(const Rope<T>&, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

}  // namespace trireme::cuda
