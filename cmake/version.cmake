# What `--version` of every program says. What is known when CMake configures is in build_facts.h. The commit is in an
# object of its own, made again when the commit has changed: then programs are linked again, and nothing else.
set(trireme_processor "${TRIREME_ARCH}")
if(NOT trireme_processor)
  set(trireme_processor "any of ${CMAKE_SYSTEM_PROCESSOR}")
endif()
set(trireme_mpi_text "off")
if(TRIREME_MPI)
  set(trireme_mpi_text "version ${MPI_CXX_VERSION} of the standard")
endif()
set(trireme_cuda_text "off")
if(trireme_with_cuda)
  set(trireme_cuda_text "nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
  if(trireme_with_nccl)
    string(APPEND trireme_cuda_text ", NCCL")
  endif()
endif()
configure_file(cmake/build_facts.h.in ${CMAKE_BINARY_DIR}/generated/train/program/build_facts.h @ONLY)

# Writes commit.cpp if its content changes. Runs in every build; asking git takes milliseconds.
add_custom_target(trireme_commit_source
  COMMAND ${CMAKE_COMMAND} -DSOURCES=${PROJECT_SOURCE_DIR} -DOUT=${CMAKE_BINARY_DIR}/generated/commit.cpp
          -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake
  BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/commit.cpp
  COMMENT "" VERBATIM)
add_library(trireme_commit OBJECT ${CMAKE_BINARY_DIR}/generated/commit.cpp)
target_link_libraries(trireme_commit PRIVATE trireme_flags)
add_dependencies(trireme_commit trireme_commit_source)
