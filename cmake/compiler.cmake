# Language level, warnings, optimisation and sanitizers: the options of all our targets, and of no others. As a part of
# another project, this folder's variables do not reach that project's.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

find_program(TRIREME_CCACHE ccache)
if(TRIREME_CCACHE AND PROJECT_IS_TOP_LEVEL)
  # Paths are hashed relative to the checkout, so that other clones can reuse this one's objects; __FILE__ is relative,
  # too (-fmacro-prefix-map below).
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${TRIREME_CCACHE})
endif()

option(TRIREME_UNITY "Compile ten sources at a time; a full build takes half the time" ON)

# Every target of ours links it PRIVATE: its include path and options are not those of the library's users.
add_library(trireme_flags INTERFACE)
target_include_directories(trireme_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(trireme_flags INTERFACE -Wall -Wextra -Wconversion -Wno-psabi -fno-strict-aliasing
  $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns about "text" + std::string (its bug 105651) and about fmt's own buffers.
  target_compile_options(trireme_flags INTERFACE -Wno-restrict -Wno-stringop-overflow)
endif()
if(TRIREME_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # A header may not have members of a type in an anonymous namespace. GCC takes the sources of a batch for headers.
  target_compile_options(trireme_flags INTERFACE -Wno-subobject-linkage)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC looks for unused memory only above 300 MB, and so compiles 7% faster.
  target_compile_options(trireme_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=300000>)
endif()
if(TRIREME_WERROR)
  target_compile_options(trireme_flags INTERFACE -Werror)
endif()
# portable: code for any processor of the family, and on x86-64 also kernels for higher levels (core/cpu/level.h).
set(TRIREME_X86_LEVELS OFF)
set(trireme_base_level_name "${TRIREME_ARCH}")
if(TRIREME_ARCH STREQUAL portable OR NOT TRIREME_ARCH)
  set(trireme_base_level_name "any ${CMAKE_SYSTEM_PROCESSOR}")
  if(TRIREME_ARCH AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(TRIREME_X86_LEVELS ON)
    set(trireme_base_level_name x86-64)
  endif()
else()
  target_compile_options(trireme_flags INTERFACE -march=${TRIREME_ARCH})
endif()
if(TRIREME_ARCH STREQUAL native)
  # ccache hashes the text "-march=native", not what it means: name the processor, so that a cache
  # shared between machines never hands one machine's instructions to another.
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo cpu_flags REGEX "^(flags|Features)" LIMIT_COUNT 1)
    string(MD5 cpu_hash "${cpu_flags}")
    target_compile_definitions(trireme_flags INTERFACE TRIREME_CPU_${cpu_hash})
  endif()
endif()
if(TRIREME_SANITIZE)
  # Undefined behaviour ends the program instead of printing a line that nobody reads.
  target_compile_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE})
  if(TRIREME_SANITIZE MATCHES undefined AND NOT TRIREME_FUZZ)
    # These five checks take 40 of 100 seconds of compiling. AddressSanitizer sees what most of the wrong pointers lead
    # to, and the parsers have all checks under the fuzzer.
    target_compile_options(trireme_flags INTERFACE
      -fno-sanitize=null,object-size,vptr,pointer-overflow,alignment)
  endif()
endif()
