// Tensors for tests: made of random numbers, which are the same in every run, and compared bit by bit.
// Read next: core/random.h, tests/support/errors.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/random.h"
#include "core/tensor.h"

namespace trireme::testing {

/// What random() draws: shift + scale * a number that is normal, or uniform in [0, 1).
struct Numbers {
  enum class Kind { normal, uniform } kind;
  double shift, scale;
};
constexpr Numbers normal(double spread = 1.0) { return {Numbers::Kind::normal, 0, spread}; }
constexpr Numbers uniform(double low, double high) { return {Numbers::Kind::uniform, low, high - low}; }

/// One of those numbers, a function of stream and position, with all bits of a double.
inline double random_number(std::uint64_t stream, std::uint64_t element, Numbers numbers) {
  constexpr std::uint64_t seed = 2024;
  if (numbers.kind == Numbers::Kind::normal)
    return numbers.shift + numbers.scale * random_normal(seed, stream, element);
  const std::uint64_t high = random_word(seed, stream, 2 * element), low = random_word(seed, stream, 2 * element + 1);
  return numbers.shift + numbers.scale * (static_cast<double>((high << 32U | low) >> 11U) * 0x1p-53);
}

/// A dense tensor on the host of random numbers, rounded to dtype, different for every `stream`.
inline Tensor random(const Shape& shape, std::uint64_t stream, DType dtype = DType::f64, Numbers numbers = normal()) {
  Tensor x = Tensor::empty(shape, DType::f64);
  std::uint64_t element = 0;
  for (double& value : x.span<double>()) value = random_number(stream, element++, numbers);
  return cast(x, dtype);
}

/// Whole numbers in [low, high), i32.
inline Tensor random_ids(const Shape& shape, std::uint64_t stream, std::int64_t low, std::int64_t high) {
  Tensor x = Tensor::empty(shape, DType::i32);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::uint32_t word = random_word(7, stream, static_cast<std::uint64_t>(i));
    x.data<std::int32_t>()[i] = static_cast<std::int32_t>(low + word % (high - low));
  }
  return x;
}

/// 0, 1, 2, ..., i32.
inline Tensor counting(const Shape& shape) {
  Tensor x = Tensor::empty(shape, DType::i32);
  for (std::int64_t i = 0; i < x.count(); ++i) x.data<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  return x;
}

/// Whether both have the same shape, dtype and elements, bit for bit, whatever their strides and devices.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor x = contiguous(a.to(Device::cpu)), y = contiguous(b.to(Device::cpu));
  return x.count() == 0 || std::memcmp(x.raw(), y.raw(), static_cast<std::size_t>(x.bytes())) == 0;
}

/// Whether both lists have the same length and the same tensors, bit for bit.
inline bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Tensor& x, const Tensor& y) { return same_bits(x, y); });
}

}  // namespace trireme::testing
