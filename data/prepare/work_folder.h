// The folder in which prepare_data works, OUT.partial: which files are its own. Only these are removed, when a job
// begins anew, fails or ends, and a folder with anything else is not taken for one of ours.
// Read next: examples/prepare_data.cpp, data/prepare/prepare_state.h.
#pragma once

#include <filesystem>
#include <string_view>

namespace trireme {

/// The lock of a job. Every job makes it first. Hidden: the work folder may lie in the folder of the texts.
inline constexpr std::string_view prepare_lock_name = ".lock";

/// Whether a job gives this name to a file in its folder, or to the temporary file from which it makes one (core/io.h).
bool is_prepare_file(std::string_view name);

/// Throws ExitCode::locked, naming what is in the way, unless `folder` is absent, empty, or what a job has left: files
/// of its names alone, the lock among them.
void require_own_folder(const std::filesystem::path& folder);

/// Removes the files of a job from `folder`, and `folder` if nothing else is in it.
void remove_job(const std::filesystem::path& folder);

}  // namespace trireme
