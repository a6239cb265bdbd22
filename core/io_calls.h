// All file system calls of core/io.cpp: open, read, write, sync, close, rename, remove. Each checks one variable and
// then makes the system call: core/io_faults.h can count the calls, log them, and make the N-th one fail. Each returns
// what the system call returns, and sets errno as it does. Read next: core/io_calls.cpp.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace trireme::io {

int open(const char* path, int flags, mode_t mode = 0);
ssize_t read(int fd, void* bytes, std::size_t count);
ssize_t pread(int fd, void* bytes, std::size_t count, off_t offset);
ssize_t write(int fd, const void* bytes, std::size_t count);
int fsync(int fd);
int close(int fd);
int ftruncate(int fd, off_t size);
int truncate(const char* path, off_t size);
int rename(const char* from, const char* to);
int unlink(const char* path);
int mkdir(const char* path, mode_t mode);
int rmdir(const char* path);

}  // namespace trireme::io
