// Element types, and the dispatch from a run-time DType to a C++ type.
// Read next: core/half.h, core/tensor.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/half.h"

namespace trireme {

/// f64 exists for references and gradient checks; training uses f32, bf16 and f16.
enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, u8 };

/// "f32", "bf16", ...
std::string_view name(DType dtype);
std::size_t size_of(DType dtype);  ///< bytes per element
bool is_floating(DType dtype);     ///< whether it is f64, f32, bf16 or f16
/// The dtype of sums over such elements: f64 for f64, f32 for the rest. accumulate_t is the same for C++ types.
constexpr DType accumulate_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// Only the element types have a DType: any other T does not compile.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

/// The type of sums over elements of T: double for double, float for the rest.
template <class T>
struct Accumulate {
  using type = float;  ///< of T
};
/// The same for double.
template <>
struct Accumulate<double> {
  using type = double;  ///< of double
};
template <class T>
using accumulate_t = typename Accumulate<T>::type;  ///< the type of sums over elements of T

/// A type as a value, for visit_floating() and the like.
template <class T>
struct TypeTag {
  using type = T;  ///< the type
};

/// Calls f(TypeTag<T>{}) with the C++ type of a floating dtype; `where` names the operation in the error otherwise.
template <class F>
decltype(auto) visit_floating(DType dtype, std::string_view where, F&& f) {
  switch (dtype) {
    case DType::f64:
      return std::forward<F>(f)(TypeTag<double>{});
    case DType::f32:
      return std::forward<F>(f)(TypeTag<float>{});
    case DType::bf16:
      return std::forward<F>(f)(TypeTag<bf16>{});
    case DType::f16:
      return std::forward<F>(f)(TypeTag<f16>{});
    default:
      fail(ExitCode::internal, where, "expected a floating-point tensor, got {}", name(dtype));
  }
}

/// As visit_floating, for every dtype.
template <class F>
decltype(auto) visit_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return std::forward<F>(f)(TypeTag<double>{});
    case DType::f32:
      return std::forward<F>(f)(TypeTag<float>{});
    case DType::bf16:
      return std::forward<F>(f)(TypeTag<bf16>{});
    case DType::f16:
      return std::forward<F>(f)(TypeTag<f16>{});
    case DType::i64:
      return std::forward<F>(f)(TypeTag<std::int64_t>{});
    case DType::i32:
      return std::forward<F>(f)(TypeTag<std::int32_t>{});
    case DType::u8:
      return std::forward<F>(f)(TypeTag<std::uint8_t>{});
  }
  fail(ExitCode::internal, "dtype", "unknown dtype value {}", static_cast<int>(dtype));
}

}  // namespace trireme
