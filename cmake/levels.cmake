# Kernels compiled for several levels of vector instructions (core/cpu/level.h), for TRIREME_ARCH=portable on x86-64.
#
# trireme_level(LIBRARY NAME MARCH SOURCES...): compiles the sources with -march=MARCH, links them to one object of
# which the linker sees a single symbol, trireme_NAME, and adds that object to LIBRARY. Without this, the linker would
# keep one of several copies of each inline function, perhaps the one with instructions that a processor does not have.
find_program(TRIREME_OBJCOPY NAMES objcopy)

function(trireme_level library name march)
  if(NOT TRIREME_OBJCOPY OR NOT CMAKE_NM)
    message(FATAL_ERROR "TRIREME_ARCH=portable needs objcopy and nm, found '${TRIREME_OBJCOPY}' and '${CMAKE_NM}'; "
      "install binutils, or choose another TRIREME_ARCH")
  endif()
  set(objects trireme_objects_${name})
  add_library(${objects} OBJECT ${ARGN})
  target_compile_features(${objects} PRIVATE cxx_std_20)
  target_link_libraries(${objects} PRIVATE trireme_flags ${TRIREME_FMT} Threads::Threads Eigen3::Eigen)
  target_compile_options(${objects} PRIVATE -march=${march})
  target_compile_definitions(${objects} PRIVATE TRIREME_LEVEL_SYMBOL=trireme_${name} TRIREME_LEVEL_NAME="${march}")
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_CXX_COMPILER} -r -nostdlib -Wl,--force-group-allocation -o ${object}.whole
      $<TARGET_OBJECTS:${objects}>
    COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DOBJCOPY=${TRIREME_OBJCOPY} -DSYMBOL=trireme_${name}
      -DFROM=${object}.whole -DTO=${object} -P ${PROJECT_SOURCE_DIR}/cmake/hide_symbols.cmake
    DEPENDS ${objects} $<TARGET_OBJECTS:${objects}> ${PROJECT_SOURCE_DIR}/cmake/hide_symbols.cmake
    COMMENT "Linking the kernels for ${march}" COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(${library} PRIVATE ${object})
endfunction()
