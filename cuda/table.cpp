// The CUDA kernel table. An adapter turns an entry's tensors into launches, or throws if no kernel takes them.
// Read next: cuda/table_arguments.h, then the adapters: table_memory.cpp, table_elementwise.cpp, table_reduce.cpp,
// table_products.cpp, table_grouped.cpp, table_attention.cpp, table_norm.cpp, table_rows.cpp,
// table_cross_entropy.cpp, table_optimizer.cpp.
#include "cuda/table.h"

#include "cuda/table_arguments.h"

namespace trireme::cuda {

const KernelTable& kernel_table() {
  static const KernelTable table = {
      .fill = fill,
      .copy = copy,
      .unary = unary,
      .unary_backward = unary_backward,
      .binary = binary,
      .axpby = axpby,
      .dropout = dropout,
      .reduce = reduce,
      .sum_squares = sum_squares,
      .gemm = gemm,
      .grouped_gemm = grouped_gemm,
      .grouped_gemm_tn = grouped_gemm_tn,
      .softmax = softmax,
      .softmax_backward = softmax_backward,
      .top_k = top_k,
      .layer_norm = layer_norm,
      .layer_norm_backward = layer_norm_backward,
      .rms_norm = rms_norm,
      .rms_norm_backward = rms_norm_backward,
      .embedding = embedding,
      .embedding_backward = embedding_backward,
      .attention = attention,
      .attention_backward = attention_backward,
      .attention_merge = attention_merge,
      .rope = rope,
      .swiglu = swiglu,
      .swiglu_backward = swiglu_backward,
      .cross_entropy_stats = cross_entropy_stats,
      .cross_entropy_loss = cross_entropy_loss,
      .cross_entropy_backward = cross_entropy_backward,
      .adamw = adamw,
      .sgd = sgd,
  };
  return table;
}

}  // namespace trireme::cuda
