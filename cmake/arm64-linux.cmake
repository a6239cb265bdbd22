# Toolchain file for 64-bit Arm on an x86-64 Debian: its cross compiler, and static programs, which QEMU's user
# emulation runs (with shared libraries, QEMU 7.2 hangs in programs that start threads). ARM64_ROOT is a folder with
# Debian's arm64 packages unpacked in it. Used by scripts/arm64_check.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ARM64_ROOT)
set(CMAKE_FIND_ROOT_PATH ${ARM64_ROOT}/usr)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
