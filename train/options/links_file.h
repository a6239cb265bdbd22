// The file of --links: nodes, and the links within and between them, so that rank threads can imitate a cluster.
//
//   {"ranks_per_node": 4,
//    "within":  {"latency_us": 5,   "gb_per_s": 10},
//    "between": {"latency_us": 100, "gb_per_s": 1},
//    "topology": "fat-tree", "oversubscription": 2}
//
// "topology": fat-tree (the default), rail, or torus with "torus": [4, 2], the nodes along each dim.
// Read next: parallel/comm/algorithms/network.h.
#pragma once

#include <filesystem>
#include <string_view>

#include "parallel/comm/algorithms/network.h"

namespace trireme {

/// `text`: of the file `path`. Throws ExitCode::usage, naming the field, if the text is not such an object, or does not
/// fit `ranks` ranks.
comm::Links parse_links(std::string_view text, const std::filesystem::path& path, int ranks);
/// The same of a file. Throws ExitCode::usage if it cannot be read.
comm::Links read_links(const std::filesystem::path& path, int ranks);

}  // namespace trireme
