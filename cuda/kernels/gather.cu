// The kernels of gather and scatter_add; bytes: cuda/kernels/gather.h.
#include "cuda/kernels/gather.h"

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 128;

/// The place that element i of the index names, or -1.
__device__ __forceinline__ std::int64_t place_of(const IndexedDim& dim, const std::int32_t* index, std::int64_t i) {
  const std::int32_t id = index[i];
  if (id < 0 || id >= dim.size) return -1;
  return offsets(dim.view, i).of[0] + id * dim.stride;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const T* x, const std::int32_t* index, T* y, const __grid_constant__ IndexedDim dim) {
  const MyPiece mine = my_piece<1>(dim.view.count);
  if (mine.count == 0) return;
  const std::int64_t place = place_of(dim, index, mine.first);
  y[mine.first] = place < 0 ? T{} : x[place];
}

__global__ void __launch_bounds__(kThreads)
    index_places_kernel(const std::int32_t* index, std::int32_t* places, const __grid_constant__ IndexedDim dim) {
  const MyPiece mine = my_piece<1>(dim.view.count);
  if (mine.count == 0) return;
  places[mine.first] = static_cast<std::int32_t>(place_of(dim, index, mine.first));
}

LaunchConfig config(const char* name, std::int64_t count, Stream stream) {
  return {name, grid_of_pieces(count, kThreads, 1), {kThreads, 1, 1}, 0, stream};
}

}  // namespace

template <class T>
void gather(const T* x, const std::int32_t* index, T* y, const IndexedDim& dim, Stream stream) {
  if (dim.view.count > 0) launch(config("gather", dim.view.count, stream), gather_kernel<T>, x, index, y, dim);
}

void index_places(const std::int32_t* index, std::int32_t* places, const IndexedDim& dim, Stream stream) {
  if (dim.view.count > 0)
    launch(config("index_places", dim.view.count, stream), index_places_kernel, index, places, dim);
}

// NOLINTNEXTLINE(bugprone-macro-parentheses): the argument is a type
#define INSTANTIATE(T) template void gather(const T*, const std::int32_t*, T*, const IndexedDim&, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

}  // namespace trireme::cuda
