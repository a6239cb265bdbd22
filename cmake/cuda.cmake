# TRIREME_CUDA: whether programs can run on a GPU. AUTO: if nvcc is found. Sets trireme_with_cuda.
# Without it everything else is still built and tested; kernels are tested under emulation in either case.
if(PROJECT_IS_TOP_LEVEL)
  set(cuda_default AUTO)
else()
  set(cuda_default OFF)  # nvcc takes minutes; the other project says when it wants a GPU
endif()
set(TRIREME_CUDA ${cuda_default} CACHE STRING "Build for GPUs: ON, OFF, or AUTO (when nvcc is found)")
set_property(CACHE TRIREME_CUDA PROPERTY STRINGS AUTO ON OFF)
set(trireme_with_cuda OFF)
set(trireme_with_nccl OFF)
if(NOT TRIREME_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TRIREME_CUDA=${TRIREME_CUDA}; expected ON, OFF or AUTO")
endif()
if(TRIREME_CUDA STREQUAL OFF)
  message(STATUS "CUDA: off (TRIREME_CUDA=OFF)")
  return()
endif()
if(TRIREME_SANITIZE)
  if(TRIREME_CUDA STREQUAL ON)
    message(FATAL_ERROR "TRIREME_CUDA=ON with TRIREME_SANITIZE=${TRIREME_SANITIZE}: sanitizers do not see GPU code; "
                        "expected one of the two; drop one")
  endif()
  message(STATUS "CUDA: off, as sanitizers do not see GPU code")
  return()
endif()

# In ON mode a missing compiler is an error: report what was searched for, rather than let CMake fail later.
find_program(TRIREME_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
set(looked_for "nvcc in PATH, CUDA_HOME, CUDA_PATH and /usr/local/cuda/bin")
if(NOT TRIREME_NVCC)
  if(TRIREME_CUDA STREQUAL ON)
    message(FATAL_ERROR "TRIREME_CUDA=ON, but no CUDA compiler was found; looked for ${looked_for}. "
                        "Install the CUDA toolkit, set CUDA_HOME, or use -DTRIREME_CUDA=OFF.")
  endif()
  message(STATUS "CUDA: off, no compiler found (looked for ${looked_for})")
  return()
endif()

# Code for A100 and for H100 and H200, and PTX that the driver translates for other GPUs since sm_80, at a program's
# first start.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90a-real)
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${TRIREME_NVCC})
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 13 has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
set(trireme_with_cuda ON)
message(STATUS "CUDA: on, nvcc ${CMAKE_CUDA_COMPILER_VERSION} at ${CMAKE_CUDA_COMPILER}, "
               "for ${CMAKE_CUDA_ARCHITECTURES}")

# NCCL, for one GPU per process: in the toolkit's folders, or the system's (libnccl-dev).
find_path(TRIREME_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(TRIREME_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(TRIREME_NCCL_INCLUDE AND TRIREME_NCCL_LIBRARY)
  set(trireme_with_nccl ON)
  message(STATUS "NCCL: on, ${TRIREME_NCCL_LIBRARY}")
else()
  message(STATUS "NCCL: off, nccl.h and libnccl.so were not found; ranks move GPU tensors through the host")
endif()
