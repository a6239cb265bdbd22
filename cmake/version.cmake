# What `--version` of every program says. The version is that of project() in the root. What is known when CMake
# configures is in build_facts.h. The commit is in an object of its own, made again when the commit has changed: then
# programs are linked again, and nothing else.
set(trireme_processor "${TRIREME_ARCH}")
if(NOT trireme_processor)
  set(trireme_processor "any of ${CMAKE_SYSTEM_PROCESSOR}")
endif()
set(trireme_cuda_text "off")
if(trireme_with_cuda)
  set(trireme_cuda_text "nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
  if(trireme_with_nccl)
    string(APPEND trireme_cuda_text ", NCCL")
  endif()
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/build_facts.h.in
  ${PROJECT_BINARY_DIR}/generated/train/program/build_facts.h @ONLY)

# For the library's users, as <trireme/version.h>.
configure_file(${CMAKE_CURRENT_LIST_DIR}/version.h.in ${PROJECT_BINARY_DIR}/include/trireme/version.h @ONLY)
configure_file(${CMAKE_CURRENT_LIST_DIR}/trireme.h.in ${PROJECT_BINARY_DIR}/include/trireme/trireme.h COPYONLY)
configure_file(${CMAKE_CURRENT_LIST_DIR}/train.h.in ${PROJECT_BINARY_DIR}/include/trireme/train.h COPYONLY)
if(TRIREME_LIBRARY_ONLY)
  return()
endif()

# Writes commit.cpp if its content changes. Runs in every build; asking git takes milliseconds.
add_custom_target(trireme_commit_source
  COMMAND ${CMAKE_COMMAND} -DSOURCES=${PROJECT_SOURCE_DIR} -DOUT=${PROJECT_BINARY_DIR}/generated/commit.cpp
          -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake
  BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/commit.cpp
  COMMENT "" VERBATIM)
add_library(trireme_commit OBJECT ${PROJECT_BINARY_DIR}/generated/commit.cpp)
target_link_libraries(trireme_commit PRIVATE trireme_flags)
add_dependencies(trireme_commit trireme_commit_source)
