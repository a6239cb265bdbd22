// check_any_order of suite.h.
#include <cmath>
#include <cstring>

#include "core/random.h"
#include "tests/comm/suite.h"

namespace trireme::testing {
namespace {

/// The term of a rank, rounded to T. A product of two random numbers, as one alone is a multiple of 2^-24: sums of few
/// would be exact in f32.
template <class T>
double term(int rank, std::int64_t i) {
  const auto stream = static_cast<std::uint64_t>(rank), element = static_cast<std::uint64_t>(i);
  const float value = (random_uniform(23, stream, element) - 0.5F) * random_uniform(24, stream, element);
  return static_cast<double>(static_cast<float>(T(std::is_integral_v<T> ? std::round(value * 60) : value)));
}

template <class T>
Tensor terms(int rank, const Shape& shape, Device device) {
  const Tensor x = Tensor::empty(shape, dtype_of<T>);
  std::int64_t i = 0;
  for (T& value : x.span<T>()) value = T(static_cast<float>(term<T>(rank, i++)));
  return x.to(device);
}

/// The largest relative error of one rounding; 0 for integers.
double roundoff(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    default:
      return 0;
  }
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

/// Each of the n - 1 additions rounds once, in any order: an error of at most (n - 1) u sum |x|, to first order (Higham
/// 2002, section 4.2).
template <class T>
void expect_sums(const char* what, const ProcessGroup& group, const Tensor& sums, std::int64_t first) {
  const int n = group.size();
  std::int64_t i = first;
  for (const T got : sums.span<T>()) {
    long double sum = 0;
    double magnitude = 0;
    for (int r = 0; r < n; ++r) {
      sum += term<T>(r, i);
      magnitude += std::abs(term<T>(r, i));
    }
    double value = 0;
    if constexpr (sizeof(T) == 2) {
      value = static_cast<float>(got);
    } else {
      value = static_cast<double>(got);
    }
    const auto error = static_cast<double>(std::abs(value - sum));
    const double most = 1.01 * (n - 1) * roundoff(sums.dtype()) * magnitude;
    verify(error <= most, "{} in any order of {}: element {} is {}, expected {} with an error of at most {}, got {}",
           what, name(sums.dtype()), i, value, static_cast<double>(sum), most, error);
    ++i;
  }
}

/// Returns the result on the host, after it was computed twice with the same bits.
Tensor twice(const char* what, const std::function<Tensor(Launch)>& run) {
  const Tensor first = run(Launch::lazy).to(Device::cpu), second = run(Launch::background).to(Device::cpu);
  verify(same_bits(first, second), "{} in any order of {} {}: other bits when it is repeated", what, first.count(),
         name(first.dtype()));
  return first;
}

template <class T>
void check_of(ProcessGroup& group, Device device, std::int64_t count) {
  const int n = group.size(), me = group.rank();
  const Tensor whole = twice("all_reduce", [&](Launch launch) {
    Tensor x = terms<T>(me, {count}, device);
    group.all_reduce(x, ReduceOp::sum, launch, SumOrder::any).wait();
    return x;
  });
  expect_sums<T>("all_reduce", group, whole, 0);
  Tensor all = Tensor::empty({n, count}, whole.dtype());
  group.all_gather(whole, all).wait();
  for (int r = 0; r < n; ++r)
    verify(same_bits(whole, view::select(all, 0, r)), "all_reduce in any order of {} {}: rank {} has other bits", count,
           name(whole.dtype()), r);
  const Tensor part = twice("reduce_scatter", [&](Launch launch) {
    Tensor y = Tensor::empty({count}, dtype_of<T>, device);
    group.reduce_scatter(terms<T>(me, {n, count}, device), y, launch, SumOrder::any).wait();
    return y;
  });
  expect_sums<T>("reduce_scatter", group, part, me * count);
}

}  // namespace

void check_any_order(ProcessGroup& group, Device device) {
  for (const std::int64_t count : {0, 1, 63, 9001, 70000}) {
    check_of<float>(group, device, count);
    check_of<double>(group, device, count);
    check_of<bf16>(group, device, count);
    check_of<f16>(group, device, count);
    check_of<std::int32_t>(group, device, count);
  }
}

bool sums_in_rank_order(ProcessGroup& group, SumOrder order, Device device) {
  const Tensor x = terms<float>(group.rank(), {9001}, device), y = clone(x);
  group.all_reduce(x).wait();
  group.all_reduce(y, ReduceOp::sum, Launch::lazy, order).wait();
  return same_bits(x.to(Device::cpu), y.to(Device::cpu));
}

}  // namespace trireme::testing
