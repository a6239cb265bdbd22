#include "nn/init.h"

#include <algorithm>

#include "core/kernels.h"
#include "core/parallel_for.h"
#include "core/random.h"

namespace trireme::nn {
namespace {

/// Calls fill(row, global index of its first element) for every row (last dim) of the rectangle, in parallel.
template <class T, class FillRow>
void for_each_row(T* data, const Shape& local, const Rectangle& rectangle, FillRow fill) {
  const std::int64_t width = local.dims() ? local[-1] : 1, rows = local.count() / std::max<std::int64_t>(width, 1);
  const Shape strides = row_major_strides(rectangle.global);
  parallel_for(rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t index = local.dims() ? rectangle.start[-1] : 0, rest = row;
      for (int dim = local.dims() - 2; dim >= 0; --dim) {
        index += (rectangle.start[dim] + rest % local[dim]) * strides[dim];
        rest /= local[dim];
      }
      fill(data + row * width, width, index);
    }
  });
}

void fill_normal(Parameter& parameter, const Init& init, std::uint64_t seed) {
  const std::uint64_t stream = stream_of(parameter.name);
  Tensor& value = parameter.local;
  Tensor host = Tensor::empty(value.shape(), DType::f32);
  for_each_row(
      host.data<float>(), value.shape(), parameter.rectangle, [&](float* row, std::int64_t width, std::int64_t first) {
        for (std::int64_t i = 0; i < width; ++i) {
          row[i] = static_cast<float>(init.value * random_normal(seed, stream, static_cast<std::uint64_t>(first + i)));
        }
      });
  copy(host, value);
}

}  // namespace

void initialise(Parameter& parameter, const Init& init, std::uint64_t seed) {
  Tensor& value = parameter.local;
  if (init.kind == Init::Kind::constant) {
    kernels(value.device()).fill(value, init.value);
  } else {
    fill_normal(parameter, init, seed);
  }
  // Padded rows are 0 and stay 0, because they get no gradient. So a resumed run, which loads only real rows, has the
  // same bits.
  const std::int64_t rows = value.size(0);
  const std::int64_t real = std::clamp<std::int64_t>(parameter.logical_rows - parameter.rectangle.start[0], 0, rows);
  Tensor padding = view::slice(value, 0, real, rows - real);
  kernels(value.device()).fill(padding, 0);
}

}  // namespace trireme::nn
