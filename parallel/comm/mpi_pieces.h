// MPI 3 counts the elements of a call with an int. What has more goes in pieces, each a call of its own, so that no
// operation is refused for its size. All ranks cut alike, as counts are the same on all.
//
// The limit applies to the elements of all ranks together where every rank has a share (all_gather, all_to_all, gather,
// scatter, reduce_scatter), because Open MPI computes offsets with an int, too. It applies to the elements of one rank
// in a broadcast or a message.
// Read next: parallel/comm/mpi_group.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace trireme {

class ProcessGroup;
struct WatchOptions;

namespace comm::mpi {

inline constexpr std::int64_t most_per_call = std::numeric_limits<int>::max();  // elements

struct Piece {
  std::int64_t first, count;  // elements
};

/// `count` elements in pieces of at most `longest`, in order. No elements are one piece: there is a call for them, too.
inline std::vector<Piece> pieces(std::int64_t count, std::int64_t longest) {
  std::vector<Piece> result = {{0, std::min(count, longest)}};
  for (std::int64_t first = longest; first < count; first += longest)
    result.push_back({first, std::min(longest, count - first)});
  return result;
}

/// Whether one call can take the shares of all ranks, of `share` elements each.
inline bool fits_one_call(std::int64_t share, int ranks, std::int64_t most) { return share <= most / ranks; }

/// The longest piece of each rank's share.
inline std::int64_t longest_share(int ranks, std::int64_t most) { return std::max<std::int64_t>(1, most / ranks); }

}  // namespace comm::mpi

/// For tests: mpi_world(), whose calls take at most so many elements.
std::shared_ptr<ProcessGroup> mpi_world_in_pieces(const WatchOptions& options, std::int64_t most_per_call);

}  // namespace trireme
