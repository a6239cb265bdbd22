// Attention as the graph of operations that cuDNN's engines recognise and fuse, as plain values: a test carries it out
// by naive loops, and cudnn_graph.cpp makes the library's descriptors of it.
//
//   forward    s = scale q k^T, masked;  lse = max + log sum exp(s - max);  out = softmax(s) v
//   backward   delta = rowsum(dout out);  p = exp(scale q k^T - lse), masked;  dv = p^T dout
//              ds = p (dout v^T - delta) scale;  dk = ds^T q;  dq = ds k
//
// (cuDNN documentation, "Fused flash attention"; Dao, FlashAttention-2, 2023, section 3.1.2.) The order and the types
// are those that the engines know. Adding dq up in f32 over blocks of keys would take atomics, whose order varies;
// given in one product, as here, dq comes from an engine that repeats its results. It keeps ds in memory: 2 B H Tq Tk
// bytes.
// Read next: cuda/libraries/sdpa_graph.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "cuda/libraries/sdpa_problem.h"

namespace trireme::cuda {

enum class SdpaElement : std::uint8_t { bf16, f16, f32, i32, boolean };

/// The numbers by which a graph and a call name what has memory.
enum class SdpaId : std::int64_t {
  none,  ///< exists inside the fused kernel only
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
  // Scalars, read from host memory when a graph is carried out:
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
  select,      ///< the first operand where the third holds, elsewhere the second
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
  SdpaElement precision;  ///< in what it is done
  int dim = 0;            ///< of index
};

struct SdpaGraph {
  std::vector<SdpaNode> nodes;
  std::vector<SdpaOperation> operations;  ///< an operation comes after those whose results it takes
};

SdpaGraph sdpa_graph(const SdpaProblem& problem);

}  // namespace trireme::cuda
