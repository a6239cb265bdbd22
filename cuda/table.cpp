// The CUDA kernel table. An adapter turns an entry's tensors into launches, or throws if no kernel takes them. Here are
// those of fill and copy: dense bytes use the device's own copies, which are the fastest; views and conversions use
// cuda/kernels/copy.cu.
// Read next: cuda/table_arguments.h, then the other adapters: table_elementwise.cpp, table_reduce.cpp,
// table_products.cpp, table_grouped.cpp, table_attention.cpp, table_norm.cpp, table_rows.cpp,
// table_cross_entropy.cpp, table_optimizer.cpp.
#include "cuda/table.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "cuda/kernels/copy.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {

const KernelTable& kernel_table() {
  static const KernelTable table = {TRIREME_EVERY_KERNEL(TRIREME_KERNEL_ENTRY)};
  return table;
}

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
