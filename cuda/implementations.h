// The implementations that cuda/selection.h names, as one table for each kind of call, the fastest first. A kernel or a
// library joins by a row in cuda/implementations.cpp.
// Read next: cuda/table_products.cpp, cuda/table_grouped.cpp and cuda/table_attention.cpp, which call them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cuda/kernels/attention.h"
#include "cuda/kernels/gemm.h"

namespace trireme::cuda {

/// Call: Gemm<T, Out>, GroupedGemm<T, Out>, AttentionForward<T> or AttentionBackward<T>, T being bf16 or f16, and Out T
/// or float.
template <class Call>
struct Implementation {
  std::string_view name;
  int major;                            ///< the compute capability that it is made for: 8 and later, or 9 alone
  std::string (*problem)(const Call&);  ///< why it cannot take this call; empty: it can
  void (*run)(const Call&, Stream);
  bool library = false;  ///< NVIDIA's, not one of the kernels here
};

template <class Call>
std::span<const Implementation<Call>> implementations();

/// Whether what is selected has such kernels at all. cuBLASLt has no grouped products.
template <class Call>
bool selection_has();

/// The selected one, or null when that cannot take the call.
template <class Call>
const Implementation<Call>* implementation_taking(const Call& call);

/// The selected one. Throws ExitCode::usage with the constraint when that cannot take the call.
template <class Call>
const Implementation<Call>& implementation_for(const Call& call);

}  // namespace trireme::cuda
