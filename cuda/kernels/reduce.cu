// Kernels of reductions; bytes: cuda/kernels/reduce.h. A matrix that is reduced to its columns, such as the gradient of
// a bias, is read in pieces of 16 bytes, several rows at a time. Otherwise either a thread takes an output and loops
// over its elements, so that neighbours read neighbours (by columns); or a block takes an output, and its threads share
// the elements. If there are few outputs the elements are split into parts, so that all multiprocessors have work, and
// a second launch joins the parts: they are a matrix, too.
#include "cuda/kernels/reduce.h"

#include <algorithm>
#include <cmath>

#include "cuda/kernels/pieces.h"
#include "cuda/kernels/tensor_list.h"
#include "cuda/kernels/widened.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kPartElements = 256;  // of an output, at least, so that the workspace stays small
constexpr std::int64_t kMaxParts = 1024, kMaxThreads = 264 * 1024;  // more parts would not add parallelism
constexpr std::int64_t kPartRows = 64, kMatrixBlocks = 528;  // of a matrix: four blocks per multiprocessor of an H100

template <Reduction op, class A>
__device__ __forceinline__ A join(A a, A b) {
  if constexpr (op == Reduction::sum)
    return a + b;
  else
    return a > b || a != a ? a : b;  // NOLINT(misc-redundant-expression): a != a finds NaN
}
template <Reduction op, class A>
__device__ __forceinline__ A neutral() {
  return op == Reduction::sum ? A{0} : -static_cast<A>(INFINITY);
}

/// The reduction over a block of kThreads: halves are joined until one value is left. Thread 0 gets it.
template <Reduction op, class A>
__device__ __forceinline__ A join_block(A value, A* scratch) {
  const int thread = static_cast<int>(threadIdx.x);
  scratch[thread] = value;
  sync_threads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread < half) scratch[thread] = join<op>(scratch[thread], scratch[thread + half]);
    sync_threads();
  }
  return scratch[0];
}

struct Range {
  std::int64_t begin, end;
};
__device__ __forceinline__ Range part_of(std::int64_t depth, std::int64_t parts, std::int64_t part) {
  const std::int64_t each = (depth + parts - 1) / parts, begin = part * each;
  return {begin < depth ? begin : depth, begin + each < depth ? begin + each : depth};
}

constexpr int kLaneColumns = 8, kMatrixColumns = 32 * kLaneColumns;  // of a lane and of a block
constexpr int kWarps = kThreads / 32;
constexpr int kRowsTogether = 4;  // that a warp requests before it uses the first

/// x [rows, columns], reduced to its columns. Blocks [columns / kMatrixColumns, parts]; y [parts, columns]. Warps take
/// rows in turns, and then their results are joined in order.
template <Reduction op, class T, class Y>
__global__ void __launch_bounds__(kThreads)
    matrix_kernel(const T* x, Y* y, std::int64_t rows, std::int64_t columns, std::int64_t pitch, std::int64_t parts) {
  using A = accumulate_t<T>;
  constexpr int kWidth = kPackSize<T>, kPieces = kLaneColumns / kWidth;
  TRIREME_SHARED(A, scratch, kWarps * kMatrixColumns);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const std::int64_t column = std::int64_t{blockIdx.x} * kMatrixColumns + lane * kLaneColumns, rest = columns - column;
  const int left = rest < kLaneColumns ? static_cast<int>(rest) : kLaneColumns;
  const Range range = part_of(rows, parts, blockIdx.y);
  A result[kLaneColumns];
  for (A& value : result) value = neutral<op, A>();
  for (std::int64_t row = range.begin + warp; row < range.end; row += kWarps * kRowsTogether) {
    Pack<T, kWidth> pieces[kRowsTogether][kPieces];
    TRIREME_UNROLL
    for (int r = 0; r < kRowsTogether; ++r) {
      const std::int64_t at = row + r * kWarps;
      TRIREME_UNROLL
      for (int p = 0; p < kPieces; ++p)
        pieces[r][p] = load_piece<kWidth>(x + at * pitch + column + p * kWidth, at < range.end ? left - p * kWidth : 0);
    }
    TRIREME_UNROLL
    for (int r = 0; r < kRowsTogether; ++r) {
      if (row + r * kWarps >= range.end) break;
      TRIREME_UNROLL
      for (int i = 0; i < kLaneColumns; ++i)
        result[i] = join<op>(result[i], widened(pieces[r][i / kWidth].values[i % kWidth]));
    }
  }
  for (int i = 0; i < kLaneColumns; ++i) scratch[warp * kMatrixColumns + lane * kLaneColumns + i] = result[i];
  sync_threads();
  static_assert(kThreads == kMatrixColumns);  // each thread joins one column
  const std::int64_t mine = std::int64_t{blockIdx.x} * kMatrixColumns + thread;
  if (mine >= columns) return;
  A total = scratch[thread];
  for (int w = 1; w < kWarps; ++w) total = join<op>(total, scratch[w * kMatrixColumns + thread]);
  y[blockIdx.y * columns + mine] = narrowed<Y>(total);
}

/// Blocks [outputs / kThreads, parts]; y [parts, outputs].
template <Reduction op, class T, class Y>
__global__ void __launch_bounds__(kThreads) columns_kernel(const T* x, Y* y, const __grid_constant__ ReducePlan plan) {
  using A = accumulate_t<T>;
  const MyPiece mine = my_piece<1>(plan.kept.count);
  if (mine.count == 0) return;
  const T* const from = x + offsets(plan.kept, mine.first).of[0];
  const Range range = part_of(plan.reduced.count, plan.parts, blockIdx.y);
  A result = neutral<op, A>();
  for (std::int64_t i = range.begin; i < range.end; ++i)
    result = join<op>(result, widened(from[offsets(plan.reduced, i).of[0]]));
  y[blockIdx.y * plan.kept.count + mine.first] = narrowed<Y>(result);
}

/// Blocks [outputs, parts]; y [parts, outputs].
template <Reduction op, class T, class Y>
__global__ void __launch_bounds__(kThreads) rows_kernel(const T* x, Y* y, const __grid_constant__ ReducePlan plan) {
  using A = accumulate_t<T>;
  TRIREME_SHARED(A, scratch, kThreads);
  const T* const from = x + offsets(plan.kept, blockIdx.x).of[0];
  const Range range = part_of(plan.reduced.count, plan.parts, blockIdx.y);
  A result = neutral<op, A>();
  for (std::int64_t i = range.begin + static_cast<int>(threadIdx.x); i < range.end; i += kThreads)
    result = join<op>(result, widened(from[offsets(plan.reduced, i).of[0]]));
  result = join_block<op>(result, scratch);
  if (threadIdx.x == 0) y[blockIdx.y * plan.kept.count + blockIdx.x] = narrowed<Y>(result);
}

template <Reduction op, class T, class Y>
void launch_matrix(const T* x, Y* y, std::int64_t rows, std::int64_t columns, std::int64_t pitch, std::int64_t parts,
                   Stream stream) {
  const Dim3 grid = {grid_of_pieces(columns, kThreads, 1).x, static_cast<unsigned>(parts), 1};
  launch({"reduce", grid, {kThreads, 1, 1}, 0, stream}, matrix_kernel<op, T, Y>, x, y, rows, columns, pitch, parts);
}

template <Reduction op, class T, class Y>
void launch_parts(const T* x, Y* y, const ReducePlan& plan, Stream stream) {
  if (plan.by_matrix)
    return launch_matrix<op>(x, y, plan.reduced.count, plan.kept.count, plan.reduced.inner_stride(0), plan.parts,
                             stream);
  LaunchConfig c = {"reduce", {}, {kThreads, 1, 1}, 0, stream};
  c.grid.x = plan.by_columns ? grid_of_pieces(plan.kept.count, kThreads, 1).x : static_cast<unsigned>(plan.kept.count);
  c.grid.y = static_cast<unsigned>(plan.parts);
  launch(c, plan.by_columns ? columns_kernel<op, T, Y> : rows_kernel<op, T, Y>, x, y, plan);
}

template <Reduction op, class T, class Y>
void reduce_by(const T* x, Y* y, const ReducePlan& plan, accumulate_t<T>* partials, Stream stream) {
  if (plan.parts == 1) return launch_parts<op>(x, y, plan, stream);
  launch_parts<op>(x, partials, plan, stream);
  launch_matrix<op>(partials, y, plan.parts, plan.kept.count, plan.kept.count, 1, stream);
}

using SquaresList = TensorList<SquaresOf, kSquaresMostTensors, kSquaresTile>;

/// The calling thread's share of the sum over elements [begin, end).
template <class T>
__device__ __forceinline__ double squares_of(const void* data, std::int64_t begin, std::int64_t end) {
  constexpr int width = 4;
  const T* const x = static_cast<const T*>(data);
  double sum = 0;
  for (std::int64_t i = begin + width * static_cast<int>(threadIdx.x); i < end; i += width * kThreads) {
    const auto piece = load_piece<width>(x + i, end - i < width ? static_cast<int>(end - i) : width);
    TRIREME_UNROLL
    for (int j = 0; j < width; ++j) {
      const double value = widened(piece.values[j]);
      sum += value * value;
    }
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads, 8)
    squares_kernel(const __grid_constant__ SquaresList list, double* partials) {
  TRIREME_SHARED(double, scratch, kThreads);
  const auto place = list.my_place();
  const SquaresOf& x = list.items[place.item];
  double sum = 0;
  switch (x.dtype) {
    case DType::f64:
      sum = squares_of<double>(x.data, place.begin, place.end);
      break;
    case DType::f32:
      sum = squares_of<float>(x.data, place.begin, place.end);
      break;
    case DType::bf16:
      sum = squares_of<bf16>(x.data, place.begin, place.end);
      break;
    default:
      sum = squares_of<f16>(x.data, place.begin, place.end);
  }
  sum = join_block<Reduction::sum>(sum, scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    add_squares_kernel(const double* partials, std::int64_t count, double* result) {
  TRIREME_SHARED(double, scratch, kThreads);
  double sum = 0;
  for (std::int64_t i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += partials[i];
  sum = join_block<Reduction::sum>(sum, scratch);
  if (threadIdx.x == 0) *result = sum;
}

}  // namespace

ReducePlan reduce_plan(const Shape& x, const Shape& x_strides, const Shape& y) {
  Shape reduced = x;
  for (int dim = 0; dim < x.dims(); ++dim)
    if (y[dim] == x[dim]) reduced[dim] = 1;
  ReducePlan plan = {strided<1>(y, {x_strides}), strided<1>(reduced, {x_strides}), 1, false};
  plan.by_columns = plan.kept.inner_stride(0) == 1 && plan.kept.inner() > 1;
  plan.by_matrix =
      plan.by_columns && plan.kept.dims == 1 && plan.reduced.dims == 1 && plan.kept.count >= kMatrixColumns / 4;
  if (plan.by_matrix) {
    const std::int64_t wide = (plan.kept.count + kMatrixColumns - 1) / kMatrixColumns;
    plan.parts = std::clamp<std::int64_t>(std::min(plan.reduced.count / kPartRows, kMatrixBlocks / wide), 1, kMaxParts);
    return plan;
  }
  const std::int64_t threads = plan.by_columns ? plan.kept.count : plan.kept.count * kThreads;
  const std::int64_t smallest = plan.by_columns ? kPartElements : kPartElements * kThreads / 16;
  const std::int64_t wanted = plan.reduced.count / smallest, useful = threads > 0 ? kMaxThreads / threads : 0;
  plan.parts = wanted < useful ? wanted : useful;
  plan.parts = plan.parts < 1 ? 1 : plan.parts < kMaxParts ? plan.parts : kMaxParts;
  return plan;
}

template <class T, class Y>
void reduce(Reduction op, const T* x, Y* y, const ReducePlan& plan, accumulate_t<T>* partials, Stream stream) {
  if (plan.kept.count == 0) return;
  if (op == Reduction::sum)
    reduce_by<Reduction::sum>(x, y, plan, partials, stream);
  else
    reduce_by<Reduction::max>(x, y, plan, partials, stream);
}

std::int64_t squares_partials(std::span<const SquaresOf> xs) {
  std::int64_t tiles = 0;
  for (const SquaresOf& x : xs) tiles += tiles_of(x.count, kSquaresTile);
  return tiles;
}

void sum_squares(std::span<const SquaresOf> xs, double* partials, double* result, Stream stream) {
  const Dim3 threads = {kThreads, 1, 1};
  std::int64_t done = 0;
  for_each_list<SquaresOf, kSquaresMostTensors, kSquaresTile>(xs, [&](const SquaresList& list, unsigned tiles) {
    launch({"sum_squares", {tiles, 1, 1}, threads, 0, stream}, squares_kernel, list, partials + done);
    done += tiles;
  });
  launch({"sum_squares", {1, 1, 1}, threads, 0, stream}, add_squares_kernel, partials, done, result);
}

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type
#define INSTANTIATE(T, Y) template void reduce(Reduction, const T*, Y*, const ReducePlan&, accumulate_t<T>*, Stream);
INSTANTIATE(double, double)
INSTANTIATE(float, float)
INSTANTIATE(bf16, bf16)
INSTANTIATE(bf16, float)
INSTANTIATE(f16, f16)
INSTANTIATE(f16, float)
#undef INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace trireme::cuda
