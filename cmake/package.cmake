# The library as other projects see it: targets named Trireme::LAYER, headers as <trireme/LAYER/...>, and what
# `cmake --install` and CPack make of them. The user's page is docs/installing.md.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# In the order in which a linker wants them: each uses those to its right.
set(trireme_layers ops checks training nccl_absent cuda_absent models optim nn zero checkpoint pipeline data_parallel
    parameters mesh comm autograd data core)
add_library(trireme_parallel INTERFACE)
target_link_libraries(trireme_parallel INTERFACE trireme_zero trireme_checkpoint trireme_pipeline)
# Without MPI and GPU; a program adds Trireme::mpi, or links Trireme::train_cuda.
add_library(trireme_train_cpu INTERFACE)
target_link_libraries(trireme_train_cpu INTERFACE trireme_ops trireme_checks trireme_training trireme_nccl_absent
                      trireme_cuda_absent)
add_library(trireme_all INTERFACE)
target_link_libraries(trireme_all INTERFACE trireme_train_cpu)

# trireme_publish(EXPORT TARGET PUBLIC_NAME): as Trireme::PUBLIC_NAME, here and in the export set.
function(trireme_publish export target name)
  add_library(Trireme::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(${target} SYSTEM INTERFACE
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(TRIREME_INSTALL)
    install(TARGETS ${target} EXPORT ${export} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
  endif()
endfunction()

foreach(layer ${trireme_layers})
  trireme_publish(TriremeTargets trireme_${layer} ${layer})
endforeach()
trireme_publish(TriremeTargets trireme_parallel parallel)
trireme_publish(TriremeTargets trireme_train_cpu train)
trireme_publish(TriremeTargets trireme_all Trireme)
set(Trireme_exports "")  # those that need more than the others
if(TRIREME_MPI)
  list(APPEND Trireme_exports mpi)
  trireme_publish(TriremeMpiTargets trireme_mpi mpi)
endif()
if(trireme_with_cuda)
  list(APPEND Trireme_exports train_cuda)
  add_library(trireme_train_cuda INTERFACE)
  target_link_libraries(trireme_train_cuda INTERFACE trireme_ops trireme_checks trireme_training trireme_nccl trireme_cuda)
  trireme_publish(TriremeCudaTargets trireme_train_cuda train_cuda)
  foreach(part nccl cuda cuda_libraries cuda_library_problems cublaslt cudnn)
    if(TARGET trireme_${part} AND NOT (part STREQUAL nccl AND NOT trireme_with_nccl))
      trireme_publish(TriremeCudaTargets trireme_${part} ${part})
    endif()
  endforeach()
endif()

# Our sources include "core/tensor.h". In another project that could be one of its own files, so that its users get
# copies that include "trireme/core/tensor.h". What only our sources need is left out.
set(source_folders core autograd data parallel nn optim models train)
list(TRANSFORM source_folders APPEND /*.h OUTPUT_VARIABLE patterns)
list(TRANSFORM patterns PREPEND ${PROJECT_SOURCE_DIR}/)
file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${patterns})
list(FILTER headers EXCLUDE REGEX "^(core/cpu/|data/prepare/|parallel/comm/(mpi|nccl)/)")
list(APPEND headers core/cpu/processor.h cuda/choices.h cuda/runtime/open.h cuda/selection.h
     check/parity/parity.h ops/run/train_program.h parallel/comm/mpi/transport.h)
list(JOIN headers "\n" header_lines)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/headers.txt CONTENT "${header_lines}\n")
list(TRANSFORM headers PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE header_files)
set(header_stamp ${PROJECT_BINARY_DIR}/generated/headers.stamp)
add_custom_command(OUTPUT ${header_stamp}
  COMMAND ${CMAKE_COMMAND} -DFROM=${PROJECT_SOURCE_DIR} -DTO=${PROJECT_BINARY_DIR}/include/trireme
          -DLIST=${PROJECT_BINARY_DIR}/generated/headers.txt -P ${PROJECT_SOURCE_DIR}/cmake/headers.cmake
  COMMAND ${CMAKE_COMMAND} -E touch ${header_stamp}
  DEPENDS ${header_files} ${PROJECT_BINARY_DIR}/generated/headers.txt ${PROJECT_SOURCE_DIR}/cmake/headers.cmake
  COMMENT "Headers for the library's users" VERBATIM)
add_custom_target(trireme_headers ALL DEPENDS ${header_stamp})
add_dependencies(trireme_core trireme_headers)

if(NOT TRIREME_INSTALL)
  return()
endif()
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)
set(made ${PROJECT_BINARY_DIR}/generated/package)
install(DIRECTORY ${PROJECT_BINARY_DIR}/include/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
install(FILES LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
foreach(export "" ${Trireme_exports})
  string(REPLACE "train_cuda" "Cuda" set_name "${export}")
  string(REPLACE "mpi" "Mpi" set_name "${set_name}")
  install(EXPORT Trireme${set_name}Targets NAMESPACE Trireme:: DESTINATION ${package_folder} COMPONENT library)
endforeach()
configure_package_config_file(cmake/TriremeConfig.cmake.in ${made}/TriremeConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${made}/TriremeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${made}/TriremeConfig.cmake ${made}/TriremeConfigVersion.cmake DESTINATION ${package_folder}
  COMPONENT library)

# For builds without CMake: `pkg-config --cflags --libs trireme`, or trireme-mpi.
list(TRANSFORM trireme_layers PREPEND -ltrireme_ OUTPUT_VARIABLE trireme_link_flags)
list(JOIN trireme_link_flags " " trireme_link_flags)
# The relative path from a .pc file to the prefix: an installation may be moved.
file(RELATIVE_PATH trireme_up ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" trireme_up "${trireme_up}")
list(JOIN MPI_CXX_LIBRARIES " " trireme_mpi_libraries)
configure_file(cmake/trireme.pc.in ${made}/trireme.pc @ONLY)
install(FILES ${made}/trireme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
if(TRIREME_MPI)
  configure_file(cmake/trireme-mpi.pc.in ${made}/trireme-mpi.pc @ONLY)
  install(FILES ${made}/trireme-mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
endif()

if(PROJECT_IS_TOP_LEVEL)
  include(cmake/deb.cmake)
endif()
