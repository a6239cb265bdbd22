// Reads C++ sources just well enough to ask "what does this file include?" and "which identifiers does it use?":
// comments and string literals are blanked, so that prose about MPI_Init is not taken for a call of it.
// Read next: tests/layering/rules.h.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace layering {

struct Source {
  std::string path;  ///< from the repository's root, with forward slashes
  std::string text;
};

/// A line of code, numbered from 1, with comments and the contents of string literals replaced by spaces.
/// #include lines keep their file name.
struct Line {
  int number;
  std::string code;
};

/// Every C++ and CUDA source below the given folders, sorted by path. Throws if a folder does not exist.
std::vector<Source> read_sources(const std::filesystem::path& root, const std::vector<std::string>& folders);

std::vector<Line> code_lines(std::string_view text);

/// The file named by an #include line ("core/tensor.h", "vector"), or empty for any other line.
std::string included_file(std::string_view code);

/// The identifiers of a line, in order: `MPI_Init(&x)` gives MPI_Init, x.
std::vector<std::string> identifiers(std::string_view code);

}  // namespace layering
