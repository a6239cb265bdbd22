// MPI 3 counts the elements of a call with an int. A larger operation is cut into pieces, one call each, so that no
// operation is refused for its size. All ranks cut in the same way, because all have the same counts.
//
// If every rank has a share (all_gather, all_to_all, gather, scatter, reduce_scatter), the limit applies to the
// elements of all ranks together, because Open MPI computes offsets with an int, too. In a broadcast or a message it
// applies to the elements of one rank.
// Read next: parallel/comm/mpi/group.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace trireme {

class ProcessGroup;
struct WatchOptions;
enum class SumOrder : std::uint8_t;

namespace comm::mpi {

inline constexpr std::int64_t most_per_call = std::numeric_limits<int>::max();  // elements

struct Piece {
  std::int64_t first, count;  // elements
};

/// Cuts `count` elements into pieces of at most `longest`, in order. Zero elements give one piece: they need a call,
/// too.
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

/// For tests: mpi_world() with at most this many elements per MPI call.
std::shared_ptr<ProcessGroup> mpi_world_in_pieces(const WatchOptions& options, SumOrder fastest,
                                                  std::int64_t most_per_call);

}  // namespace trireme
