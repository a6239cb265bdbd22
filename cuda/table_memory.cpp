// Fill and copy of dense tensors, by the device's own copies: no kernel. Bytes: each element written once, and in copy
// read once; fill with a value other than zero reads what it has written, doubling it.
#include <algorithm>
#include <array>
#include <cstring>

#include "cuda/table_arguments.h"

namespace trireme::cuda {

void fill(Tensor& y, double value) {
  require(y.device() == Device::cuda, "fill", "the tensor {} is on {}; expected cuda", y.shape(), name(y.device()));
  if (y.count() == 0) return;
  if (!y.contiguous()) no_kernel("fill", "a view {} with strides {}", y.shape(), y.strides());
  DeviceBackend& device = backend(Device::cuda);
  const Tensor one = Tensor::full({}, value, y.dtype());  // the host converts
  const auto width = static_cast<std::size_t>(one.bytes()), bytes = static_cast<std::size_t>(y.bytes());
  std::array<unsigned char, 8> pattern{};
  std::memcpy(pattern.data(), one.raw(), width);
  auto* const first = static_cast<std::byte*>(y.device_address());
  if (std::all_of(pattern.begin() + 1, pattern.begin() + static_cast<std::ptrdiff_t>(width),
                  [&](unsigned char byte) { return byte == pattern[0]; }))
    return device.set(first, pattern[0], bytes);
  device.upload(first, pattern.data(), width);
  for (std::size_t filled = width; filled < bytes; filled *= 2)
    device.move(first + filled, first, std::min(filled, bytes - filled));
}

void copy(const Tensor& x, Tensor& y) {
  require_one_device("copy", {&y, &x});
  if (y.count() == 0) return;
  if (x.dtype() != y.dtype()) no_kernel("copy", "{} to {}", name(x.dtype()), name(y.dtype()));
  if (!x.contiguous() || !y.contiguous())
    no_kernel("copy", "views: {} with strides {} to strides {}", x.shape(), x.strides(), y.strides());
  backend(Device::cuda).move(y.device_address(), x.device_address(), static_cast<std::size_t>(y.bytes()));
}

}  // namespace trireme::cuda
