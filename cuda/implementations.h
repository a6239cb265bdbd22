// The implementations that cuda/selection.h names, one table for each kind of call, the fastest first. To add a kernel
// or a library, add a row in cuda/implementations.cpp.
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
  int major;                            ///< compute capability it is made for: 8 and later, or only 9
  std::string (*problem)(const Call&);  ///< why it cannot take this call; empty: no problem
  void (*run)(const Call&, Stream);
  bool library = false;  ///< NVIDIA's, not one of the kernels here
};

template <class Call>
std::span<const Implementation<Call>> implementations();

/// True if the selected implementation has such kernels at all. cuBLASLt has no grouped products.
template <class Call>
bool selection_has();

/// The selected implementation, or null if it cannot take the call.
template <class Call>
const Implementation<Call>* implementation_taking(const Call& call);

/// The selected implementation. Throws ExitCode::usage with the constraint if it cannot take the call.
template <class Call>
const Implementation<Call>& implementation_for(const Call& call);

}  // namespace trireme::cuda
