# Three functions that every folder uses, so that flags and conventions are in one place.

# All tests also run under sanitizers, except those that start programs (cli), or compare numbers and sources, where a
# sanitizer adds nothing. cuda and cuda_lab bring their own builds: every build without sanitizers has cuda_asan_test,
# and cuda_race_test checks for races what ThreadSanitizer cannot follow, fibers. `ninja -C build-asan cuda_test` works
# too.
# device trains with those kernels, which takes a quarter of an hour there; comm has the groups that move its tensors.
set(TRIREME_NOT_SANITIZED cli cuda cuda_lab device explore golden layering parity)
add_custom_target(unit_tests)  # builds those; `ctest -L unit` runs them

# The compiler reads the headers of ten sources once, and instantiates their templates once. So sources of one target use
# different names for what they keep to themselves; a test whose names are those of another one has a namespace.
function(trireme_compile_in_batches target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TRIREME_UNITY} UNITY_BUILD_BATCH_SIZE 10)
endfunction()

# trireme_library(NAME SOURCES a.cpp ... LINKS trireme_core ...): one layer as a static library.
function(trireme_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC trireme_flags ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS})
  trireme_compile_in_batches(${name})
endfunction()

# trireme_program(NAME SOURCES main.cpp ... LINKS ...): a binary in build/bin.
function(trireme_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE trireme_flags ${ARG_LINKS})
  if(ARG_LINKS MATCHES trireme_train)
    target_link_libraries(${name} PRIVATE trireme_commit)  # cmake/version.cmake
  endif()
endfunction()

# trireme_test(NAME SOURCES a_test.cpp ... LINKS ...): a doctest binary, registered with ctest under its name.
# It runs in the repository's root, and ctest may run another one beside it. A test that keeps two cores busy has the
# property PROCESSORS 2; one that takes minutes has COST, so that it begins early.
function(trireme_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  if(NOT TARGET trireme_test_main)  # doctest compiles longer than most tests: compile it once for all
    add_library(trireme_test_main OBJECT ${PROJECT_SOURCE_DIR}/tests/main.cpp)
    target_link_libraries(trireme_test_main PRIVATE trireme_flags doctest::doctest)
  endif()
  add_executable(${name} ${ARG_SOURCES} $<TARGET_OBJECTS:trireme_test_main>)
  target_link_libraries(${name} PRIVATE trireme_flags ${ARG_LINKS} doctest::doctest)
  # Tests run for as long as what they test does. They themselves need not be fast, and compile in two thirds of the time.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Og>)
  trireme_compile_in_batches(${name})
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  if(NOT folder IN_LIST TRIREME_NOT_SANITIZED)
    add_dependencies(unit_tests ${name})
    set_tests_properties(${name} PROPERTIES LABELS unit)
  endif()
endfunction()

# trireme_thorough(NAME...): leaves tests to `./trireme test --all` and CI: those of CUDA kernels under emulation, those
# of faults, and others that find little per second. `all` does not build their programs; `thorough_tests` does.
add_custom_target(thorough_tests)
function(trireme_thorough)
  foreach(name ${ARGN})
    set_property(TEST ${name} APPEND PROPERTY LABELS thorough)
    if(TARGET ${name})
      set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
      add_dependencies(thorough_tests ${name})
    endif()
  endforeach()
endfunction()
