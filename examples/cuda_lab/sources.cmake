# The levels of the ladders, relative to this folder: from naive kernels to those in use. A new level joins here. Read
# by CMakeLists.txt beside it for emulation, by bench/cuda/CMakeLists.txt, and by scripts/gpu_check for nvcc.
set(trireme_cuda_levels
  gemm/1_naive.cu gemm/2_coalesced.cu gemm/3_shared_tiles.cu gemm/4_register_tiles.cu gemm/5_pipelined.cu
  gemm/6_tensor_cores.cu gemm/7_shipped.cpp
  attention/1_materialised.cu attention/2_one_pass.cu attention/3_tiled.cu attention/4_shipped.cpp
  attention_backward/1_materialised.cu attention_backward/2_recomputed.cu attention_backward/3_tiled.cu
  attention_backward/4_shipped.cpp
  grouped/1_launch_an_expert.cpp grouped/2_padded.cu grouped/3_shipped.cpp
  memory.cpp
  gradient_norm/1_one_thread.cu gradient_norm/2_interleaved.cu gradient_norm/3_sequential.cu
  gradient_norm/4_shuffles.cu gradient_norm/5_vectors.cu gradient_norm/6_shipped.cpp
  norm_forward/1_thread_per_row.cu norm_forward/2_block_per_row.cu norm_forward/3_read_once.cu norm_forward/4_shipped.cpp
  norm_backward/1_block_per_column.cu norm_backward/2_thread_per_column.cu norm_backward/3_tiles.cu
  norm_backward/4_shipped.cpp
  cross_entropy/1_three_passes.cu cross_entropy/2_two_passes.cu cross_entropy/3_one_launch.cu
  cross_entropy/4_shipped.cpp
  adamw/1_unfused.cu adamw/2_vectors.cu adamw/3_fused.cu adamw/4_shipped.cpp
  embedding/1_atomics.cu embedding/2_block_per_row.cu embedding/3_sorted.cu embedding/4_shipped.cpp
  transpose/1_naive.cu transpose/2_tiles.cu transpose/3_shipped.cpp
  swiglu/1_unfused.cu swiglu/2_fused.cu swiglu/3_shipped.cpp
  dropout/1_stored_mask.cu dropout/2_recomputed.cu dropout/3_four_per_block.cu dropout/4_shipped.cpp
  rope/1_angles.cu rope/2_table.cu rope/3_pairs.cu rope/4_shipped.cpp
  sgd/1_unfused.cu sgd/2_fused.cu sgd/3_shipped.cpp
  softmax/1_three_passes.cu softmax/2_read_once.cu softmax/3_warp_per_row.cu softmax/4_shipped.cpp
  rank_order/1_rank_by_rank.cu rank_order/2_one_launch.cu rank_order/3_shipped.cpp
  gather/1_thread_per_row.cu gather/2_block_per_row.cu gather/3_shipped.cpp
  attention_merge/1_unfused.cu attention_merge/2_thread_per_row.cu attention_merge/3_warp_per_row.cu
  attention_merge/4_shipped.cpp
  top_k/1_thread_per_row.cu top_k/2_warp_per_row.cu top_k/3_in_registers.cu top_k/4_shipped.cpp)
