// When files were written last: signs of what a job has done.
#pragma once

#include <filesystem>
#include <optional>

namespace trireme::supervisor {

/// The modification time of a file or folder, on the clock of its file system, so only a change of it tells something;
/// nothing if there is no file.
std::optional<std::filesystem::file_time_type> written(const std::filesystem::path& file);

}  // namespace trireme::supervisor
