// Vectors of the machine's width, through the compiler's vector extensions: the same source on every processor.
//
// An operator on two Vectors works lane by lane; a Vector times a scalar repeats the scalar. Read next: tile_product.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace trireme::cpu {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
inline constexpr int vector_registers = 32;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32;
inline constexpr int vector_registers = 16;
#elif defined(__aarch64__)
inline constexpr int vector_bytes = 16;
inline constexpr int vector_registers = 32;
#else
inline constexpr int vector_bytes = 16;
inline constexpr int vector_registers = 16;
#endif

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(vector_bytes)));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(vector_bytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;  ///< T is float or double
template <class T>
inline constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));

/// Unaligned load and store.
template <class T>
inline Vector<T> load(const T* from) {
  Vector<T> x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}
template <class T>
inline void store(T* to, Vector<T> x) {
  std::memcpy(to, &x, sizeof(x));
}

namespace detail {
using Half = std::uint16_t __attribute__((vector_size(vector_bytes / 2)));  // as many lanes as Vector<float>
using Word = std::uint32_t __attribute__((vector_size(vector_bytes)));

inline Word load_words(const void* from) {
  Half half;
  std::memcpy(&half, from, sizeof(half));
#if defined(__clang__) || !defined(__AVX2__)
  return __builtin_convertvector(half, Word);
#else  // one instruction; GCC 12 makes several of the conversion above
  using Numbers = std::int16_t __attribute__((vector_size(vector_bytes / 2)));
#if defined(__AVX512F__)
  const Word zeros = {};
  using Wide = std::int32_t __attribute__((vector_size(vector_bytes)));
  return reinterpret_cast<Word>(
      __builtin_ia32_pmovzxwd512_mask(reinterpret_cast<Numbers>(half), reinterpret_cast<Wide>(zeros), 0xffff));
#else
  return reinterpret_cast<Word>(__builtin_ia32_pmovzxwd256(reinterpret_cast<Numbers>(half)));
#endif
#endif
}
}  // namespace detail

/// As many 16-bit values as a float vector has lanes, converted.
inline Vector<float> load(const bf16* from) { return reinterpret_cast<Vector<float>>(detail::load_words(from) << 16); }
inline Vector<float> load(const f16* from) {
  const detail::Word bits = detail::load_words(from);
  // Exponent and fraction moved to float's places, then 2^(127 - 15) for the difference of the exponent biases: exact,
  // for subnormals too. Infinity and NaN get float's top exponent by hand.
  const detail::Word magnitude = (bits & 0x7fffU) << 13;
  const Vector<float> value = reinterpret_cast<Vector<float>>(magnitude) * 0x1p112F;
  const detail::Word special = reinterpret_cast<detail::Word>((bits & 0x7c00U) == 0x7c00U);
  const detail::Word finite_bits = reinterpret_cast<detail::Word>(value);
  const detail::Word result = (special & (magnitude | 0x7f800000U)) | (~special & finite_bits);
  return reinterpret_cast<Vector<float>>(result | ((bits & 0x8000U) << 16));
}

}  // namespace trireme::cpu
