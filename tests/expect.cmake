# Runs a program for ctest and checks its output and its exit code. ctest's PASS_REGULAR_EXPRESSION would ignore the
# exit code:
#   cmake -DTEXT=REGEX -DCODE=REGEX -P tests/expect.cmake -- PROGRAM ARGUMENTS...
# TEXT must match somewhere in stdout and stderr, CODE the whole exit code.
cmake_minimum_required(VERSION 3.22)

math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(DEFINED command)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(command "")
  endif()
endforeach()

execute_process(COMMAND ${command} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE code
  ECHO_OUTPUT_VARIABLE ECHO_ERROR_VARIABLE)
if(NOT "${code}" MATCHES "^(${CODE})$")
  message(FATAL_ERROR "exit code ${code}; expected ${CODE}")
endif()
if(NOT "${output}" MATCHES "${TEXT}")
  message(FATAL_ERROR "the output lacks ${TEXT}")
endif()
