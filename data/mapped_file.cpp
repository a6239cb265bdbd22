// The system calls behind data/mapped_file.h, and the handler of SIGBUS.
#include "data/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/io.h"

namespace trireme {

/// A mapped file as the handler of SIGBUS sees it. A handler may not wait for a lock, so regions form a list that only
/// grows; a region whose file is no longer mapped has size 0, and is used again.
struct MappedFile::Region {
  std::atomic<const std::byte*> begin{nullptr};
  std::atomic<std::size_t> size{0};
  std::string message;
  Region *next = nullptr, *next_vacant = nullptr;

  static Region* claim(const std::byte* begin, std::size_t size, std::string message);
  static void on_bus_error(int signal, siginfo_t* info, void* context);
  static void install_handler();

  // Signals go to the whole process, and a handler takes no context.
  static std::atomic<Region*> first;
  static std::mutex claiming;
  static Region* first_vacant;  // those of size 0, by next_vacant
  void release();
  static struct sigaction before;
};

std::atomic<MappedFile::Region*> MappedFile::Region::first{nullptr};
std::mutex MappedFile::Region::claiming;
MappedFile::Region* MappedFile::Region::first_vacant = nullptr;
struct sigaction MappedFile::Region::before = {};

void MappedFile::Region::on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  static std::atomic_flag told;
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  const bool sent = info->si_code <= 0;  // by a process, not by an access
  for (const Region* region = first; region != nullptr && !sent; region = region->next) {
    const std::byte* const begin = region->begin;
    if (at < begin || at >= begin + region->size) continue;
    while (told.test_and_set()) ::pause();  // another thread is writing the message
    static_cast<void>(!::write(STDERR_FILENO, region->message.data(), region->message.size()));
    ::_exit(static_cast<int>(ExitCode::data));
  }
  // Not ours: the access is made again, or the signal raised again, and ends as it would without this handler.
  ::sigaction(signal, &before, nullptr);
  if (sent) static_cast<void>(::raise(signal));
}

void MappedFile::Region::install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &before);
  });
}

MappedFile::Region* MappedFile::Region::claim(const std::byte* begin, std::size_t size, std::string message) {
  install_handler();
  const std::scoped_lock lock(claiming);
  Region* region = first_vacant;
  if (region == nullptr) {
    region = new Region;  // never freed: the handler may be reading the list
    region->next = first;
    first = region;
  } else {
    first_vacant = region->next_vacant;
  }
  region->message = std::move(message);
  region->begin = begin;
  region->size = size;
  return region;
}

void MappedFile::Region::release() {
  const std::scoped_lock lock(claiming);
  size = 0;
  next_vacant = std::exchange(first_vacant, this);
}

namespace {

std::string cut_short(const std::filesystem::path& path, std::size_t size) {
  return fmt::format(
      "{} was cut short while it was read; expected its {} bytes to stay; bring the file back, and start again",
      path.string(), size);
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  const InputFile file(path_);  // the mapping outlives its descriptor
  struct stat info {};
  if (::fstat(file.descriptor(), &info) == 0) {
    device_ = info.st_dev;
    inode_ = info.st_ino;
  }
  size_ = file.size();
  if (size_ == 0) return;
  void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (mapping == MAP_FAILED)
    fail(ExitCode::io, "data", "cannot read {}: {}", path_.string(), std::generic_category().message(errno));
  data_ = static_cast<const std::byte*>(mapping);
  region_ = Region::claim(
      data_, size_,
      fmt::format("trireme: FATAL[{}] [data] {}\n", static_cast<int>(ExitCode::data), cut_short(path_, size_)));
}

void MappedFile::require_whole() const {
  struct stat info {};
  if (size_ == 0 || ::stat(path_.c_str(), &info) != 0) return;
  const bool same = info.st_dev == device_ && info.st_ino == inode_;
  if (same && static_cast<std::size_t>(info.st_size) < size_)
    fail(ExitCode::data, "data", "{}", cut_short(path_, size_));
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  region_->release();
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      device_(other.device_),
      inode_(other.inode_),
      region_(std::exchange(other.region_, nullptr)) {}

}  // namespace trireme
