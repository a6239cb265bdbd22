// Runs tests with every implementation of the matrix product: those in this program and installed libraries.
#pragma once

#include <string_view>

#include "core/kernels.h"

namespace trireme::testing {

/// Runs body() once with each implementation selected, then selects the first again.
template <class Body>
void for_each_product(Body&& body) {
  for (const std::string_view each : gemm_names()) {
    if (!gemm_installed(each)) continue;
    select_gemm(each);
    body();
  }
  select_gemm(gemm_names().front());
}

/// Whether the selected one computes in this dtype: oneDNN has no f64, and has bf16 only for some processors.
inline bool selected_computes(DType dtype) {
  if (selected_gemm() != "onednn") return true;
  const Tensor x = Tensor::zeros({1, 1}, dtype);
  Tensor y = Tensor::empty({1, 1}, dtype);
  try {
    kernels(Device::cpu).gemm(x, x, y, {});
    return true;
  } catch (const Error&) { return false; }
}

}  // namespace trireme::testing
