# The sources of cuda/, relative to it. Read by cuda/CMakeLists.txt for emulation, by cuda/runtime/CMakeLists.txt for
# nvcc, and by bench/cuda/CMakeLists.txt. All files of kernels/ are kernels; those named *_sm90.cu need sm_90a.
file(GLOB trireme_cuda_kernels RELATIVE ${CMAKE_CURRENT_LIST_DIR} CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/kernels/*.cu)
# The ladders, from naive kernels to those in use.
set(trireme_cuda_levels
  lab/gemm/1_naive.cu lab/gemm/2_coalesced.cu lab/gemm/3_shared_tiles.cu lab/gemm/4_register_tiles.cu
  lab/gemm/5_pipelined.cu lab/gemm/6_tensor_cores.cu lab/gemm/7_shipped.cpp
  lab/attention/1_materialised.cu lab/attention/2_one_pass.cu lab/attention/3_tiled.cu lab/attention/4_shipped.cpp
  lab/attention_backward/1_materialised.cu lab/attention_backward/2_recomputed.cu lab/attention_backward/3_tiled.cu
  lab/attention_backward/4_shipped.cpp
  lab/grouped/1_launch_an_expert.cpp lab/grouped/2_padded.cu lab/grouped/3_shipped.cpp
  lab/memory.cpp
  lab/gradient_norm/1_one_thread.cu lab/gradient_norm/2_interleaved.cu lab/gradient_norm/3_sequential.cu
  lab/gradient_norm/4_shuffles.cu lab/gradient_norm/5_vectors.cu lab/gradient_norm/6_shipped.cpp
  lab/norm_forward/1_row_a_thread.cu lab/norm_forward/2_row_a_block.cu lab/norm_forward/3_read_once.cu
  lab/norm_forward/4_shipped.cpp
  lab/norm_backward/1_column_a_block.cu lab/norm_backward/2_column_a_thread.cu lab/norm_backward/3_tiles.cu
  lab/norm_backward/4_shipped.cpp
  lab/cross_entropy/1_three_passes.cu lab/cross_entropy/2_two_passes.cu lab/cross_entropy/3_one_launch.cu
  lab/cross_entropy/4_shipped.cpp
  lab/adamw/1_unfused.cu lab/adamw/2_vectors.cu lab/adamw/3_fused.cu lab/adamw/4_shipped.cpp
  lab/embedding/1_atomics.cu lab/embedding/2_row_a_block.cu lab/embedding/3_sorted.cu lab/embedding/4_shipped.cpp
  lab/transpose/1_naive.cu lab/transpose/2_tiles.cu lab/transpose/3_shipped.cpp
  lab/swiglu/1_unfused.cu lab/swiglu/2_fused.cu lab/swiglu/3_shipped.cpp
  lab/dropout/1_stored_mask.cu lab/dropout/2_recomputed.cu lab/dropout/3_four_a_block.cu lab/dropout/4_shipped.cpp
  lab/rope/1_angles.cu lab/rope/2_table.cu lab/rope/3_pairs.cu lab/rope/4_shipped.cpp
  lab/sgd/1_unfused.cu lab/sgd/2_fused.cu lab/sgd/3_shipped.cpp
  lab/softmax/1_three_passes.cu lab/softmax/2_read_once.cu lab/softmax/3_warp_a_row.cu lab/softmax/4_shipped.cpp
  lab/rank_order/1_rank_by_rank.cu lab/rank_order/2_one_launch.cu lab/rank_order/3_shipped.cpp
  lab/gather/1_row_a_thread.cu lab/gather/2_row_a_block.cu lab/gather/3_shipped.cpp
  lab/attention_merge/1_unfused.cu lab/attention_merge/2_row_a_thread.cu lab/attention_merge/3_warp_a_row.cu
  lab/attention_merge/4_shipped.cpp
  lab/top_k/1_row_a_thread.cu lab/top_k/2_warp_a_row.cu lab/top_k/3_in_registers.cu lab/top_k/4_shipped.cpp)
set(trireme_cuda_emulator
  emu/async.cpp emu/block.cpp emu/fiber.cpp emu/launch.cpp emu/race.cpp emu/race_report.cpp emu/shadow.cpp
  emu/shared.cpp emu/tma.cpp emu/warp_matrix.cpp emu/wgmma.cpp)
# The kernel table of Device::cuda, which calls the kernels.
file(GLOB trireme_cuda_table RELATIVE ${CMAKE_CURRENT_LIST_DIR} CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
