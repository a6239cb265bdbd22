// Attention as the graph of operations that cuDNN's engines recognise and fuse, as plain values. A test executes it
// with naive loops; cudnn_graph.cpp turns it into the library's descriptors.
//
//   forward    s = scale q k^T, masked;  lse = max + log sum exp(s - max);  out = softmax(s) v
//   backward   delta = rowsum(dout out);  p = exp(scale q k^T - lse), masked;  dv = p^T dout
//              ds = p (dout v^T - delta) scale;  dk = ds^T q;  dq = ds k
//
// (cuDNN documentation, "Fused flash attention"; Dao, FlashAttention-2, 2023, section 3.1.2.) The engines require
// this order and these types. Summing dq in f32 over blocks of keys would take atomics, whose order varies. With dq
// as one product, as here, the library chooses an engine with reproducible results. It keeps ds in memory: 2 B H Tq
// Tk bytes.
// Read next: cuda/libraries/sdpa_graph.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "cuda/libraries/sdpa_problem.h"

namespace trireme::cuda {

enum class SdpaElement : std::uint8_t { bf16, f16, f32, i32, boolean };

/// The ids of the tensors that have memory, in a graph and in a call.
enum class SdpaId : std::int64_t {
  none,  ///< exists only inside the fused kernel
  q,
  k,
  v,
  out,
  lse,
  dout,
  delta,
  dq,
  dk,
  dv,
  // Scalars, read from host memory when a graph is executed:
  scale,
  minus_infinity,
  queries,
  keys,
  one
};
inline bool is_scalar(SdpaId id) { return id >= SdpaId::scale; }

enum class SdpaOp : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  exponential,
  logarithm,
  greater_equal,
  select,      ///< the first operand where the third is true, elsewhere the second
  index,       ///< each element's place along `dim`
  matmul,      ///< of the last two dims; an operand with fewer heads serves groups of consecutive heads
  reduce_max,  ///< over the dims where the result has fewer: all of a row, or groups of consecutive heads
  reduce_sum,
  reshape  ///< the same memory with other dims and strides
};

struct SdpaNode {
  SdpaId id;
  SdpaElement type;
  SdpaTensor at;
};

struct SdpaOperation {
  SdpaOp op;
  std::vector<std::size_t> operands;  ///< indices of nodes
  std::size_t result;
  SdpaElement precision;  ///< of its arithmetic
  int dim = 0;            ///< of index
};

struct SdpaGraph {
  std::vector<SdpaNode> nodes;
  std::vector<SdpaOperation> operations;  ///< in topological order
};

SdpaGraph sdpa_graph(const SdpaProblem& problem);

}  // namespace trireme::cuda
