// Shared by the tests of the CUDA kernel table: inputs, both tables, and how far results may differ. Every adapter is
// called on the emulated GPU and compared with the CPU's kernel on the same inputs.
// Read next: tests/cuda/table_elementwise_test.cpp.
#pragma once

#include <doctest/doctest.h>

#include <cmath>

#include "core/kernels.h"
#include "cuda/runtime/emulated.h"
#include "cuda/selection.h"
#include "tests/cuda/support.h"
#include "tests/support/tensors.h"

namespace cuda_test {

using trireme::Device;
using trireme::DType;
using trireme::KernelTable;
using trireme::Shape;
using trireme::Tensor;
using trireme::testing::contains;
using trireme::testing::random;
using trireme::testing::random_ids;
using trireme::testing::uniform;

/// Largest |a - b| in units of one rounding of the dtype; `room` allows for f32 sums in another order.
inline double difference(const Tensor& on_cuda, const Tensor& on_cpu, double room = 1e-5) {
  REQUIRE(on_cuda.device() == Device::cuda);
  REQUIRE(on_cuda.dtype() == on_cpu.dtype());
  double unit = on_cpu.dtype() == DType::bf16 ? 1.0 / 128 : on_cpu.dtype() == DType::f16 ? 1.0 / 1024 : 4e-6;
  if (on_cpu.dtype() == DType::f64) unit = room = 1e-14;
  const Tensor got = trireme::cast(on_cuda.to(Device::cpu), DType::f64);
  const Tensor expected = trireme::contiguous(trireme::cast(on_cpu, DType::f64));
  REQUIRE(got.shape() == expected.shape());
  double worst = 0;
  for (std::int64_t i = 0; i < got.count(); ++i) {
    const double a = got.data<double>()[i], b = expected.data<double>()[i];
    if (a == b) continue;  // infinities
    keep_largest(worst, std::abs(a - b) / (unit * std::abs(b) + room));
  }
  return worst;
}

/// Whether a tensor on the GPU has the bits of one on the CPU.
inline bool same_bits_there(const Tensor& on_cuda, const Tensor& on_cpu) {
  REQUIRE(on_cuda.device() == Device::cuda);
  REQUIRE(on_cuda.dtype() == on_cpu.dtype());
  return trireme::testing::same_bits(on_cuda, on_cpu);
}

/// Selects implementations by name, and "auto" again at the end.
struct Selected {
  explicit Selected(std::string_view gemm, std::string_view attention = "auto") {
    trireme::cuda::select_gemm(gemm);
    trireme::cuda::select_attention(attention);
  }
  ~Selected() {
    trireme::cuda::select_gemm("auto");
    trireme::cuda::select_attention("auto");
  }
  Selected(const Selected&) = delete;
  Selected& operator=(const Selected&) = delete;
};

/// Checks that `body` throws a refusal that contains `part` and names --device cpu instead.
template <class Body>
void check_refused(Body&& body, const std::string& part) {
  const std::string error = error_of(body);
  CHECK_MESSAGE(contains(error, part), error);
  CHECK_MESSAGE(contains(error, "--device cpu"), error);
}

inline const KernelTable& host() { return trireme::kernels(Device::cpu); }
inline const KernelTable& gpu() { return trireme::kernels(Device::cuda); }
inline Tensor there(const Tensor& x) { return x.defined() ? x.to(Device::cuda) : Tensor(); }
inline Tensor like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), Device::cuda); }

struct DTypes {
  static constexpr DType training[] = {DType::f32, DType::bf16, DType::f16}, half[] = {DType::bf16, DType::f16};
};

}  // namespace cuda_test
