// The CPU's kernel table. Read next: the kernels themselves, each family in a file of this folder.
#include "core/cpu/kernels.h"
#include "core/profiled_kernels.h"

namespace trireme {

const KernelTable& cpu::kernel_table() {
  static const KernelTable cpu_table = {
      .fill = cpu::fill,
      .copy = cpu::copy,
      .unary = cpu::unary,
      .unary_backward = cpu::unary_backward,
      .binary = cpu::binary,
      .axpby = cpu::axpby,
      .dropout = cpu::dropout,
      .reduce = cpu::reduce,
      .sum_squares = cpu::sum_squares,
      .gemm = cpu::gemm,
      .grouped_gemm = cpu::grouped_gemm,
      .grouped_gemm_tn = cpu::grouped_gemm_tn,
      .softmax = cpu::softmax,
      .softmax_backward = cpu::softmax_backward,
      .top_k = cpu::top_k,
      .layer_norm = cpu::layer_norm,
      .layer_norm_backward = cpu::layer_norm_backward,
      .rms_norm = cpu::rms_norm,
      .rms_norm_backward = cpu::rms_norm_backward,
      .embedding = cpu::embedding,
      .embedding_backward = cpu::embedding_backward,
      .attention = cpu::attention,
      .attention_backward = cpu::attention_backward,
      .attention_merge = cpu::attention_merge,
      .rope = cpu::rope,
      .swiglu = cpu::swiglu,
      .swiglu_backward = cpu::swiglu_backward,
      .cross_entropy_stats = cpu::cross_entropy_stats,
      .cross_entropy_loss = cpu::cross_entropy_loss,
      .cross_entropy_backward = cpu::cross_entropy_backward,
      .adamw = cpu::adamw,
      .sgd = cpu::sgd,
  };
  return cpu_table;
}

const KernelTable& kernels(Device device) {
  const KernelTable& table = device == Device::cpu ? cpu::kernel_table() : backend(device).kernels();
  return profiles_kernels() ? profiled(device, table) : table;
}

}  // namespace trireme
