# External packages, all from Debian and Ubuntu. What is missing is reported with the name of its package;
# scripts/packages.txt lists them all for ./trireme.
function(trireme_missing what package)
  message(FATAL_ERROR "${what} was not found. Install it with: sudo apt-get install ${package}\n"
                      "(./trireme build installs everything that is missing.)")
endfunction()

# trireme_find(APT_PACKAGE NAME [find_package arguments...])
macro(trireme_find package name)
  find_package(${name} ${ARGN} QUIET)
  if(NOT ${name}_FOUND)
    trireme_missing(${name} ${package})
  endif()
endmacro()

trireme_find(libc6-dev Threads)
trireme_find(libeigen3-dev Eigen3 NO_MODULE)
trireme_find(libfmt-dev fmt)
trireme_find(nlohmann-json3-dev nlohmann_json)
trireme_find(libcli11-dev CLI11)
trireme_find(doctest-dev doctest)
option(TRIREME_MPI "Ranks as processes, by MPI; OFF: ranks are threads of one process" ON)
if(TRIREME_MPI)
  trireme_find(libopenmpi-dev MPI COMPONENTS CXX)
endif()
trireme_find(pkg-config PkgConfig)
pkg_check_modules(pcre2 QUIET IMPORTED_TARGET libpcre2-8)
if(NOT pcre2_FOUND)
  trireme_missing(libpcre2-8 libpcre2-dev)
endif()
find_path(xxhash_folder xxhash.h)
if(NOT xxhash_folder)
  trireme_missing(xxhash.h libxxhash-dev)
endif()
if(NOT TRIREME_FUZZ)  # of one benchmark
  trireme_find(g++ OpenMP COMPONENTS CXX)
endif()

# For programs that run on a machine without these libraries: links all except the C library statically. Debian's fmt
# has no archive; its headers contain everything, and --as-needed then drops the shared library.
option(TRIREME_SELF_CONTAINED "Link libraries into programs; needs TRIREME_MPI=OFF" OFF)
if(TRIREME_SELF_CONTAINED)
  if(TRIREME_MPI)
    message(FATAL_ERROR "TRIREME_SELF_CONTAINED=ON with TRIREME_MPI=ON: MPI cannot be linked into a program; "
                        "configure with -DTRIREME_MPI=OFF")
  endif()
  find_library(TRIREME_PCRE2_ARCHIVE libpcre2-8.a REQUIRED)
  set_target_properties(PkgConfig::pcre2 PROPERTIES INTERFACE_LINK_LIBRARIES ${TRIREME_PCRE2_ARCHIVE})
  add_compile_definitions(FMT_HEADER_ONLY)
  add_link_options(-static-libstdc++ -static-libgcc -Wl,--as-needed)
endif()
