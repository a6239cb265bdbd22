// When files were written last: signs of what a job has done.
#pragma once

#include <filesystem>
#include <optional>

#include "train/supervisor/incidents.h"

namespace trireme::supervisor {

/// The modification time of a file, on the clock of its file system; nothing if there is no file.
std::optional<std::filesystem::file_time_type> written(const std::filesystem::path& file);

/// The modification time of a file on the clock of incidents; the epoch if there is no file.
Time time_of(const std::filesystem::path& file);

}  // namespace trireme::supervisor
