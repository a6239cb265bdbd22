#include "train/supervisor/file_times.h"

namespace trireme::supervisor {

namespace fs = std::filesystem;

std::optional<fs::file_time_type> written(const fs::path& file) {
  std::error_code absent;
  const auto when = fs::last_write_time(file, absent);
  return absent ? std::nullopt : std::optional(when);
}

Time time_of(const fs::path& file) {
  using System = std::chrono::system_clock;
  const auto when = written(file);
  if (!when) return {};
  const auto age = fs::file_time_type::clock::now() - *when;
  return System::now() - std::chrono::duration_cast<System::duration>(age);
}

}  // namespace trireme::supervisor
