# The functions that every folder uses, so that flags and conventions are in one place.

# All tests also run under sanitizers, except those that start programs (cli), or compare numbers and sources, where a
# sanitizer adds nothing. cuda and cuda_lab bring their own builds: every build without sanitizers has cuda_asan_test,
# and cuda_race_test checks for races what ThreadSanitizer cannot follow, fibers. `ninja -C build-asan cuda_test` works
# too.
# device trains with those kernels, which takes a quarter of an hour there; comm has the groups that move its tensors.
set(TRIREME_NOT_SANITIZED cli cuda cuda_lab device explore golden layering parity)
if(NOT TRIREME_LIBRARY_ONLY)
  add_custom_target(unit_tests)  # builds those; `ctest -L unit` runs them
endif()

# The compiler reads the headers of ten sources once, and instantiates their templates once. So sources of one target use
# different names for what they keep to themselves; a test whose names are those of another one has a namespace.
function(trireme_compile_in_batches target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TRIREME_UNITY} UNITY_BUILD_BATCH_SIZE 10)
endfunction()

# trireme_library(NAME SOURCES a.cpp ... LINKS trireme_core ...): one layer as a static library. A target that links it
# gets C++20 from it, and none of our options.
function(trireme_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:trireme_flags>)
  target_link_libraries(${name} PUBLIC ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS})
  trireme_compile_in_batches(${name})
endfunction()

# For targets that only call the layers below, where all time is spent: they compile in two thirds of the time.
function(trireme_compile_quickly)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  endforeach()
endfunction()

# trireme_program(NAME SOURCES main.cpp ... LINKS ...): a binary in build/bin.
function(trireme_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE trireme_flags ${ARG_LINKS})
  trireme_compile_quickly(${name})
  if(ARG_LINKS MATCHES trireme_train)
    target_link_libraries(${name} PRIVATE trireme_commit)  # cmake/version.cmake
  endif()
endfunction()

# trireme_test(NAME SOURCES a_test.cpp ... LINKS ...): a doctest binary, registered with ctest under its name.
# It runs in the repository's root, and ctest may run another one beside it. A test that keeps two cores busy has the
# property PROCESSORS 3; one that takes minutes has COST, so that it begins early. With THOROUGH_CASES, the cases of
# doctest's suite "thorough" are a test of their own, NAME_thorough, which `test --all` and the sanitizers run. With
# CLOCK_CASES, so are those of the suite "clock", NAME_clock: their result depends on how fast the machine is at the
# moment, so only `./trireme soak` runs them.
function(trireme_test name)
  cmake_parse_arguments(ARG "THOROUGH_CASES;CLOCK_CASES" "" "SOURCES;LINKS" ${ARGN})
  if(NOT TARGET trireme_test_main)  # doctest compiles longer than most tests: compile it once for all
    add_library(trireme_test_main OBJECT ${PROJECT_SOURCE_DIR}/tests/main.cpp)
    target_link_libraries(trireme_test_main PRIVATE trireme_flags doctest::doctest)
  endif()
  add_executable(${name} ${ARG_SOURCES} $<TARGET_OBJECTS:trireme_test_main>)
  target_link_libraries(${name} PRIVATE trireme_flags ${ARG_LINKS} doctest::doctest)
  trireme_compile_quickly(${name})
  trireme_compile_in_batches(${name})
  set(tests ${name})
  if(ARG_CLOCK_CASES)
    add_test(NAME ${name}_clock COMMAND ${name} --test-suite=clock WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name}_clock PROPERTIES LABELS soak PROCESSORS 3)
  endif()
  if(ARG_THOROUGH_CASES)
    add_test(NAME ${name}_thorough COMMAND ${name} --test-suite=thorough WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    list(APPEND tests ${name}_thorough)
    set_tests_properties(${name}_thorough PROPERTIES LABELS thorough)
  endif()
  add_test(NAME ${name} COMMAND ${name} --test-suite-exclude=thorough,clock WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  if(NOT folder IN_LIST TRIREME_NOT_SANITIZED)
    add_dependencies(unit_tests ${name})
    set_property(TEST ${tests} APPEND PROPERTY LABELS unit)
  endif()
endfunction()

# trireme_thorough(NAME...): leaves tests to `./trireme test --all` and CI: those of CUDA kernels under emulation, those
# of faults, and others that find little per second. `all` does not build their programs; `thorough_tests` does.
if(NOT TRIREME_LIBRARY_ONLY)
  add_custom_target(thorough_tests)
endif()
function(trireme_thorough)
  foreach(name ${ARGN})
    set_property(TEST ${name} APPEND PROPERTY LABELS thorough)
    if(TARGET ${name})
      set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
      add_dependencies(thorough_tests ${name})
    endif()
  endforeach()
endfunction()

# trireme_soak(NAME...): leaves tests to `./trireme soak`: those that need real clocks, or programs that few machines have.
function(trireme_soak)
  foreach(name ${ARGN})
    set_property(TEST ${name} APPEND PROPERTY LABELS soak)
  endforeach()
endfunction()
