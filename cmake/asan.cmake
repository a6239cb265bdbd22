# AddressSanitizer and UndefinedBehaviorSanitizer for single targets of a build without sanitizers, and the options that
# code on fibers (cuda/emu) needs in any build. trireme_asan_flags exists if the compiler and its runtime support it, and
# TRIREME_KERNEL_CHECKS asks for it.
add_library(trireme_fiber_flags INTERFACE)
set(no_fake_stacks "")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(no_fake_stacks --param=asan-use-after-return=0)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL Clang AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  set(no_fake_stacks -fsanitize-address-use-after-return=never)
endif()

if(TRIREME_SANITIZE)
  # Detection of use after return puts frames on the heap. Each fiber would map and unmap megabytes: 3/4 of the time.
  if(TRIREME_SANITIZE MATCHES address)
    target_compile_options(trireme_fiber_flags INTERFACE ${no_fake_stacks})
  endif()
  return()
endif()

if(NOT TRIREME_KERNEL_CHECKS MATCHES "^(asan|race|asan,race|none)$")
  message(FATAL_ERROR "TRIREME_KERNEL_CHECKS=${TRIREME_KERNEL_CHECKS}; expected asan, race, asan,race, or none")
endif()
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_FLAGS -fsanitize=address,undefined)
check_cxx_source_compiles("int main() { return 0; }" TRIREME_CAN_SANITIZE)
unset(CMAKE_REQUIRED_FLAGS)
if(TRIREME_CAN_SANITIZE AND TRIREME_KERNEL_CHECKS MATCHES asan)
  # -Og: kernels compile in two thirds of the time of -O1, and the tests take a quarter longer.
  add_library(trireme_asan_flags INTERFACE)
  target_compile_options(trireme_asan_flags INTERFACE
    -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -Og -g1 ${no_fake_stacks})
  target_link_options(trireme_asan_flags INTERFACE -fsanitize=address,undefined)
endif()
