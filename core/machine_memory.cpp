#include "core/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The number in a file; nothing if there is none, as in a file that says "max".
std::optional<std::uint64_t> number_in(const fs::path& path) {
  const std::string text = content_of(path);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} ? std::optional(number) : std::nullopt;
}

/// The smallest number in the file `name` of `folder` and of the folders above it, up to `root`.
std::optional<std::uint64_t> smallest_limit(const fs::path& root, fs::path folder, const char* name) {
  std::optional<std::uint64_t> smallest;
  while (true) {
    if (const auto limit = number_in(root / folder / name); limit && (!smallest || *limit < *smallest))
      smallest = limit;
    if (folder.empty()) return smallest;
    folder = folder.parent_path();
  }
}

}  // namespace

// A line is NUMBER:CONTROLLERS:PATH. Version 2 has one line, without controllers. In a container the path may be that
// outside, and not be there; the folders above it are then searched, of which the last is the container's own.
std::optional<std::uint64_t> control_group_limit(const fs::path& root, std::string_view own_groups) {
  std::istringstream lines{std::string(own_groups)};
  std::optional<std::uint64_t> smallest;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path path = fs::path(line.substr(second + 1)).relative_path();
    std::optional<std::uint64_t> limit;
    if (controllers == ",,") limit = smallest_limit(root, path, "memory.max");
    if (controllers.find(",memory,") != std::string::npos)
      limit = smallest_limit(root / "memory", path, "memory.limit_in_bytes");
    if (limit && (!smallest || *limit < *smallest)) smallest = limit;
  }
  return smallest;
}

HostMemory host_memory() {
  const auto machine =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  const auto group = control_group_limit("/sys/fs/cgroup", content_of("/proc/self/cgroup"));
  return group && *group < machine ? HostMemory{*group, true} : HostMemory{machine, false};
}

}  // namespace trireme
