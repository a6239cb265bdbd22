# The sources of cuda/, relative to it: the one list of kernels. A new kernel joins here. Read by cuda/CMakeLists.txt for
# emulation, by cuda/runtime/CMakeLists.txt for nvcc, and by bench/cuda/CMakeLists.txt. Files named *_sm90.cu need sm_90a.
set(trireme_cuda_kernels
  kernels/attention_backward_sm80.cu kernels/attention_backward_sm90.cu kernels/attention_delta.cu
  kernels/attention_f32.cu kernels/attention_merge.cu kernels/attention_sm80.cu kernels/attention_sm90.cu
  kernels/copy.cu kernels/cross_entropy.cu kernels/dropout.cu kernels/elementwise.cu kernels/embedding.cu
  kernels/gemm_f32.cu kernels/gemm_grouped_sm80.cu kernels/gemm_grouped_sm90.cu kernels/gemm_sm80.cu
  kernels/gemm_sm90.cu kernels/norm.cu kernels/optimizer.cu kernels/rank_order.cu kernels/reduce.cu kernels/rope.cu
  kernels/sgd.cu kernels/softmax.cu kernels/top_k.cu)
set(trireme_cuda_emulator
  emu/async.cpp emu/block.cpp emu/fiber.cpp emu/launch.cpp emu/race.cpp emu/race_report.cpp emu/shadow.cpp
  emu/shared.cpp emu/tma.cpp emu/warp_matrix.cpp emu/wgmma.cpp)
# The kernel table of Device::cuda, which calls the kernels.
set(trireme_cuda_table
  choices.cpp implementations.cpp table.cpp table_attention.cpp table_cross_entropy.cpp table_elementwise.cpp
  table_grouped.cpp table_memory.cpp table_norm.cpp table_optimizer.cpp table_products.cpp table_reduce.cpp
  table_rows.cpp)
