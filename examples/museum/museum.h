// Which exhibit of the museum of silent bugs this process shows. Only the museum's build has this file, as
// core/museum.h: `./trireme museum` plants the lines of all exhibits in a copy of the sources, each as in
//   museum::shows("positions_by_place") ? run.local : run.global
// Read next: examples/museum/README.md.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace trireme::museum {

/// True if the environment variable TRIREME_EXHIBIT names this exhibit. The same on all ranks, threads or processes.
inline bool shows(std::string_view exhibit) {
  static const std::string shown = [] {
    const char* const name = std::getenv("TRIREME_EXHIBIT");
    return std::string(name == nullptr ? "" : name);
  }();
  return shown == exhibit;
}

}  // namespace trireme::museum
