# The levels of the ladders, relative to this folder: from naive kernels to those in use. A new level joins here. Read
# by CMakeLists.txt beside it for emulation, by bench/cuda/CMakeLists.txt, and by scripts/gpu_check for nvcc.
set(trireme_cuda_levels
  gemm/1_naive.cu gemm/2_coalesced.cu gemm/3_shared_tiles.cu gemm/4_register_tiles.cu gemm/5_pipelined.cu
  gemm/6_tensor_cores.cu gemm/7_shipped.cpp
  attention/1_materialised.cu attention/2_one_pass.cu attention/3_tiled.cu attention/4_shipped.cpp
  gradient_norm/1_one_thread.cu gradient_norm/2_interleaved.cu gradient_norm/3_sequential.cu
  gradient_norm/4_shuffles.cu gradient_norm/5_vectors.cu gradient_norm/6_shipped.cpp
  transpose/1_naive.cu transpose/2_tiles.cu transpose/3_shipped.cpp
  softmax/1_three_passes.cu softmax/2_read_once.cu softmax/3_warp_per_row.cu softmax/4_shipped.cpp
  adamw/1_unfused.cu adamw/2_vectors.cu adamw/3_fused.cu adamw/4_shipped.cpp
  embedding/1_atomics.cu embedding/2_block_per_row.cu embedding/3_sorted.cu embedding/4_shipped.cpp)
