#include "ops/supervisor/file_times.h"

namespace trireme::supervisor {

namespace fs = std::filesystem;

std::optional<fs::file_time_type> written(const fs::path& file) {
  std::error_code absent;
  const auto when = fs::last_write_time(file, absent);
  return absent ? std::nullopt : std::optional(when);
}

}  // namespace trireme::supervisor
