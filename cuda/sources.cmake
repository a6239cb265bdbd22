# The sources of cuda/, relative to it. Read by cuda/CMakeLists.txt for emulation, by cuda/runtime/CMakeLists.txt for
# nvcc, and by bench/cuda/CMakeLists.txt. All files of kernels/ are kernels; those named *_sm90.cu need sm_90a.
file(GLOB trireme_cuda_kernels RELATIVE ${CMAKE_CURRENT_LIST_DIR} CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_LIST_DIR}/kernels/*.cu)
set(trireme_cuda_emulator
  emu/async.cpp emu/block.cpp emu/cluster.cpp emu/fiber.cpp emu/launch.cpp emu/race.cpp emu/race_registers.cpp
  emu/race_report.cpp emu/registers.cpp emu/shadow.cpp emu/shared.cpp emu/tensor_map.cpp emu/tma.cpp emu/traffic.cpp
  emu/warp_matrix.cpp emu/watched.cpp emu/wgmma.cpp emu/wgmma_registers.cpp)
# The kernel table of Device::cuda, which calls the kernels.
file(GLOB trireme_cuda_table RELATIVE ${CMAKE_CURRENT_LIST_DIR} CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
