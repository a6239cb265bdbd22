// data.txt in a run's folder: the files that the run was trained on, below a title one in each line, as HASH BYTES
// NAME. A run that resumes with other data says with it which file differs.
// Read next: train/runs/run_folder.h, which writes it; data/corpus.h.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/text_files.h"

namespace trireme {

inline constexpr const char* data_list_name = "data.txt";

/// The content of data.txt. Names have what is not printable escaped.
std::string data_list(const std::vector<SourceFile>& files);

/// The first file that is not the same in two lists, as a message; empty: they are equal.
std::string first_changed_file(std::string_view before, std::string_view now);

/// first_changed_file() to the list in the folder of the run that saved this checkpoint; empty if there is no list.
std::string difference_to_saved(const std::filesystem::path& checkpoint, std::string_view now);

}  // namespace trireme
