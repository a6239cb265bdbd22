// The system calls behind data/mapped_file.h.
#include "data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace trireme {

namespace {

[[noreturn]] void fail_system(int error, std::string_view doing, const std::filesystem::path& path) {
  fail(ExitCode::io, "data", "cannot {} {}: {}", doing, path.string(), std::generic_category().message(error));
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_system(errno, "open", path_);
  struct stat info {};
  int error = ::fstat(fd, &info) < 0 ? errno : 0;
  const bool regular = error == 0 && S_ISREG(info.st_mode);
  if (regular && info.st_size > 0) {
    size_ = static_cast<std::size_t>(info.st_size);
    void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    if (mapping == MAP_FAILED) {
      error = errno;
    } else {
      data_ = static_cast<const std::byte*>(mapping);
    }
  }
  ::close(fd);  // the mapping outlives the descriptor
  if (error != 0) fail_system(error, "read", path_);
  if (!regular) fail(ExitCode::io, "data", "{} is not a regular file; expected a file on disk", path_.string());
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace trireme
