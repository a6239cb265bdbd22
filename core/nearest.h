// Finds the name closest to a mistyped one, for messages: "unknown flag --stpes; the nearest is --steps".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The least number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`. No
/// substring is edited twice (optimal string alignment; Damerau 1964).
int edit_distance(std::string_view a, std::string_view b);

/// The name with the smallest edit distance to `word`, the first of several; empty for an empty list.
std::string nearest(std::string_view word, const std::vector<std::string>& names);
/// The `count` names with the smallest distances, the nearest first; all of them if there are fewer.
std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& names, std::size_t count);

}  // namespace trireme
