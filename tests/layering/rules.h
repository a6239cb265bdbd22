// The architecture as a table that a test checks: which layer may include which, and which files may use MPI, NCCL,
// vector intrinsics and the file system. docs/architecture.md explains the layers.
// Read next: tests/layering/layering_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "tests/layering/source.h"

namespace layering {

/// Folders that hold sources, layered or not.
const std::vector<std::string>& source_folders();

/// The layer that a path from the repository's root belongs to ("core", "parallel/mesh", "tests"), or empty.
std::string layer_of(const std::string& path);

/// One message per broken rule, `file:line: what; the rule`.
std::vector<std::string> check(const Source& source);

/// The paths of the tables that none of `sources` has: a row that checks nothing.
std::vector<std::string> unused_paths(const std::vector<Source>& sources);

}  // namespace layering
