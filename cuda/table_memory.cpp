// Fill and copy of the kernel table. Dense bytes use the device's own copies, which are the fastest; views and
// conversions use cuda/kernels/copy.cu.
#include <algorithm>
#include <array>
#include <cstring>

#include "cuda/kernels/copy.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {

void fill(Tensor& y, double value) {
  void* const to = address(__func__, y);
  if (y.count() == 0) return;
  if (y.contiguous()) {
    const Tensor one = Tensor::full({}, value, y.dtype());  // the host converts
    const auto width = static_cast<std::size_t>(one.bytes());
    std::array<unsigned char, 8> bytes{};
    std::memcpy(bytes.data(), one.raw(), width);
    if (std::all_of(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(width),
                    [&](unsigned char byte) { return byte == bytes[0]; }))
      return backend(Device::cuda).set(to, bytes[0], static_cast<std::size_t>(y.bytes()));
  }
  fill(to, y.dtype(), value, strided<1>(y.shape(), {y.strides()}), stream());
}

void copy(const Tensor& x, Tensor& y) {
  const void* const from = address(__func__, x);
  void* const to = address(__func__, y);
  if (y.count() == 0) return;
  if (x.dtype() == y.dtype() && x.contiguous() && y.contiguous())
    return backend(Device::cuda).copy_on_device(to, from, static_cast<std::size_t>(y.bytes()));
  copy(from, x.dtype(), to, y.dtype(), strided<2>(y.shape(), {x.strides(), y.strides()}), stream());
}

}  // namespace trireme::cuda
